"""A store's verdict whether it takes messages.

Owns the verdict and its sentence, from the findings of the parts; metrics use it, and the broker
part that may let another broker lead. It must never change a part, nor ask the disk, because it
runs several times a second.

After a failed sync a store stays failed until it is opened again: the fate of its bytes is unknown
(group_commit.py). After damage it stays failed until the damaged records are repaired or given up
by an operator. A full store takes messages again once there is room. A store with a slow disk
takes messages all the time, so its senders get no sentence.

    fit <--> full        fit, full --failed sync, damage--> failed

Tests: tests/unit/engine/disk/test_sync_watch.py
"""

from turbopump.engine.lifecycle.parts import StoreParts
from turbopump.engine.lifecycle.retention import FULL_TEXT, Retention
from turbopump.engine.log.group_commit import GroupCommit
from turbopump.engine.types import StoreHealth


def first_sync_error(parts: StoreParts, commit: GroupCommit) -> OSError | None:
    """The error of the first failed sync of the log, else of derived files or the checkpoint; None
    if no sync failed since the store was opened."""
    return commit.failed or parts.checkpointer.failed


def store_health(parts: StoreParts, commit: GroupCommit, retention: Retention) -> StoreHealth:
    """The store's verdict, whatever its role: FAILED after a failed sync or while a damaged record
    is not given up, else FULL without room or a log file, or while dispatch lacks room, else SLOW
    with a slow disk, else FIT. Never STOPPING."""
    if first_sync_error(parts, commit) is not None or parts.damage.first is not None:
        return StoreHealth.FAILED
    if retention.disk_full or parts.dispatcher.stalled is not None or parts.log.lacks_file:
        return StoreHealth.FULL
    return StoreHealth.SLOW if commit.is_sync_slow else StoreHealth.FIT


def why_unfit(parts: StoreParts, commit: GroupCommit, retention: Retention) -> str:
    """Reason why the store takes no messages, a sentence for the sender and the operator; "" if it
    takes messages (FIT and SLOW)."""
    if parts.damage.first is not None:
        return str(parts.damage.first)
    error = first_sync_error(parts, commit) or parts.dispatcher.stalled
    if error is not None:
        return str(error)
    is_full = store_health(parts, commit, retention) is StoreHealth.FULL
    return (retention.why_full or FULL_TEXT) if is_full else ""
