from collections.abc import Mapping

from turbopump.engine.types import PutStatus

NEED_MAX: int

class Holder:
    """A connection whose answers are held."""

class Held:
    """Answers to sends that wait until their records are safe, in the order of the log.

    A record is safe when it is durable (`flushed_to`; without a call everything is) and when as
    many copies reach its end as its send needs (`replicated_to`; 0 and 1 always do). All wait
    equally long: `disk_wait_ms` and `replica_wait_ms` from the last `expire` on.
    """

    steady_ms: int
    disk_wait_ms: int
    replica_wait_ms: int
    limit: int
    """So many answers may wait; one more send is not served natively."""

    @property
    def flushed(self) -> int:
        """All before that log offset is durable."""

    @property
    def count(self) -> int:
        """Answers that wait."""

    def configure(
        self,
        region: bytes,
        trace_on: bool,
        statuses: Mapping[PutStatus, tuple[int, bytes | None]],
    ) -> None:
        """What answers say: MSG_REGION and TRACE_ON, and the code and remark of a status. Without a
        remark the message is stored, and the answer says where."""

    def flushed_to(self, end: int) -> None:
        """All before that log offset is durable: give what is safe now."""

    def replicated_to(self, need: int, end: int) -> None:
        """So many copies (-1: everybody) reach that log offset: give what is safe now."""

    def sweep(self) -> None:
        """Give what is safe now."""

    def expire(self, steady_ms: int, late_replicas: PutStatus, late_disk: PutStatus) -> None:
        """Time has passed: who has waited long enough is told what he waited for in vain."""

    def fail(self, status: PutStatus, after: int = -1) -> None:
        """Whoever waits for a record that ends behind `after` is told that status."""
