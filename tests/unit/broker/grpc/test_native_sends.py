"""gRPC sends on the fast path: they have the same effect as the service in Python."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.broker.grpc.fronts import GrpcWorld, message
from tests.unit.broker.grpc.native import HEAD, Caller, Side
from tests.unit.net.grpc.conftest import hear
from tests.unit.net.messaging.test_sending import records
from tests.wire import h2_frames as h2

from turbopump.net.grpc.framing import frame_message
from turbopump.net.grpc.messages import message_class
from turbopump.net.grpc.server import why_no_grpc
from turbopump.net.messaging.messaging import PATH
from turbopump.net.wire.properties import RESERVED, decode_properties
from turbopump.net.wire.topics import TopicConfig


class Sides:
    """A native and a Python service in front of a broker whose fast path knows the topic."""

    def __init__(self, front: GrpcWorld) -> None:
        self.front = front
        front.producer("c1", "TNormal")
        front.world.broker.fast.start(front.world.broker.store_host)
        while len({one.queue_id for one in records(front, "TNormal")}) < 4:
            front.send(message())  # the lane serves queues that a handler has served
        self.native, self.python = Side(front, True), Side(front, False)
        self.at_native, self.at_python = self.native.connect(), self.python.connect()
        self.begun = self.seen = len(records(front, "TNormal"))

    def both(self, body: bytes, head: Any = HEAD) -> tuple[Any, Any, bool]:
        """Make a call on both services; returns headers, response and records of each, and whether
        the second call was native."""
        before = self.native.lane.send_count
        found = [self._by(one, body, head) for one in (self.at_python, self.at_native)]
        return found[0], found[1], self.native.lane.send_count > before

    def _by(self, caller: Caller, body: bytes, head: Any) -> Any:
        response, headers = caller.call(body, head)
        for entry in response.entries:
            entry.offset = 0
        stored = sorted(records(self.front, "TNormal"), key=lambda one: one.log_offset)[self.seen :]
        self.seen += len(stored)
        return headers, response, [_shown(one) for one in stored]


def _shown(record: Any) -> tuple[Any, ...]:
    properties = decode_properties(record.properties)
    times = record.born_timestamp_ms, record.store_timestamp_ms
    flags = record.flag, record.sys_flag, record.reconsume_times
    return properties, record.body, times, record.born_host, record.store_host, flags


@pytest.fixture
def sides(make_front: Callable[..., GrpcWorld]) -> Sides:
    if why_no_grpc():
        pytest.skip(str(why_no_grpc()))
    return Sides(make_front())


def body_of(*messages: dict[str, Any]) -> bytes:
    return frame_message(message_class("SendMessageRequest")(messages=messages).SerializeToString())


PRINTED = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20)
WORDS = PRINTED.filter(str.strip)
OWN = st.from_regex(r"[a-z][ -~]{0,12}", fullmatch=True)
PLAIN = st.fixed_dictionaries(
    {"message_id": WORDS, "message_type": st.sampled_from((0, 1))},
    optional={
        "tag": WORDS.filter(lambda text: "|" not in text),
        "keys": st.lists(WORDS, max_size=3),
        "body_encoding": st.sampled_from((0, 1)),
        "body_digest": st.fixed_dictionaries({"type": st.integers(0, 3), "checksum": PRINTED}),
        "born_timestamp": st.fixed_dictionaries(
            {"seconds": st.integers(0, 1 << 42), "nanos": st.integers(0, 999_999_999)}
        ),
        "born_host": PRINTED,
        "queue_id": st.integers(0, 9),
        "trace_context": PRINTED,
        "user": st.dictionaries(OWN, PRINTED.filter(len), max_size=3),
    },
)
SLOW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@SLOW
@given(fields=PLAIN, body=st.binary(min_size=1, max_size=300))
def test_a_plain_send_is_stored_and_answered_as_by_the_service(
    sides: Sides, fields: dict[str, Any], body: bytes
) -> None:
    python, native, was_native = sides.both(body_of(message(body=body, **fields)))
    assert native == python
    assert len(native[2]) == 1, "it is stored, and to be read when it is answered"
    assert was_native


OTHERS = {
    "group": message(message_group="g"),
    "delayed": message(delivery_timestamp={"seconds": 1_700_000_100}),
    "transaction": message(message_type=4),
    "gzip": message(body_encoding=2),
    "bar": message(tag="a|b"),
    "blank tag": message(tag=" "),
    "umlaut": message(tag="\u00e4"),
    "control": message(keys=["a\x01b"]),
    "blank key": message(keys=[" "]),
    "no body": message(body=b""),
    "no id": message(message_id=""),
    "long id": message(message_id="x" * 256),
    "priority": message(priority=1),
    "light": message(lite_topic="x"),
    "negative time": message(born_timestamp={"seconds": -1}),
    "no topic": message("TNone"),
    "system": message("SCHEDULE_TOPIC_XXXX"),
    "illegal": message("a/b"),
    "of another type": message("TFifo"),
    "large": message(user={f"p{at}": "x" * 600 for at in range(9)}),
    "many": message(user={f"p{at}": "x" for at in range(20)}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_requests_that_are_not_plain_are_served_as_before(sides: Sides, name: str) -> None:
    python, native, was_native = sides.both(body_of(OTHERS[name]))
    assert not was_native
    assert native == python


def test_names_of_the_system_are_not_the_producers(sides: Sides) -> None:
    for name in sorted(RESERVED):
        python, native, was_native = sides.both(body_of(message(user={name: "1"})))
        assert not was_native and native == python, name


@pytest.mark.parametrize(
    "name, value",
    [
        (b":path", f"{PATH}AckMessage".encode()),
        (b"content-type", b"text/html"),
        (b"x-mq-client-id", b""),
        (b"x-mq-client-id", b"x" * 256),
        (b"grpc-timeout", b"1x"),
        (b"grpc-encoding", b"deflate"),
        (b"grpc-encoding", b"gzip"),
    ],
)
def test_headers_that_are_not_plain(sides: Sides, name: bytes, value: bytes) -> None:
    head = [pair for pair in HEAD if pair[0] != name] + [(name, value)]
    head.sort(key=lambda pair: not pair[0].startswith(b":"))
    python, native, was_native = sides.both(body_of(message()), head)
    assert not was_native
    assert native == python


@SLOW
@given(data=st.data())
def test_broken_bytes_are_served_as_by_the_service(sides: Sides, data: st.DataObject) -> None:
    whole = bytearray(body_of(message(tag="t", keys=["k"], user={"u": "v"}, born_host="h")))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(5, len(whole) - 1))
        if data.draw(st.booleans()):
            whole[at] = data.draw(st.integers(0, 255))
        else:
            del whole[at : at + data.draw(st.integers(1, 4))]
        if len(whole) < 6:
            break
    whole[1:5] = (len(whole) - 5).to_bytes(4, "big")
    python, native, _ = sides.both(bytes(whole))
    assert native == python


def test_a_call_that_comes_in_pieces(sides: Sides) -> None:
    size = len(sides.native.connect().bytes_of(body_of(message(body=b"x" * 40))))
    for cut in range(1, size):
        caller = sides.native.connect()
        data = caller.bytes_of(body_of(message(body=b"x" * 40)))
        hear(caller.connection, data[:cut])
        assert not caller.heard()
        hear(caller.connection, data[cut:])
        ((_, headers),) = caller.heard().values()
        assert headers[b"grpc-status"] == b"0", cut
    assert len(records(sides.front, "TNormal")) == sides.begun + size - 1
    assert sides.native.lane.send_count > size // 3, "those whose headers come in one piece"


def test_calls_that_lie_in_one_another(sides: Sides) -> None:
    caller = sides.native.connect()
    body = body_of(message())
    heads = [h2.headers(stream, HEAD) for stream in (1, 3, 5)]
    tails = [
        h2.frame(h2.DATA, stream, body[:7]) + h2.frame(h2.DATA, stream, body[7:], h2.END_STREAM)
        for stream in (5, 1, 3)
    ]
    hear(caller.connection, b"".join([heads[0], heads[1], tails[1], heads[2], *tails[::2]]))
    out = [frame for frame in h2.frames(caller.wire.out) if frame[0] == h2.DATA]
    assert [frame[1] for frame in out] == [1, 5, 3]
    assert sides.native.lane.send_count == 3


def test_a_stream_that_is_reset_gets_no_answer(sides: Sides) -> None:
    caller = sides.native.connect()
    call = h2.headers(1, HEAD) + h2.frame(h2.DATA, 1, body_of(message()), h2.END_STREAM)
    hear(caller.connection, call + h2.frame(h2.RESET, 1, b"\0\0\0\x08"))
    assert [frame for frame in h2.frames(caller.wire.out) if frame[1] == 1] == []
    assert len(records(sides.front, "TNormal")) == sides.begun + 1, "like a send that was served"
    assert caller.connection.unsent == 0, "nothing is kept of it"
    hear(caller.connection, call.replace(b"\0\0\0\x01", b"\0\0\0\x03"))
    assert [frame[1] for frame in h2.frames(caller.wire.out) if frame[0] == h2.DATA] == [3]


def test_trailers_of_a_client(sides: Sides) -> None:
    caller = sides.native.connect()
    data = h2.headers(1, HEAD) + h2.frame(h2.DATA, 1, body_of(message()))
    hear(caller.connection, data + h2.headers(1, [(b"x", b"y")], ends=True))
    assert [frame[1] for frame in h2.frames(caller.wire.out) if frame[0] == h2.DATA] == [1]
    assert sides.native.lane.send_count == 0


def test_two_messages_of_one_call(sides: Sides) -> None:
    python, native, was_native = sides.both(body_of(message()) * 2)
    assert not was_native and native == python
    assert native[0][b"grpc-status"] != b"0"


def test_a_half_call_is_let_go_at_a_sweep(sides: Sides) -> None:
    """The hub then counts the call among its calls, which end at their timeout."""
    side, caller = sides.native, sides.native.connect()
    side.hub.start_sweeping()
    data = caller.bytes_of(body_of(message(body=b"x" * 500)))
    hear(caller.connection, data[:-100])
    assert (side.hub.calls, side.hub.held) == (0, 0)
    side.loop.wait(side.hub.options.sweep_ms / 1_000 + 0.1)
    assert side.hub.calls == 1 and side.hub.held > 300
    side.loop.wait((side.hub.options.message_timeout_ms + side.hub.options.sweep_ms) / 1_000)
    assert (side.hub.calls, side.hub.held) == (0, 0)


@pytest.mark.parametrize("begin", [b"\1\0\0\0\7", b"\0\x7f\0\0\0", b"\2"])
def test_calls_the_service_refuses_are_not_held(sides: Sides, begin: bytes) -> None:
    callers = sides.native.connect(), sides.python.connect()
    for caller in callers:
        hear(caller.connection, h2.headers(1, HEAD) + h2.frame(h2.DATA, 1, begin))
    assert callers[0].wire.out == callers[1].wire.out
    assert sides.native.hub.calls == sides.python.hub.calls


def test_the_memory_of_all_calls_is_bounded(sides: Sides) -> None:
    """The service gets partial calls beyond 16 MiB, counts them and refuses them."""
    callers = [sides.native.connect() for _ in range(600)]
    body = body_of(message(body=b"x" * 31_000))
    data = (
        h2.headers(1, HEAD)
        + b"".join(h2.frame(h2.DATA, 1, body[at : at + 10_000]) for at in (0, 10_000))
        + h2.frame(h2.DATA, 1, body[20_000:29_000])
    )
    for caller in callers:
        hear(caller.connection, data)
    counted = sides.native.hub.held
    assert 0 < counted < 600 * 29_000 - (15 << 20)
    for caller in callers:
        caller.connection.connection_lost(None)
    assert sides.native.hub.held == 0
    hear(sides.at_native.connection, data)
    assert sides.native.hub.held == 0, "there is room again"


def test_it_does_not_serve_where_the_lane_does_not(sides: Sides) -> None:
    assert sides.both(body_of(message()))[2]
    sides.front.world.broker.fast.lane.open = False
    python, native, was_native = sides.both(body_of(message()))
    assert not was_native and native == python


def test_a_send_that_waits_for_the_disk_is_the_services(
    make_front: Callable[..., GrpcWorld],
) -> None:
    sides = Sides(make_front("flushDiskType=SYNC_FLUSH"))
    caller = sides.native.connect()
    hear(caller.connection, caller.bytes_of(body_of(message())))
    assert sides.native.lane.send_count == 0
    assert len(records(sides.front, "TNormal")) == sides.begun + 1


def test_a_topic_that_changes(sides: Sides) -> None:
    topics, now_ms = sides.front.world.broker.topics, sides.front.world.now_ms
    for changed in (
        TopicConfig("TNormal", 4, 4, perm=4),
        TopicConfig("TNormal", 4, 4, attributes={"message.type": "FIFO"}),
    ):
        topics.put(changed, now_ms)
        python, native, was_native = sides.both(body_of(message()))
        assert not was_native and native == python


def test_queues_are_drawn(sides: Sides) -> None:
    sides.front.world.broker.random = random.Random(1)
    for _ in range(40):
        assert sides.both(body_of(message()))[2]
    assert {one.queue_id for one in records(sides.front, "TNormal")} == {0, 1, 2, 3}


def test_a_stopping_server_takes_none(sides: Sides) -> None:
    sides.native.hub.stopping = sides.python.hub.stopping = True
    python, native, was_native = sides.both(body_of(message()))
    assert not was_native and native == python
