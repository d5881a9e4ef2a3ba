"""A consumer of a topic that does not exist logs a warning, once a minute."""

import asyncio
import logging

import pytest
from tests.unit.net.client.cluster import NAME_SERVER, ScriptedCluster, options, play

from turbopump.net.client import client_instance
from turbopump.net.client.client_instance import ClientInstance
from turbopump.net.client.consuming.consumer import Consumer
from turbopump.net.client.consuming.pop_consumer import PopConsumer
from turbopump.net.client.consuming.popper import Popper
from turbopump.net.client.consuming.subscribing import subscription_of
from turbopump.net.client.errors import ClientError
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.heartbeat import HeartbeatData


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ScriptedCluster:
    made = ScriptedCluster()
    made.add("a", queues=2)
    monkeypatch.setattr(client_instance, "Client", made)
    return made


def handle(_message: ReceivedMessage) -> None:
    """Acknowledge every received message."""


@pytest.mark.parametrize("kind", [Consumer, PopConsumer])
def test_a_topic_that_does_not_exist_is_a_warning_once_a_minute(
    kind: type[Consumer] | type[PopConsumer],
    cluster: ScriptedCluster,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        consumer = kind("G", NAME_SERVER, client_options=options(instance_name="unit"))
        consumer.subscribe("gone")
        consumer.on_message(handle)
        async with consumer:
            await asyncio.sleep(150)

    with caplog.at_level(logging.WARNING):
        play(story())
    warned = [one.getMessage() for one in caplog.records if "waits for topic" in one.getMessage()]
    assert len(warned) == 3 and all("topic gone" in one for one in warned)


@pytest.mark.parametrize("kind", [Consumer, PopConsumer])
def test_without_a_subscription_a_consumer_does_not_start(
    kind: type[Consumer] | type[PopConsumer], cluster: ScriptedCluster
) -> None:
    async def story() -> None:
        consumer = kind("G", NAME_SERVER, client_options=options(instance_name="unit"))
        consumer.on_message(handle)
        with pytest.raises(ClientError, match="nothing is subscribed to"):
            await consumer.start()
        await consumer.close()

    play(story())


def test_a_simple_consumer_introduces_its_group_at_the_start(cluster: ScriptedCluster) -> None:
    async def story() -> list[HeartbeatData]:
        instance = ClientInstance(NAME_SERVER, options(instance_name="unit"))
        popper = Popper(instance, "G", from_first=False, ordered=False)
        await popper.start()
        assert not cluster.made(RequestCode.HEART_BEAT)
        popper.subscriptions["T"] = subscription_of("T", "*", None, 0)
        await popper.find_places()
        await popper.find_places()
        await popper.close()
        beats = [call.request.body for call in cluster.made(RequestCode.HEART_BEAT)]
        return [HeartbeatData.decode(body) for body in beats if isinstance(body, bytes)]

    (beat,) = play(story())
    (consumer,) = beat.consumer_data_set
    assert consumer.group_name == "G"
    assert [one.topic for one in consumer.subscription_data_set] == ["T"]
