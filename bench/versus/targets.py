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
    """The medians of all rounds, by figure and side."""

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
        """Whether a value meets the target; it is compared as shown, so that no value that reads 75
        % misses 75 %."""
        shown = float(self.format_value(value)[: -len(self.unit)])
        return shown <= self.wanted if self.at_most else shown >= self.wanted

    def format_value(self, value: float) -> str:
        """Format a value with its unit."""
        whole = self.unit in (" %", "/s", " MB")
        return f"{value:.0f}{self.unit}" if whole else f"{value:.2g}{self.unit}"


def _ratio_function(
    figure: str, mine: str, other: str, scale: float = 1
) -> Callable[..., float | None]:
    """A function that divides the median of a side by the other side's, times `scale`; None if
    either is missing."""

    def find(medians: Medians) -> float | None:
        one, two = medians.median(figure, mine), medians.median(figure, other)
        return scale * one / two if one and two else None

    return find


def _throughput_target(load: str, wanted: float) -> Target:
    """The target for messages per second of a load, as a multiple of RocketMQ's."""
    find = _ratio_function(f"{load}.messages_per_s", OURS, THEIRS)
    return Target(f"{load}: messages a second, times RocketMQ", wanted, find, "x")


def _cpu_target(load: str, wanted: float) -> Target:
    """The target for messages per CPU second of a load, as a multiple of RocketMQ's."""
    find = _ratio_function(f"{load}.cpu_us", THEIRS, OURS)
    return Target(f"{load}: messages a broker CPU second, times RocketMQ", wanted, find, "x")


def _bound_target(load: str, wanted: float) -> Target:
    """The target for messages per second of a load, in percent of the bound."""
    find = _ratio_function(f"{load}.messages_per_s", OURS, BOUND, 100)
    return Target(f"{load}: of the bound", wanted, find, " %")


def _load_targets(load: str, times: float, cpu: float, bound: float) -> list[Target]:
    """The three targets of a load."""
    return [_throughput_target(load, times), _cpu_target(load, cpu), _bound_target(load, bound)]


def _less_target(what: str, figure: str, wanted: float) -> Target:
    """The target for a figure of which less is better, as a multiple: RocketMQ's value by ours."""
    return Target(f"{what}: RocketMQ's is", wanted, _ratio_function(figure, THEIRS, OURS), "x")


def _topics_percent(medians: Medians) -> float | None:
    """Messages per second over many topics, in percent of a single topic's; None if not
    measured."""
    many = medians.median("topics.messages_per_s", OURS)
    one = medians.median("send-64x1-128.messages_per_s", OURS)
    return 100 * many / one if many and one else None


def _queues_percent(medians: Medians) -> float | None:
    """CPU time per message with 4,000 queues, in percent of that with 12,000; None if not
    measured."""
    few = medians.median("queues-4000.cpu_us", OURS)
    many = medians.median("queues-12000.cpu_us", OURS)
    return 100 * few / many if few and many else None


def _tls_percent(load: str) -> Callable[[Medians], float | None]:
    """A function for the CPU time of a plain send in percent of a send by TLS; None if
    not measured."""

    def find(medians: Medians) -> float | None:
        plain = medians.median(f"send-{load}.cpu_us", OURS)
        sealed = medians.median(f"tls-{load}.cpu_us", OURS)
        return 100 * plain / sealed if plain and sealed else None

    return find


TARGETS = [
    *_load_targets("send-64x1-128", 3, 5, 75),
    *_load_targets("send-64x1-1k", 3, 5, 75),
    *_load_targets("send-8x32-128", 10, 15, 45),
    *_load_targets("send-8x32-1k", 10, 15, 45),
    *_load_targets("batch-128", 6, 10, 50),
    *_load_targets("backlog", 4, 10, 60),
    Target(
        "backlog: CPU us a message (Kafka's zero-copy reads: 0.4)",
        0.4,
        lambda medians: medians.median("backlog.cpu_us", OURS),
        " us",
        at_most=True,
    ),
    _throughput_target("sync-64x1", 4),
    _cpu_target("sync-64x1", 4),
    _throughput_target("sync-1x1", 3),
    _cpu_target("sync-1x1", 4),
    _bound_target("sync-1x1", 60),
    _throughput_target("tls-64x1-128", 3),
    _throughput_target("tls-8x32-128", 5),
    _cpu_target("tls-8x32-128", 10),
    Target(
        "TLS instead of plain, 64 connections x 1: messages a broker CPU second kept",
        60,
        _tls_percent("64x1-128"),
        " %",
    ),
    Target(
        "TLS instead of plain, 8 connections x 32: messages a broker CPU second kept",
        60,
        _tls_percent("8x32-128"),
        " %",
    ),
    _less_target("p99 at 10,000 a second", "fixed-10k.p99_us", 5),
    _throughput_target("pop-32", 5),
    _cpu_target("pop-32", 10),
    _throughput_target("pop-1", 5),
    _cpu_target("pop-1", 10),
    _throughput_target("grpc-64x1-1k", 5),
    _cpu_target("grpc-64x1-1k", 8),
    _throughput_target("grpc-8x32-1k", 5),
    _cpu_target("grpc-8x32-1k", 8),
    _throughput_target("grpc-receive", 5),
    _cpu_target("grpc-receive", 8),
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
        _ratio_function("filter.messages_per_s", OURS, THEIRS),
        "x",
    ),
    _less_target("CPU a message that such a pull looks at", "filter.cpu_us", 5),
    Target(
        "many topics instead of a single topic: messages a second kept", 80, _topics_percent, " %"
    ),
    Target(
        "12,000 queues instead of 4,000: messages a broker CPU second kept",
        75,
        _queues_percent,
        " %",
    ),
    Target(
        "new topics a second beside 10,000",
        3000,
        lambda medians: medians.median("creation-many.topics_per_s", OURS),
        "/s",
    ),
    _less_target("anonymous memory after the backlog was sent", "backlog.anonymous_mb", 20),
    _less_target("ready after start on an empty store", "start.ready_s", 10),
    _less_target("ready after kill -9", "recovery.ready_s", 5),
    _bound_target("append", 60),
]


def format_table(medians: Medians) -> str:
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
        rows.append(f"| {target.what} | {wanted} | {target.format_value(value)} | {verdict} |")
    reached = f"{count - missed} of {count} reached, {missed} missed"
    head = f"Targets: {reached} (why: docs/PERFORMANCE.md)."
    return "\n".join([head, "", "| what | target | reached | |", "|---|---|---|---|", *rows, ""])
