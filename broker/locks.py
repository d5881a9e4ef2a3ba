"""Queue locks of ordered consumers: who may consume a queue right now.

Owns the table group -> queue -> holder with its lease (RocketMQ: RebalanceLockManager). It must
never read a clock or write a disk: locks are lost with the process, and clients ask again every
20 s. Called by handlers/locks.py, by the send path (retries of a locked group) and by housekeeping.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from turbopump.net.wire.queues import MessageQueue

LEASE_MS: Final = 60_000
"""RocketMQ's rocketmq.broker.rebalance.lockMaxLiveTime; clients renew every 20 s."""

MAX_LOCKS: Final = 1_000_000
"""Live locks of one broker: some 200 MB, and far above queues times ordered groups of any cluster.
Beyond it nothing more is granted, so that made-up group and queue names cannot fill the memory."""


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed_ms: int

    def expired(self, now_ms: int) -> bool:
        return now_ms - self.renewed_ms > LEASE_MS


class QueueLocks:
    """Each (group, queue) has at most one holder, for LEASE_MS after it last asked."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int
    ) -> list[MessageQueue]:
        """Ask for queues; returns those that `client_id` holds now, in the order asked for.

        A queue is granted when it is free, its lease ran out, or the same client holds it (which
        renews the lease) (RocketMQ: RebalanceLockManager.tryLockBatch).
        """
        granted: list[MessageQueue] = []
        for queue in dict.fromkeys(queues):
            held = self._groups.get(group, {}).get(queue)
            if held is None:
                if self._count >= MAX_LOCKS:
                    continue
                self._groups.setdefault(group, {})[queue] = _Lock(client_id, now_ms)
                self._count += 1
            elif held.client_id == client_id or held.expired(now_ms):
                held.client_id = client_id
                held.renewed_ms = now_ms
            else:
                continue
            granted.append(queue)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give queues back; those that another client holds, or nobody, are left alone."""
        locks = self._groups.get(group, {})
        for queue in queues:
            held = locks.get(queue)
            if held is not None and held.client_id == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            self._groups.pop(group, None)

    def is_group_locked(self, group: str, now_ms: int) -> bool:
        """Whether the group consumes in order: it holds any queue whose lease has not run out.

        A send to its retry topic then goes to its dead letter topic (RocketMQ: isLockAllExpired).
        """
        return any(not held.expired(now_ms) for held in self._groups.get(group, {}).values())

    def sweep(self, now_ms: int) -> None:
        """Forget every lock whose lease ran out (housekeeping: so that a full table empties)."""
        for group, locks in list(self._groups.items()):
            for queue in [queue for queue, held in locks.items() if held.expired(now_ms)]:
                del locks[queue]
                self._count -= 1
            if not locks:
                del self._groups[group]
