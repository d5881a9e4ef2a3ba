"""Properties of timer messages: the requested time, the slot, and the delivered message.

Owns RocketMQ's rules (HookUtils, TimerMessageStore.convert) about the properties of a timer.
Nothing is stored or read here.
"""

import re
from enum import Enum
from typing import Final, NamedTuple

from turbopump.engine.log.record_parts import CRC_RESERVED
from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.engine.types import NewMessage
from turbopump.net.wire import properties as names
from turbopump.net.wire.names import HALF_TOPIC
from turbopump.net.wire.properties import decode_properties, encode_properties
from turbopump.pyx.record import MAX_PROPERTIES, Record
from turbopump.pyx.timer import read_due, read_facts

TIMER_PROPERTIES: Final = (
    names.TIMER_DELAY_SEC,
    names.TIMER_DELAY_MS,
    names.TIMER_DELIVER_MS,
)
"""Timer properties in their order of precedence."""
FAR_MS: Final = 1 << 53
"""Upper bound of all message times: some 285,000 years."""
_INT64 = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_QUEUE_ID = re.compile(r"[0-9]{1,9}", re.ASCII)


class TimerRefusal(Enum):
    """Reason why a timer is not stored (RocketMQ: PutMessageStatus)."""

    ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
    NOT_ENABLED = "WHEEL_TIMER_NOT_ENABLE"


class TimerFacts(NamedTuple):
    """Facts of a stored timer message; `out_ms` is the time of its slot, `due_ms` its exact
    millisecond."""

    out_ms: int
    due_ms: int
    topic: bytes
    topic_hash: int
    is_recall: bool


def is_timer(properties: dict[str, str]) -> bool:
    """Whether the message asks for delivery at a time (HookUtils.checkIfTimerMessage)."""
    return names.TIMER_OUT_MS not in properties and any(
        name in properties for name in TIMER_PROPERTIES
    )


def slot_of(
    properties: dict[str, str], now_ms: int, max_delay_ms: int, precision_ms: int
) -> int | TimerRefusal | None:
    """Return the time of a timer's slot, TIMER_OUT_MS; None: it is due, and an ordinary message.

    The slot is the last multiple of the precision before the time, so a broker that reads a slot
    when the next one begins never delivers early. A number that overflows in Java is ILLEGAL here:
    RocketMQ delivers it at once.
    """
    deliver_ms = _deliver_ms(properties, now_ms)
    if deliver_ms is None:
        return TimerRefusal.ILLEGAL
    if deliver_ms <= now_ms:
        return TimerRefusal.ILLEGAL if names.TIMER_DEL_UNIQKEY in properties else None
    if deliver_ms - now_ms > max_delay_ms:
        return TimerRefusal.ILLEGAL
    return (deliver_ms - 1) // precision_ms * precision_ms


def keep_exact_time(properties: dict[str, str], now_ms: int) -> None:
    """Replace a timer's delay by its time. The delay counts from the store time of the record,
    which is ahead of the clock `now_ms` if the clock was set back. A timer with an absolute time
    keeps its properties as they are, in their order."""
    delays = names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS
    if not any(name in properties for name in delays):
        return
    deliver_ms = _deliver_ms(properties, now_ms)
    for name in TIMER_PROPERTIES:
        properties.pop(name, None)
    properties[names.TIMER_DELIVER_MS] = str(deliver_ms)


def _deliver_ms(properties: dict[str, str], now_ms: int) -> int | None:
    for name in TIMER_PROPERTIES:
        text = properties.get(name)
        if text is None:
            continue
        if not _INT64.fullmatch(text) or not -(1 << 63) <= int(text) < 1 << 63:
            return None
        number = int(text)
        if name == names.TIMER_DELAY_SEC:
            number *= 1_000
        return number if name == names.TIMER_DELIVER_MS else now_ms + number
    return None


def read_waiting(record: Record, precision_ms: int) -> TimerFacts | None:
    """Read the facts of a record of TIMER_TOPIC; None if it cannot be delivered."""
    out_ms, _delay, _deliver, topic, topic_hash, is_recall = read_facts(record.properties)
    if not 0 <= out_ms < FAR_MS or not topic or record.topic != _TOPIC_BYTES:
        return None
    due_ms = read_due(record.properties, record.store_timestamp_ms, precision_ms)
    return TimerFacts(out_ms, due_ms, topic, topic_hash, is_recall)


def delete_key(topic: str, unique_key: str, *, with_topic: bool) -> str:
    """Return the TIMER_DEL_UNIQKEY of a recall; `with_topic` as with appendTopicForTimerDeleteKey
    (TimerMessageStore.buildDeleteKey)."""
    return f"{topic}+{unique_key}" if with_topic else unique_key


def recall_key(record: Record) -> str | None:
    """Return the key of the message that a recall cancels: the recall's topic and
    TIMER_DEL_UNIQKEY. RocketMQ compares the latter alone, so that a recall in one topic reaches
    messages of all."""
    properties = decode_properties(record.properties)
    named = properties.get(names.TIMER_DEL_UNIQKEY)
    return None if named is None else f"{properties.get(names.REAL_TOPIC, '')}\x01{named}"


def keys_of(properties: dict[str, str]) -> tuple[str, ...]:
    """Return the keys of recalls that cancel this message, see `recall_key`."""
    key, topic = properties.get(names.UNIQ_KEY), properties.get(names.REAL_TOPIC, "")
    if key is None:
        return ()
    return f"{topic}\x01{key}", f"{topic}\x01{delete_key(topic, key, with_topic=True)}"


def delivered(
    record: Record, properties: dict[str, str], write_ms: int, now_ms: int
) -> NewMessage | None:
    """Return the message for its consumers; None if it has no target. REAL_TOPIC, REAL_QID and the
    timer's properties stay, as consumers of RocketMQ see them."""
    topic, queue = properties.get(names.REAL_TOPIC), properties.get(names.REAL_QID, "")
    if not topic or topic in (HALF_TOPIC, TIMER_TOPIC) or not _QUEUE_ID.fullmatch(queue):
        return None
    return _again(record, properties, topic, int(queue), write_ms, now_ms)


def rolled(record: Record, properties: dict[str, str], now_ms: int) -> NewMessage:
    """Return the message to store in the timer queue again, for the rest of a delay longer than the
    wheel."""
    times = properties.get(names.TIMER_ROLL_TIMES, "")
    count = int(times) if _QUEUE_ID.fullmatch(times) else 0
    # TIMER_ENQUEUE_MS of a rolled message is when its delay began, so that its exact time is known.
    began = properties.get(names.TIMER_ENQUEUE_MS, "") if count else ""
    began_ms = int(began) if _INT64.fullmatch(began) else record.store_timestamp_ms
    properties[names.TIMER_ROLL_TIMES] = str(count + 1)
    return _again(record, properties, TIMER_TOPIC, 0, began_ms, now_ms)


def _again(
    record: Record,
    properties: dict[str, str],
    topic: str,
    queue_id: int,
    write_ms: int,
    now_ms: int,
) -> NewMessage:
    properties.pop(names.CRC32, None)
    moved = {names.TIMER_ENQUEUE_MS: str(write_ms), names.TIMER_DEQUEUE_MS: str(now_ms)}
    text = encode_properties({**properties, **moved})
    if len(text) > MAX_PROPERTIES - CRC_RESERVED:
        # The record's broker left no room for these properties: without them it can be delivered.
        text = record.properties
    return NewMessage(
        topic=topic,
        queue_id=queue_id,
        body=record.body,
        properties=text,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        is_copy=True,
    )


_TOPIC_BYTES: Final = TIMER_TOPIC.encode()
