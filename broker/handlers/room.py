"""Room in a message for the properties that brokers add to it after it was sent.

Owns which properties these are and how much room is left for them. It must never store anything.
Called by puts.py and send.py. A message without that room could not be delivered at its time,
retried, checked or made a dead letter; RocketMQ takes it, and drops it then.
"""

from collections.abc import Mapping
from typing import Final

from turbopump.net.wire import properties as names
from turbopump.pyx.record import MAX_PROPERTIES

LATER_MAX: Final = 1_024
"""Bytes of all properties of `_LATER` together, with the longest topics and numbers: some 920,
without ORIGIN_GROUP, which a copy gets where it fits (broker/pop/retries.py).
The rest is for a region and a cluster with longer names, after an escape (LANE_LATER_MAX of
csrc/lane.h)."""
SENT_MAX: Final = MAX_PROPERTIES - LATER_MAX
"""Bytes of the properties of a message that is sent, without those of `_LATER`."""

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
"""A message that escapes from another broker may come with some of them."""


def leaves_room(properties: Mapping[str, str], size: int) -> bool:
    """Whether a message with these properties, of `size` bytes as text, can get all of `_LATER`."""
    if size <= SENT_MAX:
        return True
    later = [(name, properties[name]) for name in _LATER if name in properties]
    return size - sum(len(name) + len(value.encode()) + 2 for name, value in later) <= SENT_MAX
