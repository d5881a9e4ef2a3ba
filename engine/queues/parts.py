"""The commit log and all parts derived from it, as one value.

Owns only the fact that they belong to one store. It must never do anything with them.
"""

from dataclasses import dataclass

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.files import Files
from turbopump.engine.log.commit_log import CommitLog
from turbopump.engine.log.damage import LogDamage
from turbopump.engine.queues.batch_queue import BatchQueues
from turbopump.engine.queues.consume_queue import ConsumeQueues
from turbopump.engine.queues.index import IndexFiles
from turbopump.engine.queues.queue_ext import QueueExtensions


@dataclass(slots=True, frozen=True, kw_only=True)
class QueueParts:
    """The parts of one store that hold its messages: log, queues, index, damage. No methods."""

    files: Files
    """Access to the file system."""
    config: StoreConfig
    log: CommitLog
    queues: ConsumeQueues
    """The plain queues, of every topic without `queue.type=BatchCQ`."""
    batches: BatchQueues
    """The batch queues, of topics with `queue.type=BatchCQ`."""
    extensions: QueueExtensions | None
    """The queue extensions; None unless enableConsumeQueueExt."""
    index: IndexFiles | None
    """The index; None unless messageIndexEnable."""
    damage: LogDamage
    """The damaged places of the log."""
