"""Lives of topics and groups: whether a pop belongs to the present or a former life.

Check points, acknowledgements, ordered batches, notes and receipt handles name queue offsets of a
topic and a pop time. They may have been written before the topic, or the group with its offsets,
was deleted and created again; the offsets then name other messages. This module keeps no state: the
store keeps when a topic was deleted, the group table when a group was.

    popped, popped | deletion | popped, popped
    a former life  ^ ended_ms   the present life: each pop time is greater
"""

from collections.abc import Callable, Container
from typing import Final

from turbopump.net.wire.pop_records import CheckPointKey


class Lives:
    """The lives of topics and groups: when the last former life of a name ended by a deletion, so
    that pops of it are recognized. Loop thread only. `topic_ms` and `group_ms` return when the name
    was last deleted, in epoch ms, 0 for never; `going` contains the topics that are being
    deleted."""

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
        """Whether the topic is being deleted: nothing of it is popped or revived meanwhile, because
        such a pop would have a time after the end of the life to which it belongs."""
        return topic in self._going

    def ended_ms(self, topic: str, group: str) -> int:
        """Return when the last former life of the topic or the group ended, in epoch ms; 0 if there
        was no former life. A retry topic counts as a topic of its own; it is deleted with its main
        topic."""
        return max(self._topic_ms(topic), self._group_ms(group))

    def is_former(self, topic: str, group: str, pop_time_ms: int) -> bool:
        """Whether a pop at that time, in epoch ms, came before the last deletion of its topic or
        group."""
        return pop_time_ms <= self.ended_ms(topic, group)

    def has_ended(self, key: CheckPointKey) -> bool:
        """Whether the topic or group of a check point was deleted after its pop."""
        return self.is_former(key.topic, key.group, key.pop_time_ms)

    def pop_time_ms(self, topic: str, group: str, now_ms: int) -> int:
        """Return the pop time of a pop at `now_ms`, in epoch ms: later than each former life, even
        if the clock went back since."""
        return max(now_ms, self.ended_ms(topic, group) + 1)
