"""A check whether the log's files still exist with their sizes.

Owns the comparison of names and sizes alone. It must never open a file, change anything, or look on
the loop's thread.

A file that was removed from outside stays mapped: stores into it and syncs of it succeed, and all
of that is gone with the process. A file that was cut short ends the process (SIGBUS) as soon as a
page after its end is touched, which nothing here can prevent; the next start names the file.

Tests: tests/unit/engine/log/test_damage.py
"""

import errno

from turbopump.engine.disk.segments import file_name
from turbopump.engine.log.commit_log import CommitLog

WATCH_MS = 1_000
"""Interval between two checks of an open log, in ms."""

Found = dict[str, int]
"""File name to size in bytes."""


class LogFileAudit:
    """Check of the files that the log has now, for use once. The log may roll and lose its oldest
    files before `fault_in`, but must not be cut."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._starts = set(log.segments.file_starts())
        self._folder = log.segments.folder

    def list_folder(self) -> Found:
        """List the files of the log's folder; call on a disk thread. Raises OSError, and then it is
        unknown whether files are missing."""
        return dict(self._log.files.list_files(self._folder))

    def fault_in(self, found: Found) -> OSError | None:
        """Compare the result of `list_folder` with the files that the log had at the beginning and
        still has; call on the loop thread. Returns (not raises) the error of the first file that is
        missing or has a wrong size, None if there is no such file."""
        segments, size_wanted = self._log.segments, self._log.file_size
        for start in segments.file_starts():
            if start not in self._starts:
                continue
            size = found.get(file_name(start))
            if size is None:
                text = "the log file was removed while the store was open"
                return OSError(errno.ENOENT, text, segments.path(start))
            if size != size_wanted:
                text = f"the log file was cut to {size} of {size_wanted} bytes while it was open"
                return OSError(errno.EIO, text, segments.path(start))
        return None
