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


def resolve_future(future: asyncio.Future[T], value: T) -> None:
    """Set a future's result, unless it is done or cancelled."""
    if not future.done():
        future.set_result(value)


async def value_of(later: Deferred[T]) -> T:
    """Wait for a Deferred on the running loop; returns its value. If the wait is cancelled, the
    value is ignored."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    later.then(partial(resolve_future, future))
    return await future


def run_logging_errors(work: Callable[[], object], name: str) -> None:
    """Run a timer's work now. An Exception that it raises is logged with `name` and not raised, so
    that other timers go on: the store has to be flushed."""
    try:
        work()
    except Exception:
        logger.exception("%s failed", name)
