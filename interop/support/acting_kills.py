"""`python -m interop.support.acting_kills --kills 30`: masters of a pair die and return in a row.

    a round     consumers pause while a backlog grows; the master is killed (kill -9) and the
                consumers continue: time until each group receives more from the replica than it had
                in memory. They consume all messages. The master starts: time until it is the master
                again, sends succeed and each group receives a message from it.

Unmodified Java clients: a producer of four threads, a group in order, a group in a cluster. The
offsets of the broker that clients use as master must never be lower than before. At the end each
group must have received every acknowledged message. RocketMQ's masters do not come back, so for
comparison (`--beside 5`) each kill has its own pair of RocketMQ's brokers, until the groups
continue.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from interop.support import toolchain
from interop.support.acting import Consumed, Kinds, Pair, until
from interop.support.groups import Kind, Ports, RocketMQ, Turbopump
from interop.support.kills import spread
from interop.support.suites import java_client

QUEUES = 4
TOPIC = "acting-kills"
BACKLOG = 200
"""Least number of messages that wait when the master is killed."""
IN_MEMORY = 40
"""More messages than a client keeps of them in memory."""
POLL_MS = 500
END_S = 60


@dataclass
class ActingTimes:
    """The results of a series of kills and returns."""

    kills: int = 0
    acked: int = 0
    lost: int = 0
    twice: int = 0
    back: int = 0
    """Number of times an offset was lower than before."""
    gap_s: list[float] = field(default_factory=list)
    """Seconds from a kill until both groups received a message: the time without consumption."""
    return_s: list[float] = field(default_factory=list)
    """Seconds from the start of the master until it is the master again."""
    again_s: list[float] = field(default_factory=list)
    """Seconds from then until both groups consumed a message of the new master."""


class Row:
    """The pair, the Java clients, and the files that they write."""

    def __init__(self, folder: Path, kind: Kind) -> None:
        self.pair = Pair(Kinds(kind, kind, kind), folder, TOPIC, QUEUES)
        self.consumed = Consumed(folder)
        self.acked, self.held = folder / "acked", folder / "held"
        self.stop, self.over = folder / "stop", folder / "over"
        self.seen = ActingTimes()
        self._offsets: list[int] = []
        namesrv = self.pair.master.namesrv_address
        self.pair.make_topic()
        until("the topic is registered", lambda: self.pair.leads(self.pair.master))
        sends = f"through-kills:{self.acked},{self.stop},{POLL_MS}"
        shared = self.consumed.shared
        reads = f"standing:{self.consumed.in_order},{self.held},{self.over},{shared},kills"
        self.clients = [
            java_client("client-5.5", [namesrv, "acting", what], folder / what.split(":")[0])
            for what in (sends, reads)
        ]

    def acknowledged(self) -> set[tuple[int, int]]:
        """Return queue and number of each acknowledged message."""
        lines = self.acked.read_text().splitlines() if self.acked.exists() else []
        rows = [line.split() for line in lines]
        return {(int(row[2]), int(row[4])) for row in rows if len(row) == 5}

    def counts(self) -> list[int]:
        """Return the number of messages that each group received."""
        return [len(self.consumed.received(one)) for one in self.consumed.files]

    def die(self) -> None:
        """Kill the master, and wait until the groups continue at the replica."""
        pair, seen = self.pair, self.seen
        until("both groups have begun", lambda: min(self.counts()) > 0)
        self.held.touch()
        base = len(self.acknowledged())
        until("a backlog grows", lambda: len(self.acknowledged()) >= base + BACKLOG)
        ends = pair.queue_ends(pair.master)
        until("the replica has the backlog", lambda: self._has(pair.replica, ends))
        before, killed_s = self.counts(), time.monotonic()
        pair.kill_master()
        self.held.unlink()
        until("both groups go on", lambda: self._more(before, IN_MEMORY))
        seen.kills += 1
        seen.gap_s.append(time.monotonic() - killed_s)

    def come_back(self) -> None:
        """Let the groups consume all messages, start the master, and wait until they continue
        there."""
        pair, seen = self.pair, self.seen
        until("all is consumed", lambda: self._all_consumed(pair.replica))
        self._look(pair.replica)
        started_s = time.monotonic()
        pair.start_master()
        until("the master is back", lambda: pair.leads(pair.master))
        back_s = time.monotonic()
        self._look(pair.master)
        seen.return_s.append(back_s - started_s)
        acked, before = len(self.acknowledged()), self.counts()
        until("sends get through", lambda: len(self.acknowledged()) > acked)
        until("both groups go on there", lambda: self._more(before, 0))
        seen.again_s.append(time.monotonic() - back_s)

    def end(self) -> ActingTimes:
        """Wait until all acknowledged messages are consumed, and check them."""
        pair, seen = self.pair, self.seen
        self.stop.touch()
        self.clients[0].wait(END_S)
        until("all is consumed at the end", lambda: self._all_consumed(pair.master))
        self._look(pair.master)
        self.over.touch()
        self.clients[1].wait(END_S)
        acked = self.acknowledged()
        seen.acked = len(acked)
        for file in self.consumed.files:
            found = self.consumed.received(file)
            seen.lost += len(acked - set(found))
            seen.twice += len(found) - len(set(found))
        return seen

    def _more(self, before: list[int], count: int) -> bool:
        return all(now > then + count for now, then in zip(self.counts(), before, strict=True))

    def _has(self, ports: Ports, ends: list[int]) -> bool:
        """RocketMQ's replica connects seconds after its start."""
        found = self.pair.queue_ends(ports)
        return all(end <= now for end, now in zip(ends, found, strict=True))

    def _all_consumed(self, ports: Ports) -> bool:
        """Compare with the offsets there."""
        return self.pair.committed(ports) == self.pair.queue_ends(ports) * 2

    def _look(self, ports: Ports) -> None:
        """Compare with the offsets of the broker that the route shows as the master."""
        found = self.pair.committed(ports)
        self.seen.back += sum(
            now < then for now, then in zip(found, self._offsets or found, strict=True)
        )
        self._offsets = found

    def kill(self) -> None:
        """End all processes."""
        for client in self.clients:
            client.kill()
        self.pair.group.kill()


def play(kills: int, folder: Path, say: Callable[[str], None]) -> ActingTimes:
    """Play `count` rounds; `say` receives a line for each."""
    row = Row(folder, Turbopump())
    try:
        for number in range(1, kills + 1):
            row.die()
            row.come_back()
            seen = row.seen
            say(
                f"{number} of {kills}: nothing was consumed for {seen.gap_s[-1]:.2f} s; back after "
                f"{seen.return_s[-1]:.2f} s, consumed {seen.again_s[-1]:.2f} s later"
            )
        return row.end()
    finally:
        row.kill()


def play_beside(kills: int, folder: Path, say: Callable[[str], None]) -> ActingTimes:
    """Play `count` pairs of RocketMQ's brokers, each until its groups continue."""
    seen = ActingTimes()
    for number in range(1, kills + 1):
        row = Row(folder / f"pair-{number}", RocketMQ())
        row.seen = seen
        try:
            row.die()
        finally:
            row.kill()
        say(f"RocketMQ, {number} of {kills}: nothing was consumed for {seen.gap_s[-1]:.2f} s")
    return seen


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m interop.support.acting_kills")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--beside", type=int, default=0, help="kills of RocketMQ's masters before")
    given = parser.parse_args()
    toolchain.build_java()

    def say(line: str) -> None:
        print(line, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        theirs = play_beside(given.beside, Path(folder), say)
        seen = play(given.kills, Path(folder), say)
    if theirs.kills:
        print(f"RocketMQ, {theirs.kills} kills: without consumption {spread(theirs.gap_s)}")
    print(
        f"{seen.kills} kills, {seen.acked} acknowledged: lost {seen.lost}, offsets back "
        f"{seen.back}, came twice {seen.twice}\n"
        f"seconds (p50 / p99 / max): without consumption {spread(seen.gap_s)}, until the master "
        f"is back {spread(seen.return_s)}, until its messages are consumed {spread(seen.again_s)}"
    )
    if seen.lost or seen.back:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
