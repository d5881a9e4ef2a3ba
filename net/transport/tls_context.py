"""The TLS context of a server or a client, made again when its files change.

Owns the signature of the files of the context, and the last usable context: certificates are
renewed while nodes run, and a broken new certificate must not stop a working node. It must never
read a file on the loop once there is a context, nor make a certificate there once peers are served.
RocketMQ watches the same files (FileWatchService, twice a second).

    files changed -> a new context can be made: it is used
                  -> it cannot: doubted -> the same files at the next check: refused and logged
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from turbopump.engine.deferred import Deferred
from turbopump.net.transport.options import ClientTlsSettings, TlsSettings
from turbopump.net.transport.tls import TlsError

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""Interval in seconds of a server's checks of its files, and the longest wait of
`newest_context`."""

_CANNOT: Final = "TLS has no certificate, it cannot be made: {!r}"

_Signature = tuple[tuple[int, int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class _Look:
    """Result of checking changed files: a context, or the error that prevents it."""

    signature: _Signature
    context: ssl.SSLContext | None = None
    error: str = ""


class TlsContext:
    """The newest context that `make` could make of the files that the settings name.

    Loop thread only. `make` may raise TlsError. It runs on the loop's thread for the first context
    of `load` and `newest_context`, else on another thread.
    """

    def __init__(
        self, settings: TlsSettings | ClientTlsSettings, make: Callable[[], ssl.SSLContext]
    ) -> None:
        """Only the paths of certificate, key and trust file are read from `settings`."""
        paths = (settings.cert_path, settings.key_path, settings.trust_cert_path)
        self._paths = tuple(path for path in paths if path)
        self._make = make
        self._context: ssl.SSLContext | None = None
        self._signature: _Signature = ()
        self._doubted: _Signature | None = None
        self._refused: _Signature | None = None
        self._looking: asyncio.Task[None] | None = None
        self._making: Deferred[ssl.SSLContext | TlsError] | None = None

    @property
    def has_files(self) -> bool:
        """Whether the context depends on files, which can change."""
        return bool(self._paths)

    def load(self) -> ssl.SSLContext:
        """Return the context, made now on this thread if it does not exist yet: it reads files and
        may wait for a disk. Raises TlsError. Changed files are not noticed."""
        if self._context is None:
            # Taken before the files are read: a change during the read causes another read.
            self._signature = _file_signature(self._paths)
            self._context = self._make()
        return self._context

    def get(self) -> ssl.SSLContext | Deferred[ssl.SSLContext | TlsError]:
        """Return the context without a check of the files. If it does not exist yet, one thread
        makes it for all callers, and the Deferred resolves on the loop to the context or to the
        error; after an error the next call tries again."""
        if self._context is not None:
            return self._context
        if self._making is None:
            self._making = Deferred()
            loop = asyncio.get_running_loop()
            loop.run_in_executor(None, self._make).add_done_callback(self._was_made)
        return self._making

    async def newest_context(self) -> ssl.SSLContext:
        """Check whether the files changed and return the newest context; raises TlsError if a
        context never could be made. Waits for the check at most LOOK_S; then the earlier context is
        returned. The first call makes the context on this thread."""
        if self._context is None or not self._paths:
            return self.load()
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self.reload_if_changed())
            self._looking.add_done_callback(self._on_checked)
        await asyncio.wait([self._looking], timeout=LOOK_S)
        return self._context

    async def reload_if_changed(self) -> None:
        """Make a new context if files have changed since the last check, and use it for later
        calls; no-op without a context. If that fails, the old context stays, without an exception.
        The failure is logged when two checks find the same files: files may be in the middle of a
        replacement."""
        if self._context is None:
            return
        loop = asyncio.get_running_loop()
        known = (self._signature, self._refused)
        found = await loop.run_in_executor(None, _check_files, self._paths, self._make, known)
        if found is None:
            self._doubted = None
        elif found.context is not None:
            self._context, self._signature = found.context, found.signature
            self._doubted = self._refused = None
            logger.info("new TLS files are in use: %s", ", ".join(self._paths))
        elif found.signature == self._doubted:
            self._refused, self._doubted = found.signature, None
            logger.warning("new TLS files are not used, the old ones stay: %s", found.error)
        else:
            self._doubted = found.signature

    def _was_made(self, future: asyncio.Future[ssl.SSLContext]) -> None:
        """Store the context that a thread made, and resolve the Deferred of `get`."""
        making, self._making = self._making, None
        assert making is not None
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is None:
            self._context = future.result()
            making.resolve(self._context)
        elif isinstance(error, TlsError):
            making.resolve(error)
        else:
            making.resolve(TlsError(_CANNOT.format(error)))

    def _on_checked(self, task: asyncio.Task[None]) -> None:
        """Log the failure of a check that ended in the background."""
        self._looking = None
        if not task.cancelled() and task.exception() is not None:
            logger.warning("TLS files cannot be checked: %s", task.exception())


def _check_files(
    paths: tuple[str, ...],
    make: Callable[[], ssl.SSLContext],
    known: tuple[_Signature | None, ...],
) -> _Look | None:
    """Check the files, on any thread, and make a context of them; None if their signature is in
    `known`, the signatures that earlier checks have seen."""
    signature = _file_signature(paths)
    if signature in known:
        return None
    try:
        return _Look(signature, make())
    except TlsError as error:
        return _Look(signature, error=str(error))


def _file_signature(paths: tuple[str, ...]) -> _Signature:
    """Values that change when a file is replaced, written or touched; None for a missing file."""
    found: list[tuple[int, int, int, int] | None] = []
    for path in paths:
        try:
            info = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns))
    return tuple(found)
