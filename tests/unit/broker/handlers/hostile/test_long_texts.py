"""Tables limit the bytes that peers can store in them, and the length of names."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.handlers.hostile.test_hostile_names import NAMES, bodies_of, numbers

from turbopump.broker.tables import consumers, locks, long_polling, producers
from turbopump.broker.tables.consumers import ConsumerTable, TooManyGroups
from turbopump.broker.tables.locks import LEASE_MS, QueueLocks
from turbopump.broker.tables.producers import ProducerTable, TooManyProducerGroups
from turbopump.engine.deferred import Deferred
from turbopump.net.wire.command import Command, decode, encode
from turbopump.net.wire.headers.pull import SUBSCRIPTION_FLAG, SUSPEND_FLAG
from turbopump.net.wire.names import MAX_ANY_NAME_LENGTH
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.subscription import parse_subscription

LONG = 20_000
ROUNDS = 3
NOW = 1_000_000


def text(number: int, size: int = LONG) -> str:
    """A text that differs from the texts of all other calls."""
    return f"{number:07d}".ljust(size, "x")


def kept(work: Callable[[], object]) -> int:
    """Number of bytes that `work` allocates and keeps."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def test_no_request_leaves_a_long_text_behind(admin: Any) -> None:
    admin.create_topic("T")

    def ask_all(code: int, first: int = 0) -> None:
        for number in range(first, first + ROUNDS):
            name = text(number)
            fields = numbers(admin.now_ms) | dict.fromkeys(NAMES, name)
            for body in bodies_of(name):
                admin.begin(code, body, **fields)
                known = ("topic", "b") if number % 2 else ("group", "consumerGroup")
                admin.begin(code, body, **(fields | dict.fromkeys(known, "T")))
        admin.tool.context["wire"].sent.clear()

    tracemalloc.start()
    try:
        for code in sorted(admin.world.table.codes):
            ask_all(code)  # the first use of a code allocates objects that are no texts of a peer
            before = tracemalloc.get_traced_memory()[0]
            ask_all(code, ROUNDS)
            if tracemalloc.get_traced_memory()[0] - before > 2 * LONG:
                gc.collect()
            size = tracemalloc.get_traced_memory()[0] - before
            assert size < 2 * LONG, f"{code} keeps {size} bytes"
    finally:
        tracemalloc.stop()


def pull(admin: Any, number: int, peer: Any, **fields: object) -> Any:
    return admin.begin(
        11,
        b"",
        peer,
        consumerGroup="G",
        topic="T",
        queueId=0,
        queueOffset=0,
        maxMsgNums=32,
        sysFlag=SUBSCRIPTION_FLAG | SUSPEND_FLAG,
        commitOffset=0,
        suspendTimeoutMillis=15_000,
        subVersion=number,
        **fields,
    )


def test_a_refused_kind_of_expression_is_not_kept(admin: Any) -> None:
    admin.create_topic("T")

    def attack() -> None:
        for number in range(ROUNDS):
            kind = text(number)
            response = pull(admin, number, None, subscription="a > 1", expressionType=kind)
            assert isinstance(response, Command) and response.code == 23
            response = pull(admin, number, None, subscription="a >", expressionType="SQL92")
            assert isinstance(response, Command) and response.code == 23

    attack()
    assert kept(attack) < LONG
    assert admin.broker.consumers.find_subscription("G", "T") is None


def test_held_pulls_keep_little_and_are_counted(
    admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.create_topic("T")
    holds, peer = admin.broker.held_pulls, admin.connect()
    expression = "||".join(f"tag{number}" for number in range(2_000))
    assert isinstance(pull(admin, 0, peer, subscription="*", bname=text(0)), Deferred)
    assert holds.size < long_polling.HOLD_SIZE + 500
    monkeypatch.setattr(long_polling, "MAX_SIZE", 1 << 18)
    responses: list[Any] = []

    def attack() -> None:
        responses.extend(
            pull(admin, number, peer, subscription=f"x{number}||{expression}")
            for number in range(50)
        )

    size = kept(attack)
    held = sum(isinstance(response, Deferred) for response in responses)
    assert 5 <= held < 20, "those beyond the bound are answered at once"
    assert size < 1 << 19
    assert holds.size <= 1 << 18
    holds.drop_pulls(peer)
    assert (holds.size, holds.count) == (0, 0)


def test_a_language_is_one_of_the_list() -> None:
    known = decode(b"".join(encode(Command(1, language="RUST"))))
    assert known.language == "RUST"
    made_up = decode(b"".join(encode(Command(1, language=text(1)))))
    assert made_up.language == "OTHER"


@pytest.mark.parametrize("member", ["consumerGroup", "clientId", "topic", "brokerName"])
def test_locks_of_long_names_are_refused(admin: Any, member: str) -> None:
    def body(size: int) -> dict[str, Any]:
        names = {"consumerGroup": "g", "clientId": "c", "topic": "T", "brokerName": "b"}
        names[member] = text(1, size)
        queue = {"topic": names["topic"], "brokerName": names["brokerName"], "queueId": 0}
        return {
            "clientId": names["clientId"],
            "consumerGroup": names["consumerGroup"],
            "mqSet": [queue],
        }

    assert admin.ask(41, body(MAX_ANY_NAME_LENGTH)).code == 0
    assert admin.ask(41, body(MAX_ANY_NAME_LENGTH + 1)).code == 29
    assert len(admin.broker.locks) == 1


@pytest.mark.parametrize("letter", ["x", "主"])
def test_counts_of_tables_equal_their_contents(
    kit: Any, monkeypatch: pytest.MonkeyPatch, letter: str
) -> None:
    """A table that an attacker fills stays within its byte limit, and its count returns to zero."""
    monkeypatch.setattr(locks, "MAX_SIZE", 1 << 20)
    monkeypatch.setattr(producers, "MAX_SIZE", 1 << 20)
    monkeypatch.setattr(consumers, "MAX_MEMBERS", 1 << 20)
    monkeypatch.setattr(consumers, "MAX_COMPENSATED", 1 << 20)
    held, made, used = QueueLocks(), ProducerTable(), ConsumerTable()
    peers = [kit.connect() for _ in range(4)]

    def name(number: int) -> str:
        return f"{number:05d}".ljust(MAX_ANY_NAME_LENGTH, letter)

    def fill_locks() -> None:
        for number in range(2_000):
            queue = MessageQueue(name(number), name(number), 0)
            held.lock(name(number), name(number), [queue], NOW)

    def fill_producers() -> None:
        with pytest.raises(TooManyProducerGroups):
            for number in range(4_000):
                made.register(peers[number // 1_000], name(number), name(number), NOW)

    def fill_consumers() -> None:
        with pytest.raises(TooManyGroups):
            for number in range(4_000):
                group = kit.consumer(name(number))
                used.register(peers[number // 1_000], name(number), group, NOW)

    def fill_compensated() -> None:
        for number in range(1_000):
            tags = "||".join(f"{tag}" for tag in range(number % 300))
            used.remember_subscription(name(number), name(0), parse_subscription("T", tags), NOW)

    for fill in (fill_locks, fill_producers, fill_consumers, fill_compensated):
        assert 300_000 < kept(fill) < 1_400_000, fill.__name__
    held.remove_expired(NOW + LEASE_MS + 1)
    for peer in peers:
        made.peer_closed(peer)
        used.peer_closed(peer)
    used.forget_compensated(NOW + 1, 0)
    assert (held.size, made.size, used.members_size, used.compensated_size) == (0, 0, 0, 0)


def test_a_ban_needs_names_and_a_group_has_a_bounded_bean(admin: Any) -> None:
    for group, topic in ((text(1), "T"), ("G", text(1)), ("..", "T"), ("G", "..")):
        assert admin.ask(353, group=group, topic=topic, readable=False).code == 29
    assert admin.ask(353, group="G", topic="T", readable=False).code == 0
    assert admin.ask(200, {"groupName": "G", "unknown": text(1)}).code == 29
    assert admin.ask(200, {"groupName": "G", "unknown": "short"}).code == 0
    assert admin.ask(314, srcGroup="G", destGroup=text(1), topic="T").code == 29
