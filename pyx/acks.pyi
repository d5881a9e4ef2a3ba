"""Native acknowledgements of popped messages: records of the revive topic, and their counts."""

from collections.abc import Callable
from typing import Self

from turbopump.pyx.dispatch import QueueTable

MAX_ACKERS: int
"""Maximum number of pairs of group and topic served natively; the Python handler serves others."""

class Acks:
    """Acknowledgements of popped messages that a broker serves natively. Loop thread only."""

    def __new__(cls, queues: QueueTable) -> Self: ...
    def begin(
        self,
        low_of: Callable[[bytes, int], int],
        counted: Callable[[bytes, bytes, int, int, int, int, int, int], None],
    ) -> None:
        """Start to serve; before this call the Python handler serves all. `low_of(topic, queue_id)`
        returns the least queue offset of a queue that still exists.

        `counted(group, topic, until_ms, floor, change, acked, queue_id, first)` changes the count
        of the messages that are hidden until a time in the second that begins at `until_ms` (epoch
        ms): the new count is the old one plus `change`, at least `floor`. `acked` is the number of
        acknowledgements that were answered; `first` is the queue offset popped first, in
        `queue_id`; -1 without pops.
        """

    def configure(self, revive_topic: bytes, revive_queues: int) -> None:
        """Set the revive topic, which receives the records of pops and acknowledgements, and its
        number of queues; 0: nothing is served natively."""

    def serve(self, group: bytes, topic: bytes, queue_limit: int, ended_ms: int) -> None:
        """Serve acknowledgements of this group and topic natively: those for queue ids below
        `queue_limit` and for pops after `ended_ms` (epoch ms), when an earlier topic or group of
        the same name was removed."""

    def forget(self, topic: bytes) -> None:
        """Leave acknowledgements of this topic to the Python handler, until the next `serve`."""

    def forget_all(self) -> None:
        """Leave acknowledgements of every topic to the Python handler; see `forget`."""

    def mark_changed(
        self, queue_id: int, start: int, pop_time_ms: int, offset: int, by: int
    ) -> None:
        """Count replaced receipt handles (of changes of a message's invisible time): `by` is 1 for
        a new handle, and -1 once it is forgotten. Meanwhile the Python handler serves
        acknowledgements with the replaced handle."""

    def tell(self) -> None:
        """Report all pops and written acknowledgements to `counted`, one call for all that share
        group, topic and second."""
