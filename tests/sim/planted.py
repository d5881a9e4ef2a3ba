"""Bugs that stores have had, to be planted one at a time: the suites must find each.

Each bug is one changed function of the engine (or one duty of the disk that the engine omits),
restored when the test ends. Some are bugs that the simulation itself found in this engine.
"""

from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from tests.sim.disk import SimDisk, SimMapped
from tests.sim.planting import Patch, Plant
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk import checkpoint as checkpoints
from turbopump.engine.disk import config_files
from turbopump.engine.disk.config_changes import Changes
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.segments import Segments
from turbopump.engine.lifecycle import recovery, truncation
from turbopump.engine.lifecycle.checkpointer import Checkpointer
from turbopump.engine.lifecycle.flush_plan import DirtyFiles
from turbopump.engine.lifecycle.retention import Retention
from turbopump.engine.log import commit_log
from turbopump.engine.log import scan as log_scan
from turbopump.engine.log.commit_log import CommitLog
from turbopump.engine.log.group_commit import GroupCommit
from turbopump.engine.log.next_file import NextFile
from turbopump.engine.queues.consume_queue import ConsumeQueues
from turbopump.engine.store import Store
from turbopump.engine.types import LogOffset, PutStatus
from turbopump.pyx import record
from turbopump.pyx.region import Region


def no_crc_check(patch: Patch) -> None:
    """Recovery accepts every record with consistent lengths and the right physical offset, without
    its CRC.
    """

    def walk(region: Region, position: int, end: int, base: int, torn_pages: bool = False) -> Any:
        found = record.scan(region, position, end, check_crc=False)
        status, count, at = found.status, found.count, found.position
        for number in range(found.count):
            if found.rows[number, record.PHYSICAL_OFFSET] != base + position:
                status, count, at = record.BAD_RECORD, number, position
                break
            position += found.rows[number, record.SIZE]
        return SimpleNamespace(
            status=status,
            position=at,
            count=count,
            reason=found.reason,
            store_timestamp_ms=found.rows[count - 1, record.STORE_TIMESTAMP_MS] if count else 0,
        )

    patch.setattr(log_scan, "walk", walk)


def no_folder_sync(patch: Patch) -> None:
    """Files are synced, their names are not."""
    patch.setattr(SimDisk, "sync_folder", lambda self, path: self.operate())


def names_above_forgotten(patch: Patch) -> None:
    """The folder of a file is synced, the folders above it are not."""
    patch.setattr(recovery, "sync_parent_folders", lambda files, path: None)


def names_above_config_forgotten(patch: Patch) -> None:
    """The same of the files of `config/`."""
    patch.setattr(config_files, "sync_parent_folders", lambda files, path: None)


def checkpoint_before_data(patch: Patch) -> None:
    """The checkpoint includes the bytes of a flush round before that round has synced them."""
    begin, plan = Checkpointer._begin_round, DirtyFiles.plan_sync

    def planted(self: Checkpointer, last: bool = False) -> Any:
        def early(dirty: DirtyFiles, last: bool) -> Any:
            found = plan(dirty, last)
            if found.marks.queues <= self._log.flushed:
                self.checkpoint = self.checkpoint._replace(marks=found.marks)
                with suppress(OSError):
                    checkpoints.save(self._files, self._config.root, self.checkpoint)
            return found

        with patch.context() as inside:
            inside.setattr(DirtyFiles, "plan_sync", early)
            return begin(self, last)

    patch.setattr(Checkpointer, "_begin_round", planted)


def checkpoint_before_log(patch: Patch) -> None:
    """The checkpoint holds the end of the log instead of its durable end."""
    real = checkpoints.save

    def planted(self: Checkpointer, *args: Any) -> Any:
        def save(files: Any, root: str, checkpoint: Any) -> None:
            marks = checkpoint.marks and checkpoint.marks._replace(log=self._log.end)
            real(files, root, checkpoint._replace(marks=marks))

        work, done = real_save(self, *args)

        def early() -> None:
            with patch.context() as inside:
                inside.setattr(checkpoints, "save", save)
                work()

        return early, done

    real_save = Checkpointer._begin_save
    patch.setattr(Checkpointer, "_begin_save", planted)


def truncation_by_position(patch: Patch) -> None:
    """A truncation only moves the end of the log; the bytes after it stay (RocketMQ:
    truncateDirtyFiles).
    """

    def cut_log(log: CommitLog, log_end: LogOffset, last_timestamp_ms: int) -> Any:
        log.stop_at(log_end)
        yield log.discard_next_file_work()
        yield log.drop_files_work(log_end)
        log.start_writing(log_end, last_timestamp_ms)

    patch.setattr(CommitLog, "truncate", CommitLog.drop_files_from_end)
    patch.setattr(truncation, "cut_log", cut_log)


def truncation_not_synced(patch: Patch) -> None:
    """A truncation overwrites the tail with zeros, but does not sync them."""

    def clear_tail(mapped: Any, position: int) -> int:
        mapped.region.zero(position, mapped.size - position)
        return mapped.size - position  # type: ignore[no-any-return]

    patch.setattr(commit_log, "clear_tail", clear_tail)


def tail_not_synced(patch: Patch) -> None:
    """Recovery counts bytes that a killed process left in the page cache as durable (R36)."""
    patch.setattr(recovery, "_sync_scanned_tail", lambda log, scan: None)


def dispatch_beyond_flushed(patch: Patch) -> None:
    """Readers are shown messages that no sync has made durable, also under SYNC_FLUSH (R36)."""
    real = Store._count_append

    def appended(self: Store, *args: Any) -> Any:
        self._dispatcher.run(self._log.end, 0)
        return real(self, *args)

    patch.setattr(Store, "_count_append", appended)


def acknowledged_before_sync(patch: Patch) -> None:
    """A sender under SYNC_FLUSH does not wait."""

    def wait(self: GroupCommit, end: LogOffset, copies: int) -> Deferred[PutStatus]:
        later: Deferred[PutStatus] = Deferred()
        later.resolve(PutStatus.PUT_OK)
        return later

    patch.setattr(GroupCommit, "wait_until_safe", wait)


def abort_file_ignored(patch: Patch) -> None:
    """Each start trusts the files as after a clean stop."""
    real = recovery._plan_recovery
    patch.setattr(
        recovery,
        "_plan_recovery",
        lambda parts, saved, clean, *rest: real(parts, saved, True, *rest),
    )


def unit_skipped_at_a_roll(patch: Patch) -> None:
    """The first unit of each further queue file is forgotten."""
    real = ConsumeQueues.make_room

    def make_room(self: ConsumeQueues, queue: Any, queue_offset: int) -> None:
        real(self, queue, queue_offset)
        if queue_offset > 0 and queue_offset * 20 % self.file_size == 0:
            log_end = self.table.max_log_offset(queue.slot)
            self.table.set_progress(queue.slot, queue_offset + 1, log_end)

    patch.setattr(ConsumeQueues, "make_room", make_room)


def index_not_rebuilt(patch: Patch) -> None:
    """Recovery after an unclean stop keeps the index as the disk has it."""
    patch.setattr(recovery, "_trim_index", lambda parts, plan, saved: plan.scan.end)


def queues_not_rebuilt(patch: Patch) -> None:
    """Recovery after an unclean stop trusts all units of the queues (R37)."""
    patch.setattr(recovery, "truncate_units", lambda parts, log_end, **how: iter(()))


def failed_sync_swallowed(patch: Patch) -> None:
    """A sync that failed counts as done."""
    real = SimMapped.sync

    def sync(self: SimMapped, start: int, end: int) -> None:
        try:
            real(self, start, end)
        except OSError:
            return

    patch.setattr(SimMapped, "sync", sync)


def failed_sync_retried(patch: Patch) -> None:
    """A failed sync is repeated, and counts if the system reports success then."""
    real = GroupCommit.start_sync

    def start(self: GroupCommit) -> None:
        self.failed = None
        real(self)

    patch.setattr(GroupCommit, "start_sync", start)


def failed_sync_forgotten_by_a_restart(patch: Patch) -> None:
    """The next process counts pages whose sync failed as written."""
    patch.setattr(SimMapped, "mark_dirty", lambda self, start, end: None)


def failed_cut_forgotten_by_a_restart(patch: Patch) -> None:
    """The next process counts zeros of queues whose sync failed as written."""
    patch.setattr(recovery, "_has_cutting_mark", lambda parts: False)


def config_written_in_place(patch: Patch) -> None:
    """A config file is overwritten (RocketMQ: MixAll.string2File of old)."""

    def save(self: ConfigFiles, name: str, value: Any) -> None:
        path = f"{self._folder}/{name}"
        self._files.make_folders(self._folder)
        config_files.sync_parent_folders(self._files, path)
        if self._files.exists(path):
            self._files.write(path + ".bak", self._files.read(path))
            self._files.sync(path + ".bak")
        self._files.write(path, config_files.fastjson.dumps(value).encode())
        self._files.sync(path)
        self._files.sync_folder(self._folder)

    patch.setattr(ConfigFiles, "save", save)


def config_not_synced(patch: Patch) -> None:
    """A config file is renamed into place before its bytes are durable."""
    real = SimDisk.sync

    def sync(self: SimDisk, path: str) -> None:
        if path.endswith(".tmp"):
            return
        real(self, path)

    patch.setattr(SimDisk, "sync", sync)


def config_read_before_durable(patch: Patch) -> None:
    """A config file is acted upon as it is found, whether its last save came to its end or not."""
    patch.setattr(ConfigFiles, "_make_read_durable", lambda self, path, changes: None)


def changes_not_synced(patch: Patch) -> None:
    """A change beside a config file counts as durable once it is written."""
    patch.setattr(SimDisk, "sync_data", lambda self, path: None)


def changes_behind_a_failure(patch: Patch) -> None:
    """Changes are appended after a change whose sync failed."""
    real = Changes.append

    def append(self: Changes, changes: Sequence[bytes]) -> None:
        digest = self._digest
        try:
            real(self, changes)
        except OSError:
            self._digest = digest
            self.size += sum(len(one) + 8 for one in changes)
            raise

    patch.setattr(Changes, "append", append)


def changes_of_any_file(patch: Patch) -> None:
    """Changes count beside whatever file is there."""
    patch.setattr(config_files, "digest_of", lambda text: b"0" * 32)
    real = Changes.note_durable_file
    patch.setattr(
        Changes, "note_durable_file", lambda self, size, digest: real(self, size, b"0" * 32)
    )
    patch.setattr(Changes, "remove", lambda self: None)


def failed_changes_forgotten_by_a_restart(patch: Patch) -> None:
    """Changes of a configuration file whose sync failed count as durable."""
    patch.setattr(Changes, "make_read_durable", lambda self: None)


def deleted_files_come_back(patch: Patch) -> None:
    """Files of a topic's former life are taken for files of its present life."""
    patch.setattr(ConsumeQueues, "_drop_former", lambda self, folder, log_end: None)


def undispatched_files_expire(patch: Patch) -> None:
    """Retention looks at the age of a log file alone."""
    always = property(lambda self: self._log.flushed, lambda self, value: None)
    patch.setattr(Checkpointer, "durable_end", always, raising=False)


def expired_files_removed_at_once(patch: Patch) -> None:
    """Log files are removed in one go: a power cut may leave a hole among them."""
    real = Retention.__init__

    class Hasty:
        """The disk without the sync between two removals."""

        def __init__(self, files: Any) -> None:
            self._files = files

        def sync_folder(self, path: str) -> None:
            pass

        def __getattr__(self, name: str) -> Any:
            return getattr(self._files, name)

    def init(self: Retention, *args: Any, **named: Any) -> None:
        real(self, *args, **named)
        self._files = Hasty(self._files)  # type: ignore[assignment]

    patch.setattr(Retention, "__init__", init)


def queues_not_settled(patch: Patch) -> None:
    """After a recovery new messages get queue offsets that existing messages have."""
    patch.setattr(recovery, "settle_queues", lambda parts: None)


def missing_queues_not_noticed(patch: Patch) -> None:
    """Recovery fills queues up from the checkpoint's mark, whether their files are there or not."""
    patch.setattr(
        recovery, "_dispatch_start", lambda parts, plan, saved: max(plan.queues_from, parts.log.min)
    )


def filler_forgotten(patch: Patch) -> None:
    """A full log file lacks its filler record, which marks that records continue in the
    next file.
    """
    patch.setattr(commit_log.kernel, "append_filler", lambda region, position, end: None)


def log_ahead_of_the_checkpoint_expires(patch: Patch) -> None:
    """Retention relies on a checkpoint that is still on its way to the disk."""
    real = Checkpointer._begin_save

    def save(self: Checkpointer, *args: Any) -> Any:
        found = real(self, *args)
        marks = self.checkpoint.marks
        assert marks is not None
        self.durable_end = marks.queues
        return found

    patch.setattr(Checkpointer, "_begin_save", save)


def last_durable_queue_file_expires(patch: Patch) -> None:
    """Retention takes all files of a queue but the last, whether that is durable or not."""
    real = ConsumeQueues.delete_expired

    def delete_expired(
        self: ConsumeQueues, queue: Any, min_log_offset: int, _durable_end: int
    ) -> list[str]:
        queue.flushed_offset = self.max_offset(queue)
        return real(self, queue, min_log_offset, 1 << 62)

    patch.setattr(ConsumeQueues, "delete_expired", delete_expired)


def stores_into_holes(patch: Patch) -> None:
    """Queue files get no blocks before they are written: fatal on a full disk."""
    real = Segments.create

    def create(self: Segments, start: int, may_close: Any = None, _reserved: int = 0) -> Any:
        return real(self, start, may_close)

    patch.setattr(Segments, "create", create)


def next_log_file_not_synced(patch: Patch) -> None:
    """A log file's name is not durable when its first record is acknowledged."""

    def create(self: NextFile, start: int) -> Any:
        self._files.make_folders(self._segments.folder)
        mapped = self._files.create(self._segments.path(start), self._segments.file_size)
        mapped.reserve(0, self._segments.file_size)
        return mapped

    patch.setattr(NextFile, "_create", create)


STORE_BUGS: list[Plant] = [
    no_crc_check, no_folder_sync, names_above_forgotten, checkpoint_before_data,
    checkpoint_before_log, truncation_by_position, truncation_not_synced, tail_not_synced,
    dispatch_beyond_flushed, acknowledged_before_sync, abort_file_ignored, unit_skipped_at_a_roll,
    index_not_rebuilt, queues_not_rebuilt, queues_not_settled, missing_queues_not_noticed,
    filler_forgotten, failed_sync_swallowed, failed_sync_retried,
    failed_sync_forgotten_by_a_restart, failed_cut_forgotten_by_a_restart, deleted_files_come_back,
    undispatched_files_expire, log_ahead_of_the_checkpoint_expires,
    last_durable_queue_file_expires, expired_files_removed_at_once, stores_into_holes,
    next_log_file_not_synced,
]  # fmt: skip
# Kinds of trouble to play, the first as the theme of the seed, for bugs that show in few seeds.
ABOUT: dict[Plant, tuple[str, ...]] = {
    no_crc_check: ("torn pages",),
    queues_not_settled: ("truncation", "full"),
    missing_queues_not_noticed: ("damage",),
    failed_sync_retried: ("bad sync",),
    failed_sync_forgotten_by_a_restart: ("bad sync", "kill"),
    failed_cut_forgotten_by_a_restart: ("bad sync", "clock"),
    deleted_files_come_back: ("deletion",),
    undispatched_files_expire: ("retention",),
    log_ahead_of_the_checkpoint_expires: ("retention",),
    last_durable_queue_file_expires: ("retention",),
    expired_files_removed_at_once: ("retention",),
}
CONFIG_BUGS: list[Plant] = [
    config_written_in_place,
    config_not_synced,
    config_read_before_durable,
    names_above_config_forgotten,
    changes_not_synced,
    changes_behind_a_failure,
    changes_of_any_file,
    failed_changes_forgotten_by_a_restart,
]
