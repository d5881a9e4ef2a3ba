"""Lag of each consumer group in each topic, in messages and in time.

Owns the definition of lag (RocketMQ: ConsumerLagCalculator) and the walk over all groups. It must
never read the log or a queue's file: ends, offsets and store times are all in memory.

RocketMQ reports only groups with a member; this reports every group that ever committed an offset,
because the lag of an absent group matters most. Messages pulled by a group without members are not
in flight: they are delivered again. Popped messages are in flight until their invisible time ends:
the offset of a group that pops is already past them, except in queues that are popped in order.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from heapq import nlargest
from typing import Final, NamedTuple

from turbopump.broker.tables.consumers import ConsumerTable
from turbopump.broker.tables.groups import GroupTable
from turbopump.broker.tables.offset_lines import Pair
from turbopump.broker.tables.offsets import OffsetTable
from turbopump.broker.tables.topics import TopicTable
from turbopump.engine.store import Store
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.names import RETRY_PREFIX

STEP: Final = 500
"""Queues that one step of a walk processes on the loop, each in some 4 us."""

INLINE: Final = 2 * STEP
"""Maximum queues of all (topic, group) pairs at which `ConsumerLags.current_lags` walks them at
once."""

Since = tuple[int, bool]
"""Pair (store time in epoch ms, whether it is exact), with the special values of
`waiting_since`."""
NOTHING: Final[Since] = (0, True)
"""The Since of an empty set of messages."""


class UnackedPops(NamedTuple):
    """Popped and unacknowledged messages of a group in a topic: their number `messages`, the number
    `ordered` of those messages that are at or after the group's committed offset, and `oldest`,
    pairs (queue id, queue offset): the oldest message is at or after one of these places."""

    messages: int
    ordered: int
    oldest: list[tuple[int, QueueOffset]]


@dataclass(frozen=True, slots=True)
class Lag:
    """Lag of a group in a topic, summed over its queues.

    `members` is the number of the group's connections. `messages` is the number of unacknowledged
    messages: `inflight` of them were delivered to members, `ready` are not delivered yet. `since`
    is the store time of the oldest unacknowledged message, `ready_since` of the oldest ready
    message.
    """

    group: str
    topic: str
    members: int
    messages: int
    inflight: int
    ready: int
    since: Since
    ready_since: Since


def waited_ms(since: Since, now_ms: int) -> int:
    """Return the time in ms from `since` (see `waiting_since`) to `now_ms` (epoch ms): 0 without a
    message, -1 if the store time is unknown. If `since` is not exact, the message has waited at
    least this time."""
    stored_ms, _ = since
    return max(now_ms - stored_ms, 0) if stored_ms > 0 else stored_ms


def waiting_since(store: Store, topic: str, queue_id: int, queue_offset: int) -> Since:
    """Return (store time in epoch ms of the queue's first message at or after `queue_offset`,
    whether it is exact). (0, True): no such message. (t, False): the message was stored at t or
    earlier. (-1, False): the time is unknown."""
    if queue_offset >= store.max_queue_offset(topic, queue_id):
        return NOTHING
    first = max(queue_offset, store.min_queue_offset(topic, queue_id))
    return store.stored_ms(topic, queue_id, first)


class ConsumerLags:
    """Computes the lags of all groups, at once or in steps on the loop, and stores the last
    result."""

    def __init__(
        self,
        store: Store,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        consumers: ConsumerTable,
        unacked_pops: Callable[[str, str], UnackedPops],
    ) -> None:
        """`unacked_pops(topic, group)` returns the group's popped messages."""
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._unacked_pops = unacked_pops
        self._last: list[Lag] = []
        self._walk: Iterator[None] | None = None

    def current_lags(self) -> list[Lag]:
        """Return a Lag for each topic and group with a committed offset, unordered; the caller must
        not change the list.

        Up to INLINE queues it is computed now. Otherwise it is the result of the last complete walk
        (empty before the first), and this call starts a new walk, which `tick` continues.

        A pair is left out if its topic or group does not exist, or if the group is online and does
        not subscribe to the topic.
        """
        if self._is_small():
            for _ in self.compute_steps():
                pass
        elif self._walk is None:
            self._walk = self.compute_steps()
        return self._last

    def _is_small(self) -> bool:
        """Whether the lags of all groups have at most INLINE queues together."""
        pairs = self._offsets.all_offsets().committed
        if len(pairs) > INLINE:
            return False
        return sum(self._queues_of(topic) for topic, _ in pairs) <= INLINE

    def _queues_of(self, topic: str) -> int:
        """The number of the topic's queues; 0 for an unknown topic."""
        config = self._topics.get(topic)
        return max(config.read_queue_nums, config.write_queue_nums) if config is not None else 0

    def largest_lags(self, count: int) -> list[Lag]:
        """Return the `count` lags with the most unacknowledged messages, the greatest first,
        without lags of 0; from `current_lags`, so they may be of an earlier walk."""
        behind = [lag for lag in self.current_lags() if lag.messages > 0]
        return nlargest(count, behind, key=lambda lag: (lag.messages, lag.group, lag.topic))

    def tick(self) -> None:
        """Run one step of a walk that `current_lags` started, if any; called every 100 ms."""
        if self._walk is not None and next(self._walk, self) is self:
            self._walk = None

    def compute_steps(self) -> Iterator[None]:
        """Compute all lags; yields after some STEP queues, so that the loop can do other work. Only
        the end of the iterator changes the result of `current_lags`."""
        self._offsets.collect()
        found: list[Lag] = []
        seen = 0
        for pair in list(self._offsets.all_offsets().committed):
            lag = yield from self._lag_of(pair)
            if lag is not None:
                found.append(lag)
            # `_lag_of` has already paused for full steps of queues; only the remainder counts here.
            seen += 1 + self._queues_of(pair[0]) % STEP
            if seen >= STEP:
                seen = 0
                yield
        self._last = found

    def _lag_of(self, pair: Pair) -> Generator[None, None, Lag | None]:
        """Compute the lag of a pair (topic, group), in steps; None if topic or group no longer
        exists, or if an online group does not subscribe to it."""
        topic, name = pair
        queues = self._queues_of(topic)
        offsets = self._offsets.all_offsets()
        committed = offsets.committed.get(pair)
        if not queues or committed is None or self._groups.get(name) is None:
            return None
        group = self._consumers.group(name)
        members = len(group.members) if group is not None else 0
        if members and not self._subscribes(name, topic):
            return None
        pulled = offsets.pulled.get(pair, {}) if members else {}
        messages = inflight = ready = 0
        since = ready_since = NOTHING
        for queue_id in range(queues):
            if (queue_id + 1) % STEP == 0:
                yield
            end = self._store.max_queue_offset(topic, queue_id)
            done = committed.get(queue_id)
            if done is None:  # nothing was consumed, so all that is left counts
                done = self._store.min_queue_offset(topic, queue_id)
            if done >= end:
                continue
            taken = min(max(pulled.get(queue_id, done), done), end)
            messages += end - done
            inflight += taken - done
            ready += end - taken
            oldest = waiting_since(self._store, topic, queue_id, done)
            since = _older_of(since, oldest)
            if taken != done:
                oldest = waiting_since(self._store, topic, queue_id, QueueOffset(taken))
            ready_since = _older_of(ready_since, oldest)
        popped = self._unacked_pops(topic, name)
        for queue_id, first in popped.oldest:
            since = _older_of(since, waiting_since(self._store, topic, queue_id, first))
        messages += popped.messages - popped.ordered
        inflight += popped.messages
        ready = max(0, ready - popped.ordered)
        return Lag(name, topic, members, messages, inflight, ready, since, ready_since)

    def _subscribes(self, group: str, topic: str) -> bool:
        """Whether the group counts as a consumer of the topic: it is offline, subscribes to it, or
        it is a retry topic."""
        if topic.startswith(RETRY_PREFIX) or self._consumers.subscription_count(group) == 0:
            return True
        return self._consumers.find_subscription(group, topic) is not None


def _older_of(one: Since, other: Since) -> Since:
    """Return the older of two times since when messages wait. An inexact time may be older than any
    other."""
    known = one[1] and other[1]
    times = [at_ms for at_ms, _ in (one, other) if at_ms > 0]
    if times:
        return min(times), known
    return NOTHING if known else (-1, False)
