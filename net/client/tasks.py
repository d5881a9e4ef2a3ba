"""The background tasks of a client: every failure is logged, and all tasks end at close.

Owns the set of running tasks. It must never end a task that it did not start.

Tests: tests/unit/net/client/test_client_instance.py
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any

logger = logging.getLogger(__name__)


class TaskSet:
    """Tasks that live at most as long as their owner, which calls `cancel`; `len` is the number of
    running tasks. Loop thread only."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Start `work` as a task of the running loop and return without waiting; its exception is
        logged under `name`, not raised."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def run_every(
        self, interval_ms: int, work: Callable[[], Awaitable[None]], name: str
    ) -> "asyncio.Task[None]":
        """Run `work` until `cancel`, first after `interval_ms`, then `interval_ms` after the end of
        each run; a failure is logged and the next run takes place. Returns without waiting."""

        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval_ms / 1000)
                try:
                    await work()
                except Exception as error:
                    logger.warning("%s failed: %s", name, error)

        return self.spawn(repeat(), name)

    async def cancel(self, spared: Collection[asyncio.Task[Any]] = ()) -> None:
        """Cancel all tasks but `spared` and the caller's own, and wait until they have ended; new
        tasks may be started afterwards."""
        left = {asyncio.current_task(), *spared}
        tasks = [task for task in self._tasks if task not in left]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_task_done(self, task: "asyncio.Task[Any]") -> None:
        """Remove a task that has ended, and log its failure."""
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            logger.error("task %s failed: %s", task.get_name(), error, exc_info=error)


def is_being_cancelled() -> bool:
    """Whether the current task was cancelled: a CancelledError in it may also come from a task of
    the program that a handler waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
