"""Reopening of a store that failed while the broker runs.

Owns the time of the attempts, and the restart of the broker as after a kill: the system may have
dropped bytes that a failed sync should have written, so memory no longer shows the disk's content.
Recovery reads the log from its durable mark and writes its content once more. It must never open a
store while the disk is still working for the previous store.

While the disk fails, reads go on: each second, besides the running broker, the bytes of the failed
sync are written and synced once more (`Store.try_again`). Only after a success the broker ends, and
starts again under the same addresses. Damage is no such failure: an operator has to repair it.

    serving -> failed -> try_again each second -> success and disks idle -> end -> begin -> serving

Tests: tests/integration/broker/test_reopening.py
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from turbopump.engine.disk.flush import DiskThreads
from turbopump.engine.store import Store
from turbopump.engine.types import StoreHealth

logger = logging.getLogger(__name__)

TRY_MS: Final = 1_000
"""Interval in ms between two attempts."""


class StoreReopen:
    """Opens a broker's store again after it has failed; loop thread only."""

    def __init__(self, begin: Callable[[], Awaitable[None]], end: Callable[[], Awaitable[None]]):
        """`begin` opens the store and serves, or raises with nothing running, and is called again
        TRY_MS later; `end` stops serving and closes the store."""
        self.count = 0
        """Number of times the store was opened again."""
        self._begin = begin
        self._end = end
        self._task: asyncio.Task[None] | None = None
        self._trying = False
        self._due_ms = 0

    def tick(self, store: Store, disks: tuple[DiskThreads, ...], steady_ms: int) -> None:
        """If the store has failed without damage, begin to write the failed bytes again, each
        TRY_MS; if that succeeds while all `disks` are idle, a task ends and begins the broker.
        `steady_ms` is the monotonic clock; called every 100 ms."""
        is_failed = store.health is StoreHealth.FAILED and store.damage is None
        if not is_failed or self._trying or self._task is not None or steady_ms < self._due_ms:
            return

        def tried(result: OSError | None) -> None:
            self._trying = False
            # A hanging task may still rename or write, which would damage the next store.
            if result is None and self._task is None and all(disk.idle for disk in disks):
                self._task = asyncio.get_running_loop().create_task(self._reopen())

        self._due_ms = steady_ms + TRY_MS
        self._trying = store.try_again(tried)

    async def stop(self) -> None:
        """Cancel a reopening in progress and wait for its end; the broker is running after it, or
        nothing of it is. No-op without a reopening. If this is cancelled, it still waits, and then
        raises CancelledError."""
        task, cancelled = self._task, False
        if task is None:
            return
        task.cancel()
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError

    async def _reopen(self) -> None:
        """End the broker, then begin it again each TRY_MS until that succeeds."""
        logger.warning("the disk accepts syncs again: opening the store again")
        logged = ""
        try:
            await self._end()
        except Exception:
            logger.exception("stopping the broker's parts failed before its store is opened again")
        while True:
            try:
                await self._begin()
                break
            except Exception as error:
                if str(error) != logged:
                    logged = str(error)
                    logger.error("the store cannot be opened again for now: %s", logged)
                await asyncio.sleep(TRY_MS / 1_000)
        self.count += 1
        self._task = None
        logger.warning("the store is open again and accepts messages")
