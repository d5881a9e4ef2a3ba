"""Clients and operators of a broker on real sockets: order of frames, relays, routes, restart."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from turbopump.broker.config.config import load_config
from turbopump.broker.node import BrokerNode
from turbopump.engine import fastjson
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.node import NameServerNode
from turbopump.net.transport.client import Client
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, decode, encode, new_request, new_response
from turbopump.net.wire.heartbeat import ConsumerData, HeartbeatData, ProducerData
from turbopump.net.wire.subscription import parse_subscription

pytestmark = pytest.mark.integration

TIMEOUT_MS = 30_000
HERE = "127.0.0.1"


def beat(client_id: str, group: str = "g", producers: tuple[str, ...] = ()) -> Command:
    data = HeartbeatData(
        client_id,
        [ProducerData(name) for name in producers],
        [ConsumerData(group, subscription_data_set=[parse_subscription("T", "*")])],
    )
    return new_request(RequestCode.HEART_BEAT, body=data.encode())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another connection brings about."""
    async with asyncio.timeout(TIMEOUT_MS / 1000):
        while not condition():
            await asyncio.sleep(0.001)


class Member:
    """A client that keeps and answers the broker's requests."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.asked: list[Command] = []
        handlers = Dispatcher()
        for code in (40, 221, 307, 309, 326):
            handlers.add(code, self._answer)
        self.client = Client(lambda: time.time_ns() // 1_000_000, handlers)

    def _answer(self, request: Command, _peer: Any, _now_ms: int) -> Command:
        self.asked.append(request)
        return new_response(request, 0, "from the client", body=b'{"who":"me"}')

    async def ask(self, command: Command) -> Command:
        return await self.client.call(self.address, command, TIMEOUT_MS)

    def count(self, code: int) -> int:
        return sum(request.code == code for request in self.asked)


@contextlib.asynccontextmanager
async def members(address: str, *names: str) -> AsyncIterator[list[Member]]:
    """Clients that have sent their first heartbeat."""
    made = [Member(address) for _ in names]
    try:
        for member, name in zip(made, names, strict=True):
            assert (await member.ask(beat(name, producers=("pg",)))).code == 0
        yield made
    finally:
        for member in made:
            await member.client.close()


def test_the_answer_to_a_heartbeat_comes_before_the_notice(serve: Callable[..., Any]) -> None:
    async def run() -> list[Command]:
        async with serve() as (node, _):
            host, _, port = node.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.writelines([bytes(part) for part in encode(beat("c1"))])
            frames = []
            for _ in range(2):
                length = await reader.readexactly(4)
                frames.append(length + await reader.readexactly(int.from_bytes(length, "big")))
            writer.close()
            return [decode(memoryview(frame)) for frame in frames]

    response, notice = uvloop.run(run())
    assert response.is_response
    assert response.fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
    assert (notice.code, notice.fields) == (40, {"consumerGroup": "g"})


def test_members_learn_of_each_other_until_the_connection_is_gone(
    serve: Callable[..., Any],
) -> None:
    async def run() -> None:
        async with serve() as (node, caller), members(node.address, "c1", "c2") as (one, two):
            await until(lambda: (one.count(40), two.count(40)) == (2, 1))
            listed = await caller.ask(38, consumerGroup="g")
            assert sorted(fastjson.loads(listed.body)["consumerIdList"]) == ["c1", "c2"]
            await two.client.close()
            await until(lambda: one.count(40) == 3)
            listed = await caller.ask(38, consumerGroup="g")
            assert fastjson.loads(listed.body) == {"consumerIdList": ["c1"]}

    uvloop.run(run())


def test_relays_reach_the_client_and_come_back(serve: Callable[..., Any]) -> None:
    async def run() -> None:
        async with serve() as (node, caller), members(node.address, "c1") as (member,):
            response = await caller.ask(307, consumerGroup="g", clientId="c1")
            assert (response.code, response.remark, response.body) == (
                0,
                "from the client",
                b'{"who":"me"}',
            )
            sent = await caller.send(b"look")
            response = await caller.ask(
                309, consumerGroup="g", clientId="c1", msgId=sent.fields["msgId"]
            )
            assert response.code == 0
            assert b"look" in bytes(member.asked[-1].body)
            response = await caller.ask(223, topic="T", group="g")
            assert fastjson.loads(response.body) == {"consumerTable": {"c1": {}}}

    uvloop.run(run())


def test_a_reply_reaches_the_producer(serve: Callable[..., Any]) -> None:
    async def run() -> None:
        async with serve() as (node, caller), members(node.address, "p1") as (member,):
            fields = {
                "a": "WP",
                "b": "DefaultCluster_REPLY_TOPIC",
                "c": "TBW102",
                "d": "4",
                "e": "0",
                "f": "0",
                "g": "1",
                "h": "0",
                "i": "REPLY_TO_CLIENT\x01p1\x02",
            }
            response = await caller.ask(325, body=b"reply", **fields)
            assert response.code == 0, response.remark
            assert (member.count(326), bytes(member.asked[-1].body)) == (1, b"reply")

    uvloop.run(run())


def topic_fields(name: str) -> dict[str, str]:
    return {
        "topic": name,
        "readQueueNums": "2",
        "writeQueueNums": "2",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
        "topicSysFlag": "0",
    }


def test_a_topic_is_routed_before_its_creation_is_answered(
    serve: Callable[..., Any], connect: Any, tmp_path: Path
) -> None:
    async def run() -> None:
        config = NamesrvConfig(bind_address=HERE, listen_port=0, kv_config_path=f"{tmp_path}/kv")
        names = NameServerNode(config)
        await names.start()
        asker = connect(names.address)
        try:
            async with serve(f"namesrvAddr={names.address}\n") as (node, caller):
                assert (await asker.ask(105, topic="New")).code == 17
                assert (await caller.ask(17, **topic_fields("New"))).code == 0
                route = await asker.ask(105, topic="New")
                assert route.code == 0, route.remark
                assert node.address.encode() in bytes(route.body)
                async with members(node.address, "c1"):
                    async with asyncio.timeout(TIMEOUT_MS / 1000):
                        while (await asker.ask(105, topic="%RETRY%g")).code != 0:
                            await asyncio.sleep(0.01)
                assert (await caller.ask(25, body=b"brokerPermission=4\n")).code == 0
                route = fastjson.loads((await asker.ask(105, topic="New")).body)
                assert [queue["perm"] for queue in route["queueDatas"]] == [4]
        finally:
            await asker.close()
            await names.stop()

    uvloop.run(run())


def test_topics_of_an_operator_survive_a_restart(serve: Callable[..., Any]) -> None:
    async def run() -> None:
        async with serve() as (_, caller):
            assert (await caller.ask(17, **topic_fields("New"))).code == 0
            body = b'{"groupName":"g","retryMaxTimes":3}'
            assert (await caller.ask(200, body=body)).code == 0
            assert (await caller.ask(353, group="g", topic="New", readable="false")).code == 0
            await caller.send(b"one", "New")
            reset = await caller.ask(222, topic="New", group="g", timestamp="-1", isForce="true")
            assert b":1" in bytes(reset.body)
        async with serve() as (_, caller):
            topic = fastjson.loads((await caller.ask(351, topic="New")).body)
            assert topic["readQueueNums"] == 2
            group = fastjson.loads((await caller.ask(352, group="g")).body)
            assert group["retryMaxTimes"] == 3
            banned = await caller.ask(353, group="g", topic="New")
            assert fastjson.loads(banned.body)["readable"] is False
            stats = await caller.ask(208, consumerGroup="g")
            assert b'"consumerOffset":1' in bytes(stats.body)

    uvloop.run(run())


def test_a_changed_configuration_is_written_back(tmp_path: Path, connect: Any) -> None:
    path = tmp_path / "broker.conf"
    before = (
        f"storePathRootDir={tmp_path}/store\nbrokerIP1=127.0.0.1\nbindAddress=127.0.0.1\n"
        "listenPort=0\ntls.server.mode=disabled\nsendMessageThreadPoolNums=4\n# a remark\n"
        "fileReservedTime=48\n"
    )
    path.write_text(before)

    async def run() -> None:
        config, _ = load_config(path.read_text(), str(path))
        node = BrokerNode(config)
        await node.start()
        caller = connect(node.address)
        try:
            response = await caller.ask(25, body=b"fileReservedTime=1\ntraceOn=false\n")
            assert response.code == 0, response.remark
            shown = await caller.ask(26)
            assert b"fileReservedTime=1\n" in bytes(shown.body)
            assert b"tls." not in bytes(shown.body)
        finally:
            await caller.close()
            await node.stop()

    uvloop.run(run())
    assert (tmp_path / "broker.conf.bak").read_text() == before
    assert path.read_text() == before.replace(
        "fileReservedTime=48\n", ("fileReservedTime=1\ntraceOn=false\n")
    )
    again, warnings = load_config(path.read_text(), str(path))
    assert warnings == ["known, but without effect here: sendMessageThreadPoolNums=4 (line 6)"]
    assert again.store.file_reserved_time_hours == 1
    assert not again.trace_on
    assert again.tls_properties == {"tls.server.mode": "disabled"}
    assert again.others["sendMessageThreadPoolNums"] == "4"
    assert again.listen_port == 0


def test_every_reading_request_of_an_operator(serve: Callable[..., Any]) -> None:
    questions: list[tuple[int, dict[str, str]]] = [
        (21, {}),
        (26, {}),
        (28, {}),
        (43, {}),
        (45, {}),
        (201, {}),
        (202, {"topic": "T"}),
        (208, {"consumerGroup": "g"}),
        (300, {"topic": "T"}),
        (303, {"topic": "T", "group": "g"}),
        (305, {}),
        (308, {"topic": "T", "compareGroup": "g", "filterGroups": ""}),
        (317, {"isOrder": "false"}),
        (328, {}),
        (343, {"group": "g"}),
        (345, {"group": "g", "topic": "T"}),
        (351, {"topic": "T"}),
        (402, {}),
        (203, {"consumerGroup": "g"}),
        (204, {"producerGroup": "pg"}),
    ]

    async def run() -> None:
        async with serve() as (node, caller), members(node.address, "c1"):
            await caller.send(b"one", KEYS="k")
            for code, fields in questions:
                response = await caller.ask(code, **fields)
                assert response.code == 0, (code, response.remark)
                assert response.body, code
            found = await caller.ask(
                12,
                topic="T",
                key="k",
                maxNum="1",
                beginTimestamp="0",
                endTimestamp=str(2**63 - 1),
                _UNIQUE_KEY_QUERY="false",
            )
            viewed = await caller.ask(33, offset="0")
            assert found.code == viewed.code == 0
            assert bytes(found.body) == bytes(viewed.body)
            for code in (306, 316, 329):
                assert (await caller.ask(code)).code == 0
            for code in (9999, 200056, 1001):
                response = await caller.ask(code)
                assert (response.code, response.remark) == (
                    3,
                    f" request type {code} not supported",
                )

    uvloop.run(run())
