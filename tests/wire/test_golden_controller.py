"""Requests to and from controllers: golden frames are read and written back to the same members."""

from collections.abc import Callable
from typing import Any

import pytest

from turbopump.engine import fastjson
from turbopump.net.wire import controller
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.header import read_header, write_header
from turbopump.net.wire.headers import controller as headers
from turbopump.net.wire.headers.routes import BrokerHeartbeatRequest

REQUESTS = {
    RequestCode.BROKER_HEARTBEAT: BrokerHeartbeatRequest,
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: headers.AlterSyncStateSetRequest,
    RequestCode.CONTROLLER_ELECT_MASTER: headers.ElectMasterRequest,
    RequestCode.CONTROLLER_REGISTER_BROKER: headers.RegisterBrokerToControllerRequest,
    RequestCode.CONTROLLER_GET_REPLICA_INFO: headers.GetReplicaInfoRequest,
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: headers.NotifyBrokerRoleChangedRequest,
    RequestCode.CLEAN_BROKER_DATA: headers.CleanBrokerDataRequest,
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: headers.GetNextBrokerIdRequest,
    RequestCode.CONTROLLER_APPLY_BROKER_ID: headers.ApplyBrokerIdRequest,
}
RESPONSES = {
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: headers.AlterSyncStateSetResponse,
    RequestCode.CONTROLLER_ELECT_MASTER: headers.ElectMasterResponse,
    RequestCode.CONTROLLER_REGISTER_BROKER: headers.RegisterBrokerToControllerResponse,
    RequestCode.CONTROLLER_GET_REPLICA_INFO: headers.GetReplicaInfoResponse,
    RequestCode.CONTROLLER_GET_METADATA_INFO: headers.GetMetaDataResponse,
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: headers.GetNextBrokerIdResponse,
    RequestCode.CONTROLLER_APPLY_BROKER_ID: headers.ApplyBrokerIdResponse,
}
SETS = {
    (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, True),
    (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, False),
    (RequestCode.CONTROLLER_REGISTER_BROKER, False),
    (RequestCode.CONTROLLER_GET_REPLICA_INFO, False),
    (RequestCode.NOTIFY_BROKER_ROLE_CHANGED, True),
}


def frames_of(all_frames, code: RequestCode, request: bool) -> list[Any]:
    found = [
        golden
        for golden in all_frames
        if golden.capture.startswith("controller")
        and golden.truth["requestName"] == code.name
        and golden.is_request is request
    ]
    assert found, code.name
    return found


def members_of(golden) -> dict[str, str]:
    return golden.truth["extFields"] or {}


@pytest.mark.parametrize("code", REQUESTS, ids=lambda code: code.name)
def test_request_headers(all_frames, code) -> None:
    for golden in frames_of(all_frames, code, True):
        header = read_header(REQUESTS[code], members_of(golden))
        assert write_header(header) == members_of(golden), golden


@pytest.mark.parametrize("code", RESPONSES, ids=lambda code: code.name)
def test_response_headers(all_frames, code) -> None:
    for golden in frames_of(all_frames, code, False):
        if members_of(golden):
            header = read_header(RESPONSES[code], members_of(golden))
            assert write_header(header) == members_of(golden), golden


def test_values_unknown_to_java_are_left_out_where_it_reports_nothing() -> None:
    register = headers.RegisterBrokerToControllerRequest("c", "b", 1, "a:1")
    assert set(write_header(register)) == {
        "clusterName",
        "brokerName",
        "brokerId",
        "brokerAddress",
    }
    register.unclean = True
    again = read_header(headers.RegisterBrokerToControllerRequest, write_header(register))
    assert again == register
    assert write_header(headers.BrokerHeartbeatResponse()) == {}
    lease = headers.BrokerHeartbeatResponse(8000, 1, 2, 3)
    assert write_header(lease)["leaseMs"] == "8000"


def test_sets(all_frames) -> None:
    for code, request in SETS:
        for golden in frames_of(all_frames, code, request):
            if golden.body:
                assert controller.SyncStateSet.decode(golden.body).encode() == golden.body, golden


def same_value(golden, decode: Callable[[bytes], Any]) -> None:
    """Read, written and read again: the same, and strict JSON this time."""
    value = decode(golden.body)
    assert fastjson.loads(value.encode()) == fastjson.loads(golden.body), golden
    assert decode(value.encode()) == value, golden


def test_elections(all_frames) -> None:
    for golden in frames_of(all_frames, RequestCode.CONTROLLER_ELECT_MASTER, False):
        same_value(golden, controller.ElectMasterBody.decode)
        body = controller.ElectMasterBody.decode(golden.body)
        assert body.group is not None and body.members <= set(body.group.addresses), golden
        assert b'{"1":' in body.encode()


def test_groups_as_they_stand(all_frames) -> None:
    code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
    for golden in frames_of(all_frames, code, False):
        assert controller.BrokerReplicasInfo.decode(golden.body).encode() == golden.body, golden
    for golden in frames_of(all_frames, code, True):
        names = controller.decode_names(golden.body)
        assert controller.encode_names(names) == golden.body


def test_metadata_names_every_controller(all_frames) -> None:
    for golden in frames_of(all_frames, RequestCode.CONTROLLER_GET_METADATA_INFO, False):
        header = read_header(headers.GetMetaDataResponse, members_of(golden))
        peers = controller.decode_peers(header.peers)
        assert controller.encode_peers(peers) == header.peers
        assert peers[header.controller_leader_id] == header.controller_leader_address


def test_refusals_have_the_codes_we_know(all_frames) -> None:
    codes = {
        golden.truth["code"]
        for golden in all_frames
        if golden.capture.startswith("controller") and golden.truth["kind"] == "response"
    }
    assert {2002, 2008, 2010} <= {code for code in codes if code in set(ResponseCode)}
