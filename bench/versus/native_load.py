"""Runs the shipped load generator (pyx/load.pyx) with requests of any kind.

Owns the sockets of a run. It must never know the broker's kind, nor the meaning of a request.
"""

import select
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from turbopump.cli.bench.frames import Parts, Templates
from turbopump.net.wire.command import Command, encode
from turbopump.pyx.load import DONE, SEND, Load

SILENCE_NS: Final = 20_000_000_000
"""Longest time without any answer."""


@dataclass(frozen=True)
class Result:
    """Result of a run of the load generator: rate, answered and refused requests,
    latencies in us."""

    messages_per_s: float
    messages: int
    refused: int
    p50_us: float
    p99_us: float
    worst_us: float


def encode_frame(request: Command, parts: Parts) -> bytes:
    """Encode a request as a frame, with the opaque of `parts`."""
    request.opaque = parts.opaque
    return b"".join(map(bytes, encode(request)))


def run(
    address: str,
    connections: int,
    templates: Templates,
    prepare: Callable[[Load], None] = lambda load: None,
    *,
    messages: int = 0,
    serial: int = 0,
    duration_s: float = 0.0,
    rate: float = 0.0,
    pause_us: int = 0,
) -> Result:
    """Send the requests of `templates` in turn, on each connection the next one when the last one
    was answered, or `rate` requests a second; the other limits are as for Load.set_limits.

    `prepare` may change the load before it begins. Raises OSError, and RuntimeError if the run does
    not end by its limits, if a connection is lost, or if all requests are refused.
    """
    host, _, port = address.rpartition(":")
    load = Load(bytes(templates.texts), templates.rows, b"", connections=connections)
    prepare(load)
    load.set_limits(
        interval_ns=round(1e9 / rate) if rate else 0,
        duration_ns=round(duration_s * 1e9),
        drain_ns=SILENCE_NS,
        silence_ns=SILENCE_NS,
        messages=messages,
        serial=serial,
        pause_us=pause_us,
    )
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
    found = load.counters(SEND)
    refused = sum(count for _, count, _ in found["errors"])
    if ended != DONE or load.lost_connections or (refused and not found["messages"]):
        raise RuntimeError(f"the load of {address} ended with status {ended}: {found['errors']}")
    if refused:
        print(f"refused: {found['errors']}", file=sys.stderr)
    messages, p50, p99 = found["messages"], load.latency(SEND, 0.5), load.latency(SEND, 0.99)
    rate, worst = messages / (load.measured_ns / 1e9), load.latency_max(SEND)
    return Result(rate, messages, refused, p50 / 1000, p99 / 1000, worst / 1000)
