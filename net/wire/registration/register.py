"""The body of a broker's registration at a name server, plain and compressed.

Owns RocketMQ's RegisterBrokerBody in both encodings, and the CRC in its header. It must never trust
a length or a compressed size.
"""

import zlib
from dataclasses import dataclass, field
from typing import Any, Final

from turbopump.engine.json_steps import JsonBounds
from turbopump.engine.types import Buffer
from turbopump.net.wire.bodies import (
    READ,
    BadBody,
    Steps,
    as_text,
    encode_json,
    items_in_steps,
    load_small,
    load_small_object,
    object_in_steps,
    read_list,
    run_to_result,
)
from turbopump.net.wire.command import FRAME_MAX
from turbopump.net.wire.topics import DataVersion, TopicConfig, TopicConfigs
from turbopump.pyx.crc32 import masked_crc32

WRAPPED_SINCE_VERSION: Final = 37
"""MQVersion from which the plain body contains filter servers too (V3_0_11)."""

MAPPING_SINCE_VERSION: Final = 413
"""MQVersion from which the compressed body ends with topic queue mappings (V5_0_0)."""

INFLATED_MAX: Final = 32 << 20
"""Maximum bytes of an inflated body: a few KB of zeros must not become gigabytes."""
INFLATED_STEP: Final = 1 << 20
"""Maximum bytes that a step inflates."""

TOPICS_MAX: Final = 200_000
"""Maximum topics of a registration: twice a broker's limit here, and four times RocketMQ's
advice."""

BOUNDS: Final = JsonBounds(FRAME_MAX, 3 * TOPICS_MAX, 12 * TOPICS_MAX)
"""Bounds of a registration's JSON: a topic has two objects and nine members."""


def body_crc32(body: Buffer) -> int:
    """Compute the bodyCrc32 of a registration's header, over the body as sent: CRC-32 without its
    highest bit."""
    return masked_crc32(body)


@dataclass(slots=True)
class RegisterBrokerBody:
    """The topics and filter servers ("host:port") that a broker registers."""

    topics: TopicConfigs = field(default_factory=TopicConfigs)
    filter_server_list: list[str] = field(default_factory=list)

    @classmethod
    def decode(
        cls, body: Buffer, *, compressed: bool = False, version: int = MAPPING_SINCE_VERSION
    ) -> "RegisterBrokerBody":
        """Decode the body of REGISTER_BROKER from a broker of that MQVersion; raises BadBody.

        RocketMQ: RegisterBrokerBody.decode, and the bare wrapper of brokers before V3_0_11. An
        empty body is a registration without topics.
        """
        return run_to_result(cls.decode_in_steps(body, compressed=compressed, version=version))

    @classmethod
    def decode_in_steps(
        cls, body: Buffer, *, compressed: bool = False, version: int = MAPPING_SINCE_VERSION
    ) -> Steps["RegisterBrokerBody"]:
        """Decode like `decode`, in steps; raises BadBody, also for more than TOPICS_MAX topics."""
        if not len(body):
            return cls()
        if compressed:
            return (yield from _decode_compressed(body, version))
        members = yield from object_in_steps(body, BOUNDS)
        if version < WRAPPED_SINCE_VERSION:
            return cls((yield from TopicConfigs.from_json_in_steps(members)))
        topics = members.get("topicConfigSerializeWrapper")
        configs = TopicConfigs()
        if topics is not None:
            configs = yield from TopicConfigs.from_json_in_steps(topics)
        return cls(configs, (yield from items_in_steps(members, "filterServerList", as_text)))

    def encode(self, *, compressed: bool = False) -> bytes:
        """Encode the body, in the form of RocketMQ 5; a compressed body (zlib) loses the fields
        order and topicSysFlag."""
        if compressed:
            return _encode_compressed(self)
        servers = encode_json(self.filter_server_list)
        return b'{"filterServerList":%s,"topicConfigSerializeWrapper":%s}' % (
            servers,
            self.topics.encode(),
        )


def _encode_compressed(body: RegisterBrokerBody) -> bytes:
    """Encode a registration in RocketMQ's length-prefixed form, compressed by zlib."""
    topics = body.topics
    pieces = [_with_length(topics.data_version.encode())]
    pieces.append(len(topics.topic_config_table).to_bytes(4, "big"))
    lines = [config.to_text() for config in topics.topic_config_table.values()]
    pieces += [_with_length(line.encode("utf-8", "replace")) for line in lines]
    pieces.append(_with_length(encode_json(body.filter_server_list)))
    pieces.append(len(topics.topic_queue_mapping_info_map).to_bytes(4, "big"))
    pieces += [
        _with_length(encode_json(info)) for info in topics.topic_queue_mapping_info_map.values()
    ]
    return zlib.compress(b"".join(pieces), 9)


def _with_length(data: bytes) -> bytes:
    """Prefix the bytes with their length, 4 bytes big-endian."""
    return len(data).to_bytes(4, "big") + data


def _decode_compressed(body: Buffer, version: int) -> Steps[RegisterBrokerBody]:
    """Decode a compressed registration of a broker of that MQVersion, in steps; raises BadBody."""
    reader = _Reader((yield from _decompress_steps(body)))
    version_text = reader.read_piece("data version")
    topics = TopicConfigs(DataVersion.from_json(load_small(version_text)))
    for number in range(reader.count("topics")):
        config = TopicConfig.from_text(str(reader.read_piece("topic"), "utf-8", "replace"))
        topics.topic_config_table[config.topic_name] = config
        if number % READ == READ - 1:
            yield
    servers = read_list(
        {"filterServerList": load_small(reader.read_piece("filter servers"))},
        "filterServerList",
        as_text,
    )
    if version >= MAPPING_SINCE_VERSION and reader.remaining:
        for number in range(reader.count("mappings")):
            info = load_small_object(reader.read_piece("mapping"))
            topics.topic_queue_mapping_info_map[_topic_of(info)] = info
            if number % READ == READ - 1:
                yield
    return RegisterBrokerBody(topics, servers)


def _topic_of(info: dict[str, Any]) -> str:
    """Return the topic of a static topic's mapping; raises BadBody."""
    topic = info.get("topic")
    if not isinstance(topic, str):
        raise BadBody("a mapping of the registration names no topic")
    return topic


def _decompress_steps(body: Buffer) -> Steps[bytes]:
    """Decompress a registration in steps of INFLATED_STEP bytes. Raises BadBody for other bytes
    than zlib's, and for over INFLATED_MAX bytes."""
    inflater = zlib.decompressobj()
    pieces: list[bytes] = []
    size = at = 0
    tail = b""
    try:
        while not inflater.eof and size < INFLATED_MAX and (tail or at < len(body)):
            if not tail:
                tail, at = bytes(body[at : at + INFLATED_STEP]), at + INFLATED_STEP
            elif at:
                yield
            pieces.append(inflater.decompress(tail, INFLATED_STEP))
            size += len(pieces[-1])
            tail = inflater.unconsumed_tail
    except zlib.error as error:
        raise BadBody(f"the registration is not compressed by zlib: {error}") from None
    inflated = b"".join(pieces)
    if not inflater.eof:
        limit = size >= INFLATED_MAX
        reason = f"exceeds {INFLATED_MAX} bytes inflated" if limit else "ends in its zlib stream"
        raise BadBody(f"the registration {reason}")
    return inflated


class _Reader:
    """Reader of the length-prefixed pieces of an inflated body."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def remaining(self) -> int:
        """Number of bytes not read yet."""
        return len(self._data) - self._at

    def count(self, what: str) -> int:
        """Read the number of the elements that follow; `what` names the elements in a BadBody."""
        number = self._read_int32(what)
        # Each element has 4 length bytes, so a count is checked before any allocation.
        if not 0 <= number <= min(self.remaining // 4, TOPICS_MAX):
            raise BadBody(f"the registration claims {number} {what}")
        return number

    def read_piece(self, what: str) -> bytes:
        """Read the bytes that a length precedes; `what` names them in a BadBody."""
        size = self._read_int32(what)
        if not 0 <= size <= self.remaining:
            raise BadBody(f"the registration has a {what} of {size} bytes, {self.remaining} left")
        begin, self._at = self._at, self._at + size
        return self._data[begin : self._at]

    def _read_int32(self, what: str) -> int:
        if self.remaining < 4:
            raise BadBody(f"the registration ends before its {what}")
        value = int.from_bytes(self._data[self._at : self._at + 4], "big", signed=True)
        self._at += 4
        return value
