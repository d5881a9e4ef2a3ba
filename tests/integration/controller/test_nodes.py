"""Controllers on real sockets and files: elections, agreed state, DLedger's clients."""

import asyncio
import base64
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.integration.controller.quorum import (
    CLUSTER,
    GROUP,
    Asker,
    asker,
    config,
    controllers,
    until,
)

from turbopump.controller.node import ControllerNode
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.types import StoreError
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.controller import decode_peers
from turbopump.net.wire.java_properties import ConfigError

pytestmark = pytest.mark.integration

METADATA, APPEND, GET, TRANSFER = 50_000, 50_001, 50_002, 51_005
SUCCESS, NOT_LEADER, UNEXPECTED_ARGUMENT, UNKNOWN_MEMBER, EXPIRED_TERM = 200, 404, 411, 401, 403


def test_three_elect_one_that_alone_answers_for_the_group(tmp_path: Path) -> None:
    async def run() -> None:
        async with controllers(tmp_path) as nodes, asker([n.address for n in nodes]) as broker:
            leader = await broker.leader()
            assert [node.is_leader for node in nodes].count(True) == 1
            assert next(node.address for node in nodes if node.is_leader) == leader
            found = [await broker.metadata(node.address) for node in nodes]
            for number, one in enumerate(found):
                assert one is not None
                assert one["group"] == "g"
                assert decode_peers(one["peers"]) == {
                    f"n{each}": node.address for each, node in enumerate(nodes)
                }
                assert one["controllerLeaderAddress"] == leader
                assert one["isLeader"] == str(nodes[number].address == leader).lower()
            for node in nodes:
                response = await broker.ask(
                    node.address,
                    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
                    clusterName=CLUSTER,
                    brokerName=GROUP,
                )
                wanted = 0 if node.address == leader else ResponseCode.CONTROLLER_NOT_LEADER
                assert response.code == wanted
            unknown = await broker.ask(leader, 4_711)
            assert unknown.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    asyncio.run(run())


def test_a_broker_registers_and_is_elected_and_another_leader_knows_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with controllers(tmp_path) as nodes, asker([n.address for n in nodes]) as broker:
            await broker.register(1)
            elected = await broker.elect(1)
            assert (elected.code, elected.fields["masterEpoch"]) == (0, "1")
            second = await broker.register(2)
            assert second.fields["masterBrokerId"] == "1"
            leader = next(node for node in nodes if node.is_leader)
            await leader.stop()
            response, members = await broker.replicas()
            assert (response.fields["masterBrokerId"], response.fields["masterEpoch"]) == ("1", "1")
            assert members.members == {1}
            third = await broker.register(3)
            assert third.code == 0

    asyncio.run(run())


def test_a_controller_alone_keeps_its_state(tmp_path: Path) -> None:
    async def life(first: bool) -> None:
        async with controllers(tmp_path, 1) as (node,), asker([node.address]) as broker:
            if first:
                await broker.register(1)
                assert (await broker.elect(1)).code == 0
            response, members = await broker.replicas()
            assert (response.fields["masterEpoch"], members.members) == ("1", {1})

    asyncio.run(life(True))
    asyncio.run(life(False))


def test_without_a_majority_nothing_is_decided(tmp_path: Path) -> None:
    async def run() -> None:
        async with controllers(tmp_path) as nodes, asker([n.address for n in nodes]) as broker:
            await broker.register(1)
            leader = next(node for node in nodes if node.is_leader)
            for node in nodes:
                if node is not leader:
                    await node.stop()

            async def resigned() -> bool:
                return not leader.is_leader

            await until("a leader without followers resigns", resigned)
            response = await broker.ask(
                leader.address,
                RequestCode.CONTROLLER_ELECT_MASTER,
                clusterName=CLUSTER,
                brokerName=GROUP,
                brokerId=1,
            )
            assert response.code == ResponseCode.CONTROLLER_NOT_LEADER

    asyncio.run(run())


def test_a_connection_that_closed_is_no_dead_broker_while_its_port_accepts(tmp_path: Path) -> None:
    async def run() -> None:
        port = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        async with controllers(tmp_path, 1) as (node,), asker([node.address]) as admin:
            async with asker([node.address]) as broker:
                broker.ports[1] = port.sockets[0].getsockname()[1]
                await broker.register(1)
                assert (await broker.elect(1)).fields["masterEpoch"] == "1"
            await asyncio.sleep(0.5)  # longer than its host is asked at a quick pace
            assert (await admin.replicas())[0].fields["masterBrokerId"] == "1"
            port.close()
            await port.wait_closed()

            async def given_up() -> bool:
                return (await admin.replicas())[0].fields["masterEpoch"] == "2"

            await until("a broker whose port refuses connections is dead", given_up)

    asyncio.run(run())


def test_a_folder_has_one_controller(tmp_path: Path) -> None:
    async def run() -> None:
        async with controllers(tmp_path, 1):
            second = ControllerNode(config(tmp_path, 0))
            with pytest.raises(StoreError, match="is used by another process"):
                await second.start()

    asyncio.run(run())


def test_a_port_in_use_is_a_sentence(tmp_path: Path) -> None:
    async def run() -> None:
        async with controllers(tmp_path, 1) as (node,):
            other = config(tmp_path / "other", 0, peers=f"n0-{node.address}")
            with pytest.raises(ConfigError, match="cannot listen on"):
                await ControllerNode(other).start()

    asyncio.run(run())


def test_the_configuration_is_shown_changed_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "controller.conf"
    path.write_text("enableElectUncleanMaster=false\nkvConfigPath=of-the-name-server\n")

    async def run() -> None:
        own = config(tmp_path, 0, config_store_path=str(path))
        node = ControllerNode(own)
        await node.start()
        try:
            async with asker([node.address]) as admin:
                await changes(admin, node.address)
        finally:
            await node.stop()

    async def changes(admin: Asker, address: str) -> None:
        async def update(text: str) -> Command:
            return await admin.ask(address, RequestCode.UPDATE_CONTROLLER_CONFIG, text.encode())

        refused = await update("configStorePath=/tmp/x\n")
        assert refused.code == ResponseCode.NO_PERMISSION
        assert refused.remark == "Can not update config in black list."
        bad = await update("enableElectUncleanMaster=perhaps\n")
        assert (bad.code, "perhaps" in (bad.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        fixed = await update("enableElectUncleanMaster=true\nmaxHeartBeatLeak=9\n")
        assert (fixed.code, "maxHeartBeatLeak cannot change" in (fixed.remark or "")) == (1, True)
        assert (await update("enableElectUncleanMaster=true\na\\=b=c\n")).code == 1
        assert (await update("enableElectUncleanMaster=true\n")).code == 0
        shown = await admin.ask(address, RequestCode.GET_CONTROLLER_CONFIG)
        assert b"enableElectUncleanMaster=true\n" in bytes(shown.body)  # type: ignore[arg-type]
        lines = path.read_text().splitlines()
        assert lines == ["kvConfigPath=of-the-name-server", "enableElectUncleanMaster=true"]

    asyncio.run(run())


ROOM_ENTRIES = 100
"""More entries of half the size that a client may append than the file of entries has room for."""


class FullDisk(RealFiles):
    """Real files that cannot be replaced while `is_full`."""

    is_full = False

    def write(self, path: str, data: bytes, position: int = -1) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        super().write(path, data, position)


def test_a_controller_that_cannot_write_is_silent_until_it_can_again(tmp_path: Path) -> None:
    files = FullDisk()

    async def run() -> None:
        own = config(tmp_path, 0)
        node = ControllerNode(own, files)
        await node.start()
        async with asker([node.address]) as broker:
            try:
                await broker.register(1)
                files.is_full = True
                # Entries beyond the file's room: it has to be replaced.
                large = "x" * (32 << 10)
                fields = {"clusterName": CLUSTER, "brokerName": large}
                own_id = LedgerClient(broker, node.address, "n0")
                event = {**fields, "brokerAddress": "a:1", "registerCheckCode": "a:1;1"}
                body = b"\0\5" + json.dumps(event).encode()
                for _ in range(ROOM_ENTRIES):
                    if (await own_id.append(body))[0]["code"] == NOT_LEADER:
                        break
                assert not node.is_leader
                refused = await broker.ask(
                    node.address, RequestCode.CONTROLLER_GET_REPLICA_INFO, brokerName=GROUP
                )
                assert refused.code == ResponseCode.CONTROLLER_NOT_LEADER
                files.is_full = False
                response, _ = await broker.replicas()
                assert response.code == 0
            finally:
                await node.stop()

    asyncio.run(run())


class LedgerClient:
    """A client like DLedgerClient: its requests have a body, and no fields."""

    def __init__(self, broker: Asker, address: str, member: str) -> None:
        self._broker = broker
        self._address = address
        self._member = member

    async def ask(self, code: int, **members: Any) -> tuple[dict[str, Any], str]:
        body = {"code": 200, "group": "g", "remoteId": self._member, "term": -1, **members}
        response = await self._broker.ask(self._address, code, json.dumps(body).encode())
        assert response.code == SUCCESS, response.remark
        return json.loads(bytes(response.body)), response.remark or ""  # type: ignore[arg-type]

    async def append(self, body: bytes) -> tuple[dict[str, Any], str]:
        return await self.ask(APPEND, body=base64.b64encode(body).decode())


EVENT = (
    b"\0\2"
    + json.dumps(
        {
            "clusterName": "C",
            "brokerName": "of-a-ledger-client",
            "brokerAddress": "10.0.0.1:10911",
            "registerCheckCode": "10.0.0.1:10911;1",
            "newBrokerId": 1,
        }
    ).encode()
)


def test_clients_of_the_ledger_append_and_get(tmp_path: Path) -> None:
    async def run() -> None:
        async with controllers(tmp_path) as nodes, asker([n.address for n in nodes]) as broker:
            leader = await broker.leader()
            names = {node.address: f"n{number}" for number, node in enumerate(nodes)}
            client = LedgerClient(broker, leader, names[leader])
            found, _ = await client.ask(METADATA)
            assert (found["code"], found["leaderId"]) == (SUCCESS, names[leader])
            assert found["peers"] == {name: address for address, name in names.items()}
            appended, _ = await client.append(EVENT)
            assert appended["code"] == SUCCESS
            got, _ = await client.ask(GET, beginIndex=appended["index"])
            (entry,) = got["entries"]
            assert base64.b64decode(entry["body"]) == EVENT
            assert (entry["index"], entry["term"]) == (appended["index"], appended["term"])
            first, _ = await client.ask(GET, beginIndex=0)
            assert first["entries"][0]["body"] == ""
            other = next(address for address in names if address != leader)
            at_follower, _ = await LedgerClient(broker, other, names[other]).append(EVENT)
            assert at_follower["code"] == NOT_LEADER
            stranger, _ = await LedgerClient(broker, leader, "n9").append(EVENT)
            assert stranger["code"] == UNKNOWN_MEMBER
            # The entry was applied: the next id of that group has changed.
            response = await broker.to_leader(
                RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
                clusterName="C",
                brokerName="of-a-ledger-client",
            )
            assert response.fields["nextBrokerId"] == "2"

    asyncio.run(run())


def test_the_lead_is_handed_over(tmp_path: Path) -> None:
    async def run() -> None:
        async with controllers(tmp_path) as nodes, asker([n.address for n in nodes]) as broker:
            await broker.register(1)
            names = {node.address: f"n{number}" for number, node in enumerate(nodes)}
            leader = await broker.leader()
            other = next(address for address in names if address != leader)
            client = LedgerClient(broker, leader, names[leader])
            term = (await client.append(EVENT))[0]["term"]
            response, _ = await client.ask(
                TRANSFER, term=term, transferId=names[leader], transfereeId=names[other]
            )
            assert response["code"] in (SUCCESS, EXPIRED_TERM)  # the new leader may be faster
            assert await broker.leader() == other
            await broker.register(2)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"hello", "26725"),
        (b"\0\4{}", "4"),
        (b"\0\2{}", "brokerName"),
        (b"\0\2no json", "JSON"),
        (b"\0\x65{}", "101"),
        (b"x", "1 byte"),
    ],
)
def test_an_invalid_event_is_refused_and_harmless(body: bytes, words: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with controllers(tmp_path, 1) as (node,), asker([node.address]) as broker:
            client = LedgerClient(broker, await broker.leader(), "n0")
            for _ in range(3):
                refused, remark = await client.append(body)
                assert refused["code"] == UNEXPECTED_ARGUMENT
                assert words in remark
            assert (await client.append(EVENT))[0]["code"] == SUCCESS

    asyncio.run(run())


def test_bytes_that_are_no_message_are_answered(tmp_path: Path) -> None:
    async def run() -> None:
        async with controllers(tmp_path, 1) as (node,), asker([node.address]) as broker:
            leader = await broker.leader()
            for code in (METADATA, APPEND, GET, 51_001, 51_002, 51_004, 51_005, 51_006):
                for body in (b"", b"[]", b"{", b'{"term":"x"}', b'{"group":7}'):
                    response = await broker.ask(leader, code, body)
                    assert response.code == ResponseCode.SYSTEM_ERROR, (code, body)
            assert await broker.leader() == leader

    asyncio.run(run())


def test_it_listens_at_the_host_of_its_own_entry_alone(tmp_path: Path) -> None:
    async def run() -> None:
        alone = config(tmp_path, 0, "")
        alone.bind_address = "127.0.0.1"
        free = ControllerNode(alone)
        port = await free.listen()
        await free.stop()
        own = config(tmp_path, 0, f"n0-127.0.0.2:{port}")
        own.bind_address = ""
        node = ControllerNode(own)
        assert await node.listen() == port
        try:
            _, writer = await asyncio.open_connection("127.0.0.2", port)
            writer.close()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
        finally:
            await node.stop()
        elsewhere = config(tmp_path, 0, f"n0-192.0.2.1:{port}")  # for documentation: no host's
        elsewhere.bind_address = ""
        with pytest.raises(ConfigError, match=r"listen on 192.0.2.1.*set bindAddress"):
            await ControllerNode(elsewhere).start()

    asyncio.run(run())
