"""Config files written behind the broker's back, and answers that wait for them.

Owns which of topics.json and subscriptionGroup.json is not on disk yet and who waits for it: a
change is made in memory, the answer to who asked for it leaves once the file is durable (persist,
then speak). Writing a table of thousands takes long, so changes that come while it is written share
the next write. It must never know what a file says. Called by the tables (changed), the dispatch
table (review) and node.py.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from turbopump.engine.config_files import ConfigFiles
from turbopump.engine.flush import Disk
from turbopump.engine.later import Later
from turbopump.net.transport.dispatcher import Answer
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command, response

_log = logging.getLogger(__name__)

T = TypeVar("T")

Content = Callable[[], Any]
"""Gives what a file shall hold; called on a disk thread, so of what does not change any more."""


@dataclass(slots=True)
class _File:
    """A file that is not as it should be: the newest content, and the changes it lacks.

    `since` is the first change that is not durable; `later` the first one that the write under way
    does not have, 0 for none; `error` why the last write failed.
    """

    content: Content
    since: int
    later: int = 0
    writing: bool = False
    error: OSError | None = None


class Saver:
    """Loop thread only; the disk's threads write."""

    def __init__(self, files: ConfigFiles, disk: Disk) -> None:
        self._files = files
        self._disk = disk
        self._changes = 0
        self._reviewed = 0
        self._relied = False
        self._behind: dict[str, _File] = {}
        self._waiting: list[tuple[int, Later[OSError | None]]] = []

    def load(self, name: str) -> Any | None:
        """The content of a file, None if there is none. Raises StoreError."""
        return self._files.load(name)

    def is_latest(self, name: str) -> bool:
        """Whether what was loaded is the last that was saved, not an older copy or nothing."""
        return self._files.is_latest(name)

    def changed(self, name: str, content: Content) -> int:
        """A file has to hold `content` from now on; it is written as soon as can be.

        Gives the number of the change.
        """
        self._changes += 1
        file = self._behind.get(name)
        if file is None:
            file = self._behind[name] = _File(content, self._changes)
        file.content = content
        if file.writing:
            file.later = file.later or self._changes
        else:
            self._write(name, file)
        return self._changes

    @property
    def durable(self) -> int:
        """Every change up to this one is on disk."""
        return min((file.since for file in self._behind.values()), default=self._changes + 1) - 1

    def rely(self) -> None:
        """What is answered next relies on changes of others, so it waits for them as they do."""
        self._relied = True

    def promise_nothing(self) -> None:
        """What the request at hand has changed or found so far, nobody is promised: its answer
        leaves at once, the files are written behind it."""
        self._reviewed, self._relied = self._changes, False

    def elsewhere(self, work: Callable[[], T]) -> Later[T | OSError]:
        """What `work` gives, done by the thread that writes: long work that only makes or reads
        the text of a table, and does not fail."""
        later: Later[T | OSError] = Later()
        self._disk.submit(work, later.resolve)
        return later

    def saved(self) -> Later[OSError | None]:
        """Resolves when every change so far is durable, or with what went wrong."""
        later: Later[OSError | None] = Later()
        failed = [file.error for file in self._behind.values() if not file.writing]
        if failed or not self._behind:
            later.resolve(failed[0] if failed else None)
        else:
            self._waiting.append((self._changes, later))
        return later

    def review(self, request: Command, answer: Answer) -> Answer:
        """The answer to a request: if it changed something, only once that is durable."""
        if self._changes == self._reviewed and not self._relied:
            return answer
        self._reviewed, self._relied = self._changes, False
        saved = self.saved()
        if (saved.done and saved.value is None) or answer is None or request.is_oneway:
            return answer
        reviewed: Later[Command | None] = Later()

        def go_on(error: OSError | None) -> None:
            if error is not None:
                remark = f"the change is not saved: {error}"
                reviewed.resolve(response(request, ResponseCode.SYSTEM_ERROR, remark))
            elif isinstance(answer, Later):
                answer.then(reviewed.resolve)
            else:
                reviewed.resolve(answer)

        saved.then(go_on)
        return reviewed

    def retry(self) -> None:
        """Write again what could not be written."""
        for name, file in list(self._behind.items()):
            if not file.writing:
                self._write(name, file)

    def _write(self, name: str, file: _File) -> None:
        file.writing, file.later = True, 0
        content = file.content

        def done(result: OSError | None) -> None:
            file.writing = False
            if isinstance(result, OSError):
                if file.error is None:
                    _log.error("%s cannot be saved for now: %s", name, result)
                file.error = result
                self._fail(file.since, result)
            elif file.later:
                self._say_recovered(name, file)
                file.since, file.error = file.later, None
                self._write(name, file)
            else:
                self._say_recovered(name, file)
                del self._behind[name]
            self._release()

        self._disk.submit(lambda: self._files.save(name, content()), done)

    def _say_recovered(self, name: str, file: _File) -> None:
        if file.error is not None:
            _log.info("%s is saved again", name)

    def _fail(self, since: int, error: OSError) -> None:
        """Those whose changes were to be written are told; the file stays behind."""
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
