"""Queues of the members of a popping group: all, or their own and the next members' queues.

Owns the share numbers (QueryAssignmentProcessor.allocate4Pop). It must never pop.
"""

from typing import Final

from turbopump.net.allocation.shares import Shares, Sharing
from turbopump.net.wire.queues import MessageQueue

ANY_QUEUE: Final = -1
"""Queue id for all queues of a broker."""


def pop_share(
    group: Sharing, shares: Shares, client_id: str, share_number: int
) -> list[MessageQueue]:
    """The queues from which a member pops, sorted: its queues in `shares` and the queues of the
    next `share_number` members; empty for an unknown member.

    If `share_number` is 0 or negative, or includes all members: any queue of any broker, as an
    entry with ANY_QUEUE for each broker. Otherwise, with more members than queues, each member has
    a single queue.
    """
    members, queues = group.members, group.queues
    if client_id not in shares:
        return []
    if share_number <= 0 or share_number >= len(members) - 1:
        return sorted({MessageQueue(one.topic, one.broker_name, ANY_QUEUE) for one in queues})
    index = members.index(client_id)
    if len(members) > len(queues):
        return [queues[index % len(queues)]] if queues else []
    around = (members[(index + step) % len(members)] for step in range(share_number + 1))
    return sorted({queue for member in around for queue in shares[member]})
