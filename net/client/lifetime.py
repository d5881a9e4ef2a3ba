"""A base class for clients that are started before use and closed after it.

Owns the order of starts and closes, in the same way for all clients: a start that fails or is
cancelled is undone, and a close runs to its end. It must never know what starting means.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import Any, Self

from turbopump.net.client.errors import ClientClosed, ClientError

logger = logging.getLogger(__name__)


class ClientLifetime(ABC):
    """A client for `async with`, which starts it and closes it even if the block raises.

    A start that fails or is cancelled is undone before `start` raises. A cancelled `close` raises
    CancelledError at once, and the closing goes on in the background. A client is used in a single
    event loop from `start` to the end of `close`.
    """

    # Both run in tasks of their own: the cancellation of a caller must not end an `_open` without
    # an undo, nor a `_shut` at all.
    _loop: asyncio.AbstractEventLoop | None = None
    _opening: asyncio.Task[None] | None = None
    _shutting: asyncio.Task[None] | None = None

    @abstractmethod
    async def _open(self) -> None:
        """Make the client ready for use; may be cancelled at any wait. `_shut` undoes what was done
        until then."""

    @abstractmethod
    async def _shut(self) -> None:
        """Undo a completed or an interrupted `_open`; without effect if nothing was done. Never
        runs at the same time as `_open`."""

    async def start(self) -> None:
        """Make the client ready for use, after the end of a `close` that still runs.

        Raises ClientError if it is started already or by another event loop, and ClientClosed if
        `close` is called before the start has ended.
        """
        loop = self._checked_loop()
        while self._shutting is not None:
            await asyncio.wait({self._shutting})
        if self._opening is not None:
            raise ClientError("the client is started already")
        self._loop = loop
        opening = self._opening = loop.create_task(self._open(), name="start")
        try:
            await asyncio.wait({opening})
            if not opening.cancelled():
                opening.result()
            if opening.cancelled() or self._opening is not opening or self._shutting is not None:
                raise ClientClosed("the client was closed while it started")
        except BaseException:
            if self._opening is opening:
                await self._end_lifetime()
            raise

    async def close(self) -> None:
        """Leave the servers' lists of clients, and close the connections; a `start` that still runs
        is cancelled first. Closing twice does nothing.

        Raises ClientError in another event loop than that of `start`.
        """
        self._checked_loop()
        await self._end_lifetime()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def _checked_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop:
            raise ClientError("the client was started by another event loop")
        return loop

    async def _end_lifetime(self) -> None:
        """Shut the client and wait for the end of that, which does not need the caller."""
        if self._shutting is None:
            work = self._cancel_and_shut()
            self._shutting = asyncio.get_running_loop().create_task(work, name="close")
            self._shutting.add_done_callback(_log_failure)
        await asyncio.shield(self._shutting)

    async def _cancel_and_shut(self) -> None:
        opening = self._opening
        try:
            if opening is not None and not opening.done():
                opening.cancel()
                await asyncio.wait({opening})
            await self._shut()
        finally:
            self._loop = self._opening = self._shutting = None


def _log_failure(closing: "asyncio.Task[Any]") -> None:
    """Log the failure of a close whose caller may have been cancelled."""
    if not closing.cancelled() and closing.exception() is not None:
        logger.info("a client was not closed in order: %s", closing.exception())
