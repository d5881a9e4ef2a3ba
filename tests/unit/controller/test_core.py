"""The core: the lead, leases, deaths, one proposal at a time, notices, answers to every request."""

from collections.abc import Generator

import pytest
from tests.unit.controller.groups import (
    CLUSTER,
    NAME,
    Done,
    Entry,
    Node,
    Refused,
    answered,
    running,
)

from turbopump.controller import events
from turbopump.controller.proposals import WAITING_MAX
from turbopump.controller.requests import CODES
from turbopump.net.wire.bodies import finish
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.controller import BrokerReplicasInfo, SyncStateSet, encode_names
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers import controller as headers
from turbopump.net.wire.headers.routes import BrokerHeartbeatRequest

NOT_LEADER = ResponseCode.CONTROLLER_NOT_LEADER


def replica_info(node: Node) -> tuple[int, headers.GetReplicaInfoResponse, SyncStateSet | None]:
    asked = headers.GetReplicaInfoRequest(NAME)
    answer = node.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, asked).value
    body = SyncStateSet.decode(answer.body) if answer.body else None
    return answer.code, read_header(headers.GetReplicaInfoResponse, answer.fields), body


def test_who_does_not_lead_decides_nothing() -> None:
    node = Node()
    node.tick()
    for code in CODES - {RequestCode.BROKER_HEARTBEAT, RequestCode.CONTROLLER_GET_METADATA_INFO}:
        header = headers.ApplyBrokerIdRequest(CLUSTER, NAME, 1, "a;1")
        fields = {"masterBrokerId": "1", "masterEpoch": "1", "brokerId": "1", "brokerAddress": "a"}
        request = new_request(code, header, b"[]" if code == 1006 else b"{}", fields=fields)
        answer = node.core.on_request(0, request, node.now_ms)
        answer = finish(answer) if isinstance(answer, Generator) else answer
        assert answer.value.code == NOT_LEADER, code
    assert not node.quorum.entries
    assert node.beat(1).lease_ms is None


def test_metadata_is_told_by_everybody() -> None:
    node = Node()
    node.quorum.leader_id = "n1"
    answer = node.ask(RequestCode.CONTROLLER_GET_METADATA_INFO).value
    header = read_header(headers.GetMetaDataResponse, answer.fields)
    assert header == headers.GetMetaDataResponse("g", False, "n0:h:1;n1:h:2;", "n1", "h:2", 1)
    node.quorum.leader_id = None
    answer = node.ask(RequestCode.CONTROLLER_GET_METADATA_INFO).value
    assert "controllerLeaderId" not in answer.fields


def test_who_may_have_been_deposed_does_not_say_that_it_leads() -> None:
    node = Node()
    node.lead()
    node.quorum.sure = False
    answer = node.ask(RequestCode.CONTROLLER_GET_METADATA_INFO).value
    assert answer is not None and answer.fields["isLeader"] == "false"
    node.quorum.sure = True
    answer = node.ask(RequestCode.CONTROLLER_GET_METADATA_INFO).value
    assert answer is not None and answer.fields["isLeader"] == "true"


def test_a_group_comes_to_be() -> None:
    node = running()
    assert (node.group.master_id, node.group.master_epoch, node.group.set_epoch) == (1, 1, 2)
    code, header, members = replica_info(node)
    assert (code, header.master_broker_id, header.master_address) == (0, 1, "a:1")
    assert members == SyncStateSet(frozenset({1, 2, 3}), 2)
    data = node.ask(
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=encode_names([NAME, "other"])
    ).value
    info = BrokerReplicasInfo.decode(data.body).groups
    assert set(info) == {NAME}
    assert all(replica.alive for replica in info[NAME].in_sync) and len(info[NAME].in_sync) == 3


def test_a_lease_is_for_a_leader_that_surely_leads() -> None:
    node = running()
    told = node.beat(1)
    assert (told.lease_ms, told.master_broker_id, told.master_epoch) == (8_000, 1, 1)
    assert node.beat(1, timeout_ms=3_000).lease_ms == 2_400
    # Longer than a new leader waits for one that it never heard of: not for so long.
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
    told = node.beat(1, connection=9)
    assert told.lease_ms is None and told.master_broker_id == 2
    assert node.beat(2, epoch=2).lease_ms is not None


def test_a_lease_is_for_the_master_in_its_own_epoch() -> None:
    """Who does not know yet that it was elected, or that another was, has none by it."""
    node = running()
    told = node.beat(2)
    assert (told.lease_ms, told.master_broker_id, told.master_epoch) == (None, 1, 1)
    node.close(1)
    assert (node.group.master_id, node.group.master_epoch) == (2, 2)
    assert node.beat(2, epoch=1).lease_ms is None
    assert node.beat(1, epoch=1, connection=9).lease_ms is None
    assert node.beat(2, epoch=2).lease_ms is not None


def elected_on_lease() -> Node:
    """1 is dead, 2 the master on paper."""
    node = running()
    for broker_id in (2, 3):
        node.beat(broker_id, leased=True)
    node.close(1)
    assert (node.group.master_id, node.group.members, node.group.eligible) == (2, {2}, {1, 3})
    return node


def test_until_its_first_lease_a_master_is_not_the_only_candidate() -> None:
    """It was dead when it was elected: another one that had all is elected, without an operator."""
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
    assert len(node.quorum.entries) == entries, "once in a reign"
    node.auto = True
    node.close(2)
    assert node.group.master_id is None, "3 may lack what 2 acknowledged"


def test_a_look_at_all_groups_keeps_nobody_from_the_first_lease() -> None:
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
    told = answered(later)
    assert (told.lease_ms, told.master_broker_id, node.group.eligible) == (None, 3, {1, 2})


def test_no_lease_where_its_entry_fails() -> None:
    node = elected_on_lease()
    node.quorum.refuse = "no majority"
    assert node.beat(2, epoch=2, leased=True).lease_ms is None
    assert node.group.eligible == {1, 3}


def test_behind_a_java_master_only_the_set_counts() -> None:
    """It begins without asking: what it acknowledged by now is unknown."""
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
    """Not by silence: it costs no time that passes."""
    node = running()
    assert node.beat(1, unfit=what).lease_ms is None, "it is not the one to lead any more"
    assert (node.group.master_id, node.group.master_epoch) == (2, 2)
    assert [address for address, _ in node.sent] == ["a:1", "a:2", "a:3"]


def test_who_can_lead_again_is_elected_by_that_heartbeat() -> None:
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


def test_a_new_life_is_not_unfit_for_what_the_one_before_said() -> None:
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


def test_a_connection_that_was_replaced_kills_nobody() -> None:
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
    for _ in range(5):  # none is heard, and this controller does not sleep
        node.tick(900)
    node.close(1)
    assert node.group.master_id == 1  # those that are left were not heard just now
    node.beat(3)
    assert node.group.master_id == 3


def test_a_new_leader_gives_a_silent_master_a_whole_timeout() -> None:
    """The leader before may have granted a lease after the last heartbeat that came here."""
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


def test_a_new_leader_that_heard_nobody_gives_nobody_up() -> None:
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


def test_one_proposal_at_a_time_each_decided_on_what_is_applied() -> None:
    node = running()
    node.auto = False
    group = node.group
    shrink = headers.AlterSyncStateSetRequest(NAME, 1, group.master_epoch)
    first = node.ask(
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        shrink,
        SyncStateSet(frozenset({1, 2}), group.set_epoch).encode(),
    )
    second = node.ask(
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        shrink,
        SyncStateSet(frozenset({1}), group.set_epoch).encode(),
    )
    assert not first.done and not second.done and len(node.quorum.waiting) == 1
    entry, later = node.quorum.waiting.pop(0)
    later.resolve(Done(entry.index))
    assert not first.done  # committed, and not applied yet
    node.core.on_applied(entry)
    assert first.value.code == 0
    assert second.value.code == ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    assert node.group.members == {1, 2}


def test_what_failed_may_still_commit_so_nothing_is_decided_before_that_is_known() -> None:
    node = running()
    node.auto = False
    node.close(1)
    lost = node.quorum.waiting.pop(0)
    lost[1].resolve(Refused("no majority answered in time"))
    node.tick(20)
    barrier = node.quorum.waiting[0][0]
    assert barrier.body == b""
    asked = headers.ElectMasterRequest(NAME, CLUSTER, 2)
    answer = node.ask(RequestCode.CONTROLLER_ELECT_MASTER, asked, connection=2)
    assert not answer.done
    assert node.beat(2).lease_ms is None
    node.core.on_applied(lost[0])
    node.commit()
    assert answer.value.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    assert (node.group.master_id, node.group.master_epoch) == (2, 2)


def test_a_refused_proposal_is_tried_again_by_the_next_tick() -> None:
    node = running()
    node.quorum.refuse = "the leadership is handed over"
    node.close(1)
    node.tick(500)
    assert node.group.master_id == 1
    node.quorum.refuse = ""
    node.tick(500)
    assert node.group.master_id == 2


def test_the_lead_is_lost_with_requests_waiting() -> None:
    node = running()
    node.auto = False
    asked = headers.GetNextBrokerIdRequest(CLUSTER, "x")
    apply = headers.ApplyBrokerIdRequest(CLUSTER, NAME, 4, "a:4;1")
    flying = node.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, apply)
    waiting = node.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, apply)
    node.lead(False)
    assert flying.value.code == waiting.value.code == NOT_LEADER
    assert node.ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, asked).value.code == NOT_LEADER
    node.commit()  # it commits all the same; no broker is notified twice
    assert 4 in node.group.replicas


def test_who_waits_too_long_is_told_so_and_too_many_are_refused() -> None:
    node = running()
    node.auto = False
    apply = headers.ApplyBrokerIdRequest(CLUSTER, NAME, 4, "a:4;1")
    answers = [
        node.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, apply) for _ in range(WAITING_MAX + 2)
    ]
    assert answers[-1].value.code == ResponseCode.SYSTEM_BUSY
    assert not answers[-2].done
    node.tick(5_000)
    assert not answers[0].done  # under way
    assert answers[1].value.code == ResponseCode.SYSTEM_ERROR
    node.commit()
    assert answers[0].value.code == 0


def test_a_master_that_may_have_lost_bytes_is_replaced_before_it_is_answered() -> None:
    node = running()
    node.beat(1, max_offset=1_000)
    told = node.register(1, unclean=True)
    header = read_header(headers.RegisterBrokerToControllerResponse, told.fields)
    assert (header.master_broker_id, header.master_epoch) == (2, 2)
    assert node.group.is_unfit(1)
    node.beat(1)
    assert node.alter(2, 1).code == 0
    assert not node.group.is_unfit(1)


def test_a_replica_that_may_have_lost_bytes_leaves_the_set_until_its_master_adds_it() -> None:
    node = running()
    before = node.group.set_epoch
    node.register(2, unclean=True)
    assert node.group.members == {1, 3} and node.group.master_id == 1
    assert {address for address, _ in node.sent} == {"a:1", "a:3", "a:2"}
    assert SyncStateSet.decode(node.sent[-1][1].body) == SyncStateSet(frozenset({1, 3}), before + 2)
    # What the master decided on before it heard of this does not count.
    old = SyncStateSet(frozenset({1, 2}), before)
    header = headers.AlterSyncStateSetRequest(NAME, 1, 1)
    code = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
    assert node.ask(code, header, old.encode(), connection=1).value.code == (
        ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    )
    node.close(1)
    assert node.group.master_id == 3


def test_an_unclean_broker_is_not_elected_by_its_own_registration() -> None:
    """It was the last member: the others may still hold what it lost."""
    node = running()
    assert node.alter(1, 2).code == 0
    node.close(2)
    node.close(1)
    assert node.group.master_id is None
    epoch = node.group.master_epoch
    node.register(1, unclean=True)
    node.beat(1, max_offset=1)
    assert node.group.master_id is None and node.group.master_epoch == epoch
    node.register(2, unclean=True)
    assert node.group.master_id is None
    node.beat(2, max_offset=2)
    assert node.group.master_id == 2  # all of them are here: the longest log


def test_entries_that_say_nothing_are_passed_over() -> None:
    node = running()
    before = node.core.snapshot()
    for index, body in enumerate((b"", b"x", b"\x00\x63{}", b"\x00\x01[", b"\x00\x64{}"), 100):
        node.core.on_applied(Entry(index, 1, body))
    assert node.core.snapshot() == before and node.core.applied == 104


def test_what_others_may_append() -> None:
    node = running()

    def outcome(*happened: events.Event, body: bytes = b"") -> int | str:
        told = node.core.append(body or events.encode(happened), node.now_ms)
        node.commit()
        return told.value

    assert outcome(events.ApplyBrokerId("C", "other", "h:1", "h:1;1", 1)) == node.core.applied
    assert node.core.tables.groups["other"].replicas[1].check_code == "h:1;1"
    again = outcome(events.ApplyBrokerId("C", "other", "h:2", "h:2;1", 1))
    assert "Fail to apply brokerId" in str(again)  # an id has one broker
    assert outcome(events.CleanBrokerData("nobody")) == node.core.applied
    before = node.core.snapshot()
    for event in (
        events.CleanBrokerData(NAME),
        events.ElectMaster(NAME, 2),
        events.AlterSyncStateSet(NAME, frozenset({2})),
    ):
        assert "only made by a request" in str(outcome(event))
    assert "a read" in str(outcome(events.Read()))
    assert "only made by a controller" in str(outcome(events.MarkUnfit(NAME, 1, "x")))
    assert "type 26725" in str(outcome(body=b"he{}"))
    assert node.core.snapshot() == before


def test_reads_through_the_log_if_asked_for() -> None:
    node = running(is_process_read_event=True)
    entries = len(node.quorum.entries)
    assert replica_info(node)[0] == 0
    assert len(node.quorum.entries) == entries + 1


def test_c12_another_controller_leads() -> None:
    """Same log, same tables, same answers."""
    first, second = running(), Node()
    for entry in first.quorum.entries:
        second.core.on_applied(entry)
    assert second.core.snapshot() == first.core.snapshot() and not second.sent
    second.lead()
    second.tick()
    for broker_id in (1, 2, 3):
        second.beat(broker_id)
    assert replica_info(second) == replica_info(first)
    assert second.group.master_id == 1 and second.group.master_epoch == 1


def test_c13_no_majority_and_then_one_again() -> None:
    node = running()
    node.auto = False
    node.quorum.sure = False
    asked = headers.ElectMasterRequest(NAME, CLUSTER, 3, True)
    answer = node.ask(RequestCode.CONTROLLER_ELECT_MASTER, asked)
    node.lead(False)
    assert answer.value.code == NOT_LEADER
    again = Node()
    for entry in node.quorum.entries[:-1]:  # what was on a majority
        again.core.on_applied(entry)
    assert (again.group.master_id, again.group.master_epoch) == (1, 1)
    again.lead()
    again.tick()
    for _ in range(21):
        again.beat(2)
        again.beat(3)
        again.tick(500)
    assert again.group.master_id == 2  # the dead one was missed


def test_who_the_leader_before_elected_is_told_again_by_the_next() -> None:
    node = running()
    node.auto = False
    node.close(1)
    node.lead(False)
    assert not node.sent
    node.commit()  # it was on a majority before its leader could say so
    assert node.group.master_epoch == 2 and not node.sent
    node.lead()
    node.tick()
    assert {address for address, _ in node.sent} == {"a:2", "a:3"}
    assert node.sent[0][1].fields["masterEpoch"] == "2"


def test_a_snapshot_makes_the_same_node() -> None:
    node, other = running(), Node()
    other.core.restore(node.core.snapshot())
    assert other.core.snapshot() == node.core.snapshot()
    with pytest.raises(ValueError, match="snapshot"):
        other.core.restore(b"{}")
    assert other.group.master_id == 1


def test_requests_that_cannot_be_read() -> None:
    node = running()
    for code in CODES - {RequestCode.CONTROLLER_GET_METADATA_INFO}:
        answer = node.core.on_request(0, new_request(code, body=b"{"), node.now_ms)
        assert answer.value.code == ResponseCode.SYSTEM_ERROR, code
    no_id = BrokerHeartbeatRequest(CLUSTER, "a", NAME)
    answer = node.ask(RequestCode.BROKER_HEARTBEAT, no_id)
    assert answer.value.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert node.ask(999).value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    header = headers.AlterSyncStateSetRequest(NAME, 1, 1)
    bad = node.ask(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, b"[]").value
    assert bad.code == ResponseCode.SYSTEM_ERROR


def test_administrators() -> None:
    node = running()
    header = headers.ElectMasterRequest(NAME, CLUSTER, 3, True)
    assert node.ask(RequestCode.CONTROLLER_ELECT_MASTER, header).value.code == 0
    assert node.group.master_id == 3
    asked = headers.CleanBrokerDataRequest(NAME, CLUSTER, "1", True)
    assert node.ask(RequestCode.CLEAN_BROKER_DATA, asked).value.code == 0
    assert set(node.group.replicas) == {2, 3}
    assert node.register(1).code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    next_id = headers.GetNextBrokerIdRequest(CLUSTER, NAME)
    answer = node.ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, next_id).value
    assert answer.fields["nextBrokerId"] == "4"
