"""The changes of a member's share of queues, as a pure function.

It must never send a request; net/allocation computes the shares.
"""

from collections.abc import Collection

from turbopump.net.allocation.shares import sorted_queues
from turbopump.net.wire.queues import MessageQueue


def queue_changes(
    held: Collection[MessageQueue], wanted: Collection[MessageQueue]
) -> tuple[list[MessageQueue], list[MessageQueue]]:
    """(queues to give up: held, not wanted; queues to take: wanted, not held), both sorted by
    topic, broker name and queue id."""
    removed = sorted_queues(queue for queue in held if queue not in wanted)
    new = sorted_queues(queue for queue in wanted if queue not in held)
    return removed, new
