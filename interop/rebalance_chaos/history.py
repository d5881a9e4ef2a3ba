"""A history in OpenMessaging-Chaos's format (controller.md 23): lines of columns between tabs.

Owns the columns. Programs write lines as things happen; a run's history has them all, by time. Its
checkers pass over our lines, which say what members held (`own`), and when they and their nodes
came and went (`started`, `down`, and `end` of the last window), and when a coordinator that keeps a
history of its own knew of a change (`notice`), and when a node had what was held back of it while
packets to it were lost (`heard`). Called by nodes.py, checkers.py and windows.py.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

OWN, STARTED, DOWN, END, FAULT = "own", "started", "down", "end", "fault"
NOTICE: Final = "notice"
HEARD: Final = "heard"
REQUEST, RESPONSE = "REQUEST", "RESPONSE"
_TIMES: Final = {OWN: 2, STARTED: 2, DOWN: 2, END: 2, NOTICE: 2, HEARD: 2, FAULT: 3}
"""The column of a line's time."""
_REQUEST_TIME, _RESPONSE_TIME = 5, 6


@dataclass(frozen=True)
class Sent:
    """An answer to a producer."""

    outcome: str
    value: str
    key: str
    time_ms: int
    latency_ms: int


@dataclass(frozen=True)
class Got:
    """A message at a consumer."""

    value: str
    key: str
    time_ms: int
    end_to_end_ms: int


@dataclass(frozen=True)
class Happened:
    """The start or the end of a fault."""

    name: str
    is_start: bool
    time_ms: int
    nodes: tuple[str, ...]

    def line(self) -> list[str]:
        """Its columns."""
        end = "start" if self.is_start else "end"
        return [FAULT, self.name, end, str(self.time_ms), " ".join(self.nodes)]


@dataclass(frozen=True)
class Down:
    """A process was killed or suspended, or goes on."""

    process: str
    time_ms: int
    is_down: bool

    def line(self) -> list[str]:
        """Its columns."""
        return [DOWN, self.process, str(self.time_ms), "down" if self.is_down else "up"]


@dataclass(frozen=True)
class Ended:
    """The last window is over."""

    time_ms: int

    def line(self) -> list[str]:
        """Its columns."""
        return [END, "", str(self.time_ms)]


@dataclass(frozen=True)
class Noticed:
    """A coordinator knew of a change."""

    trigger: str
    time_ms: int

    def line(self) -> list[str]:
        """Its columns."""
        return [NOTICE, self.trigger, str(self.time_ms)]


@dataclass(frozen=True)
class Heard:
    """Packets to a node are not lost any more, and the last one that TCP had to send again is
    there."""

    node: str
    time_ms: int

    def line(self) -> list[str]:
        """Its columns."""
        return [HEARD, self.node, str(self.time_ms)]


Event = Happened | Down | Ended | Noticed | Heard


@dataclass(frozen=True)
class Held:
    """From then on a member holds these queues."""

    member: str
    time_ms: int
    queues: frozenset[str]


@dataclass(frozen=True)
class History:
    """What happened in one run, by time."""

    lines: tuple[tuple[str, ...], ...]

    def sends(self) -> Iterator[Sent]:
        """Answers to producers."""
        for line in self._responses("enqueue"):
            yield Sent(line[3], line[4], line[5], int(line[6]), int(line[7]))

    def gets(self) -> Iterator[Got]:
        """What consumers got."""
        for line in self._responses("dequeue"):
            yield Got(line[4], line[5], int(line[6]), int(line[9]))

    def faults(self) -> Iterator[Happened]:
        """Starts and ends of faults."""
        for line in self.lines:
            if line[0] == FAULT:
                yield Happened(line[1], line[2] == "start", int(line[3]), tuple(line[4].split()))

    def held(self) -> Iterator[Held]:
        """Changes of what members held."""
        for line in self.lines:
            if line[0] == OWN:
                queues = frozenset(line[3].split(",")) if line[3] else frozenset[str]()
                yield Held(line[1], int(line[2]), queues)

    def notices(self) -> list[int]:
        """When the coordinator knew of changes, where it keeps a history."""
        return [int(line[2]) for line in self.lines if line[0] == NOTICE]

    def heard(self) -> Iterator[Heard]:
        """When nodes had what was held back of them."""
        for line in self.lines:
            if line[0] == HEARD:
                yield Heard(line[1], int(line[2]))

    @property
    def end_ms(self) -> int:
        """When the last window ended."""
        return next(int(line[2]) for line in self.lines if line[0] == END)

    def downs(self) -> Iterator[Down]:
        """When processes stopped, and when they went on."""
        for line in self.lines:
            if line[0] == DOWN:
                yield Down(line[1], int(line[2]), line[3] == "down")

    def started(self) -> dict[str, int]:
        """When each member had started."""
        return {line[1]: int(line[2]) for line in self.lines if line[0] == STARTED}

    def _responses(self, operation: str) -> Iterator[tuple[str, ...]]:
        for line in self.lines:
            if line[1] == operation and line[2] == RESPONSE:
                yield line


def time_of(line: Sequence[str]) -> int:
    """A line's time in epoch ms."""
    at = _TIMES.get(line[0])
    if at is None:
        at = _REQUEST_TIME if line[2] == REQUEST else _RESPONSE_TIME
    return int(line[at])


def noticed(files: Iterable[Path]) -> Iterator[Noticed]:
    """What brokers' histories of assignments (docs/FORMATS.md) say of when they knew."""
    for file in files:
        for line in file.read_text().splitlines():
            change = json.loads(line)
            # One that never settled has no start: it was decided within some ms of it.
            at_ms = change.get("start_ms") or change["time_ms"]
            yield Noticed(change["trigger"], at_ms)


def gathered(files: Iterable[Path], happened: Iterable[Event]) -> History:
    """One history of what programs wrote, and of what was done to them. The last line of a killed
    program may be cut off; it is left out."""
    lines = [tuple(one.line()) for one in happened]
    for file in files:
        whole, _, _ = file.read_text().rpartition("\n")
        lines += [tuple(line.split("\t")) for line in whole.splitlines()]
    return History(tuple(sorted(lines, key=time_of)))


def read(file: Path) -> History:
    """One that `written` kept."""
    return gathered([file], ())


def written(history: History, file: Path) -> None:
    """Keep it."""
    file.write_text("".join("\t".join(line) + "\n" for line in history.lines))
