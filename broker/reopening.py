"""Opening a store again that failed while the broker runs.

Owns when it is tried, and that the broker begins anew then, as after a kill: the system may have
dropped what a failed sync was to write, so memory says nothing of the disk any more, and recovery
looks at the log from its durable mark on and writes what it finds once more. It must never open a
store over a disk that is still at work for the one before. Called by node.py.

While the disk fails, reads go on: first the bytes that the sync was for are written and synced once
more (`Store.try_again`), each second, beside the broker. Only behind a success the broker ends, and
begins again under the same addresses. Damage is no such failure: an operator has to see to it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from turbopump.engine.disk.flush import DiskThreads
from turbopump.engine.store import Store
from turbopump.engine.types import Fitness

logger = logging.getLogger(__name__)

TRY_MS: Final = 1_000
"""Between two tries."""


class Reopening:
    """One broker's; loop thread only."""

    def __init__(self, begin: Callable[[], Awaitable[None]], end: Callable[[], Awaitable[None]]):
        """`begin` opens the store and serves, or raises and nothing runs; `end` is the opposite."""
        self.count = 0
        """How often it was opened again."""
        self._begin = begin
        self._end = end
        self._task: asyncio.Task[None] | None = None
        self._trying = False
        self._due_ms = 0

    def tick(self, store: Store, disks: tuple[DiskThreads, ...], steady_ms: int) -> None:
        """Every 100 ms."""
        is_failed = store.fitness is Fitness.FAILED and store.damage is None
        if not is_failed or self._trying or self._task is not None or steady_ms < self._due_ms:
            return

        def tried(result: OSError | None) -> None:
            self._trying = False
            # What hangs may still rename or write; it would be done to the store opened next.
            if result is None and self._task is None and all(disk.idle for disk in disks):
                self._task = asyncio.get_running_loop().create_task(self._reopen())

        self._due_ms = steady_ms + TRY_MS
        self._trying = store.try_again(tried)

    async def stop(self) -> None:
        """Not any more; the broker may be ended or not, see `begin`."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _reopen(self) -> None:
        logger.warning("the disk takes syncs again: the store is opened anew")
        said = ""
        try:
            await self._end()
        except Exception:
            logger.exception("the broker did not end in order before its store is opened anew")
        while True:
            try:
                await self._begin()
                break
            except Exception as error:
                if str(error) != said:
                    said = str(error)
                    logger.error("the store cannot be opened again for now: %s", said)
                await asyncio.sleep(TRY_MS / 1_000)
        self.count += 1
        self._task = None
        logger.warning("the store was opened anew, messages are taken again")
