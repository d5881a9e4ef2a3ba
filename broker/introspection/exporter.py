"""Metrics over HTTP, if configured.

Owns the port for Prometheus, and on which thread a scrape runs; metrics.py defines the metrics. It
must never change a part of the broker.

Tests: tests/integration/broker/test_metrics.py
"""

import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from turbopump.broker.config.kinds import MetricsExporterType
from turbopump.broker.context import BrokerContext
from turbopump.broker.introspection.metrics import CounterSnapshot, render
from turbopump.net.ports.scrape import ScrapeServer
from turbopump.net.wire.hosts import join

logger = logging.getLogger(__name__)


class MetricsExporter:
    """Serves the metrics of a broker. `run_on_thread` runs work on a thread beside the loop, and
    raises OSError for its failure; `pause` lets other work of the loop run for a turn; `now_ms`
    returns epoch ms."""

    def __init__(
        self,
        broker: BrokerContext,
        run_on_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
        pause: Callable[[], Awaitable[None]],
        now_ms: Callable[[], int],
    ) -> None:
        self._broker = broker
        self._run_on_thread = run_on_thread
        self._pause = pause
        self._now_ms = now_ms
        self._server = ScrapeServer(self._render)
        self.address = ""
        """`host:port` of the metrics; empty before `start` or if metrics are not configured."""

    async def start(self) -> None:
        """Listen and set `address`, if metricsExporterType is PROM; else do nothing. Raises
        OSError, its text a sentence for the operator."""
        config = self._broker.config
        if config.metrics_exporter_type is not MetricsExporterType.PROM:
            return
        host = config.metrics_prom_exporter_host or config.bind_address
        port = config.metrics_prom_exporter_port
        try:
            self.address = join(host, await self._server.start(host, port))
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise OSError(f"metrics cannot be served at {host}:{port}: {reason}") from None
        logger.info("metrics at http://%s/metrics", self.address)

    async def stop(self) -> None:
        """Close the port and end scrapes in progress."""
        await self._server.stop()

    async def _render(self, accept: str) -> tuple[bytes, str]:
        """Compute the lags in steps, then return (text of a scrape, its content type), made on
        another thread."""
        for _ in self._broker.lags.compute_steps():
            await self._pause()
        snapshot = CounterSnapshot.read_counters(self._broker, self._now_ms())
        body, content_type = await self._run_on_thread(partial(render, snapshot, accept))
        return body, content_type
