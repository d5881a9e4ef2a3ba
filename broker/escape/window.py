"""Numbers of one sequence that are on their way somewhere: which are done, which are due again.

Owns how far the sequence is done without a gap, and when what failed is tried again. It must never
know what is sent. Called by what escapes in order (broker/scheduled/level_escape.py).

    first ... done_to | some of these are done, others are not ... next | not begun yet
                      '----------- at most `most` of them -----------'
"""

from dataclasses import dataclass
from typing import Final

FIRST_PAUSE_MS: Final = 200
"""After a failure; doubled with each one up to LAST_PAUSE_MS."""
LAST_PAUSE_MS: Final = 5_000
_DOUBLINGS_MAX: Final = 5


@dataclass(slots=True)
class _Open:
    failures: int = 0
    is_out: bool = True
    due_ms: int = 0


class EscapeWindow:
    """See the module. Loop thread only; times are of the monotonic clock."""

    def __init__(self, first: int, most: int) -> None:
        self.next = first
        """The first number that was not begun."""
        self._most = most
        self._open: dict[int, _Open] = {}

    @property
    def done_to(self) -> int:
        """All numbers before it are done."""
        return next(iter(self._open), self.next)

    @property
    def has_room(self) -> bool:
        """Whether another number may begin."""
        return self.next - self.done_to < self._most

    def begin(self) -> None:
        """The next number is out."""
        self._open[self.next] = _Open()
        self.next += 1

    def skip_to(self, number: int) -> None:
        """What is before it, and was not begun, is not there any more."""
        self.next = max(self.next, number)

    def again(self, number: int) -> None:
        """It is out once more."""
        self._open[number].is_out = True

    def is_out(self, number: int) -> bool:
        """Whether it is on its way; also of one that is done, that it is not."""
        one = self._open.get(number)
        return one is not None and one.is_out

    def failures(self, number: int) -> int:
        """How often it has failed."""
        return self._open[number].failures

    def failed(self, number: int, now_ms: int) -> None:
        """It is to be tried again, after a while."""
        one = self._open[number]
        one.due_ms = now_ms + pause_ms(one.failures)
        one.failures, one.is_out = one.failures + 1, False

    def done(self, number: int) -> None:
        """It is where it belongs."""
        del self._open[number]

    def due(self, now_ms: int, most: int) -> list[int]:
        """Numbers to be tried again now, the first of them."""
        found: list[int] = []
        for number, one in self._open.items():
            if len(found) >= most:
                break
            if not one.is_out and one.due_ms <= now_ms:
                found.append(number)
        return found


def pause_ms(failures: int) -> int:
    """How long to wait after so many failures and one more."""
    return min(FIRST_PAUSE_MS << min(failures, _DOUBLINGS_MAX), LAST_PAUSE_MS)
