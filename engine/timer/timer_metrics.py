"""Numbers of timers per topic: waiting, added and delivered.

Owns the counts and the text of `config/timermetrics`, which is also the response to
GET_TIMER_METRICS (61). It must never take counts from the wheel: like RocketMQ, it counts the
timers that enter and leave.

Tests: tests/unit/broker/scheduled/test_timers.py, tests/golden_stores/test_timers.py
"""

from itertools import islice
from typing import Any, Final

from turbopump.engine.types import StoreError
from turbopump.pyx.index import java_hash

FILE_NAME: Final = "timermetrics"
"""Name of the file in the folder config of the store."""
MAX_TOPICS: Final = 10_000
"""Maximum number of counted topics, so that a response is made in some milliseconds."""
_COUNT, _TIME, _TABLE = "count", "timeStamp", "timingCount"


class TopicTimerCounts:
    """Number of timers of each topic that entered, or left, since the start."""

    def __init__(self) -> None:
        self.total = 0
        """Number of all timers, including timers of unknown topics and of topics beyond
        MAX_TOPICS."""
        self.topics: dict[str, int] = {}
        """Topic to number of timers, of the first MAX_TOPICS topics."""

    def add_timers(self, topic: str | None, count: int) -> None:
        """Count `count` more timers of a topic; None: of an unknown topic."""
        self.total += count
        if topic is not None and (topic in self.topics or len(self.topics) < MAX_TOPICS):
            self.topics[topic] = self.topics.get(topic, 0) + count


class TimerMetrics:
    """Number of waiting timers of each topic, and the time of its last change. In memory: the
    caller reads and writes the file."""

    def __init__(self) -> None:
        self._topics: dict[str, tuple[int, int]] = {}
        self.changes = 0
        """Grows with each change of counts, `forget_topic` excepted."""
        self._hashes: dict[int, str] = {}

    def change_count(self, topic: str, by: int, now_ms: int) -> None:
        """Change a topic's count by `by`, at `now_ms` in epoch ms: by -1 for a recall that enters
        the wheel, and by 1 when the recall leaves it. A new topic beyond MAX_TOPICS is ignored."""
        known = self._topics.get(topic)
        if known is None and len(self._topics) >= MAX_TOPICS:
            return
        self._topics[topic] = (known[0] if known else 0) + by, now_ms
        self.changes += 1

    def topic_of(self, topic_hash: int) -> str | None:
        """The counted topic with this Java hash code, as in TimerUnit.topic_hash; None if there is
        no such topic."""
        if topic_hash not in self._hashes:
            self._hashes = {java_hash(topic.encode()): topic for topic in self._topics}
        return self._hashes.get(topic_hash)

    def get(self, topic: str) -> int:
        """Number of waiting timers of a topic, at least 0; 0 for an unknown topic."""
        known = self._topics.get(topic)
        return max(0, known[0]) if known else 0

    def waiting_by_topic(self) -> dict[str, int]:
        """Topic to number of waiting timers; topics without timers are left out."""
        return {topic: count for topic, (count, _time) in self._topics.items() if count > 0}

    @property
    def total(self) -> int:
        """Number of all waiting timers."""
        return sum(max(0, count) for count, _time in self._topics.values())

    def forget_topic(self, topic: str) -> None:
        """Drop the count of a deleted topic, whose timers may still wait."""
        self._topics.pop(topic, None)

    def to_json(self) -> dict[str, Any]:
        """The counts of all topics in the form of RocketMQ's file and response; counts
        may be negative."""
        return {
            _TABLE: {
                topic: {_COUNT: count, _TIME: time_ms}
                for topic, (count, time_ms) in sorted(self._topics.items())
            }
        }

    def replace_counts(self, value: Any) -> None:
        """Replace all counts by the parsed JSON of the file or a response, of which the first
        MAX_TOPICS topics count. Raises StoreError, and then the counts are unchanged."""
        table = value.get(_TABLE) if isinstance(value, dict) else None
        if table is None:
            table = {}
        if not isinstance(table, dict):
            raise StoreError("no table of timers")
        found: dict[str, tuple[int, int]] = {}
        for topic, one in islice(table.items(), MAX_TOPICS):
            members = one if isinstance(one, dict) else {}
            count, time_ms = members.get(_COUNT), members.get(_TIME, 0)
            if type(count) is not int or type(time_ms) is not int or abs(count) > 1 << 62:
                raise StoreError(f"the timers of topic {topic[:80]!r} are not a number")
            found[topic] = count, time_ms
        self._topics = found
        self.changes += 1
