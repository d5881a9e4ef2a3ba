"""Small helps of node.py: what is awaited and given up, timers that must not stop each other.

Owns nothing. It must never know what the work is.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from turbopump.engine.later import Later

T = TypeVar("T")

logger = logging.getLogger(__name__)


def settle(future: asyncio.Future[T], value: T) -> None:
    """Give a future its value, unless it is done or cancelled."""
    if not future.done():
        future.set_result(value)


async def awaited(later: Later[T]) -> T:
    """What it is resolved with."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    later.then(partial(settle, future))
    return await future


def guarded(work: Callable[[], object], name: str) -> None:
    """One timer's failure must not stop the others: the store has to be flushed."""
    try:
        work()
    except Exception:
        logger.exception("%s failed", name)
