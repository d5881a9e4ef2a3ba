"""The way of a pulled message to its outcome: retries, suspension, overdue handlers, commits,
limits."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.net.client.cluster import (
    NAME_SERVER,
    TOPIC,
    ScriptedBroker,
    ScriptedCluster,
    Stored,
    now_ms,
    options,
    play,
    record_bytes,
)

from turbopump.net.client.consuming.consumer import Consumer
from turbopump.net.client.consuming.process_queue import FlowLimits
from turbopump.net.client.errors import ClientClosed, ClientError
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.client.options import ConsumeFrom, ConsumerOptions, MessageModel, Outcome
from turbopump.net.wire.codes import RequestCode, ResponseCode

RETRY = "%RETRY%G"
BACK, SEND = RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2
COMMIT, PULL = RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.PULL_MESSAGE
REFUSED = ResponseCode.SYSTEM_ERROR

Handle = Callable[[ReceivedMessage], Awaitable[object]]


@pytest.fixture
def one(cluster: ScriptedCluster) -> ScriptedCluster:
    """A broker with one queue, and the group's retry topic."""
    cluster.add("a", topics=(TOPIC, RETRY))
    return cluster


def fill(cluster: ScriptedCluster, count: int, **more: Any) -> ScriptedBroker:
    broker = cluster.named("a")
    for number in range(count):
        broker.put(b"%d" % number, **more)
    return broker


def consume(
    handle: Handle | None, seconds: float, *, limits: FlowLimits | None = None, **more: Any
) -> list[tuple[int, bytes, int]]:
    """Run a consumer for `seconds`; returns (ms, body, reconsume times) of each handled message."""
    seen: list[tuple[int, bytes, int]] = []
    made = Consumer(
        "G",
        NAME_SERVER,
        options=ConsumerOptions(consume_from=ConsumeFrom.FIRST, **more),
        limits=limits,
        client_options=options(instance_name="unit"),
    )
    made.subscribe(TOPIC)

    async def note(message: ReceivedMessage) -> object:
        seen.append((now_ms(), bytes(message.body), message.reconsume_times))
        return await handle(message) if handle is not None else None

    async def story() -> None:
        made.on_message(note)
        async with made:
            await asyncio.sleep(seconds)

    play(story())
    return seen


async def fail(message: ReceivedMessage) -> None:
    raise ValueError(message.body)


async def fail_first(message: ReceivedMessage) -> Outcome:
    return Outcome.RETRY if message.body == b"0" and not message.reconsume_times else Outcome.ACK


def test_a_failed_message_goes_back_to_its_broker(one: ScriptedCluster) -> None:
    broker = fill(one, 2)
    seen = consume(fail, 1)
    assert [body for _, body, _ in seen] == [b"0", b"1"]
    assert [(row["offset"], row["delayLevel"]) for row in broker.back] == [
        ("0", "0"),
        ("1000", "0"),
    ]
    first = broker.back[0]
    assert (first["group"], first["originTopic"], first["maxReconsumeTimes"]) == ("G", TOPIC, "16")
    assert broker.committed["G", TOPIC, 0] == 2, "the broker has them again"


async def await_a_cancelled_task(message: ReceivedMessage) -> None:
    """Wait in a handler for a task of the program which the program has cancelled."""
    if message.body == b"0" and now_ms() < 1_000:
        task = asyncio.create_task(asyncio.sleep(100))
        task.cancel()
        await task


@pytest.mark.parametrize("ordered", [False, True])
def test_a_cancelled_task_of_the_program_is_a_failure_of_the_handler(
    one: ScriptedCluster, ordered: bool
) -> None:
    broker = fill(one, 2)
    seen = consume(await_a_cancelled_task, 3, ordered=ordered)
    if ordered:
        assert [(at, body) for at, body, _ in seen] == [(0, b"0"), (1000, b"0"), (1000, b"1")]
    else:
        assert [body for _, body, _ in seen] == [b"0", b"1"]
        assert [row["offset"] for row in broker.back] == ["0"]
    assert broker.committed["G", TOPIC, 0] == 2


def test_where_its_broker_refuses_it_goes_to_the_retry_topic(one: ScriptedCluster) -> None:
    broker = fill(one, 1, reconsume_times=2)
    one.fail("a", BACK, REFUSED)
    consume(fail, 0.5, max_reconsume_times=7)
    (call,) = one.made(SEND)
    fields = call.request.fields
    assert (fields["b"], fields["j"], fields["l"]) == (RETRY, "3", "7")
    assert "DELAY\x015\x02" in fields["i"] and f"RETRY_TOPIC\x01{TOPIC}\x02" in fields["i"]
    assert broker.committed["G", TOPIC, 0] == 1


def test_where_no_broker_takes_it_the_queue_pauses_and_it_comes_again(one: ScriptedCluster) -> None:
    broker = fill(one, 3)
    one.fail("a", BACK, REFUSED)
    one.fail("a", SEND, REFUSED)

    async def handle(message: ReceivedMessage) -> Outcome:
        return Outcome.RETRY if message.body == b"0" and now_ms() < 1_000 else Outcome.ACK

    seen = consume(handle, 6, concurrency=1)
    assert [(at, body) for at, body, _ in seen] == [
        (0, b"0"),
        (5000, b"0"),
        (5000, b"1"),
        (5000, b"2"),
    ]
    assert broker.committed["G", TOPIC, 0] == 3


def test_an_overdue_message_is_sent_back_once(one: ScriptedCluster) -> None:
    broker = fill(one, 2)

    async def handle(message: ReceivedMessage) -> object:
        await asyncio.sleep(0 if message.body == b"1" else 200)
        return Outcome.RETRY

    consume(handle, 250, consume_timeout_ms=30_000)
    rows = [(row["offset"], row["delayLevel"]) for row in broker.back]
    assert rows == [("1000", "0"), ("0", "3")], "the handler's late result is ignored"
    assert broker.committed["G", TOPIC, 0] == 2


def test_an_outcome_counts_once(one: ScriptedCluster) -> None:
    broker = fill(one, 1)

    async def story() -> list[bool]:
        made = Consumer(
            "G",
            NAME_SERVER,
            options=ConsumerOptions(consume_from=ConsumeFrom.FIRST),
            client_options=options(instance_name="unit"),
        )
        made.subscribe(TOPIC)
        async with made:
            message = await made.receive()
            assert message is not None
            outcomes = made.retry(message, 4), made.retry(message), made.ack(message)
            return list(await asyncio.gather(*outcomes))

    assert play(story()) == [True, False, False]
    assert [row["delayLevel"] for row in broker.back] == ["4"]


def test_an_ordered_queue_stops_at_a_failed_message(one: ScriptedCluster) -> None:
    fill(one, 2)
    seen = consume(fail_first, 3, ordered=True)
    assert seen == [(0, b"0", 0), (1000, b"0", 1), (1000, b"1", 0)]
    assert not one.made(BACK)


def test_an_ordered_message_over_its_limit_is_a_dead_letter(one: ScriptedCluster) -> None:
    broker = fill(one, 2)
    one.fail("a", BACK, REFUSED)

    async def handle(message: ReceivedMessage) -> Outcome:
        return Outcome.RETRY if message.body == b"0" else Outcome.ACK

    seen = consume(handle, 9, ordered=True, max_reconsume_times=2, suspend_ms=500)
    times = [(at, times) for at, body, times in seen if body == b"0"]
    assert times == [(0, 0), (500, 1), (1000, 2), (1500, 2)], "again, where no broker took it"
    assert [row["delayLevel"] for row in broker.back] == ["-1"]
    assert not one.made(SEND), "a dead letter is no new message"
    assert seen[-1] == (1500, b"1", 0)


def test_broadcast_lets_a_failed_message_go(one: ScriptedCluster) -> None:
    fill(one, 2)
    seen = consume(fail, 1, model=MessageModel.BROADCASTING)
    assert [body for _, body, _ in seen] == [b"0", b"1"]
    assert not one.made(BACK) and not one.made(COMMIT)


def test_so_many_handlers_run_at_a_time(one: ScriptedCluster) -> None:
    fill(one, 10)
    running = most = 0

    async def handle(message: ReceivedMessage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1

    seen = consume(handle, 5, concurrency=4)
    assert most == 4
    assert [at for at, *_ in seen] == [0] * 4 + [1000] * 4 + [2000] * 2


def test_offsets_are_committed_every_five_seconds_up_to_the_oldest_in_work(
    one: ScriptedCluster,
) -> None:
    fill(one, 4)

    async def handle(message: ReceivedMessage) -> None:
        await asyncio.sleep({b"1": 7, b"3": 12}.get(bytes(message.body), 0))

    consume(handle, 16, persist_ms=5_000)
    rows = [
        (call.at_ms, int(call.request.fields["commitOffset"]))
        for call in one.made(COMMIT)
        if call.request.fields["topic"] == TOPIC
    ]
    assert rows == [(5_000, 1), (10_000, 3), (15_000, 4)]


def test_pulling_pauses_while_too_much_waits(one: ScriptedCluster) -> None:
    fill(one, 20)
    begun = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        await begun.wait()

    async def story() -> None:
        made = Consumer(
            "G",
            NAME_SERVER,
            options=ConsumerOptions(consume_from=ConsumeFrom.FIRST, pull_batch=4),
            limits=FlowLimits(queue_messages=8),
            client_options=options(instance_name="unit"),
        )
        made.subscribe(TOPIC)
        made.on_message(handle)
        async with made:
            await asyncio.sleep(60)
            pulls = [call for call in one.made(PULL) if call.request.fields["topic"] == TOPIC]
            assert [call.request.fields["queueOffset"] for call in pulls] == ["0", "4"]
            begun.set()
            await asyncio.sleep(1)
            assert one.made(PULL)[-1].request.fields["queueOffset"] == "20"

    play(story())


def test_closing_waits_for_handlers_as_long_as_it_may(one: ScriptedCluster) -> None:
    broker = fill(one, 2)

    async def handle(message: ReceivedMessage) -> None:
        await asyncio.sleep(3 if message.body == b"0" else 300)

    async def story() -> int:
        made = Consumer(
            "G",
            NAME_SERVER,
            options=ConsumerOptions(consume_from=ConsumeFrom.FIRST, close_timeout_ms=5_000),
            client_options=options(instance_name="unit"),
        )
        made.subscribe(TOPIC)
        made.on_message(handle)
        await made.start()
        await asyncio.sleep(1)
        await made.close()
        return now_ms()

    assert play(story()) == 6_000
    assert broker.committed["G", TOPIC, 0] == 1, "the second one comes again"


def test_an_iterator_acknowledges_with_the_next_and_ends_with_the_consumer(
    one: ScriptedCluster,
) -> None:
    broker = fill(one, 3)

    async def story() -> list[bytes]:
        made = Consumer(
            "G",
            NAME_SERVER,
            options=ConsumerOptions(consume_from=ConsumeFrom.FIRST),
            client_options=options(instance_name="unit"),
        )
        made.subscribe(TOPIC)
        bodies = []
        async with made:
            async for message in made:
                bodies.append(bytes(message.body))
                if len(bodies) == 3:
                    await made.close()
        assert await made.receive() is None
        with pytest.raises(ClientClosed):
            made.on_message(fail)
        with pytest.raises(ClientError, match="starts once"):
            await made.start()
        return bodies

    assert play(story()) == [b"0", b"1", b"2"]
    assert broker.committed["G", TOPIC, 0] == 2, "the last one was not acknowledged"


def test_an_operators_message_runs_the_handler(one: ScriptedCluster) -> None:

    outcomes = []

    async def story() -> None:
        made = Consumer("G", NAME_SERVER, client_options=options(instance_name="unit"))
        made.subscribe(TOPIC)
        async with made:
            for handle in (None, fail_first, fail, await_a_cancelled_task):
                if handle is not None:
                    made.on_message(handle)
                later = one.ask_client(
                    RequestCode.CONSUME_MESSAGE_DIRECTLY,
                    {"consumerGroup": "G", "clientId": made.client_id, "brokerName": "a"},
                    record_bytes((TOPIC, 0), 5, Stored(b"0")),
                )
                await asyncio.sleep(0.01)
                outcomes.append(later.value.body)

    play(story())
    assert b'"consumeResult":"CR_THROW_EXCEPTION"' in outcomes[0] and b"no handler" in outcomes[0]
    assert b'"consumeResult":"CR_LATER"' in outcomes[1]
    assert b'"consumeResult":"CR_THROW_EXCEPTION"' in outcomes[2] and b"ValueError" in outcomes[2]
    assert b"CancelledError" in outcomes[3]
    assert not one.made(BACK), "it is not the group's own message"
