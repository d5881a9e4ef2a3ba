"""Which member of a group consumes which queue: the average allocation, as a pure function.

Owns the rule that every member computes for itself from the same two sorted lists. It must never
ask a node anything. Called by the push consumer's rebalance.
"""

from collections.abc import Collection, Iterable

from turbopump.net.wire.queues import MessageQueue


def java_order(text: str) -> bytes:
    """A sort key with the order of Java's String.compareTo (UTF-16 units, not code points)."""
    return text.encode("utf-16-be", "surrogatepass")


def sorted_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Queues in the order every member agrees on (common/message/MessageQueue.compareTo)."""
    return sorted(
        queues,
        key=lambda queue: (java_order(queue.topic), java_order(queue.broker_name), queue.queue_id),
    )


def allocate_averagely(
    client_id: str, client_ids: Iterable[str], queues: Iterable[MessageQueue]
) -> list[MessageQueue]:
    """The queues of `client_id`: consecutive shares that differ by one at most, the first larger.

    Duplicate client ids (one client over two sockets) count once: counting them twice, as
    AllocateMessageQueueAveragely does, leaves the share of the second without a consumer. A
    client that the broker does not list gets nothing, since the others do not count it either.
    """
    members = sorted(set(client_ids), key=java_order)
    ordered = sorted_queues(set(queues))
    if client_id not in members or not ordered:
        return []
    index = members.index(client_id)
    share, larger_shares = divmod(len(ordered), len(members))
    start = index * share + min(index, larger_shares)
    return ordered[start : start + share + (1 if index < larger_shares else 0)]


def changes(
    held: Collection[MessageQueue], wanted: Collection[MessageQueue]
) -> tuple[list[MessageQueue], list[MessageQueue]]:
    """(queues to give up, queues to take), both sorted."""
    gone = sorted_queues(queue for queue in held if queue not in wanted)
    new = sorted_queues(queue for queue in wanted if queue not in held)
    return gone, new
