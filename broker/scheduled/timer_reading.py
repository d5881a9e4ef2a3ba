"""The time up to which the queue of timers has been read, so that no recall is missed (I14).

A recall is a message of the same queue as its timer and is stored before the timer's time. So a
timer may be delivered once all messages stored before its time are in the wheel. The end of the
queue is noted together with the clock; when the queue has been read up to that end, all earlier
messages are in the wheel. A term begins with the queue's end at that moment: the messages before it
carry the times of another clock.

The second part of a long wait is stored when the first part is delivered, which may be late. Then
it may be a recall whose timer is due already, so it holds up later timers until it has been read.

Tests: tests/unit/broker/scheduled/test_timers.py
"""

from turbopump.engine.types import QueueOffset


class TimerReading:
    """How far the queue of timers has been read in a term, and the time up to which timers may
    therefore be delivered without missing a recall. Loop thread only; times are epoch ms."""

    def __init__(self) -> None:
        self._until_ms: int | None = None
        self._end, self._end_ms = QueueOffset(0), 0
        self._rolled: tuple[QueueOffset, int] | None = None
        """Queue end after the last second part, and the first slot of such parts."""

    def begin_term(self, end: QueueOffset, now_ms: int) -> None:
        """Begin a term at `now_ms`. The queue ends at `end`, including messages that no consumer
        may read yet; no timer may be delivered before all of them are read."""
        self._until_ms, self._end, self._end_ms = None, end, now_ms
        self._rolled = None

    def note_rolled(self, end: QueueOffset, out_ms: int) -> None:
        """Note that the queue ends at `end` with the second part of a message of the slot `out_ms`:
        later timers wait until it has been read."""
        held_ms = out_ms if self._rolled is None else min(self._rolled[1], out_ms)
        self._rolled = end, held_ms

    def note_read(self, read: QueueOffset, end: QueueOffset, now_ms: int) -> None:
        """Note at `now_ms` that messages before queue offset `read` are in the wheel, and that the
        queue ends at `end`; call it before each `until_ms`."""
        self._end_ms = min(self._end_ms, now_ms)  # the clock may have been set back
        if self._until_ms is not None:
            self._until_ms = min(self._until_ms, now_ms)
        if self._rolled is not None and read >= self._rolled[0]:
            self._rolled = None
        if read < self._end:
            return
        if read >= end:
            self._until_ms = self._end_ms = now_ms
            self._end = end
            return
        self._until_ms, self._end, self._end_ms = self._end_ms, end, now_ms

    def until_ms(self, now_ms: int) -> int:
        """Return the time up to which due timers may be delivered, at most `now_ms`; -1: no timer
        yet."""
        if self._until_ms is None:
            return -1
        until_ms = min(self._until_ms, now_ms)
        return until_ms if self._rolled is None else min(until_ms, self._rolled[1])
