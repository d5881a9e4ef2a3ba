"""Which queues members of a popping group ask for: all, or their own and those of the next ones.

Owns the share numbers (QueryAssignmentProcessor.allocate4Pop). It must never pop. Called by the
broker's handler of QUERY_ASSIGNMENT.
"""

from typing import Final

from turbopump.net.allocation.shares import Shares, Sharing
from turbopump.net.wire.queues import MessageQueue

ANY_QUEUE: Final = -1
"""The queue id that stands for all queues of a broker."""


def pop_share(
    group: Sharing, shares: Shares, client_id: str, share_number: int
) -> list[MessageQueue]:
    """The queues of one member, sorted; it pops its own and those of the `share_number` members
    behind it. 0, or a negative number, and one that reaches all members: any queue of any broker,
    which is one entry for each broker. With more members than queues each has one of them."""
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
