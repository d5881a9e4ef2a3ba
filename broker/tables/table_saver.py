"""Config files that are written in the background, and answers that wait for them.

Owns the list of configuration files (topics.json, subscriptionGroup.json and others) that are not
durable yet, and the answers that wait. A change is made in memory; the answer to the request leaves
once the file is durable (persist, then speak). Writing a table of thousands takes long, so a change
that is passed as text is appended beside the file (engine/disk/config_changes.py), together with
other changes that came while the disk was busy; sometimes, and at a clean stop, the file is written
whole. It must never know the content of a file.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.flush import Disk
from turbopump.engine.disk.json_table import Content
from turbopump.net.transport.dispatcher import Response
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command, new_response

logger = logging.getLogger(__name__)

T = TypeVar("T")

WHOLE_AFTER: Final = 10
"""Calls of `tick`, about a second apart, after which a file with appended changes is written whole
even if more changes keep coming: a RocketMQ broker that is started after a kill does not read
appended changes."""

Source = Callable[[], Content]
"""Function, called on the loop at each whole write, that returns the file's content of that
moment."""


@dataclass(slots=True)
class _FileState:
    """State of a configuration file that has changed since the start. `since`: first change that is
    not durable, 0 if all are; `later`: first change that the write in progress does not include, 0
    if it has all; `error`: reason of the last failed write. `changes` are to be appended; with
    `whole` the file is to be written instead."""

    source: Source
    since: int = 0
    later: int = 0
    writing: bool = False
    whole: bool = False
    error: OSError | None = None
    changes: list[bytes] = field(default_factory=list)
    newest: int = 0
    seen: int = 0
    rounds: int = 0


def not_saved(request: Command, error: OSError) -> Command:
    """Build the answer SERVICE_NOT_AVAILABLE to a request whose change could not be written:
    clients try another broker then. The file's path is in the log only."""
    reason = error.strerror or "the disk failed"
    remark = f"the change is not saved: {reason}"
    return new_response(request, ResponseCode.SERVICE_NOT_AVAILABLE, remark)


class TableSaver:
    """Writes a broker's configuration files in the background, and holds answers until the changes
    of their requests are durable. Changes are numbered from 1, over all files. Loop thread only;
    the disk's threads write."""

    def __init__(self, files: ConfigFiles, disk: Disk) -> None:
        self._files = files
        self._disk = disk
        self._numbered = 0
        self._reviewed = 0
        self._relied = False
        self._promised = True
        self._files_by_name: dict[str, _FileState] = {}
        self._waiting: list[tuple[int, Deferred[OSError | None]]] = []

    def load(self, name: str, source: Source) -> Any | None:
        """Read a file of the config folder, in this thread: its JSON value with its appended
        changes, or its backup's if it is missing or damaged; None without both. Raises StoreError.
        If it had appended changes, a later `tick` writes it whole from `source`."""
        value = self._files.load(name)
        if self._files.has_changes(name):
            self._files_by_name[name] = _FileState(source)
        return value

    def keep_private(self, name: str) -> None:
        """Let only the user of this process read a file; to be called before `load`. Its changes
        are always written whole."""
        self._files.keep_private(name)

    def is_latest(self, name: str) -> bool:
        """Whether the last `load` of the file found it undamaged, so that it is neither missing nor
        an older copy."""
        return self._files.is_latest(name)

    def save_changed(self, name: str, source: Source, change: bytes | None = None) -> int:
        """Have a changed table written to its file in the background, at once or after the write in
        progress; return the number of the change. Failed writes are logged and retried by `tick`.

        `source` returns the file's whole content. `change` is the text of the change
        (config_changes.py), to be appended beside the file; without it the file is written whole.
        """
        self._numbered += 1
        number = self._numbered
        file = self._files_by_name.get(name)
        if file is None:
            file = self._files_by_name[name] = _FileState(source)
        file.source, file.newest = source, number
        if change is None:
            file.whole = True
        elif not file.whole:
            file.changes.append(change)
        if file.writing:
            file.later = file.later or number
        else:
            file.since = file.since or number
            self._write(name, file)
        return number

    @property
    def durable_change(self) -> int:
        """The highest number up to which all changes are on disk; 0 before the first."""
        behind = [one for file in self._files_by_name.values() if (one := file.since or file.later)]
        return min(behind, default=self._numbered + 1) - 1

    def wait_for_others(self) -> None:
        """Make the current request's answer wait for the changes of other requests, because it
        relies on them."""
        self._relied = True

    def promise_nothing(self) -> None:
        """Let the current request's answer leave at once: its changes up to now are not promised,
        and are written in the background."""
        self._reviewed, self._relied, self._promised = self._numbered, False, False

    def run_on_disk_thread(self, work: Callable[[], T]) -> Deferred[T | OSError]:
        """Run `work` on the disk's thread and resolve with its result on the loop: for long work
        that only makes or reads the text of a table; an OSError that it raises is the result."""
        later: Deferred[T | OSError] = Deferred()
        self._disk.submit(work, later.resolve)
        return later

    def when_saved(self) -> Deferred[OSError | None]:
        """Resolves with None when all changes up to now are durable, perhaps before return; with
        the OSError if a write of some of them failed or fails."""
        later: Deferred[OSError | None] = Deferred()
        behind = [file for file in self._files_by_name.values() if file.since or file.later]
        failed = [file.error for file in behind if not file.writing]
        if failed or not behind:
            later.resolve(failed[0] if failed else None)
        else:
            self._waiting.append((self._numbered, later))
        return later

    def hold_until_saved(
        self, request: Command, response: Response, stepped: bool = False
    ) -> Response:
        """Return `response` itself if the request changed nothing, did not `wait_for_others`, is
        one-way, or all changes are durable; else a Deferred of `response` that resolves after the
        changes are durable, or with `not_saved` if their write fails.

        A request that took several steps (`stepped`) waits for all earlier changes: other requests
        were reviewed between its steps.
        """
        promised, self._promised = self._promised, True
        if stepped and promised:
            self._relied = True
        if self._numbered == self._reviewed and not self._relied:
            return response
        self._reviewed, self._relied = self._numbered, False
        saved = self.when_saved()
        if (saved.done and saved.value is None) or response is None or request.is_oneway:
            return response
        reviewed: Deferred[Command | None] = Deferred()

        def answer_when_saved(error: OSError | None) -> None:
            if error is not None:
                reviewed.resolve(not_saved(request, error))
            elif isinstance(response, Deferred):
                response.then(reviewed.resolve)
            else:
                reviewed.resolve(response)

        saved.then(answer_when_saved)
        return reviewed

    def tick(self) -> None:
        """Retry failed writes, and write files with appended changes whole if no change has come
        since the last call, or after WHOLE_AFTER calls; called about once a second. Does not
        block."""
        for name, file in list(self._files_by_name.items()):
            if self._files.has_changes(name):
                file.rounds += 1
                if file.rounds >= WHOLE_AFTER or file.seen == file.newest:
                    file.whole = True
                file.seen = file.newest
            if not file.writing and (file.since or file.whole):
                self._write(name, file)

    def begin_last_writes(self) -> None:
        """Begin to write every file whole that has unwritten or appended changes, as RocketMQ has
        it; for a clean stop, after the last change. Does not block: the disk finishes the
        writes."""
        for name, file in list(self._files_by_name.items()):
            file.whole = file.whole or file.writing or self._files.has_changes(name)
            if not file.writing and (file.since or file.whole):
                self._write(name, file)

    def _write(self, name: str, file: _FileState) -> None:
        """Begin a write of a file, whole or with its changes appended; at its end answers are
        released, and another write begins if there are more changes."""
        file.writing, file.later = True, 0
        changes, file.changes = file.changes, []
        if file.whole or not self._files.may_append(name, sum(map(len, changes))):
            file.whole, file.rounds = False, 0
            work = partial(self._files.replace, name, file.source())
        else:
            work = partial(self._files.append, name, changes)

        def done(result: OSError | None) -> None:
            file.writing = False
            if isinstance(result, OSError):
                if file.error is None:
                    logger.error("%s cannot be saved for now: %s", name, result)
                file.error = result
                if file.since:
                    file.whole, file.later = True, 0
                    self._fail_answers(file.since, result)
                elif file.later:
                    # The appended changes are intact, so these can be appended, too.
                    file.since, file.later = file.later, 0
                    self._write(name, file)
            else:
                self._log_recovery(name, file)
                file.since, file.later, file.error = file.later, 0, None
                if file.since or file.whole:
                    self._write(name, file)
            self._release_answers()

        self._disk.submit(work, done)

    def _log_recovery(self, name: str, file: _FileState) -> None:
        """Log that a file is saved again after an error."""
        if file.error is not None:
            logger.info("%s is saved again", name)

    def _fail_answers(self, since: int, error: OSError) -> None:
        """Pass the error to the answers whose changes, from number `since` on, were to be written;
        the file stays unsaved."""
        waiting, self._waiting = self._waiting, []
        for upto, later in waiting:
            if upto < since:
                self._waiting.append((upto, later))
            else:
                later.resolve(error)

    def _release_answers(self) -> None:
        """Release the answers whose changes are durable."""
        durable = self.durable_change
        waiting, self._waiting = self._waiting, []
        for upto, later in waiting:
            if upto > durable:
                self._waiting.append((upto, later))
            else:
                later.resolve(None)
