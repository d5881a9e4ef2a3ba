from collections.abc import Callable, Mapping

from turbopump.engine.types import PutStatus

NEED_MAX: int
PENDING_MAX: int

class Holder:
    """A connection whose answers are held."""

class PendingSends:
    """All sends whose answers wait until their records are safe, in the order of the log.

    A record is safe when it is durable (`flushed_to`; without a call everything is) and when as
    many copies reach its end as its send needs (`replicated_to`; 0 and 1 always do). All wait
    equally long: `disk_wait_ms` and `replica_wait_ms` from the last `expire` on; replicas that are
    late count more than a disk that is. `ok` is the status of what is safe, `late_replicas` and
    `late_disk` of what waited in vain for either.
    """

    steady_ms: int
    disk_wait_ms: int
    replica_wait_ms: int
    limit: int
    """Of so many that wait; one more send is not served natively."""

    @property
    def flushed(self) -> int:
        """All before that log offset is durable."""

    @property
    def withheld(self) -> bool:
        """Whether nothing is answered nor served natively, from `withhold` to `ask_for`."""

    @property
    def count(self) -> int:
        """How many wait."""

    def __new__(
        cls, ok: PutStatus, late_replicas: PutStatus, late_disk: PutStatus
    ) -> PendingSends: ...
    def configure(
        self,
        region: bytes,
        trace_on: bool,
        statuses: Mapping[PutStatus, tuple[int, bytes | None]],
    ) -> None:
        """What native answers say: MSG_REGION and TRACE_ON, and the code and remark of a status.
        Without a remark the message is stored, and the answer says where."""

    def wait(self, end: int, need: int, callback: Callable[[PutStatus], object]) -> None:
        """Call back with the status once the record that ends there is safe, or will not be: at
        once if that is so now, or if PENDING_MAX wait already. Raises ValueError for a number of
        copies over NEED_MAX."""

    def flushed_to(self, end: int) -> None:
        """All before that log offset is durable: answer what is safe now."""

    def ask_for(self, copies: int | None) -> None:
        """How many copies a send needs from now on, -1: those of all members. None: not enough
        replicas are in sync for that, and a send that waits is refused."""

    def replicated_to(self, need: int, end: int) -> None:
        """So many copies (-1: those of all members) reach that log offset: answer what is safe
        now."""

    def safe_end(self, need: int) -> int:
        """Up to where so many copies reach; -1 if that was not said."""

    def withhold(self, status: PutStatus) -> None:
        """The replicas count no more: nothing is safe until it is said again, all that wait get
        that status, and the lane serves no send until `ask_for`."""

    def sweep(self) -> None:
        """Answer what is safe now."""

    def expire(self, steady_ms: int) -> None:
        """Time has passed: what has waited long enough is answered that it did so in vain."""

    def withdraw(self, status: PutStatus, after: int) -> list[object]:
        """Take out what waits for a record that ends behind `after`; `answer` is to follow."""

    def answer(self, withdrawn: list[object]) -> None:
        """Give what was withdrawn its status, in the order of the log."""

    def fail(self, status: PutStatus, after: int = -1) -> None:
        """`withdraw`, and `answer` at once."""
