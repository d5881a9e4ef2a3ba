"""Queues of topics by broker, bounded in number and bytes.

Owns queues, mappings of static topics and the bytes of both. It must never know whether a broker
lives, nor refuse a broker: routes.py does, and all access goes through it.

Tests: tests/unit/namesrv/test_routes.py
"""

from collections.abc import Callable

from turbopump.namesrv.route_rows import mapping_size
from turbopump.net.wire.bodies import Steps
from turbopump.net.wire.names import kept_size
from turbopump.net.wire.route import QueueData
from turbopump.net.wire.topics import PERM_READ, PERM_WRITE

MAX_QUEUE_DATAS = 2_000_000
"""Maximum number of (topic, broker group) pairs: ten times the number that RocketMQ recommends."""
MAX_SIZE = 192 << 20
"""Maximum estimated bytes of topics, their queues and mappings: some 300,000 topics on a broker
each."""
_QUEUE_SIZE, _TOPIC_SIZE = 200, 400

TOPICS_PER_STEP = 2_000
"""Topics that one step takes over, drops or examines, in some 4 ms."""


class TopicQueues:
    """Queues, mappings and sizes of all topics, by topic and broker group. Loop thread only."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, QueueData]] = {}
        self._topics_of: dict[str, set[str]] = {}
        self._mappings: dict[str, dict[str, dict[str, object]]] = {}
        self._dropped: dict[str, set[str]] = {}
        """Topics of removed groups by group name; the queues of these groups are still to be
        removed."""
        self._queue_count = 0
        self.size = 0
        """Estimated bytes of topics, their queues and mappings."""

    def topics(self) -> list[str]:
        """Names of all topics that a group serves, unordered; a new list."""
        if not self._dropped:
            return list(self._queues)
        return [topic for topic, queues in self._queues.items() if self._of_existing_groups(queues)]

    def topics_with_flag(self, wanted: Callable[[int], bool]) -> Steps[list[str]]:
        """Return the names, unordered, of the topics for whose topicSysFlag (of the first group
        that has the topic) `wanted` returns True; yields after each TOPICS_PER_STEP topics."""
        found: list[str] = []
        for number, topic in enumerate(self.topics(), 1):
            queues = self._of_existing_groups(self._queues.get(topic, {}))
            if queues and wanted(next(iter(queues.values())).topic_sys_flag):
                found.append(topic)
            if number % TOPICS_PER_STEP == 0:
                yield
        return found

    def wipe_write_permission(self, name: str) -> Steps[int]:
        """Remove the write permission from the topics of the group `name`, and return the number of
        its topics. It is done in the steps of the result; a later registration with a changed table
        sets it again."""
        return self._set_permission(name, lambda perm: perm & ~PERM_WRITE)

    def add_write_permission(self, name: str) -> Steps[int]:
        """Make the topics of the group `name` readable and writable, and return the number of its
        topics. It is done in the steps of the result."""
        return self._set_permission(name, lambda _: PERM_READ | PERM_WRITE)

    def _has_room(self, count: int, size: int) -> bool:
        """Whether `count` more queues and `size` more bytes are within the limits."""
        return self._queue_count + count <= MAX_QUEUE_DATAS and self.size + size <= MAX_SIZE

    def _size_of(self, topic: str) -> int:
        """Estimated bytes of one broker group's row of a topic."""
        return _QUEUE_SIZE + (0 if topic in self._queues else _TOPIC_SIZE + kept_size(topic))

    def _put_mapping(self, topic: str, name: str, info: dict[str, object]) -> None:
        """Set the mapping of a static topic in the group `name`, unless the limit of
        bytes is exceeded."""
        size = mapping_size(info)
        if self.size + size <= MAX_SIZE:
            self._drop_mapping(topic, name)
            self._mappings.setdefault(topic, {})[name] = info
            self.size += size

    def _drop_mapping(self, topic: str, name: str) -> None:
        """Remove the mapping of a static topic in the group `name`, if there is one."""
        mappings = self._mappings.get(topic, {})
        info = mappings.pop(name, None)
        if info is not None:
            self.size -= mapping_size(info)
            if not mappings:
                del self._mappings[topic]

    @property
    def has_dropped(self) -> bool:
        """Whether queues of removed groups wait for `remove_in_steps`."""
        return bool(self._dropped)

    def remove_in_steps(self) -> Steps[None]:
        """Remove the queues of removed groups, TOPICS_PER_STEP at each step of the iterator.
        Requests do not see these queues."""
        while self._dropped:
            self._sweep_step(next(iter(self._dropped)))
            yield

    def _sweep_step(self, name: str) -> None:
        """Remove up to TOPICS_PER_STEP queues of the removed group `name`."""
        topics = self._dropped[name]
        for _ in range(min(TOPICS_PER_STEP, len(topics))):
            self._remove_queue(topics.pop(), name)
        if not topics:
            del self._dropped[name]

    def _of_existing_groups(self, queues: dict[str, QueueData]) -> dict[str, QueueData]:
        """The queues of groups that were not removed."""
        if self._dropped.keys().isdisjoint(queues):
            return queues
        return {name: queue for name, queue in queues.items() if name not in self._dropped}

    def _set_permission(self, name: str, change: Callable[[int], int]) -> Steps[int]:
        """Set the permission of each topic of the group `name` to the result of `change`, in steps;
        returns the number of topics."""
        topics = list(self._topics_of.get(name, ()))
        for number, topic in enumerate(topics, 1):
            queue = self._queues.get(topic, {}).get(name)
            if queue is not None and name not in self._dropped:
                queue.perm = change(queue.perm)
            if number % TOPICS_PER_STEP == 0:
                yield
        return len(topics)

    def _put_queue(self, topic: str, queue: QueueData) -> None:
        """Set the row of a topic in the group of `queue`."""
        size = self._size_of(topic)
        queues = self._queues.setdefault(topic, {})
        if queue.broker_name not in queues:
            self._queue_count += 1
            self.size += size
            self._topics_of.setdefault(queue.broker_name, set()).add(topic)
        queues[queue.broker_name] = queue

    def _remove_queue(self, topic: str, name: str) -> None:
        """Remove the row and mapping of a topic in the group `name`; the group's list of
        topics stays."""
        queues = self._queues[topic]
        del queues[name]
        self._queue_count -= 1
        if not queues:
            del self._queues[topic]
        self.size -= self._size_of(topic)
        self._drop_mapping(topic, name)

    def _drop_queue(self, topic: str, name: str) -> None:
        """Remove the row and mapping of a topic in the group `name`, also from the
        group's list of topics."""
        self._remove_queue(topic, name)
        topics = self._topics_of[name]
        topics.discard(topic)
        if not topics:
            del self._topics_of[name]
