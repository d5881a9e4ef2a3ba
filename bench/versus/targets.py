"""The targets, relative to Apache RocketMQ and to the bound, and whether they are met.

Owns the list of targets, and the computation of each from the figures.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

OURS, THEIRS, BOUND = "turbopump", "rocketmq", "bound"
BESIDE = "beside"
"""Name of a second tree of Turbopump that runs under the same load."""


class Medians(Protocol):
    """Results of all rounds."""

    def median(self, figure: str, side: str) -> float | None:
        """Return the median; None if the figure was not measured."""
        ...


@dataclass(frozen=True)
class Target:
    """A row of the page: the value of `reached` must be at least, or at most, `wanted`."""

    what: str
    wanted: float
    reached: Callable[[Medians], float | None]
    unit: str
    at_most: bool = False

    def is_met(self, value: float) -> bool:
        """Compare as shown, so that no value that reads 75 % misses 75 %."""
        shown = float(self.show(value)[: -len(self.unit)])
        return shown <= self.wanted if self.at_most else shown >= self.wanted

    def show(self, value: float) -> str:
        """Format a value with its unit."""
        whole = self.unit in (" %", "/s", " MB")
        return f"{value:.0f}{self.unit}" if whole else f"{value:.2g}{self.unit}"


def _ratio(figure: str, mine: str, other: str, scale: float = 1) -> Callable[..., float | None]:
    def find(medians: Medians) -> float | None:
        one, two = medians.median(figure, mine), medians.median(figure, other)
        return scale * one / two if one and two else None

    return find


def _times(load: str, wanted: float) -> Target:
    find = _ratio(f"{load}.messages_per_s", OURS, THEIRS)
    return Target(f"{load}: messages a second, times RocketMQ", wanted, find, "x")


def _cpu(load: str, wanted: float) -> Target:
    find = _ratio(f"{load}.cpu_us", THEIRS, OURS)
    return Target(f"{load}: messages a broker CPU second, times RocketMQ", wanted, find, "x")


def _bound(load: str, wanted: float) -> Target:
    find = _ratio(f"{load}.messages_per_s", OURS, BOUND, 100)
    return Target(f"{load}: of the bound", wanted, find, " %")


def _load(load: str, times: float, cpu: float, bound: float) -> list[Target]:
    return [_times(load, times), _cpu(load, cpu), _bound(load, bound)]


def _less(what: str, figure: str, wanted: float) -> Target:
    return Target(f"{what}: RocketMQ's is", wanted, _ratio(figure, THEIRS, OURS), "x")


def _topics(medians: Medians) -> float | None:
    many = medians.median("topics.messages_per_s", OURS)
    one = medians.median("send-64x1-128.messages_per_s", OURS)
    return 100 * many / one if many and one else None


def _queues(medians: Medians) -> float | None:
    few = medians.median("queues-4000.cpu_us", OURS)
    many = medians.median("queues-12000.cpu_us", OURS)
    return 100 * few / many if few and many else None


def _tls(load: str) -> Callable[[Medians], float | None]:
    def find(medians: Medians) -> float | None:
        plain = medians.median(f"send-{load}.cpu_us", OURS)
        sealed = medians.median(f"tls-{load}.cpu_us", OURS)
        return 100 * plain / sealed if plain and sealed else None

    return find


TARGETS = [
    *_load("send-64x1-128", 3, 5, 75),
    *_load("send-64x1-1k", 3, 5, 75),
    *_load("send-8x32-128", 10, 15, 45),
    *_load("send-8x32-1k", 10, 15, 45),
    *_load("batch-128", 6, 10, 50),
    *_load("backlog", 4, 10, 60),
    Target(
        "backlog: CPU us a message (Kafka's zero-copy reads: 0.4)",
        0.4,
        lambda medians: medians.median("backlog.cpu_us", OURS),
        " us",
        at_most=True,
    ),
    _times("sync-64x1", 4),
    _cpu("sync-64x1", 4),
    _times("sync-1x1", 3),
    _cpu("sync-1x1", 4),
    _bound("sync-1x1", 60),
    _times("tls-64x1-128", 3),
    _times("tls-8x32-128", 5),
    _cpu("tls-8x32-128", 10),
    Target(
        "TLS instead of plain, 64 connections x 1: messages a broker CPU second kept",
        60,
        _tls("64x1-128"),
        " %",
    ),
    Target(
        "TLS instead of plain, 8 connections x 32: messages a broker CPU second kept",
        60,
        _tls("8x32-128"),
        " %",
    ),
    _less("p99 at 10,000 a second", "fixed-10k.p99_us", 5),
    _times("pop-32", 5),
    _cpu("pop-32", 10),
    _times("pop-1", 5),
    _cpu("pop-1", 10),
    _times("grpc-64x1-1k", 5),
    _cpu("grpc-64x1-1k", 8),
    _times("grpc-8x32-1k", 5),
    _cpu("grpc-8x32-1k", 8),
    _times("grpc-receive", 5),
    _cpu("grpc-receive", 8),
    Target(
        "1,000,000 messages popped and not acknowledged: anonymous memory",
        200,
        lambda medians: medians.median("unacknowledged.anonymous_mb", OURS),
        " MB",
        at_most=True,
    ),
    Target(
        "pulls with SQL92, of which 1 % match: messages looked at a second, times RocketMQ",
        5,
        _ratio("filter.messages_per_s", OURS, THEIRS),
        "x",
    ),
    _less("CPU a message that such a pull looks at", "filter.cpu_us", 5),
    Target("many topics instead of a single topic: messages a second kept", 80, _topics, " %"),
    Target("12,000 queues instead of 4,000: messages a broker CPU second kept", 75, _queues, " %"),
    Target(
        "new topics a second beside 10,000",
        3000,
        lambda medians: medians.median("creation-many.topics_per_s", OURS),
        "/s",
    ),
    _less("anonymous memory after the backlog was sent", "backlog.anonymous_mb", 20),
    _less("ready after start on an empty store", "start.ready_s", 10),
    _less("ready after kill -9", "recovery.ready_s", 5),
    _bound("append", 60),
]


def table(medians: Medians) -> str:
    """Return a table of the targets, their values, and whether they are met."""
    rows, missed, count = [], 0, 0
    for target in TARGETS:
        value = target.reached(medians)
        if value is None:
            continue
        count += 1
        met = target.is_met(value)
        missed += not met
        wanted = f"{'at most ' if target.at_most else ''}{target.wanted:g}{target.unit}"
        verdict = "reached" if met else "**missed**"
        rows.append(f"| {target.what} | {wanted} | {target.show(value)} | {verdict} |")
    reached = f"{count - missed} of {count} reached, {missed} missed"
    head = f"Targets: {reached} (why: docs/PERFORMANCE.md)."
    return "\n".join([head, "", "| what | target | reached | |", "|---|---|---|---|", *rows, ""])
