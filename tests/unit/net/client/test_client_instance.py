"""A client's name servers, routes and heartbeats: the receivers, the intervals, and the cache."""

import asyncio

import pytest
from tests.unit.net.client.cluster import (
    NAME_SERVER,
    OTHER_NAME_SERVER,
    TOPIC,
    ScriptedCluster,
    now_ms,
    options,
    play,
)

from turbopump.net.client import client_instance as instances
from turbopump.net.client.client_instance import ClientInstance
from turbopump.net.client.consuming.consumer import Consumer
from turbopump.net.client.errors import BrokerError, ClientClosed, ClientError, InvalidArgument
from turbopump.net.client.producer import Producer
from turbopump.net.client.shared_client import SharedClient, instance_of
from turbopump.net.transport.errors import CallTimeout, ConnectError
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.heartbeat import HeartbeatData
from turbopump.net.wire.route import BrokerData

ROUTE, BEAT = RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.HEART_BEAT
BOTH = f"{NAME_SERVER}; {OTHER_NAME_SERVER}"


@pytest.fixture
def one(cluster: ScriptedCluster) -> ScriptedCluster:
    """A broker with one queue."""
    cluster.add("a")
    return cluster


class Started:
    """An instance between `acquire` and `release`."""

    def __init__(self, namesrv: str = NAME_SERVER) -> None:
        self.shared = SharedClient(namesrv, options(instance_name="unit"))
        self.made = instance_of(self.shared)

    async def __aenter__(self) -> ClientInstance:
        await self.made.acquire()
        return self.made

    async def __aexit__(self, *_: object) -> None:
        await self.made.release()


def test_a_name_server_that_fails_goes_to_the_end_of_the_list(one: ScriptedCluster) -> None:
    one.down.add(NAME_SERVER)

    async def story() -> None:
        async with Started(BOTH) as client:
            assert await client.route(TOPIC) is not None
            assert client.namesrv == [OTHER_NAME_SERVER, NAME_SERVER]
            await asyncio.sleep(1)
            await client.refresh(TOPIC)

    play(story())
    assert [call.address for call in one.made(ROUTE)] == [
        *(NAME_SERVER, OTHER_NAME_SERVER, OTHER_NAME_SERVER)
    ]


def test_a_name_server_that_hangs_is_not_waited_for_alone(one: ScriptedCluster) -> None:
    one.fail(NAME_SERVER, ROUTE, None)

    async def story() -> int:
        async with Started(BOTH) as client:
            assert await client.route(TOPIC) is not None
            assert client.namesrv[0] == OTHER_NAME_SERVER
            return now_ms()

    assert play(story()) == 1_000


def test_a_slow_answer_counts_while_the_next_one_hangs(one: ScriptedCluster) -> None:
    """Both name servers then have a request: the first response wins."""
    one.fail(OTHER_NAME_SERVER, ROUTE, None)
    slow = one._answer

    async def answer(address: str, request: object) -> object:
        await asyncio.sleep(2)
        return await slow(address, request)  # type: ignore[arg-type]

    one._answer = answer  # type: ignore[method-assign, assignment]

    async def story() -> int:
        async with Started(BOTH) as client:
            assert await client.route(TOPIC) is not None
            return now_ms()

    assert play(story()) == 2_000


def test_an_error_answer_is_an_answer(one: ScriptedCluster) -> None:
    one.fail(NAME_SERVER, ROUTE, ResponseCode.SYSTEM_ERROR)

    async def story() -> None:
        async with Started(BOTH) as client:
            with pytest.raises(BrokerError):
                await client.route(TOPIC)

    play(story())
    assert len(one.made(ROUTE)) == 1


def test_without_any_name_server_the_last_failure_is_raised(one: ScriptedCluster) -> None:
    one.down |= {NAME_SERVER, OTHER_NAME_SERVER}

    async def story() -> None:
        async with Started(BOTH) as client:
            with pytest.raises(ConnectError, match=OTHER_NAME_SERVER):
                await client.route(TOPIC)

    play(story())


def test_a_route_is_asked_for_once_and_then_every_30_s(one: ScriptedCluster) -> None:
    async def story() -> None:
        async with Started() as client:
            await asyncio.gather(*(client.route(TOPIC) for _ in range(5)))
            for _ in range(5):
                await client.route(TOPIC)
            await asyncio.sleep(61)

    play(story())
    assert one.times(ROUTE) == [0, 30_000, 60_000]


def test_those_that_waited_for_a_route_share_its_failure(one: ScriptedCluster) -> None:
    one.fail(NAME_SERVER, ROUTE, None)

    async def story() -> list[object]:
        async with Started() as client:
            asked = (client.route(TOPIC) for _ in range(4))
            return await asyncio.gather(*asked, return_exceptions=True)

    assert [type(one) for one in play(story())] == [CallTimeout] * 4
    assert len(one.made(ROUTE)) == 1, "no request waits for a time-out of its own after it"


def test_a_cancelled_caller_leaves_its_query_to_those_that_waited(one: ScriptedCluster) -> None:
    one.fail(NAME_SERVER, ROUTE, None)

    async def story() -> None:
        async with Started() as client:
            first, *others = (asyncio.create_task(client.route(TOPIC)) for _ in range(3))
            await asyncio.sleep(0.05)
            first.cancel()
            assert all(route is not None for route in await asyncio.gather(*others))
            one.fail(NAME_SERVER, ROUTE, None)
            alone = asyncio.create_task(client.route("New", for_sending=True))
            await asyncio.sleep(0.05)
            alone.cancel()
            await asyncio.sleep(0)
            assert await client.route("New") is None

    play(story())
    assert one.times(ROUTE) == [0, 50, 50, 100]


def test_no_route_leaves_the_one_that_is_known(one: ScriptedCluster) -> None:
    async def story() -> None:
        async with Started() as client:
            known = await client.route(TOPIC)
            del one.routes[TOPIC]
            await asyncio.sleep(1)
            assert await client.refresh(TOPIC) == known
            assert client.brokers.master_address("a") is not None

    play(story())


def test_routes_are_bounded_and_the_least_used_goes(
    one: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "TOPICS_MAX", 2)
    for topic in "xyz":
        one.routes[topic] = one.routes[TOPIC]

    async def story() -> None:
        async with Started() as client:
            for topic in ("x", "y", "x", "z", "x", "y"):
                await client.route(topic)

    play(story())
    assert [call.request.fields["topic"] for call in one.made(ROUTE)] == ["x", "y", "z", "y"]


def test_addresses_go_with_the_routes_that_had_them(one: ScriptedCluster) -> None:
    async def story() -> None:
        async with Started() as client:
            await client.route(TOPIC)
            one.add("b")
            one.routes[TOPIC] = one.route(1, "b")
            await asyncio.sleep(30.5)
            assert (client.brokers.master_address("a"), client.brokers.master_address("b")) == (
                *(None, one.named("b").address),
            )

    play(story())


def test_heartbeats_name_all_groups_and_go_to_replicas_where_there_is_a_consumer(
    one: ScriptedCluster,
) -> None:
    addresses = {0: one.named("a").address, 1: "127.0.0.1:12999"}
    one.routes[TOPIC].broker_datas = [BrokerData("C", "a", addresses)]

    async def story() -> None:
        started = Started()
        async with started as client:
            producers = [Producer("P", client=started.shared), Producer("P", client=started.shared)]
            for each in producers:
                await each.start()
            await producers[0].queues(TOPIC)
            await client.heartbeat()
            assert [call.address for call in one.made(BEAT)] == [addresses[0]]
            consumer = Consumer("G", client=started.shared)
            consumer.subscribe(TOPIC)
            async with consumer:
                last = one.made(BEAT)[-2:]
                assert sorted(call.address for call in last) == sorted(addresses.values())
                assert isinstance(last[0].request.body, bytes)
                data = HeartbeatData.decode(last[0].request.body)
                assert data.client_id == "127.0.0.1@unit"
                assert [group.group_name for group in data.producer_data_set] == ["P"]
                assert [group.group_name for group in data.consumer_data_set] == ["G"]
            await producers[0].close()
            leaving = one.made(RequestCode.UNREGISTER_CLIENT)
            assert all("consumerGroup" in call.request.fields for call in leaving)
            await producers[1].close()
            assert (
                one.made(RequestCode.UNREGISTER_CLIENT)[-1].request.fields["producerGroup"] == "P"
            )

    play(story())


def test_heartbeats_come_every_30_s_whatever_became_of_the_last(one: ScriptedCluster) -> None:
    one.fail("a", BEAT, ConnectError("gone"), ResponseCode.SYSTEM_ERROR)

    async def story() -> None:
        started = Started()
        async with started, Producer("P", client=started.shared) as producer:
            await producer.queues(TOPIC)
            await asyncio.sleep(91)

    play(story())
    assert one.times(BEAT) == [30_000, 60_000, 90_000]


def test_one_consumer_of_a_group_for_each_instance(one: ScriptedCluster) -> None:
    async def story() -> None:
        started = Started()
        async with started as client:
            first = Consumer("G", client=started.shared)
            await first.start()
            with pytest.raises(ClientError, match="nothing is subscribed to"):
                await first.receive()
            first.subscribe(TOPIC)
            second = Consumer("G", client=started.shared)
            second.subscribe(TOPIC)
            with pytest.raises(ClientError, match="has a consumer in this instance already"):
                await second.start()
            await second.close()
            await client.heartbeat([one.named("a").address])
            body = one.made(BEAT)[-1].request.body
            assert isinstance(body, bytes)
            (member,) = HeartbeatData.decode(body).consumer_data_set
            assert member.group_name == "G", "the first consumer is still a member"
            await first.close()
        with pytest.raises(ClientClosed):
            await client.call(NAME_SERVER, one.calls[0].request)

    play(story())
    assert one.open == 0


def test_a_request_to_the_wrong_kind_of_server_says_so(one: ScriptedCluster) -> None:
    unknown = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    code = RequestCode.GET_BROKER_CLUSTER_INFO
    one.fail("a", code, unknown, unknown)

    async def story() -> None:
        async with Started() as client:
            with pytest.raises(BrokerError, match="this is a broker, not a name server"):
                await client.ask(one.named("a").address, code)

    play(story())


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "at least one"), ([" ", ""], "at least one"), ("host", "name server address")],
)
def test_invalid_lists_of_name_servers(text: str | list[str], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        ClientInstance(text)
