"""The native path with a slow disk, and the conditions under which it leaves requests to
handlers."""

import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from tests.lane.requests import HALF
from tests.lane.world import Driven, end_of, frame_of, make

from turbopump.broker.traffic.fast_path import MAX_WAITING
from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.engine.types import FlushMode, QueueOffset
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Codec, decode, encode, new_request
from turbopump.net.wire.headers.pull import PullMessageRequest
from turbopump.net.wire.headers.transactions import EndTransactionRequest
from turbopump.net.wire.message import encode_batch
from turbopump.net.wire.names import HALF_TOPIC
from turbopump.net.wire.properties import decode_properties

SEND: dict[str, Any] = {
    "code": 310,
    "codec": Codec.JSON,
    "topic": "Plain",
    "queue_id": 0,
    "sys_flag": 0,
    "flag": 0,
    "reconsume_times": None,
    "batch": None,
    "oneway": False,
    "body": b"body",
    "version": 513,
    "properties": "UNIQ_KEY\x017F0000010000558C00000000000000EF\x02WAIT\x01true\x02",
}


@pytest.fixture
def driven() -> Iterator[Driven]:
    """A connection to a broker with SYNC_FLUSH whose next simple sends are native."""
    with tempfile.TemporaryDirectory() as folder:
        world = make(folder, FlushMode.SYNC_FLUSH)
        connection = Driven(world)
        send(connection, 0)
        send(connection, 1)
        assert connection.lane.send_count == 1
        yield connection
        world.close()
        connection.near.close()
        connection.far.close()


def send(driven: Driven, opaque: int, **changes: Any) -> None:
    driven.feed(frame_of({**SEND, **changes}, opaque), 1 << 20)


def code(driven: Driven, opaque: int) -> int | None:
    """The response code of a request, None while there is no response."""
    driven.collect()
    responses = driven.responses.get(opaque, [])
    assert len(responses) <= 1
    return decode(responses[0]).code if responses else None


@pytest.mark.parametrize("size", [-8, 0, 22, 1 << 30])
@pytest.mark.parametrize("at", [0, 23])
def test_a_batch_whose_sizes_do_not_add_up_is_refused(driven: Driven, size: int, at: int) -> None:
    whole = encode_batch([(0, b"x", b"")] * 2)
    send(driven, 2, batch=True, body=whole)
    before, native = driven.world.broker.store.max_log_offset, driven.lane.send_count
    assert native == 2, "a plain batch is served natively"
    body = whole[:at] + size.to_bytes(4, "big", signed=True) + whole[at + 4 :]
    send(driven, 3, batch=True, body=body)
    assert (code(driven, 2), code(driven, 3)) == (0, ResponseCode.MESSAGE_ILLEGAL)
    assert driven.world.broker.store.max_log_offset == before


def test_requests_for_light_queues_are_refused(driven: Driven) -> None:
    before, native = driven.world.broker.store.max_log_offset, driven.lane.send_count
    asked = "INNER_MULTI_DISPATCH\x01%LMQ%a\x02"
    send(driven, 2, properties=SEND["properties"] + asked)
    body = encode_batch([(0, b"x", b""), (0, b"x", asked.encode())])
    send(driven, 3, batch=True, body=body)
    assert (code(driven, 2), code(driven, 3)) == (1, 1)
    assert driven.world.broker.store.max_log_offset == before
    assert driven.lane.send_count == native


def test_a_delay_is_not_native_while_the_log_is_ahead_of_the_clock(driven: Driven) -> None:
    """The delay would count from the store time of the newest record."""
    timer = {"properties": SEND["properties"] + "TIMER_DELAY_MS\x015000\x02"}
    send(driven, 2, **timer)
    assert driven.lane.send_count == 1, "the handler makes the queue of timers"
    send(driven, 3, **timer)
    assert driven.lane.send_count == 2
    driven.world.now_ms -= 2_000
    send(driven, 4, **timer)
    assert driven.lane.send_count == 2
    newest = driven.world.broker.store.units(TIMER_TOPIC, 0, 2, 1)[0]
    record = driven.world.broker.store.record(newest.log_offset)
    due_ms = driven.world.now_ms + 5_000
    assert decode_properties(record.properties)["TIMER_DELIVER_MS"] == str(due_ms)


def test_an_answer_leaves_when_the_record_is_durable(driven: Driven) -> None:
    store = driven.world.broker.store
    driven.world.disk.hold()
    send(driven, 2)
    send(driven, 3)
    assert (code(driven, 2), code(driven, 3)) == (None, None)
    assert store.max_queue_offset("Plain", 0) == 2, "messages that are not durable are not read"
    driven.world.disk.release()
    assert (code(driven, 2), code(driven, 3)) == (0, 0)
    assert store.max_queue_offset("Plain", 0) == 4


def test_a_half_message_and_its_end_wait_for_a_disk_that_hangs(driven: Driven) -> None:
    """Neither is answered or read before the disk returns; a one-way end has no response."""
    world, store = driven.world, driven.world.broker.store
    world.broker.transactions.step(world.now_ms)
    send(driven, 2, properties=half_of(2))  # the first one is the handler's
    send(driven, 3, properties=half_of(3))
    assert driven.lane.kept_count == 1
    ends = [end_of(world, {**END, "half": at, "oneway": bool(at)}, 10 + at) for at in range(2)]
    world.disk.hold()
    send(driven, 4, properties=half_of(4))
    for frame in ends:
        driven.feed(frame, 1 << 20)
    assert driven.lane.kept_count == 2 and driven.lane.end_count == 1
    assert (code(driven, 4), code(driven, 10), code(driven, 11)) == (None, None, None)
    assert store.max_queue_offset(HALF_TOPIC, 0) == 2
    assert store.max_queue_offset("Plain", 0) == 2, "a committed message that is not durable"
    world.disk.release()
    assert (code(driven, 4), code(driven, 10), code(driven, 11)) == (0, 0, None)
    assert store.max_queue_offset(HALF_TOPIC, 0) == 3
    assert store.max_queue_offset("Plain", 0) == 4
    again = end_of(world, {**END, "half": 1, "commit": 12}, 12)
    driven.feed(again, 1 << 20)
    assert code(driven, 12) == 1, "it was committed"
    assert store.max_queue_offset("Plain", 0) == 4


def test_a_half_message_that_cannot_be_read_yet_is_not_ended(driven: Driven) -> None:
    world, store = driven.world, driven.world.broker.store
    world.broker.transactions.step(world.now_ms)
    send(driven, 2, properties=half_of(2))
    world.disk.hold()
    before = store.max_log_offset
    send(driven, 3, properties=half_of(3))
    end = EndTransactionRequest("producers", 1, before, 8, key_of(3))
    request = new_request(RequestCode.END_TRANSACTION, end, oneway=True)
    driven.feed(b"".join(bytes(part) for part in encode(request)), 1 << 20)
    world.disk.release()
    assert driven.lane.end_count == 0
    assert store.max_queue_offset("Plain", 0) == 2


def key_of(number: int) -> str:
    return f"7F0000010000558C00000000000000{number:02d}"


def half_of(number: int) -> str:
    return f"UNIQ_KEY\x01{key_of(number)}\x02{HALF}"


END: dict[str, Any] = {
    "codec": Codec.JSON,
    "version": 513,
    "commit": 8,
    "oneway": False,
    "wrong": None,
}


def test_a_sender_that_does_not_wait_is_answered_at_once(driven: Driven) -> None:
    driven.world.disk.hold()
    send(driven, 2, properties="UNIQ_KEY\x01U\x02WAIT\x01false\x02")
    assert code(driven, 2) == 0
    driven.world.disk.release()
    assert driven.world.broker.store.max_queue_offset("Plain", 0) == 3


def test_a_disk_that_takes_too_long_is_told_of(driven: Driven) -> None:
    driven.world.disk.hold()
    send(driven, 2)
    driven.world.pass_time(driven.world.config.store.sync_flush_timeout_ms + 200)
    assert code(driven, 2) == 10
    response = decode(driven.responses[2][0])
    assert response.fields["queueOffset"] == "2", "it is stored all the same"
    driven.world.disk.release()


def test_too_many_that_wait_are_told_to_come_back(driven: Driven) -> None:
    driven.world.disk.hold()
    for opaque in range(2, 2 + MAX_WAITING):
        driven.feed(frame_of(SEND, opaque), 1 << 20)
    served = driven.lane.send_count
    send(driven, 20_000)
    assert code(driven, 20_000) == 2
    assert driven.lane.send_count == served
    driven.world.disk.release()
    assert code(driven, 2) == 0
    send(driven, 20_001)
    assert driven.lane.send_count == served + 1


def test_nothing_is_appended_while_the_store_refuses(driven: Driven) -> None:
    tail = driven.world.broker.store._log.tail
    end = tail.end
    tail.refuse(1, True)
    send(driven, 2)
    assert driven.lane.send_count == 1
    tail.refuse(1, False)
    send(driven, 3)
    assert driven.lane.send_count == 2
    assert tail.end > end


@pytest.fixture
def reader() -> Iterator[Driven]:
    """A connection to a broker with 8 messages of 2,000 bytes, whose next pulls are native."""
    with tempfile.TemporaryDirectory() as folder:
        connection = Driven(make(folder, FlushMode.ASYNC_FLUSH))
        for opaque in range(8):
            send(connection, opaque, body=b"b" * 2000)
        connection.feed(pull_frame(100), 1 << 20)
        yield connection
        connection.world.close()
        connection.near.close()
        connection.far.close()


def pull_frame(opaque: int, queue_id: int = 0) -> bytes:
    header = PullMessageRequest("live", "Plain", queue_id, QueueOffset(0), 32, 0, 0, 0, 0)
    return frame_of({"header": header, "codec": Codec.JSON, "version": 513}, opaque)


def pour(driven: Driven, data: bytes) -> None:
    """Like `feed`, but the responses are not read."""
    while data:
        room = driven.get_buffer(-1)
        size = min(len(room), len(data))
        room[:size] = data[:size]
        driven.buffer_updated(size)
        data = data[size:]


def test_a_reader_that_stops_reading_is_not_served_beyond_its_limit(reader: Driven) -> None:
    limit = 300_000
    reader.blocks_at = limit
    asked = range(1000, 1200)
    pour(reader, b"".join(pull_frame(opaque) for opaque in asked))
    response = 8 * 2000
    assert reader.blocked
    assert limit <= len(reader.rest) < limit + 2 * response
    served = reader.pulled.found_count
    assert served < len(asked)
    while reader.blocked:
        reader.collect()
        reader.blocked = False
        reader.go_on()
    reader.collect()
    assert reader.responses.keys() >= set(asked)
    assert all(len(reader.responses[opaque]) == 1 for opaque in asked)
    assert all(decode(reader.responses[opaque][0]).code == 0 for opaque in asked)


def test_a_rest_that_python_writes_outlives_its_queue_and_its_log(reader: Driven) -> None:
    reader.blocks_at = 1 << 30
    pour(reader, b"".join(pull_frame(opaque) for opaque in range(60)))
    views = reader.views
    assert any(isinstance(view, memoryview) for view in views)
    whole = b"".join(views)
    reader.world.broker.topics.delete("Plain", reader.world.now_ms)
    reader.world.broker.store.delete_topic("Plain")
    reader.pulled.let_go()
    reader.world.broker.store.close(reader.world.now_ms)
    assert b"".join(views) == whole


def test_a_large_frame_in_small_pieces_is_served_whole(reader: Driven) -> None:
    before = reader.lane.send_count
    body = bytes(range(250)) * 15
    for opaque in range(300, 310):
        reader.feed(frame_of({**SEND, "body": body}, opaque), 1000)
    assert reader.lane.send_count > before
    assert {code(reader, opaque) for opaque in range(300, 310)} == {0}


def test_a_length_that_no_frame_has_ends_the_connection(reader: Driven) -> None:
    reader.feed(frame_of(SEND, 400) + b"\xff\xff\xff\xff", 1 << 20)
    assert reader.closed
    assert code(reader, 400) == 0, "earlier requests count"


@pytest.fixture
def turning() -> Iterator[Driven]:
    """A connection that writes responses at the end of the turn, after one send by a handler."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = "mappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=20000\n"
        connection = Driven(make(folder, FlushMode.ASYNC_FLUSH, sizes), turn=True)
        send(connection, 0)
        yield connection
        connection.world.close()
        connection.near.close()
        connection.far.close()


def read_once(driven: Driven, data: bytes) -> None:
    room = driven.get_buffer(-1)
    room[: len(data)] = data
    driven.buffer_updated(len(data))


def test_answers_and_later_output_wait_for_the_end_of_the_turn(turning: Driven) -> None:
    store = turning.world.broker.store
    read_once(turning, frame_of(SEND, 1))
    assert turning.lane.send_count == 1
    assert code(turning, 1) is None
    assert store.max_queue_offset("Plain", 0) == 1, "dispatched before the answer, not before that"
    turning.end_turn()
    assert code(turning, 1) == 0
    assert store.max_queue_offset("Plain", 0) == 2


def test_waiting_output_leaves_before_anything_else_is_done(turning: Driven) -> None:
    read_once(turning, frame_of(SEND, 1))
    read_once(turning, frame_of(SEND, 2))
    assert (code(turning, 1), code(turning, 2)) == (0, None), "a second read of the same turn"
    turning.end_fast()
    assert code(turning, 2) == 0, "the end of the connection"
    turning.end_turn()


def test_a_peer_that_is_alone_is_answered_at_once(turning: Driven) -> None:
    for opaque in range(1, 10):
        read_once(turning, frame_of(SEND, opaque))
        assert code(turning, opaque) is None
        turning.end_turn()
    read_once(turning, frame_of(SEND, 10))
    assert code(turning, 10) == 0, "nothing else was read in the turns before"


def test_many_answers_of_one_read_do_not_wait(turning: Driven) -> None:
    read_once(turning, b"".join(frame_of(SEND, opaque) for opaque in range(1, 80)))
    assert code(turning, 1) == code(turning, 79) == 0


def test_pulls_give_way_when_all_connections_were_given_enough(reader: Driven) -> None:
    """Responses of 16 KB: their bytes count while they are written, and the connection is served
    again only in its next turn."""
    enough, given, rested = 100_000, [0], []

    def gives(size: int) -> bool:
        given[-1] += size
        return given[-1] < enough

    def give_way() -> None:
        reader.rests = True
        rested.append(reader.turn_left)

    reader.gives, reader.give_way = gives, give_way  # type: ignore[method-assign]
    asked = range(1000, 1040)
    before = reader.pulled.found_count
    pour(reader, b"".join(pull_frame(opaque) for opaque in asked))
    assert reader.rests
    assert reader.pulled.found_count - before <= enough // (8 * 2000) + 2
    while reader.rests:
        given.append(0)
        reader.collect()
        reader.rests = False
        reader.go_on()
    reader.collect()
    assert max(given) < enough + 3 * 8 * 2000
    assert set(rested) == {0}, "it has had its turn: new ones go before it"
    assert all(decode(reader.responses[opaque][0]).code == 0 for opaque in asked)


def test_the_first_message_of_a_queue_is_native_once_its_topic_is_known(driven: Driven) -> None:
    native, store = driven.lane.send_count, driven.world.broker.store
    send(driven, 2, queue_id=1)
    send(driven, 3, queue_id=1)
    assert driven.lane.send_count == native + 2
    assert (code(driven, 2), code(driven, 3)) == (0, 0)
    assert store.max_queue_offset("Plain", 1) == 2
    send(driven, 4, queue_id=1 << 20)
    assert driven.lane.send_count == native + 2, "the topic has no such queue"


def test_no_queue_is_added_while_its_topic_is_being_deleted(driven: Driven) -> None:
    native, store = driven.lane.send_count, driven.world.broker.store
    store.deletions.in_progress.add("Plain")
    send(driven, 2, queue_id=1)
    assert driven.lane.send_count == native
    assert code(driven, 2) == ResponseCode.SERVICE_NOT_AVAILABLE
    store.deletions.in_progress.discard("Plain")
    assert store.max_queue_offset("Plain", 1) == 0


def test_a_file_that_the_lane_makes_reports_no_arrival_by_itself(reader: Driven) -> None:
    """Otherwise each new queue would report all queues of its turn again."""
    store, seen = reader.world.broker.store, list[tuple[str, int]]()
    store.on_arrival(lambda topic, queue_id, _maximum: seen.append((topic, queue_id)))
    native = reader.lane.send_count
    for queue_id in (1, 2):
        send(reader, 10 + queue_id, queue_id=queue_id)
    assert reader.lane.send_count == native + 2
    assert (seen, store.max_queue_offset("Plain", 2)) == ([], 1)
    store.notify_arrivals()
    assert [one for one in seen if one[1] in (1, 2)] == [("Plain", 1), ("Plain", 2)]
