"""Every request of our remoting clients is signed when they have credentials, else none is changed.

The requests are read where they are written to a connection, below all the ways to send them.
"""

import asyncio
from collections.abc import Iterator

import pytest

from turbopump.net.client.admin.client import Admin
from turbopump.net.client.consuming.consumer import Consumer
from turbopump.net.client.consuming.pull_consumer import PullConsumer
from turbopump.net.client.consuming.simple_consumer import SimpleConsumer
from turbopump.net.client.credentials import Credentials
from turbopump.net.client.messages import Message, ReceivedMessage
from turbopump.net.client.options import ClientOptions, ConsumeFrom, ConsumerOptions
from turbopump.net.client.producer import Producer
from turbopump.net.client.shared_client import SharedClient
from turbopump.net.client.transactions import TransactionEnd, TransactionProducer
from turbopump.net.transport.connection import Connection
from turbopump.net.transport.options import RemotingOptions
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.signature import ACCESS_KEY, SIGNATURE, is_signed
from turbopump.testing import running_cluster

pytestmark = pytest.mark.integration

ALICE = Credentials("alice", "s3cret", "t0ken")
MINE_MS = 4_321
"""Timeout of connects, which distinguishes these clients from the clients inside of nodes."""
SOON = {
    "transactionTimeOut": "500",
    "transactionCheckInterval": "500",
    "messageDelayLevel": "1s 1s 1s 1s",
    "recallMessageEnable": "true",
}
WANTED = {
    RequestCode.ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.CHECK_CLIENT_CONFIG,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
    RequestCode.END_TRANSACTION,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_NAMESRV_CONFIG,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.HEART_BEAT,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.POP_MESSAGE,
    RequestCode.PULL_MESSAGE,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_CONSUMER_OFFSET,
}
"""Codes of requests that the stories must have sent."""


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    """Name server of a cluster whose broker checks half messages soon."""
    with running_cluster(broker_properties=SOON) as cluster:
        yield cluster.namesrv


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Command]:
    """Requests that the clients write during the test, without the requests of the nodes."""
    found: list[Command] = []
    send = Connection.send

    def record(connection: Connection, command: Command) -> None:
        options = connection._hub.options
        if isinstance(options, RemotingOptions) and options.connect_timeout_ms == MINE_MS:
            found.append(command)
        send(connection, command)

    monkeypatch.setattr(Connection, "send", record)
    return found


async def use_all(namesrv: str, credentials: Credentials | None) -> None:
    """Use each kind of client."""
    mine = ClientOptions(connect_timeout_ms=MINE_MS, heartbeat_ms=500, credentials=credentials)
    client = SharedClient(namesrv, mine)
    async with Admin(namesrv, client_options=mine) as admin:
        await administer(admin)
        async with Producer("pg", client=client) as producer:
            await send(producer)
            await end_transactions(client)
            await consume(client, ordered=False)
            await consume(client, ordered=True)
            await pop(client)
            await pull(client)
        await admin.delete_topic("T", cluster="DefaultCluster")


async def administer(admin: Admin) -> None:
    """Create a topic, and ask each kind of node."""
    await admin.update_topic("T", cluster="DefaultCluster", read_queues=1, write_queues=1)
    [broker] = (await admin.cluster_list()).brokers
    await admin.broker_config(broker=broker.address)
    await admin.namesrv_config()


async def send(producer: Producer) -> None:
    """Send a message, a batch, and a message without an answer."""
    await producer.send(Message("T", b"one"))
    await producer.send_batch([Message("T", b"two"), Message("T", b"three")])
    await producer.send_oneway(Message("T", b"four"))


async def end_transactions(client: SharedClient) -> None:
    """End a transaction at once, and another by the answer to the broker's check."""
    asked = asyncio.Event()

    async def check(_message: ReceivedMessage) -> TransactionEnd:
        asked.set()
        return TransactionEnd.COMMIT

    async def commit(_message: Message, _message_id: str) -> TransactionEnd:
        return TransactionEnd.COMMIT

    async def wait(_message: Message, _message_id: str) -> TransactionEnd:
        return TransactionEnd.UNKNOWN

    async with (
        asyncio.timeout(30),
        TransactionProducer("tg", check=check, client=client) as producer,
    ):
        await producer.send_in_transaction(Message("T", b"five"), commit)
        await producer.send_in_transaction(Message("T", b"six"), wait)
        await asked.wait()


async def consume(client: SharedClient, *, ordered: bool) -> None:
    """Receive six messages; send the first back unless they are ordered."""
    group = "ordered" if ordered else "cg"
    options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, ordered=ordered, auto_ack=False)
    consumer = Consumer(group, client=client, options=options)
    consumer.subscribe("T", sql="TAGS IS NULL OR TAGS = 'x'")
    async with asyncio.timeout(30), consumer:
        for number in range(6):
            message = await consumer.receive()
            assert message is not None
            if number or ordered:
                await consumer.ack(message)
            else:
                await consumer.retry(message)


async def pop(client: SharedClient) -> None:
    """Pop a message, change the time for which it is hidden, and acknowledge it."""
    async with (
        asyncio.timeout(30),
        SimpleConsumer("sg", client=client, from_first=True) as consumer,
    ):
        consumer.subscribe("T")
        [message, *_] = await consumer.receive(4)
        await consumer.change_invisible(message, 20_000)
        await consumer.ack(message)


async def pull(client: SharedClient) -> None:
    """Pull messages of assigned queues, and commit."""
    async with asyncio.timeout(30), PullConsumer("lg", client=client) as consumer:
        queues = await consumer.queues("T")
        await consumer.assign(queues)
        await consumer.seek_to_begin(queues[0])
        assert await consumer.poll(timeout_ms=5_000)
        await consumer.commit()


def test_every_request_is_signed(namesrv: str, written: list[Command]) -> None:
    asyncio.run(use_all(namesrv, ALICE))
    requests = [one for one in written if not one.is_response]
    assert {int(one.code) for one in requests} >= WANTED
    assert {one.is_oneway for one in requests} == {True, False}
    checked = [one for one in requests if one.fields.get("fromTransactionCheck") == "true"]
    assert len(checked) == 1 and checked[0].is_oneway
    unsigned = [one for one in requests if not is_signed(one, "s3cret")]
    assert not unsigned, unsigned
    assert {one.fields[ACCESS_KEY] for one in requests} == {"alice"}
    assert {one.fields["SecurityToken"] for one in requests} == {"t0ken"}


def test_without_credentials_nothing_is_added(namesrv: str, written: list[Command]) -> None:
    asyncio.run(use_all(namesrv, None))
    assert {int(one.code) for one in written} >= WANTED
    added = {ACCESS_KEY, SIGNATURE, "SecurityToken"}
    assert not [one for one in written if added & set(one.fields)]
