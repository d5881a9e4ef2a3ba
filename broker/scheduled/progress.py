"""How far deliveries are, and how much of that may be said and saved.

Owns the one rule for all that is delivered later, delay levels and timers: no progress is ahead of
what the disk, or the replicas, have of the deliveries behind it, so that after any crash and any
change of role a message is delivered once or more (I13, I14). It must never know what is
delivered, nor write a file. Called by delay.py and timers.py.

    current   what was delivered here
    candidate a progress on its way to become safe, and where the log ended at that time
    safe      the newest progress whose deliveries no crash and no other master takes back
    coming    a master's progress, until our log has the deliveries behind it
    adopted   a replica's progress, until the deliveries behind it are on its disk
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from turbopump.broker.tables.versions import Versions, is_older
from turbopump.broker.traffic.role import Role
from turbopump.engine.store import Store
from turbopump.engine.types import LogOffset
from turbopump.net.wire.topics import DataVersion

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class _Coming(Generic[P]):
    progress: P
    version: DataVersion
    log_end: LogOffset


class SafeProgress(Generic[P]):
    """See the module; a progress is never changed, only replaced. Loop thread only."""

    def __init__(self, store: Store, role: Role, begin: P) -> None:
        self._store = store
        self._role = role
        self.current: P = begin
        self.safe: P = begin
        self.saved: P | None = begin
        """What the file says; None if that is not known."""
        self._candidate: tuple[P, LogOffset] | None = None
        self._coming: _Coming[P] | None = None
        self._adopted: tuple[P, LogOffset] | None = None
        self._left_at: LogOffset | None = None
        self.data_version = DataVersion()
        self.versions = Versions()

    def load(self, progress: P, version: DataVersion) -> None:
        """What the file says."""
        self.current = self.safe = self.saved = progress
        self.data_version = version

    def bump_version(self, now_ms: int) -> None:
        """A new version of the same progress: from here on it is of another reign."""
        self.data_version = self.versions.next(self.data_version, now_ms)
        self.saved = None

    def begin(self) -> None:
        """Remember the progress now; it is safe once the deliveries behind it are on disk and with
        the replicas that a message needs: they take over the progress."""
        if self._candidate is None and self.current != self.saved:
            self._candidate = (self.current, self._store.max_log_offset)

    def settle(self) -> None:
        """Whether the deliveries behind a progress that waits for it are safe by now."""
        store = self._store
        safe = min(store.flushed_log_offset, self._copied_end())
        if self._candidate is not None and safe >= self._candidate[1]:
            self.safe, self._candidate = self._candidate[0], None
        if self._adopted is not None and store.flushed_log_offset >= self._adopted[1]:
            self.safe, self._adopted = self._adopted[0], None

    @property
    def unsaved(self) -> P | None:
        """What is safe and not saved; None if there is nothing new, or something newer soon."""
        self.settle()
        return None if self._candidate is not None or self.safe == self.saved else self.safe

    def leave(self) -> None:
        """The broker stops, and its role is about to end: what replicas have by now counts."""
        self.settle()
        self._left_at = self._copied_end()

    def _copied_end(self) -> LogOffset:
        return LogOffset(min(self._store.confirm_log_offset, self._role.safe_end()))

    def settle_last(self) -> None:
        """The store is flushed and closed: what no replica lacks is safe now."""
        store = self._store
        self._candidate = self._candidate or (self.current, store.max_log_offset)
        self.settle()
        copied = self._copied_end() if self._left_at is None else self._left_at
        if copied >= store.max_log_offset:
            self.safe = self.current

    def follow(self) -> None:
        """The master delivers from here on. What it may not have of our deliveries did not
        happen."""
        self.settle()
        self.current, self._candidate = self.safe, None

    def adopt(self, progress: P, version: DataVersion, log_end: LogOffset) -> None:
        """The master had this progress when its log did not go beyond `log_end`: it is ours once
        our log has as much, confirmed. Before that we may not have the deliveries behind it."""
        if self._coming is None:  # one that is waited for comes sooner than a newer one
            self._coming = _Coming(progress, version, log_end)
        self.take_coming()

    def take_coming(self) -> bool:
        """Whether what was waited for is ours now."""
        return self._take(self._store.confirm_log_offset)

    def delivered_elsewhere(self, progress: P) -> None:
        """A replica delivered as far as that, to other masters: they have it."""
        end = LogOffset(0) if self._adopted is None else self._adopted[1]
        self.current, self._adopted = progress, (progress, end)

    def take_newer(self, progress: P, version: DataVersion) -> None:
        """Another broker of the group, whose log ours has, delivered as far as that."""
        self.current = progress
        if not self._role.is_master:  # a master's own deliveries say what is safe
            self._adopted = progress, self._store.max_log_offset
        if is_older(self.data_version, version):
            self.data_version = version

    def replace(self, progress: P, safe: P) -> None:
        """The log was cut: what it had is not there any more."""
        self.current, self.safe, self._adopted = progress, safe, None

    def lead(self) -> None:
        """This broker delivers from here on, from the progress whose deliveries its log has, which
        can no longer be cut."""
        self._take(self._store.max_log_offset)
        self._coming = self._adopted = None

    def forget_coming(self) -> None:
        """The master whose progress is waited for is not followed any more."""
        self._coming = None

    def _take(self, ours: LogOffset) -> bool:
        coming = self._coming
        if coming is None or ours < coming.log_end:
            return False
        self.current, self._coming = coming.progress, None
        self._adopted = coming.progress, coming.log_end
        if not is_older(coming.version, self.data_version):
            self.data_version = coming.version
        return True
