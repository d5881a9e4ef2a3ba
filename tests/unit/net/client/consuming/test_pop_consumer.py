"""The push consumer over pop: the effect of a handler's end, renewals, free room, queues, and its
close."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.net.client.cluster import (
    NAME_SERVER,
    TOPIC,
    ScriptedCluster,
    now_ms,
    options,
    play,
)
from tests.unit.net.client.consuming.popping import PoppingBroker, add_popping

from turbopump.net.client.consuming.pop_consumer import RETRY_MS, PopConsumer, PopOptions
from turbopump.net.client.errors import ClientError, InvalidArgument
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.client.options import Outcome
from turbopump.net.transport.errors import ConnectError
from turbopump.net.wire.codes import RequestCode, ResponseCode

POP, ACK = RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE
CHANGE = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
Handle = Callable[[ReceivedMessage], Awaitable[Any]]


@pytest.fixture
def broker(cluster: ScriptedCluster) -> PoppingBroker:
    (made,) = add_popping(cluster, "a")
    return made


def fill(broker: PoppingBroker, count: int, queue_id: int = 0) -> None:
    for number in range(count):
        broker.put(b"%d" % number, queue_id)


def consumer(handle: Handle, expression: str = "*", **more: Any) -> PopConsumer:
    made = PopConsumer(
        "G",
        NAME_SERVER,
        options=PopOptions(**more),
        client_options=options(instance_name="unit"),
    )
    made.subscribe(TOPIC, expression)
    made.on_message(handle)
    return made


def run(made: PopConsumer, seconds: float) -> None:
    async def story() -> None:
        async with made:
            await asyncio.sleep(seconds)

    play(story())


class Seen:
    """A handler that records its messages and ends with the given outcomes."""

    def __init__(self, *outcomes: Outcome | Exception | None, takes_s: float = 0.0) -> None:
        self.at: list[tuple[int, bytes]] = []
        self.running = self.most = self.cancelled = 0
        self._outcomes, self._takes_s = list(outcomes), takes_s

    @property
    def bodies(self) -> list[bytes]:
        """Bodies in the order of their arrival."""
        return [body for _, body in self.at]

    async def __call__(self, message: ReceivedMessage) -> Outcome | None:
        self.at.append((now_ms(), bytes(message.body)))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self._takes_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        outcome = self._outcomes.pop(0) if self._outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def test_handled_messages_are_acknowledged_and_refused_ones_redelivered(
    broker: PoppingBroker,
) -> None:
    fill(broker, 3)
    seen = Seen(Outcome.ACK, Outcome.RETRY, ValueError("no"))
    run(consumer(seen), 11)
    assert broker.put_off == [(0, 1, RETRY_MS[0]), (0, 2, RETRY_MS[0])]
    assert seen.bodies[:3] == [b"0", b"1", b"2"] and sorted(seen.bodies[3:]) == [b"1", b"2"]
    assert {at for at, _ in seen.at[3:]} == {10_000}
    assert sorted(broker.acked) == [0, 1, 2]


@pytest.mark.parametrize(("times", "again_ms"), [(0, 10_000), (1, 30_000), (15, 7_200_000)])
def test_each_delivery_is_followed_by_a_longer_wait(
    broker: PoppingBroker, times: int, again_ms: int
) -> None:
    broker.put(b"x", reconsume_times=times)
    run(consumer(Seen(Outcome.RETRY)), 1)
    assert broker.put_off == [(0, 0, again_ms)]


@pytest.mark.parametrize("times", [16, 2**31 - 1, -1, -(2**31)])
def test_a_number_of_deliveries_that_has_no_wait(broker: PoppingBroker, times: int) -> None:
    broker.put(b"x", reconsume_times=times)
    run(consumer(Seen(Outcome.RETRY)), 1)
    assert broker.put_off == [(0, 0, RETRY_MS[-1] if times > 0 else RETRY_MS[0])]


def test_a_message_in_a_handler_is_renewed_until_it_takes_too_long(broker: PoppingBroker) -> None:
    fill(broker, 1)
    seen = Seen(takes_s=30)
    run(consumer(seen, invisible_ms=4_000, consume_timeout_ms=9_000), 14)
    renewed = [at for at, _, _ in broker.put_off if at < 12_000]
    assert renewed == [2_000, 4_000, 6_000, 8_000]
    assert {again for _, _, again in broker.put_off} == {4_000}
    assert [at for at, _ in seen.at] == [0, 12_000], "then another member may have it"


def test_messages_that_waited_for_a_handler_are_renewed_before_they_are_handled(
    broker: PoppingBroker,
) -> None:
    fill(broker, 2)
    seen = Seen(takes_s=3)
    run(consumer(seen, concurrency=1, invisible_ms=4_000), 7)
    assert (3_000, 1, 4_000) in broker.put_off
    assert seen.at == [(0, b"0"), (3_000, b"1")] and broker.acked == [0, 1]


def test_messages_that_cannot_be_renewed_are_not_handled(
    cluster: ScriptedCluster, broker: PoppingBroker
) -> None:
    """The message waited until a different member may have received it."""
    fill(broker, 2)
    cluster.fail("a", CHANGE, *[ResponseCode.MESSAGE_ILLEGAL] * 99)
    seen = Seen(takes_s=3)
    run(consumer(seen, concurrency=1, invisible_ms=4_000), 3.5)
    assert seen.at == [(0, b"0")]


def test_no_more_handlers_run_than_may(broker: PoppingBroker) -> None:
    fill(broker, 20)
    seen = Seen(takes_s=1)
    run(consumer(seen, concurrency=3), 6.9)
    assert seen.most == 3 and sorted(broker.acked) == list(range(20))
    assert {at for at, _ in seen.at} == set(range(0, 7_000, 1_000))
    assert max(count for _, count in broker.popped) <= 6, "as many again may wait"


def test_a_pop_asks_for_no_more_than_a_batch(
    cluster: ScriptedCluster, broker: PoppingBroker
) -> None:
    fill(broker, 10)
    run(consumer(Seen(), batch=4), 1)
    asked = [int(call.request.fields["maxMsgNums"]) for call in cluster.made(POP)]
    assert asked[:2] == [4, 4] and len(broker.acked) == 10


def test_an_acknowledgement_is_tried_twice(cluster: ScriptedCluster, broker: PoppingBroker) -> None:
    fill(broker, 2)
    cluster.fail("a", ACK, ConnectError("1"), None, ConnectError("3"))
    run(consumer(Seen(), concurrency=1, batch=1), 10)
    assert len(cluster.made(ACK)) == 4
    assert broker.acked == [1], "the first comes again after its time"


def test_messages_of_other_tags_reach_no_handler(broker: PoppingBroker) -> None:
    for tag in ("Aa", "BB"):
        broker.put(tag.encode(), properties=f"TAGS\x01{tag}\x02".encode())
    seen = Seen()
    run(consumer(seen, "BB"), 1)
    assert seen.bodies == [b"BB"] and sorted(broker.acked) == [0, 1]


def test_pops_that_fail_wait_longer_each_time(
    cluster: ScriptedCluster, broker: PoppingBroker
) -> None:
    cluster.fail("a", POP, *[ConnectError("gone")] * 4)
    fill(broker, 1)
    seen = Seen()
    run(consumer(seen), 2)
    assert cluster.times(POP)[:5] == [0, 100, 300, 700, 1_500]
    assert seen.at == [(1_500, b"0")]


@pytest.mark.parametrize(
    "shown",
    [{"startOffsetInfo": "x"}, {"orderCountInfo": "0 0"}, {"popTime": "soon"}, {"reviveQid": ""}],
)
def test_an_answer_that_cannot_be_read_does_not_end_the_pops(
    broker: PoppingBroker, shown: dict[str, str]
) -> None:
    fill(broker, 1)
    broker.shown = shown
    seen = Seen()

    async def story() -> None:
        async with consumer(seen, invisible_ms=1_000):
            await asyncio.sleep(0.5)
            broker.shown = {}
            await asyncio.sleep(3)

    play(story())
    assert seen.bodies == [b"0"] and broker.acked == [0]


def test_brokers_come_and_go_with_the_route(cluster: ScriptedCluster) -> None:
    first, second = add_popping(cluster, "a", "b")
    cluster.routes[TOPIC] = cluster.route(1, "a")
    seen = Seen()

    async def story() -> None:
        async with consumer(seen) as made:
            await asyncio.sleep(1)
            second.put(b"unseen")
            await asyncio.sleep(2)
            assert seen.at == []
            cluster.routes[TOPIC] = cluster.route(1, "b")
            await made._instance.refresh(TOPIC)
            await asyncio.sleep(2)
            assert seen.bodies == [b"unseen"]
            before = len([call for call in cluster.made(POP) if call.address == first.address])
            await asyncio.sleep(40)
            after = len([call for call in cluster.made(POP) if call.address == first.address])
            assert after == before, "the pop that waited there has ended"

    play(story())


def test_the_room_is_shared_between_brokers(cluster: ScriptedCluster) -> None:
    """A broker with many messages may not occupy all handlers: messages of the others would
    wait."""
    first, second = add_popping(cluster, "a", "b")
    fill(first, 50)
    seen = Seen(takes_s=5)

    async def story() -> None:
        async with consumer(seen, concurrency=2):
            await asyncio.sleep(1)
            second.put(b"other")
            await asyncio.sleep(11)
            assert b"other" in seen.bodies

    play(story())


def test_in_order_a_queue_waits_for_the_one_that_fails(broker: PoppingBroker) -> None:
    fill(broker, 3)
    seen = Seen(Outcome.ACK, Outcome.RETRY)
    run(consumer(seen, ordered=True, suspend_ms=500), 1)
    assert seen.at == [(0, b"0"), (0, b"1"), (500, b"1"), (500, b"2")]
    assert broker.put_off == [(0, 1, 500), (0, 2, 500)], "later messages come with it"
    assert broker.acked == [0, 1, 2]


def test_in_order_means_within_a_queue(cluster: ScriptedCluster) -> None:
    (broker,) = add_popping(cluster, "a", queues=2)
    fill(broker, 2, 0)
    fill(broker, 2, 1)
    seen = Seen(takes_s=1)
    run(consumer(seen, ordered=True), 2.5)
    assert seen.most == 2 and [at for at, _ in seen.at] == [0, 0, 1_000, 1_000]


def test_close_waits_for_running_handlers_and_begins_no_other(broker: PoppingBroker) -> None:
    fill(broker, 2)
    seen = Seen(takes_s=3)

    async def story() -> None:
        made = consumer(seen, concurrency=1)
        await made.start()
        await asyncio.sleep(1)
        await made.close()
        assert now_ms() == 3_000
        await made.close()

    play(story())
    assert seen.at == [(0, b"0")], "messages without a handler come again, to others"
    assert broker.acked == [0] and seen.cancelled == 0


def test_close_waits_no_longer_than_it_may(broker: PoppingBroker) -> None:
    fill(broker, 2)
    seen = Seen(takes_s=300)

    async def story() -> None:
        made = consumer(seen, close_timeout_ms=2_000)
        await made.start()
        await asyncio.sleep(1)
        await made.close()
        assert now_ms() == 3_000

    play(story())
    assert seen.cancelled == 2 and not broker.acked and not broker.put_off


def test_close_does_not_wait_for_a_broker_that_has_nothing(
    cluster: ScriptedCluster, broker: PoppingBroker
) -> None:
    async def story() -> None:
        made = consumer(Seen())
        await made.start()
        await asyncio.sleep(1)
        await made.close()
        assert now_ms() == 1_000
        with pytest.raises(ClientError, match="starts once"):
            await made.start()

    play(story())
    assert cluster.open == 0


def test_a_cancelled_task_of_the_program_is_a_failure_of_the_handler(
    broker: PoppingBroker,
) -> None:
    fill(broker, 2)

    async def handle(message: ReceivedMessage) -> None:
        if message.body == b"0":
            task = asyncio.create_task(asyncio.sleep(100))
            task.cancel()
            await task

    run(consumer(handle), 1)
    assert broker.put_off == [(0, 0, RETRY_MS[0])]
    assert broker.acked == [1]


def test_a_close_from_within_a_handler_does_not_wait_for_itself(broker: PoppingBroker) -> None:
    fill(broker, 1)
    closed: list[int] = []

    async def story() -> None:
        async def handle(_message: ReceivedMessage) -> None:
            await made.close()
            closed.append(now_ms())

        made = consumer(handle, close_timeout_ms=1_000)
        await made.start()
        await asyncio.sleep(5)
        assert made._closed

    play(story())


def test_how_it_cannot_be_used(cluster: ScriptedCluster, broker: PoppingBroker) -> None:
    for more in (
        {"batch": 33},
        {"batch": 0},
        {"concurrency": 0},
        {"invisible_ms": 0},
        {"retry_ms": ()},
    ):
        with pytest.raises(InvalidArgument):
            PopConsumer("G", NAME_SERVER, options=PopOptions(**more))  # type: ignore[arg-type]

    async def story() -> None:
        made = PopConsumer("G", NAME_SERVER, client_options=options(instance_name="unit"))
        with pytest.raises(ClientError, match="needs a handler"):
            await made.start()
        await made.close()

    play(story())
    assert cluster.open == 0
