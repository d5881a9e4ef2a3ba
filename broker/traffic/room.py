"""Room in a message for the properties that brokers add to it after it was sent.

Owns the list of these properties and the bytes reserved for them. It must never store anything. A
message without that room could not be delivered at its time, retried, checked or made a dead
letter; RocketMQ accepts it, and drops it later.

Tests: tests/property/kept/test_room.py
"""

from collections.abc import Mapping
from typing import Final

from turbopump.net.wire import properties as names
from turbopump.pyx.record import MAX_PROPERTIES

LATER_MAX: Final = 1_024
"""Number of bytes reserved for all properties of `_LATER` together: some 920 with the longest
topics and numbers, without ORIGIN_GROUP, which a copy gets only if it fits (broker/pop/retries.py).
The remainder is for longer names of region and cluster after an escape (LANE_LATER_MAX of
csrc/lane.h)."""
SENT_MAX: Final = MAX_PROPERTIES - LATER_MAX
"""Maximum number of bytes of a sent message's properties, not counting `_LATER`."""

_LATER: Final = (
    names.REAL_TOPIC,
    names.REAL_QID,
    names.TIMER_OUT_MS,
    names.TIMER_ENQUEUE_MS,
    names.TIMER_DEQUEUE_MS,
    names.TIMER_ROLL_TIMES,
    names.TRANSACTION_CHECK_TIMES,
    names.TRAN_PREPARED_QUEUE_OFFSET,
    names.RETRY_TOPIC,
    names.ORIGIN_MESSAGE_ID,
    names.FIRST_POP_TIME,
    names.ORIGIN_GROUP,
    names.DELAY,
    names.WAIT,
    names.CRC32,
)
"""Properties that brokers add later. A message that escapes from another broker may already have
some of them."""


def leaves_room(properties: Mapping[str, str], size: int) -> bool:
    """Whether a message with these properties, of `size` bytes as text, has room for all properties
    of `_LATER`; if not, it must be refused."""
    if size <= SENT_MAX:
        return True
    later = [(name, properties[name]) for name in _LATER if name in properties]
    return size - sum(len(name) + len(value.encode()) + 2 for name, value in later) <= SENT_MAX
