"""Our clients, commands, proxy and Spark sink against RocketMQ 5.5.0 with ACL 2.0.

A broker and a proxy of RocketMQ with authentication and authorization, whatever `--target` is. A
user with rights to one topic sends and receives in each way; wrong, unknown and missing credentials
are refused by RocketMQ, which shows that the accepted requests were checked.
"""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from interop.support import groups, proxies
from interop.support.groups import CLUSTER, Group, Ports
from interop.support.processes import Process
from turbopump import (
    Admin,
    BrokerError,
    ClientOptions,
    ConsumeFrom,
    Consumer,
    ConsumerOptions,
    Credentials,
    Message,
    PopConsumer,
    Producer,
    PullConsumer,
    ReceivedMessage,
    SendStatus,
    SharedClient,
    SimpleConsumer,
    TransactionEnd,
    TransactionProducer,
)
from turbopump.net.client.shared_client import instance_of
from turbopump.spark.sink.sending import Target, send_rows

pytestmark = [pytest.mark.interop, pytest.mark.timeout(540)]
NO_PERMISSION, UNAUTHORIZED = 16, 40_100
CREATE_USER, CREATE_ACL = 3001, 3006
TOPIC = "signed"
"""The only topic that the users other than root and inner may use."""
ROOT, INNER = Credentials("root", "r00t s3cret"), Credentials("inner", "1nner-secret")
ALICE = Credentials("alice", "al1ce's secret")
UMLAUT = Credentials("\u00fcn\u00ef c\u00f6de", "\u00dcml\u00e4ut")
TOKEN = Credentials(ALICE.access_key, ALICE.secret_key, "t0ken")
WRONG = {
    "wrong secret": Credentials("alice", "another"),
    "another user's secret": Credentials("alice", ROOT.secret_key),
    "unknown user": Credentials("mallory", "s3cret"),
    "missing": None,
}
PROVIDER = "org.apache.rocketmq.{0}.provider.Local{1}MetadataProvider"
SETTINGS = {
    "authenticationEnabled": "true",
    "authenticationMetadataProvider": PROVIDER.format("auth.authentication", "Authentication"),
    "authorizationEnabled": "true",
    "authorizationMetadataProvider": PROVIDER.format("auth.authorization", "Authorization"),
    "initAuthenticationUser": json.dumps(
        {"username": ROOT.access_key, "password": ROOT.secret_key}
    ),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": INNER.access_key, "secretKey": INNER.secret_key}
    ),
    "transactionTimeOut": "3000",
    "transactionCheckInterval": "2000",
}
PROXY_PROVIDER = "org.apache.rocketmq.proxy.auth.Proxy{0}MetadataProvider"
PROXY_SETTINGS = {
    "authenticationEnabled": True,
    "authenticationMetadataProvider": PROXY_PROVIDER.format("Authentication"),
    "authorizationEnabled": True,
    "authorizationMetadataProvider": PROXY_PROVIDER.format("Authorization"),
    "innerClientAuthenticationCredentials": SETTINGS["innerClientAuthenticationCredentials"],
    "enableAclRpcHookForClusterMode": True,
}
OURS = {"innerClientAuthenticationCredentials": SETTINGS["innerClientAuthenticationCredentials"]}


@dataclass(frozen=True)
class Cluster:
    """Addresses of a name server, its broker, RocketMQ's proxy and ours."""

    namesrv: str
    broker: str
    proxy: str
    own_proxy: str


def options(credentials: Credentials | None) -> ClientOptions:
    """Options of a client of this user."""
    return ClientOptions(credentials=credentials, timeout_ms=15_000)


@pytest.fixture(scope="module")
def cluster(built: None, work: Path) -> Iterator[Cluster]:
    """RocketMQ with its users, and both proxies."""
    folder = work / "acl"
    group = groups.start(groups.RocketMQ(), Ports.free(), folder, folder / "store", SETTINGS)
    started: list[Process] = []
    try:
        asyncio.run(_make_users(group))
        theirs, address = proxies.start(group, folder / "proxy", PROXY_SETTINGS)
        started.append(theirs)
        ours, own_address = proxies.start_ours(group, folder / "own-proxy", OURS)
        started.append(ours)
        ports = group.ports
        yield Cluster(ports.namesrv_address, ports.broker_address, address, own_address)
        assert all(one.running for one in [*group.members, *started])
    finally:
        for process in started:
            process.stop()
        group.stop()


async def _make_users(group: Group) -> None:
    """Make the topic and the users, as the Super user that the broker's file names."""
    client = SharedClient(group.ports.namesrv_address, options(ROOT))
    instance, broker = instance_of(client), group.ports.broker_address
    async with Admin(group.ports.namesrv_address, client_options=options(ROOT)) as admin:
        await admin.update_topic(TOPIC, cluster=CLUSTER, read_queues=2, write_queues=2)
    await instance.acquire()
    try:
        for user in (ALICE, UMLAUT):
            name = user.access_key
            made = {
                "username": name,
                "password": user.secret_key,
                "userType": "Normal",
                "userStatus": "enable",
            }
            body = json.dumps(made).encode()
            await instance.ask(broker, CREATE_USER, body=body, fields={"username": name})
            entries = [
                {"resource": resource, "actions": ["Pub", "Sub", "Get"], "decision": "Allow"}
                for resource in (f"Topic:{TOPIC}", "Group:*", "Topic:TBW102")
            ]
            acl = {"subject": f"User:{name}", "policies": [{"entries": entries}]}
            body = json.dumps(acl).encode()
            await instance.ask(broker, CREATE_ACL, body=body, fields={"subject": f"User:{name}"})
    finally:
        await instance.release()


def run(story: Coroutine[Any, Any, None]) -> None:
    """Run a story of at most two minutes."""

    async def bounded() -> None:
        async with asyncio.timeout(120):
            await story

    asyncio.run(bounded())


async def refused(code: int, work: Coroutine[Any, Any, Any]) -> None:
    """Assert that a server refuses with this code."""
    with pytest.raises(BrokerError) as caught:
        await work
    assert caught.value.code == code, caught.value


@asynccontextmanager
async def client_of(cluster: Cluster, user: Credentials | None) -> AsyncIterator[SharedClient]:
    """A client of a user that stays open."""
    client = SharedClient(cluster.namesrv, options(user))
    await instance_of(client).acquire()
    try:
        yield client
    finally:
        await instance_of(client).release()


@pytest.mark.parametrize("user", [ALICE, UMLAUT, TOKEN], ids=["alice", "umlaut", "token"])
def test_sends_and_pulls(cluster: Cluster, user: Credentials) -> None:
    async def story() -> None:
        async with client_of(cluster, user) as client, Producer("pg", client=client) as producer:
            one = await producer.send(Message(TOPIC, "ein Wört".encode(), keys=["k"]))
            two = await producer.send_batch([Message(TOPIC, b"2"), Message(TOPIC, b"3")])
            large = await producer.send(Message(TOPIC, bytes(100_000)))
            assert {one.status, two.status, large.status} == {SendStatus.SEND_OK}
            oneway = await producer.send_oneway(Message(TOPIC, b"4"))
            async with PullConsumer("pull", client=client) as consumer:
                queues = await consumer.queues(TOPIC)
                await consumer.assign(queues)
                for queue in queues:
                    await consumer.seek_to_begin(queue)
                found: list[ReceivedMessage] = []
                while oneway not in {message.message_id for message in found}:
                    found += await consumer.poll(timeout_ms=5_000)
                await consumer.commit()
                assert await consumer.committed(queues[0]) is not None
                sent = {one.message_id, large.message_id, *two.message_id.split(",")}
                assert {message.message_id for message in found} >= sent

    run(story())


@pytest.mark.parametrize("ordered", [False, True])
def test_push_consumers(cluster: Cluster, ordered: bool) -> None:
    async def story() -> None:
        group = f"push-{ordered}"
        first = ConsumerOptions(consume_from=ConsumeFrom.FIRST, ordered=ordered, auto_ack=False)
        async with client_of(cluster, ALICE) as client, Producer("pg", client=client) as producer:
            sent = {(await producer.send(Message(TOPIC, b"%d" % n))).message_id for n in range(8)}
            consumer = Consumer(group, client=client, options=first)
            consumer.subscribe(TOPIC)
            async with consumer:
                acked: set[str] = set()
                returned = ordered
                while not acked >= sent:
                    message = await consumer.receive()
                    assert message is not None
                    if message.message_id in sent and not returned:
                        returned = await consumer.retry(message, 1)
                        assert returned
                    else:
                        await consumer.ack(message)
                        acked.add(message.message_id)
        async with Admin(cluster.namesrv, client_options=options(ROOT)) as admin:
            progress = await admin.consumer_progress(group)
        assert progress

    run(story())


def test_pops(cluster: Cluster) -> None:
    async def story() -> None:
        arrived: set[str] = set()
        async with client_of(cluster, ALICE) as client, Producer("pg", client=client) as producer:
            sent = {(await producer.send(Message(TOPIC, b"%d" % n))).message_id for n in range(8)}
            async with SimpleConsumer("pop", client=client, from_first=True) as consumer:
                consumer.subscribe(TOPIC)
                while not arrived >= sent:
                    for message in await consumer.receive(16, wait_ms=5_000):
                        await consumer.change_invisible(message, 60_000)
                        await consumer.ack(message)
                        arrived.add(message.message_id)
            pushed: set[str] = set()
            pops = PopConsumer("pops", client=client, from_first=True)
            pops.subscribe(TOPIC)

            @pops.on_message
            async def handle(message: ReceivedMessage) -> None:
                pushed.add(message.message_id)

            async with pops:
                while not pushed >= sent:
                    await asyncio.sleep(0.1)

    run(story())


def test_transactions_also_after_a_check(cluster: Cluster) -> None:
    async def story() -> None:
        asked: list[str] = []

        async def check(message: ReceivedMessage) -> TransactionEnd:
            asked.append(message.text)
            return TransactionEnd.COMMIT

        def ending(end: TransactionEnd) -> Callable[[Message, str], Coroutine[Any, Any, Any]]:
            async def execute(_message: Message, _message_id: str) -> TransactionEnd:
                return end

            return execute

        async with client_of(cluster, ALICE) as client:
            producer = TransactionProducer("tg", check=check, client=client)
            reader = SimpleConsumer("treader", client=client)
            reader.subscribe(TOPIC)
            async with producer, reader:
                await reader.receive(1, wait_ms=1_000)
                done = await producer.send_in_transaction(
                    Message(TOPIC, b"at once"), ending(TransactionEnd.COMMIT)
                )
                assert done.is_told
                await producer.send_in_transaction(
                    Message(TOPIC, b"by a check"), ending(TransactionEnd.UNKNOWN)
                )
                texts: list[str] = []
                while not {"at once", "by a check"} <= set(texts):
                    for message in await reader.receive(16, wait_ms=5_000):
                        texts.append(message.text)
                        await reader.ack(message)
        assert "by a check" in asked

    run(story())


@pytest.mark.parametrize("case", WRONG)
def test_wrong_credentials_by_remoting(cluster: Cluster, case: str) -> None:
    async def story() -> None:
        async with client_of(cluster, WRONG[case]) as client:
            async with Producer("pg", client=client) as producer:
                await refused(NO_PERMISSION, producer.send(Message(TOPIC, b"x")))
                batch = [Message(TOPIC, b"x"), Message(TOPIC, b"y")]
                await refused(NO_PERMISSION, producer.send_batch(batch))
            async with SimpleConsumer("wrong", client=client) as simple:
                simple.subscribe(TOPIC)
                await refused(NO_PERMISSION, simple.receive(1, wait_ms=1_000))
        async with Admin(cluster.namesrv, client_options=options(WRONG[case])) as admin:
            await refused(NO_PERMISSION, admin.broker_config(broker=cluster.broker))
            await refused(
                NO_PERMISSION,
                admin.update_topic("other", broker=cluster.broker, read_queues=1, write_queues=1),
            )

    run(story())


def test_a_user_without_the_right_is_known_and_refused(cluster: Cluster) -> None:
    async def story() -> None:
        async with Admin(cluster.namesrv, client_options=options(ROOT)) as admin:
            await admin.update_topic("foreign", cluster=CLUSTER, read_queues=1, write_queues=1)
        async with client_of(cluster, ALICE) as client, Producer("pg", client=client) as producer:
            with pytest.raises(BrokerError, match="User:alice has no permission"):
                await producer.send(Message("foreign", b"x"))

    run(story())


async def go_round(endpoints: str, group: str, user: Credentials | None) -> None:
    """Send messages by gRPC and receive them."""
    async with (
        Producer(endpoints=endpoints, client_options=options(user)) as producer,
        SimpleConsumer(group, endpoints=endpoints, client_options=options(user)) as consumer,
    ):
        consumer.subscribe(TOPIC)
        sent = {(await producer.send(Message(TOPIC, b"%d" % n))).message_id for n in range(8)}
        found: set[str] = set()
        while not found >= sent:
            for message in await consumer.receive(16, wait_ms=5_000):
                await consumer.change_invisible(message, 30_000)
                await consumer.ack(message)
                found.add(message.message_id)


@pytest.mark.parametrize("user", [ALICE, TOKEN], ids=["alice", "token"])
def test_grpc_through_rocketmqs_proxy(cluster: Cluster, user: Credentials) -> None:
    run(go_round(cluster.proxy, f"grpc{len(user.security_token)}", user))


async def _start_and_send(endpoints: str, user: ClientOptions) -> None:
    async with Producer(endpoints=endpoints, client_options=user) as producer:
        await producer.send(Message(TOPIC, b"x"))


@pytest.mark.parametrize("case", WRONG)
def test_wrong_credentials_by_grpc(cluster: Cluster, case: str) -> None:
    user = options(WRONG[case])

    async def story() -> None:
        await refused(UNAUTHORIZED, _start_and_send(cluster.proxy, user))
        consumer = SimpleConsumer("wrong", endpoints=cluster.proxy, client_options=user)
        consumer.subscribe(TOPIC)
        await refused(UNAUTHORIZED, consumer.start())

    run(story())


def test_our_proxy_signs_for_clients_without_credentials(cluster: Cluster) -> None:
    run(go_round(cluster.own_proxy, "own-proxy", None))


def command(cluster: Cluster, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `turbopump` with these words, without a terminal."""
    return subprocess.run(
        [groups.TURBOPUMP, *words, "-n", cluster.namesrv],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": "", "HOME": "/", **environment},
        start_new_session=True,
    )


def test_commands(cluster: Cluster, tmp_path: Path) -> None:
    tools = tmp_path / "tools.yml"
    tools.write_text(f"accessKey: {ROOT.access_key}\nsecretKey: {ROOT.secret_key}\n")
    tools.chmod(0o600)
    status = ["admin", "brokerStatus", "-b", cluster.broker]
    by_file = command(cluster, *status, "--credentials", str(tools))
    assert by_file.returncode == 0 and by_file.stderr == "", by_file
    by_variable = command(
        cluster, *status, "--access-key", "root", TURBOPUMP_SECRET_KEY=ROOT.secret_key
    )
    assert by_variable.returncode == 0, by_variable
    sent = command(
        cluster,
        *("send", "-t", TOPIC, "-p", "x", "--access-key", "alice"),
        *("--secret-key", ALICE.secret_key),
    )
    assert sent.returncode == 0 and sent.stdout.startswith("SEND_OK"), sent
    assert "(ps)" in sent.stderr and ALICE.secret_key not in sent.stderr
    wrong = command(cluster, *status, "--access-key", "root", TURBOPUMP_SECRET_KEY="another")
    assert wrong.returncode == 1 and "16: check signature failed." in wrong.stderr, wrong
    missing = command(cluster, *status)
    assert missing.returncode == 1 and "16: username cannot be null." in missing.stderr, missing


def test_the_spark_sink(cluster: Cluster) -> None:
    rows = pa.RecordBatch.from_pylist([{"body": b"row"}])
    target = Target(cluster.namesrv, TOPIC, "spark", False, 30_000, 4, ALICE)
    assert send_rows(target, [rows]) == 1
    unsigned = Target(cluster.namesrv, TOPIC, "spark", False, 3_000, 4)
    with pytest.raises(BrokerError, match="16: username cannot be null"):
        send_rows(unsigned, [rows])
