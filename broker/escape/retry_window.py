"""Items that are sent to other masters, each until a master has taken it.

Owns the items that are not done: which are out, and when a failed one is sent again. It must never
count an item as done before a master has taken it, or its owner has given it up. Its users are the
delay levels, timers, half messages and popped messages of an acting replica.

    start --> out --a master took it, or there is nothing to send--> done: forgotten
               ^ '--no master took it--> waiting --pause, retry--'

A failed item does not hold up the items after it.
"""

import heapq
import itertools
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

from turbopump.broker.escape.bridge import Escape
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import QueueOffset

FIRST_PAUSE_MS: Final = 200
"""Pause in ms after the first failure of an item; doubled with each further failure up to
LAST_PAUSE_MS."""
LAST_PAUSE_MS: Final = 5_000
"""Maximum pause in ms between two tries of an item."""
_DOUBLINGS_MAX: Final = 5

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")


@dataclass(slots=True)
class _OpenItem:
    """State of an item that is not done: how often sending it has failed, and whether it is sent
    and not answered."""

    failures: int = 0
    is_out: bool = True
    entry: int = -1
    """Number of the newest entry in the heap of waiting items: an earlier entry does not count."""


class RetryWindow(Generic[K, A]):
    """Items, such as queue offsets, each of which is sent to other masters again and again, with
    growing pauses, until a master has taken it. `len` is the number of items that are not done.
    Loop thread only."""

    def __init__(
        self,
        escape: Escape,
        send: Callable[[K, int], Deferred[A | None] | None],
        arrived: Callable[[K, A], None],
    ) -> None:
        """`send` sends an item that has failed a number of times before; resolves to its arrival,
        None if no master took it. Without a Deferred there is nothing to send, and the item is
        done. `arrived` is called with an item once it is done because of its arrival."""
        self._escape, self._send, self._arrived = escape, send, arrived
        self._open: dict[K, _OpenItem] = {}
        """Items that are not done, in the order of `start`."""
        self._waiting: list[tuple[int, int, K, _OpenItem]] = []
        """Heap of (end of the pause, number, failed item); items that are done, or were sent before
        the end of their pause, may be left in it."""
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, item: K) -> bool:
        return item in self._open

    def start(self, item: K) -> None:
        """Add an item that is not in the window, and send it now."""
        self._open[item] = _OpenItem()
        self.send(item)

    def send(self, item: K) -> None:
        """Send an item of the window now, even if its pause has not ended; it must not be sent and
        unanswered already. KeyError for an item that is done."""
        one = self._open[item]
        one.is_out = True
        sent = self._send(item, one.failures)
        if sent is None:
            self.remove_item(item)
        else:
            sent.then(partial(self._on_sent, item, one))

    def resend_failed(self, most: int) -> bool:
        """Send up to `most` failed items whose pause has ended; False if there are fewer, or no
        room for them."""
        now_ms, waiting = self._escape.steady_ms(), self._waiting
        while most > 0:
            if not (waiting and waiting[0][0] <= now_ms and self._escape.has_room):
                return False
            _, entry, item, one = heapq.heappop(waiting)
            if self._open.get(item) is one and not one.is_out and one.entry == entry:
                self.send(item)
                most -= 1
        return True

    def is_unanswered(self, item: K) -> bool:
        """Whether an item was sent and is not answered; False for a failed item in its pause, and
        once it is done."""
        one = self._open.get(item)
        return one is not None and one.is_out

    def remove_item(self, item: K) -> None:
        """Remove an item, if it is in the window; a later answer to it is ignored and `arrived` is
        not called."""
        self._open.pop(item, None)

    def clear(self) -> None:
        """Remove all items: later answers to sent items are ignored."""
        self._open.clear()
        self._waiting.clear()

    def _on_sent(self, item: K, one: _OpenItem, arrival: A | None) -> None:
        """Handle the result of a send, unless the item was completed meanwhile: it is done
        (`arrival`), or its pause begins (None)."""
        if self._open.get(item) is not one:
            return
        if arrival is None:
            self._begin_pause(item, one)
        else:
            self.remove_item(item)
            self._arrived(item, arrival)

    def _begin_pause(self, item: K, one: _OpenItem) -> None:
        """Begin the pause after which `resend_failed` sends the item again; it doubles with each
        failure, up to LAST_PAUSE_MS."""
        pause_ms = min(FIRST_PAUSE_MS << min(one.failures, _DOUBLINGS_MAX), LAST_PAUSE_MS)
        one.failures, one.is_out = one.failures + 1, False
        again_ms = self._escape.steady_ms() + pause_ms
        one.entry = next(self._numbers)
        heapq.heappush(self._waiting, (again_ms, one.entry, item, one))


class QueueWindow(RetryWindow[QueueOffset, A]):
    """The messages of a queue that are sent to other masters, started in the queue's order; `next`
    is the queue offset of the first message that was not started.

    completed_to | some of these are done, others are not ... next | not started yet
                 '----------- at most `size` of them -----------'
    """

    def __init__(
        self,
        escape: Escape,
        send: Callable[[QueueOffset, int], Deferred[A | None] | None],
        arrived: Callable[[QueueOffset, A], None],
        first: QueueOffset,
        size: int,
    ) -> None:
        super().__init__(escape, send, arrived)
        self.next, self._size = first, size

    @property
    def completed_to(self) -> QueueOffset:
        """The queue offset before which all messages are done or skipped."""
        return next(iter(self._open), self.next)

    @property
    def has_room(self) -> bool:
        """Whether `start_next` may be called: fewer than `size` messages follow `completed_to`, and
        the bridge has room."""
        return self.next - self.completed_to < self._size and self._escape.has_room

    def start_next(self) -> None:
        """Send the message at `next`, and increment `next`; to be called only while `has_room`."""
        number = self.next
        self.skip_to(number + 1)
        self.start(number)

    def skip_to(self, number: int) -> None:
        """Move `next` forward to the queue offset `number`: messages before it that were not
        started are gone from the queue, or are done. A lower number has no effect."""
        self.next = QueueOffset(max(self.next, number))
