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
    """What of the pulls of a broker is served natively: those that find messages.

    `limits` is (bytes from the end of the log that count as near, most messages and bytes of an
    answer near the end, the same further back). `units_of(topic, queue id, queue offset)` gives the
    mapping of a queue file, its first queue offset, the queue's slot and its min offset, None where
    there is nothing; `log_of(log offset)` the mapping of the log file that begins there;
    `commit(group, topic, queue id, queue offset, now_ms)` takes an offset that a pull brought.
    """

    found_count: int
    """Pulls served since this was last set to 0."""
    transferred_count: int
    """Messages given since this was last set to 0."""

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
        """Pulls of this group from this topic are plain, until forgotten or `until_ms`.

        With a `subscription` those that carry exactly it, with this version and type; without one
        those that carry none and a version up to `sub_version`. `codes` are the tags to read, None
        for all; of these
        `filter` chooses.
        """

    def forget(self, group: bytes) -> None:
        """Pulls of this group are for the Python handler, until they are served again."""

    def forget_all(self) -> None:
        """As `forget` for every group."""

    def take_got(self) -> list[tuple[bytes, bytes, int, int, int]]:
        """What readers got since the last call: (group, topic, pulls, messages, bytes)."""

    def take_pulled(self) -> list[tuple[bytes, bytes, int, int]]:
        """Where pulls ended since the last call: (group, topic, queue id, next queue offset)."""

    def drop_pulled(self, group: bytes, topic: bytes, queue_id: int) -> None:
        """Forget where the last native pull of a queue ended."""

    def tidy(self) -> None:
        """Release mappings that are of the past."""

    def let_go(self) -> None:
        """Hold no mapping any more."""
