"""An accepted message is delivered: sizes of properties near the limit, for all kinds of messages.

Messages of each kind, with properties within some bytes of the limit, are sent by the handlers and
natively. An accepted one is delivered at its time or when it is committed, and can be sent back
after that, whatever properties brokers add. A refused one gets code 13, and no record is stored.
"""

import tempfile
from contextlib import closing

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.lane.world import Driven, frame_of, make
from tests.unit.broker.conftest import World

from turbopump.broker.traffic.room import LATER_MAX, SENT_MAX
from turbopump.engine.types import FlushMode, QueueOffset
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Codec, Command, decode
from turbopump.net.wire.headers.send import ConsumerSendMsgBackRequest
from turbopump.net.wire.headers.transactions import EndTransactionRequest
from turbopump.net.wire.message import encode_batch
from turbopump.net.wire.properties import encode_properties
from turbopump.net.wire.topics import TopicConfig
from turbopump.pyx.record import Record

LARGE = (
    "mappedFileSizeCommitLog=4194304\nmappedFileSizeConsumeQueue=20000\ntimerPrecisionMs=100\n"
    "timerRollWindowSlot=20\ntransactionTimeOut=1000\ntransactionCheckInterval=500\n"
    "transactionCheckMax=15\nmessageDelayLevel=1s 1s 1s 1s 1s 1s\n"
)
KEY = "7F0000010000558C00000000000000EE"
HALF = {"TRAN_MSG": "true", "PGROUP": "producers"}
KINDS: dict[str, dict[str, str]] = {
    "plain": {},
    "level": {"DELAY": "2"},
    "timer": {"TIMER_DELAY_MS": "1500"},
    "rolled timer": {"TIMER_DELAY_SEC": "9"},
    "half": HALF,
    "immune half": {**HALF, "CHECK_IMMUNITY_TIME_IN_SECONDS": "2"},
    "half timer": {**HALF, "TIMER_DELAY_SEC": "9"},
    "half level": {**HALF, "DELAY": "2"},
    "batch": {},
}
TOPICS = ("Plain", "T" * 127)
NEAR = st.integers(LATER_MAX - 4, LATER_MAX + 260) | st.integers(-40, 1_400)
"""Number of bytes by which the sent properties are smaller than the limit of a record."""


def stored(world: World, topic: str) -> list[Record]:
    store = world.broker.store
    units = store.units(topic, 0, QueueOffset(0), 1_000)
    return [store.record(unit.log_offset) for unit in units]


def properties_of(kind: str, near: int) -> str:
    asked = {"UNIQ_KEY": KEY, **KINDS[kind], "PAD": ""}
    size = SENT_MAX + LATER_MAX - near
    asked["PAD"] = "p" * (size - len(encode_properties(asked)))
    return encode_properties(asked).decode()


def frame(kind: str, topic: str, properties: str, opaque: int) -> bytes:
    is_batch = kind == "batch"
    body = encode_batch([(0, b"one", b""), (0, b"x", properties.encode())]) if is_batch else b"x"
    step = {
        "code": 320 if is_batch else 10,
        "topic": topic,
        "queue_id": 0,
        "body": body,
        "sys_flag": 0,
        "flag": 0,
        "reconsume_times": None,
        "batch": True if is_batch else None,
        "oneway": False,
        "codec": Codec.JSON,
        "version": 513,
        "properties": "" if is_batch else properties,
    }
    return frame_of(step, opaque)


def open_world(folder: str, topic: str) -> World:
    world = make(folder, FlushMode.ASYNC_FLUSH, LARGE)
    world.broker.topics.put(TopicConfig(topic, 4, 4), world.now_ms)
    world.broker.transactions.step(world.now_ms)
    return world


class Played:
    """A broker that gets one message, and does all that becomes of it."""

    def __init__(self, folder: str, topic: str, *, natively: bool) -> None:
        self.world = open_world(folder, topic)
        self.topic = topic
        self.driven = Driven(self.world)
        if not natively:
            self.driven.lane.open = False

    def close(self) -> None:
        self.driven.near.close()
        self.driven.far.close()
        self.world.close()

    def send(self, kind: str, near: int) -> Command:
        """Send one message after another that has the handlers learn the topic."""
        self._ask(frame(kind, self.topic, properties_of(kind, 20_000), 1))
        return self._ask(frame(kind, self.topic, properties_of(kind, near), 2))

    def _ask(self, data: bytes) -> Command:
        self.driven.responses.clear()
        self.driven.feed(data, 1 << 20)
        self.world.turn()
        ((found,),) = self.driven.responses.values()
        return decode(found)

    def commit(self) -> None:
        """Have the half message checked some times, then commit the newest."""
        self.world.pass_time(3_400)
        halves = stored(self.world, "RMQ_SYS_TRANS_HALF_TOPIC")
        last = [each for each in halves if len(each.properties) > 16_000][-1]
        header = EndTransactionRequest(
            "producers",
            last.queue_offset,
            last.physical_offset,
            8,
            KEY,
            from_transaction_check=True,
        )
        assert self.world.ask(RequestCode.END_TRANSACTION, header).code == 0

    def delivered(self) -> list[Record]:
        self.world.pass_time(12_000, step_ms=500)
        return [each for each in stored(self.world, self.topic) if len(each.properties) > 16_000]

    def send_back(self, record: Record) -> None:
        """The message fails at a consumer, again and again, until it is a dead letter."""
        for level in (0, 0, -1):
            header = ConsumerSendMsgBackRequest(
                record.physical_offset, "G" * 120, level, max_reconsume_times=2
            )
            response = self.world.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)
            assert response.code == 0, response.remark
            self.world.pass_time(2_000)
            if level == 0:
                record = stored(self.world, "%RETRY%" + "G" * 120)[-1]
        assert len(stored(self.world, "%DLQ%" + "G" * 120)) == 1


def play(kind: str, topic: str, near: int, *, natively: bool) -> int:
    """The answer's code; an accepted message is delivered and sent back."""
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Played(folder, topic, natively=natively)) as played,
    ):
        response = played.send(kind, near)
        if response.code == 0 and "TRAN_MSG" in KINDS[kind]:
            played.commit()
        delivered = played.delivered()
        if response.code != 0:
            assert (response.code, delivered) == (ResponseCode.MESSAGE_ILLEGAL, [])
            return response.code
        (record,) = delivered
        assert record.body == b"x"
        played.send_back(record)
        return 0


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("natively", [False, True])
def test_each_kind_is_delivered_with_just_enough_room(kind: str, natively: bool) -> None:
    assert play(kind, TOPICS[1], LATER_MAX + 250, natively=natively) == 0
    assert play(kind, TOPICS[1], LATER_MAX - 1, natively=natively) == ResponseCode.MESSAGE_ILLEGAL


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(KINDS)), st.sampled_from(TOPICS), NEAR)
def test_accepted_messages_are_delivered(kind: str, topic: str, near: int) -> None:
    if kind == "batch":
        near = max(near, 0)  # an element has no more properties than a record
    codes = {play(kind, topic, near, natively=natively) for natively in (False, True)}
    (code,) = codes
    event(f"{kind}: {code}")
    assert code == 0 or near < LATER_MAX + 250
    assert code != 0 or near >= LATER_MAX - 1
