"""The time of a deletion.

Owns the time at which the life of a topic or a group ends. Check points, acknowledgements and
handles contain only the time of their pop, so this time decides which of them belong to the former
life. It must never be earlier than a pop of that life.
"""

from turbopump.broker.context import BrokerContext


def deletion_time_ms(broker: BrokerContext, now_ms: int) -> int:
    """Choose the time, in epoch ms, to record for a deletion at `now_ms`: `now_ms`, or a later time
    if the clock went back, so that it is later than earlier deletions and no earlier than any pop.
    Each pop has a record in the log, where store times never go back; pops after an earlier
    deletion are later than that deletion. Offsets of the former life are older, too
    (forget_former)."""
    store = broker.store
    earlier_ms = max(store.deletions.latest_ms(), broker.groups.latest_deletion_ms())
    stored_ms = max(store.last_store_timestamp_ms, broker.pop.now_ms())
    return max(now_ms, stored_ms, earlier_ms + 1, broker.offsets.data_version.timestamp + 1)
