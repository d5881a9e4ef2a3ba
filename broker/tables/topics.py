"""The topics of this broker: topics.json, the topics created at start, automatic creation.

Owns the topic table and its DataVersion; every change goes to the saver, which holds the answer to
the request until the change is on disk. It must never talk to a name server: it passes the changed
topics to `on_change`. `now_ms` is epoch ms, and becomes the time of the table's next version.

Tests: tests/unit/broker/tables/test_tables.py
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from turbopump.broker.config.config import MAX_QUEUES_OF_TOPIC, BrokerConfig
from turbopump.broker.tables.data_versions import (
    ONLY_HERE,
    VersionRules,
    read_only_here,
    write_only_here,
)
from turbopump.broker.tables.table_saver import TableSaver
from turbopump.engine import fastjson, json_steps
from turbopump.engine.disk import config_changes
from turbopump.engine.disk.json_table import Content, JsonTable
from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.engine.types import LIGHT_PREFIX
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.java_properties import ConfigError
from turbopump.net.wire.names import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_TOPIC,
    REVIVE_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYNC_MEMBER_PREFIX,
    SYSTEM_TOPICS,
    is_system_topic,
)
from turbopump.net.wire.topics import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    DataVersion,
    TopicConfig,
    TopicConfigs,
)

logger = logging.getLogger(__name__)

FILE_NAME = "topics.json"
"""Name of the table's file in the config folder."""
TABLE = "topicConfigTable"
"""Member of the file, and of the body of 21: topic name to configuration."""
MAX_APPENDED = 1_000
"""Maximum topics of a change that is appended beside the file; for more, the whole file is
written."""
_PERM_RW = PERM_READ | PERM_WRITE

MAX_TOPICS = 80_000
"""Maximum topics, for automatic creation and the handlers; `put` does not check it. With the
longest names topics.json stays below the 64 MiB that are read at the next start."""

NOT_ALLOWED_SEND_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        GIVEN_UP_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        TIMER_TOPIC,
    }
)
"""Names of the topics to which clients must not send (RocketMQ:
TopicValidator.isNotAllowedSendTopic). RocketMQ lets clients send to TIMER_TOPIC, and through it to
any topic without that topic's checks."""

DELETED_TOPICS = "deletedTopics"
"""Field of a request 21, and the member it adds to this broker's answer: topic to the log offset of
the end of the log at its deletion. Without it a replica that misses a topic cannot distinguish a
deletion from a loss, nor know where the topic's next life begins. RocketMQ ignores the field."""
DELETED_TIMES = "deletedTimes"
"""Member of the answer to a request 21 with DELETED_TOPICS: topic to the time of its last deletion,
in epoch ms. Earlier check points and handles belong to a former life of the topic."""
MAX_DELETED_TOPICS = 10_000
"""Maximum deleted topics in an answer to 21, the latest; some 500 KB."""

QUEUE_COUNTS = "queueCounts"
"""Field of a request 21, and the member it adds to the answer: topic to queue id to the next queue
offset, of queues without a message in the log. A replica whose copy began after the log's first
byte asks for it until it has the answer (engine/queues/queue_counts.py)."""


class TopicTable:
    """Table of the topics by name, with their configurations, saved in topics.json. Loop thread
    only. Each change has the file written soon. After a change `on_replace` gets the names of
    replaced and deleted topics, then `on_made` the new topics, last `on_change` all of them; none
    is called with an empty list. A configuration in the table is never changed, only replaced: the
    saver writes on another thread."""

    def __init__(self, config: BrokerConfig, saver: TableSaver) -> None:
        self.on_change: Callable[[list[str]], None] = lambda names: None
        self.on_replace: Callable[[list[str]], None] = lambda names: None
        self.on_made: Callable[[list[str]], None] = lambda names: None
        self._config = config
        self._saver = saver
        self._revive_topic = f"{REVIVE_PREFIX}{config.broker_cluster_name}"
        self._topics: JsonTable[TopicConfig] = JsonTable()
        self._unsaved: OrderedDict[str, int] = OrderedDict()
        """Topics created or marked by changes that may not be durable, with the saver's numbers of
        the changes, in order."""
        self._made_at_start: set[str] = set()
        self.only_here: frozenset[str] = frozenset()
        """Topics of a replica that no master is known to have had: a master that lacks them has not
        deleted them."""
        self.data_version = DataVersion()
        """Version of the table; assign it through the methods only."""
        self.versions = VersionRules()
        """Rules for new versions; replication (broker/ha/metadata) replaces it by an object that
        all tables share."""

    def load(self) -> None:
        """Read topics.json, if it exists; writes nothing, because another broker may still hold the
        store. Raises ConfigError for malformed content, StoreError if the file cannot be read."""
        saved = self._saver.load(FILE_NAME, self._content)
        if saved is not None:
            try:
                configs = TopicConfigs.from_json(saved)
            except BadBody as error:
                raise ConfigError(f"{FILE_NAME} is damaged: {error}") from None
            self._topics.replace(configs.topic_config_table)
            self.data_version = configs.data_version
            self.only_here = read_only_here(saved)

    def add_boot_topics(self, now_ms: int) -> None:
        """Create the topics that every broker has (store.md 22), as far as they are missing; no
        callback is called, and the version's counter stays."""
        before = self._topics.changes
        self._add_boot_topics()
        if self._topics.changes != before:
            # Not counted, as in RocketMQ: a new broker's table is older than a table in use.
            self.data_version = replace(self.data_version, timestamp=now_ms)
            self._saver.save_changed(FILE_NAME, self._content)

    def create_from_store(
        self, stored: Callable[[], dict[str, int]], now_ms: int, *, always: bool = False
    ) -> None:
        """Create topics that have queues in the store but are missing in the table, since no client
        could read them; only if topics.json is missing or an older copy. `stored` returns topic to
        number of queues.

        `always`: even if the file is the latest. A replica's log may have a topic that its master
        created after this replica's last full copy of the table (R20).
        """
        if not always and self._saver.is_latest(FILE_NAME):
            return
        lacking = [
            TopicConfig(name, count, count, _PERM_RW)
            for name, count in sorted(stored().items())
            if name not in self._topics and not name.startswith(LIGHT_PREFIX)
        ]
        for one in lacking[:MAX_TOPICS]:
            logger.warning(
                "topic %s is not in %s: created with the %d queues that it has in the store",
                one.topic_name,
                FILE_NAME,
                one.read_queue_nums,
            )
        self.put_all(lacking[:MAX_TOPICS], now_ms)

    def __len__(self) -> int:
        """Number of topics, system topics included."""
        return len(self._topics)

    def peek_topic(self, name: str) -> TopicConfig | None:
        """The topic's configuration, or None, without the wait that `get` causes: for reads on
        which no answer depends."""
        return self._topics.get(name)

    def get(self, name: str) -> TopicConfig | None:
        """The topic's configuration, or None.

        If the topic is not durable yet, the current request's answer waits until it is, even if
        another request created it: a message must not be safe in a topic that a crash deletes.
        """
        if self._unsaved and name in self._unsaved:
            if self._unsaved[name] > self._saver.durable_change:
                self._saver.wait_for_others()
            else:
                del self._unsaved[name]
        return self._topics.get(name)

    def queue_of(self, name: str, queue_id: int) -> int:
        """The queue id for a message that waited for `queue_id`: the same, or if the topic has
        fewer queues now, a queue that it still has, since no consumer reads the others. Messages of
        a queue stay together. Queues of the revive topic are never changed: each is read, and holds
        its check points with their acknowledgements."""
        topic = None if name == self._revive_topic else self._topics.get(name)
        counts = (0, 0) if topic is None else (topic.read_queue_nums, topic.write_queue_nums)
        if queue_id < max(counts) or not max(counts):
            return queue_id
        return queue_id % (min(counts) or max(counts))

    def is_saved(self, name: str) -> bool:
        """Whether a topic of the table would survive a crash now; True for an unknown topic,
        too."""
        return self._unsaved.get(name, 0) <= self._saver.durable_change

    def all_topics(self) -> dict[str, TopicConfig]:
        """Topic name to configuration, unordered; a copy of the table, not of the
        configurations."""
        return self._topics.rows()

    def names(self) -> list[str]:
        """Names of all topics, sorted."""
        return self._topics.names()

    def encode_rows(self, names: list[str]) -> json_steps.Rows:
        """The current rows of these topics, which must exist, for the table in the body of 21."""
        return self._topics.body(names)

    @property
    def change_marker(self) -> object:
        """A value that is unequal to all earlier ones after a topic or the version has changed."""
        return self._topics.changes, self.data_version

    def put(self, config: TopicConfig, now_ms: int) -> None:
        """Create or replace a topic without any check, with a new version; no effect if the
        configuration is equal."""
        self.put_all([config], now_ms)

    def put_all(self, configs: Iterable[TopicConfig], now_ms: int) -> None:
        """Create or replace topics, with a single new version; no effect if no configuration
        differs."""
        changed = {
            one.topic_name: one for one in configs if self._topics.get(one.topic_name) != one
        }
        if changed:
            version = self.versions.next_version(self.data_version, now_ms)
            changed_members: dict[str, Any] = {}
            made = {name for name in changed if name not in self._topics}
            if self.versions.following and made:
                self.only_here |= made
                changed_members = write_only_here(self.only_here)
            self._change_topics(changed, [], version, changed_members)

    def adopt_topics(
        self,
        topics: dict[str, TopicConfig],
        version: DataVersion,
        only_here: frozenset[str] = frozenset(),
    ) -> None:
        """Replace the table by `topics` and `version`, merged from a followed master's.
        `only_here`: names in `topics` that no master is known to have had. No effect if nothing
        differs."""
        changed = {name: one for name, one in topics.items() if self._topics.get(name) != one}
        gone = [name for name in self._topics.rows() if name not in topics]
        if changed or gone or version != self.data_version or only_here != self.only_here:
            changed_members = (
                {} if only_here == self.only_here else {ONLY_HERE: sorted(only_here) or None}
            )
            self.only_here = only_here
            self._change_topics(changed, gone, version, changed_members)

    def _change_topics(
        self,
        put: dict[str, TopicConfig],
        gone: list[str],
        version: DataVersion,
        changed_members: dict[str, Any],
    ) -> int:
        """Put topics and remove the topics in `gone`, have that saved, and call the callbacks;
        `changed_members` holds the other members of the file. Returns the number of the change."""
        topics = self._topics
        made = [name for name in put if name not in topics]
        replaced = [name for name in put if name in topics] + gone
        topics.put_all(put)
        for name in gone:
            topics.remove(name)
        self.data_version = version
        number = self._save(put.values(), gone, changed_members)
        self._note_unsaved(made, number)
        if replaced:
            self.on_replace(replaced)
        if made:
            self.on_made(made)
        if put or gone:
            self.on_change([*put, *gone])
        return number

    def _save(
        self, put: Collection[TopicConfig], gone: list[str], changed_members: dict[str, Any]
    ) -> int:
        """Have the changes appended to the file, or the whole file written if they are many; return
        the number of the change."""
        if len(put) > MAX_APPENDED:
            return self._saver.save_changed(FILE_NAME, self._content)
        members = {"dataVersion": self.data_version.to_json(), **changed_members}
        rows = [fastjson.strip_layout(one.row()) for one in put]
        return self._saver.save_changed(
            FILE_NAME,
            self._content,
            config_changes.encode_change(members, {TABLE: rows}, {TABLE: gone}),
        )

    def _note_unsaved(self, made: list[str], number: int) -> None:
        """Remember until change `number` is durable that these topics are not saved yet."""
        durable, unsaved = self._saver.durable_change, self._unsaved
        while unsaved and next(iter(unsaved.values())) <= durable:
            unsaved.popitem(last=False)
        if number > durable:
            for name in made:
                unsaved.pop(name, None)
                unsaved[name] = number

    def create_from_default(
        self, topic: str, default_topic: str, queue_nums: int, sys_flag: int, now_ms: int
    ) -> TopicConfig | None:
        """Return the topic, created if missing, automatically at a send (RocketMQ:
        createTopicInSendMessageMethod), like `default_topic` but with at most `queue_nums` queues
        and without the permission to inherit.

        None, and nothing is created, if the default topic is missing or does not allow inheritance,
        is TBW102 while autoCreateTopicEnable is off, or if the table holds MAX_TOPICS.
        """
        known = self._topics.get(topic)
        if known is not None:
            return known
        model = self._topics.get(default_topic)
        if model is None or not model.is_inherited or len(self._topics) >= MAX_TOPICS:
            return None
        if default_topic == AUTO_CREATE_TOPIC and not self._config.auto_create_topic_enable:
            return None  # still in topics.json from a time when it was enabled
        queues = min(max(queue_nums, 0), model.write_queue_nums)
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=model.perm & ~PERM_INHERIT,
            topic_filter_type=model.topic_filter_type,
            topic_sys_flag=sys_flag,
        )
        self.put(created, now_ms)
        return created

    def create_internal(
        self,
        topic: str,
        queues: int,
        perm: int,
        now_ms: int,
        *,
        order: bool = False,
        sys_flag: int = 0,
        attributes: Mapping[str, str] | None = None,
    ) -> TopicConfig | None:
        """Return the topic, created with these settings if missing (retry, dead letter), with
        `queues` queues but at least 1 and at most MAX_QUEUES_OF_TOPIC; None if the table holds
        MAX_TOPICS. An existing topic only gets the `attributes` that it lacks or has with other
        values. The name is not checked."""
        attributes = dict(attributes or {})
        known = self._topics.get(topic)
        if known is not None:
            return self._with_attributes(known, attributes, now_ms)
        if len(self._topics) >= MAX_TOPICS:
            return None
        count = min(max(queues, 1), MAX_QUEUES_OF_TOPIC)
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=count,
            write_queue_nums=count,
            perm=perm,
            order=order,
            topic_sys_flag=sys_flag,
            attributes=attributes,
        )
        self.put(created, now_ms)
        return created

    def _with_attributes(
        self, known: TopicConfig, attributes: dict[str, str], now_ms: int
    ) -> TopicConfig:
        """Add attributes to a topic and return it. The topic does not count as saved (`is_saved`)
        until its attributes are."""
        if attributes.items() <= known.attributes.items():
            return known
        name, version = known.topic_name, self.versions.next_version(self.data_version, now_ms)
        changed = replace(known, attributes={**known.attributes, **attributes})
        self._note_unsaved([name], self._change_topics({name: changed}, [], version, {}))
        return changed

    def delete(self, name: str, now_ms: int) -> bool:
        """Remove a topic's configuration and return True; return False if there is none.

        `now_ms` (epoch ms) becomes the time of the table's next version. The file is saved soon;
        the caller deletes the topic's queues itself.
        """
        if name not in self._topics:
            return False
        self._change_topics({}, [name], self.versions.next_version(self.data_version, now_ms), {})
        return True

    def bump_version(self, now_ms: int) -> None:
        """Give the same topics a new version, because this broker's term begins or
        brokerPermission, which applies to each topic, has changed; as master, forget `only_here`.

        Name servers read the topics of a registration only if its version has changed.
        """
        changed_members: dict[str, Any] = {}
        if not self.versions.following and self.only_here:
            # as master, no topic is the replica's own
            self.only_here, changed_members = frozenset(), {ONLY_HERE: None}
        self._change_topics(
            {}, [], self.versions.next_version(self.data_version, now_ms), changed_members
        )

    def is_batch(self, name: str) -> bool:
        """Whether the topic's queues hold inner batches (attribute queue.type=BatchCQ); False for
        an unknown topic."""
        config = self._topics.get(name)
        return config is not None and config.attributes.get("queue.type") == "BatchCQ"

    def is_system(self, name: str) -> bool:
        """Whether the name is a topic of the broker itself, existing or not (RocketMQ:
        TopicValidator.isSystemTopic)."""
        return name in self._made_at_start or is_system_topic(name)

    def system_topics(self) -> list[str]:
        """Names of all system topics that exist here or are reserved, sorted."""
        mine = {name for name in self._topics.rows() if self.is_system(name)}
        return sorted(SYSTEM_TOPICS | self._made_at_start | mine)

    def _content(self) -> Content:
        """The whole content of topics.json."""
        members = {**write_only_here(self.only_here), "dataVersion": self.data_version.to_json()}
        return self._topics.snapshot(TABLE, members)

    def _add_boot_topics(self) -> None:
        """Add the missing topics that every broker has to the table (store.md 22), without
        saving."""

        def add(name: str, queues: int, perm: int = _PERM_RW) -> None:
            # A topic's configuration in topics.json has precedence, as in RocketMQ.
            self._made_at_start.add(name)
            if name not in self._topics:
                self._topics.put(name, TopicConfig(name, queues, queues, perm))

        config = self._config
        cluster, name = config.broker_cluster_name, config.broker_name
        automatic = _PERM_RW | PERM_INHERIT
        add(SELF_TEST_TOPIC, 1)
        if config.auto_create_topic_enable:
            add(AUTO_CREATE_TOPIC, config.default_topic_queue_nums, automatic)
        add(BENCHMARK_TOPIC, 1024)
        add(cluster, 16, automatic if config.cluster_topic_enable else PERM_INHERIT)
        add(name, 1, automatic if config.broker_topic_enable else PERM_INHERIT)
        add(OFFSET_MOVED_TOPIC, 1)
        add(SCHEDULE_TOPIC, len(config.delay_levels_ms))
        if config.timer_wheel_enable:
            add(TIMER_TOPIC, 1)
        if config.trace_topic_enable:
            add(config.msg_trace_topic_name, 1)
        add(f"{cluster}_REPLY_TOPIC", 1)
        add(self._revive_topic, config.revive_queue_num)
        add(f"{SYNC_MEMBER_PREFIX}{name}", 1, PERM_INHERIT)
        add(HALF_TOPIC, 1)
        add(OP_TOPIC, 1)
