"""Requests between RocketMQ's brokers and name server where a replica may act (RIP-32).

Captured from a name server and a master of 5.5.0 beside two replicas that only listened: the master
requests the group's brokers (901), reports that it is back (906), registers, sends heartbeats (904,
and 322 to old name servers) and is killed; the name server notifies the replicas (905); mqadmin
sends 908.
"""

from pathlib import Path
from typing import Any

import pytest
from tests.disk_parts import saved_at_once
from tests.unit.links import NoLink
from tests.wire.frames import Golden, golden_frames

from turbopump.broker.config.config import load_config
from turbopump.broker.ha.acting.group_members import read_members
from turbopump.broker.registration.registration import Registration, Work
from turbopump.broker.tables.table_saver import TableSaver
from turbopump.broker.tables.topics import TopicTable
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.namesrv import handlers
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.handlers import NameServer
from turbopump.namesrv.key_values import KeyValues
from turbopump.namesrv.node import notice_header
from turbopump.namesrv.route_rows import Notice
from turbopump.namesrv.routes import RouteTable
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, decode, encode, new_request
from turbopump.net.wire.header import read_header, write_header
from turbopump.net.wire.headers import admin, routes
from turbopump.net.wire.registration.register import RegisterBrokerBody
from turbopump.net.wire.topics import DataVersion, TopicConfigs

HEADERS: dict[int, Any] = {
    103: routes.RegisterBrokerRequest,
    322: routes.QueryDataVersionRequest,
    901: routes.GetBrokerMemberGroupRequest,
    904: routes.BrokerHeartbeatRequest,
    905: routes.NotifyMinBrokerIdChangeRequest,
    906: routes.ExchangeHaInfo,
    908: admin.ResetMasterFlushOffsetRequest,
}
FRAMES = golden_frames("acting")
NOW_MS = 1_795_270_000_000


def recorded(code: int, kind: str = "") -> list[Golden]:
    """Requests of a code, or (kind `response`) the answers to them."""
    name = RequestCode(code).name
    return [
        one
        for one in FRAMES
        if one.truth["requestName"] == name and (one.truth["kind"] == "response") == bool(kind)
    ]


def as_theirs(ours: Command, golden: Golden) -> bytes:
    """Our command with the values that differ between clients: number, language, and the order of
    fields (RocketMQ's is that of a hash map).
    """
    fields = {
        key: ours.fields[key] for key in golden.truth["extFields"] or {} if key in ours.fields
    }
    assert len(fields) == len(ours.fields), (golden, ours.fields)
    theirs = decode(golden.frame)
    ours.fields, ours.opaque = fields, theirs.opaque
    ours.language, ours.version = theirs.language, theirs.version
    return b"".join(encode(ours))


@pytest.mark.parametrize("code", sorted(HEADERS))
def test_headers_byte_for_byte(code: int) -> None:
    found = recorded(code)
    assert found
    for golden in found:
        header = read_header(HEADERS[code], golden.truth["extFields"])
        oneway = golden.truth["kind"] == "oneway"
        ours = new_request(RequestCode(code), header, golden.body, oneway=oneway)
        assert as_theirs(ours, golden) == golden.frame, golden


ACTS = "enableSlaveActingMaster=true\n"
ELECTED = "enableControllerMode=true\nbrokerId=-1\ncontrollerAddr=10.0.0.8:9878\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [("acting", ACTS), ("controller-json", ELECTED), ("acting", ACTS + ELECTED)],
    ids=["acting", "controllers", "both"],
)
def test_registrations_of_our_brokers(name: str, text: str, tmp_path: Path) -> None:
    """The fields come from their configuration; with controllers a master registers like a
    replica."""
    theirs = next(
        golden.truth["extFields"]
        for golden in golden_frames(name)
        if golden.truth["code"] == RequestCode.REGISTER_BROKER
        and golden.truth["kind"] != "response"
        and golden.truth["extFields"]["brokerId"] == "0"
    )
    given = f"brokerName={theirs['brokerName']}\nbrokerClusterName={theirs['clusterName']}\n"
    config, _ = load_config(given + text)
    saver = TableSaver(ConfigFiles(RealFiles(), str(tmp_path)), InlineDisk())
    registration = Registration(config, TopicTable(config, saver), theirs["brokerAddr"])
    _count, make = registration.begin_request(Work(True, []))
    assert make().fields | {"bodyCrc32": theirs["bodyCrc32"]} == theirs


def test_bodies() -> None:
    """Heartbeats and lists of members decode; bodies of registrations are in
    test_golden_bodies.py.
    """
    for golden in recorded(322):
        version = RegisterBrokerBody.decode(recorded(103)[-1].body).topics.data_version
        assert version.encode() == golden.body, "it is the registered one"
    for golden in recorded(901, "response"):
        replicas = {1: "127.0.0.1:15262", 2: "127.0.0.1:17874"}
        assert read_members(decode(golden.frame)) == replicas


def test_our_name_server_says_the_same() -> None:
    """Our name server gives the same members and notices for the same registrations."""
    notices: list[Notice] = []
    server = NameServer(
        NamesrvConfig(notify_min_broker_id_changed=True),
        RouteTable(),
        KeyValues(saved_at_once),
        NOW_MS,
        notices.append,
        saved_at_once,
    )
    dispatcher = Dispatcher()
    handlers.register(dispatcher, server)
    members = read_members(decode(recorded(901, "response")[0].frame))
    for broker_id, address in members.items():
        body = RegisterBrokerBody(TopicConfigs(DataVersion(0, 1, 1), {})).encode()
        header = routes.RegisterBrokerRequest(
            broker_name="broker-a",
            broker_addr=address,
            cluster_name="DefaultCluster",
            broker_id=broker_id,
            ha_server_addr=address,
            heartbeat_timeout_millis=10_000,
            enable_acting_master=True,
            body_crc32=0,
        )
        request = new_request(RequestCode.REGISTER_BROKER, header, body)
        dispatcher.dispatch(request, Peer(address, b"", NoLink()), NOW_MS)
    notices.clear()
    master = Peer("192.0.2.1:1", b"", NoLink())
    response = dispatcher.dispatch(decode(recorded(901)[0].frame), master, NOW_MS)
    assert isinstance(response, Command)
    assert isinstance(response.body, bytes)
    # Its keys are numbers, which RocketMQ writes as no JSON has them; ours reads both.
    for broker_id in members:
        response.body = response.body.replace(b'"%d":' % broker_id, b"%d:" % broker_id)
    assert response.body == recorded(901, "response")[0].body
    dispatcher.dispatch(decode(recorded(103)[0].frame), master, NOW_MS)
    server.on_brokers_changed(
        server.routes.unregister("DefaultCluster", "broker-a", "127.0.0.1:10150")
    )
    came, went = notices
    assert sorted(came.targets) == sorted(went.targets) == sorted(members.values())
    theirs = [golden.truth["extFields"] for golden in recorded(905)]
    assert [write_header(notice_header(one)) for one in notices for _ in range(2)] == theirs
