"""Progress of deliveries, and the part of it that may be published and saved.

The rule for delay levels and timers: no progress is ahead of the deliveries that the disk, or the
replicas, have. So after any crash and any change of role a message is delivered once or more (I13,
I14). This module does not know the deliveries themselves and writes no file.

    current   the deliveries of this broker
    candidate a progress on its way to become safe, and the log's end at that time
    safe      the newest progress whose deliveries survive any crash and any change of master
    coming    a master's progress, until this log has its deliveries
    adopted   a replica's progress, until its deliveries are on this disk

    current --begin--> candidate --flushed and copied--> safe --> saved
    coming --log confirmed--> current, adopted --flushed--> safe

Tests: tests/unit/broker/scheduled/test_timers.py, tests/unit/broker/scheduled/test_delay.py
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from turbopump.broker.tables.data_versions import VersionRules, is_older
from turbopump.broker.traffic.role import Role
from turbopump.engine.store import Store
from turbopump.engine.types import LogOffset
from turbopump.net.wire.topics import DataVersion

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class _AwaitedProgress(Generic[P]):
    """A master's progress that a replica adopts once its log is confirmed up to `log_end`."""

    progress: P
    version: DataVersion
    log_end: LogOffset


class DurableProgress(Generic[P]):
    """The progress of deliveries of delay levels or timers, and the part of it that is safe to
    publish and to save, because the deliveries survive any crash and change of master. Progress
    values are immutable. Loop thread only; times are epoch ms, and nothing here writes a file."""

    def __init__(self, store: Store, role: Role, begin: P) -> None:
        self._store = store
        self._role = role
        self.current: P = begin
        """The present progress of deliveries; the owner sets it."""
        self.safe: P = begin
        """The newest progress known to be safe; call `settle_candidate` before use."""
        self.saved: P | None = begin
        """The content of the file; None if unknown."""
        self._candidate: tuple[P, LogOffset] | None = None
        self._coming: _AwaitedProgress[P] | None = None
        self._adopted: tuple[P, LogOffset] | None = None
        self._left_at: LogOffset | None = None
        self.data_version = DataVersion()
        """Version of `current`; the owner sets it after deliveries."""
        self.versions = VersionRules()
        """Whether this broker counts versions itself, or follows a master."""

    def load(self, progress: P, version: DataVersion) -> None:
        """Set the current, safe and saved progress to that of the file."""
        self.current = self.safe = self.saved = progress
        self.data_version = version

    def bump_version(self, now_ms: int) -> None:
        """Start a new version of the same progress at `now_ms`: it belongs to another term. The
        file has to be saved again."""
        self.data_version = self.versions.next_version(self.data_version, now_ms)
        self.saved = None

    def make_candidate(self) -> None:
        """Make the present progress a candidate, unless there is one already or the file has this
        progress. It becomes safe, at a later `settle_candidate`, once its deliveries are on disk
        and on the replicas that a message needs, because a replica takes over the progress."""
        if self._candidate is None and self.current != self.saved:
            self._candidate = (self.current, self._store.max_log_offset)

    def settle_candidate(self) -> None:
        """Move the candidate, or an adopted progress, to `safe` if its deliveries are safe by
        now."""
        store = self._store
        safe = min(store.flushed_log_offset, self._copied_end())
        if self._candidate is not None and safe >= self._candidate[1]:
            self.safe, self._candidate = self._candidate[0], None
        if self._adopted is not None and store.flushed_log_offset >= self._adopted[1]:
            self.safe, self._adopted = self._adopted[0], None

    @property
    def unsaved_progress(self) -> P | None:
        """The safe progress, after `settle_candidate`, if the file does not have it; None if it
        does, or while a candidate will be safe soon."""
        self.settle_candidate()
        return None if self._candidate is not None or self.safe == self.saved else self.safe

    def settle_before_stop(self) -> None:
        """Settle before the broker stops and loses its role: the deliveries that replicas have at
        present decide in `settle_last`."""
        self.settle_candidate()
        self._left_at = self._copied_end()

    def _copied_end(self) -> LogOffset:
        """The log offset up to which the log is confirmed and has enough copies."""
        return LogOffset(min(self._store.confirm_log_offset, self._role.safe_end()))

    def settle_last(self) -> None:
        """Settle once more after the store was flushed and closed: the current progress is safe if
        no replica lacks its deliveries."""
        store = self._store
        self._candidate = self._candidate or (self.current, store.max_log_offset)
        self.settle_candidate()
        copied = self._copied_end() if self._left_at is None else self._left_at
        if copied >= store.max_log_offset:
            self.safe = self.current

    def begin_following(self) -> None:
        """Begin to follow a master, which delivers now: the current progress goes back to the safe
        one, because the master may lack later deliveries of this broker."""
        self.settle_candidate()
        self.current, self._candidate = self.safe, None

    def adopt_progress(self, progress: P, version: DataVersion, log_end: LogOffset) -> None:
        """Adopt a progress that the master had when its log ended at `log_end` at most. It becomes
        current once this log has that much, confirmed, at a later `adopt_awaited`: before that,
        deliveries may be missing here. Ignored while an earlier progress is awaited."""
        if self._coming is None:  # an older awaited progress arrives sooner than a newer one
            self._coming = _AwaitedProgress(progress, version, log_end)
        self.adopt_awaited()

    def adopt_awaited(self) -> bool:
        """Make the awaited progress current if this log is confirmed up to its end; return whether
        that happened. The data version is raised, never lowered."""
        return self._adopt_if_covered(self._store.confirm_log_offset)

    def delivered_elsewhere(self, progress: P) -> None:
        """Set the current progress of an acting replica: other masters have the deliveries before
        it, so a later `settle_candidate` makes it safe without a new flush of this log."""
        end = LogOffset(0) if self._adopted is None else self._adopted[1]
        self.current, self._adopted = progress, (progress, end)

    def adopt_newer(self, progress: P, version: DataVersion) -> None:
        """Make the progress of another broker of the group current; this log has its deliveries. On
        a replica it becomes safe once the log's present end is on disk. The data version is raised,
        never lowered."""
        self.current = progress
        if not self._role.is_master:  # a master's own deliveries decide its safe progress
            self._adopted = progress, self._store.max_log_offset
        if is_older(self.data_version, version):
            self.data_version = version

    def replace_progress(self, progress: P, safe: P) -> None:
        """Set the current and the safe progress after the log was cut."""
        self.current, self.safe, self._adopted = progress, safe, None

    def begin_leading(self) -> None:
        """Begin to deliver as the master: the awaited progress becomes current if this log has its
        deliveries, confirmed or not, and is dropped otherwise. The log is not cut again."""
        self._adopt_if_covered(self._store.max_log_offset)
        self._coming = self._adopted = None

    def drop_awaited(self) -> None:
        """Drop the awaited progress: its master is no longer followed."""
        self._coming = None

    def _adopt_if_covered(self, ours: LogOffset) -> bool:
        """Make the awaited progress current if this log, which counts up to `ours`, has its
        deliveries; return whether that happened."""
        coming = self._coming
        if coming is None or ours < coming.log_end:
            return False
        self.current, self._coming = coming.progress, None
        self._adopted = coming.progress, coming.log_end
        if not is_older(coming.version, self.data_version):
            self.data_version = coming.version
        return True
