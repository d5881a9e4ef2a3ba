"""STICKY: an even allocation that moves as few queues as possible.

Owns the rules of the proposal for rebalancing by the broker. It must never depend on anything but
its arguments: each node computes the same result.

    1  each member keeps its previous queues that still exist
    2  each queue without an owner goes, in order, to the member with the fewest
    3  while two members differ by two queues or more, the member with the most gives its last queue
       to the member with the fewest

Ties are decided by client id: the smaller gets, the larger gives. No balanced allocation moves
fewer queues of members that still exist: step 2 fills the smallest first, so step 3 moves only the
queues that must move for balance.

Tests: tests/unit/net/allocation/test_strategies.py
"""

from collections.abc import Mapping
from heapq import heapify, heapreplace

from turbopump.net.allocation.shares import Shares, Sharing
from turbopump.net.wire.queues import MessageQueue


def allocate_sticky(group: Sharing) -> Shares:
    """STICKY: shares that differ by at most one queue, each sorted. A queue that two members had
    in `group.previous` stays with the member of the smaller client id. Empty without members."""
    ranks = {queue: rank for rank, queue in enumerate(group.queues)}
    kept = _kept_queues(group, ranks)
    if group.members:
        _assign_unowned(group, kept)
        _level_shares(kept)
    for queues in kept:
        queues.sort(key=ranks.__getitem__)
    return dict(zip(group.members, kept, strict=True))


def _kept_queues(group: Sharing, ranks: Mapping[MessageQueue, int]) -> list[list[MessageQueue]]:
    """Return for each member, in the order of `group.members`, its previous queues that still
    exist, sorted by `ranks`."""
    free = set(group.queues)
    kept: list[list[MessageQueue]] = []
    for member in group.members:
        mine = []
        for queue in group.previous.get(member, ()):
            if queue in free:
                free.remove(queue)
                mine.append(queue)
        mine.sort(key=ranks.__getitem__)
        kept.append(mine)
    return kept


def _assign_unowned(group: Sharing, kept: list[list[MessageQueue]]) -> None:
    """Give each queue without an owner to the member with the fewest queues; changes `kept`."""
    owned = {queue for queues in kept for queue in queues}
    fewest = [(len(queues), at) for at, queues in enumerate(kept)]
    heapify(fewest)
    for queue in group.queues:
        if queue not in owned:
            count, at = fewest[0]
            kept[at].append(queue)
            heapreplace(fewest, (count + 1, at))


def _level_shares(kept: list[list[MessageQueue]]) -> None:
    """Move queues from the member with the most to the member with the fewest until they differ
    by one at most; changes `kept`."""
    fewest = [(len(queues), at) for at, queues in enumerate(kept)]
    most = [(-len(queues), -at) for at, queues in enumerate(kept)]
    heapify(fewest)
    heapify(most)
    # No member both gives and gets: members that give have two more queues than members that get.
    while -most[0][0] - fewest[0][0] >= 2:
        (few, low), (many, high) = fewest[0], most[0]
        kept[low].append(kept[-high].pop())
        heapreplace(fewest, (few + 1, low))
        heapreplace(most, (many + 1, high))
