"""gRPC receives on the fast path return the same responses as the service in Python."""

import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.shortcuts.addresses import pack_host
from tests.unit.broker.grpc.fronts import GrpcWorld, message, tell
from tests.unit.net.messaging.test_receiving import PUSH, ack, is_empty, receipt, receive, start

from turbopump.broker.grpc.backend import BrokerRequestBackend
from turbopump.engine.types import NewMessage
from turbopump.net.grpc.codes import Code
from turbopump.net.grpc.messages import message_class
from turbopump.net.messaging.backend import PoppedMessages, PopRequest
from turbopump.net.wire.properties import RESERVED

NATIVE, PYTHON = "GNative", "GPython"
STORE_HOST = pack_host("127.0.0.1:10911")
RECEIVE = message_class("ReceiveMessageRequest")(
    group={"name": NATIVE},
    message_queue={"topic": {"name": "TNormal"}, "id": -1},
    filter_expression={"type": 1, "expression": "*"},
    batch_size=32,
    invisible_duration={"seconds": 20},
    long_polling_timeout={"seconds": 20},
)


class Watch:
    """Records the native results of the backend, and keeps the group PYTHON off the fast path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[PoppedMessages | None] = []
        take = BrokerRequestBackend.pop_available

        def watched(backend: BrokerRequestBackend, wish: PopRequest) -> PoppedMessages | None:
            if wish.group.group_name == PYTHON:
                return None
            self.taken.append(take(backend, wish))
            return self.taken[-1]

        monkeypatch.setattr(BrokerRequestBackend, "pop_available", watched)

    @property
    def was_native(self) -> bool:
        """Whether the last receive was native."""
        return self.taken[-1] is not None


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


@pytest.fixture
def front(make_front: Callable[..., GrpcWorld], watch: Watch) -> GrpcWorld:
    """A broker whose fast path has served a receive with messages for each group."""
    made = make_front()
    made.world.broker.fast.start(made.world.broker.store_host)
    for group in (NATIVE, PYTHON):
        made.consumer("c1", group, "TNormal")
    warm(made)
    return made


def warm(front: GrpcWorld, **changed: Any) -> None:
    """Have both groups receive a message of each queue."""
    for queue_id in range(4):
        put(front, b"TAGS\x01a\x02UNIQ_KEY\x01w\x02", b"warm", queue_id=queue_id)
    for group in (NATIVE, PYTHON):
        found = receive(front, group=group, **changed)
        while len(found) < 4:
            found += receive(front, group=group, **changed)
        ack(front, *found, group=group)


def put(front: GrpcWorld, properties: bytes, body: bytes = b"body", **changed: Any) -> None:
    """Append a record with exactly these properties, without the changes that a send makes."""
    changed = {"queue_id": 0, "born_timestamp_ms": 5, "store_host": STORE_HOST, **changed}
    stored = NewMessage("TNormal", body=body, properties=properties, **changed)
    appended = front.world.broker.store.append(stored, front.world.now_ms)
    assert appended.log_offsets, appended.status
    front.world.pass_time(1)


def visible(one: Any) -> Any:
    """A message without the fields that differ between two pops: times and revive queues."""
    words = one.system_properties.receipt_handle.split(" ")
    assert len(words) == 9
    one.system_properties.receipt_handle = " ".join([words[0], *words[2:3], *words[4:]])
    return one


def both(front: GrpcWorld, **changed: Any) -> tuple[list[Any], list[Any]]:
    """Messages that the two groups receive, by log offset."""

    def messages_of(group: str) -> list[Any]:
        heard = start(front, group=group, **changed)[1]
        front.world.pass_time(300)
        if not heard.has_ended:
            return []
        found = [visible(one.message) for one in heard.messages[1:-1]]
        return sorted(found, key=lambda one: int(one.system_properties.receipt_handle.split()[-1]))

    return messages_of(NATIVE), messages_of(PYTHON)


def test_messages_are_the_same_both_ways(front: GrpcWorld, watch: Watch) -> None:
    for number in range(1, 21):
        front.send(
            message(
                body=b"%d" % number * number,
                message_id=f"m{number}",
                tag="t",
                keys=["k1", "k2"],
                user={"u": "v", "other": "w"},
                born_host="h",
                trace_context="c",
            )
        )
    native, python = both(front)
    assert native == python and len(native) == 20 and watch.was_native
    assert both(front) == ([], [])


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_property_of_the_system_is_no_users(front: GrpcWorld, name: str) -> None:
    put(front, b"UNIQ_KEY\x01id\x02u\x01v\x02" + name.encode() + b"\x0177777\x02")
    native, python = both(front)
    assert native == python and len(native) == 1
    assert dict(native[0].user_properties) == {"u": "v"}


@pytest.mark.parametrize(
    ("properties", "kind", "due_ms"),
    [
        (b"", 1, 0),
        (b"TRAN_MSG\x01true\x02", 4, 0),
        (b"TRAN_MSG\x01True\x02", 1, 0),
        (b"DELAY\x010\x02", 1, 0),
        (b"DELAY\x013\x02", 3, 0),
        (b"TIMER_DELIVER_MS\x011700000000123\x02", 3, 1_700_000_000_123),
        (b"TIMER_DELIVER_MS\x01soon\x02__SHARDINGKEY\x01g\x02", 3, 0),
        (b"__SHARDINGKEY\x01g\x02", 2, 0),
    ],
)
def test_the_type_of_a_message(
    front: GrpcWorld, watch: Watch, properties: bytes, kind: int, due_ms: int
) -> None:
    put(front, b"UNIQ_KEY\x01id\x02" + properties)
    ((native,), (python,)) = both(front)
    assert native == python and watch.was_native
    system = native.system_properties
    due = system.delivery_timestamp
    assert (system.message_type, due.seconds * 1_000 + due.nanos // 1_000_000) == (kind, due_ms)


@pytest.mark.parametrize(
    ("properties", "changed"),
    [
        (b"UNIQ_KEY\x01id\x02", {"sys_flag": 1, "body": zlib.compress(b"plain")}),
        (b"UNIQ_KEY\x01id\x02", {"sys_flag": 1, "body": b"no zlib"}),
        (b"UNIQ_KEY\x01id\x02", {"born_host": bytes(15) + b"\x01" + bytes(4)}),
        ("UNIQ_KEY\x01id\x02u\x01ü\x02".encode(), {}),
        (b"UNIQ_KEY\x01id\x02u\x01\xff\x02", {}),
        (b"UNIQ_KEY\x01id\x02u\x01v\x02u\x01w\x02", {}),
        (b"u\x01v\x02", {}),
        (b"UNIQ_KEY\x01id\x02DLQ_ORIGIN_TOPIC\x01T\x02DLQ_ORIGIN_MESSAGE_ID\x01M\x02", {}),
        (b"UNIQ_KEY\x01id\x02POP_CK\x010 5 60000 0 1 broker-a 0 0\x02", {}),
        (b"UNIQ_KEY\x01id\x02" + b"".join(b"n%d\x01v\x02" % at for at in range(70)), {}),
        (b"UNIQ_KEY\x01id\x02", {"reconsume_times": 16}),
        (b"UNIQ_KEY\x01id\x02", {"reconsume_times": 17}),
    ],
)
def test_rare_requests_are_left_to_python(
    front: GrpcWorld, watch: Watch, properties: bytes, changed: dict[str, Any]
) -> None:
    put(front, b"UNIQ_KEY\x01plain\x02", b"one")
    put(front, properties, **{"body": b"two", **changed})
    native, python = both(front)
    assert native == python
    assert watch.was_native == (changed.get("reconsume_times") == 16)


def test_keys_are_split_at_any_blank(front: GrpcWorld, watch: Watch) -> None:
    put(front, b"UNIQ_KEY\x01id\x02KEYS\x01 a\tb\x1fc\x0b\x0c d\r\n\x02")
    ((native,), (python,)) = both(front)
    assert native == python and watch.was_native
    assert [*native.system_properties.keys] == ["a", "b", "c", "d"]


def test_a_damaged_body_is_pythons(front: GrpcWorld, watch: Watch) -> None:
    put(front, b"UNIQ_KEY\x01id\x02", b"to be damaged")
    with min(Path(front.world.config.store.log_folder).iterdir()).open("r+b") as file:
        file.seek(file.read().index(b"to be damaged"))
        file.write(b"T")
    assert both(front) == ([], []) and not watch.was_native


def test_a_group_may_try_as_often_as_it_can_be_counted(front: GrpcWorld, watch: Watch) -> None:
    groups = front.world.broker.groups
    group = groups.find_or_create(NATIVE, front.world.now_ms)
    assert group is not None
    groups.put(replace(group, retry_max_times=(1 << 31) - 1), front.world.now_ms)
    for number in range(2):  # the first one is learned from: the group has changed
        put(front, b"UNIQ_KEY\x01%d\x02" % number)
        assert len(receive(front, group=NATIVE)) == 1
    assert watch.was_native


def test_a_tag_is_compared_where_its_hash_is_that_of_another(
    front: GrpcWorld, watch: Watch
) -> None:
    wanted = {"filter_expression": {"type": 1, "expression": "Aa || a"}}
    warm(front, **wanted)
    put(front, b"UNIQ_KEY\x01id\x02TAGS\x01Aa\x02", b"Aa")
    put(front, b"UNIQ_KEY\x01id\x02TAGS\x01zz\x02", b"zz")
    native, python = both(front, **wanted)
    assert native == python and [one.body for one in native] == [b"Aa"] and watch.was_native
    put(front, b"UNIQ_KEY\x01id\x02TAGS\x01BB\x02", b"BB")  # Java's hash of it is that of Aa
    assert both(front, **wanted) == ([], []) and not watch.was_native
    front.world.pass_time(60_000)
    (again,) = receive(front, group=NATIVE, **wanted)
    assert again.body == b"Aa", "the other one was acknowledged"


def test_natively_received_messages_are_redelivered_until_acknowledged(
    front: GrpcWorld, watch: Watch
) -> None:
    for number in range(4):
        put(front, b"UNIQ_KEY\x01m%d\x02" % number)
    found = receive(front, group=NATIVE)
    assert len(found) == 4 and watch.was_native
    assert is_empty(front, group=NATIVE)
    ack(front, *found[:2], group=NATIVE)
    front.world.pass_time(30_000)
    again = receive(front, group=NATIVE)
    assert [receipt(one)["message_id"] for one in again] == ["m2", "m3"]
    assert {one.system_properties.delivery_attempt for one in again} == {2}


def test_receipts_of_push_consumers_are_renewed(front: GrpcWorld, watch: Watch) -> None:
    front.consumer("c5", NATIVE, "TNormal", kind=PUSH)
    put(front, b"UNIQ_KEY\x01first\x02")
    ack(front, *receive(front, group=NATIVE), group=NATIVE)
    put(front, b"UNIQ_KEY\x01one\x02")
    put(front, b"UNIQ_KEY\x01two\x02")
    found = receive(front, group=NATIVE, client_id="c5", auto_renew=True)
    assert len(found) == 2 and watch.was_native
    front.world.pass_time(200_000)
    assert is_empty(front, group=NATIVE)
    entries = [receipt(one) for one in found]
    names = {"group": {"name": NATIVE}, "topic": {"name": "TNormal"}}
    assert front.ask("AckMessage", "c5", entries=entries, **names).status.code == Code.OK
    front.world.pass_time(400_000)
    assert is_empty(front, group=NATIVE)


def test_a_client_that_takes_nothing_gets_nothing(front: GrpcWorld, watch: Watch) -> None:
    put(front, b"UNIQ_KEY\x01id\x02")
    before = len(watch.taken)
    call, heard = front.begin("ReceiveMessage")
    heard.is_clogged = True
    tell(call, RECEIVE.SerializeToString())
    assert call.on_end is not None
    call.on_end()
    front.world.pass_time(100)
    assert len(watch.taken) == before
    assert heard.messages[0].status.code == Code.TOO_MANY_REQUESTS
    assert len(receive(front, group=NATIVE)) == 1, "it is there for others at once"


LONG = {"invisible_duration": {"seconds": 40_000}}
"""An invisible time that outlasts the examples, so that no message comes again."""
VALUES = st.text("\x01aA_ \t\x1f=7", max_size=6)
NAMES = VALUES | st.sampled_from(sorted(RESERVED))
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=5)
MORE = st.sampled_from([*([[]] * 8), [("u", "ü")], [("u", "v"), ("u", "w")]])


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    pairs=PAIRS,
    more=MORE,
    has_id=st.sampled_from([*([True] * 8), False]),
    ends=st.sampled_from([b"", b"\x02", b"\x02\x02"]),
    body=st.binary(min_size=1, max_size=200),
    sys_flag=st.sampled_from([*([0] * 12), 1, 2, 8, 0x40, 0x80]),
    times=st.sampled_from([*([0] * 8), 1, 16, 17, -1]),
    born_ms=st.sampled_from([0, 5, 999, 1_700_000_000_123, 1 << 50, -1]),
)
def test_any_record_is_the_same_both_ways(
    front: GrpcWorld,
    watch: Watch,
    pairs: list[tuple[str, str]],
    more: list[tuple[str, str]],
    has_id: bool,
    ends: bytes,
    body: bytes,
    sys_flag: int,
    times: int,
    born_ms: int,
) -> None:
    pairs = [*([("UNIQ_KEY", "id")] if has_id else []), *pairs, *more]
    text = b"\x02".join(f"{name}\x01{value}".encode() for name, value in pairs) + ends
    put(front, text, body, sys_flag=sys_flag, reconsume_times=times, born_timestamp_ms=born_ms)
    native, python = both(front, **LONG)
    assert native == python
