"""The lease: the master that may acknowledge, and the period in which it may."""

from collections.abc import Callable

from tests.unit.broker.ha.elected import (
    CODES,
    FOLLOWER,
    LEADER,
    LEASE_MS,
    Make,
    master,
    pair,
    word,
)

from turbopump.broker.ha.service import HaService
from turbopump.engine.types import PutStatus


def watch(service: HaService, name: str, note: Callable[[], None]) -> None:
    """Have `note` called before each `on_lease_ended` or `on_lease_granted` of a service."""
    real = getattr(service, name)
    setattr(service, name, lambda: (note(), real()))


def test_without_a_lease_nothing_is_acknowledged(make: Make) -> None:
    """R27: the master has stopped before a different broker can be elected."""
    one, two = pair(make)
    notified: list[str] = []
    watch(one.broker.service, "on_lease_ended", lambda: notified.append("lapse"))
    watch(one.broker.service, "on_lease_granted", lambda: notified.append("renewed"))
    one.script.grants = False
    one.pass_time(LEASE_MS - 1100)
    assert one.membership.has_lease()
    responses = one.broker.send(b"late")
    two.broker.shell.cut()
    one.group.network.unreachable.add(one.broker.address)
    one.pass_time(2000)
    assert not one.membership.has_lease()
    assert notified == ["lapse"]
    assert responses == [PutStatus.SERVICE_NOT_AVAILABLE]
    one.script.grants = True
    one.pass_time(1100)
    assert notified == ["lapse", "renewed"]
    assert one.membership.has_lease()


def test_an_acknowledgement_after_the_lease_releases_no_send(make: Make) -> None:
    """F12: the process was paused; the first event that it processes is its replica's
    acknowledgement."""
    one, _two = pair(make)
    responses = one.broker.send(b"late")
    one.group.network.now_ms += LEASE_MS
    one.group.network.run()
    assert responses == []
    one.pass_time()
    assert len(responses) == 1
    assert responses != [PutStatus.PUT_OK]


def test_a_lease_is_counted_from_when_the_heartbeat_was_sent(make: Make) -> None:
    member = master(make)
    sent_ms = member.group.network.now_ms
    assert member.membership.heartbeats.lease_until_ms == sent_ms + LEASE_MS
    member.script.grants = False
    member.pass_time(LEASE_MS - 100)
    assert member.membership.has_lease()
    member.pass_time(100)
    assert not member.membership.has_lease()


def test_an_answer_that_took_its_time_is_no_longer_lease(make: Make) -> None:
    member = master(make)
    member.script.holds_beats = True
    member.pass_time(1000)
    sent_ms = member.group.network.now_ms
    asked = [one for one in member.script.asked if one.request.code == CODES.BROKER_HEARTBEAT]
    assert sorted(one.address for one in asked) == [LEADER, FOLLOWER]
    member.pass_time(2000)
    for one in asked:
        member.script.grant(one)
    assert member.membership.heartbeats.lease_until_ms == sent_ms + LEASE_MS


def test_no_lease_of_before_counts_in_a_term(make: Make) -> None:
    """Until the controllers have agreed to the term's start, they may elect a different broker."""
    member = make()
    member.start()
    member.give_id(1)
    member.registered()
    member.pass_time(300)
    member.script.holds_beats = True
    member.pass_time(1000)
    early = [one for one in member.script.asked if one.request.code == CODES.BROKER_HEARTBEAT]
    assert early, "of a broker that is no master yet"
    end = member.broker.log.end
    member.elected(word(1, 1))
    assert not member.membership.has_lease()
    responses = member.broker.send(b"first")
    member.pass_time()
    for asked in early:
        member.script.asked.remove(asked)
        member.script.grant(asked)
    assert not member.membership.has_lease(), "asked for before"
    assert member.broker.log.confirm <= end, "another that lacks it may be elected"
    assert responses == []
    asked = member.script.take(CODES.BROKER_HEARTBEAT)
    assert asked.request.fields["epoch"] == "1", "asked again at once"
    notified: list[int] = []
    watch(
        member.broker.service,
        "on_lease_granted",
        lambda: notified.append(member.group.network.now_ms),
    )
    member.script.grant(asked)
    assert member.membership.has_lease()
    assert notified == [member.group.network.now_ms], "not with the next tick"
    member.group.network.run()
    assert member.broker.log.confirm == member.broker.log.end > end
    assert responses == [PutStatus.PUT_OK]


def test_a_master_without_a_lease_asks_before_a_heartbeat_is_due(make: Make) -> None:
    """The controller grants no lease at first, because it is busy with the group."""
    member = make()
    member.start()
    member.give_id(1)
    member.registered()
    member.script.grants = False
    member.elected(word(1, 1))
    member.script.beats.clear()
    member.pass_time(900)
    assert 2 <= len(member.script.beats) <= 4, "both controllers, once"
    member.script.grants = True
    member.pass_time(600)
    assert member.membership.has_lease()


def test_only_the_leader_of_javas_controllers_renews(make: Make) -> None:
    member = make()
    member.script.language = "JAVA"
    member.start()
    member.give_id(1)
    member.registered()
    member.elected(word(1, 1))
    member.pass_time(LEASE_MS)
    assert member.membership.has_lease()
    member.script.dead = {LEADER}
    member.pass_time(LEASE_MS)
    assert not member.membership.has_lease(), "the word of another controller does not count"
