"""The admin client against a running broker: every command, its result, its errors."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from turbopump.net.client.admin.client import Admin
from turbopump.net.client.consuming.consumer import Consumer
from turbopump.net.client.errors import BrokerError, ClientError
from turbopump.net.client.messages import Message, ReceivedMessage, SendResult
from turbopump.net.client.options import ConsumeFrom, ConsumerOptions
from turbopump.net.client.producer import Producer

pytestmark = pytest.mark.integration

Until = Callable[..., Awaitable[None]]


async def send(namesrv: str, topic: str, count: int) -> list[SendResult]:
    async with Producer("pg", [namesrv]) as producer:
        return [
            await producer.send(Message(topic, b"%d" % at, tags="A", keys=(f"k{at}", "all")))
            for at in range(count)
        ]


def test_cluster_and_broker_status(namesrv: str) -> None:
    async def scenario() -> None:
        async with Admin([namesrv]) as admin:
            [line] = (await admin.cluster_list()).brokers
            assert (line.broker_id, line.error, line.active) == (0, "", True)
            assert 0 < line.space < 1 and line.version.startswith("V")
            assert await admin.cluster_list(line.cluster)
            [by_address] = await admin.broker_status(broker=line.address)
            [by_cluster] = await admin.broker_status(cluster=line.cluster)
            assert by_address.address == by_cluster.address == line.address
            assert by_address.table["brokerVersionDesc"] == line.version
            assert list(by_address.table) == sorted(by_address.table)

    asyncio.run(scenario())


def test_topic_is_made_shown_and_deleted(namesrv: str, name: str, until: Until) -> None:
    async def scenario() -> None:
        async with Admin([namesrv]) as admin:
            [line] = (await admin.cluster_list()).brokers
            made = await admin.update_topic(
                name,
                broker=line.address,
                read_queues=3,
                write_queues=2,
                perm=6,
                attributes="+message.type=FIFO",
            )
            assert (made.addresses, made.attributes) == ([line.address], {"message.type": "FIFO"})
            route = (await admin.topic_route(name)).to_json()
            [queues] = route["queueDatas"]
            assert (queues["readQueueNums"], queues["writeQueueNums"]) == (3, 2)
            results = await send(namesrv, name, 4)
            status = await admin.topic_status(name)
            assert [queue.max_queue_offset for queue in status.queues] == [2, 2, 0]
            assert {result.queue.queue_id for result in results} == {0, 1}
            assert name in [shown.topic for shown in (await admin.topic_list()).topics]
            shown = (await admin.topic_list(with_clusters=True)).topics
            assert [one.cluster for one in shown if one.topic == name] == [line.cluster]
            gone = await admin.delete_topic(name, line.cluster)
            assert gone.name_servers == [namesrv]
            with pytest.raises(BrokerError) as caught:
                await admin.topic_route(name)
            assert caught.value.code == 17

    asyncio.run(scenario())


def test_ordered_topic_is_known_to_the_name_server(namesrv: str, name: str) -> None:
    async def scenario() -> None:
        async with Admin([namesrv]) as admin:
            [line] = (await admin.cluster_list()).brokers
            await admin.update_topic(name, cluster=line.cluster, write_queues=4, order=True)
            assert await admin._calls._query_order_config(name) == f"{line.broker_name}:4"
            await admin.update_topic(name, broker=line.address, write_queues=6, order=True)
            assert await admin._calls._query_order_config(name) == f"{line.broker_name}:6"

    asyncio.run(scenario())


def test_messages_are_found(namesrv: str, topic: str, until: Until) -> None:
    async def scenario() -> None:
        results = await send(namesrv, topic, 5)
        async with Admin([namesrv]) as admin:
            async with asyncio.timeout(60):
                while len((await admin.query_message_by_key(topic, "all")).messages) < 5:
                    await asyncio.sleep(0.05)
            found = await admin.query_message_by_key(topic, "k3")
            assert [message.text for message in found.messages] == ["3"]
            assert (await admin.query_message_by_key(topic, "nothing")).messages == []
            for message_id in (results[2].message_id, results[2].offset_message_id):
                by_id = await admin.query_message_by_id(topic, message_id)
                assert (by_id.message.text, by_id.message.broker_name) == (
                    "2",
                    results[2].queue.broker_name,
                )
            unique = await admin.query_message_by_unique_key(topic, results[4].message_id)
            assert unique.message.offset_message_id == results[4].offset_message_id
            assert json.loads(json.dumps(unique.to_json()))["message"]["body"] == "4"
            with pytest.raises(ClientError, match="no message"):
                await admin.query_message_by_id(topic, "0" * 32)

    asyncio.run(scenario())


def test_progress_and_reset_of_a_group(namesrv: str, topic: str, name: str, until: Until) -> None:
    async def scenario() -> None:
        results = await send(namesrv, topic, 8)
        handled: list[ReceivedMessage] = []
        options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, persist_ms=20)
        consumer = Consumer(name, [namesrv], options=options)
        consumer.subscribe(topic, "A || B")

        @consumer.on_message
        async def handle(message: ReceivedMessage) -> None:
            handled.append(message)

        async with Admin([namesrv]) as admin:
            async with consumer:
                await until(lambda: len(handled) == 8)
                retry = f"%RETRY%{name}"
                await until(lambda: retry in {queue.topic for queue in consumer.queues})
                await asyncio.sleep(0.1)  # a commit is under way
                progress = await admin.consumer_progress(name, with_clients=True)
                clients = {one.client_address for one in progress.queues if one.topic == topic}
                assert clients == {consumer.client_id.partition("@")[0]}
                [line] = [one for one in await admin.consumer_progress_all() if one.group == name]
                assert (line.count, line.consume_type) == (1, "CONSUME_PASSIVELY")
                found = await admin.query_message_by_id(topic, results[0].offset_message_id)
                assert [track.group for track in found.tracks] == [name]
            progress = await admin.consumer_progress(name, topic=topic)
            assert (progress.diff_total, len(progress.queues)) == (0, 4)
            found = await admin.query_message_by_id(topic, results[0].offset_message_id)
            assert [track.track for track in found.tracks] == ["NOT_ONLINE"]
            reset = await admin.reset_offset_by_time(name, topic, 0)
            assert [queue.queue_offset for queue in reset.queues] == [0] * 4
            progress = await admin.consumer_progress(name, topic=topic)
            assert progress.diff_total == 8

    asyncio.run(scenario())


def test_group_configuration_and_errors(namesrv: str, name: str) -> None:
    async def scenario() -> None:
        async with Admin([namesrv]) as admin:
            [line] = (await admin.cluster_list()).brokers
            made = await admin.update_subscription_group(
                name, cluster=line.cluster, retry_max_times=3
            )
            assert (made.addresses, made.config["retryMaxTimes"]) == ([line.address], 3)
            with pytest.raises(ClientError, match="is not known"):
                await admin.consumer_progress(f"{name}-x")
            with pytest.raises(ClientError, match="cluster nowhere"):
                await admin.update_topic(name, cluster="nowhere")
            with pytest.raises(ClientError, match="either"):
                await admin.update_topic(name)
            with pytest.raises(BrokerError, match="conflict with system topic"):
                await admin.update_topic("SCHEDULE_TOPIC_XXXX", broker=line.address)

    asyncio.run(scenario())
