"""The number of copies that a send needs, and the end of the log that has enough copies.

Owns RocketMQ's rules of inSyncReplicas, minInSyncReplicas and allAckInSyncStateSet (RIP-34). It
must never know a connection, nor a send. The term (broker/ha/leader.py) pushes both values to
pending sends.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from turbopump.engine.types import LogOffset


class Mode(Enum):
    """The source of the set of replicas in sync: the controller's SyncStateSet, or in default HA
    the connections."""

    CONTROLLER = "CONTROLLER"
    """The SyncStateSet that a controller agreed to."""
    PLAIN = "PLAIN"
    """The connections of default HA."""


@dataclass(slots=True, frozen=True)
class AckRules:
    """Rules for acknowledging sends; names are RocketMQ's keys."""

    mode: Mode
    in_sync_replicas: int = 1
    """Copies that a message needs, the master's included, unless `all_ack_in_sync_state_set`."""
    min_in_sync_replicas: int = 1
    """Replicas in sync, the master included, below which a controller's master refuses sends."""
    all_ack_in_sync_state_set: bool = False
    """Whether every member of the SyncStateSet must have a message; without effect in mode
    PLAIN."""


ALL = -1
"""Number of copies that stands for every member of the set; RocketMQ's
ALL_ACK_IN_SYNC_STATE_SET."""


def copies_needed(rules: AckRules, in_sync: int) -> int | None:
    """The number of copies, the master's included, that a message to be written needs, or ALL.

    `in_sync` is the number of replicas in sync, the master included. None: too few, and no message
    may be written (IN_SYNC_REPLICAS_NOT_ENOUGH); without a controller that never happens.
    """
    if rules.mode is Mode.CONTROLLER:
        if in_sync < rules.min_in_sync_replicas:
            return None
        return ALL if rules.all_ack_in_sync_state_set else rules.in_sync_replicas
    return rules.in_sync_replicas


class Copies(Protocol):
    """The positions of the replicas in the log: a SyncState or a DefaultHaGroup."""

    def all_end(self) -> LogOffset:
        """Log offset up to which the master and all required replicas have the log; -1 while a
        position is unknown. LOG_OFFSET_MAX in default HA, which requires no replica."""

    def copies_end(self, count: int) -> LogOffset:
        """Log offset up to which `count` copies have the log, the master's included; -1 if there
        are fewer copies. LOG_OFFSET_MAX for a `count` up to 1: the master's copy is enough."""


def safe_end(copies: Copies, need: int, min_in_sync_replicas: int) -> LogOffset:
    """Log offset up to which sends may be acknowledged: `need` copies, as `copies_needed` returned
    it, have the log; -1 if there are fewer copies. With ALL, at least `min_in_sync_replicas` copies
    must have it, too: the set may have shrunk since the message was written."""
    if need == ALL:
        return min(copies.all_end(), copies.copies_end(min_in_sync_replicas))
    return copies.copies_end(need)
