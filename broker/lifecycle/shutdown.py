"""Last writes of a broker, on a thread of their own, awaited as long as the disk responds.

Owns the length of that wait. It must never write itself, nor touch the store.

A sync that hangs must not keep the process alive: an operator would kill it, or wait forever. So if
no sync returned for longer than a sync may take, the broker is left like a killed process, with its
abort mark: acknowledged messages are in the log, and the next start recovers. The same holds for a
start that is given up while it recovers.

Tests: tests/integration/broker/test_broker_node.py
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from turbopump.engine.disk.files import Files
from turbopump.engine.disk.flush import DiskThreads, LastThread
from turbopump.engine.disk.sync_watch import SYNC_BYTES_MS

T = TypeVar("T")

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.1
"""Interval in s of the checks whether a sync has returned."""
TIMES: Final = 2
"""Factor of syncTimeoutMs: within that time the store may already have reported a hanging disk."""


def patience_ms(sync_timeout_ms: int, unflushed: int) -> int:
    """Maximum time in ms without a returning sync after which a stop gives up, for
    `run_last_writes` and `wait_until_ended`; `unflushed` is the number of bytes that are not
    durable yet."""
    return TIMES * sync_timeout_ms + unflushed // SYNC_BYTES_MS


async def run_last_writes(
    work: Callable[[], None], files: Files, disks: tuple[DiskThreads, ...], limit_ms: int
) -> bool:
    """Run `work` on a thread of its own, wait until it has ended and the disks are idle, and close
    them. Returns False if no sync of `files` returned for `limit_ms`: the thread still runs, the
    disks are abandoned, and the process must end by `os._exit`. Raises the work's exception. A
    cancellation is delayed until the end."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    for disk in disks:
        disk.stop_watching()
    thread = LastThread(partial(_run_then_drain, work, disks), lambda: _notify_ended(loop, ended))
    has_ended, cancelled = await _wait_until_ended(ended, files, disks, limit_ms)
    if not has_ended:
        return False
    for disk in disks:
        disk.close()
    if cancelled:
        raise asyncio.CancelledError
    thread.raise_failure()
    return True


async def wait_until_ended(
    work: "asyncio.Future[T]", files: Files, disks: tuple[DiskThreads, ...], limit_ms: int
) -> bool:
    """Wait until another thread's work, whose result is left in `work`, has ended: True when it
    has, False if no sync of `files` returned for `limit_ms`: the disks are abandoned then, and the
    process must end by `os._exit`. A cancellation is ignored."""
    return (await _wait_until_ended(work, files, disks, limit_ms))[0]


async def _wait_until_ended(
    work: "asyncio.Future[T]", files: Files, disks: tuple[DiskThreads, ...], limit_ms: int
) -> tuple[bool, bool]:
    """Wait until the work has ended or the disks hang; returns (whether the work ended, whether a
    cancellation was delayed)."""
    loop, cancelled = asyncio.get_running_loop(), False
    returned, since_s = files.syncs_returned(), loop.time()
    while not work.done():
        try:
            await asyncio.wait([work], timeout=LOOK_S)
        except asyncio.CancelledError:
            cancelled = True
        if files.syncs_returned() != returned:
            returned, since_s = files.syncs_returned(), loop.time()
        elif (loop.time() - since_s) * 1_000 > limit_ms and not work.done():
            logger.error("no sync returned for %d ms: the store is left as after a kill", limit_ms)
            for disk in disks:
                disk.abandon_threads()
            return False, cancelled
    return True, cancelled


def _run_then_drain(work: Callable[[], None], disks: tuple[DiskThreads, ...]) -> None:
    """Run the work, then wait until the disks are idle."""
    try:
        work()
    finally:
        for disk in disks:
            disk.wait_until_idle()


def _set_ended(ended: "asyncio.Future[None]") -> None:
    """Set the future's result, unless it is done."""
    if not ended.done():
        ended.set_result(None)


def _notify_ended(loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[None]") -> None:
    """Report from the thread that it has ended. The loop may be closed by then, if the store was
    given up."""
    try:
        loop.call_soon_threadsafe(_set_ended, ended)
    except RuntimeError:
        pass
