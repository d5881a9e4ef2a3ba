"""CONSISTENT_HASH: queues and members on a hash ring, byte for byte RocketMQ's.

Owns the ring (common/consistenthash/ConsistentHashRouter, AllocateMessageQueueConsistentHash). It
must never change a hash: members in Java compute the same.

Tests: tests/unit/net/allocation/test_strategies.py
"""

import hashlib
from bisect import bisect_left
from typing import Final

from turbopump.net.allocation.shares import Shares, Sharing
from turbopump.net.wire.queues import MessageQueue

VIRTUAL_NODES: Final = 10
"""Places of each member on the ring."""


def consistent_hash(group: Sharing) -> Shares:
    """CONSISTENT_HASH: a queue belongs to the member at the first place on the ring from its
    hash, by 32 bits of MD5; a member may get no queue. Without members the result is empty."""
    ring: dict[int, str] = {}
    for member in group.members:
        for number in range(VIRTUAL_NODES):
            # for two members at the same place the later counts
            ring[_hash_key(f"{member}-{number}")] = member
    places = sorted(ring)
    shares: Shares = {member: [] for member in group.members}
    if places:
        for queue in group.queues:
            at = bisect_left(places, _hash_key(_queue_text(queue)))
            shares[ring[places[at % len(places)]]].append(queue)
    return shares


def _hash_key(key: str) -> int:
    """Return the first 32 bits of the key's MD5, as RocketMQ's ring does."""
    digest = hashlib.md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


def _queue_text(queue: MessageQueue) -> str:
    """Format a queue like Java's MessageQueue.toString; the text is hashed for its places on the
    ring."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )
