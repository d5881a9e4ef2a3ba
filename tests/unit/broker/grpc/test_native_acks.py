"""gRPC acknowledgements on the fast path: acknowledged messages are not delivered again."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.broker.grpc.fronts import GrpcWorld, message
from tests.unit.broker.grpc.native import HEAD, Caller, Side
from tests.unit.net.grpc.conftest import hear
from tests.unit.net.messaging.test_receiving import PUSH, is_empty, receipt, receive
from tests.wire import h2_frames as h2

from turbopump.net.grpc.codes import Code
from turbopump.net.grpc.framing import frame_message
from turbopump.net.grpc.messages import message_class
from turbopump.net.grpc.server import why_no_grpc
from turbopump.net.messaging.messaging import PATH

ACKS = tuple(
    (name, f"{PATH}AckMessage".encode() if name == b":path" else text) for name, text in HEAD
)


@pytest.fixture
def front(make_front: Callable[..., GrpcWorld]) -> GrpcWorld:
    """A broker with messages in all queues, and a fast path that has served each kind of
    request."""
    if why_no_grpc():
        pytest.skip(str(why_no_grpc()))
    made = make_front()
    made.world.broker.fast.start(made.world.broker.store_host)
    made.consumer("c1", "G1", "TNormal")
    for number in range(24):
        made.send(message(body=b"%d" % number, message_id=f"m{number}"))
    return made


def popped(front: GrpcWorld, count: int = 24) -> list[dict[str, str]]:
    """Receipts of `count` messages."""
    found: list[Any] = []
    while len(found) < count:
        found += receive(front)
    return [receipt(one) for one in found]


def body_of(*entries: dict[str, str], group: str = "G1", topic: str = "TNormal") -> bytes:
    asked = message_class("AckMessageRequest")(
        group={"name": group}, topic={"name": topic}, entries=entries
    )
    return frame_message(asked.SerializeToString())


def warm(front: GrpcWorld, receipts: list[dict[str, str]]) -> None:
    """Have an acknowledgement served by its handler: the fast path serves groups that handlers
    served."""
    caller = Side(front, False).connect()
    response, _ = caller.call(body_of(receipts.pop()), ACKS, "AckMessage")
    front.world.pass_time(10)
    assert response.status.code == Code.OK


def test_acknowledgements_of_one_read_share_records(front: GrpcWorld) -> None:
    receipts = popped(front)
    warm(front, receipts)
    side = Side(front, True)
    caller, begin = side.connect(), front.world.broker.store.max_log_offset
    hear(caller.connection, caller.bytes_of(*(body_of(one) for one in receipts[:20]), head=ACKS))
    responses = caller.heard()
    assert len(responses) == 20 and side.lane.ack_count == 20
    given = {one["receipt_handle"] for one in receipts[:20]}
    for data, headers in responses.values():
        response = message_class("AckMessageResponse").FromString(data[5:])
        (entry,) = response.entries
        assert (headers[b"grpc-status"], response.status.code) == (b"0", Code.OK)
        assert (response.status.message, entry.status.code) == ("OK", Code.OK)
        given.remove(entry.receipt_handle)
        assert entry.message_id in {one["message_id"] for one in receipts}
    assert not given
    assert front.world.broker.store.max_log_offset - begin < 20 * 300, "one for each check point"
    front.world.pass_time(30_000)
    again = {one.system_properties.message_id for one in receive(front)}
    assert again == {one["message_id"] for one in receipts[20:]}


def test_the_answer_is_that_of_the_service(front: GrpcWorld) -> None:
    receipts = popped(front)
    warm(front, receipts)
    native, python = Side(front, True), Side(front, False)
    for one in receipts[:6]:
        by_python = python.connect().call(body_of(one), ACKS, "AckMessage")
        assert native.connect().call(body_of(one), ACKS, "AckMessage") == by_python
    assert native.lane.ack_count == 6


def bad(handle: str, at: int, word: str) -> str:
    words = handle.split(" ")
    words[at] = word
    return " ".join(words)


OTHERS: dict[str, Callable[[str], str]] = {
    "no handle": lambda _: "",
    "words": lambda _: "a b c",
    "eight words": lambda handle: handle.rpartition(" ")[0],
    "ten words": lambda handle: f"{handle} 1",
    "no log offset": lambda handle: bad(handle, 8, "x"),
    "a long number": lambda handle: bad(handle, 7, "1" * 19),
    "negative": lambda handle: bad(handle, 7, "-1"),
    "another broker": lambda handle: bad(handle, 5, "other"),
    "of a retry topic": lambda handle: bad(handle, 4, "1"),
    "another queue": lambda handle: bad(handle, 6, "9"),
    "not there": lambda handle: bad(handle, 7, "1000000"),
    "over": lambda handle: bad(handle, 1, "1000"),
    "another revive queue": lambda handle: bad(handle, 3, "99"),
    "in order": lambda handle: bad(handle, 3, "999"),
    "not printable": lambda handle: handle + "\u00e4",
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_handles_are_the_services(front: GrpcWorld, name: str) -> None:
    receipts = popped(front)
    warm(front, receipts)
    one = receipts[0]
    asked = body_of({**one, "receipt_handle": OTHERS[name](one["receipt_handle"])})
    native, python = Side(front, True), Side(front, False)
    found = native.connect().call(asked, ACKS, "AckMessage")
    front.world.pass_time(10)
    assert found == python.connect().call(asked, ACKS, "AckMessage")
    assert native.lane.ack_count == 0


@pytest.mark.parametrize(
    "body",
    [
        body_of(),
        body_of(group="a b"),
        body_of({"message_id": "m", "receipt_handle": "h"}, topic=""),
        frame_message(b"\xff"),
    ],
)
def test_other_requests_are_the_services(front: GrpcWorld, body: bytes) -> None:
    native, python = Side(front, True), Side(front, False)
    found = native.connect().call(body, ACKS, "AckMessage")
    assert found == python.connect().call(body, ACKS, "AckMessage")
    assert native.lane.ack_count == 0


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_broken_bytes_are_served_as_by_the_service(front: GrpcWorld, data: st.DataObject) -> None:
    handle = f"0 {front.world.now_ms} 20000 1 0 broker-a 3 7 3820"
    whole = bytearray(body_of({"message_id": "m", "receipt_handle": handle}))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(5, len(whole) - 1))
        if data.draw(st.booleans()):
            whole[at] = data.draw(st.integers(0, 255))
        else:
            del whole[at : at + data.draw(st.integers(1, 4))]
        if len(whole) < 6:
            break
    whole[1:5] = (len(whole) - 5).to_bytes(4, "big")
    python = Side(front, False).connect().call(bytes(whole), ACKS, "AckMessage")
    assert Side(front, True).connect().call(bytes(whole), ACKS, "AckMessage") == python


def test_two_entries_are_the_services(front: GrpcWorld) -> None:
    receipts = popped(front)
    warm(front, receipts)
    side = Side(front, True)
    response, _ = side.connect().call(body_of(*receipts[:2]), ACKS, "AckMessage")
    assert [one.status.code for one in response.entries] == [Code.OK, Code.OK]
    assert side.lane.ack_count == 0


def test_renewed_receipts_are_left_to_the_service(front: GrpcWorld) -> None:
    """The service renewed the receipt, so the client's receipt is outdated."""
    front.consumer("c2", "G2", "TNormal", kind=PUSH)
    changed = {"group": "G2", "auto_renew": True}
    found = [receipt(one) for one in receive(front, client_id="c2", **changed)]
    side = Side(front, True)
    head = tuple((name, b"c2" if name == b"x-mq-client-id" else text) for name, text in ACKS)
    for _ in range(2):
        body = body_of(found.pop(), group="G2")
        assert side.connect().call(body, head, "AckMessage")[0].status.code == Code.OK
    assert side.lane.ack_count == 0


def test_unwritable_responses_are_left_to_the_service(front: GrpcWorld) -> None:
    """Calls that the stopped fast path does not serve reach Python, and each is answered."""
    receipts = popped(front)
    warm(front, receipts)
    side = Side(front, True)
    caller: Caller = side.connect()
    front.world.broker.fast.lane.open = False
    hear(caller.connection, caller.bytes_of(*(body_of(one) for one in receipts[:5]), head=ACKS))
    front.world.pass_time(10)
    assert len(caller.heard()) == 5 and side.lane.ack_count == 0
    front.world.pass_time(30_000)
    again = {one.system_properties.message_id for one in receive(front)}
    assert again == {one["message_id"] for one in receipts[5:]}


def test_more_than_are_noted_at_once(front: GrpcWorld) -> None:
    for number in range(24, 200):
        front.send(message(body=b"%d" % number, message_id=f"m{number}"))
    receipts = popped(front, 200)
    warm(front, receipts)
    side = Side(front, True)
    for first in range(0, 190, 95):
        caller = side.connect()
        calls = [
            h2.headers(2 * at + 1, ACKS)
            + h2.frame(h2.DATA, 2 * at + 1, body_of(one), h2.END_STREAM)
            for at, one in enumerate(receipts[first : first + 95])
        ]
        hear(caller.connection, b"".join(calls))
        answered = [one for one in h2.frames(caller.wire.out) if one[0] == h2.DATA]
        assert len(answered) == 95
    assert side.lane.ack_count == 190
    front.world.pass_time(30_000)
    again = {one.system_properties.message_id for one in receive(front)}
    assert again == {one["message_id"] for one in receipts[190:]}
    assert is_empty(front)
