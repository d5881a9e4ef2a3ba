"""The comparison of replication as Markdown: medians of the rounds, ratios, targets.

Owns the tables. It must never measure.
"""

import os
import platform
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version

from bench.replication.loop import PIECE
from bench.replication.pairs import BODY, LOADS, Copied, Measured, Sent
from bench.versus.report import format_number
from bench.versus.targets import OURS, THEIRS

OF_LOOP, TIMES = 0.7, 5.0
"""Targets: share of the loop's rate, and multiple of RocketMQ's."""
NOT_MEASURED = "-"


@dataclass
class Results:
    """Results of all rounds, by replicas and side."""

    loops: dict[int, list[Copied]] = field(default_factory=dict)
    pairs: dict[tuple[int, str], list[Measured]] = field(default_factory=dict)

    def loop_median(self, replicas: int, figure: Callable[[Copied], float]) -> float | None:
        """Return the median of a figure of the bare loop with that number of replicas;
        None if not measured."""
        found = self.loops.get(replicas)
        return statistics.median(map(figure, found)) if found else None

    def copied_median(
        self, replicas: int, side: str, figure: Callable[[Copied], float]
    ) -> float | None:
        """Return the median of a figure of a side's catch-up; None if not measured."""
        found = self.pairs.get((replicas, side))
        return statistics.median(figure(one.copied) for one in found) if found else None

    def sent_median(
        self, replicas: int, side: str, load: str, figure: Callable[[Sent], float]
    ) -> float | None:
        """Return the median of a figure of a side's load of sends; None if not measured."""
        found = self.pairs.get((replicas, side))
        return statistics.median(figure(one.sent[load]) for one in found) if found else None

    @property
    def replica_counts(self) -> list[int]:
        """Numbers of replicas with any result."""
        return sorted({*self.loops, *(replicas for replicas, _ in self.pairs)})


def _bytes_per_s(copied: Copied) -> float:
    return copied.bytes_per_s


def _per_cpu_s(copied: Copied) -> float:
    """Return the messages per replica and second of processor time of master and replica."""
    size = copied.bytes_per_s / copied.messages_per_s
    return 1e9 / size / (copied.master_cpu_s + copied.replica_cpu_s)


def _divide(one: float | None, other: float | None) -> float | None:
    """`one` / `other`; None if either is missing or `other` is 0."""
    return one / other if one is not None and other else None


def _times_text(one: float | None, other: float | None) -> str:
    ratio = _divide(one, other)
    return NOT_MEASURED if ratio is None else f"{ratio:.1f}x"


def _percent_text(ratio: float | None) -> str:
    return NOT_MEASURED if ratio is None else f"{ratio:.0%}"


def _target_lines(results: Results) -> list[str]:
    """The table of targets and whether they are met, as Markdown lines."""
    lines = ["| target | wanted | reached | |", "|---|---|---|---|"]

    def add(what: str, wanted: float, reached: float | None, show: Callable[..., str]) -> None:
        verdict = NOT_MEASURED if reached is None else "met" if reached >= wanted else "missed"
        lines.append(f"| {what} | {show(wanted)} | {show(reached)} | {verdict} |")

    def times(ratio: float | None) -> str:
        return NOT_MEASURED if ratio is None else f"{ratio:.1f}x"

    for count in results.replica_counts:
        ours, theirs = (
            [results.copied_median(count, side, figure) for figure in (_bytes_per_s, _per_cpu_s)]
            for side in (OURS, THEIRS)
        )
        messages = [
            results.copied_median(count, side, lambda one: one.messages_per_s)
            for side in (OURS, THEIRS)
        ]
        to = f"catch-up of {_replicas_text(count)}"
        add(
            f"{to}, of the loop's rate",
            OF_LOOP,
            _divide(ours[0], results.loop_median(count, _bytes_per_s)),
            _percent_text,
        )
        add(f"{to}: messages a second, times RocketMQ", TIMES, _divide(*messages), times)
        add(
            f"{to}: messages a CPU second, times RocketMQ",
            TIMES,
            _divide(ours[1], theirs[1]),
            times,
        )
    for count in results.replica_counts:
        for load in LOADS:
            to = f"{load} sends to {_replicas_text(count)}"
            ours, theirs = (
                [
                    results.sent_median(count, side, load, figure)
                    for figure in (lambda one: one.messages_per_s, _total_cpu_us(count))
                ]
                for side in (OURS, THEIRS)
            )
            add(
                f"{to}: messages a second, times RocketMQ",
                TIMES,
                _divide(ours[0], theirs[0]),
                times,
            )
            add(
                f"{to}: messages a CPU second, times RocketMQ",
                TIMES,
                _divide(theirs[1], ours[1]),
                times,
            )
    return [*lines, ""]


def _total_cpu_us(count: int) -> Callable[[Sent], float]:
    """A function for the CPU time in us of a message at the master and all `count` replicas."""
    return lambda one: one.master_cpu_us + count * one.replica_cpu_us


def _replicas_text(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"


def _catch_up_lines(results: Results) -> list[str]:
    """The table of catch-ups, as Markdown lines."""
    lines = [
        "| catch-up | MB/s of each replica | of the loop | messages/s of each | CPU a GB: master"
        " | replica | messages a CPU second |",
        "|---|---|---|---|---|---|---|",
    ]
    for count in results.replica_counts:
        loop = results.loop_median(count, _bytes_per_s)
        cells = [
            format_number(value)
            for value in (
                loop and loop / 1e6,
                results.loop_median(count, lambda one: one.master_cpu_s),
                results.loop_median(count, lambda one: one.replica_cpu_s),
            )
        ]
        lines.append(
            f"| bare loop, {_replicas_text(count)} | {cells[0]} | | | {cells[1]} s"
            f" | {cells[2]} s | |"
        )
        for side, name in ((THEIRS, "RocketMQ"), (OURS, "Turbopump")):
            rate = results.copied_median(count, side, _bytes_per_s)
            values = [
                results.copied_median(count, side, figure)
                for figure in (
                    lambda one: one.messages_per_s,
                    lambda one: one.master_cpu_s,
                    lambda one: one.replica_cpu_s,
                    _per_cpu_s,
                )
            ]
            messages, master, replica, per_cpu = map(format_number, values)
            lines.append(
                f"| {name}, {_replicas_text(count)} | {format_number(rate and rate / 1e6)}"
                f" | {_percent_text(_divide(rate, loop))} | {messages} | {master} s | {replica} s"
                f" | {per_cpu} |"
            )
    return [*lines, ""]


def _send_lines(results: Results) -> list[str]:
    """The table of sends that wait for all replicas, as Markdown lines."""
    lines = [
        "| sends that wait for all replicas | RocketMQ msg/s | Turbopump msg/s | times"
        " | p50 / p99 us, RocketMQ | p50 / p99 us, Turbopump"
        " | CPU us a message (master, replica), RocketMQ | Turbopump | per CPU second |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    refused = []
    for count in results.replica_counts:
        for load in LOADS:
            rates, latencies, cpus, sums = [], [], [], []
            for side in (THEIRS, OURS):
                found = [
                    results.sent_median(count, side, load, figure)
                    for figure in (
                        lambda one: one.messages_per_s,
                        lambda one: one.p50_us,
                        lambda one: one.p99_us,
                        lambda one: one.master_cpu_us,
                        lambda one: one.replica_cpu_us,
                        lambda one: one.refused,
                    )
                ]
                rates.append(found[0])
                latencies.append(f"{format_number(found[1])} / {format_number(found[2])}")
                cpus.append(f"{format_number(found[3])}, {format_number(found[4])}")
                sums.append(results.sent_median(count, side, load, _total_cpu_us(count)))
                if found[5]:
                    refused.append(f"{load} to {_replicas_text(count)}: {side} {found[5]:.2%}")
            lines.append(
                f"| {load}, {_replicas_text(count)} | {format_number(rates[0])} |"
                f" {format_number(rates[1])}"
                f" | {_times_text(rates[1], rates[0])} | {latencies[0]} | {latencies[1]}"
                f" | {cpus[0]} | {cpus[1]} | {_times_text(sums[0], sums[1])} |"
            )
    if refused:
        lines += ["", "Requests answered with an error: " + "; ".join(refused) + "."]
    return lines


def format_markdown(results: Results, size: int, rocketmq: str, rounds: int, seconds: float) -> str:
    """Return the tables of all results and the method as Markdown, for docs/results/tables.md."""
    how = f"""Measured with `python -m bench.replication`: {rounds} round{"s" if rounds > 1 else ""}, {size >> 20} MB of messages of {BODY} B by default HA, all processes on one machine of {os.cpu_count()} cores
(Linux {platform.release()}). Both brokers with their defaults (RocketMQ {rocketmq}: JVM heap 2 GB, G1): replicas that have nothing stand still
while the master is filled; the time counts from when they go on to when the first has all; bytes and messages are of each replica, processor time is per gigabyte and replica. The loop sends
a file by `sendfile` in pieces of {PIECE >> 10} KB to receivers that write it (`bench/sendfile.c`). Sends are of {BODY} B, {seconds:g} s each load, and wait for all
replicas (SYNC_MASTER, inSyncReplicas); connections x requests in flight. Turbopump {version("turbopump")}, Python {platform.python_version()}, uvloop {version("uvloop")}.
"""  # noqa: E501
    return "\n".join(
        [how, *_target_lines(results), *_catch_up_lines(results), *_send_lines(results)]
    )
