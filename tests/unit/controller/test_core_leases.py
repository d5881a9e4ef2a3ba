"""A controller grants leases, and elects when a broker falls silent, closes or is unfit."""

import pytest
from tests.unit.controller.groups import Node, answered, running
from tests.unit.controller.test_core import NOT_LEADER, replica_info

from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.controller import SyncStateSet
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers import controller as headers


def test_a_lease_is_for_a_leader_that_surely_leads() -> None:
    node = running()
    response = node.beat(1)
    assert (response.lease_ms, response.master_broker_id, response.master_epoch) == (8_000, 1, 1)
    assert node.beat(1, timeout_ms=3_000).lease_ms == 2_400
    # A lease is shorter than a new leader's wait for a silent broker, whatever the broker's
    # timeout.
    assert node.beat(1, timeout_ms=60_000).lease_ms == 8_000
    node.quorum.sure = False
    assert node.beat(1).lease_ms is None
    assert replica_info(node)[0] == NOT_LEADER


def test_no_lease_while_the_group_may_be_given_to_somebody_else() -> None:
    node = running()
    node.auto = False
    node.close(1)
    assert len(node.quorum.waiting) == 1
    assert node.beat(1, connection=9).lease_ms is None
    node.commit()
    response = node.beat(1, connection=9)
    assert response.lease_ms is None and response.master_broker_id == 2
    assert node.beat(2, epoch=2).lease_ms is not None


def test_a_lease_is_for_the_master_in_its_own_epoch() -> None:
    """A broker whose heartbeat has an outdated epoch or is not the master's gets no lease."""
    node = running()
    response = node.beat(2)
    assert (response.lease_ms, response.master_broker_id, response.master_epoch) == (None, 1, 1)
    node.close(1)
    assert (node.group.master_id, node.group.master_epoch) == (2, 2)
    assert node.beat(2, epoch=1).lease_ms is None
    assert node.beat(1, epoch=1, connection=9).lease_ms is None
    assert node.beat(2, epoch=2).lease_ms is not None


def elected_on_lease() -> Node:
    """A node on which 1 is dead, and 2 is elected but has no lease yet."""
    node = running()
    for broker_id in (2, 3):
        node.beat(broker_id, leased=True)
    node.close(1)
    assert (node.group.master_id, node.group.members, node.group.eligible) == (2, {2}, {1, 3})
    return node


def test_until_its_first_lease_a_master_is_not_the_only_candidate() -> None:
    """The elected broker was dead: a different broker that had all bytes is elected, without an
    operator."""
    node = elected_on_lease()
    node.close(2)
    assert (node.group.master_id, node.group.members, node.group.eligible) == (3, {3}, {1, 2})


def test_the_first_lease_is_granted_behind_the_entry_that_says_so() -> None:
    node = elected_on_lease()
    node.auto = False
    later = node.beat_later(2, epoch=2, leased=True)
    assert not later.done and len(node.quorum.waiting) == 1
    node.commit()
    assert answered(later).lease_ms == 8_000
    assert node.group.eligible == frozenset()
    entries = len(node.quorum.entries)
    assert node.beat(2, epoch=2, leased=True).lease_ms == 8_000
    assert len(node.quorum.entries) == entries, "once in a term"
    node.auto = True
    node.close(2)
    assert node.group.master_id is None, "3 may lack what 2 acknowledged"


def test_a_look_at_all_groups_delays_no_first_lease() -> None:
    """The next heartbeat comes half a second later."""
    node = elected_on_lease()
    node.auto = False
    later = node.beat_later(2, epoch=2, leased=True)
    node.tick(node.core.config.scan_inactive_master_interval_ms)
    node.commit()
    assert answered(later).lease_ms == 8_000


def test_an_election_before_the_first_lease_takes_it_away() -> None:
    node = elected_on_lease()
    node.auto = False
    node.close(2)
    later = node.beat_later(2, epoch=2, leased=True, connection=9)
    node.commit()
    response = answered(later)
    assert (response.lease_ms, response.master_broker_id, node.group.eligible) == (None, 3, {1, 2})


def test_no_lease_where_its_entry_fails() -> None:
    node = elected_on_lease()
    node.quorum.refuse = "no majority"
    assert node.beat(2, epoch=2, leased=True).lease_ms is None
    assert node.group.eligible == {1, 3}


def test_behind_a_java_master_only_the_set_counts() -> None:
    """A Java master begins without a lease: the offsets it acknowledged are unknown."""
    node = running()
    node.close(1)
    assert (node.group.master_id, node.group.eligible) == (2, frozenset())
    assert node.beat(2, epoch=2).lease_ms is not None


def test_another_program_in_the_place_of_a_broker_is_believed_nothing_of_before() -> None:
    node = running()
    for broker_id in (2, 3):
        node.beat(broker_id, leased=True)
    assert node.register(2).code == 0
    node.close(1)
    assert (node.group.master_id, node.group.eligible) == (2, frozenset())


def test_a_closed_connection_elects_at_once_and_everybody_hears_of_it() -> None:
    node = running()
    node.beat(3, max_offset=101)
    node.close(1)
    assert (node.group.master_id, node.group.master_epoch) == (3, 2)
    assert {address for address, _ in node.sent} == {"a:2", "a:3"}
    command = node.sent[0][1]
    assert command.code == RequestCode.NOTIFY_BROKER_ROLE_CHANGED and command.is_oneway
    header = read_header(headers.NotifyBrokerRoleChangedRequest, command.fields)
    assert header == headers.NotifyBrokerRoleChangedRequest("a:3", 2, 3, 3)
    assert SyncStateSet.decode(command.body) == SyncStateSet(frozenset({3}), 3)


@pytest.mark.parametrize("what", ["full", "stopping", "failed", "a word of later"])
def test_a_heartbeat_that_says_unfit_elects_at_once(what: str) -> None:
    """The election does not wait for a timeout."""
    node = running()
    assert node.beat(1, unfit=what).lease_ms is None, "it is no longer the broker to lead"
    assert (node.group.master_id, node.group.master_epoch) == (2, 2)
    assert [address for address, _ in node.sent] == ["a:1", "a:2", "a:3"]


def test_a_broker_that_can_lead_again_is_elected_by_that_heartbeat() -> None:
    node = running()
    for broker_id in (2, 3, 1):
        node.beat(broker_id, unfit="failed")
    assert (node.group.master_id, node.group.master_epoch) == (None, 2)
    for _ in range(5):
        node.tick(500)
        for broker_id in (2, 3, 1):
            node.beat(broker_id, unfit="failed")
    assert node.group.master_epoch == 2, "an outage raises it once"
    node.beat(3)
    assert (node.group.master_id, node.group.master_epoch) == (3, 3)


def test_a_new_life_is_not_unfit_for_reports_of_the_last_one() -> None:
    node = running()
    for broker_id in (2, 3):
        node.beat(broker_id, unfit="full")
    node.beat(1, unfit="full")
    assert node.group.master_id == 1
    node.register(2)
    node.tick(500)
    assert node.group.master_id == 2


def test_notices_can_be_switched_off() -> None:
    node = running(notify_broker_role_changed=False)
    node.close(1)
    assert node.group.master_epoch == 2 and not node.sent


def test_a_replaced_connection_kills_no_broker() -> None:
    node = running()
    node.beat(1, connection=77)
    node.close(1)
    assert node.group.master_id == 1
    node.close(77)
    assert node.group.master_id != 1


def test_silence_elects_after_the_whole_timeout_and_not_before() -> None:
    node = running()
    for _ in range(19):
        node.tick(500)
        node.beat(2)
        node.beat(3)
    assert node.group.master_id == 1
    node.tick(500)
    assert node.group.master_id == 1
    node.tick(501)
    assert (node.group.master_id, node.group.master_epoch) == (2, 2)


def test_an_outage_raises_the_epoch_once() -> None:
    node = running()
    assert node.alter(1).code == 0
    node.close(1)
    assert (node.group.master_id, node.group.master_epoch) == (None, 2)
    for _ in range(100):
        node.tick(500)
        node.beat(2)
        node.elect(2)
    assert node.group.master_epoch == 2 and node.group.members == {1}
    node.beat(1)
    assert (node.group.master_id, node.group.master_epoch) == (1, 3)


def test_a_member_that_is_heard_again_is_elected_by_that_heartbeat() -> None:
    node = running()
    node.tick(900)
    for _ in range(5):  # no heartbeat arrives, and this controller is not paused
        node.tick(900)
    node.close(1)
    assert node.group.master_id == 1  # the remaining brokers sent no recent heartbeat
    node.beat(3)
    assert node.group.master_id == 3


def test_a_new_leader_gives_a_silent_master_a_whole_timeout() -> None:
    """The former leader may have granted a lease after the last heartbeat that this one
    received."""
    node = running()
    node.lead(False)
    node.tick(9_000)
    node.beat(2)
    node.beat(3)
    node.lead()
    for _ in range(20):
        node.tick(499)
        node.beat(2)
        node.beat(3)
        assert node.group.master_id == 1
    node.tick(1_000)
    assert node.group.master_id == 2


def test_a_new_leader_does_not_wait_for_a_master_whose_connection_closed() -> None:
    node = running()
    node.lead(False)
    node.close(1)
    node.tick(100)
    node.lead()
    node.tick(20)
    assert node.group.master_id == 2


def test_a_new_leader_that_heard_no_broker_gives_up_none() -> None:
    node = running()
    node.lead(False)
    for broker_id in (1, 2, 3):
        node.close(broker_id)
    node.tick(10_001)
    node.lead()
    node.tick(20)
    assert node.group.master_id == 1
    node.tick(10_500)
    assert (node.group.master_id, node.group.master_epoch) == (None, 2)
    node.beat(3)
    assert node.group.master_id == 3
