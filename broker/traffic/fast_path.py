"""Selection of plain sends, pulls, pops and acknowledgements, which native code serves instead of
the handlers.

Owns the policy for the tables of Lane, Pulls, Pops and Acks, and keeps them up to date. It must
never serve a request or know a connection. After handlers/send.py, pull.py and pop have served a
request, they register it here: its checks are not repeated until something they depend on changes.
assembly.py (topics, groups, consumers, resets), node.py (configuration) and the role report such
changes.
"""

from collections.abc import Iterable
from typing import Final

from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.tables.half_counts import HalfCounts
from turbopump.broker.tables.long_polling import MAX_SUSPEND_MS
from turbopump.broker.tables.offsets import OffsetTable
from turbopump.broker.tables.statistics import BrokerStatistics
from turbopump.broker.tables.topic_attributes import CLEANUP_POLICY, COMPACTION
from turbopump.broker.tables.topics import TopicTable
from turbopump.broker.traffic.replies import failure_reply
from turbopump.broker.traffic.role import (
    Role,
)
from turbopump.engine.queues.lookup import Wanted
from turbopump.engine.types import PutStatus, QueueOffset
from turbopump.net.wire import properties as names
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.headers.pull import SUBSCRIPTION_FLAG, PullMessageRequest
from turbopump.net.wire.names import MAX_TOPIC_LENGTH, RETRY_PREFIX, REVIVE_PREFIX
from turbopump.net.wire.properties import encode_properties
from turbopump.net.wire.route import MASTER_ID
from turbopump.net.wire.topics import MULTI_TAG, TopicConfig
from turbopump.pyx.filter import Filter
from turbopump.pyx.held import HeldRows
from turbopump.pyx.lane import Lane
from turbopump.pyx.pops import Pops
from turbopump.pyx.pulls import Pulls

CARRIED_MS: Final = 60_000
"""Time in ms for which native code serves pops, and pulls with a subscription of their own, before
a handler notes that subscription again; the table of such subscriptions forgets after 10 minutes.
"""

MAX_WAITING: Final = 10_000
"""Maximum number of sends that wait for the disk or for replicas (RocketMQ:
sendThreadPoolQueueCapacity); a further send is refused and has to be repeated. Their bodies are in
the log already: each waiting answer takes some 500 bytes."""

_FOREVER_MS: Final = 1 << 62
_NO_CONGESTION: Final = (1 << 31) - 1
"""Value of timerCongestNumEachSlot with which no slot can have too many timers."""


class FastPath:
    """Decides which plain sends, pulls, pops and acknowledgements native code serves instead of the
    handlers. Loop thread only. Every `allow_...` lets native code serve later requests like the
    present one, if they are plain; every `invalidate_...` sends the next such request to the
    handlers again."""

    def __init__(
        self,
        lane: Lane,
        pulls: Pulls,
        popped: Pulls,
        held_rows: HeldRows,
        config: BrokerConfig,
        topics: TopicTable,
        role: Role,
        offsets: OffsetTable,
    ) -> None:
        self.lane = lane
        """Native sends."""
        self.pulls = pulls
        """Native pulls."""
        self.held_rows = held_rows
        """Native pulls that wait."""
        self.acks = lane.acks
        """Native acknowledgements of popped messages."""
        self.pops = Pops(popped, lane.acks)
        """Native pops."""
        self._config = config
        self._topics = topics
        self._role = role
        self._offsets = offsets
        self._store_host = b""
        self._has_pulls = self._has_pops = False
        role.on_change.append(self._on_role_changed)

    def start(self, store_host: bytes) -> None:
        """Begin native service, once the port is known; records carry `store_host` (packed address
        and port)."""
        self._store_host = store_host
        self.reconfigure()
        self.lane.pending.limit = MAX_WAITING
        self._on_role_changed()
        # A record with a CRC of its own is encoded by the store.
        self.lane.open = not self._config.store.enabled_append_prop_crc

    def stop(self) -> None:
        """Leave every later request to the handlers."""
        self.lane.open = False

    def reconfigure(self) -> None:
        """Apply the configuration object's present values: the next request of each kind is checked
        by the handlers again."""
        config = self._config
        trace_on = "true" if config.trace_on else "false"
        own = {
            names.MSG_REGION: config.region_id,
            names.TRACE_ON: trace_on,
            names.CLUSTER: config.broker_cluster_name,
        }
        self._invalidate_all()
        short_ms = None if config.long_polling_enable else config.short_polling_time_ms
        self.held_rows.configure(MAX_SUSPEND_MS, short_ms)
        code, remark = failure_reply(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)
        self.lane.pending.configure(config.region_id.encode(), config.trace_on, _refusals())
        self.lane.configure(
            encode_properties(own),
            config.region_id.encode(),
            config.trace_on,
            self._store_host,
            config.start_accept_send_request_timestamp_ms,
            code,
            remark.encode(),
        )
        self.lane.configure_kept(
            timers=config.timer_wheel_enable
            and config.timer_congest_num_each_slot >= _NO_CONGESTION,
            halves=not config.reject_transaction_message,
            max_delay_ms=config.timer_max_delay_sec * 1_000,
            precision_ms=config.store.timer_precision_ms,
            broker_name=config.broker_name.encode(),
        )

    def allow_send(self, topic: TopicConfig) -> None:
        """Let native code serve sends to the topic, after a handler found a send legal. No effect
        if the topic is not plain or not saved."""
        name = topic.topic_name
        if self._is_plain(topic) and self._topics.is_saved(name):
            self.lane.serve(name.encode(), max(topic.write_queue_nums, topic.read_queue_nums))

    def _on_role_changed(self) -> None:
        """Discard all permissions after a change of role: other requests are plain for a master
        than for a replica."""
        self.collect_popped()
        self._invalidate_all()

    def _invalidate_all(self) -> None:
        """Make handlers check the next request of each kind and topic."""
        self.lane.forget_all()
        self.pulls.forget_all()
        self.acks.forget_all()
        self.pops.forget_all()

    def invalidate_topics(self, changed: Iterable[str]) -> None:
        """Make handlers check the next sends and acknowledgements of the topics in `changed`, and
        the next pulls and pops of all topics."""
        for name in changed:
            self.lane.forget(name.encode())
            self.acks.forget(name.encode())
        self.invalidate_readers()

    def allow_pull(
        self,
        header: PullMessageRequest,
        wanted: Wanted,
        sub_version: int,
        flags: tuple[int, int],
        readers: tuple[int, int],
        now_ms: int,
    ) -> None:
        """Let native code serve the group's pulls of the topic, after a handler served one. No
        effect on a replica, or while an offset reset is pending.

        `flags` are (topic, group) system flags, `sub_version` is of the subscription it was served
        by, `readers` are (near, far): the ids of the brokers that the group reads from near the end
        of the log and far from it; `now_ms` is epoch ms.
        """
        if not self._role.is_master:
            return
        topic = self._topics.get(header.topic)
        pending = self._offsets.has_resets(header.consumer_group, header.topic)
        if topic is None or pending or self._topics.is_batch(header.topic):
            return
        carries = bool(header.sys_flag & SUBSCRIPTION_FLAG)
        expression_type = header.expression_type
        self.pulls.serve(
            header.consumer_group.encode(),
            header.topic.encode(),
            topic.read_queue_nums,
            readers=readers if self._config.slave_read_enable else (MASTER_ID, MASTER_ID),
            topic_sys_flag=flags[0],
            group_sys_flag=flags[1],
            sub_version=sub_version,
            subscription=(header.subscription or "").encode() if carries else None,
            expression_type=None if expression_type is None else expression_type.encode(),
            codes=None if isinstance(wanted, Filter) else wanted,
            filter=wanted if isinstance(wanted, Filter) else None,
            until_ms=now_ms + CARRIED_MS if carries else _FOREVER_MS,
        )

    def allow_ack(self, group: str, topic: str, ended_ms: int) -> None:
        """Let native code serve acknowledgements of the group in the topic, after a handler found
        one legal: for pops after `ended_ms` (epoch ms, Lives.ended_ms). No effect on a replica, or
        if the topic is not saved."""
        found = self._topics.get(topic)
        if self._role.is_master and self._role.is_known and self._topics.is_saved(topic):
            assert found is not None, "the handler has found the hold"
            self.acks.serve(group.encode(), topic.encode(), found.read_queue_nums, ended_ms)

    def allow_pop(
        self,
        group: str,
        topic_name: str,
        wanted: Wanted,
        expression: str | None,
        expression_type: str | None,
        retries: list[str],
        now_ms: int,
        ended_ms: int,
    ) -> None:
        """Let native code serve the group's pops of the topic with this expression, after a handler
        found messages, as long as the existing topics of `retries` are empty. The permission ends
        CARRIED_MS after `now_ms` (epoch ms); `ended_ms` is from Lives.ended_ms."""
        topic = self._topics.get(topic_name)
        found = {name: self._topics.get(name) for name in retries}
        is_plain = (
            self._role.is_master
            and self._role.is_known
            and self._topics.is_saved(topic_name)
            and not topic_name.startswith(RETRY_PREFIX)
            and not any(self._topics.is_batch(name) for name in (topic_name, *retries))
        )
        if topic is None or not is_plain:
            return
        self.collect_popped()
        self.pops.serve(
            group.encode(),
            topic_name.encode(),
            topic.read_queue_nums,
            tuple((name.encode(), one.read_queue_nums) for name, one in found.items() if one),
            expression=None if expression is None else expression.encode(),
            expression_type=None if expression_type is None else expression_type.encode(),
            codes=None if isinstance(wanted, Filter) else wanted,
            filter=wanted if isinstance(wanted, Filter) else None,
            until_ms=now_ms + CARRIED_MS,
            ended_ms=ended_ms,
        )

    def watch_pulls(self, watched: bool) -> None:
        """Set whether any pull is held: arrivals are reported while a pull is held or a pop
        waits."""
        self._has_pulls = watched
        self.lane.watched = watched or self._has_pops

    def watch_pops(self, watched: bool) -> None:
        """Set whether any pop waits; see `watch_pulls`."""
        self._has_pops = watched
        self.lane.watched = watched or self._has_pulls

    def discard_native_pull(self, group: str, topic: str, queue_id: int) -> None:
        """Discard the end of an earlier native pull of the queue, because a handler served a later
        pull."""
        self.pulls.drop_pulled(group.encode(), topic.encode(), queue_id)

    def invalidate_group(self, group: str) -> None:
        """Make handlers check the next pulls and pops of a group whose members or subscriptions
        have changed."""
        self.pulls.forget(group.encode())
        self.pops.forget(group.encode())

    def invalidate_groups(self, changed: Iterable[str]) -> None:
        """Call `invalidate_group` for groups whose configuration or read bans have changed."""
        for name in changed:
            self.invalidate_group(name)

    def invalidate_readers(self) -> None:
        """Make handlers check the next pulls and pops of all groups, after a change that any of
        them may depend on."""
        self.pulls.forget_all()
        self.pops.forget_all()

    def on_topics_created(self, names: Iterable[str]) -> None:
        """Make handlers check the next pops of all groups if one of the created topics `names` is a
        retry topic, because pops read their group's retry topics."""
        if any(name.startswith(RETRY_PREFIX) for name in names):
            self.pops.forget_all()

    def collect_popped(self) -> None:
        """Commit the next offsets of groups that popped natively; call it before reading their
        offsets."""
        if self.pops.is_known:
            for group, topic, queue_id, offset, times, now_ms in self.pops.take_popped():
                self._offsets.commit_popped(
                    group.decode(), topic.decode(), queue_id, QueueOffset(offset), now_ms, times
                )

    def collect_offsets(self) -> None:
        """Commit the ends of native pulls, and the next offsets of native pops, in the offset
        table."""
        self.collect_popped()
        for group, topic, queue_id, offset in self.pulls.take_pulled():
            self._offsets.commit_pull(group.decode(), topic.decode(), queue_id, QueueOffset(offset))

    def collect_delivered(self, statistics: BrokerStatistics) -> None:
        """Add messages of native pulls and pops, and native acknowledgements, since the last call
        to the statistics."""
        self.acks.tell()
        for group, topic, pops, messages, size in self.pops.readers.take_got():
            statistics.count_popped(group.decode(), topic.decode(), messages, size, pops)
        for group, topic, pulls, messages, size in self.pulls.take_got():
            statistics.count_delivered(group.decode(), topic.decode(), messages, size, pulls)

    def collect_halves(self, counts: HalfCounts) -> None:
        """Add half messages and ends of transactions that were served natively since the last call
        to `counts`."""
        for topic, *figures in self.lane.take_halves():
            counts.add_native_counts(topic.decode(), *figures)

    def _is_plain(self, topic: TopicConfig) -> bool:
        """Whether native code may serve sends to the topic: an ordinary topic, and brokerPermission
        allows writing."""
        name = topic.topic_name
        return (
            self._config.is_writable
            and len(name) <= MAX_TOPIC_LENGTH
            and not name.startswith((RETRY_PREFIX, REVIVE_PREFIX))
            and topic.topic_filter_type != MULTI_TAG
            and topic.attributes.get(CLEANUP_POLICY) != COMPACTION
            and not self._topics.is_batch(name)
        )


def _refusals() -> dict[PutStatus, tuple[int, bytes | None]]:
    """Return, by status, code and remark of the answer for a send that waited in vain; the answer
    for a stored message contains its position."""
    code, remark = failure_reply(PutStatus.SERVICE_NOT_AVAILABLE)
    return {
        PutStatus.FLUSH_DISK_TIMEOUT: (ResponseCode.FLUSH_DISK_TIMEOUT, None),
        PutStatus.FLUSH_SLAVE_TIMEOUT: (ResponseCode.FLUSH_SLAVE_TIMEOUT, None),
        PutStatus.SERVICE_NOT_AVAILABLE: (code, remark.encode()),
    }
