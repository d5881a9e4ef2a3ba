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
from turbopump.net.transport.dispatcher import Answer
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command, response

logger = logging.getLogger(__name__)

T = TypeVar("T")

WHOLE_AFTER: Final = 10
"""Rounds of `tick`, seconds, after which a file with appended changes is written whole even if more
changes keep coming: a RocketMQ broker that is started after a kill does not read appended
changes."""

Source = Callable[[], Content]
"""Returns the content that a file shall have; called on the loop."""


@dataclass(slots=True)
class _File:
    """A file that has changed since the start.

    `since`: first change that is not durable, 0 if all are; `later`: first change that the write in
    progress does not include, 0 if it has all; `error`: reason of the last failed write. `changes`
    are to be appended; with `whole` the file is to be written instead.
    """

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
    """The answer to a request whose change could not be written. Clients try another broker on
    SERVICE_NOT_AVAILABLE; the path of the file is in the log only."""
    reason = error.strerror or "the disk failed"
    remark = f"the change is not saved: {reason}"
    return response(request, ResponseCode.SERVICE_NOT_AVAILABLE, remark)


class TableSaver:
    """Saver of a broker's configuration files. Loop thread only; the disk's threads write."""

    def __init__(self, files: ConfigFiles, disk: Disk) -> None:
        self._files = files
        self._disk = disk
        self._numbered = 0
        self._reviewed = 0
        self._relied = False
        self._promised = True
        self._files_by_name: dict[str, _File] = {}
        self._waiting: list[tuple[int, Deferred[OSError | None]]] = []

    def load(self, name: str, source: Source) -> Any | None:
        """The content of a file, None if it does not exist. Raises StoreError. `source` is used to
        write the file whole, even without a new change, if it was loaded with changes beside it."""
        value = self._files.load(name)
        if self._files.has_changes(name):
            self._files_by_name[name] = _File(source)
        return value

    def is_latest(self, name: str) -> bool:
        """Whether the loaded content is the last saved, not an older copy or nothing."""
        return self._files.is_latest(name)

    def changed(self, name: str, source: Source, change: bytes | None = None) -> int:
        """Save a file with the content of `source` as soon as possible; returns the number of the
        change.

        `change` is the text of the change, to be appended; without it the file is written whole.
        """
        self._numbered += 1
        number = self._numbered
        file = self._files_by_name.get(name)
        if file is None:
            file = self._files_by_name[name] = _File(source)
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
    def durable(self) -> int:
        """Number of the last change up to which every change is on disk."""
        behind = [one for file in self._files_by_name.values() if (one := file.since or file.later)]
        return min(behind, default=self._numbered + 1) - 1

    def rely(self) -> None:
        """Make the next answer wait for the changes of other requests, because it relies on
        them."""
        self._relied = True

    def promise_nothing(self) -> None:
        """Let the current request's answer leave at once: its changes up to now are not
        promised and are written after it."""
        self._reviewed, self._relied, self._promised = self._numbered, False, False

    def run_on_disk_thread(self, work: Callable[[], T]) -> Deferred[T | OSError]:
        """The result of `work`, run by the thread that writes: long work that only makes or reads
        the text of a table, and does not fail."""
        later: Deferred[T | OSError] = Deferred()
        self._disk.submit(work, later.resolve)
        return later

    def saved(self) -> Deferred[OSError | None]:
        """Resolves when every earlier change is durable, or with the error."""
        later: Deferred[OSError | None] = Deferred()
        behind = [file for file in self._files_by_name.values() if file.since or file.later]
        failed = [file.error for file in behind if not file.writing]
        if failed or not behind:
            later.resolve(failed[0] if failed else None)
        else:
            self._waiting.append((self._numbered, later))
        return later

    def hold_until_saved(self, request: Command, answer: Answer, stepped: bool = False) -> Answer:
        """Hold a request's answer until its changes are durable.

        A request that took several steps waits for all earlier changes: other requests were
        reviewed between its steps.
        """
        promised, self._promised = self._promised, True
        if stepped and promised:
            self._relied = True
        if self._numbered == self._reviewed and not self._relied:
            return answer
        self._reviewed, self._relied = self._numbered, False
        saved = self.saved()
        if (saved.done and saved.value is None) or answer is None or request.is_oneway:
            return answer
        reviewed: Deferred[Command | None] = Deferred()

        def go_on(error: OSError | None) -> None:
            if error is not None:
                reviewed.resolve(not_saved(request, error))
            elif isinstance(answer, Deferred):
                answer.then(reviewed.resolve)
            else:
                reviewed.resolve(answer)

        saved.then(go_on)
        return reviewed

    def tick(self) -> None:
        """Retry failed writes, and write files whole that have appended changes and got no further
        change for a while; called about once a second."""
        for name, file in list(self._files_by_name.items()):
            if self._files.has_changes(name):
                file.rounds += 1
                if file.rounds >= WHOLE_AFTER or file.seen == file.newest:
                    file.whole = True
                file.seen = file.newest
            if not file.writing and (file.since or file.whole):
                self._write(name, file)

    def finish(self) -> None:
        """Write every file whole, as RocketMQ has it, without changes beside it, as far as the disk
        allows; for a clean stop, after the last change."""
        for name, file in list(self._files_by_name.items()):
            file.whole = file.whole or file.writing or self._files.has_changes(name)
            if not file.writing and (file.since or file.whole):
                self._write(name, file)

    def _write(self, name: str, file: _File) -> None:
        file.writing, file.later = True, 0
        changes, file.changes = file.changes, []
        if file.whole or not self._files.takes(name, sum(map(len, changes))):
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
                    self._fail(file.since, result)
                elif file.later:
                    # The appended changes are intact, so these can be appended, too.
                    file.since, file.later = file.later, 0
                    self._write(name, file)
            else:
                self._say_recovered(name, file)
                file.since, file.later, file.error = file.later, 0, None
                if file.since or file.whole:
                    self._write(name, file)
            self._release()

        self._disk.submit(work, done)

    def _say_recovered(self, name: str, file: _File) -> None:
        if file.error is not None:
            logger.info("%s is saved again", name)

    def _fail(self, since: int, error: OSError) -> None:
        """Pass the error to the answers whose changes were to be written; the file stays
        unsaved."""
        waiting, self._waiting = self._waiting, []
        for upto, later in waiting:
            if upto < since:
                self._waiting.append((upto, later))
            else:
                later.resolve(error)

    def _release(self) -> None:
        durable = self.durable
        waiting, self._waiting = self._waiting, []
        for upto, later in waiting:
            if upto > durable:
                self._waiting.append((upto, later))
            else:
                later.resolve(None)
