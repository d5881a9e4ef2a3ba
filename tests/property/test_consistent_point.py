"""The search for the consistent point against logs whose every byte is known.

Three replicas of a log, without any protocol: masters come and go, replicas copy any part of the
master's log after a truncation to the point that the search gave, crash and lose unconfirmed bytes,
and drop the beginning of their logs. The search sees the epoch lists only; the bytes show whether
it was right.
"""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from turbopump.engine.log.epochs import Epochs, EpochsDamaged, consistent_point
from turbopump.engine.types import LogOffset

NODES = 3


@dataclass
class Node:
    """`log` has for each byte the number of the write it came from; below `start` it is gone."""

    log: list[int] = field(default_factory=list)
    epochs: Epochs = field(default_factory=Epochs)
    start: int = 0
    confirm: int = 0

    @property
    def end(self) -> LogOffset:
        return LogOffset(len(self.log))


class Cluster:
    def __init__(self) -> None:
        self.nodes = [Node() for _ in range(NODES)]
        self.epoch = 0
        self.writes = 0
        self.master = 0
        self.members = set(range(NODES))
        self.elect(0)

    @property
    def confirm(self) -> int:
        """Offset up to which every member of the set has the log."""
        return max(node.confirm for node in self.nodes)

    def elect(self, number: int) -> None:
        """Elect a member of the SyncStateSet: only members have all confirmed bytes."""
        if number not in self.members:
            return
        self.epoch += 1
        self.master = number
        node = self.nodes[number]
        node.epochs = node.epochs.with_epoch(self.epoch, node.end)
        self.members = {number}

    def write(self, size: int) -> None:
        for _ in range(size):
            self.writes += 1
            self.nodes[self.master].log.append(self.writes)

    def follow(self, number: int, size: int) -> None:
        """A handshake, the truncation, and `size` bytes of the stream."""
        node, master = self.nodes[number], self.nodes[self.master]
        if number == self.master:
            return
        point = self.check(node, master)
        if point is None:
            node.log, node.epochs, node.start = [0] * master.start, Epochs(), master.start
            point = LogOffset(master.start)
        del node.log[point:]
        node.epochs = node.epochs.cut_at(point).adopted_from(master.epochs, point)
        stop = LogOffset(min(point + size, master.end))
        node.log.extend(master.log[point:stop])
        node.epochs = node.epochs.adopted_from(master.epochs, stop)
        if stop >= master.confirm and stop >= master.epochs.entries[-1].start:
            self.members.add(number)
        node.confirm = min(max(node.confirm, master.confirm), stop)

    def acknowledge(self) -> None:
        """Advance the master's confirm offset to the end that all members have."""
        if len(self.members) > 1:
            least = min(self.nodes[number].end for number in self.members)
            master = self.nodes[self.master]
            master.confirm = max(master.confirm, least)

    def crash(self, number: int, size: int) -> None:
        """Bytes above every confirm are lost; a node that lost any is no candidate."""
        node = self.nodes[number]
        kept = max(node.end - size, min(self.confirm, node.end))
        if number != self.master and kept < node.end:
            del node.log[kept:]
            node.epochs = node.epochs.limited_to(node.end)
            self.members.discard(number)

    def forget(self, number: int, size: int) -> None:
        """Let retention remove the beginning of a log, but no unconfirmed bytes."""
        node = self.nodes[number]
        node.start = max(node.start, min(node.start + size, node.confirm, node.end - 1, node.end))
        node.epochs = node.epochs.without_expired(LogOffset(node.start))

    def check(self, own: Node, other: Node) -> LogOffset | None:
        point = consistent_point(own.epochs, own.end, other.epochs, other.end)
        if point is None:
            shared = range(max(own.start, other.start), min(own.end, other.end))
            assert not any(own.log[at] == other.log[at] for at in shared[:1]), "they share bytes"
            return None
        assert point <= min(own.end, other.end)
        first = min(max(own.start, other.start), point)
        assert own.log[first:point] == other.log[first:point], "bytes that differ were kept"
        assert point >= min(own.confirm, other.confirm), "confirmed bytes were cut"
        return point


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["elect", "write", "follow", "follow", "acknowledge", "crash", "forget"]),
        st.integers(0, NODES - 1),
        st.integers(0, 12),
    ),
    max_size=60,
)


@settings(max_examples=400)
@given(STEPS)
def test_logs_are_prefixes_of_one_another_behind_the_point(
    steps: list[tuple[str, int, int]],
) -> None:
    cluster = Cluster()
    for name, number, size in steps:
        if name == "elect":
            cluster.elect(number)
        elif name == "write":
            cluster.write(size)
        elif name == "acknowledge":
            cluster.acknowledge()
        else:
            getattr(cluster, name)(number, size)
        for own in cluster.nodes:
            for other in cluster.nodes:
                if own is not other and own.end > own.start and other.end > other.start:
                    cluster.check(own, other)


def rip_44(own: Epochs, own_end: int, other: Epochs, other_end: int) -> int:
    """EpochFileCache.findConsistentPoint of RocketMQ; entries after an end count as absent."""
    mine = [e for e in own if e.start <= own_end]
    theirs = [e for e in other if e.start <= other_end]
    their_ends = dict(zip(theirs, [*(e.start for e in theirs[1:]), other_end], strict=False))
    for entry, end in reversed(list(zip(mine, [*(e.start for e in mine[1:]), own_end]))):  # noqa: B905
        if entry in their_ends:
            return min(end, their_ends[entry])
    return -1


LISTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 40)), max_size=6)


@settings(max_examples=600)
@given(LISTS, st.integers(0, 50), LISTS, st.integers(0, 50))
def test_it_agrees_with_rip_44_wherever_that_finds_a_point(
    own: list[tuple[int, int]], own_end: int, other: list[tuple[int, int]], other_end: int
) -> None:
    try:
        mine, theirs = Epochs.from_pairs(own), Epochs.from_pairs(other)
    except EpochsDamaged:
        mine, theirs = Epochs.from_pairs(tidy(own)), Epochs.from_pairs(tidy(other))
    point = consistent_point(mine, LogOffset(own_end), theirs, LogOffset(other_end))
    expected = rip_44(mine, own_end, theirs, other_end)
    if expected >= 0:
        assert point == expected
    if point is not None:
        assert point <= min(own_end, other_end)


def tidy(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """A list that may be one: epochs ascend, starts do not descend."""
    names = sorted({epoch for epoch, _start in pairs})
    return list(zip(names, sorted(start for _epoch, start in pairs), strict=False))
