"""The log of denied requests and of changes of users and policies: lines of JSON in a folder.

Owns the members of a line and the bounds of the log. It must never contain a secret, a signature or
a body, nor delay a request: lines beyond the bounds are counted instead.

A line has `timeMs` (epoch ms), `event` (`denied` or `changed`), `user` (as claimed, for a denial
perhaps not proved), `address` (`ip:port`), `code` and `reason` or `target`; `omitted` is the number
of lines that were left out before it.
"""

import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from turbopump.broker.auth.guard import Denial
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.rotating_jsonl import RotatingJsonl
from turbopump.net.wire.java_properties import escape_unprintable

logger = logging.getLogger(__name__)

FOLDER: Final = "audit"
"""Name of the log's folder in the store's folder."""
NAME: Final = "auth"
"""Begin of the names of the log's files."""
SIZE_MAX: Final = 64 << 20
"""Maximum bytes of all files; the oldest is removed when the newest is full."""
DENIALS_PER_SECOND: Final = 100
"""Maximum denials written in a second: a peer that guesses must not fill the log."""
PENDING_MAX: Final = 1_000
"""Maximum lines that wait for the disk."""
TEXT_MAX: Final = 400
"""Maximum characters of a text of a line."""

Run = Callable[[Callable[[], None]], Deferred[OSError | None]]
"""Runs work on a disk thread, see TableSaver.run_on_disk_thread."""


class AuditLog:
    """Writes lines in the background, in their order. Loop thread only."""

    def __init__(self, files: RotatingJsonl, run: Run) -> None:
        self._files, self._run = files, run
        self._pending: list[bytes] = []
        self._writing = False
        self._failed = False
        self._omitted = 0
        self._second, self._denials = -1, 0

    def denied(self, denial: Denial, now_ms: int) -> None:
        """Log a denial at `now_ms` (epoch ms), unless this second had DENIALS_PER_SECOND."""
        if now_ms // 1_000 != self._second:
            self._second, self._denials = now_ms // 1_000, 0
        self._denials += 1
        if self._denials > DENIALS_PER_SECOND:
            self._omitted += 1
            return
        members = {
            "address": denial.address,
            "code": denial.code,
            "event": "denied",
            "reason": _shorten(denial.remark),
            "timeMs": now_ms,
            "user": _shorten(denial.user),
        }
        self._add(members)

    def changed(self, user: str, address: str, code: int, target: str, now_ms: int) -> None:
        """Log a change by `user` of the users or policies named in `target`."""
        members = {
            "address": address,
            "code": code,
            "event": "changed",
            "target": _shorten(target),
            "timeMs": now_ms,
            "user": _shorten(user),
        }
        self._add(members)

    def _add(self, members: dict[str, Any]) -> None:
        """Add a line, and begin to write if no write is in progress."""
        if len(self._pending) >= PENDING_MAX:
            self._omitted += 1
            return
        if self._omitted:
            members["omitted"] = self._omitted
            self._omitted = 0
        self._pending.append(json.dumps(members, sort_keys=True).encode() + b"\n")
        if not self._writing:
            self._write()

    def _write(self) -> None:
        """Begin to write the pending lines."""
        lines, self._pending = self._pending, []
        self._writing = True
        self._run(partial(self._files.append, lines, SIZE_MAX)).then(self._written)

    def _written(self, error: OSError | None) -> None:
        """Go on with lines that were added meanwhile; lines of a failed write are lost."""
        self._writing = False
        if error is not None and not self._failed:
            logger.error("the audit log cannot be written for now: %s", error)
        self._failed = error is not None
        if self._pending:
            self._write()


def _shorten(text: str) -> str:
    """Return a text for a line: printable, and at most TEXT_MAX characters."""
    return escape_unprintable(text[:TEXT_MAX])
