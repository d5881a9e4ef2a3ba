"""Messages that wait for a time or a commit while the configuration changes: recalls that reach no
other topic, removed delay levels and queues, batches whose elements would have to wait."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.lane.world import Driven, frame_of
from tests.unit.broker.scheduled.test_timers import send
from tests.unit.broker.scheduled.test_transactions import COMMIT, end, prepare

from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Codec, Command, encode, new_request
from turbopump.net.wire.headers.send import RecallMessageRequest, SendMessageRequestV2
from turbopump.net.wire.headers.transactions import EndTransactionRequest
from turbopump.net.wire.message import encode_batch
from turbopump.net.wire.message_id import decode_handle, decode_message_id
from turbopump.net.wire.properties import decode_properties, encode_properties
from turbopump.net.wire.topics import TopicConfig
from turbopump.pyx.record import Record

RECALLS = "recallMessageEnable=true\n"


def records(world: Any, topic: str = "T", queues: int = 8) -> list[tuple[int, Record]]:
    """(queue id, record) of all messages of a topic."""
    store = world.broker.store
    return [
        (queue_id, store.record(unit.log_offset))
        for queue_id in range(queues)
        for unit in store.units(topic, queue_id, QueueOffset(0), 10_000)
    ]


def bodies(world: Any, topic: str = "T") -> list[bytes]:
    return [record.body for _, record in records(world, topic)]


@pytest.fixture
def drive() -> Iterator[Callable[[Any], Driven]]:
    """Makes native connections, and closes them."""
    made: list[Driven] = []

    def make(world: Any) -> Driven:
        made.append(Driven(world))
        return made[-1]

    yield make
    for driven in made:
        driven.near.close()
        driven.far.close()


def recall(world: Any, topic: str, handle: str, group: str = "PG") -> Command:
    request = RecallMessageRequest(topic, handle, group)
    return world.ask(RequestCode.RECALL_MESSAGE, request)


# Recalls


@pytest.mark.parametrize("with_topic", ["true", "false"])
def test_a_recall_reaches_no_message_of_another_topic(make_world: Any, with_topic: str) -> None:
    world = make_world(f"{RECALLS}appendTopicForTimerDeleteKey={with_topic}\n")
    at_ms = world.now_ms + 3_000
    sent = [
        send(world, topic.encode(), topic, TIMER_DELIVER_MS=at_ms, UNIQ_KEY="K")
        for topic in ("T", "U")
    ]
    assert recall(world, "T", sent[0].fields["recallHandle"]).code == 0
    (*_, (_, stored)) = records(world, TIMER_TOPIC, 1)
    named = decode_properties(stored.properties)["TIMER_DEL_UNIQKEY"]
    assert named == ("T+K" if with_topic == "true" else "K")
    world.pass_time(5_000)
    assert (bodies(world), bodies(world, "U")) == ([], [b"U"])


def test_a_forged_handle_of_another_topic_recalls_nothing(make_world: Any) -> None:
    world = make_world(RECALLS)
    handle = decode_handle(send(world, b"yes", TIMER_DELAY_SEC=3).fields["recallHandle"])
    send(world, b"other", topic="U")
    forged = dataclasses.replace(handle, topic="U").encode()
    recall(world, "U", forged)
    world.pass_time(5_000)
    assert bodies(world) == [b"yes"]
    assert bodies(world, "U") == [b"other"]


@pytest.mark.parametrize("kind", ["timer", "half"])
def test_a_send_recalls_only_where_recalls_are_enabled(make_world: Any, kind: str) -> None:
    world = make_world()
    key = decode_handle(send(world, b"yes", TIMER_DELAY_SEC=3).fields["recallHandle"]).message_id
    more = {"TRAN_MSG": "true", "PGROUP": "PG"} if kind == "half" else {}
    asked = {"TIMER_DELAY_SEC": 3, "TIMER_DEL_UNIQKEY": key, **more}
    assert send(world, b"no", **asked).code == ResponseCode.NO_PERMISSION
    world.config.recall_message_enable = True
    assert send(world, b"no", TIMER_DEL_UNIQKEY=key, TIMER_DELIVER_MS=5).code == (
        ResponseCode.MESSAGE_ILLEGAL
    )
    world.pass_time(1_000)
    assert send(world, b"no", **{**asked, "TIMER_DELAY_SEC": 2}).code == 0
    world.pass_time(5_000)
    # a half message recalls only if committed
    assert bodies(world) == ([] if kind == "timer" else [b"yes"])


@pytest.mark.parametrize("message_id", ["", "a\x02b", "\x01", "TIMER_DELAY_SEC\x011\x02"])
def test_a_handle_whose_id_is_no_text_of_a_property_is_refused(
    make_world: Any, message_id: str
) -> None:
    world = make_world(RECALLS)
    handle = decode_handle(send(world, b"yes", TIMER_DELAY_SEC=3).fields["recallHandle"])
    forged = dataclasses.replace(handle, message_id=message_id).encode()
    assert recall(world, "T", forged).code == ResponseCode.ILLEGAL_OPERATION
    assert recall(world, "T", handle.encode(), "P\x02G").code == ResponseCode.ILLEGAL_OPERATION
    world.pass_time(5_000)
    assert bodies(world) == [b"yes"]


# Delay levels and queues that are gone


@pytest.mark.parametrize("levels", ["1s 2s", "1s", "1s 1s 1s 1s", "1s 1m 1m"])
def test_messages_keep_their_time_when_delay_levels_change(
    make_world: Callable[..., Any], levels: str
) -> None:
    world = make_world()
    for level in (3, 4):
        assert send(world, b"%d" % level, DELAY=level).code == 0
    begin_ms = world.now_ms
    world.close()
    world.config.message_delay_level = levels
    world.open()
    world.pass_time(40_000)
    came = {record.body: record.store_timestamp_ms - begin_ms for _, record in records(world)}
    assert {body: ms // 1_000 for body, ms in came.items()} == {b"3": 10, b"4": 30}


def test_a_clock_that_was_set_back_holds_no_message_of_a_level_that_is_gone(
    make_world: Callable[..., Any],
) -> None:
    world = make_world()
    send(world, b"x", DELAY=4)
    world.close()
    world.config.message_delay_level = "1s"
    world.open()
    world.set_clock(-3_600_000)
    world.pass_time(200)
    assert bodies(world) == [b"x"]


@pytest.mark.parametrize("asked", [{"DELAY": 2}, {"TIMER_DELAY_MS": 4_500}, {"TRAN_MSG": "true"}])
def test_a_waiting_message_is_delivered_although_the_largest_size_was_lowered(
    make_world: Callable[..., Any], asked: dict[str, object]
) -> None:
    world = make_world("transactionTimeOut=1000\ntransactionCheckInterval=500\n")
    world.pass_time(100)
    half = prepare(world, b"x" * 5_000, 2) if "TRAN_MSG" in asked else None
    assert half is not None or send(world, b"x" * 5_000, **asked).code == 0
    world.close()
    world.config.store = dataclasses.replace(world.config.store, max_message_size=1_000)
    world.open()
    world.pass_time(7_000)
    assert half is None or end(world, half, COMMIT).code == 0
    assert bodies(world) == [b"x" * 5_000]
    assert send(world, b"x" * 5_000, **asked).code == ResponseCode.MESSAGE_ILLEGAL


def narrow(world: Any, topic: str = "T") -> None:
    world.broker.topics.put(TopicConfig(topic, 2, 2), world.now_ms)


def to_queue(world: Any, queue_id: int, body: bytes, **properties: object) -> None:
    texts = {name: str(value) for name, value in properties.items()}
    header = SendMessageRequestV2(
        "PG", "T", "TBW102", 8, queue_id, 0, 77, 5, properties=encode_properties(texts).decode()
    )
    assert world.ask(RequestCode.SEND_MESSAGE_V2, header, body).code == 0


@pytest.fixture
def wide(world: Any) -> Any:
    """A broker with a topic of eight queues that are in use, also by timers."""
    world.broker.topics.put(TopicConfig("T", 8, 8), world.now_ms)
    for queue_id in range(8):
        to_queue(world, queue_id, b"first", TIMER_DELAY_MS=100)
    world.pass_time(2_000)
    assert [queue_id for queue_id, _ in records(world)] == list(range(8))
    return world


@pytest.mark.parametrize("asked", [{"DELAY": 2}, {"TIMER_DELAY_MS": 4_500}])
@pytest.mark.parametrize("restart", [False, True])
def test_a_message_that_waits_for_a_removed_queue_goes_into_another(
    wide: Any, asked: dict[str, object], restart: bool
) -> None:
    for queue_id in range(8):
        to_queue(wide, queue_id, b"%d" % queue_id, **asked)
    narrow(wide)
    if restart:
        wide.close()
        wide.open()
    wide.pass_time(7_000)
    came = {r.body: queue_id for queue_id, r in records(wide) if r.body != b"first"}
    assert came == {b"%d" % number: number % 2 for number in range(8)}


def test_a_message_committed_to_a_removed_queue_goes_into_another(wide: Any) -> None:
    half = prepare(wide, b"paid", 7)
    narrow(wide)
    assert end(wide, half, COMMIT).code == 0
    assert [queue_id for queue_id, record in records(wide) if record.body == b"paid"] == [1]


def test_the_native_path_commits_to_no_queue_that_is_gone(
    wide: Any, drive: Callable[[Any], Driven]
) -> None:
    driven = drive(wide)
    wide.broker.transactions.step(wide.now_ms)
    halves = [prepare(wide, b"%d" % queue_id, queue_id) for queue_id in (7, 1)]
    narrow(wide)
    for opaque in range(2):  # the native path learns the topic again
        driven.feed(plain_frame(opaque), 1 << 20)
    for half in halves:
        header = EndTransactionRequest(
            "PG", half.queue_offset, decode_message_id(half.msg_id)[1], COMMIT, half.transaction_id
        )
        driven.feed(b"".join(encode(new_request(RequestCode.END_TRANSACTION, header))), 1 << 20)
    assert driven.lane.end_count == 1  # the end for the queue that still exists
    came = {record.body: queue_id for queue_id, record in records(wide)}
    assert (came[b"7"], came[b"1"]) == (1, 1)


def test_a_topic_that_was_widened_again_gets_its_messages_where_they_were_for(wide: Any) -> None:
    to_queue(wide, 7, b"x", TIMER_DELAY_MS=4_500)
    narrow(wide)
    wide.pass_time(1_000)
    wide.broker.topics.put(TopicConfig("T", 8, 8), wide.now_ms)
    wide.pass_time(5_000)
    assert [queue_id for queue_id, record in records(wide) if record.body == b"x"] == [7]


def plain_frame(opaque: int) -> bytes:
    keyed = "UNIQ_KEY\x017F0000010000558C00000000000000EE\x02"
    return frame_of(
        {"code": 10, "topic": "T", "queue_id": 0, "body": b"x", "sys_flag": 0, "flag": 0,
         "reconsume_times": None, "batch": None, "oneway": False, "codec": Codec.JSON,
         "version": 513, "properties": keyed},
        opaque,
    )  # fmt: skip


# Batches

WAITS = (
    {"TIMER_DELAY_MS": "5000"},
    {"TIMER_DELAY_SEC": "5"},
    {"TIMER_DELIVER_MS": "99999999999999"},
    {"TRAN_MSG": "true", "PGROUP": "PG"},
    {"DELAY": "2"},
)


def send_batch(world: Any, properties: dict[str, str], *elements: dict[str, str]) -> Command:
    header = SendMessageRequestV2(
        *("PG", "T", "TBW102", 4, 0, 0, 77, 5),
        batch=True,
        properties=encode_properties(properties).decode(),
    )
    parts = [(0, b"%d" % number, encode_properties(one)) for number, one in enumerate(elements)]
    response = world.ask(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(parts))
    assert isinstance(response, Command)
    return response


@pytest.mark.parametrize("asked", WAITS)
def test_a_batch_that_would_have_to_wait_is_refused(world: Any, asked: dict[str, str]) -> None:
    assert send_batch(world, asked, {}, {}).code == ResponseCode.MESSAGE_ILLEGAL
    assert send_batch(world, {}, {}, asked, {}).code == ResponseCode.MESSAGE_ILLEGAL
    assert bodies(world) == []
    texts = {"K": "DELAY", "TIMER_DELTA": "TRAN_MSG", "TIMER": "TIMER_DELAY_MS"}
    assert send_batch(world, {}, texts, {}).code == 0
    assert bodies(world) == [b"0", b"1"]


def batch_frame(opaque: int, *elements: dict[str, str]) -> bytes:
    parts = [(0, b"%d" % number, encode_properties(one)) for number, one in enumerate(elements)]
    return frame_of(
        {"code": 320, "topic": "T", "queue_id": 0, "body": encode_batch(parts), "sys_flag": 0,
         "flag": 0, "reconsume_times": None, "batch": True, "oneway": False, "codec": Codec.JSON,
         "version": 513, "properties": ""},
        opaque,
    )  # fmt: skip


@pytest.mark.parametrize("asked", WAITS)
def test_the_native_path_takes_no_element_that_would_have_to_wait(
    world: Any, drive: Callable[[Any], Driven], asked: dict[str, str]
) -> None:
    driven = drive(world)
    for opaque in range(2):
        driven.feed(batch_frame(opaque, {}, {}), 1 << 20)
    served = driven.lane.send_count
    assert served > 0
    driven.feed(batch_frame(9, {}, asked), 1 << 20)
    assert driven.lane.send_count == served
    assert bodies(world) == [b"0", b"1"] * 2
