"""What a member has to give up and to take when its share changes, as a pure function.

It must never ask a node anything; the shares are net/allocation's. Called by the push consumer's
rebalance.
"""

from collections.abc import Collection

from turbopump.net.allocation.shares import sorted_queues
from turbopump.net.wire.queues import MessageQueue


def changes(
    held: Collection[MessageQueue], wanted: Collection[MessageQueue]
) -> tuple[list[MessageQueue], list[MessageQueue]]:
    """(queues to give up, queues to take), both sorted."""
    gone = sorted_queues(queue for queue in held if queue not in wanted)
    new = sorted_queues(queue for queue in wanted if queue not in held)
    return gone, new
