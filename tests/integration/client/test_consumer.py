"""The push consumer against a running broker: delivered messages, their times, and their
receivers.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from turbopump.net.client.admin.client import Admin
from turbopump.net.client.consuming.consumer import Consumer
from turbopump.net.client.errors import ClientError
from turbopump.net.client.messages import Message, ReceivedMessage
from turbopump.net.client.options import ConsumeFrom, ConsumerOptions, MessageModel, Outcome
from turbopump.net.client.producer import Producer
from turbopump.net.client.shared_client import SharedClient

pytestmark = pytest.mark.integration

Until = Callable[..., Awaitable[None]]

FIRST = ConsumerOptions(consume_from=ConsumeFrom.FIRST)


async def send(namesrv: str, topic: str, *bodies: str, tags: str = "", key: str = "") -> None:
    async with Producer("pg", [namesrv]) as producer:
        for body in bodies:
            await producer.send(Message(topic, body.encode(), tags=tags, sharding_key=key))


class Receiver:
    """A consumer with a handler that notes the messages."""

    def __init__(
        self,
        namesrv: str,
        group: str,
        topic: str,
        *,
        expression: str = "*",
        options: ConsumerOptions = FIRST,
        folder: Path | None = None,
        client: SharedClient | None = None,
    ) -> None:
        self.messages: list[ReceivedMessage] = []
        self.consumer = Consumer(
            group, [namesrv], options=options, offsets_folder=folder, client=client
        )
        self.consumer.subscribe(topic, expression)
        self.consumer.on_message(self.handle)

    async def handle(self, message: ReceivedMessage) -> Outcome | None:
        self.messages.append(message)
        return None

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]

    async def __aenter__(self) -> "Receiver":
        await self.consumer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.consumer.close()


def test_tags_choose_messages(namesrv: str, topic: str, name: str, until: Until) -> None:
    async def scenario() -> None:
        async with Receiver(namesrv, name, topic, expression="A || C") as receiver:
            await send(namesrv, topic, "a", tags="A")
            await send(namesrv, topic, "b", tags="B")
            await send(namesrv, topic, "none")
            await send(namesrv, topic, "c", tags="C")
            await until(lambda: len(receiver.messages) == 2)
            assert sorted(receiver.texts) == ["a", "c"]

    asyncio.run(scenario())


def test_tags_of_one_hash_are_told_apart(namesrv: str, topic: str, name: str, until: Until) -> None:
    async def scenario() -> None:
        # "Aa" and "BB" have one Java hash: only the client compares their texts.
        async with Receiver(namesrv, name, topic, expression="Aa || end") as receiver:
            for text in ("Aa", "BB", "end"):
                await send(namesrv, topic, text, tags=text, key="one queue")
            await until(lambda: "end" in receiver.texts)
            assert receiver.texts == ["Aa", "end"]

    asyncio.run(scenario())


def test_iteration_acknowledges_when_the_next_is_asked_for(
    namesrv: str, topic: str, name: str
) -> None:
    async def scenario() -> None:
        await send(namesrv, topic, "1", "2", "3", key="k")
        seen = []
        for _ in range(2):
            consumer = Consumer(name, [namesrv], options=FIRST)
            consumer.subscribe(topic)
            async with consumer:
                async for message in consumer:
                    seen.append(message.text)
                    if message.text in ("2", "3"):
                        break
        # The loop was left at 2 without acknowledging it: it comes again.
        assert seen == ["1", "2", "2"]

    asyncio.run(scenario())


def test_explicit_acknowledgement_out_of_order(namesrv: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        await send(namesrv, topic, "1", "2", "3", key="k")
        options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, auto_ack=False)
        consumer = Consumer(name, [namesrv], options=options)
        consumer.subscribe(topic)
        async with consumer:
            first, second, third = [await consumer.receive() for _ in range(3)]
            assert first and second and third
            assert await consumer.ack(third) and await consumer.ack(first)
            assert not await consumer.ack(first)
        async with Admin([namesrv]) as admin:
            progress = await admin.consumer_progress(name, topic=topic)
            assert sum(queue.consumer_offset for queue in progress.queues) == 1

    asyncio.run(scenario())


def test_group_goes_on_where_it_stopped(namesrv: str, topic: str, name: str, until: Until) -> None:
    async def scenario() -> None:
        await send(namesrv, topic, *map(str, range(8)))
        async with Receiver(namesrv, name, topic) as receiver:
            await until(lambda: len(receiver.messages) == 8)
        await send(namesrv, topic, "later")
        async with Receiver(namesrv, name, topic) as receiver:
            await until(lambda: receiver.messages)
            assert receiver.texts == ["later"]

    asyncio.run(scenario())


def test_close_lets_running_handlers_end(namesrv: str, topic: str, name: str, until: Until) -> None:
    async def scenario() -> None:
        await send(namesrv, topic, "slow")
        entered, ended = asyncio.Event(), []
        consumer = Consumer(name, [namesrv], options=FIRST)
        consumer.subscribe(topic)

        @consumer.on_message
        async def handle(message: ReceivedMessage) -> None:
            entered.set()
            await asyncio.sleep(0.3)
            ended.append(message.text)

        async with consumer:
            await entered.wait()
        assert ended == ["slow"]
        async with Receiver(namesrv, name, topic) as receiver:
            await send(namesrv, topic, "next")
            await until(lambda: receiver.messages)
            assert receiver.texts == ["next"]

    asyncio.run(scenario())


def test_failed_message_comes_again_then_becomes_a_dead_letter(
    namesrv: str, topic: str, name: str, until: Until
) -> None:
    async def scenario() -> None:
        await send(namesrv, topic, "bad", tags="A")
        tries: list[tuple[str, int, str]] = []
        options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, max_reconsume_times=2)
        consumer = Consumer(name, [namesrv], options=options)
        consumer.subscribe(topic, "A")

        @consumer.on_message
        async def handle(message: ReceivedMessage) -> Outcome:
            tries.append((message.text, message.reconsume_times, message.topic))
            if len(tries) == 1:
                raise ValueError("no")
            return Outcome.RETRY

        async with consumer, Admin([namesrv]) as admin:
            await until(lambda: len(tries) == 3, 40)
            assert tries == [("bad", times, topic) for times in range(3)]
            async with asyncio.timeout(60):
                dead = f"%DLQ%{name}"
                while dead not in {line.topic for line in (await admin.topic_list()).topics}:
                    await asyncio.sleep(0.05)
            queues = (await admin.topic_status(dead)).queues
            assert [queue.max_queue_offset for queue in queues] == [1]
            assert len(tries) == 3

    asyncio.run(scenario())


def test_retry_of_an_iterated_message(namesrv: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        await send(namesrv, topic, "again")
        options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, auto_ack=False)
        consumer = Consumer(name, [namesrv], options=options)
        consumer.subscribe(topic)
        async with consumer:
            first = await consumer.receive()
            assert first is not None and await consumer.retry(first, delay_level=1)
            second = await consumer.receive()
            assert second is not None
            assert (second.text, second.topic, second.reconsume_times) == ("again", topic, 1)
            assert second.message_id == first.message_id
            assert second.stored_topic == f"%RETRY%{name}"
            assert await consumer.ack(second)

    asyncio.run(scenario())


def test_ordered_queue_waits_at_a_failed_message(
    namesrv: str, topic: str, name: str, until: Until
) -> None:
    async def scenario() -> None:
        await send(namesrv, topic, *map(str, range(6)), key="k")
        options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, ordered=True, suspend_ms=50)
        handled: list[tuple[str, int]] = []
        running = 0
        consumer = Consumer(name, [namesrv], options=options)
        consumer.subscribe(topic)

        @consumer.on_message
        async def handle(message: ReceivedMessage) -> Outcome:
            nonlocal running
            running += 1
            assert running == 1
            await asyncio.sleep(0.005)
            running -= 1
            handled.append((message.text, message.reconsume_times))
            again = message.text == "2" and message.reconsume_times < 2
            return Outcome.RETRY if again else Outcome.ACK

        async with consumer:
            await until(lambda: len(handled) == 8)
        assert handled == [
            ("0", 0),
            ("1", 0),
            ("2", 0),
            ("2", 1),
            ("2", 2),
            ("3", 0),
            ("4", 0),
            ("5", 0),
        ]

    asyncio.run(scenario())


def test_ordered_iteration(namesrv: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        await send(namesrv, topic, *map(str, range(6)), key="k")
        options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, ordered=True, suspend_ms=20)
        consumer = Consumer(name, [namesrv], options=options)
        consumer.subscribe(topic)
        seen: list[tuple[str, int]] = []
        async with consumer:
            async for message in consumer:
                seen.append((message.text, message.reconsume_times))
                if seen == [("0", 0), ("1", 0)]:
                    await consumer.retry(message)
                if message.text == "5":
                    break
        assert [text for text, _ in seen] == ["0", "1", "1", "2", "3", "4", "5"]

    asyncio.run(scenario())


def test_ordered_message_over_its_limit_is_a_dead_letter(
    namesrv: str, topic: str, name: str, until: Until
) -> None:
    async def scenario() -> None:
        await send(namesrv, topic, "bad", "good", key="k")
        options = ConsumerOptions(
            consume_from=ConsumeFrom.FIRST, ordered=True, suspend_ms=20, max_reconsume_times=1
        )
        handled: list[str] = []
        consumer = Consumer(name, [namesrv], options=options)
        consumer.subscribe(topic)

        @consumer.on_message
        async def handle(message: ReceivedMessage) -> Outcome:
            handled.append(message.text)
            return Outcome.ACK if message.text == "good" else Outcome.RETRY

        async with consumer, Admin([namesrv]) as admin:
            await until(lambda: "good" in handled)
            assert handled == ["bad", "bad", "good"]
            async with asyncio.timeout(60):
                while True:
                    try:
                        queues = (await admin.topic_status(f"%DLQ%{name}")).queues
                        break
                    except ClientError:
                        await asyncio.sleep(0.05)
            assert [queue.max_queue_offset for queue in queues] == [1]

    asyncio.run(scenario())


def test_two_members_share_and_the_second_takes_over(
    namesrv: str, topic: str, name: str, until: Until
) -> None:
    async def scenario() -> None:
        async with Receiver(namesrv, name, topic) as first:

            def share(receiver: Receiver) -> int:
                return sum(queue.topic == topic for queue in receiver.consumer.queues)

            await until(lambda: share(first) == 4)
            async with Receiver(namesrv, name, topic) as second:
                await until(lambda: (share(first), share(second)) == (2, 2))
                assert not set(first.consumer.queues) & set(second.consumer.queues)
                await send(namesrv, topic, *map(str, range(40)))
                await until(lambda: len(first.messages) + len(second.messages) >= 40)
                assert Counter(first.texts + second.texts) == Counter(map(str, range(40)))
                assert first.messages and second.messages
            await until(lambda: share(first) == 4)
            await send(namesrv, topic, *map(str, range(40, 48)))
            await until(lambda: {str(at) for at in range(40, 48)} <= set(first.texts))

    asyncio.run(scenario())


def test_ordered_members_never_handle_one_queue_at_once(
    namesrv: str, topic: str, name: str, until: Until
) -> None:
    async def scenario() -> None:
        options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, ordered=True)
        handled: dict[int, list[int]] = {}
        busy: set[int] = set()

        def member() -> Consumer:
            consumer = Consumer(name, [namesrv], options=options)
            consumer.subscribe(topic)

            @consumer.on_message
            async def handle(message: ReceivedMessage) -> None:
                assert message.queue_id not in busy
                busy.add(message.queue_id)
                await asyncio.sleep(0.002)
                busy.discard(message.queue_id)
                handled.setdefault(message.queue_id, []).append(int(message.text))

            return consumer

        async def produce() -> None:
            async with Producer("pg", [namesrv]) as producer:
                queues = await producer.queues(topic)
                for number in range(100):
                    for queue in queues:
                        await producer.send(Message(topic, str(number).encode()), queue=queue)

        def seen() -> int:
            return min((len(set(numbers)) for numbers in handled.values()), default=0)

        async with member():
            producing = asyncio.create_task(produce())
            await until(lambda: seen() > 20)
            async with member():
                await producing
                await until(lambda: len(handled) == 4 and seen() == 100)
        for numbers in handled.values():
            # A queue that changes hands may repeat its last message, never go further back.
            assert all(after - before in (0, 1) for before, after in itertools.pairwise(numbers))

    asyncio.run(scenario())


def test_broadcast_members_get_everything_and_keep_their_offsets(
    namesrv: str, topic: str, name: str, until: Until, tmp_path: Path
) -> None:
    async def scenario() -> None:
        options = ConsumerOptions(
            model=MessageModel.BROADCASTING, consume_from=ConsumeFrom.FIRST, persist_ms=50
        )

        def receiver(folder: str) -> Receiver:
            return Receiver(namesrv, name, topic, options=options, folder=tmp_path / folder)

        texts = [str(number) for number in range(8)]
        async with receiver("a") as first, receiver("b") as second:
            await send(namesrv, topic, *texts)
            await until(lambda: len(first.messages) == len(second.messages) == 8)
            assert sorted(first.texts) == sorted(second.texts) == texts
        async with receiver("a") as first:
            await send(namesrv, topic, "later")
            await until(lambda: first.messages)
            assert first.texts == ["later"]

    asyncio.run(scenario())


def test_reset_by_an_operator_moves_a_running_group(
    namesrv: str, topic: str, name: str, until: Until
) -> None:
    async def scenario() -> None:
        async with Receiver(namesrv, name, topic) as receiver, Admin([namesrv]) as admin:
            await send(namesrv, topic, "1", "2")
            await until(lambda: len(receiver.messages) == 2)
            await admin.reset_offset_by_time(name, topic, 0)
            # A held pull learns of it only when it ends.
            await until(lambda: len(receiver.messages) == 4, 40)
            assert Counter(receiver.texts) == {"1": 2, "2": 2}

    asyncio.run(scenario())


def test_later_subscription_joins_in(namesrv: str, topic: str, name: str, until: Until) -> None:
    async def scenario() -> None:
        other = f"{name}-other"
        async with Admin([namesrv]) as admin:
            [cluster] = {line.cluster for line in (await admin.cluster_list()).brokers}
            await admin.update_topic(other, cluster=cluster)
        async with Receiver(namesrv, name, topic) as receiver:
            receiver.consumer.subscribe(other)
            await until(lambda: any(queue.topic == other for queue in receiver.consumer.queues))
            await send(namesrv, other, "x")
            await until(lambda: receiver.texts == ["x"])
            receiver.consumer.unsubscribe(other)
            await until(lambda: all(queue.topic != other for queue in receiver.consumer.queues))

    asyncio.run(scenario())


def test_second_consumer_of_a_group_in_one_instance_is_refused(
    namesrv: str, topic: str, name: str
) -> None:
    async def scenario() -> None:
        shared = SharedClient(namesrv)
        async with Receiver(namesrv, name, topic, client=shared):
            twin = Consumer(name, client=shared)
            with pytest.raises(ClientError, match="already"):
                await twin.start()

    asyncio.run(scenario())
