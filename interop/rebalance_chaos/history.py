"""A history in OpenMessaging-Chaos's format (controller.md 23): lines of columns between tabs.

Owns the columns. Programs write lines as events happen; a run's history has them all, by time. Its
checkers ignore our own kinds of lines: the queues of members (`own`), starts and stops of members
and their nodes (`started`, `down`, and `end` of the last window), the time at which a coordinator
with a history noticed a change (`notice`), and the time at which a node received the delayed
packets after a loss (`heard`).
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
"""Column of a line's time."""
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
        """Return the line's columns."""
        end = "start" if self.is_start else "end"
        return [FAULT, self.name, end, str(self.time_ms), " ".join(self.nodes)]


@dataclass(frozen=True)
class Down:
    """A process was killed or suspended, or continues."""

    process: str
    time_ms: int
    is_down: bool

    def line(self) -> list[str]:
        """Return the line's columns."""
        return [DOWN, self.process, str(self.time_ms), "down" if self.is_down else "up"]


@dataclass(frozen=True)
class Ended:
    """The end of the last window."""

    time_ms: int

    def line(self) -> list[str]:
        """Return the line's columns."""
        return [END, "", str(self.time_ms)]


@dataclass(frozen=True)
class Noticed:
    """A coordinator noticed a change."""

    trigger: str
    time_ms: int

    def line(self) -> list[str]:
        """Return the line's columns."""
        return [NOTICE, self.trigger, str(self.time_ms)]


@dataclass(frozen=True)
class Heard:
    """Packets to a node are no longer lost, and the last packet that TCP had to send again has
    arrived."""

    node: str
    time_ms: int

    def line(self) -> list[str]:
        """Return the line's columns."""
        return [HEARD, self.node, str(self.time_ms)]


Event = Happened | Down | Ended | Noticed | Heard


@dataclass(frozen=True)
class Held:
    """The queues that a member holds after this time."""

    member: str
    time_ms: int
    queues: frozenset[str]


@dataclass(frozen=True)
class History:
    """The events of a run, by time."""

    lines: tuple[tuple[str, ...], ...]

    def sends(self) -> Iterator[Sent]:
        """Return the answers to producers."""
        for line in self._responses("enqueue"):
            yield Sent(line[3], line[4], line[5], int(line[6]), int(line[7]))

    def gets(self) -> Iterator[Got]:
        """Return the messages that consumers received."""
        for line in self._responses("dequeue"):
            yield Got(line[4], line[5], int(line[6]), int(line[9]))

    def faults(self) -> Iterator[Happened]:
        """Return the starts and ends of faults."""
        for line in self.lines:
            if line[0] == FAULT:
                yield Happened(line[1], line[2] == "start", int(line[3]), tuple(line[4].split()))

    def held(self) -> Iterator[Held]:
        """Return the changes of the queues that members hold."""
        for line in self.lines:
            if line[0] == OWN:
                queues = frozenset(line[3].split(",")) if line[3] else frozenset[str]()
                yield Held(line[1], int(line[2]), queues)

    def notices(self) -> list[int]:
        """Return the times at which the coordinator noticed changes, if it keeps a history."""
        return [int(line[2]) for line in self.lines if line[0] == NOTICE]

    def heard(self) -> Iterator[Heard]:
        """Return the times at which nodes received the delayed packets."""
        for line in self.lines:
            if line[0] == HEARD:
                yield Heard(line[1], int(line[2]))

    @property
    def end_ms(self) -> int:
        """Return the end of the last window."""
        return next(int(line[2]) for line in self.lines if line[0] == END)

    def downs(self) -> Iterator[Down]:
        """Return the times at which processes stopped and continued."""
        for line in self.lines:
            if line[0] == DOWN:
                yield Down(line[1], int(line[2]), line[3] == "down")

    def started(self) -> dict[str, int]:
        """Return the start of each member."""
        return {line[1]: int(line[2]) for line in self.lines if line[0] == STARTED}

    def _responses(self, operation: str) -> Iterator[tuple[str, ...]]:
        for line in self.lines:
            if line[1] == operation and line[2] == RESPONSE:
                yield line


def time_of(line: Sequence[str]) -> int:
    """Return a line's time in epoch ms."""
    at = _TIMES.get(line[0])
    if at is None:
        at = _REQUEST_TIME if line[2] == REQUEST else _RESPONSE_TIME
    return int(line[at])


def noticed(files: Iterable[Path]) -> Iterator[Noticed]:
    """Read the notices in brokers' histories of assignments (docs/FORMATS.md)."""
    for file in files:
        for line in file.read_text().splitlines():
            change = json.loads(line)
            # A change that never settled has no start: it was decided within some ms of its line.
            at_ms = change.get("start_ms") or change["time_ms"]
            yield Noticed(change["trigger"], at_ms)


def gathered(files: Iterable[Path], happened: Iterable[Event]) -> History:
    """Build one history from the lines of programs and the faults. The last line of a killed
    program may be incomplete; it is left out."""
    lines = [tuple(one.line()) for one in happened]
    for file in files:
        whole, _, _ = file.read_text().rpartition("\n")
        lines += [tuple(line.split("\t")) for line in whole.splitlines()]
    return History(tuple(sorted(lines, key=time_of)))


def read(file: Path) -> History:
    """Read a history that `written` saved."""
    return gathered([file], ())


def written(history: History, file: Path) -> None:
    """Save the history."""
    file.write_text("".join("\t".join(line) + "\n" for line in history.lines))
