"""The checks and rewrites of a client's message before it is stored; every such message passes
here.

Owns RocketMQ's pre-put hook chain (HookUtils): name length, inner batches, delay levels, timers. It
must never answer a request: the caller turns `Put` into a reply.

Tests: tests/unit/broker/handlers/test_send.py
"""

from dataclasses import dataclass
from enum import Enum

from turbopump.broker.context import BrokerContext
from turbopump.broker.handlers.room import leaves_room
from turbopump.broker.scheduled.half_messages import (
    QUEUE_ID,
    add_half_properties,
)
from turbopump.broker.scheduled.timer_messages import (
    TIMER_PROPERTIES,
    TimerRefusal,
    is_timer,
    keep_exact_time,
    slot_of,
)
from turbopump.broker.traffic.role import Put
from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.engine.types import Appended, Buffer, NewMessage, PutStatus
from turbopump.net.wire import properties as names
from turbopump.net.wire.names import (
    DLQ_PREFIX,
    HALF_TOPIC,
    MAX_RETRY_TOPIC_LENGTH,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
)
from turbopump.net.wire.properties import encode_properties

INNER_BATCH_FLAGS = 0x40 | 0x80  # NEED_UNWRAP and INNER_BATCH of MessageSysFlag
TRANSACTION_BITS = 0x4 | 0x8
MULTI_TAGS_FLAG = 0x2
_MAX_V1_TOPIC = 127


class Refusal(Enum):
    """Reason why a message was not stored, for cases without a PutStatus."""

    LIGHT_QUEUES_NOT_ENABLED = "LMQ_NOT_ENABLE"


@dataclass(slots=True)
class Draft:
    """A message before the put; its properties are still a mapping, its hosts are packed."""

    topic: str
    queue_id: int
    body: Buffer
    properties: dict[str, str]
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    reconsume_times: int = 0
    store_host: bytes = b""
    """Address of the storing broker, packed; empty means this broker."""
    prepared_transaction_offset: int = 0
    is_copy: bool = False
    """Whether the body is in the log already; see NewMessage.is_copy."""


def put(
    broker: BrokerContext,
    draft: Draft,
    now_ms: int,
    *,
    must_wait: bool = False,
    is_sent: bool = False,
    from_ms: int | None = None,
) -> Put | Refusal | TimerRefusal:
    """Store one message; a delayed message goes to the queue of its level, a timer to the timer
    queue (messages.md 0.6, 1.1, 2.2).

    `must_wait`: wait for the broker's usual durability, whatever the message's WAIT property is.
    `is_sent`: a client sends the message, so it needs room for properties that are added later.
    `from_ms`: a timer that is due by then is stored for delivery at once (None: `now_ms`).
    """
    level = delay_level(draft.properties)
    if level is None or not _is_legal(broker, draft):
        return Put(Appended(PutStatus.MESSAGE_ILLEGAL))
    topic, queue_id = draft.topic, draft.queue_id
    if level > 0:
        for name in TIMER_PROPERTIES:
            draft.properties.pop(name, None)
        _remember_target(draft)
        topic, queue_id = SCHEDULE_TOPIC, min(level, len(broker.config.delay_levels_ms)) - 1
    elif is_timer(draft.properties):
        since_ms = now_ms if from_ms is None else from_ms
        slot_ms = _timer_slot(broker, draft.properties, since_ms)
        if isinstance(slot_ms, TimerRefusal):
            return slot_ms
        if slot_ms is not None:
            draft.properties[names.TIMER_OUT_MS] = str(slot_ms)
            if broker.store.last_store_timestamp_ms > now_ms:
                keep_exact_time(draft.properties, since_ms)
            _remember_target(draft)
            topic, queue_id = TIMER_TOPIC, 0
    if wants_light_queues(draft.topic, draft.properties):
        return Refusal.LIGHT_QUEUES_NOT_ENABLED
    message = _message(broker, draft, topic, queue_id)
    if is_sent and not leaves_room(draft.properties, len(message.properties)):
        return Put(Appended(PutStatus.PROPERTIES_SIZE_EXCEEDED))
    # A sender that does not wait receives no replication status, and missing replicas do not block
    # it.
    return append(broker, message, now_ms, waits=must_wait or waits_for_store(draft.properties))


def put_half(broker: BrokerContext, draft: Draft, now_ms: int) -> Put | Refusal | TimerRefusal:
    """Store a half message, which no consumer receives before its producer commits it. A delay in
    its properties takes effect after the commit (messages.md 3,
    TransactionalMessageBridge.parseHalfMessageInner)."""
    if delay_level(draft.properties) is None or not _is_legal(broker, draft):
        return Put(Appended(PutStatus.MESSAGE_ILLEGAL))
    if is_timer(draft.properties):
        slot_ms = _timer_slot(broker, draft.properties, now_ms)
        if isinstance(slot_ms, TimerRefusal):
            return slot_ms
    if wants_light_queues(draft.topic, draft.properties):
        return Refusal.LIGHT_QUEUES_NOT_ENABLED
    add_half_properties(draft.properties, draft.topic, draft.queue_id)
    message = _message(broker, draft, HALF_TOPIC, QUEUE_ID)
    if not leaves_room(draft.properties, len(message.properties)):
        return Put(Appended(PutStatus.PROPERTIES_SIZE_EXCEEDED))
    return append(broker, message, now_ms, waits=waits_for_store(draft.properties))


def _message(broker: BrokerContext, draft: Draft, topic: str, queue_id: int) -> NewMessage:
    return NewMessage(
        topic=topic,
        queue_id=queue_id,
        body=draft.body,
        properties=encode_properties(draft.properties),
        flag=draft.flag,
        sys_flag=draft.sys_flag,
        born_timestamp_ms=draft.born_timestamp_ms,
        born_host=draft.born_host,
        store_host=draft.store_host or broker.store_host,
        reconsume_times=draft.reconsume_times,
        prepared_transaction_offset=draft.prepared_transaction_offset,
        is_copy=draft.is_copy,
    )


def _remember_target(draft: Draft) -> None:
    draft.properties[names.REAL_TOPIC] = draft.topic
    draft.properties[names.REAL_QID] = str(draft.queue_id)


def _timer_slot(
    broker: BrokerContext, properties: dict[str, str], now_ms: int
) -> int | TimerRefusal | None:
    """The timer's slot; see `slot_of`. A slot with over timerCongestNumEachSlot timers refuses more
    with a growing probability, and at twice that number all of them (RocketMQ's
    TimerMessageStore.isReject has its random test inverted)."""
    config = broker.config
    if not config.timer_wheel_enable:
        return TimerRefusal.NOT_ENABLED
    precision_ms = broker.store.config.timer_precision_ms
    slot_ms = slot_of(properties, now_ms, config.timer_max_delay_sec * 1_000, precision_ms)
    if isinstance(slot_ms, int):
        most = config.timer_congest_num_each_slot
        beyond = broker.timers.count_at(slot_ms) - most
        if beyond > 0 and broker.random.randrange(most) < beyond:
            return TimerRefusal.FLOW_CONTROL
    return slot_ms


def append(
    broker: BrokerContext,
    message: NewMessage,
    now_ms: int,
    *,
    waits: bool = True,
    batch: bool = False,
) -> Put:
    """Store.append, or append_batch, if the role allows it; the caller then waits for
    `role.when_safe`."""
    permit = broker.role.admit(waits)
    if isinstance(permit, PutStatus):
        return Put(Appended(permit))
    if batch:
        return Put(broker.store.append_batch(message, now_ms), permit)
    return Put(broker.store.append(message, now_ms), permit)


def waits_for_store(properties: dict[str, str]) -> bool:
    """Whether the sender waits until the message is as durable as the broker's settings demand."""
    return properties.get(names.WAIT, "true").lower() == "true"


def delay_level(properties: dict[str, str]) -> int | None:
    """The DELAY property; 0 without one, None if it is no int32."""
    text = properties.get(names.DELAY)
    if text is None:
        return 0
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 10:
        return None
    level = int(text)
    return level if -(2**31) <= level < 2**31 else None


def wants_light_queues(topic: str, properties: dict[str, str]) -> bool:
    """Whether a message should appear in further (light) queues, which this broker does not
    support. RocketMQ without enableLmq and enableMultiDispatch ignores the wish. False for copies
    of stored messages (retries, dead letters)."""
    asked = properties.get(names.INNER_MULTI_DISPATCH, "").strip()
    return bool(asked) and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def _is_legal(broker: BrokerContext, draft: Draft) -> bool:
    size = len(draft.topic.encode())
    limit = MAX_RETRY_TOPIC_LENGTH if draft.topic.startswith(RETRY_PREFIX) else _MAX_V1_TOPIC
    if size > limit:
        return False
    if draft.sys_flag & INNER_BATCH_FLAGS:
        return broker.topics.is_batch(draft.topic)
    return names.INNER_NUM not in draft.properties
