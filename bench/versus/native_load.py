"""Runs the shipped load generator (pyx/load.pyx) with requests of any kind.

Owns the sockets of a run. It must never know the broker's kind, nor the meaning of a request.
"""

import select
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from turbopump.cli.bench.frames import Templates
from turbopump.net.wire.command import Command, encode
from turbopump.pyx.load import DONE, SEND, Load

SILENCE_NS: Final = 20_000_000_000
"""Longest time without any answer."""


@dataclass(frozen=True)
class Result:
    """Result of a run; latencies of its requests."""

    messages_per_s: float
    messages: int
    refused: int
    p50_us: float
    p99_us: float
    worst_us: float


def frame(request: Command, opaque: int) -> bytes:
    """Encode a request with an opaque."""
    request.opaque = opaque
    return b"".join(map(bytes, encode(request)))


def run(
    address: str,
    connections: int,
    templates: Templates,
    settle: Callable[[Load], None],
    body: bytes = b"",
) -> Result:
    """Send the requests of `templates` in turn on each connection, which sends the next one when
    the last one was answered; `settle` sets the limits of the load.

    Raises RuntimeError if the run does not end by its limits, with the first refusal.
    """
    host, _, port = address.rpartition(":")
    load = Load(bytes(templates.texts), templates.rows, body, connections=connections)
    settle(load)
    with ExitStack() as stack:
        epoll = stack.enter_context(select.epoll())
        for number in range(connections):
            each = stack.enter_context(socket.create_connection((host, int(port))))
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.setblocking(False)
            count = len(templates.rows)
            load.add_sender(each.fileno(), 1, 0, count, number % count)
        with ThreadPoolExecutor(1) as pool:  # a signal reaches this thread during the run
            future = pool.submit(load.run, epoll.fileno())
            try:
                ended = future.result()
            finally:
                load.stop()
    found = load.figures(SEND)
    refused = sum(count for _, count, _ in found["errors"])
    if ended != DONE or (refused and not found["messages"]):
        raise RuntimeError(f"the load of {address} ended with status {ended}: {found['errors']}")
    if refused:
        print(f"refused: {found['errors']}")
    messages, p50, p99 = found["messages"], load.latency(SEND, 0.5), load.latency(SEND, 0.99)
    rate, worst = messages / (load.measured_ns / 1e9), load.latency_max(SEND)
    return Result(rate, messages, refused, p50 / 1000, p99 / 1000, worst / 1000)
