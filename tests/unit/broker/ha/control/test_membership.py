"""A broker whose controllers are a script: its requests, and its reactions to the responses."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.broker.ha.elected import (
    CODES,
    FOLLOWER,
    LEADER,
    LEASE_MS,
    TIMEOUT_MS,
    Make,
    address_of,
    agree,
    master,
    pair,
    term,
    word,
)
from tests.unit.broker.ha.network import Group

from turbopump.broker.ha.control.identity import IdentityError
from turbopump.broker.ha.control.previous_shutdown import PreviousShutdown
from turbopump.broker.replication import Stage
from turbopump.engine.keys import INT32_MAX
from turbopump.engine.types import LogOffset, PutStatus
from turbopump.net.ha.replica import Replica, State
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.controller import SyncStateSet
from turbopump.net.wire.headers import controller as headers

# Joining


def test_three_steps_then_a_heartbeat_then_an_election(make: Make) -> None:
    member = make()
    assert member.membership.stage is Stage.JOINING
    member.start()
    assert member.script.codes() == [CODES.CONTROLLER_GET_NEXT_BROKER_ID]
    assert member.script.beats == [], "a broker without an id sends none"
    member.give_id(4)
    request = member.registered()
    assert request.fields["brokerId"] == "4"
    assert "unclean" not in request.fields
    assert [one.fields["brokerId"] for one in member.script.beats][:1] == ["4"]
    assert not member.broker.service.is_master, "no controller has answered so"
    member.elected(word(1, 4))
    assert member.broker.service.is_master
    assert term(member).sync.options.own_id == 4
    assert member.broker.log.epochs.last_epoch == 1
    assert member.membership.reason_without_role == ""


def test_a_restart_registers_under_the_same_id_from_any_address(make: Make, group: Group) -> None:
    """R30: identity is the id, not the address."""
    member = master(make)
    group.brokers.pop(1).stop()
    again = make()
    again.membership.start("elsewhere:1", "elsewhere:2")
    assert again.script.codes() == [CODES.CONTROLLER_REGISTER_BROKER]
    request = again.registered(word(2, 1))
    assert (request.fields["brokerId"], request.fields["brokerAddress"]) == ("1", "elsewhere:1")
    assert again.broker.service.epoch == 2
    assert member.membership.own_id == again.membership.own_id == 1


def test_a_lost_answer_to_the_application_costs_no_id(make: Make, group: Group) -> None:
    """R31: the broker applies for the same id again, with the same check code."""
    member = make()
    member.start()
    ask = member.script.take(CODES.CONTROLLER_GET_NEXT_BROKER_ID)
    ask.answer(headers.GetNextBrokerIdResponse("cluster", "broker", 3))
    first = member.script.take(CODES.CONTROLLER_APPLY_BROKER_ID)
    first.fail()
    member.pass_time(1000)
    again = member.script.take(CODES.CONTROLLER_APPLY_BROKER_ID)
    assert again.request.fields == first.request.fields
    group.brokers.pop(1).stop()
    restarted = make()
    restarted.start()
    third = restarted.script.take(CODES.CONTROLLER_APPLY_BROKER_ID)
    assert third.request.fields == first.request.fields


def test_an_id_of_somebody_else_is_given_up(make: Make) -> None:
    member = make()
    member.start()
    ask = member.script.take(CODES.CONTROLLER_GET_NEXT_BROKER_ID)
    ask.answer(headers.GetNextBrokerIdResponse("cluster", "broker", 3))
    member.forgotten(CODES.CONTROLLER_APPLY_BROKER_ID, ResponseCode.CONTROLLER_BROKER_ID_INVALID)
    member.pass_time(1000)
    member.give_id(4)
    member.registered(word(1, 3))
    assert member.membership.own_id == 4


def test_a_store_of_another_broker_does_not_start(make: Make, group: Group) -> None:
    member = make()
    path = Path(f"{group.root}/1/brokerIdentity")
    path.write_text("cluster#renamed#1")
    with pytest.raises(IdentityError, match="is of broker renamed of cluster cluster"):
        member.start()


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
        ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
    ],
)
def test_a_broker_that_was_cleaned_away_registers_anew(
    make: Make, group: Group, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Observed: RocketMQ 5.5.0 repeats its registration forever."""
    master(make)
    group.brokers.pop(1).stop()
    again = make()
    again.start()
    again.forgotten(CODES.CONTROLLER_REGISTER_BROKER, code)
    assert "no longer know broker 1 of broker" in caplog.text
    again.pass_time(1000)
    again.give_id(2)
    again.registered(word(3, 7))
    assert again.membership.own_id == 2
    assert again.membership.epoch == 3


def test_a_master_that_is_cleaned_away_while_it_leads_registers_anew(make: Make) -> None:
    member = master(make)
    member.pass_time(5100)
    member.forgotten(
        CODES.CONTROLLER_GET_REPLICA_INFO, ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
    )
    member.forgotten(CODES.CONTROLLER_REGISTER_BROKER)
    assert not member.broker.service.is_master
    member.pass_time(1000)
    member.give_id(5)
    member.registered()
    member.elected(word(2, 5))
    assert member.broker.service.is_master
    assert term(member).sync.members == {5}


def test_a_broker_that_may_lack_bytes_reports_it(make: Make) -> None:
    member = make(last_life=PreviousShutdown(confirmed=LogOffset(1 << 40)))
    member.start()
    member.give_id(1)
    fields = member.registered().fields
    assert fields["unclean"] == "true"
    assert "damaged" not in fields


def test_a_doubt_is_told_each_time_and_written_down_once(make: Make) -> None:
    """The loop waits for the disk meanwhile: a slow disk delayed the heartbeat after each
    registration, forever (group seed 140)."""
    member = make(last_life=PreviousShutdown(confirmed=LogOffset(1 << 40)))
    member.script.holds_beats = True
    notified: list[int] = []

    def on_told() -> None:
        notified.append(len(notified))
        if len(notified) == 1:
            raise OSError("bootId cannot be written")

    member.membership.registration._on_doubt_reported = on_told
    member.start()
    member.give_id(1)
    assert member.registered().fields["unclean"] == "true"
    for _ in range(3):
        member.pass_time(1000)
        assert member.registered().fields["unclean"] == "true"
        while CODES.BROKER_HEARTBEAT in member.script.codes():
            member.script.take(CODES.BROKER_HEARTBEAT).fail()
    assert notified == [0, 1]


def test_a_damaged_broker_reports_it(make: Make, group: Group) -> None:
    member = master(make)
    member.broker.send()
    group.brokers.pop(1).stop()
    for name in ("epochFileCheckpoint", "epochFileCheckpoint.bak"):
        Path(f"{group.root}/1/{name}").write_bytes(b"?")
    again = make()
    again.start()
    fields = again.registered().fields
    assert fields["damaged"] == "true"
    assert "unclean" not in fields


def test_no_heartbeat_before_the_registration(make: Make, group: Group) -> None:
    """The next leader must not elect the broker for its log before it knows of the doubt (group
    seed 195912)."""
    member = master(make)
    group.brokers.pop(1).stop()
    again = make(last_life=PreviousShutdown(confirmed=LogOffset(1 << 40)))
    again.start()
    again.pass_time(3000)
    assert again.script.beats == []
    asked = again.script.take(CODES.CONTROLLER_REGISTER_BROKER)
    asked.answer(code=ResponseCode.CONTROLLER_NOT_LEADER)
    again.pass_time(3000)
    assert again.script.beats == [], (
        "a controller that did not lead may not have notified the others"
    )
    assert again.registered(word(2, 2)).fields["unclean"] == "true"
    again.pass_time()
    assert again.script.beats
    assert member.membership.own_id == again.membership.own_id


def test_no_heartbeat_while_the_damage_is_not_told(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = master(make)
    monkeypatch.setattr(type(member.broker.log), "may_lead", False)
    member.script.beats.clear()
    member.membership.read_state_soon()
    member.pass_time(3000)
    assert member.script.beats == []
    assert member.registered(word(1, 1)).fields["damaged"] == "true"
    assert not member.broker.service.is_master


def test_a_broker_that_does_not_lead_is_asked_nothing(make: Make) -> None:
    member = make()
    member.script.leads = ""
    member.start()
    member.pass_time(1000)
    assert set(member.script.codes()) == {CODES.CONTROLLER_GET_METADATA_INFO}
    member.script.leads = FOLLOWER
    for asked in list(member.script.asked):
        member.script.asked.remove(asked)
        asked.fail()
    member.pass_time(300)
    assert [one.address for one in member.script.asked] == [FOLLOWER]


def test_another_leader_is_found_at_once(make: Make) -> None:
    member = make()
    member.start()
    member.script.leads, member.script.dead = FOLLOWER, {LEADER}
    ask = member.script.take(CODES.CONTROLLER_GET_NEXT_BROKER_ID)
    assert ask.address == LEADER
    ask.answer(code=ResponseCode.CONTROLLER_NOT_LEADER)
    member.pass_time(800)
    assert member.script.take(CODES.CONTROLLER_GET_NEXT_BROKER_ID).address == FOLLOWER


# Roles


def test_heartbeats_tell_all_controllers_how_far_the_log_is(make: Make) -> None:
    member = master(make)
    member.broker.send()
    member.script.beats.clear()
    member.pass_time(1000)
    assert len(member.script.beats) == 2, "the leader and the other one"
    fields = member.script.beats[0].fields
    assert fields["epoch"] == "1"
    assert fields["maxOffset"] == str(member.broker.log.end)
    assert fields["confirmOffset"] == str(member.broker.log.confirm)
    assert fields["heartbeatTimeoutMills"] == str(TIMEOUT_MS)
    assert fields["electionPriority"] == str(INT32_MAX)


def test_a_notice_switches_both_sides(make: Make) -> None:
    one, two = pair(make)
    assert term(one).sync.members == {1, 2}
    responses = one.broker.send(b"kept")
    one.pass_time()
    assert responses == [PutStatus.PUT_OK]
    two.membership.on_notice(word(2, 2, set_epoch=3))
    one.membership.on_notice(word(2, 2, set_epoch=3))
    assert two.broker.service.is_master
    assert not one.broker.service.is_master
    assert one.ha_info(two.broker.address) == address_of(2)
    two.pass_time(300)
    one.pass_time(300)
    assert one.membership._is_following
    assert agree(two, 4) == {1, 2}
    assert two.broker.read() == [b"kept"]


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_role_changes_only_with_a_greater_epoch(make: Make, epoch: int) -> None:
    """K7: late and repeated notices do nothing."""
    one, _two = pair(make)
    before = term(one)
    one.membership.on_notice(word(epoch, 2, {2}, 9))
    assert one.broker.service.term is before
    assert before.sync.members == {1, 2}


def test_the_same_master_in_a_newer_epoch_leads_anew(make: Make) -> None:
    """R09: queue offsets continue, and the epoch is in the file."""
    member = master(make)
    before = term(member)
    offsets = []
    for epoch in range(2, 6):
        offsets.append(member.broker.put(b"%d" % epoch).queue_offset)
        member.membership.on_notice(word(epoch, 1, set_epoch=epoch))
        assert member.broker.log.epochs.last_epoch == epoch
    assert term(member) is not before
    assert before.has_ended
    assert offsets == [0, 1, 2, 3]


def test_a_notice_of_the_life_before_makes_no_master(make: Make) -> None:
    member = make()
    member.start()
    member.membership.on_notice(word(7, 1))
    member.give_id(1)
    member.membership.on_notice(word(7, 1))
    assert not member.broker.service.is_master


def test_a_role_is_dropped_when_no_broker_is_master(make: Make) -> None:
    member = master(make)
    member.pass_time(5100)
    member.info(word(2, None, {1}))
    assert not member.broker.service.is_master
    member.elected(word(3, 1, set_epoch=2))
    assert member.broker.service.is_master
    assert member.membership.epoch == 3


def test_an_election_without_candidates_is_tried_again(make: Make) -> None:
    member = make()
    member.start()
    member.give_id(1)
    for _ in range(3):
        member.registered()
        member.elected(word(4, None), ResponseCode.CONTROLLER_ELECT_MASTER_FAILED)
        member.pass_time(600)
    member.registered(word(5, 2))
    assert member.broker.service.epoch == 5
    assert member.membership.stage is Stage.MEMBER


def test_the_master_that_stays_is_followed(make: Make) -> None:
    member = make(2)
    member.start()
    member.give_id(2)
    member.registered()
    member.elected(word(4, 1), ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
    assert member.ha_info(None) == address_of(1)
    member.pass_time(200)
    assert member.ha_info("ha:9001") == address_of(1), "asked again until it knows"
    assert member.broker.service.master_address == "ha:9001"


def test_a_glimpse_of_a_later_epoch_makes_it_look(make: Make) -> None:
    """F30: the notice was lost."""
    one, two = pair(make)
    seen = headers.BrokerHeartbeatResponse(LEASE_MS, 2, 2, 3)
    one.membership._read_state_if_newer(seen)
    one.pass_time()
    one.info(word(2, 2, set_epoch=3))
    assert not one.broker.service.is_master
    assert two.broker.service.epoch == 1


def test_behind_a_java_master_its_epoch_is_not_insisted_on(make: Make) -> None:
    member = make(2)
    member.start()
    member.give_id(2)
    member.registered(word(4, 1))
    member.ha_info("ha:9001", language="JAVA")
    follower = member.broker.service.follower
    assert follower is not None
    assert isinstance(follower.machine, Replica)
    assert not follower.machine.options.fenced
    member.membership.on_notice(word(5, 3))
    assert member.ha_info("ha:9003") == address_of(3)
    assert follower.machine.options.fenced


def test_a_master_at_another_address_is_found_there(make: Make) -> None:
    member = make(2)
    member.start()
    member.give_id(2)
    member.registered(word(4, 1))
    member.ha_info("ha:9001")
    member.pass_time(5100)
    member.info(replace(word(4, 1), address="moved:1"))
    member.script.asked = [one for one in member.script.asked if one.address == "moved:1"]
    assert member.ha_info("moved:2") == "moved:1"
    assert member.broker.service.master_address == "moved:2"


# The set


def test_a_lost_answer_leaves_both_sets_in_force(make: Make) -> None:
    """R01: each member that the controller may count must have all acknowledged bytes."""
    one, two = master(make), make(2)
    two.start()
    two.give_id(2)
    two.registered(word(1, 1))
    two.ha_info(one.broker.address)
    one.pass_time(300)
    asked = one.script.take(CODES.CONTROLLER_ALTER_SYNC_STATE_SET)
    assert asked.request.fields["masterEpoch"] == "1"
    asked.fail()
    two.broker.shell.cut()
    one.group.network.unreachable.add(one.broker.address)
    one.group.network.run()
    assert one.broker.send(b"x") == []
    assert term(one).sync.required_ids == {1, 2}
    one.pass_time(100)
    one.info(word(1, 1, {1, 2}, 2))
    assert term(one).sync.members == {1, 2}, "as the controller answered (R02)"


def test_a_lost_member_of_a_lost_set_does_not_delay_the_others_for_ever(make: Make) -> None:
    one, two = master(make), make(2)
    two.start()
    two.give_id(2)
    two.registered(word(1, 1))
    two.ha_info(one.broker.address)
    one.pass_time(300)
    one.script.take(CODES.CONTROLLER_ALTER_SYNC_STATE_SET).fail()
    two.broker.shell.cut()
    one.group.network.unreachable.add(one.broker.address)
    one.group.network.run()
    responses = one.broker.send(b"x")
    one.pass_time(1200)
    assert responses == []
    asked = one.script.take(CODES.CONTROLLER_ALTER_SYNC_STATE_SET)
    assert asked.request.fields["fence"] == "true"
    assert SyncStateSet.decode(asked.request.body).members == {1}  # type: ignore[arg-type]
    asked.answer(headers.AlterSyncStateSetResponse(2), SyncStateSet(frozenset({1}), 2).encode())
    assert responses == [PutStatus.PUT_OK]


@pytest.mark.parametrize(
    ("code", "lost"),
    [
        (ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, False),
        (ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, False),
        (ResponseCode.CONTROLLER_INVALID_MASTER, False),
        (ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, False),
        (ResponseCode.CONTROLLER_NOT_LEADER, True),
        (ResponseCode.SYSTEM_ERROR, True),
    ],
)
def test_only_a_look_at_the_proposal_refuses_it(make: Make, code: int, lost: bool) -> None:
    one, two = master(make), make(2)
    two.start()
    two.give_id(2)
    two.registered(word(1, 1))
    two.ha_info(one.broker.address)
    one.pass_time(300)
    one.script.take(CODES.CONTROLLER_ALTER_SYNC_STATE_SET).answer(code=code)
    assert term(one).sync.proposed is None
    assert (2 in term(one).sync.required_ids) == lost


def test_a_newer_set_of_the_same_epoch_is_taken(make: Make) -> None:
    one, _two = pair(make)
    one.membership.on_notice(word(1, 1, {1}, 3))
    assert term(one).sync.members == {1}
    assert term(one).sync.set_epoch == 3


def test_a_stopped_membership_hears_nothing(make: Make) -> None:
    one, two = pair(make)
    one.membership.stop()
    one.membership.on_notice(word(2, 2))
    assert one.broker.service.is_master
    assert two.broker.service.follower is not None
    assert two.broker.service.follower.machine.state is State.TRANSFER
