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
from bench.versus.report import number
from bench.versus.targets import OURS, THEIRS

OF_LOOP, TIMES = 0.7, 5.0
"""Targets: share of the loop's rate, and multiple of RocketMQ's."""
NOT_MEASURED = "-"


@dataclass
class Results:
    """Results of all rounds, by replicas and side."""

    loops: dict[int, list[Copied]] = field(default_factory=dict)
    pairs: dict[tuple[int, str], list[Measured]] = field(default_factory=dict)

    def loop(self, replicas: int, figure: Callable[[Copied], float]) -> float | None:
        """Return the median of a figure of the bare loop."""
        found = self.loops.get(replicas)
        return statistics.median(map(figure, found)) if found else None

    def copied(self, replicas: int, side: str, figure: Callable[[Copied], float]) -> float | None:
        """Return the median of a figure of a catch-up."""
        found = self.pairs.get((replicas, side))
        return statistics.median(figure(one.copied) for one in found) if found else None

    def sent(
        self, replicas: int, side: str, load: str, figure: Callable[[Sent], float]
    ) -> float | None:
        """Return the median of a figure of a load."""
        found = self.pairs.get((replicas, side))
        return statistics.median(figure(one.sent[load]) for one in found) if found else None

    @property
    def counts(self) -> list[int]:
        """Numbers of replicas with any result."""
        return sorted({*self.loops, *(replicas for replicas, _ in self.pairs)})


def _rate(copied: Copied) -> float:
    return copied.bytes_per_s


def _per_cpu_s(copied: Copied) -> float:
    """Return the messages per replica and second of processor time of master and replica."""
    size = copied.bytes_per_s / copied.messages_per_s
    return 1e9 / size / (copied.master_cpu_s + copied.replica_cpu_s)


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def _times(one: float | None, other: float | None) -> str:
    ratio = _ratio(one, other)
    return NOT_MEASURED if ratio is None else f"{ratio:.1f}x"


def _percent(ratio: float | None) -> str:
    return NOT_MEASURED if ratio is None else f"{ratio:.0%}"


def _targets(results: Results) -> list[str]:
    lines = ["| target | wanted | reached | |", "|---|---|---|---|"]

    def add(what: str, wanted: float, reached: float | None, show: Callable[..., str]) -> None:
        verdict = NOT_MEASURED if reached is None else "met" if reached >= wanted else "missed"
        lines.append(f"| {what} | {show(wanted)} | {show(reached)} | {verdict} |")

    def times(ratio: float | None) -> str:
        return NOT_MEASURED if ratio is None else f"{ratio:.1f}x"

    for count in results.counts:
        ours, theirs = (
            [results.copied(count, side, figure) for figure in (_rate, _per_cpu_s)]
            for side in (OURS, THEIRS)
        )
        messages = [
            results.copied(count, side, lambda one: one.messages_per_s) for side in (OURS, THEIRS)
        ]
        to = f"catch-up of {_replicas(count)}"
        add(
            f"{to}, of the loop's rate",
            OF_LOOP,
            _ratio(ours[0], results.loop(count, _rate)),
            _percent,
        )
        add(f"{to}: messages a second, times RocketMQ", TIMES, _ratio(*messages), times)
        add(
            f"{to}: messages a CPU second, times RocketMQ", TIMES, _ratio(ours[1], theirs[1]), times
        )
    for count in results.counts:
        for load in LOADS:
            to = f"{load} sends to {_replicas(count)}"
            ours, theirs = (
                [
                    results.sent(count, side, load, figure)
                    for figure in (lambda one: one.messages_per_s, _all_cpu(count))
                ]
                for side in (OURS, THEIRS)
            )
            add(
                f"{to}: messages a second, times RocketMQ", TIMES, _ratio(ours[0], theirs[0]), times
            )
            add(
                f"{to}: messages a CPU second, times RocketMQ",
                TIMES,
                _ratio(theirs[1], ours[1]),
                times,
            )
    return [*lines, ""]


def _all_cpu(count: int) -> Callable[[Sent], float]:
    return lambda one: one.master_cpu_us + count * one.replica_cpu_us


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"


def _catch_up(results: Results) -> list[str]:
    lines = [
        "| catch-up | MB/s of each replica | of the loop | messages/s of each | CPU a GB: master"
        " | replica | messages a CPU second |",
        "|---|---|---|---|---|---|---|",
    ]
    for count in results.counts:
        loop = results.loop(count, _rate)
        cells = [
            number(value)
            for value in (
                loop and loop / 1e6,
                results.loop(count, lambda one: one.master_cpu_s),
                results.loop(count, lambda one: one.replica_cpu_s),
            )
        ]
        lines.append(
            f"| bare loop, {_replicas(count)} | {cells[0]} | | | {cells[1]} s | {cells[2]} s | |"
        )
        for side, name in ((THEIRS, "RocketMQ"), (OURS, "Turbopump")):
            rate = results.copied(count, side, _rate)
            values = [
                results.copied(count, side, figure)
                for figure in (
                    lambda one: one.messages_per_s,
                    lambda one: one.master_cpu_s,
                    lambda one: one.replica_cpu_s,
                    _per_cpu_s,
                )
            ]
            messages, master, replica, per_cpu = map(number, values)
            lines.append(
                f"| {name}, {_replicas(count)} | {number(rate and rate / 1e6)}"
                f" | {_percent(_ratio(rate, loop))} | {messages} | {master} s | {replica} s"
                f" | {per_cpu} |"
            )
    return [*lines, ""]


def _sends(results: Results) -> list[str]:
    lines = [
        "| sends that wait for all replicas | RocketMQ msg/s | Turbopump msg/s | times"
        " | p50 / p99 us, RocketMQ | p50 / p99 us, Turbopump"
        " | CPU us a message (master, replica), RocketMQ | Turbopump | per CPU second |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    refused = []
    for count in results.counts:
        for load in LOADS:
            rates, latencies, cpus, sums = [], [], [], []
            for side in (THEIRS, OURS):
                found = [
                    results.sent(count, side, load, figure)
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
                latencies.append(f"{number(found[1])} / {number(found[2])}")
                cpus.append(f"{number(found[3])}, {number(found[4])}")
                sums.append(results.sent(count, side, load, _all_cpu(count)))
                if found[5]:
                    refused.append(f"{load} to {_replicas(count)}: {side} {found[5]:.2%}")
            lines.append(
                f"| {load}, {_replicas(count)} | {number(rates[0])} | {number(rates[1])}"
                f" | {_times(rates[1], rates[0])} | {latencies[0]} | {latencies[1]}"
                f" | {cpus[0]} | {cpus[1]} | {_times(sums[0], sums[1])} |"
            )
    if refused:
        lines += ["", "Requests answered with an error: " + "; ".join(refused) + "."]
    return lines


def markdown(results: Results, size: int, rocketmq: str, rounds: int, seconds: float) -> str:
    """Return the section of docs/results/tables.md."""
    how = f"""Measured with `python -m bench.replication`: {rounds} round{"s" if rounds > 1 else ""}, {size >> 20} MB of messages of {BODY} B by default HA, all processes on one machine of {os.cpu_count()} cores
(Linux {platform.release()}). Both brokers with their defaults (RocketMQ {rocketmq}: JVM heap 2 GB, G1): replicas that have nothing stand still
while the master is filled; the time counts from when they go on to when the first has all; bytes and messages are of each replica, processor time is per gigabyte and replica. The loop sends
a file by `sendfile` in pieces of {PIECE >> 10} KB to receivers that write it (`bench/sendfile.c`). Sends are of {BODY} B, {seconds:g} s each load, and wait for all
replicas (SYNC_MASTER, inSyncReplicas); connections x requests in flight. Turbopump {version("turbopump")}, Python {platform.python_version()}, uvloop {version("uvloop")}.
"""  # noqa: E501
    return "\n".join([how, *_targets(results), *_catch_up(results), *_sends(results)])
