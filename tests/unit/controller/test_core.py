"""The core: the lead, leases, deaths, one proposal at a time, notices, answers to every request."""

from collections.abc import Generator

import pytest
from tests.unit.controller.groups import CLUSTER, NAME, Node, running

from turbopump.controller.requests import CODES
from turbopump.net.wire.bodies import run_to_result
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.controller import BrokerReplicasInfo, SyncStateSet, encode_names
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers import controller as headers
from turbopump.net.wire.headers.routes import BrokerHeartbeatRequest

NOT_LEADER = ResponseCode.CONTROLLER_NOT_LEADER


def replica_info(node: Node) -> tuple[int, headers.GetReplicaInfoResponse, SyncStateSet | None]:
    asked = headers.GetReplicaInfoRequest(NAME)
    response = node.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, asked).value
    body = SyncStateSet.decode(response.body) if response.body else None
    return response.code, read_header(headers.GetReplicaInfoResponse, response.fields), body


def test_a_follower_decides_nothing() -> None:
    node = Node()
    node.tick()
    for code in CODES - {RequestCode.BROKER_HEARTBEAT, RequestCode.CONTROLLER_GET_METADATA_INFO}:
        header = headers.ApplyBrokerIdRequest(CLUSTER, NAME, 1, "a;1")
        fields = {"masterBrokerId": "1", "masterEpoch": "1", "brokerId": "1", "brokerAddress": "a"}
        request = new_request(code, header, b"[]" if code == 1006 else b"{}", fields=fields)
        response = node.core.on_request(0, request, node.now_ms)
        response = run_to_result(response) if isinstance(response, Generator) else response
        assert response.value.code == NOT_LEADER, code
    assert not node.quorum.entries
    assert node.beat(1).lease_ms is None


def test_metadata_is_told_by_everybody() -> None:
    node = Node()
    node.quorum.leader_id = "n1"
    response = node.ask(RequestCode.CONTROLLER_GET_METADATA_INFO).value
    header = read_header(headers.GetMetaDataResponse, response.fields)
    assert header == headers.GetMetaDataResponse("g", False, "n0:h:1;n1:h:2;", "n1", "h:2", 1)
    node.quorum.leader_id = None
    response = node.ask(RequestCode.CONTROLLER_GET_METADATA_INFO).value
    assert "controllerLeaderId" not in response.fields


def test_a_leader_that_may_have_been_deposed_does_not_report_the_lead() -> None:
    node = Node()
    node.lead()
    node.quorum.sure = False
    response = node.ask(RequestCode.CONTROLLER_GET_METADATA_INFO).value
    assert response is not None and response.fields["isLeader"] == "false"
    node.quorum.sure = True
    response = node.ask(RequestCode.CONTROLLER_GET_METADATA_INFO).value
    assert response is not None and response.fields["isLeader"] == "true"


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


def test_a_master_that_may_have_lost_bytes_is_replaced_before_it_is_answered() -> None:
    node = running()
    node.beat(1, max_offset=1_000)
    response = node.register(1, unclean=True)
    header = read_header(headers.RegisterBrokerToControllerResponse, response.fields)
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
    # The master's decision from before it learned of this is refused.
    old = SyncStateSet(frozenset({1, 2}), before)
    header = headers.AlterSyncStateSetRequest(NAME, 1, 1)
    code = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
    assert node.ask(code, header, old.encode(), connection=1).value.code == (
        ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    )
    node.close(1)
    assert node.group.master_id == 3


def test_an_unclean_broker_is_not_elected_by_its_own_registration() -> None:
    """The broker was the last member: the others may still have the bytes that it lost."""
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
    response = node.ask(RequestCode.CONTROLLER_ELECT_MASTER, asked)
    node.lead(False)
    assert response.value.code == NOT_LEADER
    again = Node()
    for entry in node.quorum.entries[:-1]:  # the entries that reached a majority
        again.core.on_applied(entry)
    assert (again.group.master_id, again.group.master_epoch) == (1, 1)
    again.lead()
    again.tick()
    for _ in range(21):
        again.beat(2)
        again.beat(3)
        again.tick(500)
    assert again.group.master_id == 2  # the dead one was missed


def test_a_broker_elected_by_the_leader_before_is_notified_again_by_the_next() -> None:
    node = running()
    node.auto = False
    node.close(1)
    node.lead(False)
    assert not node.sent
    node.commit()  # the entry reached a majority before its leader could answer
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
        response = node.core.on_request(0, new_request(code, body=b"{"), node.now_ms)
        assert response.value.code == ResponseCode.SYSTEM_ERROR, code
    no_id = BrokerHeartbeatRequest(CLUSTER, "a", NAME)
    response = node.ask(RequestCode.BROKER_HEARTBEAT, no_id)
    assert response.value.code == ResponseCode.CONTROLLER_INVALID_REQUEST
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
    response = node.ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, next_id).value
    assert response.fields["nextBrokerId"] == "4"
