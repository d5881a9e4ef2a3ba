"""State of a replicated store: the end of its log, its confirmOffset, whether it may lead.

Owns those answers, for the drivers and machines of replication (net.ha.primary.MasterLog). It must
never change the log: engine/replicated.py does.

Tests: tests/unit/engine/test_replicated.py, tests/unit/engine/replicated/test_trouble.py
"""

from turbopump.engine.lifecycle.health import first_sync_error, store_health, why_unfit
from turbopump.engine.lifecycle.parts import StoreParts
from turbopump.engine.lifecycle.retention import Retention
from turbopump.engine.lifecycle.truncate_async import AsyncTruncation
from turbopump.engine.log.commit_log import CLOSED
from turbopump.engine.log.damage import Damage
from turbopump.engine.log.epoch_keeping import EpochKeeping
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.log.group_commit import GroupCommit
from turbopump.engine.log.record_boundary import whole_before
from turbopump.engine.log.replica_append import ReceivedBytes
from turbopump.engine.types import LogOffset, StoreError, StoreHealth
from turbopump.pyx import record as kernel
from turbopump.pyx.tail import UNLIMITED


class ReplicaLog:
    """The state of a replicated store, for reading; the subclass Replicated has the changes. Loop
    thread only, and nothing here waits for a sync."""

    def __init__(
        self, parts: StoreParts, commit: GroupCommit, retention: Retention, plain: bool
    ) -> None:
        self.is_default_ha = plain
        """Whether the group uses default HA: without epochs and confirmOffset."""
        self._parts, self._log = parts, parts.log
        self._commit = commit
        self._retention = retention
        self._received = ReceivedBytes()
        self._kept: EpochKeeping
        self._truncation: AsyncTruncation

    @property
    def min(self) -> LogOffset:
        """Log offset of the first byte that retention has not removed."""
        return self._log.min

    @property
    def end(self) -> LogOffset:
        """Log offset after the last byte of the log."""
        return self._log.end

    @property
    def flushed(self) -> LogOffset:
        """Log offset before which all bytes are durable."""
        return self._log.flushed

    @property
    def confirm(self) -> LogOffset:
        """Log offset before which records may be read (confirmOffset), a record boundary; of a
        master in default HA the end of the dispatched records."""
        limit = self._log.tail.limit
        return self._parts.dispatcher.position if limit == UNLIMITED else LogOffset(limit)

    @property
    def file_size(self) -> int:
        """Size of a log file in bytes."""
        return self._log.file_size

    @property
    def epochs(self) -> Epochs:
        """The epoch list: which master wrote which bytes; empty in default HA."""
        return self._kept.epochs

    @property
    def believed_end(self) -> LogOffset:
        """Log offset of the end of the part of the log that `epochs` covers reliably; less than the
        log's end after damage or loss of the epoch file."""
        return self._kept.file.believed_end(self._log.end)

    @property
    def may_lead(self) -> bool:
        """Whether this store may become a master's: neither log nor epochs are damaged. Failed
        syncs and a full disk do not count, see `health`."""
        return (self.is_default_ha or self._kept.file.may_lead) and self.damage is None

    @property
    def health(self) -> StoreHealth:
        """Whether this store could take messages as a master, whatever its role is now; FAILED also
        if it may not lead."""
        if not self.may_lead:
            return StoreHealth.FAILED
        return store_health(self._parts, self._commit, self._retention)

    @property
    def is_sync_slow(self) -> bool | None:
        """Whether syncs of the log take too long for sends under SYNC_FLUSH; None: unknown. Always
        False under ASYNC_FLUSH."""
        return self._commit.is_sync_slow

    @property
    def why_unfit(self) -> str:
        """Reason why the store could take no messages as a master, a sentence for operators; "" if
        it could."""
        if not (self.is_default_ha or self._kept.file.may_lead):
            return self._kept.file.reason
        return why_unfit(self._parts, self._commit, self._retention)

    @property
    def failed(self) -> OSError | None:
        """The error of the first failed sync, after which the store takes no changes until it is
        opened again; None: no sync failed."""
        return first_sync_error(self._parts, self._commit)

    @property
    def damage(self) -> Damage | None:
        """The first damaged place of the log that is not given up, or None."""
        return self._parts.damage.first

    @property
    def is_slow(self) -> bool:
        """Whether the disk lags too far for the store to take further bytes now: the caller should
        try later. May begin a sync."""
        return self.is_blocked or self._commit.is_slow()

    @property
    def is_blocked(self) -> bool:
        """Whether received bytes wait in memory for the next log file: no later step may be done
        until `Replicated.write_waiting_bytes` has written them."""
        return self._received.blocked

    @property
    def is_truncating(self) -> bool:
        """Whether the log is being cut or restarted, or waits for it: no bytes may be appended, and
        the log's end is not durable yet."""
        return self._truncation.busy

    def _check_epoch(self, epoch: int) -> None:
        """Raise StoreError if the epoch list is not valid, or already has this epoch or a
        newer one."""
        if not self._kept.file.may_lead:
            raise StoreError(f"no epoch can follow: {self._kept.file.reason}")
        if epoch <= self.epochs.last_epoch:
            raise StoreError(f"epoch {epoch} is not newer than {self.epochs.last_epoch}")

    # The master's side

    def view(self, log_offset: LogOffset, size: int) -> list[memoryview]:
        """The bytes of [log_offset, log_offset + size) in order, a piece for each log file, not
        copied and maybe not durable. The pieces stay valid when retention removes the file. Raises
        StoreError if the log lacks some of the bytes."""
        log, end = self._log, LogOffset(log_offset + size)
        if not log.min <= log_offset <= end <= log.end:
            raise StoreError(f"the log has {log.min} to {log.end}, not {log_offset} to {end}")
        pieces = []
        at = log_offset
        while at < end:
            base, region, position, stop = log.part_in_one_file(at, end)
            pieces.append(region.view(position, stop - position))
            at = LogOffset(base + stop)
        return pieces

    # Inside

    def _check_usable(self) -> None:
        """Raise StoreError if the store is closed or a sync of it failed."""
        if self._log.tail.refusals & CLOSED:
            raise StoreError("the store is closed")
        if self.failed is not None:
            raise StoreError(f"the store takes no changes: {self.failed}")

    def _whole_end(self) -> LogOffset:
        """Log offset of the end of the log's last whole record. Raises StoreError where
        no record begins."""
        self._received.drop_waiting(is_aligned=self._received.is_aligned)
        end, why = whole_before(self._log, self.confirm, self._log.end)
        if why == kernel.BAD_RECORD:
            raise StoreError(f"no record begins at log offset {end}")
        return end

    def _record_boundary_before(self, start: LogOffset, until: LogOffset) -> LogOffset:
        """Log offset of the end of the last whole record that begins at `start` or later and ends
        at `until` or before; bytes that are not a record are noted as damage and passed over, as
        dispatch does."""
        at, why = whole_before(self._log, start, until)
        while why == kernel.BAD_RECORD and at < until:
            behind = self._parts.damage.skip_damage(at, until)
            at, why = whole_before(self._log, behind, until)
        return at
