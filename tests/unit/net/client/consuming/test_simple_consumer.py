"""The simple consumer against scripted brokers: waiting receivers, handles, and its errors."""

import asyncio
from typing import Any

import pytest
from tests.unit.net.client.cluster import (
    NAME_SERVER,
    START_MS,
    TOPIC,
    ScriptedCluster,
    Stored,
    now_ms,
    options,
    play,
)
from tests.unit.net.client.consuming.popping import PoppingBroker, add_popping

from turbopump.net.client.consuming.popper import INVISIBLE_MAX_MS
from turbopump.net.client.consuming.simple_consumer import SimpleConsumer
from turbopump.net.client.errors import (
    BrokerError,
    ClientClosed,
    ClientError,
    InvalidArgument,
    RouteNotFound,
)
from turbopump.net.client.shared_client import SharedClient, instance_of
from turbopump.net.transport.errors import CallTimeout, ConnectError
from turbopump.net.wire import properties as names
from turbopump.net.wire.codes import RequestCode, ResponseCode

POP, ACK = RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE
CHANGE = RequestCode.CHANGE_MESSAGE_INVISIBLETIME


@pytest.fixture
def broker(cluster: ScriptedCluster) -> PoppingBroker:
    """A broker "a" with three messages in one queue."""
    (made,) = add_popping(cluster, "a")
    for number in range(3):
        made.put(b"%d" % number)
    return made


def consumer(expression: str = "*", **more: Any) -> SimpleConsumer:
    made = SimpleConsumer("G", NAME_SERVER, client_options=options(instance_name="unit"), **more)
    made.subscribe(TOPIC, expression)
    return made


def test_a_handle_says_all_that_the_broker_must_know(broker: PoppingBroker) -> None:
    async def story() -> None:
        async with consumer() as made:
            messages = await made.receive(2, invisible_ms=7_000)
            assert [message.body for message in messages] == [b"0", b"1"]
            handles = [message.properties[names.POP_CK] for message in messages]
            assert handles == [f"0 {START_MS} 7000 3 0 a 0 {at}" for at in (0, 1)]
            for message in reversed(messages):
                await made.ack(message)
            (last,) = await made.receive()
            assert (last.body, broker.acked) == (b"2", [1, 0])

    play(story())


def test_a_handle_of_the_broker_stays_as_it_is(broker: PoppingBroker) -> None:
    """The handle belongs to a redelivered message, which lies in the group's retry topic."""
    handle = f"4 {START_MS} 60000 2 1 a 6 5"
    broker.queues[TOPIC, 0][0].properties = f"1ST\x01x\x02POP_CK\x01{handle}\x02".encode()

    async def story() -> None:
        async with consumer() as made:
            (message,) = await made.receive(1)
            await made.ack(message)

    play(story())
    (settled,) = broker.settled
    assert (settled.place, settled.handle) == (("%RETRY%G_T", 6, 5), handle)


def test_a_changed_time_gives_a_new_handle(broker: PoppingBroker) -> None:
    async def story() -> None:
        async with consumer() as made:
            (message,) = await made.receive(1)
            await asyncio.sleep(2)
            await made.change_invisible(message, 0)
            changed = message.properties[names.POP_CK]
            assert changed == f"0 {START_MS + 2_000} 0 5 0 a 0 0"
            (again,) = await made.receive(1)
            assert again.body == b"0", "0 ms: it comes at once"
            await made.ack(message)

    play(story())
    assert [one.handle.split()[3] for one in broker.settled] == ["3", "5"]


def test_messages_of_other_tags_are_acknowledged_and_not_shown(broker: PoppingBroker) -> None:
    """The broker knows only the tags' hashes, which are equal for Aa and BB. DefaultMQPushConsumer
    acknowledges the messages that its filter removes, too."""
    broker.queues[TOPIC, 0].clear()
    for tag in ("Aa", "BB", "Aa"):
        broker.put(tag.encode(), properties=f"TAGS\x01{tag}\x02".encode())

    async def story() -> None:
        async with consumer("BB || C") as made:
            (message,) = await made.receive()
            assert message.body == b"BB"
            assert broker.acked == [0, 2]

    play(story())


def test_unwanted_unacknowledged_messages_do_not_fail_a_receive(
    cluster: ScriptedCluster, broker: PoppingBroker
) -> None:
    broker.queues[TOPIC, 0][0].properties = b"TAGS\x01Aa\x02"
    broker.queues[TOPIC, 0][1].properties = b"TAGS\x01BB\x02"
    cluster.fail("a", ACK, ConnectError("gone"), ResponseCode.SYSTEM_ERROR)

    async def story() -> None:
        async with consumer("BB") as made:
            assert [one.body for one in await made.receive()] == [b"1"]

    play(story())


def test_a_receive_waits_no_longer_than_it_may(broker: PoppingBroker) -> None:
    broker.queues[TOPIC, 0].clear()

    async def story() -> None:
        async with consumer() as made:
            assert await made.receive(wait_ms=0) == []
            assert now_ms() == 0
            assert await made.receive(wait_ms=4_000) == []
            assert 4_000 <= now_ms() < 4_100
            arriving = asyncio.ensure_future(made.receive())
            await asyncio.sleep(3)
            broker.put(b"late")
            assert [one.body for one in await arriving] == [b"late"]
            assert now_ms() < 7_200

    play(story())


def test_brokers_take_turns_and_all_are_looked_at_before_one_is_waited_for(
    cluster: ScriptedCluster,
) -> None:
    first, second = add_popping(cluster, "a", "b")
    for number in range(2):
        first.put(b"a%d" % number)
        second.put(b"b%d" % number)

    async def story() -> list[bytes]:
        async with consumer() as made:
            bodies = [(await made.receive(1))[0].body for _ in range(4)]
            assert now_ms() == 0
            polls = [int(call.request.fields["pollTime"]) for call in cluster.made(POP)]
            assert polls[0] == 0 and max(polls) <= 2_000
            waiting = asyncio.ensure_future(made.receive())
            await asyncio.sleep(5)
            second.put(b"late")
            assert (await waiting)[0].body == b"late"
            assert now_ms() < 7_100, "a broker that has nothing is waited for in slices"
        return [bytes(body) for body in bodies]

    bodies = play(story())
    assert sorted(bodies) == [b"a0", b"a1", b"b0", b"b1"]
    assert {body[:1] for body in bodies[:2]} == {b"a", b"b"}


def test_a_broker_that_is_down_does_not_keep_the_others_messages(
    cluster: ScriptedCluster,
) -> None:
    first, second = add_popping(cluster, "a", "b")
    cluster.down.add(first.address)

    async def story() -> None:
        async with consumer() as made:
            second.put(b"there")
            assert [one.body for one in await made.receive()] == [b"there"]
            with pytest.raises(ConnectError):
                await made.receive(wait_ms=3_000)
            assert 3_000 <= now_ms() < 5_500
            cluster.down.clear()
            first.put(b"back")
            assert [one.body for one in await made.receive()] == [b"back"]

    play(story())


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, BrokerError),
        (ConnectError("gone"), ConnectError),
        (None, CallTimeout),
    ],
)
def test_why_nothing_came_is_raised(
    cluster: ScriptedCluster, broker: PoppingBroker, fault: Any, expected: type[Exception]
) -> None:
    cluster.fail("a", POP, *[fault] * 99)

    async def story() -> None:
        async with consumer() as made:
            with pytest.raises(expected):
                await made.receive(wait_ms=2_000)

    play(story())


def test_a_failure_that_passes_is_not_raised(
    cluster: ScriptedCluster, broker: PoppingBroker
) -> None:
    cluster.fail("a", POP, ConnectError("gone"), ResponseCode.SYSTEM_BUSY)

    async def story() -> None:
        async with consumer() as made:
            assert len(await made.receive()) == 3
            assert now_ms() == 2_100, "100 ms for a connection, 2 s for a second failure"

    play(story())


@pytest.mark.parametrize("fields", [{"startOffsetInfo": "x"}, {"orderCountInfo": "0 0"}])
def test_an_answer_that_cannot_be_read_is_a_failure_like_others(
    broker: PoppingBroker, fields: dict[str, str]
) -> None:
    broker.shown = fields

    async def story() -> None:
        async with consumer() as made:
            with pytest.raises(ValueError, match=r"offset|order"):
                await made.receive(wait_ms=500, invisible_ms=1)
            broker.shown = {}
            assert len(await made.receive()) == 3

    play(story())


def test_former_deliveries_are_counted_for_ordered_groups(broker: PoppingBroker) -> None:
    broker.shown = {"orderCountInfo": "0 qo0%1 4;0 0 2"}

    async def story() -> None:
        async with consumer(ordered=True) as made:
            found = await made.receive()
            assert [message.reconsume_times for message in found] == [2, 4, 2]

    play(story())


def test_the_header_says_how_the_group_begins(
    cluster: ScriptedCluster, broker: PoppingBroker
) -> None:
    async def story() -> None:
        async with consumer(ordered=True, from_first=True) as made:
            await made.receive(5)

    play(story())
    fields = cluster.made(POP)[0].request.fields
    assert (fields["queueId"], fields["maxMsgNums"], fields["initMode"]) == ("-1", "5", "0")
    assert (fields["order"], fields["exp"], fields["expType"]) == ("true", "*", "TAG")


def test_a_failed_settlement_is_raised_and_the_route_looked_up(
    cluster: ScriptedCluster, broker: PoppingBroker
) -> None:
    async def story() -> None:
        async with consumer() as made:
            (message,) = await made.receive(1)
            cluster.down.add(broker.address)
            await asyncio.sleep(5)  # a route is not asked for twice within a moment
            before = len(cluster.made(RequestCode.GET_ROUTEINFO_BY_TOPIC))
            with pytest.raises(ConnectError):
                await made.ack(message)
            with pytest.raises(ConnectError):
                await made.change_invisible(message, 5)
            assert len(cluster.made(RequestCode.GET_ROUTEINFO_BY_TOPIC)) > before
            cluster.down.clear()
            cluster.fail("a", ACK, ResponseCode.MESSAGE_ILLEGAL)
            with pytest.raises(BrokerError):
                await made.ack(message)
            await made.ack(message)

    play(story())
    assert broker.acked == [0]


@pytest.mark.parametrize(
    "handle", ["", "0 1 2 3 0 a 0", "0 1 2 3 9 a 0 0", "0 1 2 3 0 a\n 0 0", "-1 1 2 3 0 a 0 0"]
)
def test_unpopped_messages_cannot_be_settled(broker: PoppingBroker, handle: str) -> None:
    async def story() -> None:
        async with consumer() as made:
            (message,) = await made.receive(1)
            message.properties[names.POP_CK] = handle
            for settling in (made.ack(message), made.change_invisible(message, 1)):
                with pytest.raises(InvalidArgument, match="was not received"):
                    await settling

    play(story())
    assert not broker.settled


def test_messages_of_grpc_cannot_be_settled_by_remoting(broker: PoppingBroker) -> None:
    async def story() -> None:
        async with consumer() as made:
            (message,) = await made.receive(1)
            message.properties[names.POP_CK] += " 7000"
            for settling in (made.ack(message), made.change_invisible(message, 1)):
                with pytest.raises(InvalidArgument, match="was received by gRPC"):
                    await settling
            for other in ("text", None):
                with pytest.raises(InvalidArgument, match="is a received message, not"):
                    await made.ack(other)  # type: ignore[arg-type]

    play(story())
    assert not broker.settled


def test_a_message_of_a_broker_that_is_gone(broker: PoppingBroker) -> None:
    async def story() -> None:
        async with consumer() as made:
            (message,) = await made.receive(1)
            message.properties[names.POP_CK] = "0 1 2 3 0 other 0 0"
            with pytest.raises(RouteNotFound, match="other"):
                await made.ack(message)

    play(story())


def test_numbers_that_cannot_be(broker: PoppingBroker) -> None:
    async def story() -> None:
        async with consumer() as made:
            for count in (0, -1, 33):
                with pytest.raises(InvalidArgument):
                    await made.receive(count)
            for invisible_ms in (0, -1, INVISIBLE_MAX_MS + 1):
                with pytest.raises(InvalidArgument):
                    await made.receive(invisible_ms=invisible_ms)
            (message,) = await made.receive(1)
            for invisible_ms in (-1, INVISIBLE_MAX_MS + 1):
                with pytest.raises(InvalidArgument):
                    await made.change_invisible(message, invisible_ms)

    play(story())


def test_a_consumer_that_does_not_run(cluster: ScriptedCluster, broker: PoppingBroker) -> None:
    async def story() -> None:
        made = consumer()
        with pytest.raises(ClientClosed):
            await made.receive()
        async with made:
            with pytest.raises(ClientError, match="started already"):
                await made.start()
            (message,) = await made.receive(1)
        await made.close()
        with pytest.raises(ClientClosed):
            await made.ack(message)
        assert cluster.open == 0
        async with made:
            assert len(await made.receive()) == 2, "it may run again"

    play(story())


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_receive_ends_with_its_consumer(
    cluster: ScriptedCluster, broker: PoppingBroker, is_shared: bool
) -> None:
    """On a shared instance the receive would otherwise go on to pop for a closed consumer."""
    broker.queues[TOPIC, 0].clear()
    cluster.fail("a", POP, *[ConnectError("gone")] * 99)

    async def story() -> None:
        client = SharedClient(NAME_SERVER, options(instance_name="unit"))
        await instance_of(client).acquire()
        made = SimpleConsumer("G", client=client) if is_shared else consumer()
        made.subscribe(TOPIC)
        await made.start()
        waiting = asyncio.ensure_future(made.receive(wait_ms=60_000))
        await asyncio.sleep(1)
        await made.close()
        cluster.faults.clear()
        broker.put(b"too late")
        with pytest.raises(ClientClosed):
            await waiting
        assert now_ms() < 3_000 and not broker.popped
        await instance_of(client).release()

    play(story())


def test_without_a_topic_there_is_no_broker(cluster: ScriptedCluster) -> None:
    async def story() -> None:
        client_options = options(instance_name="unit")
        async with SimpleConsumer("G", NAME_SERVER, client_options=client_options) as made:
            with pytest.raises(ClientError, match="nothing is subscribed to"):
                await made.receive()
            made.subscribe("gone")
            with pytest.raises(RouteNotFound, match="gone"):
                await made.receive()

    play(story())


def test_a_new_subscription_is_popped_at_once(
    cluster: ScriptedCluster, broker: PoppingBroker
) -> None:
    cluster.routes["U"] = cluster.route(1, "a")
    broker.queues["U", 0].append(Stored(b"u"))

    async def story() -> None:
        async with consumer() as made:
            assert len(await made.receive()) == 3
            made.subscribe("U")
            assert [one.topic for one in await made.receive()] == ["U"]

    play(story())
