"""A broker as a process answers 400, and writes the histories that the report reads."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from turbopump.net.client.admin.client import Admin
from turbopump.net.client.client_instance import ClientInstance
from turbopump.net.client.consuming.consumer import Consumer
from turbopump.net.client.options import ClientOptions
from turbopump.net.client.shared_client import SharedClient, instance_of
from turbopump.net.wire.codes import RequestCode
from turbopump.spark.rebalance.measures import measure_rebalance, parse
from turbopump.testing import running_cluster

pytestmark = pytest.mark.integration


def test_lines_are_in_the_store_and_the_report_reads_them(tmp_path: Path) -> None:
    async def ask(instance: ClientInstance, address: str) -> list[int]:
        body = {"clientId": instance.client_id, "consumerGroup": "G", "topic": "T"}
        data = json.dumps({**body, "strategyName": "STICKY"}).encode()
        response = await instance.ask(address, RequestCode.QUERY_ASSIGNMENT, body=data)
        found = json.loads(bytes(response.body))  # type: ignore[arg-type]
        return [one["messageQueue"]["queueId"] for one in found["messageQueueAssignments"]]

    async def scenario(namesrv: str) -> None:
        async with Admin([namesrv]) as admin:
            [broker] = (await admin.cluster_list()).brokers
            await admin.update_topic("T", cluster=broker.cluster, read_queues=4, write_queues=4)
        members, instances = [], []
        for number in range(2):
            shared = SharedClient([namesrv], ClientOptions(instance_name=f"m{number}"))
            member = Consumer("G", client=shared)
            member.subscribe("T")
            await member.start()
            members.append(member)
            instances.append(instance_of(shared))
            for one in (*instances, *instances):
                await ask(one, broker.address)
        shares = [await ask(one, broker.address) for one in instances]
        assert sorted(shares[0] + shares[1]) == [0, 1, 2, 3] and len(shares[0]) == 2
        for member in members:
            await member.close()

    with running_cluster(tmp_path) as cluster:
        asyncio.run(scenario(cluster.namesrv))
        files: list[Path] = []
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not files:
            files = list(tmp_path.rglob("rebalance-00000001.jsonl"))
            time.sleep(0.05)
    lines = [parse(line) for line in files[0].read_text().splitlines()]
    assert [one.trigger for one in lines] == ["join", "join"]
    assert all(
        not one.faults and measure_rebalance(one).moved == measure_rebalance(one).moved_min
        for one in lines
    )
