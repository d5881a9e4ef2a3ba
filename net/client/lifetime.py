"""A base class for clients that are started before use and closed after it.

Owns the order of starts and closes, in the same way for all clients: a start that fails or is
cancelled is undone, and a close runs to its end. It must never know what starting means.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from turbopump.net.client.errors import ClientClosed, ClientError

logger = logging.getLogger(__name__)

A = TypeVar("A")
R = TypeVar("R")


@dataclass(slots=True, eq=False)
class _Call:
    """A call of the program's code by `owner`, in a task of `owner`; `runs` until its end."""

    owner: "ClientLifetime"
    task: asyncio.Task[Any] | None
    runs: bool = True


_calls: ContextVar[tuple[_Call, ...]] = ContextVar("turbopump_calls", default=())
"""The calls in which the running code is: tasks and threads that a handler starts inherit it."""


class ClientLifetime(ABC):
    """A client for `async with`, which starts it and closes it even if the block raises.

    A start that fails or is cancelled is undone before `start` raises. A cancelled `close` raises
    CancelledError at once, and the closing goes on in the background. A `close` inside a handler
    or a `check` of the same client begins the closing and returns at once: the closing waits for
    the handler. A client is used in a single event loop from `start` to the end of `close`; if the
    loop is closed before, the client counts as closed.
    """

    # Both run in tasks of their own: the cancellation of a caller must not end an `_open` without
    # an undo, nor a `_close_parts` at all.
    _loop: asyncio.AbstractEventLoop | None = None
    _opening: asyncio.Task[None] | None = None
    _shutting: asyncio.Task[None] | None = None
    _left: asyncio.Task[None] | None = None
    """The `_opening` whose client was closed by its own handler."""
    _leavers: frozenset[asyncio.Task[Any]] = frozenset()
    """Tasks of handlers that closed the client, until it is closed."""
    _running_calls: frozenset[_Call] = frozenset()
    """Calls of functions of `_as_call` that have not ended."""
    _calls_ended: asyncio.Future[None] | None = None
    """Resolves when the last one ends; None: nothing waits for it."""

    @abstractmethod
    async def _open(self) -> None:
        """Make the client ready for use; may be cancelled at any wait. `_close_parts` undoes what
        was done until then."""

    @abstractmethod
    async def _close_parts(self) -> None:
        """Undo a completed or an interrupted `_open`; without effect if nothing was done. Never
        runs at the same time as `_open`."""

    @abstractmethod
    def _mark_closed(self) -> None:
        """Count as closed, without a request: the loop of the last `_open` was closed before the
        client, so that nothing of it runs."""

    async def _undo_open(self) -> None:
        """Undo an `_open` that failed or whose `start` was cancelled, without a wait for the
        program's code; without effect if nothing was done."""
        await self._close_parts()

    async def start(self) -> None:
        """Make the client ready for use, after the end of a `close` that still runs.

        Raises ClientError if it is started already or by another event loop, and ClientClosed if
        `close` is called before the start has ended, unless a handler of the client calls it.
        """
        loop = self._checked_loop()
        while self._shutting is not None and not self._shutting.done():
            await asyncio.wait({self._shutting})
        self._shutting = None
        if self._opening is not None:
            raise ClientError("the client is started already")
        self._loop = loop
        opening = self._opening = _make_task(self._open(), "start")
        try:
            await asyncio.wait({opening})
            if not opening.cancelled():
                opening.result()
            if self._left is opening:
                return  # messages were handled already: the start had reached its end
            if opening.cancelled() or self._opening is not opening or self._shutting is not None:
                raise ClientClosed("the client was closed while it started")
        except BaseException:
            if self._opening is opening:
                with suppress(Exception):  # it is logged, and must not replace this error
                    await asyncio.shield(self._end_lifetime(self._undo_open))
            raise

    async def close(self) -> None:
        """Leave the servers' lists of clients, and close the connections; a `start` that still runs
        is cancelled first. Closing twice does nothing.

        Raises ClientError in another event loop than that of `start`.
        """
        self._checked_loop()
        shutting = self._end_lifetime(self._close_parts)
        own = [call for call in _calls.get() if call.runs and call.owner is self]
        if own:
            self._left = self._opening
            self._leavers |= {call.task for call in own if call.task is not None}
            return
        await asyncio.shield(shutting)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def _checked_loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop; a client of a closed loop counts as closed. Raises
        ClientError in another loop than that of `start`."""
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop:
            if not self._loop.is_closed():
                raise ClientError("the client was started by another event loop")
            self._loop = self._opening = self._shutting = self._left = None
            self._leavers, self._running_calls = frozenset(), frozenset()
            self._calls_ended = None
            self._mark_closed()
        return loop

    def _as_call(self, function: Callable[[A], Awaitable[R]]) -> Callable[[A], Awaitable[R]]:
        """Wrap a function of the program, so that a `close` inside of the function does not wait
        for the function's end."""

        async def called(argument: A) -> R:
            outer = _calls.get()
            call = _Call(self, asyncio.current_task())
            _calls.set((*(one for one in outer if one.runs), call))
            self._running_calls |= {call}
            try:
                return await function(argument)
            finally:
                call.runs = False
                _calls.set(outer)
                self._running_calls -= {call}
                if not self._running_calls:
                    self._note_idle()

        return called

    def _note_idle(self) -> None:
        if self._calls_ended is not None and not self._calls_ended.done():
            self._calls_ended.set_result(None)

    async def _wait_for_calls(self, end_s: float) -> None:
        """Wait until no function of `_as_call` runs, up to `end_s` of the loop's clock."""
        loop = asyncio.get_running_loop()
        while self._running_calls and loop.time() < end_s:
            self._calls_ended = loop.create_future()
            await asyncio.wait({self._calls_ended}, timeout=end_s - loop.time())

    def _end_lifetime(self, shut: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Begin to run `shut` in a task of its own, which also ends if the caller is cancelled;
        returns the task."""
        if self._shutting is None or self._shutting.done():  # done: it was cancelled at its begin
            self._loop = asyncio.get_running_loop()
            self._shutting = _make_task(self._cancel_and_shut(shut), "close")
            self._shutting.add_done_callback(_log_failure)
        return self._shutting

    async def _cancel_and_shut(self, shut: Callable[[], Awaitable[None]]) -> None:
        """Cancel a start that still runs, then run `shut`."""
        opening, loop = self._opening, None
        try:
            if opening is not None:
                if not opening.done():
                    opening.cancel()
                    await asyncio.wait({opening})
                if not opening.cancelled():
                    opening.exception()  # a cancelled `start` does not retrieve it
            await shut()
        except asyncio.CancelledError:
            loop = self._loop  # the loop ends before the client was closed
            raise
        finally:
            self._loop, self._opening, self._shutting = loop, None, None
            self._leavers = frozenset()


def _make_task(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """A task that begins in a later turn of the loop. A task factory may run work at once, which
    then ends before its task is stored."""
    return asyncio.Task(work, loop=asyncio.get_running_loop(), name=name)


def _log_failure(closing: "asyncio.Task[Any]") -> None:
    """Log the failure of a close whose caller may have been cancelled."""
    if not closing.cancelled() and closing.exception() is not None:
        logger.info("a client was not closed in order: %s", closing.exception())
