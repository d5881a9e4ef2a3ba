"""Sends that wait for replicas: how many they need, and when they have them.

Owns RocketMQ's rules of inSyncReplicas, minInSyncReplicas and allAckInSyncStateSet (RIP-34), and
the queue of waiting sends. It must never know a connection. Called by the broker's send path before
and after a message is written.

Waiting sends are failed, not released, when the broker stops being the master: what a set of one
member has is not what was promised (RocketMQ releases them, and loses them).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from turbopump.engine.later import Later
from turbopump.engine.types import LogOffset, PutStatus

# Sends that wait at once; at 1 KB each this is what a replica behind by 1 GB leaves waiting.
WAITING_MAX = 1_000_000


class Mode(Enum):
    """Who says how many replicas there are."""

    CONTROLLER = "CONTROLLER"
    PLAIN = "PLAIN"


@dataclass(slots=True, frozen=True)
class AckRules:
    """Names are RocketMQ's keys."""

    mode: Mode
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    all_ack_in_sync_state_set: bool = False


ALL = -1
"""Every member of the set; RocketMQ's ALL_ACK_IN_SYNC_STATE_SET."""


def needed(rules: AckRules, in_sync: int) -> int | None:
    """How many copies a message needs that is about to be written, the master's included, or ALL.

    `in_sync` is how many replicas are in sync, the master included. None: not enough, nothing may
    be written (IN_SYNC_REPLICAS_NOT_ENOUGH); without a controller that is never so.
    """
    if rules.mode is Mode.CONTROLLER:
        if in_sync < rules.min_in_sync_replicas:
            return None
        return ALL if rules.all_ack_in_sync_state_set else rules.in_sync_replicas
    return rules.in_sync_replicas


class Copies(Protocol):
    """Who has how much of the log: a SyncState or a PlainGroup."""

    def all_end(self) -> LogOffset:
        """Log offset that every required replica has acknowledged; -1 while unknown."""

    def copies_end(self, count: int) -> LogOffset:
        """Up to where that many have the log, the master included; -1 if there are not as many."""


@dataclass(slots=True)
class _Waiting:
    log_end: LogOffset
    need: int
    deadline_ms: int
    later: Later[PutStatus]


class WaitingSends:
    """Sends in the order of the log, each resolved once: PUT_OK, FLUSH_SLAVE_TIMEOUT, or what
    `fail` was given."""

    def __init__(self, sync: Copies, min_in_sync_replicas: int = 1) -> None:
        self.may_release: Callable[[], bool] = lambda: True
        """Whether a lease holds: without one nothing is acknowledged, however many have it."""
        self._sync = sync
        self.min_in_sync_replicas = min_in_sync_replicas
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, log_end: LogOffset, need: int, deadline_ms: int) -> Later[PutStatus]:
        """Resolved once `need` copies of the log reach `log_end`; see `needed`."""
        later: Later[PutStatus] = Later()
        if need in (0, 1):
            later.resolve(PutStatus.PUT_OK)
        elif len(self._waiting) == WAITING_MAX:
            later.resolve(PutStatus.FLUSH_SLAVE_TIMEOUT)
        else:
            if self._waiting:
                # What was read together is reported in any order; it is answered together, too.
                log_end = max(log_end, self._waiting[-1].log_end)
            self._waiting.append(_Waiting(log_end, need, deadline_ms, later))
            self.release()
        return later

    def release(self) -> None:
        """After an acknowledgement or a change of the set: one look at it for all that wait."""
        waiting = self._waiting
        if not waiting or not self.may_release():
            return
        ends: dict[int, LogOffset] = {}
        while waiting:
            first = waiting[0]
            if first.need not in ends:
                ends[first.need] = self.safe_end(first.need)
            if first.log_end > ends[first.need]:
                return
            waiting.popleft().later.resolve(PutStatus.PUT_OK)

    def on_tick(self, now_ms: int) -> None:
        """Those whose time is over; all wait equally long, so they are the first ones."""
        waiting = self._waiting
        while waiting and waiting[0].deadline_ms <= now_ms:
            waiting.popleft().later.resolve(PutStatus.FLUSH_SLAVE_TIMEOUT)

    def fail(self, status: PutStatus) -> None:
        """This broker is no master any more: the outcome of these is unknown."""
        while self._waiting:
            self._waiting.popleft().later.resolve(status)

    def safe_end(self, need: int) -> LogOffset:
        """Up to where so many copies have the log; -1 if there are not as many."""
        if need == ALL:
            return min(self._sync.all_end(), self._sync.copies_end(self.min_in_sync_replicas))
        return self._sync.copies_end(need)
