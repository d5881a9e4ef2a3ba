"""Appends of messages to the store: of clients, and of pop. Every such message passes here, unless
native code stores it.

Owns RocketMQ's pre-put hook chain (HookUtils): name length, inner batches, delay levels, timers. It
must never answer a request: the caller turns `Put` into a reply.

Tests: tests/unit/broker/handlers/test_send.py, tests/unit/broker/scheduled/test_timers.py
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.tables.topics import TopicTable
from turbopump.broker.traffic.role import Put, Role
from turbopump.broker.traffic.room import leaves_room
from turbopump.broker.traffic.timer_requests import (
    TIMER_PROPERTIES,
    TimerRefusal,
    is_timer,
    keep_exact_time,
    slot_of,
)
from turbopump.engine.deferred import Deferred
from turbopump.engine.store import Store
from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.engine.types import Appended, Buffer, NewMessage, PutStatus
from turbopump.net.wire import properties as names
from turbopump.net.wire.names import (
    DLQ_PREFIX,
    HALF_QUEUE_ID,
    HALF_TOPIC,
    MAX_RETRY_TOPIC_LENGTH,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
)
from turbopump.net.wire.pop_records import CheckPoint
from turbopump.net.wire.properties import encode_properties
from turbopump.pyx.lane import Lane

INNER_BATCH_FLAGS = 0x40 | 0x80  # NEED_UNWRAP and INNER_BATCH of MessageSysFlag
"""Bits NEED_UNWRAP and INNER_BATCH of the system flag: the body is a batch stored as one
message."""
TRANSACTION_BITS = 0x4 | 0x8
"""Bits of the system flag with the transaction type: 0x4 prepared, 0x8 committed, both rolled
back."""
MULTI_TAGS_FLAG = 0x2
"""Bit of the system flag: the topic's messages have several tags."""
_MAX_V1_TOPIC = 127
_REFUSED: Final = PutStatus.OS_PAGE_CACHE_BUSY


class Refusal(Enum):
    """Reason why a message was not stored, for cases without a PutStatus; the value is the name in
    RocketMQ's answer."""

    LIGHT_QUEUES_NOT_ENABLED = "LMQ_NOT_ENABLE"
    """The message asks for light queues, see `wants_light_queues`."""


@dataclass(slots=True)
class Draft:
    """A message before the put. `properties` is still a mapping, which the put changes; hosts are
    packed (address and port), `born_timestamp_ms` is epoch ms."""

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


class MessageWriter:
    """Appends messages to the store under the broker's role. Loop thread only; `now_ms` is epoch
    ms."""

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        role: Role,
        topics: TopicTable,
        lane: Lane,
        timers_at: Callable[[int], int],
        randomness: random.Random,
        store_host: Callable[[], bytes],
    ) -> None:
        """`timers_at` returns the number of timers waiting in the slot of a time in ms;
        `store_host` returns the packed address stamped on records."""
        self._config = config
        self._store = store
        self._role = role
        self._topics = topics
        self._lane = lane
        self._timers_at = timers_at
        self._random = randomness
        self._store_host = store_host

    def put(
        self,
        draft: Draft,
        now_ms: int,
        *,
        must_wait: bool = False,
        is_sent: bool = False,
        from_ms: int | None = None,
    ) -> Put | Refusal | TimerRefusal:
        """Append one message now; a delayed message goes to the queue of its level, a timer to the
        timer queue (messages.md 0.6, 1.1, 2.2). `draft.properties` is changed.

        Returns a refusal, with nothing written, or a Put: nothing is written either if its status
        is not PUT_OK. The caller passes the Put to `Role.when_safe` before it answers the sender.

        `must_wait`: wait for the broker's usual durability, whatever the message's WAIT property
        is. `is_sent`: a client sends the message, so it needs room for properties that are added
        later. `from_ms`: a timer that is due by then (epoch ms) is stored for delivery at once
        (None: `now_ms`).
        """
        level = delay_level(draft.properties)
        if level is None or not self._is_legal(draft):
            return Put(Appended(PutStatus.MESSAGE_ILLEGAL))
        topic, queue_id = draft.topic, draft.queue_id
        if level > 0:
            for name in TIMER_PROPERTIES:
                draft.properties.pop(name, None)
            _remember_target(draft)
            topic, queue_id = SCHEDULE_TOPIC, min(level, len(self._config.delay_levels_ms)) - 1
        elif is_timer(draft.properties):
            since_ms = now_ms if from_ms is None else from_ms
            slot_ms = self._timer_slot(draft.properties, since_ms)
            if isinstance(slot_ms, TimerRefusal):
                return slot_ms
            if slot_ms is not None:
                draft.properties[names.TIMER_OUT_MS] = str(slot_ms)
                if self._store.last_store_timestamp_ms > now_ms:
                    keep_exact_time(draft.properties, since_ms)
                _remember_target(draft)
                topic, queue_id = TIMER_TOPIC, 0
        if wants_light_queues(draft.topic, draft.properties):
            return Refusal.LIGHT_QUEUES_NOT_ENABLED
        message = self._make_message(draft, topic, queue_id)
        if is_sent and not leaves_room(draft.properties, len(message.properties)):
            return Put(Appended(PutStatus.PROPERTIES_SIZE_EXCEEDED))
        # A sender that does not wait receives no replication status, and missing replicas do not
        # block it.
        return self.append(message, now_ms, waits=must_wait or waits_for_store(draft.properties))

    def put_half(self, draft: Draft, now_ms: int) -> Put | Refusal | TimerRefusal:
        """Append a half message now, which no consumer receives before its producer commits it;
        results as of `put`. `draft.properties` must contain UNIQ_KEY, and is changed. A delay in it
        takes effect after the commit (messages.md 3,
        TransactionalMessageBridge.parseHalfMessageInner)."""
        properties = draft.properties
        if delay_level(properties) is None or not self._is_legal(draft):
            return Put(Appended(PutStatus.MESSAGE_ILLEGAL))
        if is_timer(properties):
            slot_ms = self._timer_slot(properties, now_ms)
            if isinstance(slot_ms, TimerRefusal):
                return slot_ms
        if wants_light_queues(draft.topic, properties):
            return Refusal.LIGHT_QUEUES_NOT_ENABLED
        properties[names.TRANSACTION_ID] = properties[names.UNIQ_KEY]
        _remember_target(draft)
        message = self._make_message(draft, HALF_TOPIC, HALF_QUEUE_ID)
        if not leaves_room(properties, len(message.properties)):
            return Put(Appended(PutStatus.PROPERTIES_SIZE_EXCEEDED))
        return self.append(message, now_ms, waits=waits_for_store(properties))

    def append(
        self, message: NewMessage, now_ms: int, *, waits: bool = True, batch: bool = False
    ) -> Put:
        """Append a message, or with `batch` all messages of a batch body, if the role allows it.

        `waits` False: the sender does not wait for replicas, so too few replicas in sync do not
        refuse the message. A refusal is the status in the returned Put, and nothing is written
        then. The caller passes the Put to `Role.when_safe` before it answers the sender.
        """
        permit = self._role.admit_append(waits)
        if isinstance(permit, PutStatus):
            return Put(Appended(permit))
        if batch:
            return Put(self._store.append_batch(message, now_ms), permit)
        return Put(self._store.append(message, now_ms), permit)

    # For pop: resolved once the record is as safe as a send.

    def put_record(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: dict[str, str],
        now_ms: int,
        from_ms: int,
    ) -> Deferred[PutStatus]:
        """Append a check point or an acknowledgement now; resolves with its status once it is as
        safe as a send, OS_PAGE_CACHE_BUSY if a timer slot refuses it. A record that is due after
        `from_ms` (epoch ms) goes through the timers, after the earlier timers. `properties` is
        changed."""
        draft = Draft(
            topic=topic,
            queue_id=queue_id,
            body=body,
            properties=properties,
            flag=0,
            sys_flag=0,
            born_timestamp_ms=now_ms,
            born_host=self._store_host(),
        )
        outcome = self.put(draft, now_ms, must_wait=True, from_ms=from_ms)
        # A full slot of the timer wheel refuses the record: the consumer tries again.
        return self._when_safe(outcome) if isinstance(outcome, Put) else Deferred.resolved(_REFUSED)

    def put_unchanged(self, message: NewMessage, now_ms: int) -> Deferred[PutStatus]:
        """Append a message as it is, without hooks for delays and timers; resolves with its status
        once it is as safe as a send."""
        return self._when_safe(self.append(message, now_ms))

    def put_check_point(self, check_point: CheckPoint, revive_queue_id: int, now_ms: int) -> bool:
        """Append a check point natively. True: it is written, and as safe as a send that was
        answered. False: nothing was written, because the role refuses writes, or native code cannot
        write now (always if answers wait for the disk or replicas); the caller uses
        `put_record`."""
        if isinstance(self._role.admit_append(), PutStatus):
            return False
        key = check_point.key
        return self._lane.add_check_point(
            key.topic.encode(errors="replace"),
            key.group.encode(errors="replace"),
            key.queue_id,
            key.start,
            key.pop_time_ms,
            key.broker_name.encode(errors="replace"),
            check_point.invisible_ms,
            check_point.distances,
            check_point.is_suspended,
            revive_queue_id,
            now_ms,
        )

    def _when_safe(self, outcome: Put) -> Deferred[PutStatus]:
        """Resolve with the status of an append, at once if it failed, else when the message is
        safe."""
        if outcome.appended.status is not PutStatus.PUT_OK:
            return Deferred.resolved(outcome.appended.status)
        return self._role.when_safe(*outcome)

    def _make_message(self, draft: Draft, topic: str, queue_id: int) -> NewMessage:
        """Make the message of a draft, for this topic and queue."""
        return NewMessage(
            topic=topic,
            queue_id=queue_id,
            body=draft.body,
            properties=encode_properties(draft.properties),
            flag=draft.flag,
            sys_flag=draft.sys_flag,
            born_timestamp_ms=draft.born_timestamp_ms,
            born_host=draft.born_host,
            store_host=draft.store_host or self._store_host(),
            reconsume_times=draft.reconsume_times,
            prepared_transaction_offset=draft.prepared_transaction_offset,
            is_copy=draft.is_copy,
        )

    def _timer_slot(self, properties: dict[str, str], now_ms: int) -> int | TimerRefusal | None:
        """Return the timer's slot, a refusal, or None; see `slot_of`. A slot with over
        timerCongestNumEachSlot timers refuses more with a growing probability, and at twice that
        number all of them (RocketMQ's TimerMessageStore.isReject has its random test inverted)."""
        config = self._config
        if not config.timer_wheel_enable:
            return TimerRefusal.NOT_ENABLED
        precision_ms = self._store.config.timer_precision_ms
        slot_ms = slot_of(properties, now_ms, config.timer_max_delay_sec * 1_000, precision_ms)
        if isinstance(slot_ms, int):
            most = config.timer_congest_num_each_slot
            beyond = self._timers_at(slot_ms) - most
            if beyond > 0 and self._random.randrange(most) < beyond:
                return TimerRefusal.FLOW_CONTROL
        return slot_ms

    def _is_legal(self, draft: Draft) -> bool:
        """Whether the topic's name is not too long, and an inner batch goes to a topic for batches,
        other messages do not look like one."""
        size = len(draft.topic.encode())
        limit = MAX_RETRY_TOPIC_LENGTH if draft.topic.startswith(RETRY_PREFIX) else _MAX_V1_TOPIC
        if size > limit:
            return False
        if draft.sys_flag & INNER_BATCH_FLAGS:
            return self._topics.is_batch(draft.topic)
        return names.INNER_NUM not in draft.properties


def is_prepared(properties: dict[str, str]) -> bool:
    """Whether a send is a half message (TRAN_MSG). Clients before 4.6.1 also set TRAN_MSG when they
    send a message back for a retry; that handler checks for it."""
    return properties.get(names.TRAN_MSG, "").lower() == "true"


def waits_for_store(properties: dict[str, str]) -> bool:
    """Whether the sender waits until the message is as durable as the broker's settings demand
    (WAIT; the default is True)."""
    return properties.get(names.WAIT, "true").lower() == "true"


def delay_level(properties: dict[str, str]) -> int | None:
    """Return the DELAY property as a number, which may be negative or beyond the last level; 0
    without the property, None if it is no int32."""
    text = properties.get(names.DELAY)
    if text is None:
        return 0
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 10:
        return None
    level = int(text)
    return level if -(2**31) <= level < 2**31 else None


def wants_light_queues(topic: str, properties: dict[str, str]) -> bool:
    """Whether a message asks for further (light) queues (INNER_MULTI_DISPATCH), which this broker
    does not support. RocketMQ without enableLmq and enableMultiDispatch ignores the property. False
    for copies of stored messages (retries, dead letters)."""
    asked = properties.get(names.INNER_MULTI_DISPATCH, "").strip()
    return bool(asked) and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def _remember_target(draft: Draft) -> None:
    """Set REAL_TOPIC and REAL_QID to the draft's topic and queue id, before it is stored
    elsewhere."""
    draft.properties[names.REAL_TOPIC] = draft.topic
    draft.properties[names.REAL_QID] = str(draft.queue_id)
