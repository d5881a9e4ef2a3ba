"""Native pops, and the offsets at which groups pop next."""

from collections.abc import Callable
from typing import Self

from turbopump.pyx.acks import Acks
from turbopump.pyx.filter import Filter
from turbopump.pyx.pulls import Pulls

MAX_PLACES: int
"""Maximum number of queues of all groups and topics popped natively; the Python handler serves
others."""

class PopTurns:
    """The turns of pops, native ones and Python's. A pop's number selects its revive queue;
    its draw, 0 to 99 from `draw_one`, selects the queue it begins with."""

    def __new__(cls, draw_one: Callable[[], int]) -> Self:
        """Use `draw_one()`, which returns a random number, of which the last two digits count."""

    def take(self) -> tuple[int, int]:
        """Count a pop, and return its (number, draw); numbers ascend from 1."""

class Pops:
    """Pops that a broker serves natively, and the offsets at which groups pop next. Loop thread
    only. `readers` serves these pops alone, no connection's pulls."""

    readers: Pulls
    """The pulls that find the messages of pops."""
    pop_count: int
    """Number of pops served natively since the start."""
    place_count: int
    """Number of queues served, of all groups and topics, at most MAX_PLACES."""
    is_known: bool
    """Whether `take_popped` would return at least one row."""

    def __new__(cls, readers: Pulls, acks: Acks) -> Self: ...
    def begin(
        self,
        turns: PopTurns,
        places_of: Callable[[bytes, bytes, int, list[tuple[bytes, int]]], list[int] | None],
        left: Callable[[bytes, int], None],
    ) -> None:
        """Start to serve; before this call the Python handler serves all. `places_of(group, topic,
        queues, [(retry topic, queues)])` returns the offset at which the group pops each queue
        next, the queues of the topic first, -1 for a queue without an offset; None: the handler has
        to look. `left(topic, queue_id)` is called when a queue may be popped again."""

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
        """Serve pops of this group from queue ids below `queue_limit` of this topic with exactly
        this expression natively, until `forget` or `until_ms`, and only after `ended_ms`, when an
        earlier group or topic of the same name was removed (epoch ms). `retries` are the existing
        retry topics with their numbers of queues, in the order in which draws choose them. Call
        `take_popped` before this, else the pops are left to the Python handler. Raises ValueError
        for too many retry topics."""

    def forget(self, group: bytes) -> None:
        """Leave pops of this group to the Python handler, until the next `serve`."""

    def forget_all(self) -> None:
        """Leave pops of every group to the Python handler; see `forget`."""

    def take_popped(self) -> list[tuple[bytes, bytes, int, int, int, int]]:
        """Take (group, topic, queue id, queue offset that the group pops next, number of pops that
        moved it, epoch ms of the last native pop) of each queue popped since the last call. The
        caller enters these offsets into its table, which the next native pop reads through
        `places_of`."""
