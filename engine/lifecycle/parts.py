"""The parts of a store.

Owns which part gets which other parts. It must never do anything with them. Recovery and truncation
work on these parts beside the store.

Tests: tests/unit/engine/lifecycle/test_recovery.py
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from turbopump.engine.config import LOG_FILE_SIZE, MIN_COMMIT_LOG_FILE, StoreConfig
from turbopump.engine.disk.files import FileLock, Files
from turbopump.engine.disk.flush import Disk
from turbopump.engine.disk.segments import MappingPool, file_size_in
from turbopump.engine.lifecycle.checkpointer import Checkpointer
from turbopump.engine.lifecycle.disk_use import DiskReport
from turbopump.engine.log.commit_log import CommitLog
from turbopump.engine.log.damage import LogDamage
from turbopump.engine.queues.batch_queue import BatchQueues
from turbopump.engine.queues.consume_queue import ConsumeQueues
from turbopump.engine.queues.dispatcher import LogDispatcher
from turbopump.engine.queues.index import IndexFiles
from turbopump.engine.queues.parts import QueueParts
from turbopump.engine.queues.queue_ext import QueueExtensions
from turbopump.engine.types import StoreError

LOCK_FILE = "lock"
"""Name of the file in the store's folder that an open store locks, as RocketMQ does."""
LOCK_CONTENT = b"lock"
"""Content of that file, the same as RocketMQ's."""


@dataclass(slots=True, frozen=True, kw_only=True)
class StoreParts(QueueParts):
    """The parts of one store: log, queues and index, with the dispatcher that fills queues and
    index and the checkpointer that makes them durable."""

    dispatcher: LogDispatcher
    """Writes the units and index entries of records."""
    checkpointer: Checkpointer
    """Makes units and entries durable."""


@dataclass(slots=True, frozen=True, kw_only=True)
class OpenedParts:
    """The result of opening a store: recovered parts, in a locked folder."""

    parts: StoreParts
    disk: Disk
    """Runs the store's disk work; the caller of `Store.open` closes it."""
    pool: MappingPool
    """The mappings of all files; the store closes it."""
    lock: FileLock
    """The lock of the folder; the store releases it."""
    room: DiskReport
    """The last answer of the disk about its room."""
    now_ms: int
    """Time of the opening, in epoch ms."""
    steady_ms: int
    """The same on the steady clock."""


def build_parts(
    files: Files,
    config: StoreConfig,
    disk: Disk,
    pool: MappingPool,
    is_batch_topic: Callable[[str], bool],
    delays_ms: list[int],
) -> StoreParts:
    """The parts of a store that is not recovered yet, for `recover`. If the configured size of log
    files is the default, the existing files determine it, because they may have been made with
    another size; `StoreParts.config` then has that size. Raises OSError."""
    if config.mapped_file_size_commit_log == LOG_FILE_SIZE:
        size = file_size_in(files, config.log_folder)
        if size is not None and size >= MIN_COMMIT_LOG_FILE:
            config = dataclasses.replace(config, mapped_file_size_commit_log=size)
    log = CommitLog(files, config, disk, pool)
    queues = ConsumeQueues(files, config.root, config.queue_file_size, pool)
    batches = BatchQueues(files, config.root, config.batch_queue_file_size, pool)
    extensions = None
    if config.enable_consume_queue_ext:
        size = config.mapped_file_size_consume_queue_ext
        extensions = QueueExtensions(files, config.root, size, pool)
    index = IndexFiles(files, config, pool) if config.message_index_enable else None
    parts = QueueParts(
        files=files,
        config=config,
        log=log,
        queues=queues,
        batches=batches,
        extensions=extensions,
        index=index,
        damage=LogDamage(files, config.root, log, disk),
    )
    dispatcher = LogDispatcher(parts, is_batch_topic, delays_ms)
    checkpointer = Checkpointer(parts, disk, dispatcher)
    known = {field.name: getattr(parts, field.name) for field in dataclasses.fields(parts)}
    return StoreParts(**known, dispatcher=dispatcher, checkpointer=checkpointer)


def lock_folder(files: Files, config: StoreConfig) -> FileLock:
    """Create the store's folder if it is missing, and lock it against other processes and stores
    until the lock is released; does not wait. Raises StoreError, also if it is locked."""
    try:
        files.make_folders(config.root)
        return files.lock(f"{config.root}/{LOCK_FILE}", LOCK_CONTENT)
    except BlockingIOError:
        raise StoreError(f"the store in {config.root} is in use by a running broker") from None
    except OSError as error:
        raise StoreError(f"the store in {config.root} cannot be opened: {error}") from error
