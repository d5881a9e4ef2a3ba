"""Helpers of node.py: awaiting a Deferred, and timers that must not stop each other.

Owns no state. It must never know the work.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from turbopump.engine.deferred import Deferred

T = TypeVar("T")

logger = logging.getLogger(__name__)


def settle(future: asyncio.Future[T], value: T) -> None:
    """Give a future its value, unless it is done or cancelled."""
    if not future.done():
        future.set_result(value)


async def awaited(later: Deferred[T]) -> T:
    """Wait for a Deferred; returns its value."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    later.then(partial(settle, future))
    return await future


def logged_errors(work: Callable[[], object], name: str) -> None:
    """Run a timer's work and log its failure, so that other timers go on: the store has to be
    flushed."""
    try:
        work()
    except Exception:
        logger.exception("%s failed", name)
