"""The time of a deletion.

Owns when the life of a topic or a group counts as ended. Check points, acknowledgements and handles
name the time of their pop alone, so this time tells which of them belong to the former life. It
must never be earlier than a pop of that life. Called by the handlers that delete.
"""

from turbopump.broker.context import BrokerContext


def ending_ms(broker: BrokerContext, now_ms: int) -> int:
    """The time of a deletion at `now_ms`, in epoch ms, also where the clock went back since the
    last pop. Each pop has a record in the log, where store times never go back; behind an earlier
    deletion pops are later than that. Offsets of the former life are older, too (forget_former).
    """
    store = broker.store
    earlier_ms = max(store.deletions.latest_ms(), broker.groups.latest_deletion_ms())
    stored_ms = max(store.last_store_timestamp_ms, broker.pop.now_ms())
    return max(now_ms, stored_ms, earlier_ms + 1, broker.offsets.data_version.timestamp + 1)
