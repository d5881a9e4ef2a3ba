"""Whether a store takes messages, in a word for others.

Owns the verdict and its sentence. It must never change a part, nor ask the disk: what the parts
found by themselves is put together. Called by the store and by `Replicated`, several times a
second, for the part that may have another broker lead (broker/ha/control/membership.py) and for
metrics.

A store that failed stays so until it is opened again: what the system did with the bytes of a sync
that failed is unknown (group_commit.py). A full one takes messages again once there is room. A
store with a slow disk takes messages all the time, so its senders get no sentence.
"""

from turbopump.engine.log.group_commit import GroupCommit
from turbopump.engine.types import Fitness
from turbopump.engine.upkeep.parts import StoreParts
from turbopump.engine.upkeep.retention import FULL_TEXT, Retention


def failure(parts: StoreParts, commit: GroupCommit) -> OSError | None:
    """The sync that failed, of the log or of what is derived from it."""
    return commit.failed or parts.checkpointer.failed


def fitness(parts: StoreParts, commit: GroupCommit, retention: Retention) -> Fitness:
    """What this store can be used for."""
    if failure(parts, commit) is not None or parts.damage.first is not None:
        return Fitness.FAILED
    if retention.disk_full or parts.dispatcher.stalled is not None or parts.log.lacks_file:
        return Fitness.FULL
    return Fitness.SLOW if commit.slow else Fitness.FIT


def why_unfit(parts: StoreParts, commit: GroupCommit, retention: Retention) -> str:
    """A sentence for the sender and the operator, "" of a store that takes messages."""
    if parts.damage.first is not None:
        return str(parts.damage.first)
    error = failure(parts, commit) or parts.dispatcher.stalled
    if error is not None:
        return str(error)
    is_full = fitness(parts, commit, retention) is Fitness.FULL
    return (retention.why_full or FULL_TEXT) if is_full else ""
