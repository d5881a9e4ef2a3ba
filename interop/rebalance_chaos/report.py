"""The results of runs, side by side: a table, the verdicts, and histories for a report page.

Owns the figures of a run and the criteria.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Final

from interop.rebalance_chaos import checkers
from interop.rebalance_chaos.history import History
from interop.rebalance_chaos.nodes import DETECTOR_MS
from interop.rebalance_chaos.windows import Window, measured

SETTLE_MS: Final = 2_000
DETECTED_MS: Final = DETECTOR_MS + 10_000 + 1_500 + SETTLE_MS
"""Milliseconds until the queues of a suspended member go to others: RocketMQ checks heartbeats
every 10 s."""
KILLED_MS: Final = 1_500 + SETTLE_MS
HEARD: Final = ("kill", "suspend")
"""Faults in which each running member is notified by its brokers. While packets to a node are lost,
its members hold their old queues until their client notices, which no broker can shorten."""
FIGURES: Final = "<!-- written by make rebalance -->"
"""Text before and after the tables in docs/EVALUATION.md."""


@dataclass(frozen=True)
class Outcome:
    """The figures of a side and strategy."""

    side: str
    strategy: str
    windows: list[Window]
    verdicts: dict[str, Any]

    @property
    def name(self) -> str:
        """Name for tables."""
        return f"{self.side} {self.strategy}"

    @property
    def rebalances(self) -> list[Window]:
        """Windows with any change."""
        return [one for one in self.windows if one.line["before"] != one.line["after"]]

    def worst(self, name: str, kinds: Sequence[str] = ("kill", "suspend", "loss")) -> int:
        """Return the greatest value of a measure over windows of these kinds."""
        return max((getattr(one, name) for one in self.windows if one.kind in kinds), default=0)

    def total(self, name: str, kinds: Sequence[str] = ("kill", "suspend", "loss")) -> int:
        """Return the sum of a measure over windows of these kinds."""
        return sum(getattr(one, name) for one in self.windows if one.kind in kinds)

    def to_json(self) -> dict[str, Any]:
        """Return all figures as a dictionary."""
        windows = [
            {
                "window": one.what,
                "settleMs": one.settle_ms,
                "isSettled": one.is_settled,
                "balanceDegree": one.measures.balance_degree,
                "stickiness": one.measures.stickiness,
                "moved": one.moved,
                "movedMin": one.measures.moved_min,
                "overlapMs": one.overlap_ms,
                "overlapsMs": one.overlaps_ms,
                "unownedMs": one.unowned_ms,
            }
            for one in self.windows
        ]
        return {
            "side": self.side,
            "strategy": self.strategy,
            "windows": windows,
            "checkers": self.verdicts,
        }


def outcome(side: str, strategy: str, history: History) -> Outcome:
    """Judge one run."""
    name = f"{side} {strategy}"
    windows = measured(history, name, name.replace(" ", "-"))
    return Outcome(side, strategy, windows, checkers.verdicts(history))


_HEAD: Final = (
    "run", "lost", "order", "twice", "balance", "stickiness", "moved", "beyond", "settled ms",
    "two owners ms", "of all queues", "without loss", "no owner ms, kill", "others", "p99 ms",
)  # fmt: skip


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Return the lines of the table in Markdown."""
    yield "| " + " | ".join(_HEAD) + " |"
    yield "|" + "---|" * len(_HEAD)
    for one in outcomes:
        delivery = one.verdicts["MQChecker"]
        sticky = [
            w.measures.stickiness for w in one.rebalances if w.measures.stickiness is not None
        ]
        cells = [
            one.name,
            delivery["lostMessageCount"],
            "kept" if one.verdicts["OrderChecker"]["isOrdered"] else "broken",
            delivery["duplicateMessageCount"],
            f"{mean(w.measures.balance_degree for w in one.windows):.2f}",
            f"{mean(sticky):.2f}" if sticky else "-",
            one.total("moved"),
            one.total("beyond"),
            one.worst("settle_ms"),
            one.worst("overlap_ms"),
            one.total("overlaps_ms"),
            one.total("overlaps_ms", HEARD),
            one.worst("unowned_ms", ("kill",)),
            one.worst("unowned_ms", ("suspend", "loss")),
            one.verdicts["EndToEndLatencyChecker"]["p99Ms"],
        ]
        yield "| " + " | ".join(map(str, cells)) + " |"


def windows_table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Return lines of Markdown with three figures of each window and run: the time to settle, the
    moves beyond the least, and the time with two owners, of all queues."""
    yield "| window | " + " | ".join(one.name for one in outcomes) + " |"
    yield "|" + "---|" * (len(outcomes) + 1)
    rows: dict[str, list[str]] = {}
    for one in outcomes:
        for number, window in enumerate(one.windows, 1):
            cell = f"{window.settle_ms}, {window.beyond}, {window.overlaps_ms}"
            rows.setdefault(f"{number} {window.what}", []).append(cell)
    for name, cells in rows.items():
        yield f"| {name} | " + " | ".join(cells) + " |"


def paged(page: str, heading: str, outcomes: Sequence[Outcome]) -> str:
    """Return the page with the tables replaced. Raises ValueError if the page has no place for
    them."""
    before, _, rest = page.partition(FIGURES)
    _, found, behind = rest.partition(FIGURES)
    if not found:
        raise ValueError(f"the page has not twice {FIGURES}")
    about = "Of each window: ms to settle, moves beyond the least, ms of two owners of all queues."
    parts = [heading, *table(outcomes), "", about, "", *windows_table(outcomes)]
    text = "\n".join([FIGURES, "", parts[0], "", *parts[1:], "", FIGURES])
    return before + text + behind


def broken(one: Outcome, others: Sequence[Outcome]) -> Iterator[str]:
    """Return the missed criteria of a run of ours, as sentences."""
    if one.verdicts["MQChecker"]["lostMessageCount"]:
        yield f"lost {one.verdicts['MQChecker']['lostMessages']}"
    if not one.verdicts["OrderChecker"]["isOrdered"]:
        yield f"out of order: {one.verdicts['OrderChecker']['firstWrong']}"
    for window in one.windows:
        yield from (f"{window.what}: {text}" for text in _of_window(one, window))
    if one.strategy.startswith("broker"):
        yield from _overlapping(one, [other for other in others if other.side == "rocketmq"])


def _overlapping(one: Outcome, others: Sequence[Outcome]) -> Iterator[str]:
    """Check that the time is at most half of RocketMQ's brokers', and, without the windows of loss,
    at most half of RocketMQ's clients', too."""
    for other in others:
        is_heard = not other.strategy.startswith("broker")
        mine, theirs = (
            each.total("overlaps_ms", HEARD) if is_heard else each.total("overlaps_ms")
            for each in (one, other)
        )
        if mine * 2 > theirs:
            where = ", without the windows of loss" if is_heard else ""
            yield f"two owners for {mine} ms, {other.name} {theirs}{where}"


def _of_window(one: Outcome, window: Window) -> Iterator[str]:
    if not window.is_settled:
        yield f"not settled: {window.line['after']}"
    if not one.strategy.startswith("broker"):
        return
    # Under loss a member leaves and returns for the brokers, which no window shows.
    if one.strategy == "broker-STICKY" and window.beyond and window.kind != "loss":
        yield f"{window.beyond} moves beyond the minimum"
    if window.settle_ms > SETTLE_MS:
        yield f"settled {window.settle_ms} ms after the notice"
    limit = KILLED_MS if window.kind == "kill" else DETECTED_MS
    if window.unowned_ms > limit:
        yield f"a queue had no owner for {window.unowned_ms} ms"


def kept(outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """Write the histories that `turbopump analyze rebalance` reads, and all figures."""
    files = []
    for one in outcomes:
        file = folder / f"{one.side}-{one.strategy}.jsonl"
        file.write_text("".join(json.dumps(window.line) + "\n" for window in one.rebalances))
        files.append(file)
    figures = [one.to_json() for one in outcomes]
    (folder / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    return files
