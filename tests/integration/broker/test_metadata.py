"""Two brokers of a group on real sockets: the replica has its master's tables, across
role changes.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from interop.support.ports import BROKER_AND_HA, free_port
from tests.integration.broker.conftest import Caller, serving
from tests.unit.broker.conftest import offset_json

from turbopump.broker.node import BrokerNode

pytestmark = pytest.mark.integration

TIMEOUT_S = 60


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not met():
            await asyncio.sleep(0.02)


def tables(node: BrokerNode) -> tuple[Any, ...]:
    context = node.context
    return (
        context.topics.all_topics(),
        context.topics.data_version,
        context.groups.to_json(),
        offset_json(context.offsets)["offsetTable"],
        context.offsets.data_version,
    )


async def commit(caller: Caller, offset: int) -> None:
    response = await caller.ask(
        15, consumerGroup="G", topic="T", queueId="0", commitOffset=str(offset)
    )
    assert response.code == 0, response.remark


def test_a_slave_has_its_master_s_tables(tmp_path: Path) -> None:
    port = free_port(BROKER_AND_HA)

    async def run() -> None:
        master_is = f"listenPort={port}\nbrokerName=b\nbrokerRole=ASYNC_MASTER\n"
        slave_is = (
            f"brokerName=b\nbrokerRole=SLAVE\nbrokerId=1\nhaMasterAddress=127.0.0.1:{port + 1}\n"
        )
        async with (
            serving(tmp_path / "a", master_is) as (master, caller),
            serving(tmp_path / "b", slave_is) as (slave, _),
        ):
            for _ in range(5):
                assert (await caller.send(b"x")).code == 0
            body = json.dumps({"groupName": "G", "retryMaxTimes": 3}).encode()
            assert (await caller.ask(200, body=body)).code == 0
            await commit(caller, 4)
            await until(lambda: tables(slave) == tables(master))
            await commit(caller, 2)
            assert (await caller.ask(215, topic="T")).code == 0
            await until(lambda: slave.context.topics.get("T") is None)
            await until(lambda: slave.context.store.topics() == master.context.store.topics())
            await until(lambda: tables(slave) == tables(master))

    uvloop.run(run())


def test_tables_survive_switches(tmp_path: Path) -> None:
    ports = {1: free_port(BROKER_AND_HA), 2: free_port(BROKER_AND_HA)}
    group_file = tmp_path / "group.json"

    def lead(epoch: int, master: int) -> None:
        brokers = {number: f"127.0.0.1:{port + 1}" for number, port in ports.items()}
        text = json.dumps({"epoch": epoch, "master": master, "brokers": brokers})
        replacement = tmp_path / "group.new"
        replacement.write_text(text)
        replacement.rename(group_file)

    def broker(number: int) -> Any:
        return serving(
            tmp_path / str(number),
            f"listenPort={ports[number]}\nbrokerName=b\nbrokerId={number}\n"
            f"haGroupFile={group_file}\nbrokerRole=SYNC_MASTER\nallAckInSyncStateSet=true\n",
        )

    async def run() -> None:
        lead(1, 1)
        async with broker(1) as (first, one), broker(2) as (second, two):
            nodes, callers = {1: first, 2: second}, {1: one, 2: two}
            for epoch in (1, 2, 3):
                master = 1 + (epoch + 1) % 2
                replica = 3 - master
                if epoch > 1:
                    lead(epoch, master)
                context = nodes[master].context
                await until(lambda context=context: context.role.is_master)
                caller = callers[master]
                async with asyncio.timeout(TIMEOUT_S):
                    while (await caller.send(b"x")).code != 0:
                        await asyncio.sleep(0.05)
                if epoch == 1:
                    body = json.dumps({"groupName": "G"}).encode()
                    assert (await caller.ask(200, body=body)).code == 0
                topic = {"topic": f"T{epoch}", "defaultTopic": "TBW102"}
                response = await caller.ask(
                    17,
                    readQueueNums="2",
                    writeQueueNums="2",
                    perm="6",
                    topicFilterType="SINGLE_TAG",
                    topicSysFlag="0",
                    order="false",
                    **topic,
                )
                assert response.code == 0, response.remark
                await commit(caller, epoch)
                await until(lambda m=master, r=replica: tables(nodes[m]) == tables(nodes[r]))
                version = context.topics.data_version
                assert version.state_version == epoch
                assert context.offsets.query("G", "T", 0) == epoch
                assert all(context.topics.get(f"T{number}") for number in range(1, epoch + 1))

    uvloop.run(run())
