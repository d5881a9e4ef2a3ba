"""Which life of a topic and a group a pop belongs to.

Owns one question that all readers of check points, acknowledgements, ordered batches, notes and
receipt handles ask. Each of them names queue offsets of a topic and a pop time, and may have been
written before the topic, or the group with its offsets, was deleted and made again. The queue
offsets then name other messages. It must never remember anything itself: the store keeps when a
topic was deleted, the group table when a group was.

    popped, popped | deletion | popped, popped
    a former life  ^ ended_ms   the present life: each pop time is greater
"""

from collections.abc import Callable, Container
from typing import Final

from turbopump.net.wire.pop_records import CheckPointKey


class Lives:
    """The end of the last former life of topics and groups. Loop thread only.

    `topic_ms` and `group_ms` return when the name was last deleted, in epoch ms, 0 for never;
    `going` has the topics that are being deleted.
    """

    def __init__(
        self,
        topic_ms: Callable[[str], int],
        group_ms: Callable[[str], int],
        going: Container[str] = (),
    ) -> None:
        self._topic_ms: Final = topic_ms
        self._group_ms: Final = group_ms
        self._going: Final = going

    def is_ending(self, topic: str) -> bool:
        """Whether the topic is being deleted: nothing is popped of it or revived meanwhile. It
        would be later than the end of the life that it belongs to."""
        return topic in self._going

    def ended_ms(self, topic: str, group: str) -> int:
        """When the last former life of the topic or the group ended, in epoch ms; 0: there was
        none. A retry topic is a topic of its own, which goes with the topic it belongs to."""
        return max(self._topic_ms(topic), self._group_ms(group))

    def is_former(self, topic: str, group: str, pop_time_ms: int) -> bool:
        """Whether a pop at that time belongs to a former life."""
        return pop_time_ms <= self.ended_ms(topic, group)

    def has_ended(self, key: CheckPointKey) -> bool:
        """Whether a check point belongs to a former life."""
        return self.is_former(key.topic, key.group, key.pop_time_ms)

    def pop_time_ms(self, topic: str, group: str, now_ms: int) -> int:
        """The pop time of a pop at `now_ms`, in epoch ms: later than each former life, also where
        the clock went back since."""
        return max(now_ms, self.ended_ms(topic, group) + 1)
