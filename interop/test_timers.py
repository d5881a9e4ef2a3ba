"""Timers of each client, and timers of a broker in the store of the other: none is lost, early or
repeated, and recalled ones never arrive.

With `--target rocketmq` all brokers are RocketMQ 5.5.0. In the exchanges the Python client sends
and reads the timers; it is not under test there.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.support import groups, living, toolchain
from interop.support.controlled import Controlled
from interop.support.groups import Group, Kind, Ports, RocketMQ, wait_ready
from interop.support.living import LivingProducer
from interop.support.processes import Process
from interop.support.suites import java_client, parse
from interop.test_mixed_pairs import MASTER, SLAVE, pair, until
from interop.test_store_exchange import Move
from turbopump.net.client.consuming.pull_consumer import PullConsumer
from turbopump.net.client.errors import BrokerError, RouteNotFound
from turbopump.net.client.messages import Message, ReceivedMessage
from turbopump.net.client.producer import Producer
from turbopump.net.wire.queues import MessageQueue

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
TOPIC = "timer-exchange"
SOON_S, PENDING_S, ELECTED_S = 3, 15, 12
"""Seconds until the first timer is due; ELECTED_S if another master replaces the first."""
READ_TIMEOUT_S = 90.0
EARLY_MS, LATE_MS = 0, 30_000
"""Greatest lateness in seconds: the start of a Java broker on a busy machine."""
STEP_TIMEOUT_S = 120
POLL_S = 4
"""Seconds until a replica has its master's progress: replicas of both kinds ask every 3 s."""


@pytest.fixture(scope="module")
def timing(kind: Kind, built: None, work: Path) -> Iterator[Group]:
    """Start a broker that recalls timers, which both kinds disable by default."""
    folder = work / "timing"
    started = groups.start(
        kind, Ports.free(), folder, folder / "store", {"recallMessageEnable": "true"}
    )
    yield started
    started.stop()


@pytest.mark.parametrize("suite", ["java-5.5", "java-4.9", "go"])
def test_each_way_to_ask_for_a_time(timing: Group, work: Path, suite: str) -> None:
    """Each property, the winner of two, times past, too far ahead or malformed; a
    recall."""
    ports, prefix, folder = timing.ports, suite.replace(".", ""), work / f"timing-{suite}"
    if suite == "go":
        command = [str(toolchain.CACHE / "go-client"), ports.namesrv_address, ports.broker_address]
        process = Process(
            "client", [*command, prefix, "timers"], folder, environment={"HOME": str(folder)}
        )
    else:
        arguments = [ports.namesrv_address, prefix, "timers"]
        process = java_client(suite.replace("java", "client"), arguments, folder)
    process.wait(STEP_TIMEOUT_S)
    checks = parse(process.out.read_text(), ["timers"])["timers"]
    assert checks.ended and not checks.failed, "\n".join([*checks.failed, process.tail()])


async def send(namesrv: str, pending_s: int = PENDING_S) -> dict[bytes, int]:
    """Send timers that are due soon, and some that the next broker has to deliver; returns body ->
    due time."""
    due: dict[bytes, int] = {}
    async with Producer("PG", [namesrv]) as producer:
        await producer.send(Message(TOPIC, b"plain"))
        now_ms = time.time_ns() // 1_000_000
        for number in range(4):
            at_ms = now_ms + SOON_S * 1_000 + number * 137
            due[b"soon-%d" % number] = at_ms
            await producer.send(Message(TOPIC, b"soon-%d" % number, deliver_at_ms=at_ms))
        for number in range(6):
            at_ms = now_ms + pending_s * 1_000 + number * 731
            due[b"pending-%d" % number] = at_ms
            await producer.send(Message(TOPIC, b"pending-%d" % number, deliver_at_ms=at_ms))
        recalled = Message(TOPIC, b"recalled", deliver_at_ms=now_ms + pending_s * 1_000)
        result = await producer.send(recalled)
        assert result.recall_handle
        assert await producer.recall(result.recall_handle) == result.message_id
        far_ms = 4 * 24 * 3_600_000
        for refused in (
            Message(TOPIC, b"far", delay_ms=far_ms),
            Message(TOPIC, b"far", deliver_at_ms=2**63 - 1),
        ):
            with pytest.raises(BrokerError) as error:
                await producer.send(refused)
            assert error.value.code == 13
    return due


async def queues_of(consumer: PullConsumer, until_s: float) -> list[MessageQueue]:
    """Wait for the broker in the route: name servers know a broker some milliseconds after it
    listens, and an elected master some time after the controllers do."""
    while True:
        try:
            return await consumer.queues(TOPIC)
        except RouteNotFound:
            assert time.monotonic() < until_s, "no name server knows the topic"
            await asyncio.sleep(0.1)


async def receive(namesrv: str, wanted: set[bytes]) -> list[ReceivedMessage]:
    """Return all messages of the topic, once the wanted ones have arrived."""
    found: list[ReceivedMessage] = []
    until_s = time.monotonic() + READ_TIMEOUT_S
    async with PullConsumer("CG", [namesrv]) as consumer:
        queues = await queues_of(consumer, until_s)
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_begin(queue)
        while not wanted <= {message.body for message in found}:
            assert time.monotonic() < until_s, f"missing {wanted - {m.body for m in found}}"
            found += await consumer.poll(500)
    return found


def check(found: list[ReceivedMessage], due: dict[bytes, int]) -> None:
    """Check that no timer is early or missing, and that none was recalled."""
    assert b"recalled" not in {message.body for message in found}
    for body, due_ms in due.items():
        first_ms = min(one.store_timestamp_ms for one in found if one.body == body)
        assert EARLY_MS <= first_ms - due_ms <= LATE_MS, (body, first_ms - due_ms)


@pytest.mark.parametrize("ending", ["stopped", "killed"])
@pytest.mark.parametrize("direction", ["to-java", "from-java"])
def test_pending_timers_of_a_store_are_delivered_by_the_other_broker(
    kind: Kind, built: None, work: Path, direction: str, ending: str
) -> None:
    java = RocketMQ()
    writer, reader = (kind, java) if direction == "to-java" else (java, kind)
    end = Group.stop if ending == "stopped" else Group.kill
    move = Move(work / f"timers-{direction}-{ending}")
    with move.opened(writer, end):
        due = asyncio.run(send(move.ports.namesrv_address))
        early = {body for body in due if body.startswith(b"soon")}
        asyncio.run(receive(move.ports.namesrv_address, early))
        time.sleep(2.5)  # a broker flushes to the disk each second
    with move.opened(reader, Group.kill):
        found = asyncio.run(receive(move.ports.namesrv_address, set(due)))
    check(found, due)
    assert len(found) == len({message.body for message in found}), "repeated"


@pytest.mark.parametrize("first", [0], ids=["java-leads"])
def test_a_replica_of_the_other_kind_delivers_when_it_leads(
    kind: Kind, built: None, work: Path, first: int
) -> None:
    """The master is killed with waiting timers; its replica, which had copied them and their
    progress, starts as the master: each timer arrives at least once, none early, and no recalled
    one."""
    with pair([RocketMQ(), kind], work / f"timers-pair-{first}") as mixed:
        master, replica = mixed.brokers[first], mixed.brokers[1 - first]
        recalls = {"recallMessageEnable": "true"}
        master.start({**MASTER, **recalls})
        replica.start({**SLAVE, **recalls})
        until("the replica follows", lambda: master.in_sync == 1, master, replica)
        due = asyncio.run(send(mixed.namesrv_address))
        early = {body for body in due if body.startswith(b"soon")}
        asyncio.run(receive(mixed.namesrv_address, early))
        time.sleep(POLL_S)
        mixed.same_log()
        master.kill()
        replica.kill()
        replica.start({"brokerRole": "ASYNC_MASTER", "brokerId": "0"})
        found = asyncio.run(receive(mixed.namesrv_address, set(due)))
    check(found, due)
    again = [one.body for one in found if one.body.startswith(b"pending")]
    assert len(again) == len(set(again)), again


async def make_topic(namesrv: str) -> None:
    """The timers come after the topic, because the replica has to know their topic to deliver
    them."""
    async with Producer("PG", [namesrv]) as producer:
        await producer.send(Message(TOPIC, b"first"))


def test_a_java_replica_that_is_elected_goes_on_with_timers_and_transactions(
    kind: Kind, built: None, work: Path
) -> None:
    """Our master is killed with waiting timers and open transactions. Its Java replica delivers
    each timer at least once, none early, and checks the transactions with the producers, which live
    on."""
    settings = {**living.SETTINGS, "recallMessageEnable": "true"}
    folder = work / "timers-elected"
    group = Controlled(folder, kind, [kind], [kind, RocketMQ()], settings)
    try:
        master, replica = group.brokers
        group.start_rulers()
        master.start()
        group.until("a first master", lambda: group.master is master)
        wait_ready(group.as_group)
        producer = LivingProducer(group.namesrv_address, folder / "client", living.times(kind))
        try:
            asyncio.run(make_topic(group.namesrv_address))
            producer.wait_stored()
            replica.start()  # the replica copies tables immediately, and then not for 10 s
            group.wait_whole()
            living.wait_known(group, replica.port, (TOPIC, living.TOPIC))
            due = asyncio.run(send(group.namesrv_address, ELECTED_S))
            early = {body for body in due if body.startswith(b"soon")}
            asyncio.run(receive(group.namesrv_address, early))
            master.kill()
            assert time.time_ns() // 1_000_000 < min(due[body] for body in due.keys() - early)
            producer.broker_is_dead()
            group.until("the replica is elected", lambda: group.master is replica)
            producer.broker_is_back()
            found = asyncio.run(receive(group.namesrv_address, set(due)))
            producer.judge()
        finally:
            producer.process.kill()
    finally:
        group.abandon()
    check(found, due)
