"""Our Python client by gRPC, against a proxy or a broker.

A program of its own: ENDPOINTS SCENARIO...; topics and groups have the names `ours-SCENARIO` and
must exist.
"""

import asyncio
import sys
import time
import traceback
from collections.abc import Awaitable, Callable

from reporting import Report  # type: ignore[import-not-found]

from turbopump import ClientOptions, Message, Producer, ReceivedMessage, SimpleConsumer

COUNT = 40
INVISIBLE_MS = 30_000
DELAY_MS = 3_000
RUN_S = 120.0
OPTIONS = ClientOptions(timeout_ms=15_000)
"""Clients of six languages start at once on two cores: the first answer may take seconds."""


def message(topic: str, number: int, **more: object) -> Message:
    """Make the message with this number, which determines its tag and key."""
    made = Message(
        topic,
        str(number).encode(),
        tags=("red", "green", "blue")[number % 3],
        keys=[f"key-{number}"],
        properties={"number": str(number)},
    )
    for name, value in more.items():
        setattr(made, name, value)
    return made


def numbers(found: list[ReceivedMessage]) -> list[int]:
    return [int(one.body) for one in found]


async def receive(consumer: SimpleConsumer, count: int, keep: int = -1) -> list[ReceivedMessage]:
    """Receive `count` messages, and acknowledge each but the number `keep`; fewer if none comes for
    20 s."""
    found: list[ReceivedMessage] = []
    last = time.monotonic()
    while len(found) < count and time.monotonic() - last < 20:
        for one in await consumer.receive(16, invisible_ms=INVISIBLE_MS, wait_ms=5_000):
            last = time.monotonic()
            found.append(one)
            if int(one.body) != keep:
                await consumer.ack(one)
    return found


async def simple(report: Report, topic: str, producer: Producer, consumer: SimpleConsumer) -> None:
    """Acknowledged messages are not redelivered; the others are, after the changed time."""
    consumer.subscribe(topic)
    ids = {(await producer.send(message(topic, number))).message_id for number in range(COUNT)}
    came = await receive(consumer, COUNT, keep=5)
    report.equal("each once", list(range(COUNT)), sorted(numbers(came)))
    report.equal("by the ids that sends returned", ids, {one.message_id for one in came})
    one = next(one for one in came if int(one.body) == 5)
    report.equal("with its tag", "blue", one.tags)
    report.equal("with its key", ("key-5",), one.keys)
    report.equal("with its property", "5", one.properties.get("number"))
    changed = time.monotonic()
    await consumer.change_invisible(one, 10_000)
    again = await receive(consumer, 1)
    waited = time.monotonic() - changed
    report.equal("the unacknowledged message is redelivered", [5], numbers(again))
    report.check("after the changed time", 9.5 <= waited < 20, waited)


async def tags(report: Report, topic: str, producer: Producer, consumer: SimpleConsumer) -> None:
    """The consumer receives messages of two tags, and no others."""
    consumer.subscribe(topic, "red || blue")
    for number in range(COUNT):
        await producer.send(message(topic, number))
    wanted = [number for number in range(COUNT) if number % 3 != 1]
    came = await receive(consumer, len(wanted))
    came += await consumer.receive(16, invisible_ms=INVISIBLE_MS, wait_ms=5_000)
    report.equal("the messages that pass", wanted, sorted(numbers(came)))


async def fifo(report: Report, topic: str, producer: Producer, consumer: SimpleConsumer) -> None:
    """Messages of a message group arrive in order."""
    consumer.subscribe(topic)
    for number in range(COUNT):
        await producer.send(message(topic, number, sharding_key=f"group-{number % 2}"))
    came = numbers(await receive(consumer, COUNT))
    for parity in range(2):
        wanted = [number for number in range(COUNT) if number % 2 == parity]
        report.equal("in order", wanted, [number for number in came if number % 2 == parity])


async def delay(report: Report, topic: str, producer: Producer, consumer: SimpleConsumer) -> None:
    """Timers arrive at their time, and a recalled one does not."""
    consumer.subscribe(topic)
    sent = time.monotonic()
    recalled = await producer.send(message(topic, 99, delay_ms=15_000))
    for number in range(5):
        await producer.send(message(topic, number, delay_ms=DELAY_MS))
    report.equal("recalled", recalled.message_id, await producer.recall(recalled.recall_handle))
    came = await receive(consumer, 5)
    report.check("not before", time.monotonic() - sent >= DELAY_MS / 1_000 - 0.1, "")
    report.equal("each", [0, 1, 2, 3, 4], sorted(numbers(came)))
    while time.monotonic() - sent < 20:
        came += await consumer.receive(16, invisible_ms=INVISIBLE_MS, wait_ms=5_000)
    report.equal("no other", 5, len(came))


Scenario = Callable[[Report, str, Producer, SimpleConsumer], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {"simple": simple, "tags": tags, "fifo": fifo, "delay": delay}


async def run(endpoints: str, name: str) -> None:
    """Run one scenario with its own producer and consumer."""
    topic, report = f"ours-{name}", Report(name)
    try:
        async with (
            asyncio.timeout(RUN_S),
            Producer(endpoints=endpoints, client_options=OPTIONS) as producer,
            SimpleConsumer(topic, endpoints=endpoints, client_options=OPTIONS) as consumer,
        ):
            await SCENARIOS[name](report, topic, producer, consumer)
    except Exception:
        report.check("it does not fail", False, traceback.format_exc())
    report.done()


async def main() -> None:
    endpoints, *names = sys.argv[1:]
    await asyncio.gather(*(run(endpoints, name) for name in names))


if __name__ == "__main__":
    asyncio.run(main())
