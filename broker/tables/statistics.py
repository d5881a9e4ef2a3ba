"""Counts of messages per topic and group: sums over minutes, hours, days.

Owns the meters for VIEW_BROKER_STATS_DATA and the rates that topic and group statistics show
(RocketMQ: BrokerStatsManager, StatsItem). It must never read a clock (`now_ms` is epoch ms) or cost
the hot path more than an addition. Pulls and the store's own counts of puts feed it; housekeeping
samples it every 10 s.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

SAMPLE_INTERVAL_MS: Final = 10_000
"""Interval of the samples, in ms, as in RocketMQ's StatsItemSet."""

HOUR_STEP_MS: Final = 600_000
"""Minimum time in ms between samples of the hour's window."""
DAY_STEP_MS: Final = 3_600_000
"""Minimum time in ms between samples of the day's window."""
MINUTE_SAMPLES: Final = 7
"""Maximum samples of the minute's window, SAMPLE_INTERVAL_MS apart."""
HOUR_SAMPLES: Final = 7
"""Maximum samples of the hour's window, HOUR_STEP_MS apart."""
DAY_SAMPLES: Final = 25
"""Maximum samples of the day's window, DAY_STEP_MS apart."""

MAX_METERS: Final = 20_000
"""Maximum meters of a broker: some 100 MB with every sample taken. Counts of further statistics
names and keys are ignored, which only costs figures on an operator's screen."""

IDLE_LIMIT_MS: Final = 25 * 3_600_000
"""Time in ms after which a group's meter without counts is forgotten: longer than the longest
window."""

TOPIC_PUT_NUMS: Final = "TOPIC_PUT_NUMS"
"""Statistics name: messages put, by topic. This and the next are RocketMQ's names."""
TOPIC_PUT_SIZE: Final = "TOPIC_PUT_SIZE"
"""Statistics name: bytes of the records put, by topic."""
SNDBCK_PUT_NUMS: Final = "SNDBCK_PUT_NUMS"
"""Statistics name: messages sent back for redelivery, by `topic@group`."""
GROUP_GET_NUMS: Final = "GROUP_GET_NUMS"
"""Statistics name: messages delivered by pulls and pops, by `topic@group`."""
GROUP_GET_SIZE: Final = "GROUP_GET_SIZE"
"""Statistics name: bytes of the messages delivered, by `topic@group`."""
GROUP_POP_NUMS: Final = "GROUP_POP_NUMS"
"""Statistics name, Turbopump's own: messages delivered by pops, by `topic@group`."""
GROUP_ACK_NUMS: Final = "GROUP_ACK_NUMS"
"""Statistics name: popped messages that were acknowledged, by `topic@group`."""
BROKER_PUT_NUMS: Final = "BROKER_PUT_NUMS"
"""Statistics name: messages put, in all; its only key is ALL."""
BROKER_GET_NUMS: Final = "BROKER_GET_NUMS"
"""Statistics name: messages delivered, in all; its only key is ALL."""

ALL: Final = ""
"""Key of the meters BROKER_PUT_NUMS and BROKER_GET_NUMS (RocketMQ: the cluster's name)."""

_OF_GROUPS = frozenset(
    {GROUP_GET_NUMS, GROUP_GET_SIZE, GROUP_POP_NUMS, GROUP_ACK_NUMS, SNDBCK_PUT_NUMS}
)


@dataclass(frozen=True, slots=True)
class Window:
    """Sums of a meter over a window of time: the `sum` of the values (messages or bytes), `tps`,
    that sum per second, and `average`, that sum per event (put, pull, pop)."""

    sum: int = 0
    tps: float = 0.0
    average: float = 0.0

    def to_json(self) -> dict[str, float | int]:
        """Convert to RocketMQ's BrokerStatsItem: avgpt, sum, tps."""
        return {"avgpt": self.average, "sum": self.sum, "tps": self.tps}


@dataclass(slots=True)
class _Sample:
    """The value and the number of events of a meter at a time in epoch ms."""

    at_ms: int
    value: int
    times: int


@dataclass(slots=True)
class Meter:
    """A counter of messages or bytes with its history: a growing `value`, the number of its events
    (`times`), and its samples over three windows (`minute`, `hour`, `day`), the oldest first.
    `moved_ms`: epoch ms of the last sample that found a changed value."""

    value: int = 0
    times: int = 0
    moved_ms: int = 0
    minute: deque[_Sample] = field(default_factory=lambda: deque(maxlen=MINUTE_SAMPLES))
    hour: deque[_Sample] = field(default_factory=lambda: deque(maxlen=HOUR_SAMPLES))
    day: deque[_Sample] = field(default_factory=lambda: deque(maxlen=DAY_SAMPLES))

    def add_events(self, value: int, times: int = 1) -> None:
        """Add `value` as the sum of `times` events."""
        self.value += value
        self.times += times

    def sample(self, now_ms: int) -> None:
        """Record the current value in each window whose step has passed; `now_ms` is epoch ms."""
        now = _Sample(now_ms, self.value, self.times)
        if not self.minute or self.minute[-1].value != now.value:
            self.moved_ms = now_ms
        for window, step_ms in (
            (self.minute, 0),
            (self.hour, HOUR_STEP_MS),
            (self.day, DAY_STEP_MS),
        ):
            if not window:
                # A new meter was at zero one step ago (RocketMQ: StatsItem), so that its first
                # sample already counts the events that created it.
                window.append(_Sample(now_ms - (step_ms or SAMPLE_INTERVAL_MS), 0, 0))
            if now_ms - window[-1].at_ms >= step_ms:
                window.append(now)

    def windows(self) -> tuple[Window, Window, Window]:
        """Return (last minute, last hour, last day), each up to the newest sample; counts since
        that sample are not included. An hour and a day do not end with their own last step: a meter
        whose first sample fell in the middle of a burst would show a part of it until the next
        hour."""
        newest = self.minute
        return _window(self.minute, newest), _window(self.hour, newest), _window(self.day, newest)


class BrokerStatistics:
    """The meters of a broker, by statistics name and key. Beyond MAX_METERS, counts of new keys are
    ignored. Loop thread only."""

    def __init__(self, collect: Callable[["BrokerStatistics"], None]) -> None:
        """`collect` adds to this table the counts that the native path has collected since its last
        call."""
        self._collect = collect
        self._meters: dict[tuple[str, str], Meter] = {}
        self._put = self._meters[BROKER_PUT_NUMS, ALL] = Meter()
        self._got = self._meters[BROKER_GET_NUMS, ALL] = Meter()
        self._day = 0
        self._mornings = [(0, 0), (0, 0)]

    def set_put_totals(
        self, counts: Mapping[str, int], sizes: Mapping[str, int] | None = None
    ) -> None:
        """Set, not add, the total of messages put to each topic since the store was opened
        (`counts`), and of the bytes of their records (`sizes`, of topics in `counts`)."""
        for topic, size in (sizes or {}).items():
            meter = self._meter(TOPIC_PUT_SIZE, topic)
            if meter is not None:
                meter.value, meter.times = size, counts[topic]
        for topic, count in counts.items():
            meter = self._meter(TOPIC_PUT_NUMS, topic)
            if meter is not None and count != meter.value:
                # A lower count is from a topic that was deleted and created again.
                grown = count - meter.value if count > meter.value else count
                meter.value = meter.times = count
                self._put.value += grown
                self._put.times += grown

    def count_delivered(
        self, group: str, topic: str, messages: int, size: int, pulls: int = 1
    ) -> None:
        """Add `messages` of a topic, with `size` bytes together, that `pulls` pulls delivered to a
        group."""
        self._got.add_events(messages, pulls)
        key = f"{topic}@{group}"
        self._add(GROUP_GET_NUMS, key, messages, pulls)
        self._add(GROUP_GET_SIZE, key, size, pulls)

    def count_popped(self, group: str, topic: str, messages: int, size: int, pops: int = 1) -> None:
        """Add `messages` of a topic, with `size` bytes together, that `pops` pops delivered to a
        group, to the meters of pops and of all deliveries. Each queue of a request counts as a
        pop."""
        self.count_delivered(group, topic, messages, size, pops)
        self._add(GROUP_POP_NUMS, f"{topic}@{group}", messages, pops)

    def count_acked(self, group: str, topic: str, messages: int, times: int = 1) -> None:
        """Add `messages` of a topic, popped by a group, that `times` requests acknowledged."""
        self._add(GROUP_ACK_NUMS, f"{topic}@{group}", messages, times)

    def count_sent_back(self, group: str, topic: str) -> None:
        """Add a message of a topic that a group sent back for redelivery."""
        self._add(SNDBCK_PUT_NUMS, f"{topic}@{group}", 1, 1)

    def forget_topic(self, topic: str) -> None:
        """Drop all meters of a deleted topic, its groups' included."""
        self._collect(self)
        self._drop([one for one in self._meters if one[1].partition("@")[0] == topic])

    def forget_group(self, group: str) -> None:
        """Drop all meters of a deleted group."""
        self._collect(self)
        self._drop([one for one in self._meters if one[1].partition("@")[2] == group])

    def sample(self, now_ms: int) -> None:
        """Sample every meter at `now_ms` (epoch ms) and drop groups' meters that are idle for
        IDLE_LIMIT_MS; called every SAMPLE_INTERVAL_MS."""
        self._collect(self)
        for meter in self._meters.values():
            meter.sample(now_ms)
        self._drop(
            [
                one
                for one, meter in self._meters.items()
                if one[0] in _OF_GROUPS and now_ms - meter.moved_ms > IDLE_LIMIT_MS
            ]
        )
        day = datetime.fromtimestamp(now_ms / 1000).toordinal()
        if self._day and day != self._day:
            self._mornings = [self._mornings[1], (self._put.value, self._got.value)]
        self._day = day

    def find_windows(self, name: str, key: str) -> tuple[Window, Window, Window] | None:
        """(last minute, last hour, last day) of the meter of a statistics name and key (a topic,
        `topic@group` or ALL), as of the last sample; None if the key has no counts."""
        self._collect(self)
        meter = self._meters.get((name, key))
        return meter.windows() if meter else None

    def sums_by_key(self, name: str) -> dict[str, int]:
        """Key to the sum of all values of a statistics name since the start; a copy."""
        self._collect(self)
        return {key: meter.value for (metric, key), meter in self._meters.items() if metric == name}

    def put_tps(self, topic: str) -> float:
        """Messages per second put to the topic, over the last minute, as of the last sample; 0.0 if
        unknown."""
        return self._tps(TOPIC_PUT_NUMS, topic)

    def delivered_tps(self, group: str, topic: str) -> float:
        """Messages per second delivered to the group from the topic, over the last minute, as of
        the last sample; 0.0 if unknown."""
        return self._tps(GROUP_GET_NUMS, f"{topic}@{group}")

    def pop_rates(self) -> dict[str, tuple[float, float]]:
        """Group to (popped, acknowledged) messages per second over the last minute, summed over
        topics, for each group that has popped; as of the last sample."""
        rates: dict[str, tuple[float, float]] = {}
        for (name, key), meter in self._meters.items():
            if name in (GROUP_POP_NUMS, GROUP_ACK_NUMS):
                group, tps = key.partition("@")[2], meter.windows()[0].tps
                popped, acked = rates.get(group, (0.0, 0.0))
                is_pop = name == GROUP_POP_NUMS
                rates[group] = (popped + tps, acked) if is_pop else (popped, acked + tps)
        return rates

    def message_totals(self) -> dict[str, int]:
        """Numbers of messages put and delivered in all since the start: until yesterday morning,
        this morning and now, by RocketMQ's names.

        A morning is the first sample after local midnight (BrokerStats).
        """
        self._collect(self)
        (put_before, got_before), (put_morning, got_morning) = self._mornings
        return {
            "msgPutTotalYesterdayMorning": put_before,
            "msgPutTotalTodayMorning": put_morning,
            "msgPutTotalTodayNow": self._put.value,
            "msgGetTotalYesterdayMorning": got_before,
            "msgGetTotalTodayMorning": got_morning,
            "msgGetTotalTodayNow": self._got.value,
        }

    def _tps(self, name: str, key: str) -> float:
        """Return the sum per second over the last minute of a meter; 0.0 if unknown."""
        self._collect(self)
        meter = self._meters.get((name, key))
        return meter.windows()[0].tps if meter else 0.0

    def _add(self, name: str, key: str, value: int, times: int) -> None:
        """Add to a meter, created if missing."""
        meter = self._meter(name, key)
        if meter is not None:
            meter.add_events(value, times)

    def _meter(self, name: str, key: str) -> Meter | None:
        """Return the meter, created if missing; None when there are too many."""
        meter = self._meters.get((name, key))
        if meter is None and len(self._meters) < MAX_METERS:
            meter = self._meters[name, key] = Meter()
        return meter

    def _drop(self, chosen: list[tuple[str, str]]) -> None:
        """Remove the meters with these keys."""
        for one in chosen:
            del self._meters[one]


def _window(samples: deque[_Sample], newest: deque[_Sample]) -> Window:
    """Compute the window from the first of the samples to the newest sample of all."""
    if not samples:
        return Window()
    first, last = samples[0], newest[-1]
    total, times = last.value - first.value, last.times - first.times
    passed_ms = last.at_ms - first.at_ms
    tps = total * 1000 / passed_ms if passed_ms > 0 else 0.0
    return Window(total, tps, total / times if times else 0.0)
