"""Properties of stored timers, and the messages that are delivered for them.

Owns RocketMQ's rules (TimerMessageStore.convert) about a timer that is stored. Nothing is stored or
read here; traffic/timer_requests.py has the rules of timers that are sent.

Tests: tests/unit/broker/scheduled/test_timers.py
"""

import re
from typing import Final, NamedTuple

from turbopump.broker.traffic.timer_requests import INT64_TEXT
from turbopump.engine.log.record_parts import CRC_RESERVED
from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.engine.types import NewMessage
from turbopump.net.wire import properties as names
from turbopump.net.wire.names import HALF_TOPIC
from turbopump.net.wire.properties import decode_properties, encode_properties
from turbopump.pyx.record import MAX_PROPERTIES, Record
from turbopump.pyx.timer import read_due, read_facts

FAR_MS: Final = 1 << 53
"""Upper bound of all message times, in epoch ms: some 285,000 years."""
_QUEUE_ID = re.compile(r"[0-9]{1,9}", re.ASCII)


class TimerFacts(NamedTuple):
    """Facts of a stored timer message, in epoch ms: `out_ms` is the time of its slot, `due_ms` its
    exact time. `topic` is that of its consumers."""

    out_ms: int
    due_ms: int
    topic: bytes
    topic_hash: int
    is_recall: bool


def read_waiting(record: Record, precision_ms: int) -> TimerFacts | None:
    """Read the facts of a record of TIMER_TOPIC; None if it can never be delivered: another topic,
    no target or a time out of range. `precision_ms` is the length of a slot."""
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
    """Return the key of the message that a recall cancels, to compare with `keys_of`; None if the
    record is no recall. It has the recall's topic and TIMER_DEL_UNIQKEY. RocketMQ compares the
    latter alone, so that a recall in one topic reaches messages of all."""
    properties = decode_properties(record.properties)
    named = properties.get(names.TIMER_DEL_UNIQKEY)
    return None if named is None else f"{properties.get(names.REAL_TOPIC, '')}\x01{named}"


def keys_of(properties: dict[str, str]) -> tuple[str, ...]:
    """Return the `recall_key` values of recalls that cancel the message with these properties, with
    and without the topic in TIMER_DEL_UNIQKEY; () without a unique key."""
    key, topic = properties.get(names.UNIQ_KEY), properties.get(names.REAL_TOPIC, "")
    if key is None:
        return ()
    return f"{topic}\x01{key}", f"{topic}\x01{delete_key(topic, key, with_topic=True)}"


def message_for_consumers(
    record: Record, properties: dict[str, str], write_ms: int, now_ms: int
) -> NewMessage | None:
    """Return the message for its consumers; None without a target: REAL_TOPIC is missing,
    TIMER_TOPIC or HALF_TOPIC, or REAL_QID is no number. Removes CRC32 from `properties`.

    REAL_TOPIC, REAL_QID and the timer's properties stay, as consumers of RocketMQ see them;
    `write_ms` and `now_ms` (epoch ms) become TIMER_ENQUEUE_MS and TIMER_DEQUEUE_MS. If the
    properties get too long with these two, the message has the record's properties unchanged:
    without the two times, and with CRC32.
    """
    topic, queue = properties.get(names.REAL_TOPIC), properties.get(names.REAL_QID, "")
    if not topic or topic in (HALF_TOPIC, TIMER_TOPIC) or not _QUEUE_ID.fullmatch(queue):
        return None
    return _restore_message(record, properties, topic, int(queue), write_ms, now_ms)


def rolled_timer(record: Record, properties: dict[str, str], now_ms: int) -> NewMessage:
    """Return the message to store in the timer queue again, for the rest of a delay longer than the
    wheel; `now_ms` (epoch ms) becomes TIMER_DEQUEUE_MS. Changes `properties`: TIMER_ROLL_TIMES
    grows by one."""
    times = properties.get(names.TIMER_ROLL_TIMES, "")
    count = int(times) if _QUEUE_ID.fullmatch(times) else 0
    # TIMER_ENQUEUE_MS of a rolled message is when its delay began, so that its exact time is known.
    began = properties.get(names.TIMER_ENQUEUE_MS, "") if count else ""
    began_ms = int(began) if INT64_TEXT.fullmatch(began) else record.store_timestamp_ms
    properties[names.TIMER_ROLL_TIMES] = str(count + 1)
    return _restore_message(record, properties, TIMER_TOPIC, 0, began_ms, now_ms)


def _restore_message(
    record: Record,
    properties: dict[str, str],
    topic: str,
    queue_id: int,
    write_ms: int,
    now_ms: int,
) -> NewMessage:
    """Make the message of a stored timer for `topic` and `queue_id`, with its times as properties
    if they fit; removes CRC32 from `properties`."""
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
