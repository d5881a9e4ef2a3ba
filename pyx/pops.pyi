from collections.abc import Callable
from typing import Self

from turbopump.pyx.acks import Acks
from turbopump.pyx.filter import Filter
from turbopump.pyx.pulls import Pulls

MAX_PLACES: int

class PopTurns:
    """Whose turn it is at a pop: its number, which says its revive queue, and what it draws, 0 to
    99, which says the queue it begins with. `draw_one` gives such a number; one is drawn for each
    pop, on both ways."""

    def __new__(cls, draw_one: Callable[[], int]) -> Self: ...
    def take(self) -> tuple[int, int]:
        """(number, draw) of one more pop."""

class Pops:
    """Which pops a broker serves natively, and where the groups pop next meanwhile. Loop thread
    only. `readers` are of no connection but these."""

    readers: Pulls
    pop_count: int
    """Pops served natively since the start."""
    place_count: int
    """Queues of all groups and topics, at most MAX_PLACES."""
    is_known: bool
    """Whether `take_popped` has something to take."""

    def __new__(cls, readers: Pulls, acks: Acks) -> Self: ...
    def begin(
        self,
        turns: PopTurns,
        places_of: Callable[[bytes, bytes, int, list[tuple[bytes, int]]], list[int] | None],
        left: Callable[[bytes, int], None],
    ) -> None:
        """Serve from now on. `places_of(group, topic, queues, [(retry topic, queues)])` says where
        the group pops each queue next, those of the topic first, -1 for where it has no offset;
        None: the handler has to look. `left(topic, queue_id)` is notified that a queue may be
        popped again."""

    def serve(
        self,
        group: bytes,
        topic: bytes,
        queue_limit: int,
        retries: tuple[tuple[bytes, int], ...],
        *,
        expression: bytes | None,
        expression_type: bytes | None,
        codes: frozenset[int] | None,
        filter: Filter | None,
        until_ms: int,
        ended_ms: int,
    ) -> None:
        """Pops of this group from this topic by exactly this expression are plain, until forgotten
        or `until_ms`, and after `ended_ms`, when a former life of either ended (epoch ms).
        `retries` are the retry topics that there are, with their queues, in the
        order in which draws take turns. What was popped was taken before."""

    def forget(self, group: bytes) -> None:
        """Pops of this group are for the Python handler, until they are served again."""

    def forget_all(self) -> None:
        """As `forget` for every group."""

    def take_popped(self) -> list[tuple[bytes, bytes, int, int, int, int]]:
        """(group, topic, queue id, next queue offset, times it moved, epoch ms of the last pop) of
        what was popped since it was asked for. From here on Python has the places."""
