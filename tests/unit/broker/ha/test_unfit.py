"""A broker that cannot lead or accepts no messages, and the heartbeats that report it."""

import pytest
from tests.unit.broker.ha.elected import (
    CODES,
    TIMEOUT_MS,
    Make,
    Member,
    agree,
    master,
    pair,
    term,
    word,
)
from tests.unit.broker.ha.network import Group

from turbopump.broker.ha.leadership_handover import HAND_OVER_MS, LeadershipHandover
from turbopump.engine.deferred import Deferred
from turbopump.engine.log.group_commit import GroupCommit
from turbopump.engine.types import PutStatus, StoreError, StoreHealth
from turbopump.net.wire.codes import ResponseCode


def test_a_broker_named_master_of_an_epoch_it_had_declines(make: Make, group: Group) -> None:
    """Restarted before the other brokers noticed: two terms must not have the same epoch."""
    member = master(make)
    member.broker.send()
    group.brokers.pop(1).stop()
    again = make()
    again.start()
    again.registered(word(1, 1))
    assert not again.broker.service.is_master
    assert "not newer than 1" in again.membership.reason_without_role
    again.pass_time()
    assert unfit(again) == "failed"
    nobody_reigns(again, 2)
    again.pass_time(2000)
    assert unfit(again) is None, "later there is an epoch that it did not decline"
    again.info(word(2, None, {1}))
    again.elected(word(3, 1, set_epoch=3))
    assert again.broker.service.is_master
    assert again.broker.log.epochs.last_epoch == 3
    assert again.membership.reason_without_role == ""


def test_behind_javas_controllers_it_falls_silent(make: Make, group: Group) -> None:
    """Java controllers ignore heartbeat fields that RocketMQ lacks."""
    member = master(make)
    member.broker.send()
    group.brokers.pop(1).stop()
    again = make()
    again.script.language = "JAVA"
    again.start()
    again.registered(word(1, 1))
    assert "not newer than 1" in again.membership.reason_without_role
    again.script.beats.clear()
    again.pass_time(TIMEOUT_MS)
    assert again.script.beats == [], "the controllers must take it for dead"
    again.info(word(1, 1))
    again.pass_time(5000)
    assert again.script.beats
    again.info(word(2, None, {1}))
    again.elected(word(3, 1, set_epoch=3))
    assert again.broker.service.is_master
    assert again.broker.log.epochs.last_epoch == 3
    assert again.membership.reason_without_role == ""


def test_a_broker_that_gave_way_in_vain_gives_way_again(make: Make, group: Group) -> None:
    """While the broker was silent no controller led, so no master was elected: the next leader
    still names this broker."""
    master(make)
    group.brokers.pop(1).stop()
    again = make()
    again.script.language = "JAVA"
    again.start()
    again.registered(word(1, 1))
    again.pass_time(TIMEOUT_MS + 5000)
    assert again.script.beats
    again.info(word(1, 1))
    again.script.beats.clear()
    again.pass_time(TIMEOUT_MS)
    assert again.script.beats == [], "the controllers must take it for dead"


def test_a_broker_declines_until_the_controllers_have_another_epoch(
    make: Make, group: Group
) -> None:
    master(make)
    group.brokers.pop(1).stop()
    again = make()
    again.start()
    again.registered(word(1, 1))
    for _ in range(4):
        again.pass_time(5000)
        again.info(word(1, 1))
        assert unfit(again) == "failed"
        assert not again.broker.service.is_master


@pytest.mark.parametrize("language", ["PYTHON", "JAVA"])
def test_a_broker_that_cannot_lead_declines(
    make: Make, monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    _one, two = pair(make)
    two.script.language = language
    two.pass_time(1000)

    def fails(*_: object) -> None:
        raise StoreError("the disk is gone")

    monkeypatch.setattr(two.broker.service._log, "record_term", fails)
    two.script.beats.clear()
    two.membership.on_notice(word(2, 2, set_epoch=3))
    assert not two.broker.service.is_master
    assert two.membership.reason_without_role == "the disk is gone"
    if language == "PYTHON":
        assert unfit(two) == "failed", "explicitly, at once"
        two.pass_time(TIMEOUT_MS)
        assert unfit(two) == "failed"
        return
    assert two.script.beats == []
    two.pass_time(TIMEOUT_MS)
    assert two.script.beats == []


def test_each_term_that_is_declined_is_tried_later_than_the_one_before(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = master(make)
    led = member.broker.service._log.record_term

    def fails(*_: object) -> None:
        raise StoreError("no room for the epochs")

    monkeypatch.setattr(member.broker.service._log, "record_term", fails)
    waits = []
    for epoch in range(2, 14, 2):
        member.membership.on_notice(word(epoch, 1))
        waits.append(100)
        nobody_reigns(member, epoch + 1)
        while unfit(member) == "failed":
            member.pass_time()
            waits[-1] += 100
        member.info(word(epoch + 1, None, {1}))
        member.elected(word(epoch + 1, None), ResponseCode.CONTROLLER_ELECT_MASTER_FAILED)
    assert [round(one, -3) for one in waits] == [2000, 4000, 8000, 16_000, 30_000, 30_000]
    monkeypatch.setattr(member.broker.service._log, "record_term", led)
    member.membership.on_notice(word(20, 1))
    assert member.broker.service.is_master


class TestFitness:
    def test_a_failed_sync_is_told_at_once(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        member = master(make)
        member.pass_time(1000)
        assert unfit(member) is None
        fails(member, monkeypatch)
        member.script.beats.clear()
        member.pass_time()
        assert unfit(member) == "failed"
        assert member.broker.service.is_master, "until another broker is: reads go on"

    def test_so_is_a_full_disk_and_that_there_is_room(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        member = master(make)
        for health, reported in ((StoreHealth.FULL, "full"), (StoreHealth.FIT, None)):
            monkeypatch.setattr(type(member.broker.log), "health", health)
            member.script.beats.clear()
            member.pass_time()
            assert unfit(member) == reported

    def test_a_slow_disk_is_reported_in_a_field_of_its_own(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An older controller takes an unknown word in `unfit` for a failed store."""
        member = master(make)
        for slow in (True, False, None):
            monkeypatch.setattr(GroupCommit, "is_sync_slow", slow)
            member.script.beats.clear()
            member.pass_time(100 if slow else 1000)
            reported = None if slow is None else str(slow).lower()
            assert member.script.beats[-1].fields.get("slow") == reported
            assert unfit(member) is None
        assert member.broker.service.is_master

    def test_a_failed_master_asks_for_no_election(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        member = master(make)
        fails(member, monkeypatch)
        nobody_reigns(member, 2)
        assert not member.broker.service.is_master
        for _ in range(3):
            member.pass_time(5000)
            member.info(word(2, None, {1}))
            assert CODES.CONTROLLER_ELECT_MASTER not in member.script.codes()

    def test_behind_javas_controllers_a_failed_master_gives_way_by_silence(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        member = make()
        member.script.language = "JAVA"
        member.start()
        member.give_id(1)
        member.registered()
        member.elected(word(1, 1))
        member.pass_time(1000)
        fails(member, monkeypatch)
        member.pass_time()
        assert not member.broker.service.is_master
        member.script.beats.clear()
        member.pass_time(TIMEOUT_MS)
        assert member.script.beats == []

    def test_damage_is_told_by_a_registration_that_does_not_wait(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        member = master(make)
        member.pass_time(1000)
        monkeypatch.setattr(type(member.broker.log), "may_lead", False)
        member.pass_time(200)
        assert member.registered(word(1, 1)).fields["damaged"] == "true"

    def test_a_replica_that_failed_leaves_its_master(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Otherwise the sends would wait for the broker."""
        one, two = pair(make)
        assert term(one).sync.members == {1, 2}
        fails(two, monkeypatch)
        two.pass_time(200)
        assert agree(one, 3) == {1}
        one.pass_time(30_000)
        assert term(one).links == {}, "it does not come back with that store"


class TestHandingOver:
    """Before it stops, a master waits for another broker to become master, and serves until
    then."""

    def test_it_says_so_and_serves_until_there_is_another(self, make: Make) -> None:
        one, _two = pair(make)
        one.pass_time(1000)
        one.script.beats.clear()
        assert one.membership.has_successor
        one.membership.report_stopping()
        assert unfit(one) == "stopping", "at once"
        assert one.broker.service.is_master and one.membership.has_successor
        sent = one.broker.send()
        one.pass_time(300)
        assert sent == [PutStatus.PUT_OK]
        one.membership.on_notice(word(2, 2, set_epoch=3))
        assert not one.membership.has_successor

    def test_a_master_with_a_slow_disk_hands_over_likewise(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, _two = pair(make)
        monkeypatch.setattr(GroupCommit, "is_sync_slow", True)
        one.pass_time(1000)
        assert unfit(one) is None and one.membership.has_successor
        one.membership.report_stopping()
        assert unfit(one) == "stopping"

    def test_it_follows_no_master_then(self, make: Make) -> None:
        """The next master would take the broker into its set, and all sends would wait for its
        end."""
        one, _two = pair(make)
        one.membership.report_stopping()
        one.membership.on_notice(word(2, 2, set_epoch=3))
        one.pass_time(1000)
        assert CODES.EXCHANGE_BROKER_HA_INFO not in one.script.codes()
        assert one.broker.service.master_address == ""

    def test_alone_it_has_no_heir(self, make: Make) -> None:
        assert not master(make).membership.has_successor

    def test_nor_without_a_lease(self, make: Make) -> None:
        one, _two = pair(make)
        one.script.grants = False
        one.pass_time(TIMEOUT_MS)
        assert not one.membership.has_successor

    def test_nor_behind_javas_controllers(self, make: Make) -> None:
        """Java controllers ignore the request."""
        one, _two = pair(make)
        one.script.language = "JAVA"
        one.pass_time(2000)
        assert one.broker.service.is_master and not one.membership.has_successor

    def test_a_stop_waits_until_another_leads(self, make: Make, group: Group) -> None:
        one, _two = pair(make)
        waits, heir = stopping(one, group)
        one.pass_time(300)
        heir.resolve_if_ended()
        assert not waits.done
        one.membership.on_notice(word(2, 2, set_epoch=3))
        heir.resolve_if_ended()
        assert waits.done

    def test_a_stop_waits_for_a_bounded_time(self, make: Make, group: Group) -> None:
        """If no other broker is elected, this broker stays the master."""
        one, _two = pair(make)
        waits, heir = stopping(one, group)
        one.pass_time(HAND_OVER_MS - 100)
        heir.resolve_if_ended()
        assert not waits.done and one.broker.service.is_master
        one.pass_time(100)
        heir.resolve_if_ended()
        assert waits.done and one.broker.service.is_master

    def test_a_stop_without_an_heir_does_not_wait(self, make: Make, group: Group) -> None:
        one = master(make)
        waits, _heir = stopping(one, group)
        one.pass_time()
        assert waits.done and unfit(one) is None

    def test_a_store_that_failed_is_told_as_such(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, _two = pair(make)
        one.membership.report_stopping()
        fails(one, monkeypatch)
        one.pass_time()
        assert unfit(one) == "failed" and not one.membership.has_successor


def stopping(member: Member, group: Group) -> tuple[Deferred[None], LeadershipHandover]:
    """Begin to stop a member; returns the promise that the stop waits for."""
    heir = LeadershipHandover(
        member.membership, member.broker.service, lambda: group.network.now_ms
    )
    return heir.hand_over(), heir


def nobody_reigns(member: Member, epoch: int) -> None:
    """Answer a lookup: the group has no master."""
    member.membership.read_state_soon()
    member.pass_time()
    if CODES.CONTROLLER_GET_REPLICA_INFO in member.script.codes():
        member.info(word(epoch, None, {1}))


def unfit(member: Member) -> str | None:
    """The `unfit` field of the last heartbeat."""
    return member.script.beats[-1].fields.get("unfit")


def fails(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a sync of the broker's log fail."""
    error = OSError(5, "input/output error")
    monkeypatch.setattr(member.broker.log._commit, "failed", error)
