from collections.abc import Callable
from typing import Self

from turbopump.pyx.dispatch import QueueTable
from turbopump.pyx.filter import Filter
from turbopump.pyx.region import Region
from turbopump.pyx.tail import Tail

MAX_READERS: int
MAX_QUEUES: int
MAX_HELD: int

class Pulls:
    """Pulls that a broker serves natively: plain ones that find messages.

    `limits` is (bytes from the end of the log that count as near, most messages and bytes of an
    answer near the end, the same further back). `units_of(topic, queue id, queue offset)` returns
    the mapping of a queue file, its first queue offset, the queue's slot and its min offset, None
    if there are no units; `log_of(log offset)` returns the mapping of the log file that begins
    there; `commit(group, topic, queue id, queue offset, now_ms)` receives an offset that a pull
    committed.
    """

    found_count: int
    """Number of pulls served since this was last set to 0."""
    transferred_count: int
    """Number of messages delivered since this was last set to 0."""

    def __new__(
        cls,
        tail: Tail,
        queues: QueueTable,
        file_size: int,
        limits: tuple[int, int, int, int, int],
        *,
        units_of: Callable[[bytes, int, int], tuple[Region, int, int, int] | None],
        log_of: Callable[[int], Region | None],
        commit: Callable[[bytes, bytes, int, int, int], None],
    ) -> Self: ...
    def serve(
        self,
        group: bytes,
        topic: bytes,
        queue_limit: int,
        *,
        readers: tuple[int, int],
        topic_sys_flag: int,
        group_sys_flag: int,
        sub_version: int,
        subscription: bytes | None,
        expression_type: bytes | None,
        codes: frozenset[int] | None,
        filter: Filter | None,
        until_ms: int,
    ) -> None:
        """Serve pulls of this group from this topic natively, until `forget` or `until_ms`.

        With a `subscription`, only pulls with exactly this subscription, version and type are
        served; without it, only pulls without a subscription and with a version up to
        `sub_version`. `codes` are the hashes of the tags to read, None for all; `filter` chooses
        among these messages.
        """

    def forget(self, group: bytes) -> None:
        """Leave pulls of this group to the Python handler, until the next `serve`."""

    def forget_all(self) -> None:
        """Leave pulls of every group to the Python handler; see `forget`."""

    def take_got(self) -> list[tuple[bytes, bytes, int, int, int]]:
        """Return (group, topic, pulls, messages, bytes) of each reader since the last call."""

    def take_pulled(self) -> list[tuple[bytes, bytes, int, int]]:
        """Return the ends of pulls since the last call: (group, topic, queue id, next queue offset)
        of each queue pulled."""

    def drop_pulled(self, group: bytes, topic: bytes, queue_id: int) -> None:
        """Forget the end of the last native pull of a queue."""

    def tidy(self) -> None:
        """Release mappings of older generations, whose files may have changed."""

    def let_go(self) -> None:
        """Release all mappings."""
