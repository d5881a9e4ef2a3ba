"""Reactions of a consumer to every response of a broker, and to every request of a broker."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from tests.integration.client.scripted import ScriptedBroker, pulled, record_bytes, stored

from turbopump.engine import fastjson
from turbopump.net.client.consuming.consumer import Consumer
from turbopump.net.client.consuming.process_queue import FlowLimits
from turbopump.net.client.errors import BrokerError, ClientError
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.client.options import ConsumerOptions, Outcome
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.properties import decode_properties

pytestmark = pytest.mark.integration

Until = Callable[..., Awaitable[None]]
PULL = RequestCode.PULL_MESSAGE
SEND = RequestCode.SEND_MESSAGE_V2


class Consuming:
    """A consumer of topic T with a handler that has the test's outcome."""

    def __init__(
        self,
        broker: ScriptedBroker,
        options: ConsumerOptions | None = None,
        outcome: Outcome = Outcome.ACK,
    ) -> None:
        self.messages: list[ReceivedMessage] = []
        self.consumer = Consumer("g", [broker.address], options=options)
        self.consumer.subscribe("T")
        self.consumer.on_message(self._handle)
        self._outcome = outcome

    async def _handle(self, message: ReceivedMessage) -> Outcome:
        self.messages.append(message)
        return self._outcome

    async def __aenter__(self) -> "Consuming":
        await self.consumer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.consumer.close()


def pulls_of(broker: ScriptedBroker) -> list[int]:
    return [
        int(request.fields["queueOffset"])
        for request in broker.requests_of(PULL)
        if request.fields["topic"] == "T"
    ]


def script_pulls(broker: ScriptedBroker, *responses: Callable[[Command], Command]) -> None:
    """Answer the pulls of T one after the other; then, and for other topics, hold them."""
    left = list(responses)
    hold = broker.responses[PULL]
    broker.responses[PULL] = lambda request: (
        left.pop(0)(request) if left and request.fields["topic"] == "T" else hold(request)
    )


def test_pull_goes_on_as_each_answer_says(until: Until) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            script_pulls(
                broker,
                lambda request: pulled(request, 0, 2, [b"0", b"1"]),
                lambda request: pulled(request, 20, 7),
                lambda request: pulled(request, 19, 7),
                lambda request: pulled(request, 21, 3),
                lambda request: pulled(request, 0, 4, [b"3"]),
            )
            async with Consuming(broker) as consuming:
                await until(lambda: len(pulls_of(broker)) == 6)
                await until(lambda: len(consuming.messages) == 3)
                assert pulls_of(broker) == [0, 2, 7, 7, 3, 4]
                assert [message.text for message in consuming.messages] == ["0", "1", "3"]
            commits = [
                request.fields["commitOffset"]
                for request in broker.requests_of(RequestCode.UPDATE_CONSUMER_OFFSET)
                if request.fields["topic"] == "T"
            ]
            # 3 at the move, 4 at the end.
            assert commits == ["3", "4"]

    asyncio.run(scenario())


@pytest.mark.parametrize("code", [24, 25])
def test_unknown_subscription_is_cured_by_a_heartbeat(until: Until, code: int) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            script_pulls(broker, lambda request: new_response(request, code, "subscription"))
            async with Consuming(broker):
                await until(lambda: len(pulls_of(broker)) == 2)
                order = [request.code for request in broker.requests]
                first = order.index(PULL)
                assert RequestCode.HEART_BEAT in order[first:]

    asyncio.run(scenario())


def test_pull_repeats_the_heartbeats_subscription(until: Until) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Consuming(broker):
            await until(lambda: bool(pulls_of(broker)))
            body = broker.requests_of(RequestCode.HEART_BEAT)[0].body
            assert isinstance(body, bytes)
            [consumer] = json.loads(body)["consumerDataSet"]
            data = {data["topic"]: data for data in consumer["subscriptionDataSet"]}
            assert set(data) == {"T", "%RETRY%g"}
            [pull] = [
                request for request in broker.requests_of(PULL) if request.fields["topic"] == "T"
            ]
            assert pull.fields["subVersion"] == str(data["T"]["subVersion"])
            assert (pull.fields["sysFlag"], pull.fields["maxMsgNums"]) == ("2", "32")

    asyncio.run(scenario())


def test_notice_of_a_change_leads_to_a_rebalance_at_once(until: Until) -> None:
    async def scenario() -> None:
        async with ScriptedBroker(queues=4) as broker, Consuming(broker) as consuming:
            await until(lambda: len(consuming.consumer.queues) == 8)
            broker.client_ids.append("zzz")
            fields = {"consumerGroup": "g"}
            broker.notify_clients(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields)
            await until(lambda: len(consuming.consumer.queues) == 4, 5)
            assert [queue.queue_id for queue in consuming.consumer.queues] == [0, 1, 0, 1]

    asyncio.run(scenario())


def test_broker_that_forgot_us_is_told_again(until: Until) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Consuming(broker) as consuming:
            await until(lambda: len(consuming.consumer.queues) == 2)
            heartbeats = len(broker.requests_of(RequestCode.HEART_BEAT))
            broker.client_ids.clear()
            consuming.consumer._balancer.rebalance_soon()
            await until(lambda: len(broker.requests_of(RequestCode.HEART_BEAT)) > heartbeats)
            await until(lambda: len(consuming.consumer.queues) == 2)

    asyncio.run(scenario())


def test_failed_message_is_sent_back_and_where_that_fails_sent_anew(until: Until) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            properties = b"UNIQ_KEY\x01U\x02TAGS\x01A\x02"
            script_pulls(
                broker,
                lambda request: pulled(
                    request, 0, 8, [b"bad"], reconsume_times=2, properties=properties
                ),
            )
            broker.fail(RequestCode.CONSUMER_SEND_MSG_BACK, ResponseCode.SYSTEM_ERROR)
            broker.responses[SEND] = stored
            async with Consuming(broker, outcome=Outcome.RETRY) as consuming:
                await until(lambda: bool(broker.requests_of(SEND)))
            [back] = broker.requests_of(RequestCode.CONSUMER_SEND_MSG_BACK)
            assert back.fields == {
                "offset": "7000",
                "group": "g",
                "delayLevel": "0",
                "originMsgId": "U",
                "originTopic": "T",
                "unitMode": "false",
                "maxReconsumeTimes": "16",
                "bname": "broker-a",
            }
            [anew] = broker.requests_of(SEND)
            assert anew.body == b"bad"
            assert {key: anew.fields[key] for key in "abhjl"} == {
                "a": "CLIENT_INNER_PRODUCER",
                "b": "%RETRY%g",
                "h": "7",
                "j": "3",
                "l": "16",
            }
            sent = decode_properties(anew.fields["i"])
            assert (sent["RETRY_TOPIC"], sent["DELAY"], sent["TAGS"]) == ("T", "5", "A")
            assert sent["ORIGIN_MESSAGE_ID"] == consuming.messages[0].offset_message_id
            commits = broker.requests_of(RequestCode.UPDATE_CONSUMER_OFFSET)
            assert {"T": "8"}.items() <= {
                request.fields["topic"]: request.fields["commitOffset"] for request in commits
            }.items()

    asyncio.run(scenario())


def test_a_message_that_cannot_be_sent_back_stays_and_is_not_committed(until: Until) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            script_pulls(broker, lambda request: pulled(request, 0, 1, [b"bad"]))
            broker.fail(RequestCode.CONSUMER_SEND_MSG_BACK, ResponseCode.SYSTEM_ERROR)
            broker.fail(SEND, ResponseCode.SERVICE_NOT_AVAILABLE)
            async with Consuming(broker, outcome=Outcome.RETRY):
                await until(lambda: bool(broker.requests_of(SEND)))
            commits = broker.requests_of(RequestCode.UPDATE_CONSUMER_OFFSET)
            assert not [request for request in commits if request.fields["commitOffset"] != "0"]

    asyncio.run(scenario())


def test_pulling_pauses_while_handlers_are_busy(until: Until) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:

            def endless(request: Command) -> Command:
                begin = int(request.fields["queueOffset"])
                return pulled(request, 0, begin + 10, [b"x"] * 10)

            hold = broker.responses[PULL]
            broker.responses[PULL] = lambda request: (
                endless(request) if request.fields["topic"] == "T" else hold(request)
            )
            go_on = asyncio.Event()
            handled = 0
            options = ConsumerOptions(concurrency=2)
            limits = FlowLimits(queue_messages=25)
            consumer = Consumer("g", broker.address, options=options, limits=limits)
            consumer.subscribe("T")

            @consumer.on_message
            async def handle(message: ReceivedMessage) -> None:
                nonlocal handled
                await go_on.wait()
                handled += 1
                if handled == 30:
                    go_on.clear()

            async with consumer:
                await until(lambda: len(pulls_of(broker)) == 3)
                await asyncio.sleep(0.1)
                assert pulls_of(broker) == [0, 10, 20]
                go_on.set()
                await until(lambda: handled >= 30)
                await asyncio.sleep(0.1)
                assert len(pulls_of(broker)) in (5, 6)
                go_on.set()

    asyncio.run(scenario())


def test_message_in_a_handler_for_too_long_is_sent_back_once(until: Until) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            script_pulls(broker, lambda request: pulled(request, 0, 1, [b"slow"]))
            entered, go_on = asyncio.Event(), asyncio.Event()
            consumer = Consumer("g", broker.address, options=ConsumerOptions(consume_timeout_ms=1))
            consumer.subscribe("T")

            @consumer.on_message
            async def handle(message: ReceivedMessage) -> Outcome:
                entered.set()
                await go_on.wait()
                return Outcome.RETRY

            async with consumer:
                await entered.wait()
                await asyncio.sleep(0.02)
                await consumer._delivery.send_back_overdue()
                go_on.set()
            [back] = broker.requests_of(RequestCode.CONSUMER_SEND_MSG_BACK)
            assert back.fields["delayLevel"] == "3"

    asyncio.run(scenario())


def test_ordered_consumer_takes_only_locked_queues(until: Until) -> None:
    async def scenario() -> None:
        async with ScriptedBroker(queues=2) as broker:
            free = {0}

            def lock(request: Command) -> Command:
                assert isinstance(request.body, bytes)
                asked = json.loads(request.body)["mqSet"]
                return new_response(
                    request,
                    0,
                    body=json.dumps(
                        {"lockOKMQSet": [queue for queue in asked if queue["queueId"] in free]}
                    ).encode(),
                )

            broker.responses[RequestCode.LOCK_BATCH_MQ] = lock
            async with Consuming(broker, ConsumerOptions(ordered=True)) as consuming:

                def held() -> set[int]:
                    return {queue.queue_id for queue in consuming.consumer.queues}

                await until(lambda: held() == {0})
                free.add(1)
                await until(lambda: held() == {0, 1})
                # Each of them: the consumer's own round may come between.
                broker.fail(RequestCode.LOCK_BATCH_MQ, ResponseCode.SYSTEM_ERROR)
                assert not await consuming.consumer._balancer.renew_locks()
                assert held() == {0, 1}
                broker.responses[RequestCode.LOCK_BATCH_MQ] = lock
                free.remove(0)
                assert await consuming.consumer._balancer.renew_locks()
                await until(lambda: held() == {1})
            unlocked = [
                queue["queueId"]
                for request in broker.requests_of(RequestCode.UNLOCK_BATCH_MQ)
                for queue in json.loads(bytes(request.body))["mqSet"]
            ]
            assert set(unlocked) == {0, 1}

    asyncio.run(scenario())


def test_operators_requests_are_answered(until: Until) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            script_pulls(broker, lambda request: pulled(request, 0, 5, [b"4"]))
            async with Consuming(broker) as consuming:
                await until(lambda: len(pulls_of(broker)) == 2)
                [info] = await broker.ask_clients(
                    RequestCode.GET_CONSUMER_RUNNING_INFO,
                    {"consumerGroup": "g", "clientId": consuming.consumer.client_id},
                    b"",
                )
                table = fastjson.loads(bytes(info.body))
                queue = '{"brokerName":"broker-a","queueId":0,"topic":"T"}'
                assert table["mqTable"][queue]["commitOffset"] == 5
                assert table["statusTable"]["T"]["consumeOKTPS"] > 0
                assert table["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
                [status] = await broker.ask_clients(
                    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "T", "group": "g"}, b""
                )
                assert fastjson.loads(bytes(status.body))["messageQueueTable"] == {queue: 5}
                [done] = await broker.ask_clients(
                    RequestCode.CONSUME_MESSAGE_DIRECTLY,
                    {"consumerGroup": "g", "brokerName": "broker-a"},
                    record_bytes("T", 9, b"direct"),
                )
                assert json.loads(bytes(done.body))["consumeResult"] == "CR_SUCCESS"
                assert consuming.messages[-1].text == "direct"
                [missing] = await broker.ask_clients(
                    RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "other"}, b""
                )
                assert missing.code == ResponseCode.SYSTEM_ERROR

    asyncio.run(scenario())


def test_reset_pushed_by_an_old_broker_moves_the_queue(until: Until) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Consuming(broker):
            await until(lambda: pulls_of(broker) == [0])
            body = b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:42}}'
            fields = {"topic": "T", "group": "g", "timestamp": "1", "isForce": "true"}
            broker.notify_clients(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body)
            broker.responses[RequestCode.QUERY_CONSUMER_OFFSET] = lambda request: new_response(
                request, 0, fields={"offset": "42"}
            )
            await until(lambda: pulls_of(broker) == [0, 42])
            commits = broker.requests_of(RequestCode.UPDATE_CONSUMER_OFFSET)
            assert [request.fields["commitOffset"] for request in commits] == ["42"]

    asyncio.run(scenario())


def test_start_where_there_is_no_offset(until: Until) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.fail(RequestCode.QUERY_CONSUMER_OFFSET, ResponseCode.QUERY_NOT_FOUND)
            offsets = {RequestCode.GET_MAX_OFFSET: "9", RequestCode.GET_MIN_OFFSET: "3"}
            for code, offset in offsets.items():
                broker.responses[code] = lambda request, offset=offset: new_response(
                    request, 0, fields={"offset": offset}
                )
            async with Consuming(broker):
                await until(lambda: len(broker.requests_of(PULL)) == 2)
                starts = {
                    request.fields["topic"]: request.fields["queueOffset"]
                    for request in broker.requests_of(PULL)
                }
                # A retry queue begins with its oldest message: it was meant for this group.
                assert starts == {"T": "9", "%RETRY%g": "3"}

    asyncio.run(scenario())


def test_refused_expression_is_raised_by_start() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.fail(RequestCode.CHECK_CLIENT_CONFIG, 23, "bad expression")
            consumer = Consumer("g", [broker.address])
            consumer.subscribe("T", sql="a >")
            with pytest.raises(BrokerError, match="bad expression"):
                await consumer.start()
            with pytest.raises(ClientError, match="once"):
                await consumer.start()
            with pytest.raises(ClientError):
                consumer.subscribe("T", "||")

    asyncio.run(scenario())
