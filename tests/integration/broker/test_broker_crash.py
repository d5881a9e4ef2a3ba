"""kill -9 in a storm of sends under SYNC_FLUSH: each acknowledged message is stored, and
only once.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from turbopump.net.transport.errors import RemotingError

pytestmark = pytest.mark.integration

QUEUES = 4
SENDERS = 8
STORM_S = 0.8
ROUNDS = 3


async def storm(address: str, broker: Any, connect: Any, round_number: int) -> dict[Any, bytes]:
    """Send on several connections until the broker is killed; return the acknowledged messages."""
    acknowledged: dict[Any, bytes] = {}

    async def send(number: int) -> None:
        caller = connect(address)
        count = 0
        with contextlib.suppress(RemotingError):
            while True:
                body = f"{round_number}-{number}-{count}".encode() + b"." * (count % 500)
                key = f"k{round_number}x{number}x{count}"
                response = await caller.send(body, queue_id=number % QUEUES, KEYS=key)
                if response.code != 0:
                    break
                place = (number % QUEUES, int(response.fields["queueOffset"]))
                assert place not in acknowledged
                acknowledged[place] = body
                count += 1
        await caller.close()

    senders = [asyncio.create_task(send(number)) for number in range(SENDERS)]
    await asyncio.sleep(STORM_S)
    broker.kill()
    await asyncio.gather(*senders)
    return acknowledged


async def check(address: str, connect: Any, acknowledged: dict[Any, bytes]) -> int:
    """Every acknowledged message at its place, queues without a hole, keys that find them."""
    caller = connect(address)
    total = 0
    for queue_id in range(QUEUES):
        messages = await caller.read(queue_id=queue_id)
        assert [one.queue_offset for one in messages] == list(range(len(messages)))
        bodies = [one.body for one in messages]
        assert len(set(bodies)) == len(bodies)
        for (queue, offset), body in acknowledged.items():
            if queue == queue_id:
                assert bodies[offset] == body
        for message in messages[:: max(1, len(messages) // 20)]:
            fields = {"topic": "T", "key": message.properties["KEYS"], "maxNum": "8"}
            times = {"beginTimestamp": "0", "endTimestamp": str(2**62)}
            response = await caller.ask(12, **fields, **times)
            assert response.code == 0
            assert message.body in response.body
        total += len(messages)
    await caller.close()
    return total


def test_acknowledged_messages_survive_kills(
    make_process: Callable[[str], Any], connect: Any
) -> None:
    async def run() -> None:
        broker = make_process("flushDiskType=SYNC_FLUSH\n")
        acknowledged: dict[Any, bytes] = {}
        address = broker.start()
        for round_number in range(ROUNDS):
            fresh = await storm(address, broker, connect, round_number)
            assert len(fresh) > 50
            assert not fresh.keys() & acknowledged.keys()
            acknowledged |= fresh
            address = broker.start()
            assert await check(address, connect, acknowledged) >= len(acknowledged)
        broker.stop()
        address = broker.start()
        assert await check(address, connect, acknowledged) >= len(acknowledged)

    uvloop.run(run())


def test_delayed_messages_survive_a_kill(make_process: Callable[[str], Any], connect: Any) -> None:
    async def run() -> None:
        broker = make_process("flushDiskType=SYNC_FLUSH\nmessageDelayLevel=1s 2s\n")
        caller = connect(broker.start())
        for number in range(20):
            assert (await caller.send(b"%d" % number, DELAY="1")).code == 0
        await caller.close()
        broker.kill()
        caller = connect(broker.start())
        found: list[bytes] = []
        while len(set(found)) < 20:
            await caller.pull(len(found), wait_ms=5_000)
            found = [one.body for one in await caller.read()]
        assert set(found) == {b"%d" % number for number in range(20)}
        await caller.close()
        broker.stop()

    uvloop.run(run())
