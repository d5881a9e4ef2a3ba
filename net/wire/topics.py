"""Topic configurations and the version of a table, on the wire and in topics.json.

Owns RocketMQ's DataVersion, TopicConfig and TopicConfigSerializeWrapper. It must never decide
whether a topic may exist.

Tests: tests/unit/net/wire/test_bodies.py, tests/unit/broker/tables/test_tables.py
"""

from dataclasses import dataclass, field
from typing import Any, Final

from turbopump.engine import fastjson
from turbopump.engine.disk.json_table import row_texts
from turbopump.engine.types import Buffer
from turbopump.net.wire.bodies import (
    BadBody,
    Steps,
    as_int,
    as_object,
    as_text,
    encode_json,
    load_object,
    read_flag,
    read_int32,
    read_int64,
    read_table,
    read_text,
    table_in_steps,
)

# Bits of a permission (RocketMQ: PermName).
PERM_INHERIT: Final = 1
"""Bit of perm: new topics may copy this topic's configuration."""
PERM_WRITE: Final = 2
"""Bit of perm: producers may send."""
PERM_READ: Final = 4
"""Bit of perm: consumers may pull."""
PERM_PRIORITY: Final = 8
"""Bit of perm, reserved by RocketMQ."""

MESSAGE_TYPE: Final = "message.type"
"""Name of the attribute for the type of messages that a topic accepts."""
MIXED: Final = "MIXED"
"""Value of MESSAGE_TYPE for all types."""

SINGLE_TAG: Final = "SINGLE_TAG"
"""Value of topicFilterType: messages have at most one tag."""
MULTI_TAG: Final = "MULTI_TAG"
"""Value of topicFilterType: messages may have several tags."""


@dataclass(frozen=True, slots=True)
class DataVersion:
    """The version of a table; two are equal if all three members are. `timestamp` is epoch ms."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0

    def next_version(self, now_ms: int, state_version: int = 0) -> "DataVersion":
        """Build the version after a change at `now_ms` (epoch ms): the counter one higher
        (RocketMQ: DataVersion.nextVersion)."""
        return DataVersion(self.counter + 1, state_version, now_ms)

    @classmethod
    def from_json(cls, value: Any) -> "DataVersion":
        """Decode the JSON bean; null and missing members are 0. Raises BadBody."""
        if value is None:
            return cls()
        members = as_object(value)
        return cls(
            read_int64(members, "counter"),
            read_int64(members, "stateVersion"),
            read_int64(members, "timestamp"),
        )

    @classmethod
    def decode(cls, body: Buffer) -> "DataVersion":
        """Decode the body of QUERY_DATA_VERSION; raises BadBody."""
        return cls.from_json(load_object(body))

    def to_json(self) -> dict[str, int]:
        """Convert to the JSON-ready dict with RocketMQ's member names."""
        return {
            "counter": self.counter,
            "stateVersion": self.state_version,
            "timestamp": self.timestamp,
        }

    def encode(self) -> bytes:
        """Encode `to_json` as a compact JSON body in UTF-8, at once."""
        return encode_json(self.to_json())


@dataclass(slots=True)
class TopicConfig:
    """A topic of a broker: the numbers of queues to read and to write, the PERM_ bits, and
    RocketMQ's further settings; `attributes` are stored without the + of their assignment."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: str = SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)
    _row: bytes = field(default=b"", init=False, repr=False, compare=False)

    @property
    def is_readable(self) -> bool:
        """Whether consumers may pull."""
        return self.perm & PERM_READ != 0

    @property
    def is_writable(self) -> bool:
        """Whether producers may send."""
        return self.perm & PERM_WRITE != 0

    @property
    def is_inherited(self) -> bool:
        """Whether new topics may inherit this topic's configuration."""
        return self.perm & PERM_INHERIT != 0

    @classmethod
    def from_json(cls, value: Any) -> "TopicConfig":
        """Convert a parsed JSON object with RocketMQ's member names; null and missing members are
        empty, 0 or the default. Raises BadBody for another shape."""
        members = as_object(value)
        return cls(
            topic_name=read_text(members, "topicName"),
            read_queue_nums=read_int32(members, "readQueueNums", 16),
            write_queue_nums=read_int32(members, "writeQueueNums", 16),
            perm=read_int32(members, "perm", PERM_READ | PERM_WRITE),
            topic_filter_type=read_text(members, "topicFilterType", SINGLE_TAG),
            topic_sys_flag=read_int32(members, "topicSysFlag"),
            order=read_flag(members, "order"),
            attributes=read_table(members, "attributes", as_text),
        )

    @classmethod
    def decode(cls, body: Buffer) -> "TopicConfig":
        """Decode the body of GET_TOPIC_CONFIG; raises BadBody."""
        return cls.from_json(load_object(body))

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON-ready dict with RocketMQ's member names."""
        return {
            "attributes": dict(self.attributes),
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicFilterType": self.topic_filter_type,
            "topicName": self.topic_name,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    def row(self) -> bytes:
        """Return the line of this topic in topics.json; `fastjson.strip_layout` turns it into the
        form of a body.

        The line is encoded once, so the configuration must not change after the first call. Any
        thread may call this.
        """
        if not self._row:
            self._row = fastjson.encode_member(self.topic_name, self.to_json(), 2)
        return self._row

    def encode(self) -> bytes:
        """Encode `to_json` as a compact JSON body in UTF-8, at once."""
        return encode_json(self.to_json())

    def to_text(self) -> str:
        """Format the line of a compressed registration, without order and topicSysFlag."""
        return (
            f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} {self.perm} "
            f"{self.topic_filter_type} {fastjson.dumps(self.attributes)}"
        )

    @classmethod
    def from_text(cls, line: str) -> "TopicConfig":
        """Parse `name reads writes perm filter {attributes}`, the last optional. Raises BadBody."""
        words = line.split(" ", 5)
        if len(words) < 5 or not words[0]:
            raise BadBody(f"a topic of the registration is malformed: {line[:80]!r}")
        try:
            attributes = fastjson.loads(words[5]) if len(words) > 5 else {}
        except ValueError as error:
            raise BadBody(f"attributes of topic {words[0]}: {error}") from None
        return cls(
            topic_name=words[0],
            read_queue_nums=as_int(words[1], "readQueueNums"),
            write_queue_nums=as_int(words[2], "writeQueueNums"),
            perm=as_int(words[3], "perm"),
            topic_filter_type=words[4],
            attributes=read_table({"attributes": attributes}, "attributes", as_text),
        )


@dataclass(slots=True)
class TopicConfigs:
    """All topics of a broker with their version (RocketMQ: TopicConfigAndMappingSerializeWrapper).

    The mapping members belong to static topics and are passed through.
    """

    data_version: DataVersion = field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    mapping_data_version: DataVersion = field(default_factory=DataVersion)
    topic_queue_mapping_detail_map: dict[str, Any] = field(default_factory=dict)
    topic_queue_mapping_info_map: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Any) -> "TopicConfigs":
        """Convert a parsed JSON object with RocketMQ's member names; null and missing members are
        empty, 0 or the default. Raises BadBody for another shape."""
        members = as_object(value)
        return cls(
            DataVersion.from_json(members.get("dataVersion")),
            read_table(members, "topicConfigTable", TopicConfig.from_json),
            DataVersion.from_json(members.get("mappingDataVersion")),
            read_table(members, "topicQueueMappingDetailMap", as_object),
            read_table(members, "topicQueueMappingInfoMap", as_object),
        )

    @classmethod
    def from_json_in_steps(cls, value: Any) -> Steps["TopicConfigs"]:
        """Decode like `from_json`, in steps; raises BadBody."""
        members = as_object(value)
        return cls(
            DataVersion.from_json(members.get("dataVersion")),
            (yield from table_in_steps(members, "topicConfigTable", TopicConfig.from_json)),
            DataVersion.from_json(members.get("mappingDataVersion")),
            (yield from table_in_steps(members, "topicQueueMappingDetailMap", as_object)),
            (yield from table_in_steps(members, "topicQueueMappingInfoMap", as_object)),
        )

    @classmethod
    def decode(cls, body: Buffer) -> "TopicConfigs":
        """Decode the body of GET_ALL_TOPIC_CONFIG; raises BadBody."""
        return cls.from_json(load_object(body))

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON-ready dict with RocketMQ's member names."""
        configs = self.topic_config_table
        return {
            "dataVersion": self.data_version.to_json(),
            "mappingDataVersion": self.mapping_data_version.to_json(),
            "topicConfigTable": {name: config.to_json() for name, config in configs.items()},
            "topicQueueMappingDetailMap": self.topic_queue_mapping_detail_map,
            "topicQueueMappingInfoMap": self.topic_queue_mapping_info_map,
        }

    def encode(self) -> bytes:
        """Encode the JSON bean as a body, topics sorted, from rows that are encoded once (see
        TopicConfig.row): for a large broker that takes a tenth of the time."""
        configs = self.topic_config_table
        return (
            b'{"dataVersion":%s,"mappingDataVersion":%s,"topicConfigTable":{%s},'
            b'"topicQueueMappingDetailMap":%s,"topicQueueMappingInfoMap":%s}'
        ) % (
            self.data_version.encode(),
            self.mapping_data_version.encode(),
            ",".join(row_texts(sorted(configs), configs)).encode(),
            encode_json(self.topic_queue_mapping_detail_map),
            encode_json(self.topic_queue_mapping_info_map),
        )
