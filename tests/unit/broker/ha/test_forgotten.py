"""Live brokers that their controllers removed, and the heartbeats that report it."""

from tests.unit.broker.ha.elected import (
    CODES,
    Make,
    Member,
    master,
    pair,
    word,
)

from turbopump.broker.replication import Stage
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers import controller as headers
from turbopump.net.wire.headers.routes import BrokerHeartbeatRequest


def standing(member: Member) -> int | None:
    """The `standing` field of the last heartbeat."""
    member.script.beats.clear()
    member.pass_time(1100)
    return read_header(BrokerHeartbeatRequest, member.script.beats[-1].fields).standing


def known_set(member: Member) -> int:
    """The epoch of the known set in the next heartbeat."""
    member.script.beats.clear()
    member.pass_time(1100)
    return int(member.script.beats[-1].fields["syncStateSetEpoch"])


def answered_unknown(member: Member) -> None:
    """Answer the next heartbeat as a controller without this broker."""
    member.script.holds_beats = True
    member.pass_time(1100)
    member.script.holds_beats = False
    while CODES.BROKER_HEARTBEAT in member.script.codes():
        asked = member.script.take(CODES.BROKER_HEARTBEAT)
        asked.answer(headers.BrokerHeartbeatResponse(unknown=True))
    member.pass_time()


def test_it_reports_its_configured_role(make: Make) -> None:
    one, two = pair(make)
    assert (standing(one), standing(two)) == (2, 0)
    two.membership.on_notice(word(1, 1, {1, 2}, set_epoch=2))
    assert standing(two) == 1
    two.membership.on_notice(word(1, 1, {1}, set_epoch=1))
    assert standing(two) == 1, "a late word"
    one.membership.on_notice(word(2, 2, set_epoch=3))
    assert standing(one) == 0, "it may lack messages that the next master acknowledges"


def test_heartbeats_tell_of_which_set_a_broker_knows(make: Make) -> None:
    """Controllers restored from an older copy learn that the set changed within an epoch: a master
    reports the set that it counts on, a replica the set that it received."""
    one, two = pair(make)
    assert (known_set(one), known_set(two)) == (2, 1)
    two.membership.on_notice(word(1, 1, {1, 2}, set_epoch=2))
    one.membership.on_notice(word(1, 1, {1}, set_epoch=3))
    assert (known_set(one), known_set(two)) == (3, 2)


def test_a_replica_looks_when_the_set_is_another(make: Make) -> None:
    _one, two = pair(make)
    two.pass_time(1100)
    assert CODES.CONTROLLER_GET_REPLICA_INFO not in two.script.codes()
    two.script.holds_beats = True
    two.pass_time(1100)
    asked = two.script.take(CODES.BROKER_HEARTBEAT)
    asked.answer(headers.BrokerHeartbeatResponse(None, 1, 1, 2))
    two.pass_time()
    two.info(word(1, 1, {1, 2}, set_epoch=2))
    two.script.holds_beats = False
    assert standing(two) == 1


def test_an_unknown_heartbeat_registers_again(make: Make) -> None:
    """Otherwise the broker would follow the log forever, unregistered and outside of the set:
    lookups are answered as long as the group exists."""
    _one, two = pair(make)
    two.membership.on_notice(word(1, 1, {1, 2}, set_epoch=2))
    answered_unknown(two)
    two.forgotten(CODES.CONTROLLER_REGISTER_BROKER)
    assert two.membership.stage is Stage.JOINING
    two.pass_time(1000)
    two.give_id(7)
    two.registered(word(1, 1, set_epoch=4))
    assert two.membership.own_id == 7
    assert two.membership.stage is Stage.MEMBER
    assert standing(two) == 0


def test_its_former_role_is_reported_until_another_leads(make: Make) -> None:
    """The whole group was removed: the first broker to return must not become master for that
    alone."""
    one = master(make)
    one.pass_time(300)
    answered_unknown(one)
    one.forgotten(CODES.CONTROLLER_REGISTER_BROKER)
    assert not one.broker.service.is_master
    one.pass_time(1000)
    one.give_id(2)
    one.registered()
    assert read_header(BrokerHeartbeatRequest, one.script.beats[-1].fields).standing == 2
    one.elected(word(2, 2, set_epoch=3))
    assert one.broker.service.is_master


def test_a_controller_that_was_wrong_costs_a_registration(make: Make) -> None:
    one, two = pair(make)
    answered_unknown(two)
    two.registered(word(1, 1))
    two.info(word(1, 1))
    assert two.membership.own_id == 2
    assert two.membership.stage is Stage.MEMBER
    two.pass_time(500)
    assert one.broker.log_bytes() == two.broker.log_bytes()


def test_an_election_that_is_refused_for_an_unknown_id_registers_again(make: Make) -> None:
    member = master(make)
    member.pass_time(5100)
    member.info(word(2, None, {1}))
    code = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    member.forgotten(CODES.CONTROLLER_ELECT_MASTER, code)
    member.pass_time(600)
    member.forgotten(CODES.CONTROLLER_REGISTER_BROKER)
    assert member.membership.stage is Stage.JOINING
