"""Transactions: half message, local transaction, end; the brokers' checks, and errors without a
guess."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.links import WrittenDown
from tests.unit.net.client.cluster import (
    HOST,
    NAME_SERVER,
    TOPIC,
    ScriptedCluster,
    Stored,
    options,
    play,
    record_bytes,
)

from turbopump.engine.types import LogOffset
from turbopump.net.client import transactions
from turbopump.net.client.errors import BrokerError, ClientError, InvalidArgument
from turbopump.net.client.messages import Message, ReceivedMessage, SendStatus
from turbopump.net.client.options import ProducerOptions
from turbopump.net.client.producer import Producer
from turbopump.net.client.remoting_producer import RemotingProducer
from turbopump.net.client.shared_client import SharedClient, instance_of
from turbopump.net.client.transactions import (
    CONCURRENT_CHECKS,
    TransactionEnd,
    TransactionProducer,
    TransactionResult,
)
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.heartbeat import HeartbeatData
from turbopump.net.wire.message import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from turbopump.net.wire.message_id import encode_message_id

SEND, END = RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION
CHECK = RequestCode.CHECK_TRANSACTION_STATE
STORED = {
    "msgId": encode_message_id(HOST, LogOffset(7_000)),
    "queueId": "0",
    "queueOffset": "33",
    "transactionId": "X",
}
Story = Callable[[TransactionProducer], Coroutine[Any, Any, Any]]
COMMIT, ROLL_BACK, UNKNOWN = TransactionEnd


@pytest.fixture
def one(cluster: ScriptedCluster) -> ScriptedCluster:
    """A broker that stores half messages at log offset 7000, queue offset 33."""
    cluster.add("a")
    cluster.set_response("a", SEND, STORED)
    return cluster


async def never_asked(_message: ReceivedMessage) -> TransactionEnd:
    raise AssertionError("no broker asks")


def played(story: Story, check: Any = never_asked, **more: Any) -> Any:
    """The result of a story with a producer of group P."""

    async def main() -> Any:
        made = TransactionProducer(
            "P",
            NAME_SERVER,
            check=check,
            options=ProducerOptions(timeout_ms=3_000),
            client_options=options(instance_name="unit"),
            **more,
        )
        async with made:
            return await story(made)

    return play(main())


def sent(end: Any, **more: Any) -> TransactionResult:
    """Send a message whose local transaction ends with `end`, or raises it."""

    async def execute(message: Message, message_id: str) -> TransactionEnd:
        assert message.body == b"body" and len(message_id) == 32
        if isinstance(end, Exception):
            raise end
        return end

    async def story(producer: TransactionProducer) -> Any:
        return await producer.send_in_transaction(Message(TOPIC, b"body"), execute)

    result = played(story, **more)
    assert isinstance(result, TransactionResult)
    return result


@pytest.mark.parametrize(
    ("end", "flag"), [(COMMIT, TRANSACTION_COMMIT), (ROLL_BACK, TRANSACTION_ROLLBACK)]
)
def test_a_transaction_and_its_end(one: ScriptedCluster, end: TransactionEnd, flag: int) -> None:
    result = sent(end)
    assert (result.end, result.is_told, result.sent.queue_offset) == (end, True, 33)
    (half,) = one.made(SEND)
    properties = dict(pair.split("\x01") for pair in half.request.fields["i"].split("\x02") if pair)
    assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "P")
    assert "CHECK_IMMUNITY_TIME_IN_SECONDS" not in properties
    (ended,) = one.made(END)
    fields = ended.request.fields
    assert fields["commitOrRollback"] == str(flag)
    assert (fields["commitLogOffset"], fields["tranStateTableOffset"]) == ("7000", "33")
    assert (fields["producerGroup"], fields["fromTransactionCheck"]) == ("P", "false")
    assert fields["msgId"] == fields["transactionId"] == result.sent.message_id
    assert one.open == 0


def test_an_end_that_is_not_known_is_not_told(one: ScriptedCluster) -> None:
    result = sent(UNKNOWN)
    assert (result.end, result.is_told) == (UNKNOWN, False) and not one.made(END)


def test_an_exception_of_a_local_transaction_is_raised_and_nothing_is_guessed(
    one: ScriptedCluster,
) -> None:
    with pytest.raises(ZeroDivisionError):
        sent(ZeroDivisionError())
    assert len(one.made(SEND)) == 1 and not one.made(END), "the broker asks later"


@pytest.mark.parametrize("status", [one for one in SendStatus if one is not SendStatus.SEND_OK])
def test_a_half_message_that_is_not_safe_is_rolled_back(
    one: ScriptedCluster, monkeypatch: pytest.MonkeyPatch, status: SendStatus
) -> None:
    real = RemotingProducer.send

    async def less_safe(self: Any, *words: Any, **more: Any) -> Any:
        result = await real(self, *words, **more)
        object.__setattr__(result, "status", status)
        return result

    monkeypatch.setattr(RemotingProducer, "send", less_safe)
    result = sent(ZeroDivisionError())
    assert (result.end, result.is_told) == (ROLL_BACK, True), "execute is not called"
    (ended,) = one.made(END)
    assert ended.request.fields["commitOrRollback"] == str(TRANSACTION_ROLLBACK)

    async def block(producer: TransactionProducer) -> None:
        async with producer.transaction(Message(TOPIC, b"body")):
            raise AssertionError("the block does not begin")

    with pytest.raises(ClientError, match=f"the half message is not safe: {status.value}"):
        played(block)
    assert len(one.made(END)) == 2


@pytest.mark.parametrize("response", [ResponseCode.SYSTEM_ERROR, None])
def test_an_end_that_no_broker_took(one: ScriptedCluster, response: ResponseCode | None) -> None:
    one.fail("a", END, response)
    result = sent(COMMIT)
    assert (result.end, result.is_told) == (COMMIT, False)


@pytest.mark.parametrize("message_id", ["ID", "", "Z" * 32, "0" * 33])
def test_an_id_that_names_no_place_leaves_the_end_to_the_broker(
    one: ScriptedCluster, message_id: str
) -> None:
    """An error after the local transaction would leave the caller without its end."""
    one.set_response("a", SEND, {**STORED, "msgId": message_id})
    result = sent(COMMIT)
    assert (result.end, result.is_told) == (COMMIT, False) and not one.made(END)


def test_a_half_message_that_was_not_stored(one: ScriptedCluster) -> None:
    one.set_response("a", SEND, ResponseCode.MESSAGE_ILLEGAL)
    with pytest.raises(BrokerError):
        sent(COMMIT)
    assert not one.made(END)


def test_a_message_of_a_transaction_has_no_delay_level(one: ScriptedCluster) -> None:
    async def story(producer: TransactionProducer) -> Any:
        message = Message(TOPIC, b"body", delay_level=3)
        return await producer.send_in_transaction(message, never_called)

    async def never_called(_message: Message, _id: str) -> TransactionEnd:
        raise AssertionError("it is refused before")

    with pytest.raises(InvalidArgument, match="cannot be delayed"):
        played(story)
    assert not one.made(SEND)


def test_the_broker_knows_the_group_before_it_may_ask(one: ScriptedCluster) -> None:
    async def story(producer: TransactionProducer) -> None:
        for _ in range(3):
            await producer.send_in_transaction(Message(TOPIC, b"body"), commit)

    async def commit(_message: Message, _id: str) -> TransactionEnd:
        return COMMIT

    played(story, immunity_s=9)
    beats = [call for call in one.made(RequestCode.HEART_BEAT) if b'"P"' in call.request.body]  # type: ignore[operator]
    assert beats and one.calls.index(beats[0]) < one.calls.index(one.made(END)[0])
    assert "CHECK_IMMUNITY_TIME_IN_SECONDS\x019\x02" in one.made(SEND)[0].request.fields["i"]


def test_a_block_is_a_local_transaction(one: ScriptedCluster) -> None:
    async def story(producer: TransactionProducer) -> None:
        async with producer.transaction(Message(TOPIC, b"body")) as half:
            assert half.queue_offset == 33 and not one.made(END)
        with pytest.raises(KeyError):
            async with producer.transaction(Message(TOPIC, b"body")):
                raise KeyError
        with pytest.raises(asyncio.CancelledError):
            async with producer.transaction(Message(TOPIC, b"body")):
                raise asyncio.CancelledError

    played(story)
    ends = [call.request.fields["commitOrRollback"] for call in one.made(END)]
    assert ends == [str(TRANSACTION_COMMIT), str(TRANSACTION_ROLLBACK)], (
        "nothing is known of a cancelled transaction"
    )


def asked(one: ScriptedCluster, number: int, group: str = "P") -> WrittenDown:
    """Send a broker's transaction check; returns the link that receives the answer."""
    link = WrittenDown()
    properties = f"PGROUP\x01{group}\x02UNIQ_KEY\x01ID{number}\x02TRAN_MSG\x01true\x02".encode()
    body = record_bytes((TOPIC, 0), number, Stored(b"%d" % number, properties))
    fields = {"tranStateTableOffset": str(number), "commitLogOffset": "7000", "bname": "a"}
    fields |= {"msgId": f"ID{number}", "transactionId": "X"}
    assert one.dispatcher is not None
    one.dispatcher.dispatch(
        Command(CHECK, fields=fields, body=body), Peer("127.0.0.1:11000", HOST, link), 0
    )
    return link


@pytest.mark.parametrize("end", [COMMIT, ROLL_BACK, UNKNOWN])
def test_a_broker_asks(one: ScriptedCluster, end: TransactionEnd) -> None:
    seen: list[bytes] = []

    async def check(message: ReceivedMessage) -> TransactionEnd:
        seen.append(bytes(message.body))
        return end

    async def story(_producer: TransactionProducer) -> tuple[WrittenDown, WrittenDown]:
        links = asked(one, 5), asked(one, 6, "another")
        await asyncio.sleep(1)
        return links

    mine, others = played(story, check)
    assert seen == [b"5"] and others.sent == [], "of this group alone"
    if end is UNKNOWN:
        assert mine.sent == []
        return
    (response,) = mine.sent
    assert response.code == END and response.is_oneway
    assert response.fields["commitOrRollback"] == str(end.value)
    assert (response.fields["tranStateTableOffset"], response.fields["msgId"]) == ("5", "ID5")
    assert response.fields["fromTransactionCheck"] == "true"


def test_checks_are_bounded_and_one_that_fails_is_asked_again(
    one: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "MAX_CHECKS", 50)
    at_once, most, total = 0, 0, 0

    async def check(message: ReceivedMessage) -> TransactionEnd:
        nonlocal at_once, most, total
        at_once, total = at_once + 1, total + 1
        most = max(most, at_once)
        await asyncio.sleep(1)
        at_once -= 1
        if int(message.body) % 2:
            raise ValueError("the database is away")
        return COMMIT

    async def story(_producer: TransactionProducer) -> list[WrittenDown]:
        links = [asked(one, number) for number in range(60)]
        await asyncio.sleep(10)
        again = asked(one, 99)
        await asyncio.sleep(10)
        assert total == 51, "places are free again, also of failed transactions"
        return [*links, again]

    links = played(story, check)
    assert most == CONCURRENT_CHECKS
    assert all(not link.sent for link in links[50:60]), "checks beyond the limit come again later"
    assert [bool(link.sent) for link in links[:50]] == [True, False] * 25


async def commit(_message: ReceivedMessage) -> TransactionEnd:
    return COMMIT


def shared() -> SharedClient:
    return SharedClient(NAME_SERVER, options(instance_name="unit"))


async def answers(one: ScriptedCluster) -> list[str]:
    """The ends that a check of group P receives, within a second."""
    link = asked(one, 5)
    await asyncio.sleep(1)
    return [response.fields["commitOrRollback"] for response in link.sent]


async def heard_groups(one: ScriptedCluster, client: SharedClient) -> list[str]:
    """The producer groups in a heartbeat of the client."""
    await instance_of(client).heartbeat([one.named("a").address])
    body = one.made(RequestCode.HEART_BEAT)[-1].request.body
    assert isinstance(body, bytes)
    data = HeartbeatData.decode(body)
    assert data.client_id == "127.0.0.1@unit"
    return [group.group_name for group in data.producer_data_set]


def test_a_second_producer_of_a_group_in_a_shared_client_is_refused(one: ScriptedCluster) -> None:
    """A broker sends a check to the group and the client, and either producer would receive it."""

    async def story() -> None:
        client = shared()
        first = TransactionProducer("P", client=client, check=commit)
        second = TransactionProducer("P", client=client, check=never_asked)
        async with first, TransactionProducer("Q", client=client, check=never_asked):
            for _ in range(2):
                with pytest.raises(ClientError, match="group P has a producer of transactions"):
                    await second.start()
                assert await answers(one) == [str(TRANSACTION_COMMIT)]
                await second.close()
            assert await answers(one) == [str(TRANSACTION_COMMIT)]
            assert await heard_groups(one, client) == ["P", "Q"]
        assert one.open == 0
        async with TransactionProducer("P", client=client, check=commit):
            assert await answers(one) == [str(TRANSACTION_COMMIT)], "the first has closed"
        assert one.open == 0

    play(story())


def test_a_check_that_raises_a_cancellation_is_logged(
    one: ScriptedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The program's own task was cancelled, while the check waited for it."""

    async def check(_message: ReceivedMessage) -> TransactionEnd:
        lost = asyncio.create_task(asyncio.sleep(60))
        lost.cancel()
        await lost
        return COMMIT

    async def story() -> None:
        async with TransactionProducer("P", client=shared(), check=check):
            assert await answers(one) == []

    play(story())
    assert ["raised CancelledError" in text for text in caplog.messages] == [True]


def test_a_producer_of_the_group_without_transactions_changes_no_check(
    one: ScriptedCluster,
) -> None:
    async def story() -> None:
        client = shared()
        plain = [Producer("P", client=client) for _ in range(2)]
        checked = TransactionProducer("P", client=client, check=commit)
        async with plain[0]:
            async with checked:
                async with plain[1]:
                    await plain[1].queues(TOPIC)
                    assert await answers(one) == [str(TRANSACTION_COMMIT)]
                assert await answers(one) == [str(TRANSACTION_COMMIT)]
            assert await answers(one) == [], "nothing knows the end of the transaction"
            assert await heard_groups(one, client) == ["P"]
            assert not one.made(RequestCode.UNREGISTER_CLIENT), "the group has a producer"
        (leaving,) = one.made(RequestCode.UNREGISTER_CLIENT)
        assert leaving.request.fields["producerGroup"] == "P"
        assert one.open == 0

    play(story())


def test_checks_end_with_their_producer_though_others_share_the_client(
    one: ScriptedCluster,
) -> None:
    ended: list[str] = []

    async def slow(message: ReceivedMessage) -> TransactionEnd:
        try:
            await asyncio.sleep(5)
        finally:
            ended.append(message.message_id)
        return COMMIT

    async def story() -> None:
        client = shared()
        made = TransactionProducer("P", client=client, check=slow)
        async with Producer("Other", client=client):
            for _ in range(2):
                async with made:
                    links = [asked(one, number) for number in range(CONCURRENT_CHECKS + 5)]
                    await asyncio.sleep(1)
                assert len(ended) == CONCURRENT_CHECKS, "the others have not begun"
                ended.clear()
                assert not len(made._checks), "a later start has room for as many checks"
                await asyncio.sleep(10)
                assert not any(link.sent for link in links)

    play(story())


def test_a_producer_that_starts_again_makes_its_group_known_again(one: ScriptedCluster) -> None:
    async def end(_message: Message, _id: str) -> TransactionEnd:
        return COMMIT

    async def story() -> None:
        client = shared()
        made = TransactionProducer("P", client=client, check=commit)
        async with Producer("Other", client=client):
            for times in (1, 2):
                async with made:
                    await made.send_in_transaction(Message(TOPIC, b"body"), end)
                    beats = one.made(RequestCode.HEART_BEAT)
                    assert len(beats) == times
                assert len(one.made(RequestCode.UNREGISTER_CLIENT)) == times

    play(story())


def test_a_check_closes_its_producer(one: ScriptedCluster) -> None:
    """The check goes on after the close, and can start the producer again."""
    ends: list[float] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()

        async def closes(_message: ReceivedMessage) -> TransactionEnd:
            await made.close()
            await asyncio.sleep(1)
            assert one.open == 0
            await made.start()
            ends.append(loop.time())
            return COMMIT

        made = TransactionProducer("P", client=shared(), check=closes)
        await made.start()
        link = asked(one, 5)
        await asyncio.sleep(0.5)
        assert one.open == 0
        await asyncio.sleep(1)
        assert ends == [1.0] and len(link.sent) == 1
        await made.close()
        assert one.open == 0 and len(asyncio.all_tasks()) == 1

    play(story())


def test_a_check_ends_at_once_after_the_close_of_its_producer(one: ScriptedCluster) -> None:
    async def story() -> None:
        async def closes(_message: ReceivedMessage) -> TransactionEnd:
            await made.close()
            return COMMIT

        made = TransactionProducer("P", client=shared(), check=closes)
        await made.start()
        link = asked(one, 5)
        await asyncio.sleep(1)
        assert [response.fields["commitOrRollback"] for response in link.sent] == [
            str(TRANSACTION_COMMIT)
        ]
        assert one.open == 0 and len(asyncio.all_tasks()) == 1

    play(story())
