"""Revived messages: copies in the retry topic of their group.

Owns the copy of a message that was popped and not acknowledged in time (RocketMQ:
PopReviveService.reviveRetry), and the choice of its topic. It never blocks: results are delivered
later.
"""

from collections.abc import Callable
from typing import Final

from turbopump.broker.pop.lives import Lives
from turbopump.broker.pop.revive import RetryTopicState
from turbopump.broker.tables.groups import GroupTable
from turbopump.broker.tables.offsets import OffsetTable
from turbopump.broker.tables.topics import TopicTable
from turbopump.broker.traffic.put_message import MessageWriter
from turbopump.engine.deferred import Deferred
from turbopump.engine.store import Store
from turbopump.engine.types import NewMessage, PutStatus, QueueOffset
from turbopump.net.wire import properties as names
from turbopump.net.wire.message import reconsume_times_after
from turbopump.net.wire.names import RETRY_PREFIX
from turbopump.net.wire.pop_handles import RetryKind, original_topic
from turbopump.net.wire.pop_records import CheckPoint, CheckPointKey
from turbopump.net.wire.properties import decode_properties, encode_properties
from turbopump.net.wire.topics import PERM_READ, PERM_WRITE, TopicConfig
from turbopump.pyx.record import Record

PROPERTIES_MAX: Final = 32_767
"""Maximum size of a record's properties in bytes: their length is a Java short."""

OWNER: Final = "turbopump.retry.group"
"""Topic attribute of version 1 retry topics whose name is ambiguous: the group that owns the
messages there. RocketMQ keeps attributes that it does not know, and no client can set this one
(tables/topic_attributes.py)."""

_TRANSACTION_BITS: Final = 0xC


class RetryNames:
    """Names of the retry topics that a group has for a topic. Loop thread only.

    The name of version 1 is ambiguous: `%RETRY%a_b_c` is that of group `a` and topic `b_c`, of
    group `a_b` and topic `c`, and of the pulling group `a_b_c`. It belongs to one group; every
    other pair uses the name of version 2, which no two pairs share (RocketMQ mixes their messages).

    The topic's attribute OWNER names the group. The attribute is durable before the first message
    is stored, and replicas copy it. A topic without the attribute was made by RocketMQ, or from the
    log by a broker that had not copied its configuration: it belongs to the first group that has an
    offset in it, else to the group for which its newest message was stored.
    """

    def __init__(
        self,
        store: Store,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        *,
        v2: bool,
        v1_too: bool,
    ) -> None:
        """`v2` and `v1_too` are enableRetryTopicV2 and retrieveMessageFromPopRetryTopicV1."""
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._v2 = v2
        self._v1_too = v1_too

    def existing_kinds(self, topic: str, group: str) -> list[RetryKind]:
        """Return the kinds of the group's retry topics for the topic that exist, the kind that the
        configuration writes first; [] for a topic that is a retry topic itself."""
        if topic.startswith(RETRY_PREFIX):
            return []
        kinds = [RetryKind.RETRY_V2] if self._v2 else [RetryKind.RETRY_V1, RetryKind.RETRY_V2]
        if self._v2 and self._v1_too:
            kinds.append(RetryKind.RETRY_V1)
        return [kind for kind in kinds if self._exists_for(kind, topic, group)]

    def kind_to_write(self, topic: str, group: str) -> RetryKind:
        """Return the kind of retry topic into which the group's messages are revived, whether the
        topic exists or not: version 2 if configured, or if another group uses the name of version
        1."""
        is_v2 = self._v2 or self._is_shared(topic, group)
        return RetryKind.RETRY_V2 if is_v2 else RetryKind.RETRY_V1

    def ensure_topic(self, topic: str, group: str, now_ms: int) -> TopicConfig | None:
        """Return the retry topic into which the group's messages are revived. If missing, the topic
        is created with one queue, or its owner added, and saved soon; None: the table of topics is
        full. `now_ms` is epoch ms."""
        kind = self.kind_to_write(topic, group)
        name = kind.topic_of(topic, group)
        is_ambiguous = kind is RetryKind.RETRY_V1 and name.removeprefix(RETRY_PREFIX).count("_") > 1
        attributes = {OWNER: group} if is_ambiguous else {}
        return self._topics.create_internal(
            name, 1, PERM_READ | PERM_WRITE, now_ms, attributes=attributes
        )

    def belongs_to_group(self, kind: RetryKind, topic: str, group: str) -> bool:
        """Whether the messages in the retry topic of that kind are the group's. Always True for
        version 2; for version 1 see the class."""
        if kind is RetryKind.RETRY_V2:
            return True
        name = kind.topic_of(topic, group)
        owner = self._owner_of_topic(name)
        if owner is not None:
            return owner == group
        return self._has_offset(group, name) or not self._is_shared(topic, group)

    def _exists_for(self, kind: RetryKind, topic: str, group: str) -> bool:
        """Whether the retry topic of that kind exists, and its messages are the group's."""
        name = kind.topic_of(topic, group)
        return self._topics.peek_topic(name) is not None and self.belongs_to_group(
            kind, topic, group
        )

    def _is_shared(self, topic: str, group: str) -> bool:
        """Whether another group uses the name of version 1 that this group would use for the
        topic."""
        name = RetryKind.RETRY_V1.topic_of(topic, group)
        pair = name.removeprefix(RETRY_PREFIX)
        if self._groups.get(pair) is not None:
            return True
        owner = self._owner_of_topic(name)
        if owner is not None:
            return owner != group
        ends = (at for at, letter in enumerate(pair) if letter == "_" and at != len(group))
        if any(self._has_offset(pair[:at], name) for at in ends):
            return True
        return not self._has_offset(group, name) and self._stored_for(name) not in ("", group)

    def _owner_of_topic(self, name: str) -> str | None:
        """The group in the attribute OWNER of the topic `name`; None without it."""
        topic = self._topics.peek_topic(name)
        return None if topic is None else topic.attributes.get(OWNER)

    def _stored_for(self, name: str) -> str:
        """Return the group of the newest message in a retry topic of version 1; "" if there is no
        message, or its group is unknown: older brokers do not write it."""
        end = self._store.max_queue_offset(name, 0)
        units = self._store.units(name, 0, QueueOffset(end - 1), 1) if end > 0 else []
        record = self._store.record_of(units[0]) if units else None
        if record is None:
            return ""
        properties, pair = decode_properties(record.properties), name.removeprefix(RETRY_PREFIX)
        group = properties.get(names.ORIGIN_GROUP, "")
        if group == pair or pair.startswith(f"{group}_"):
            return group
        return pair if names.RETRY_TOPIC in properties else ""  # a pulling group sent it back

    def _has_offset(self, group: str, name: str) -> bool:
        """Whether the group has an offset in queue 0 of the topic `name`."""
        return self._offsets.query(group, name, 0) >= 0


class RetryCopies:
    """Writes copies of messages that were not acknowledged in time into the retry topics of their
    groups. Loop thread only; times are epoch ms."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        lives: Lives,
        writer: MessageWriter,
        pulls: Callable[[str, str], bool],
        store_host: Callable[[], bytes],
        retry_names: RetryNames,
    ) -> None:
        """`pulls` returns whether a group is set to pull a topic, `store_host` the address stamped
        on records."""
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._lives = lives
        self._writer = writer
        self._pulls = pulls
        self._store_host = store_host
        self._names = retry_names

    def prepare_topic(self, check_point: CheckPoint, now_ms: int) -> RetryTopicState:
        """Make the retry topic of a check point's group, if it is missing, and commit offset 0 of
        the group there, if it has no offset. Only after READY may `append_copy` be called; after
        UNSAVED the caller tries again later."""
        key = check_point.key
        if self._lives.has_ended(key):
            return RetryTopicState.GONE  # another message lies at the offset now
        if self._lives.is_ending(key.topic):
            return RetryTopicState.UNSAVED
        if not (self._topics.peek_topic(key.topic) and self._groups.find_used(key.group, now_ms)):
            return RetryTopicState.GONE
        name = self._retry_topic(key.topic, key.group)
        if self._ensure_topic(name, key, now_ms) is None:
            return RetryTopicState.FULL
        if not self._topics.is_saved(name):
            return RetryTopicState.UNSAVED
        if self._offsets.query(key.group, name, 0) < 0:
            self._offsets.commit(key.group, name, 0, QueueOffset(0), now_ms)
        return RetryTopicState.READY

    def append_copy(
        self, record: Record, check_point: CheckPoint, now_ms: int
    ) -> Deferred[PutStatus]:
        """Append a copy of the message to its group's retry topic now; `prepare_topic` must have
        returned READY. Resolves with PUT_OK once the copy is as safe as a send, else with the
        status of the failure."""
        key = check_point.key
        name = self._retry_topic(key.topic, key.group)
        return self._writer.put_unchanged(self._make_copy(record, check_point, name), now_ms)

    def is_former(self, check_point: CheckPoint) -> bool:
        """Whether the check point's topic or group was deleted after the pop, so that nothing is
        revived."""
        return self._lives.has_ended(check_point.key)

    def copy_for_other_master(
        self, record: Record, check_point: CheckPoint
    ) -> tuple[NewMessage, str]:
        """Return (copy, topic): the copy that an acting replica sends to a master of another group,
        and the topic whose route names the masters that the group reads. The retry topic has the
        name of version 1: every broker reads it, whichever it writes, and clients may send to it.
        The receiving master finds its owner by ORIGIN_GROUP (handlers/send.py)."""
        key = check_point.key
        topic = original_topic(key.group, key.topic)
        name = key.topic if topic.startswith(RETRY_PREFIX) else ""
        if not name and self._pulls(topic, key.group):
            name = RETRY_PREFIX + key.group
        name = name or RetryKind.RETRY_V1.topic_of(topic, key.group)
        return self._make_copy(record, check_point, name), topic

    def _ensure_topic(self, name: str, key: CheckPointKey, now_ms: int) -> TopicConfig | None:
        """Return the retry topic `name` of a check point's group, created if missing; None if the
        table of topics is full."""
        topic, names_of = original_topic(key.group, key.topic), self._names
        if name == names_of.kind_to_write(topic, key.group).topic_of(topic, key.group):
            return names_of.ensure_topic(topic, key.group, now_ms)
        return self._topics.create_internal(name, 1, PERM_READ | PERM_WRITE, now_ms)

    def _retry_topic(self, topic: str, group: str) -> str:
        """Return the topic in which the group reads unacknowledged messages. A group that pulls now
        reads only the topic of its pull retries (RocketMQ revives into a topic that is not read
        then)."""
        if topic.startswith(RETRY_PREFIX):
            return topic
        if self._pulls(topic, group):
            return RETRY_PREFIX + group
        return self._names.kind_to_write(topic, group).topic_of(topic, group)

    def _make_copy(self, record: Record, check_point: CheckPoint, name: str) -> NewMessage:
        """Make the copy of a message for the retry topic `name`."""
        properties = decode_properties(record.properties)
        properties.pop(names.CRC32, None)
        properties.setdefault(names.FIRST_POP_TIME, str(check_point.key.pop_time_ms))
        properties[names.ORIGIN_GROUP] = check_point.key.group
        if name == RETRY_PREFIX + check_point.key.group:
            properties.setdefault(names.RETRY_TOPIC, check_point.key.topic)
        encoded = encode_properties(properties)
        if len(encoded) > PROPERTIES_MAX:
            encoded = record.properties  # without the additions: the properties of the original fit
        host = self._store_host()
        return NewMessage(
            topic=name,
            queue_id=0,
            body=record.body,
            properties=encoded,
            flag=record.flag,
            sys_flag=record.sys_flag & ~_TRANSACTION_BITS,
            born_timestamp_ms=record.born_timestamp_ms,
            born_host=host,
            store_host=host,
            reconsume_times=reconsume_times_after(
                record.reconsume_times, int(not check_point.is_suspended)
            ),
        )
