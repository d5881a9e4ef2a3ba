"""Number of open half messages of each topic, as RocketMQ counts them: transactionMetrics.

Owns the counts and their file (TransactionMetrics): plus 1 at a half message, minus 1 when its
producer ends it. Transactions must never depend on the counts: a crash loses the counts of its last
seconds.

Tests: tests/unit/broker/scheduled/test_transactions.py
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from turbopump.broker.tables.data_versions import VersionRules
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.net.wire.bodies import BadBody, as_int, as_object
from turbopump.net.wire.java_properties import ConfigError
from turbopump.net.wire.topics import DataVersion

FILE_NAME: Final = "transactionMetrics"
"""Name of the table's file in the config folder."""
MAX_TOPICS: Final = 100_000
"""Maximum topics with counts, as many as can exist; further topics are not counted."""
LATENCY_BOUNDS_S: Final = (5, 60, 600, 3_600, 43_200, 86_400)
"""Upper bounds in s, ascending, of the ages in `TopicEnds.latencies`, for
`rocketmq_finish_message_latency_milliseconds`, whose values are seconds in RocketMQ."""
_INT64_MAX: Final = 2**63 - 1


@dataclass(slots=True)
class TopicEnds:
    """Ended transactions of a topic since the start, for `rocketmq_commit_messages_total` and the
    related metrics. `latency_sum_s` is the sum of the committed half messages' ages in s."""

    committed: int = 0
    rolled_back: int = 0
    latencies: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))
    """Number of committed half messages by age (not cumulative): a place for each of
    LATENCY_BOUNDS_S, which includes the bound, and a last place for older messages."""
    latency_sum_s: int = 0


class HalfCounts:
    """Number of open half messages of each topic, saved in transactionMetrics, and counts of ended
    ones. Times are epoch ms. Loop thread only."""

    def __init__(self, files: ConfigFiles, collect: Callable[["HalfCounts"], None]) -> None:
        """`collect` calls `add_native_counts` of this table with the counts of the native path that
        are not yet in it."""
        self._collect = collect
        self._files = files
        self._counts: dict[str, tuple[int, int]] = {}
        """Topic to (open half messages, time of the last change in epoch ms)."""
        self._changed = False
        self._version = DataVersion()
        self._versions = VersionRules()
        self._ended: dict[str, TopicEnds] = {}

    def load(self) -> None:
        """Read transactionMetrics, Turbopump's or RocketMQ's, if it exists. Raises ConfigError for
        malformed content, StoreError if the file cannot be read."""
        saved = self._files.load(FILE_NAME)
        if saved is None:
            return
        try:
            members = as_object(saved)
            self._version = DataVersion.from_json(members.get("dataVersion"))
            for topic, value in as_object(members.get("transactionCount") or {}).items():
                row = as_object(value)
                count = min(max(as_int(row.get("count", 0), topic), 0), _INT64_MAX)
                self._counts[topic] = count, as_int(row.get("timeStamp", 0), topic)
        except BadBody as error:
            raise ConfigError(f"{FILE_NAME} is damaged: {error}") from None

    def count_prepared(self, topic: str, now_ms: int) -> None:
        """Add 1 to the topic's open half messages; a new topic beyond MAX_TOPICS is not counted."""
        self._add(topic, 1, now_ms)

    def count_ended(self, topic: str, is_committed: bool, age_ms: int, now_ms: int) -> None:
        """Subtract 1 from the topic's open half messages (not below 0), and count the end: with
        `is_committed` also its age, rounded down to s; else as rolled back."""
        self._collect(self)
        self._add(topic, -1, now_ms)
        ends = self._ends_of(topic)
        if ends is None:
            return
        if is_committed:
            ends.committed += 1
            ends.latencies[bisect_left(LATENCY_BOUNDS_S, age_ms // 1_000)] += 1
            ends.latency_sum_s += age_ms // 1_000
        else:
            ends.rolled_back += 1

    def add_native_counts(
        self, topic: str, prepared: int, committed: int, rolled_back: int, age_s: int, at_ms: int
    ) -> None:
        """Add counts of the native path: `prepared` new half messages, and `committed` and
        `rolled_back` ended messages, each younger than the first of LATENCY_BOUNDS_S. `age_s` is
        the sum of the committed messages' ages in s."""
        self._add(topic, prepared - committed - rolled_back, at_ms)
        ends = self._ends_of(topic) if committed or rolled_back else None
        if ends is not None:
            ends.committed += committed
            ends.rolled_back += rolled_back
            ends.latencies[0] += committed
            ends.latency_sum_s += age_s

    def end_counts(self) -> dict[str, "TopicEnds"]:
        """Return, by topic, its counts of ended half messages since the start; copies."""
        self._collect(self)
        return {
            topic: replace(ends, latencies=list(ends.latencies))
            for topic, ends in self._ended.items()
        }

    def open_counts(self) -> dict[str, int]:
        """Return, by topic, its number of open half messages, perhaps 0; a copy."""
        self._collect(self)
        return {topic: count for topic, (count, _) in self._counts.items()}

    def take_changes(self, now_ms: int) -> dict[str, Any] | None:
        """The object to write to transactionMetrics, with a new version of time `now_ms`; None if
        nothing has changed since the last call. If the write fails, the caller calls
        `save_failed`."""
        self._collect(self)
        if not self._changed:
            return None
        self._changed = False
        self._version = self._versions.next_version(self._version, now_ms)
        return {
            "dataVersion": self._version.to_json(),
            "transactionCount": {
                topic: {"count": count, "timeStamp": at_ms}
                for topic, (count, at_ms) in sorted(self._counts.items())
            },
        }

    def save_failed(self) -> None:
        """Make the next `take_changes` return the content again, because its write failed."""
        self._changed = True

    def save(self, now_ms: int) -> None:
        """Write transactionMetrics now, durably, if it has changed; blocks, for a clean stop.
        Raises OSError."""
        content = self.take_changes(now_ms)
        if content is not None:
            self._files.save(FILE_NAME, content)

    def _ends_of(self, topic: str) -> TopicEnds | None:
        """Return the topic's counts of ends, made if missing; None if there are too many topics."""
        if topic not in self._ended and len(self._ended) >= MAX_TOPICS:
            return None
        return self._ended.setdefault(topic, TopicEnds())

    def _add(self, topic: str, change: int, now_ms: int) -> None:
        """Add `change` to the topic's number of open half messages, not below 0; ignored for a new
        topic beyond MAX_TOPICS."""
        if topic not in self._counts and len(self._counts) >= MAX_TOPICS:
            return
        before = self._counts.get(topic, (0, 0))[0]
        self._counts[topic] = max(before + change, 0), now_ms
        self._changed = True
