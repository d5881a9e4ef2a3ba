"""The body of a broker's registration at a name server, plain and compressed.

Owns RocketMQ's RegisterBrokerBody in both encodings, and the CRC that its header carries. It must
never trust a length or a compressed size. Called by the broker's registration and the name server.
"""

import zlib
from dataclasses import dataclass, field
from typing import Any, Final

from turbopump.engine.types import Buffer
from turbopump.net.wire.bodies import BadBody, as_text, dump, items, load, load_object
from turbopump.net.wire.topics import DataVersion, TopicConfig, TopicConfigs
from turbopump.pyx.crc32 import masked_crc32

WRAPPED_SINCE_VERSION: Final = 37
"""MQVersion from which the plain body holds filter servers too (V3_0_11)."""

MAPPING_SINCE_VERSION: Final = 413
"""MQVersion from which the compressed body ends with topic queue mappings (V5_0_0)."""

INFLATED_MAX: Final = 32 << 20
"""Bytes of an inflated body: some 400,000 topics; a few KB of zeros must not become gigabytes."""


def body_crc32(body: Buffer) -> int:
    """The bodyCrc32 of a registration's header, over the body as sent."""
    return masked_crc32(body)


@dataclass(slots=True)
class RegisterBrokerBody:
    """What a broker tells about its topics."""

    topics: TopicConfigs = field(default_factory=TopicConfigs)
    filter_server_list: list[str] = field(default_factory=list)

    @classmethod
    def decode(
        cls, body: Buffer, *, compressed: bool = False, version: int = MAPPING_SINCE_VERSION
    ) -> "RegisterBrokerBody":
        """The body of REGISTER_BROKER from a broker of that MQVersion; raises BadBody.

        RocketMQ: RegisterBrokerBody.decode, and the bare wrapper of brokers before V3_0_11. An
        empty body is a registration without topics.
        """
        if not len(body):
            return cls()
        if compressed:
            return _decode_compressed(body, version)
        members = load_object(body)
        if version < WRAPPED_SINCE_VERSION:
            return cls(TopicConfigs.from_json(members))
        topics = members.get("topicConfigSerializeWrapper")
        return cls(
            TopicConfigs() if topics is None else TopicConfigs.from_json(topics),
            items(members, "filterServerList", as_text),
        )

    def encode(self, *, compressed: bool = False) -> bytes:
        """The body; what a compressed one cannot carry (order, topicSysFlag) is lost there."""
        if compressed:
            return _encode_compressed(self)
        return dump(
            {
                "filterServerList": self.filter_server_list,
                "topicConfigSerializeWrapper": self.topics.to_json(),
            }
        )


def _encode_compressed(body: RegisterBrokerBody) -> bytes:
    topics = body.topics
    pieces = [_sized(topics.data_version.encode())]
    pieces.append(len(topics.topic_config_table).to_bytes(4, "big"))
    lines = [config.to_text() for config in topics.topic_config_table.values()]
    pieces += [_sized(line.encode("utf-8", "replace")) for line in lines]
    pieces.append(_sized(dump(body.filter_server_list)))
    pieces.append(len(topics.topic_queue_mapping_info_map).to_bytes(4, "big"))
    pieces += [_sized(dump(info)) for info in topics.topic_queue_mapping_info_map.values()]
    return zlib.compress(b"".join(pieces), 9)


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _decode_compressed(body: Buffer, version: int) -> RegisterBrokerBody:
    reader = _Reader(_inflate(body))
    version_text = reader.piece("data version")
    topics = TopicConfigs(DataVersion.from_json(load(version_text)))
    for _ in range(reader.count("topics")):
        config = TopicConfig.from_text(str(reader.piece("topic"), "utf-8", "replace"))
        topics.topic_config_table[config.topic_name] = config
    servers = items({"filterServerList": load(reader.piece("filter servers"))},
                    "filterServerList", as_text)  # fmt: skip
    if version >= MAPPING_SINCE_VERSION and reader.remaining:
        for _ in range(reader.count("mappings")):
            info = load_object(reader.piece("mapping"))
            topics.topic_queue_mapping_info_map[_topic_of(info)] = info
    return RegisterBrokerBody(topics, servers)


def _topic_of(info: dict[str, Any]) -> str:
    topic = info.get("topic")
    if not isinstance(topic, str):
        raise BadBody("a mapping of the registration names no topic")
    return topic


def _inflate(body: Buffer) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(body, INFLATED_MAX)
    except zlib.error as error:
        raise BadBody(f"the registration is not compressed by zlib: {error}") from None
    if not inflater.eof:
        limit = len(inflated) >= INFLATED_MAX
        reason = f"is over {INFLATED_MAX} bytes inflated" if limit else "ends in its zlib stream"
        raise BadBody(f"the registration {reason}")
    return inflated


class _Reader:
    """Length-prefixed pieces of an inflated body."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def remaining(self) -> int:
        return len(self._data) - self._at

    def count(self, what: str) -> int:
        number = self._int32(what)
        # Each element has 4 length bytes, so a count can be checked before anything is made.
        if not 0 <= number <= self.remaining // 4:
            raise BadBody(f"the registration claims {number} {what}")
        return number

    def piece(self, what: str) -> bytes:
        size = self._int32(what)
        if not 0 <= size <= self.remaining:
            raise BadBody(f"the registration has a {what} of {size} bytes, {self.remaining} left")
        begin, self._at = self._at, self._at + size
        return self._data[begin : self._at]

    def _int32(self, what: str) -> int:
        if self.remaining < 4:
            raise BadBody(f"the registration ends before its {what}")
        value = int.from_bytes(self._data[self._at : self._at + 4], "big", signed=True)
        self._at += 4
        return value
