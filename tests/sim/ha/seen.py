"""Observed state of a simulated broker: its log, and the bytes that it confirms and shows, compared
with the earlier state.
"""

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from tests.sim.disk import SimDisk
from tests.sim.ha.checkers import ALIKE_MAX, BLANK, History, LogFiles, check_zeros
from tests.sim.ha.settings import Settings
from turbopump.engine.store import Store

if TYPE_CHECKING:
    from tests.sim.ha.suite import Run


class SeenBroker:
    """A broker whose reports are compared with its earlier ones and with the group's history."""

    def __init__(self, group: "Run", number: int, settings: Settings) -> None:
        self.number = number
        self.settings = settings
        self.disk = SimDisk(group.rng, lambda: group.wall_ms)
        self.log = LogFiles(
            self.disk, settings.store.log_folder, settings.store.mapped_file_size_commit_log
        )
        self.store: Store | None = None
        self.replicated: Any = None
        self.epochs_damaged = self._cut_for_damage = False
        self._group = group
        self._history: History = group.history
        self._base = self._end = self._confirm = self._told = 0
        self._bytes = bytearray()
        self._bounds = [0]
        self._cut: tuple[int, bytes] = (-1, b"")
        """Offset of the last truncation of its log, and the first bytes that it removed."""

    def look(self) -> None:
        """Compare its present state with the last one."""
        log, store = self.replicated, self.store
        if log is None or store is None:
            return
        if log.is_truncating:
            # Nothing is reported before the truncation is durable; the broker may be in the set
            # again by then.
            self._cut_for_damage = self._cut_for_damage or self.epochs_damaged
            return
        end, confirm = log.end, log.confirm
        if end < self._end or log.min > self._end:
            self._was_cut(log.min, end)
        if end > self._end:
            if not self._bytes and self._base != log.min:
                self._base = self._end = log.min
                self._bounds = [log.min]
            self._bytes += self.log.read(self._end, end)
            self._end = end
            self._find_bounds()
        sure = log.flushed if self.settings.is_sync and self.is_master else end
        assert confirm <= sure, f"broker {self.number} confirms {confirm} of {sure}"
        if confirm != self._confirm:
            rounded = self._rounded(confirm)
            before = self._rounded(self._confirm)
            assert rounded >= before, f"broker {self.number} confirms {confirm} after {before}"
            self._confirm = confirm
            self._tell(rounded, "confirmed")
        if self.settings.safe:
            shown = store.dispatched_log_offset
            assert shown <= max(confirm, log.min), (
                f"broker {self.number} shows {shown}, confirmed is {confirm}"
            )

    def _tell(self, log_end: int, why: str) -> None:
        if self.settings.safe and log_end > self._told and not self._is_of_before:
            if self.replicated.min > len(self._history.log):
                return  # a learner that has the last file alone
            start = min(max(self._told, self.replicated.min), len(self._history.log))
            self._history.tell(self.number, self.log, start, log_end, why)
            if self.is_master:
                self._group.confirmed(self, start, log_end)
            self._told = log_end

    @property
    def _is_of_before(self) -> bool:
        """Whether it does not know yet of an election that may have lost its bytes: it may report
        the old history for a while (group seed 132921).
        """
        known: int = self.replicated.epochs.last_epoch
        return known < self._history.anew_in_epoch

    def _was_cut(self, minimum: int, end: int) -> None:
        whole = end <= self._base or minimum > self._end
        is_damaged = self.epochs_damaged or self._cut_for_damage
        self._cut_for_damage = False
        if self.settings.safe and not is_damaged and not self.settings.ha.may_lose:
            cut_at = self._base if whole else end
            # Half a record at the end is no message: its sender sends it again.
            is_half = cut_at >= self._bounds[-1]
            gone = b"" if is_half else bytes(self._bytes[cut_at - self._base :])
            if not whole or not self._group.retention:
                confirm = self._rounded(self._confirm)
                self._history.cuts(self.number, cut_at, confirm, gone, self.log.file_size)
        self._cut = (-1, b"")
        if whole:
            self._base = self._end = minimum
            self._bytes.clear()
            self._bounds = [minimum]
        else:
            self._cut = (end, bytes(self._bytes[end - self._base :][:ALIKE_MAX]))
            check_zeros(self.number, self.log, end)
            del self._bytes[end - self._base :]
            self._end = end
            while self._bounds[-1] > end:
                self._bounds.pop()
        self._confirm, self._told = min(self._confirm, end), min(self._told, end)

    def _find_bounds(self) -> None:
        """Find the ends of records in the added bytes."""
        data, base, file_size = self._bytes, self._base, self.log.file_size
        at = self._bounds[-1]
        while at + 8 <= self._end:
            size = int.from_bytes(data[at - base : at - base + 4])
            if int.from_bytes(data[at - base + 4 : at - base + 8]) == BLANK:
                size = file_size - at % file_size
            if size <= 0 or at + size > self._end:
                return
            at += size
            self._bounds.append(at)

    def _rounded(self, log_offset: int) -> int:
        """The last end of a record up to there."""
        number = bisect_right(self._bounds, log_offset)
        return self._bounds[number - 1] if number else 0
