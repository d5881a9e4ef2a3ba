"""Answers of sends that wait until their records are safe."""

from collections.abc import Callable, Mapping

from turbopump.engine.types import PutStatus

NEED_MAX: int
"""Maximum number of copies that a send may need."""
PENDING_MAX: int
"""Maximum number of waiting sends; `wait` answers further sends as late at once."""

class Holder:
    """Base of a connection whose native answers are held, to be written when their records are
    safe."""

class PendingSends:
    """All sends whose answers wait until their records are safe, in the order of the log.

    A record is safe when it is durable (`flushed_to`; before the first call every record counts as
    durable) and when as many copies reach its end as its send needs (`replicated_to`; 0 and 1
    copies always do). Waits are limited by `disk_wait_ms` and `replica_wait_ms`, counted from the
    last `expire` before the send. `ok` is the status of a safe record; a record that is not safe
    in time gets `late_replicas` or `late_disk`, `late_replicas` if both are late. Answers are
    written, and callbacks called, inside the method that makes them due. Loop thread only.
    """

    steady_ms: int
    """Monotonic time in ms of the last `expire`."""
    disk_wait_ms: int
    """Maximum wait of a send for the disk, in ms."""
    replica_wait_ms: int
    """Maximum wait of a send for replicas, in ms."""
    limit: int
    """Greatest number of waiting sends; the lane leaves further sends to Python."""

    @property
    def flushed(self) -> int:
        """Log offset up to which the log is durable; the greatest one before the first
        `flushed_to`."""

    @property
    def withheld(self) -> bool:
        """Whether no send is answered or served natively: after `withhold` until `ask_for`."""

    @property
    def count(self) -> int:
        """Number of waiting sends."""

    def __new__(
        cls, ok: PutStatus, late_replicas: PutStatus, late_disk: PutStatus
    ) -> PendingSends: ...
    def configure(
        self,
        region: bytes,
        trace_on: bool,
        statuses: Mapping[PutStatus, tuple[int, bytes | None]],
    ) -> None:
        """Set the fields of native answers: MSG_REGION, TRACE_ON, and the code and remark of each
        status. A status without a remark means that the message is stored, and its answer has the
        message's offsets."""

    def wait(self, end: int, need: int, callback: Callable[[PutStatus], object]) -> None:
        """Call `callback(status)` once, when the record that ends at log offset `end` is safe on
        disk and in `need` copies (-1: of all members), or its wait reaches its limit; inside this
        call if the record is safe now, or late if PENDING_MAX sends wait already. Raises ValueError
        for a number of copies over NEED_MAX."""

    def flushed_to(self, end: int) -> None:
        """Note that the log is durable up to `end`, and answer the sends that are safe now."""

    def ask_for(self, copies: int | None) -> None:
        """Set the number of copies that new native sends need; -1: the copies of all members. None:
        too few replicas are in sync, and sends that would have to wait are refused. Ends
        `withheld`. Raises ValueError for a number of copies over NEED_MAX."""

    def replicated_to(self, need: int, end: int) -> None:
        """Note that `need` copies (-1: of all members) reach the log offset `end`, and answer
        the sends that are safe now. A no-op for 0 and 1 copies, which every record has."""

    def safe_end(self, need: int) -> int:
        """Return the log offset that `need` copies (-1: of all members) reach; -1 if unknown; the
        greatest one for 0 and 1."""

    def withhold(self, status: PutStatus) -> None:
        """Forget the progress of all replicas, so that no record that needs two copies or more is
        safe before the next `replicated_to`; answer all waiting sends with `status` now, and serve
        no send natively until `ask_for`."""

    def sweep(self) -> None:
        """Answer the sends that are safe now, in the order of the log."""

    def expire(self, steady_ms: int) -> None:
        """Advance the clock to `steady_ms` (monotonic), and answer the sends whose wait reached its
        limit as late."""

    def withdraw(self, status: PutStatus, after: int) -> list[object]:
        """Remove and return the sends whose records end after log offset `after`, with `status` as
        their answer; the caller must pass them to `answer`. Nothing is written yet."""

    def answer(self, withdrawn: list[object]) -> None:
        """Answer the sends that `withdraw` returned, each with the status given there, in the order
        of the log."""

    def fail(self, status: PutStatus, after: int = -1) -> None:
        """Answer the sends whose records end after log offset `after` (-1: all sends) with `status`
        immediately."""
