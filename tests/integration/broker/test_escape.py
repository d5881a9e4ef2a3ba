"""A master dies: its replica forwards due messages to the master of another group (RIP-32)."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.integration.broker.conftest import Caller, serving

from turbopump.broker.config.config import load_config
from turbopump.broker.node import BrokerNode
from turbopump.cluster import SMALL_FILES, Cluster
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.send import SendMessageResponse
from turbopump.net.wire.headers.transactions import EndTransactionRequest
from turbopump.net.wire.message_id import decode_message_id

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

GROUP = {**SMALL_FILES, "enableRemoteEscape": "true", "skipPreOnline": "true"}


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    while not await holds():
        await asyncio.sleep(0.1)


async def info(caller: Caller) -> dict[str, str]:
    response = await caller.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    table: dict[str, str] = json.loads(bytes(response.body))["table"]
    return table


async def _prepared(master: Caller) -> EndTransactionRequest:
    """A half message, and the commit of it."""
    more = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "K"}
    response = await master.send(b"transaction", **more)
    assert response.code == 0
    header = read_header(SendMessageResponse, response.fields)
    at = decode_message_id(header.msg_id)[1]
    return EndTransactionRequest("PG", header.queue_offset, at, 8, "K")


async def _play(other: Caller, cluster: Cluster) -> None:
    master, replica = (Caller(broker.address) for broker in cluster.brokers)
    for caller in (master, other):
        assert (await caller.send(b"plain")).code == 0
    assert (await master.send(b"delayed", DELAY="2")).code == 0
    assert (await master.send(b"timer", TIMER_DELAY_SEC="6")).code == 0
    commit = await _prepared(master)
    end = (await info(master))["commitLogMaxOffset"]

    async def copied() -> bool:
        return (await info(replica))["commitLogMaxOffset"] == end

    await until(copied)
    await cluster.stop_broker(cluster.brokers[0])

    async def delivered() -> bool:
        found = [bytes(one.body) for queue in range(4) for one in await other.read("T", queue)]
        return {b"delayed", b"timer"} <= set(found)

    async def ended() -> bool:
        return (await replica.ask(RequestCode.END_TRANSACTION, commit)).code == 0

    await until(delivered)
    await until(ended)
    found = [bytes(one.body) for queue in range(4) for one in await other.read("T", queue)]
    assert sorted(found) == [b"delayed", b"plain", b"timer", b"transaction"]
    table = await info(replica)
    assert table["escapedTo_m"].startswith("3 messages, last at ")
    assert table["commitLogMaxOffset"] == end, "it writes nothing"
    await _come_back(cluster)
    for caller in (master, replica):
        await caller.close()


async def _come_back(cluster: Cluster) -> None:
    """The master asks its replica, and delivers nothing again; a later message shows that the
    master has passed the due messages."""
    given = cluster.broker_properties(0, cluster.namesrv, []) | {"skipPreOnline": "false"}
    config, _warnings = load_config("".join(f"{key}={value}\n" for key, value in given.items()))
    node = BrokerNode(config)
    await node.start()
    caller = Caller(node.address)

    async def takes_messages() -> bool:
        return (await caller.send(b"new", DELAY="1")).code == 0

    async def is_delivered() -> bool:
        return {b"new", b"new timer"} <= {bytes(one.body) for one in await caller.read()}

    try:
        await until(takes_messages)
        assert (await caller.send(b"new timer", TIMER_DELAY_SEC="2")).code == 0
        await until(is_delivered)
        found = [bytes(one.body) for queue in range(4) for one in await caller.read("T", queue)]
        assert sorted(found) == [b"new", b"new timer", b"plain"]
    finally:
        await caller.close()
        await node.stop()


def test_due_messages_go_to_another_group(tmp_path: Path) -> None:
    async def run() -> None:
        async with Cluster(
            tmp_path / "group", replicas=1, acting_master=True, broker_properties=GROUP
        ) as cluster:
            more = f"brokerName=m\nnamesrvAddr={cluster.namesrv}\n"
            async with serving(tmp_path / "other", more) as (_node, other):
                await _play(other, cluster)

    asyncio.run(run())
