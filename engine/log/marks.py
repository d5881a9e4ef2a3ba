"""The empty files beside a replicated store's log that say what its bytes are.

Owns which of MARK_FILE, PLAIN_MARK_FILE and WHOLE_MARK_FILE are known to be there, durably. It must
never decide when one is due: `replicated` does, and calls this on a disk's thread, or on its own
while no step is under way.
"""

from turbopump.engine.disk.files import Files
from turbopump.engine.log.epoch_file import MARK_FILE, PLAIN_MARK_FILE, WHOLE_MARK_FILE


class Marks:
    """Of one store. Everything raises OSError."""

    def __init__(self, files: Files, root: str, plain: bool) -> None:
        self.whole: bool | None = None
        """Whether WHOLE_MARK_FILE is there, durably; None: not looked at yet."""
        self._marked = False
        self._files = files
        self._root = root
        self._plain = plain

    def begin(self, *, listed: bool) -> None:
        """When a store is opened whose log is not copied plainly: it ends where a record does, so
        what comes is whole records, and is known to be; `listed`: there is an epoch list, of which
        it is known, too. So a change of role has nothing to write here."""
        names = [WHOLE_MARK_FILE, MARK_FILE] if listed else [WHOLE_MARK_FILE]
        self._make(*names)
        self.whole = True
        self._marked = self._marked or listed

    def copied(self) -> None:
        """Behind the first epoch list: from now on its loss is a loss. In default HA before the
        first bytes of another log: it is a copy."""
        if not self._marked:
            self._make(PLAIN_MARK_FILE if self._plain else MARK_FILE)
            self._marked = True

    def lead(self) -> None:
        """A master's own records are whole: it is known of them as of a copy's."""
        if not self._plain or self._files.exists(f"{self._root}/{PLAIN_MARK_FILE}"):
            self.written(whole=True)

    def written(self, *, whole: bool) -> None:
        """Before anything is written in a role: from here on it is whole records, or is not."""
        if self.whole is whole:
            return
        files, root = self._files, self._root
        if self._plain:
            self.copied()
        self.whole = None
        if whole:
            self._make(WHOLE_MARK_FILE)
        elif files.exists(f"{root}/{WHOLE_MARK_FILE}"):
            files.remove(f"{root}/{WHOLE_MARK_FILE}")
            files.sync_folder(root)
        self.whole = whole

    def _make(self, *names: str) -> None:
        """Empty files, durably."""
        files, root = self._files, self._root
        for path in (f"{root}/{name}" for name in names):
            if not files.exists(path):
                files.write(path, b"")
                files.sync(path)
        files.sync_folder(root)
