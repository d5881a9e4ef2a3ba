"""Timers of one broker in the store of the other: none is lost, none is early; and recalls.

With `--target rocketmq` both are RocketMQ 5.5.0. Sent and read by the Python client,
which is not what is tested here: `test_clients.py` has the others.
"""

import asyncio
import time
from pathlib import Path

import pytest

from interop.support.groups import Group, Kind, RocketMQ
from interop.test_store_exchange import Move
from turbopump.net.client.consuming.pull_consumer import PullConsumer
from turbopump.net.client.errors import BrokerError
from turbopump.net.client.messages import Message, ReceivedMessage
from turbopump.net.client.producer import Producer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
TOPIC = "timer-exchange"
SOON_S, PENDING_S = 3, 15
READ_TIMEOUT_S = 90.0
EARLY_MS, LATE_MS = 0, 15_000


async def send(namesrv: str) -> dict[bytes, int]:
    """Timers that are due soon, and some that the next broker has to deliver: body to due time."""
    due: dict[bytes, int] = {}
    async with Producer("PG", [namesrv]) as producer:
        await producer.send(Message(TOPIC, b"plain"))
        now_ms = time.time_ns() // 1_000_000
        for number in range(4):
            at_ms = now_ms + SOON_S * 1_000 + number * 137
            due[b"soon-%d" % number] = at_ms
            await producer.send(Message(TOPIC, b"soon-%d" % number, deliver_at_ms=at_ms))
        for number in range(6):
            at_ms = now_ms + PENDING_S * 1_000 + number * 731
            due[b"pending-%d" % number] = at_ms
            await producer.send(Message(TOPIC, b"pending-%d" % number, deliver_at_ms=at_ms))
        recalled = Message(TOPIC, b"recalled", deliver_at_ms=now_ms + PENDING_S * 1_000)
        result = await producer.send(recalled)
        assert result.recall_handle
        assert await producer.recall(TOPIC, result.recall_handle) == result.message_id
        far_ms = 4 * 24 * 3_600_000
        for refused in (
            Message(TOPIC, b"far", delay_ms=far_ms),
            Message(TOPIC, b"far", deliver_at_ms=2**63 - 1),
        ):
            with pytest.raises(BrokerError) as error:
                await producer.send(refused)
            assert error.value.code == 13
    return due


async def receive(namesrv: str, wanted: set[bytes]) -> list[ReceivedMessage]:
    """All messages of the topic, once those that are wanted are there."""
    found: list[ReceivedMessage] = []
    until_s = time.monotonic() + READ_TIMEOUT_S
    async with PullConsumer("CG", [namesrv]) as consumer:
        queues = await consumer.queues(TOPIC)
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_begin(queue)
        while not wanted <= {message.body for message in found}:
            assert time.monotonic() < until_s, f"missing {wanted - {m.body for m in found}}"
            found += await consumer.poll(500)
    return found


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
        soon = {body for body in due if body.startswith(b"soon")}
        asyncio.run(receive(move.ports.namesrv_address, soon))
        time.sleep(2.5)  # what a broker flushes each second is on the disk
    with move.opened(reader, Group.kill):
        found = asyncio.run(receive(move.ports.namesrv_address, set(due)))
    bodies = [message.body for message in found]
    assert b"recalled" not in bodies
    repeated = {body for body in bodies if bodies.count(body) > 1}
    assert not repeated, repeated
    for body, due_ms in due.items():
        first_ms = min(one.store_timestamp_ms for one in found if one.body == body)
        assert EARLY_MS <= first_ms - due_ms <= LATE_MS, (body, first_ms - due_ms)
