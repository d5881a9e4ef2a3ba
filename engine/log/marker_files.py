"""The empty mark files beside a replicated store's log, which describe its bytes.

Owns which of MARK_FILE, PLAIN_MARK_FILE and WHOLE_MARK_FILE are known to exist, durably. It must
never decide when to make a mark: `replicated` does, and calls this on a disk thread, or on its own
thread while no step is under way.

Tests: tests/unit/engine/replicated/test_crash.py
"""

from turbopump.engine.disk.files import Files
from turbopump.engine.log.epoch_file import MARK_FILE, PLAIN_MARK_FILE, WHOLE_MARK_FILE


class MarkerFiles:
    """The mark files of a store. All methods write and sync before they return, and may raise
    OSError."""

    def __init__(self, files: Files, root: str, plain: bool) -> None:
        """`root` is the store's folder; `plain`: default HA, which has no epochs."""
        self.whole: bool | None = None
        """Whether WHOLE_MARK_FILE exists, durably; None: not checked yet."""
        self._marked = False
        self._files = files
        self._root = root
        self._plain = plain

    def make_first_marks(self, *, listed: bool) -> None:
        """Make WHOLE_MARK_FILE, and if `listed` (the epoch list has entries) MARK_FILE, when a
        store is opened with epochs, so that a change of role makes no mark. The log ends at a
        record's end, so all records to come are whole."""
        names = [WHOLE_MARK_FILE, MARK_FILE] if listed else [WHOLE_MARK_FILE]
        self._create_files(*names)
        self.whole = True
        self._marked = self._marked or listed

    def mark_as_copy(self) -> None:
        """Make MARK_FILE, or PLAIN_MARK_FILE in default HA, unless this object made it before. Call
        after writing the first epoch list, whose absence is a loss afterwards; in default HA before
        the first bytes of another log."""
        if not self._marked:
            self._create_files(PLAIN_MARK_FILE if self._plain else MARK_FILE)
            self._marked = True

    def mark_as_master(self) -> None:
        """Make WHOLE_MARK_FILE for a master's own records. In default HA nothing is done unless
        PLAIN_MARK_FILE exists: the store was never a copy."""
        if not self._plain or self._files.exists(f"{self._root}/{PLAIN_MARK_FILE}"):
            self.mark_writes(whole=True)

    def mark_writes(self, *, whole: bool) -> None:
        """Make WHOLE_MARK_FILE, or remove it if not `whole`: before the first write in a new role,
        whose bytes will be whole records or end anywhere. In default HA also `mark_as_copy`."""
        if self.whole is whole:
            return
        files, root = self._files, self._root
        if self._plain:
            self.mark_as_copy()
        self.whole = None
        if whole:
            self._create_files(WHOLE_MARK_FILE)
        elif files.exists(f"{root}/{WHOLE_MARK_FILE}"):
            files.remove(f"{root}/{WHOLE_MARK_FILE}")
            files.sync_folder(root)
        self.whole = whole

    def _create_files(self, *names: str) -> None:
        """Create empty files, durably."""
        files, root = self._files, self._root
        for path in (f"{root}/{name}" for name in names):
            if not files.exists(path):
                files.write(path, b"")
                files.sync(path)
        files.sync_folder(root)
