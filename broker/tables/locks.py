"""Queue locks of ordered consumers: which client may consume a queue now.

Owns the table group -> queue -> holder with its lease (RocketMQ: RebalanceLockManager). It must
never read a clock or write to disk: locks are lost with the process, and clients ask again every 20
s.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from turbopump.net.wire.names import kept_size
from turbopump.net.wire.queues import MessageQueue

LEASE_MS: Final = 60_000
"""Duration of a lock without renewal, in ms (RocketMQ: rocketmq.broker.rebalance.lockMaxLiveTime);
clients renew every 20 s."""

MAX_SIZE: Final = 128 << 20
"""Maximum bytes of all locks, some 300,000 locks: far above queues times ordered groups of a
broker. Beyond it no lock is granted, so that made-up group and queue names cannot fill the
memory."""

_LOCK_SIZE: Final = 250
"""Bytes of a lock besides its texts: two objects and an entry of a dict."""
_GROUP_SIZE: Final = 300


@dataclass(slots=True)
class _Lock:
    """A lock of a queue: its holder, and when the lease was renewed last."""

    client_id: str
    renewed_ms: int

    def size(self, queue: MessageQueue) -> int:
        """Estimated bytes of this lock of `queue` in the table."""
        return _LOCK_SIZE + kept_size(self.client_id, queue.topic, queue.broker_name)

    def expired(self, now_ms: int) -> bool:
        """Whether the lease has run out at `now_ms`."""
        return now_ms - self.renewed_ms > LEASE_MS


class QueueLocks:
    """Locks of queues for ordered consumers: at most one holder (client id) per group and queue,
    for LEASE_MS after its last request. `now_ms` is a time of the monotonic clock. The locks of a
    group are in the order of their renewal: a group may have hundreds of thousands, and each send
    to its retry topic asks whether any of them is held."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0
        self.size = 0
        """Estimated bytes of all locks."""

    def __len__(self) -> int:
        """Number of locks, including expired locks that `remove_expired` has not removed."""
        return self._count

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int
    ) -> list[MessageQueue]:
        """Lock queues for `client_id`; return the queues that it holds now, in the order asked for,
        without repeats.

        A queue is granted if it is free (and MAX_SIZE allows), its lease ran out, or the same
        client holds it, whose lease is renewed (RocketMQ: RebalanceLockManager.tryLockBatch).
        """
        granted: list[MessageQueue] = []
        for queue in dict.fromkeys(queues):
            locks = self._groups.get(group, {})
            held = locks.get(queue)
            if held is None:
                if not self._add(group, queue, _Lock(client_id, now_ms)):
                    continue
            elif held.client_id == client_id or held.expired(now_ms):
                self.size += kept_size(client_id) - kept_size(held.client_id)
                held.client_id = client_id
                held.renewed_ms = now_ms
                # The most recently renewed lock comes last.
                locks[queue] = locks.pop(queue)
            else:
                continue
            granted.append(queue)
        return granted

    def would_lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int
    ) -> list[MessageQueue]:
        """Return the queues that `lock` would grant if memory allows, in the order asked for, with
        repeats; no lock changes."""
        locks = self._groups.get(group, {})

        def is_free(queue: MessageQueue) -> bool:
            held = locks.get(queue)
            return held is None or held.client_id == client_id or held.expired(now_ms)

        return [queue for queue in queues if is_free(queue)]

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release the queues that `client_id` holds; queues that are free or held by another client
        are ignored."""
        locks = self._groups.get(group, {})
        for queue in queues:
            held = locks.get(queue)
            if held is not None and held.client_id == client_id:
                self._remove(locks, queue)
        self._drop_if_empty(group)

    def is_group_locked(self, group: str, now_ms: int) -> bool:
        """Whether a client of the group holds any queue with a lease that has not run out, so the
        group consumes in order.

        A send to its retry topic then goes to its dead letter topic (RocketMQ: isLockAllExpired).
        """
        locks = self._groups.get(group)
        return locks is not None and not next(reversed(locks.values())).expired(now_ms)

    def remove_expired(self, now_ms: int) -> None:
        """Remove all locks whose lease ran out, so that a full table becomes empty."""
        for group, locks in list(self._groups.items()):
            for queue in [queue for queue, held in locks.items() if held.expired(now_ms)]:
                self._remove(locks, queue)
            self._drop_if_empty(group)

    def _add(self, group: str, queue: MessageQueue, lock: _Lock) -> bool:
        """Add a lock; False, and nothing changes, if MAX_SIZE does not allow it."""
        known = group in self._groups
        size = lock.size(queue) + (0 if known else _GROUP_SIZE + kept_size(group))
        if self.size + size > MAX_SIZE:
            return False
        self._groups.setdefault(group, {})[queue] = lock
        self._count += 1
        self.size += size
        return True

    def _remove(self, locks: dict[MessageQueue, _Lock], queue: MessageQueue) -> None:
        """Remove the lock of a queue from its group's locks."""
        self.size -= locks.pop(queue).size(queue)
        self._count -= 1

    def _drop_if_empty(self, group: str) -> None:
        """Remove the group if it has no lock."""
        if self._groups.get(group) == {}:
            del self._groups[group]
            self.size -= _GROUP_SIZE + kept_size(group)
