"""A window of numbers in a sequence whose messages are sent in parallel and may fail.

Owns the end of the finished part without a gap, and when failed numbers are tried again.

    first ... done_to | some of these are done, others are not ... next | not begun yet
                      '----------- at most `most` of them -----------'
    not begun --begin--> out --done--> done
                          ^ '--failed--> waiting --pause, again--'
"""

from dataclasses import dataclass
from typing import Final

FIRST_PAUSE_MS: Final = 200
"""Pause in ms after a failure; doubled with each further one up to LAST_PAUSE_MS."""
LAST_PAUSE_MS: Final = 5_000
_DOUBLINGS_MAX: Final = 5


@dataclass(slots=True)
class _Open:
    failures: int = 0
    is_out: bool = True
    due_ms: int = 0


class RetryWindow:
    """See the module. Loop thread only; times are of the monotonic clock."""

    def __init__(self, first: int, most: int) -> None:
        self.next = first
        """The first number that was not begun."""
        self._most = most
        self._open: dict[int, _Open] = {}

    @property
    def done_to(self) -> int:
        """The number before which all numbers are done."""
        return next(iter(self._open), self.next)

    @property
    def has_room(self) -> bool:
        """Whether another number may begin: fewer than the maximum lie between `done_to` and
        `next`."""
        return self.next - self.done_to < self._most

    def begin(self) -> None:
        """Mark the number `next` as out, that is, its message as sent without an answer; `next`
        becomes greater by one."""
        self._open[self.next] = _Open()
        self.next += 1

    def skip_to(self, number: int) -> None:
        """Skip numbers before `number` that were not begun: their messages were removed."""
        self.next = max(self.next, number)

    def again(self, number: int) -> None:
        """Mark a failed number as out again: its message is sent once more."""
        self._open[number].is_out = True

    def is_out(self, number: int) -> bool:
        """Whether the message of a number was sent and not answered yet."""
        one = self._open.get(number)
        return one is not None and one.is_out

    def failures(self, number: int) -> int:
        """Return how often the message of an open number has failed."""
        return self._open[number].failures

    def failed(self, number: int, now_ms: int) -> None:
        """Record a failure of a number that is out: it is due again after a pause that grows with
        the failures."""
        one = self._open[number]
        one.due_ms = now_ms + pause_ms(one.failures)
        one.failures, one.is_out = one.failures + 1, False

    def done(self, number: int) -> None:
        """Remove a number whose message was taken; `done_to` passes it once all before it are
        done."""
        del self._open[number]

    def due(self, now_ms: int, most: int) -> list[int]:
        """Return the first `most` failed numbers whose pause has ended."""
        found: list[int] = []
        for number, one in self._open.items():
            if len(found) >= most:
                break
            if not one.is_out and one.due_ms <= now_ms:
                found.append(number)
        return found


def pause_ms(failures: int) -> int:
    """Return the pause in ms after one more than `failures` failures."""
    return min(FIRST_PAUSE_MS << min(failures, _DOUBLINGS_MAX), LAST_PAUSE_MS)
