"""Which sends are plain: they are served natively, by the lane, instead of handlers/send.py.

Owns the policy behind the lane's topic table, and keeps it up to date. It must never serve a
request or know a connection. Fed by handlers/send.py, which has just served a send to a topic and
says so: what is looked up there once is not looked up again, until something it depends on
changes. Told of changes by node.py (topics, configuration).
"""

from collections.abc import Iterable

from turbopump.broker.config import BrokerConfig
from turbopump.broker.topics import MAX_TOPIC_LENGTH, RETRY_PREFIX, TopicTable
from turbopump.net.wire import properties as names
from turbopump.net.wire.properties import encode_properties
from turbopump.net.wire.topics import MULTI_TAG, TopicConfig
from turbopump.pyx.lane import Lane


class FastLane:
    """The broker's side of a lane."""

    def __init__(self, lane: Lane, config: BrokerConfig, topics: TopicTable) -> None:
        self._lane = lane
        self._config = config
        self._topics = topics
        self._store_host = b""

    def start(self, store_host: bytes) -> None:
        """Let plain sends be served from now on; records carry this packed host."""
        self._store_host = store_host
        self.reconfigure()
        # A record with a CRC of its own is encoded by the store.
        self._lane.open = not self._config.store.enabled_append_prop_crc

    def stop(self) -> None:
        """Leave every request to the handlers."""
        self._lane.open = False

    def reconfigure(self) -> None:
        """The configuration has changed: everything is looked up again."""
        config = self._config
        trace_on = "true" if config.trace_on else "false"
        own = {
            names.MSG_REGION: config.region_id,
            names.TRACE_ON: trace_on,
            names.CLUSTER: config.broker_cluster_name,
        }
        self._lane.forget_all()
        self._lane.configure(
            encode_properties(own),
            config.region_id.encode(),
            config.trace_on,
            self._store_host,
            config.start_accept_send_request_timestamp_ms,
        )

    def learn(self, topic: TopicConfig) -> None:
        """A send to the topic was found legal: the next ones may be served natively."""
        name = topic.topic_name
        if self._is_plain(topic) and self._topics.is_saved(name):
            self._lane.serve(name.encode(), max(topic.write_queue_nums, topic.read_queue_nums))

    def forget(self, changed: Iterable[str]) -> None:
        """These topics have changed."""
        for name in changed:
            self._lane.forget(name.encode())

    def _is_plain(self, topic: TopicConfig) -> bool:
        name = topic.topic_name
        return (
            self._config.writable
            and len(name) <= MAX_TOPIC_LENGTH
            and not name.startswith(RETRY_PREFIX)
            and topic.topic_filter_type != MULTI_TAG
            and topic.attributes.get("cleanup.policy") != "COMPACTION"
            and not self._topics.is_batch(name)
        )
