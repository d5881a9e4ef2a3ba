"""Removing all of a store but its configuration, for a replica whose log is not its master's.

Owns the mark file of a removal under way. It must never leave a part: a start that finds the mark
removes the rest before it examines any file.

The mark is durable before the first file is removed, and is removed when all removals are durable.
So a crash leaves the old store or, after the next start, an empty one. RocketMQ ignores the mark:
after such a crash it finds a store with files missing.

Tests: tests/unit/engine/lifecycle/test_recovery.py
"""

import logging
from functools import partial

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk import atomic_replace
from turbopump.engine.disk import checkpoint as checkpoints
from turbopump.engine.disk.disk_steps import Steps, Work
from turbopump.engine.disk.files import Files
from turbopump.engine.disk.segments import is_file_name
from turbopump.engine.lifecycle.parts import StoreParts
from turbopump.engine.lifecycle.retention import Retention
from turbopump.engine.log import epoch_lines
from turbopump.engine.log.epoch_file import BACKUP
from turbopump.engine.log.group_commit import GroupCommit
from turbopump.engine.types import LogOffset, PutStatus, StoreError
from turbopump.pyx.tail import UNLIMITED

logger = logging.getLogger(__name__)

MARK_FILE = "restart"
"""Name of the empty file in the store's folder that exists while the store is emptied."""
_FOLDERS = ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index")


def steps_of_restart(parts: StoreParts, commit: GroupCommit, retention: Retention) -> Steps:
    """Steps that remove a running store's log and all files derived from it, durably; no other
    thread may work on the store. It counts as empty as soon as the mark is written. Pending sends
    are answered with SERVICE_NOT_AVAILABLE. The steps raise OSError, StoreError."""
    files, config = parts.files, parts.config
    withdrawn = commit.prepare_cut(LogOffset(-1), PutStatus.SERVICE_NOT_AVAILABLE)
    try:
        if commit.failed is not None:
            raise StoreError(f"the log cannot be restarted: {commit.failed}")
        yield partial(_write_mark, files, config)
        clamp = _forget_files(parts)
        retention.forget_removals()
        yield clamp
        yield partial(finish_restart, files, config)
        yield from parts.checkpointer.sync_and_save_steps()
        logger.info("the log was restarted: it is empty")
        commit.resume_after_cut(0)
    finally:
        commit.pending.answer(withdrawn)


def _write_mark(files: Files, config: StoreConfig) -> None:
    """Write the mark file of a restart under way, durably."""
    path = f"{config.root}/{MARK_FILE}"
    files.write(path, b"")
    files.sync(path)
    files.sync_folder(config.root)


def finish_restart(files: Files, config: StoreConfig) -> None:
    """Remove the files of a store that has the mark, except its configuration, durably, then the
    mark; waits for the disk. Raises OSError."""
    root = config.root
    for name in files.list_folder(config.log_folder):
        if is_file_name(name):
            files.remove(f"{config.log_folder}/{name}")
    if files.exists(config.log_folder):
        files.sync_folder(config.log_folder)
    for folder in _FOLDERS:
        files.remove_folder(f"{root}/{folder}")
    epochs = config.epoch_path
    lists = (epochs, epochs + BACKUP, epochs + epoch_lines.SUFFIX)
    for path in (f"{root}/{checkpoints.FILE_NAME}", *lists):
        if files.exists(path):
            files.remove(files.resolve(path))
    for path in (epochs, f"{root}/{MARK_FILE}"):
        if files.exists(path.rpartition("/")[0] or "."):
            atomic_replace.sync_names(files, path)
    files.remove(f"{root}/{MARK_FILE}")
    files.sync_folder(root)


def finish_pending(files: Files, config: StoreConfig) -> None:
    """Do `finish_restart` if the store has the mark of an interrupted restart, before it is opened;
    else a no-op. Raises OSError."""
    if files.exists(f"{config.root}/{MARK_FILE}"):
        logger.warning("the store was being emptied: the rest is removed")
        finish_restart(files, config)


def _forget_files(parts: StoreParts) -> Work:
    """Let all parts of the store forget their files, which are about to be removed. The returned
    work makes the remaining table durable. Raises StoreError."""
    log, queues = parts.log, parts.queues
    queues.table.set_index(None)
    queues.table.take_arrivals()
    queues.forget_all()
    for topic in parts.batches.topics():
        parts.batches.forget_topic(topic)
    if parts.extensions is not None:
        for topic in {name for name, _queue_id in parts.extensions.queues_with_extension()}:
            parts.extensions.forget_topic(topic)
    if parts.index is not None:
        parts.index.forget_all()
    log.forget_all()
    parts.dispatcher.new_lives.forget_proofs_from(LogOffset(0))
    parts.dispatcher.start(log.end, log.end)
    parts.dispatcher.last_store_timestamp_ms = 0
    parts.damage.forget_from(0)
    parts.checkpointer.reset_after_removal()
    if log.tail.limit != UNLIMITED:
        log.tail.limit = 0
    return queues.deleted_topics.lower_ends_work(log.end)
