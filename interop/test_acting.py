"""A replica acts for its killed master, and the master comes back (RIP-32), with Java consumers.

Unmodified consumers, one group in order and one in a cluster, go on at the replica, commit there,
and go on at the master; queries are answered meanwhile. Groups are of one kind or of both:

    alone           name server, master and replica of RocketMQ
    java-master     a RocketMQ master and our replica under RocketMQ's name server
    java-replica    our master and a RocketMQ replica under our name server
    old             master and replica of the target under a name server of RocketMQ 4, which knows
                    none of it: it shows no replica as the master, and clients try it nevertheless

Ours alone under our name server is played by a few kills and returns in a row; `python -m
interop.support.acting_kills --kills 30` plays more of them, and prints the times.

Of RocketMQ 5.5.0 alone its master is asserted not to come back (observed.md): its replica's answer
of offsets is one that it cannot read itself. With a replica of ours it does.
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
"""A RocketMQ master that comes back takes 11 to 37 s; one that does not, longer than this."""


@pytest.fixture(params=["alone", "java-master", "java-replica", "old"])
def pair(kind: Kind, built: None, work: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    java = RocketMQ()
    kinds = {
        "alone": Kinds(kind, kind, kind),
        "java-master": Kinds(java, java, kind),
        "java-replica": Kinds(kind, kind, java),
        "old": Kinds(OldRocketMQ(), kind, kind),
    }[request.param]
    if kinds.is_java != (request.param == "alone"):
        pytest.skip("for the other target")
    found = Pair(kinds, work / f"acting-{request.param}")
    yield found
    found.group.kill()


def test_consumers_go_on_at_a_replica_and_back(pair: Pair) -> None:
    folder, consumed = pair.folder, Consumed(pair.folder)
    held, stop = folder / "held", folder / "stop"
    pair.make_topic()
    pair.send(0)
    until("the topic is registered", lambda: pair.leads(pair.master))
    scenario = f"standing:{consumed.in_order},{held},{stop},{consumed.shared}"
    arguments = [pair.master.namesrv_address, "acting", scenario]
    client = java_client("client-5.5", arguments, folder / "client")
    try:
        until("they consume", lambda: consumed.has(COUNT))
        held.touch()
        pair.send(COUNT)
        _master_dies(pair)
        held.unlink()
        goes_on_s = until("they go on", lambda: consumed.has(2 * COUNT))
        ends = [2 * COUNT] * 2 * QUEUES
        until("offsets are committed there", lambda: pair.committed(pair.replica) == ends)
        assert pair.queries() == dict.fromkeys(("key", "time", "most", "least", "earliest"), 0)
        print(f"consumed {goes_on_s:.2f} s later")
        pair.start_master()
        if pair.kinds.is_java:
            _master_stays_away(pair)
        else:
            _master_returns(pair, consumed)
    finally:
        stop.touch()
        try:
            client.wait(TIMEOUT_S)
        finally:
            client.stop()
    checks = parse(client.out.read_text(), ["standing"])["standing"]
    assert checks.ended and not checks.failed, "\n".join([*checks.failed, client.tail()])
    twice = [_twice(consumed.of(one)) for one in consumed.files]
    print(f"came twice, in order and in the cluster: {twice}")
    assert max(twice) <= QUEUES * COUNT, "no more than what was not committed"
    for queue_id in range(QUEUES):
        numbers = [number for queue, number in consumed.of(consumed.in_order) if queue == queue_id]
        firsts = list(dict.fromkeys(numbers))
        assert firsts == sorted(firsts), "in order"


def _twice(found: list[tuple[int, int]]) -> int:
    return len(found) - len(set(found))


def _master_dies(pair: Pair) -> None:
    """As soon as its replica has all."""
    until("the replica has all", lambda: pair.queue_ends(pair.replica) == [2 * COUNT] * QUEUES)
    if pair.kinds.replica.name == "turbopump":
        assert pair.locks(pair.replica) == -1, "its master gives locks"
    if pair.kinds.replica.name == pair.kinds.master.name == "turbopump":
        until("it knows how far they are", lambda: min(pair.committed(pair.replica)) > 0)
    pair.kill_master()
    acts_s = until("the replica acts", pair.acts)
    assert pair.route()[1] == (6 if pair.kinds.is_old else 4)
    print(f"acts after {acts_s:.2f} s")


def _master_stays_away(pair: Pair) -> None:
    """RocketMQ's cannot read its own replica's offsets, and is not registered (observed.md)."""
    until_s = time.monotonic() + AWAY_S
    while time.monotonic() < until_s:
        assert pair.leads(pair.replica), "its master is back: the whole test is for it, too"
        time.sleep(0.5)


def _master_returns(pair: Pair, consumed: Consumed) -> None:
    """No offset goes back, and no queue has two holders."""
    granted = []

    def is_back() -> bool:
        try:
            granted.append((pair.locks(pair.master), pair.locks(pair.replica)))
        except OSError:
            pass
        return pair.leads(pair.master)

    back_s = until("the master is back", is_back)
    assert pair.route()[1] == 6
    ends = [2 * COUNT] * 2 * QUEUES
    assert pair.committed(pair.master) == ends, "what was committed to its replica"
    if pair.kinds.master.name == pair.kinds.replica.name:
        assert not any(min(one) >= 0 for one in granted), f"two brokers give locks: {granted}"
    assert pair.locks(pair.master) == QUEUES
    pair.send(2 * COUNT)
    goes_on_s = until("they go on there", lambda: consumed.has(3 * COUNT))
    print(f"back after {back_s:.2f} s, consumed {goes_on_s:.2f} s later")


def test_masters_die_and_return_in_a_row(kind: Kind, built: None, work: Path) -> None:
    if kind.name != "turbopump":
        pytest.skip("RocketMQ's masters do not return")
    seen = acting_kills.play(KILLS, work / "acting-kills", print)
    assert seen.kills == KILLS and seen.acked > KILLS * acting_kills.BACKLOG
    assert (seen.lost, seen.back) == (0, 0)
    assert seen.twice <= KILLS * acting_kills.BACKLOG, "what was not committed yet"
