"""How many copies of a message a send needs, and up to where the log has so many.

Owns RocketMQ's rules of inSyncReplicas, minInSyncReplicas and allAckInSyncStateSet (RIP-34). It
must never know a connection, nor a send. Called by the reign (broker/ha/leader.py), which pushes
both to the sends that wait.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from turbopump.engine.types import LogOffset


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


def safe_end(copies: Copies, need: int, min_in_sync_replicas: int) -> LogOffset:
    """Up to where so many copies have the log; -1 if there are not as many. The minimum holds when
    a send is answered, too: the set may have shrunk since it was written."""
    if need == ALL:
        return min(copies.all_end(), copies.copies_end(min_in_sync_replicas))
    return copies.copies_end(need)
