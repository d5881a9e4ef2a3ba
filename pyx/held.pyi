"""Pulls that native code holds until their queue grows or their time ends."""

from collections.abc import Callable
from typing import Any, Self

from turbopump.pyx.lane import Lane
from turbopump.pyx.pulls import Pulls

WAKES_MAX: int
"""Maximum number of pulls that one call of `wake` or `expire` looks at; the others follow after
other requests."""
HAND_OVER_ROWS: int
"""Number of pulls of WAKES_MAX that a pull given to the handler counts for."""
WAKE_BYTES: int
"""Bytes of messages after which `wake` ends; the other pulls follow after other requests."""
HOLD: int
"""The handler holds a pull that it gets."""
ATTEMPT: int
"""The handler attempts a pull that it gets, and holds it if it finds nothing."""
FINISH: int
"""The handler answers a pull that it gets."""

class HeldRows:
    """Held pulls, served by `pulls`, whose connections answer by `lane`. Loop thread only.

    `post` has a callback called soon, `steady_ms` returns ms of the monotonic clock.

    A pull that `pulls` find at the end of its queue is held, if its flags allow it, its reader
    filters by tags only, and there is room. When the queue has grown, `wake` attempts it, in the
    order of holding. Attempts that have a result other than messages, or none yet, are the
    handler's.
    """

    hand_over: Callable[[Any, tuple[Any, ...]], None]
    """Receives the connection of a pull that the handler continues, and the pull: opaque, group,
    topic, queue id, queue offset after the messages that the pull's tags refused, the request's
    fields max_msg_nums, sys_flag, sub_version, subscription and expression_type (texts as bytes, or
    None), the deadline in ms of the monotonic clock, and HOLD, ATTEMPT or FINISH. Must be set
    before a pull is held."""
    count_max: int
    """Maximum number of pulls, `others_count` included; a further pull is the handler's."""
    size_max: int
    """Maximum estimated bytes of pulls, `others_size` included."""
    row_size: int
    """Estimated bytes of a pull besides its texts."""
    others_count: int
    """Number of pulls that the handler holds."""
    others_size: int
    """Estimated bytes of the pulls that the handler holds."""
    held_count: int
    """Number of pulls held since the start."""
    wake_count: int
    """Number of pulls answered with messages since the start."""

    def __new__(
        cls,
        lane: Lane,
        pulls: Pulls,
        *,
        post: Callable[[Callable[[], None]], object],
        steady_ms: Callable[[], int],
    ) -> Self: ...
    def configure(self, longest_ms: int, fixed_ms: int | None) -> None:
        """Set how long pulls are held: as long as they ask for, at most `longest_ms`, or all for
        `fixed_ms`. Until the first call none is held."""

    @property
    def count(self) -> int:
        """Number of pulls held now."""

    @property
    def size(self) -> int:
        """Estimated bytes of the pulls held now."""

    def wake_soon(self) -> None:
        """Have `wake` called soon; the lane calls this once for any number of arrivals."""

    def wake(self) -> None:
        """Attempt the pulls of queues that have grown, up to WAKES_MAX pulls or WAKE_BYTES; if some
        are left, `wake` is posted again."""

    def tick(self, steady_ms: int) -> None:
        """Answer the pulls with a deadline at or before `steady_ms`, as `expire` does."""

    def expire(self) -> None:
        """Answer up to WAKES_MAX pulls whose time ended at the last tick; if some are left,
        `expire` is posted again."""

    def leave(self, topic: bytes, queue_id: int) -> None:
        """Have the handler attempt the present pulls of a queue, because its attempt looks at more
        than the queue: `hand_over_some` is posted."""

    def leave_slot(self, slot: int) -> bool:
        """Have the handler hold the pulls of a slot of the queue table, whose queue is removed:
        `hand_over_some` is posted. Returns whether there are any; then the slot is free once the
        last one has left."""

    def finish_all(self) -> None:
        """Have the handler answer the present pulls: `hand_over_some` is posted. An earlier attempt
        of one of them answers it, too."""

    @property
    def has_leaving(self) -> bool:
        """Whether some of the pulls of `leave`, `leave_slot` and `finish_all` may still be held."""

    def hand_over_some(self) -> None:
        """Give pulls of `leave`, `leave_slot` and `finish_all` to the handler, up to WAKES_MAX /
        HAND_OVER_ROWS; if some are left, `hand_over_some` is posted again."""
