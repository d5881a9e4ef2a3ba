"""A replica acts for its killed master, and the master comes back (RIP-32), with Java consumers.

Unmodified consumers, one group in order and one in a cluster, continue at the replica, commit
there, and continue at the master; queries are answered meanwhile. Groups are of a single kind or of
both:

    alone           name server, master and replica of RocketMQ
    java-master     a RocketMQ master and our replica under RocketMQ's name server
    java-replica    our master and a RocketMQ replica under our name server
    old             master and replica of the target under a name server of RocketMQ 4, which shows
                    no replica as the master, and clients use the replica nevertheless

Ours alone under our name server is tested by a few kills and returns in a row; `python -m
interop.support.acting_kills --kills 30` plays more of them, and prints the times.

For RocketMQ 5.5.0 alone the test asserts that its master does not come back (observed.md): it
cannot parse its replica's answer of offsets. With a replica of ours it comes back.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.support import acting_kills
from interop.support.acting import COUNT, QUEUES, TIMEOUT_S, Consumed, Kinds, Pair, until
from interop.support.groups import Kind, OldRocketMQ, RocketMQ
from interop.support.suites import java_client, parse

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
KILLS = 2
AWAY_S = 45
"""Seconds after which a RocketMQ master counts as lost: a master that returns takes 11 to 37 s."""


@pytest.fixture
def plays(kind: Kind, built: None, work: Path) -> Iterator[list["Play"]]:
    """Play all groups at once, because most of the time of each is waiting."""
    java = RocketMQ()
    kinds = {
        "java-master": Kinds(java, java, kind),
        "java-replica": Kinds(kind, kind, java),
        "old": Kinds(OldRocketMQ(), kind, kind),
    }
    if kind.name == "rocketmq":
        kinds = {"alone": Kinds(kind, kind, kind)}
    found: list[Play] = []
    try:
        for name, each in kinds.items():
            found.append(Play(name, each, work / f"acting-{name}"))
        yield found
    finally:
        for play in found:
            play.kill()


class Play:
    """A group and its Java client, step by step."""

    def __init__(self, name: str, kinds: Kinds, folder: Path) -> None:
        self.name, self.kinds = name, kinds
        self.pair, self.consumed = Pair(kinds, folder), Consumed(folder)
        self.held, self.stop = folder / "held", folder / "stop"
        scenario = f"{self.consumed.in_order},{self.held},{self.stop},{self.consumed.shared}"
        arguments = [self.pair.master.namesrv_address, "acting", f"standing:{scenario}"]
        self.pair.make_topic()
        self.pair.send(0)
        until("the topic is registered", lambda: self.pair.leads(self.pair.master))
        self.client = java_client("client-5.5", arguments, folder / "client")

    def say(self, text: str) -> None:
        """Return a line with its name."""
        print(f"{self.name}: {text}")

    def consumes(self) -> None:
        """Wait until both groups have begun; then pause them while more messages arrive."""
        until(f"{self.name}: they consume", lambda: self.consumed.has(COUNT))
        self.held.touch()
        self.pair.send(COUNT)

    def master_dies(self) -> None:
        """Kill the master as soon as its replica has the whole log."""
        pair = self.pair
        until("the replica has all", lambda: pair.queue_ends(pair.replica) == [2 * COUNT] * QUEUES)
        if self.kinds.replica.name == "turbopump":
            assert pair.locks(pair.replica) == -1, "its master gives locks"
        if self.kinds.replica.name == self.kinds.master.name == "turbopump":
            until("it knows how far they are", lambda: min(pair.committed(pair.replica)) > 0)
        pair.kill_master()
        acts_s = until(f"{self.name}: the replica acts", pair.acts)
        assert pair.route()[1] == (6 if self.kinds.is_old else 4)
        self.held.unlink()
        goes_on_s = until(f"{self.name}: they go on", lambda: self.consumed.has(2 * COUNT))
        self.say(f"acts after {acts_s:.2f} s, consumed {goes_on_s:.2f} s later")

    def replica_has_all(self) -> None:
        """Check that offsets are committed there and queries answered; then start the master."""
        pair, ends = self.pair, [2 * COUNT] * 2 * QUEUES
        until(f"{self.name}: offsets are committed", lambda: pair.committed(pair.replica) == ends)
        assert pair.queries() == dict.fromkeys(("key", "time", "most", "least", "earliest"), 0)
        pair.start_master()

    def master_returns(self) -> None:
        """Check that no offset goes back, and no queue has two holders."""
        if self.kinds.is_java:
            self._master_stays_away()
            return
        pair = self.pair
        granted = []

        def is_back() -> bool:
            try:
                granted.append((pair.locks(pair.master), pair.locks(pair.replica)))
            except OSError:
                pass
            return pair.leads(pair.master)

        back_s = until(f"{self.name}: the master is back", is_back)
        assert pair.route()[1] == 6
        ends = [2 * COUNT] * 2 * QUEUES
        assert pair.committed(pair.master) == ends, "the offsets committed to its replica"
        if self.kinds.master.name == self.kinds.replica.name:
            assert not any(min(one) >= 0 for one in granted), f"two brokers give locks: {granted}"
        assert pair.locks(pair.master) == QUEUES
        pair.send(2 * COUNT)
        goes_on_s = until(f"{self.name}: they go on there", lambda: self.consumed.has(3 * COUNT))
        self.say(f"back after {back_s:.2f} s or less, consumed {goes_on_s:.2f} s later")

    def _master_stays_away(self) -> None:
        """RocketMQ's master cannot read its own replica's offsets, and is not registered
        (observed.md)."""
        until_s = time.monotonic() + AWAY_S
        while time.monotonic() < until_s:
            assert self.pair.leads(self.pair.replica), "its master is back: play that, too"
            time.sleep(0.5)

    def end(self) -> None:
        """The client reports its checks."""
        self.stop.touch()
        self.client.wait(TIMEOUT_S)
        checks = parse(self.client.out.read_text(), ["standing"])["standing"]
        assert checks.ended and not checks.failed, "\n".join([*checks.failed, self.client.tail()])
        found = [self.consumed.received(one) for one in self.consumed.files]
        twice = [len(each) - len(set(each)) for each in found]
        self.say(f"came twice, in order and in the cluster: {twice}")
        assert max(twice) <= QUEUES * COUNT, "at most the uncommitted messages"
        for queue_id in range(QUEUES):
            numbers = [number for queue, number in found[0] if queue == queue_id]
            firsts = list(dict.fromkeys(numbers))
            assert firsts == sorted(firsts), "in order"

    def kill(self) -> None:
        """End all processes."""
        self.client.kill()
        self.pair.group.kill()


def test_consumers_go_on_at_a_replica_and_back(plays: list[Play]) -> None:
    steps = (Play.consumes, Play.master_dies, Play.replica_has_all, Play.master_returns, Play.end)
    for step in steps:
        for play in plays:
            step(play)


def test_masters_die_and_return_in_a_row(kind: Kind, built: None, work: Path) -> None:
    if kind.name != "turbopump":
        pytest.skip("RocketMQ's masters do not return")
    seen = acting_kills.play(KILLS, work / "acting-kills", print)
    assert seen.kills == KILLS and seen.acked > KILLS * acting_kills.BACKLOG
    assert (seen.lost, seen.back) == (0, 0)
    assert seen.twice <= KILLS * acting_kills.BACKLOG, "at most the uncommitted messages"
