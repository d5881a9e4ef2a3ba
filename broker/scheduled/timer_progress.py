"""How far timers were delivered, as a broker keeps it and as a checkpoint has it.

Owns the pair that timers.py describes. It must never decide which progress is safe
(progress.py). Called by timers.py.
"""

from typing import NamedTuple

from turbopump.engine.timer.timer_check import TimerCheckpoint
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.topics import DataVersion


class TimerProgress(NamedTuple):
    """Of the messages before `queue_offset` those in slots before `read_ms` were delivered;
    `position` is where our log ended, -1 in the progress of a master."""

    read_ms: int = 0
    queue_offset: QueueOffset = QueueOffset(0)
    position: int = -1


def progress_before(progress: TimerProgress, end: QueueOffset) -> TimerProgress:
    """The progress of a queue that ends at `end`."""
    if progress.queue_offset <= end:
        return progress
    return TimerProgress(progress.read_ms, end)


def progress_of(checkpoint: TimerCheckpoint) -> TimerProgress:
    """The progress that a checkpoint has."""
    return TimerProgress(checkpoint.read_ms, checkpoint.master_queue_offset)


def version_of(checkpoint: TimerCheckpoint) -> DataVersion:
    """The version that a checkpoint has."""
    return DataVersion(
        state_version=checkpoint.state_version,
        timestamp=checkpoint.timestamp_ms,
        counter=checkpoint.counter,
    )
