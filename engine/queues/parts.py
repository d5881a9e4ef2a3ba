"""The commit log and all that is derived from it, as one value.

Owns nothing but that they belong to one store. It must never do anything with them. Made by
upkeep/parts.py; taken by what reads, writes, keeps or removes several of them.
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
    """One of each."""

    files: Files
    config: StoreConfig
    log: CommitLog
    queues: ConsumeQueues
    batches: BatchQueues
    extensions: QueueExtensions | None
    """None unless enableConsumeQueueExt."""
    index: IndexFiles | None
    """None unless messageIndexEnable."""
    damage: LogDamage
