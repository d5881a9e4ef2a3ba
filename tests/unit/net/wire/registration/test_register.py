"""Registrations: both encodings, and bodies that claim more than they hold."""

import struct
import zlib

import pytest

from turbopump.engine import fastjson
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.registration.register import INFLATED_MAX, RegisterBrokerBody, body_crc32
from turbopump.net.wire.topics import DataVersion, TopicConfig, TopicConfigs


def sample() -> RegisterBrokerBody:
    topics = TopicConfigs(
        DataVersion(3, 1, 9),
        {"A": TopicConfig("A", 4, 4), "B": TopicConfig("B", 1, 1, attributes={"k": "v"})},
        topic_queue_mapping_info_map={"A": {"topic": "A", "totalQueues": 4}},
    )
    return RegisterBrokerBody(topics, ["filter:1"])


@pytest.mark.parametrize("compressed", [False, True])
def test_round_trip(compressed) -> None:
    body = sample().encode(compressed=compressed)
    assert RegisterBrokerBody.decode(body, compressed=compressed) == sample()


def test_the_body_equals_fastjsons_text_of_the_beans() -> None:
    many = RegisterBrokerBody(
        TopicConfigs(
            DataVersion(1, 2, 3),
            {
                name: TopicConfig(name, 4, 4, attributes={"k": "\n\t"})
                for name in ("b", 'a"', "%ü", "c")
            },
        )
    )
    for body in (sample(), many, RegisterBrokerBody()):
        beans = {
            "filterServerList": body.filter_server_list,
            "topicConfigSerializeWrapper": body.topics.to_json(),
        }
        assert body.encode().decode() == fastjson.dumps(beans)


def test_topics_are_not_encoded_anew_for_each_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = {f"T{number}": TopicConfig(f"T{number}") for number in range(300)}
    first = RegisterBrokerBody(TopicConfigs(topic_config_table=topics)).encode()
    monkeypatch.setattr(TopicConfig, "to_json", None)
    assert RegisterBrokerBody(TopicConfigs(topic_config_table=topics)).encode() == first


def test_old_brokers() -> None:
    bare = sample().topics.encode()
    assert RegisterBrokerBody.decode(bare, version=36) == RegisterBrokerBody(sample().topics)
    body = RegisterBrokerBody.decode(sample().encode(compressed=True), compressed=True, version=400)
    assert body.topics.topic_queue_mapping_info_map == {}


def test_nothing_registered() -> None:
    assert RegisterBrokerBody.decode(b"") == RegisterBrokerBody()
    assert RegisterBrokerBody.decode(b"{}") == RegisterBrokerBody()


def test_crc_is_masked() -> None:
    assert body_crc32(b"abc") == zlib.crc32(b"abc") & 0x7FFFFFFF


def compressed_body(*pieces: bytes) -> bytes:
    return zlib.compress(b"".join(pieces))


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


VERSION = sized(b'{"counter":1}')


@pytest.mark.parametrize(
    "body",
    [
        b"not zlib",
        zlib.compress(b"x" * 100)[:-6],
        compressed_body(),
        compressed_body(struct.pack(">i", 2**31 - 1)),
        compressed_body(struct.pack(">i", -1)),
        compressed_body(sized(b"no json")),
        compressed_body(VERSION),
        compressed_body(VERSION, struct.pack(">i", 2**31 - 1)),
        compressed_body(VERSION, struct.pack(">i", -1)),
        compressed_body(VERSION, struct.pack(">i", 1), sized(b"one word")),
        compressed_body(VERSION, struct.pack(">i", 1), struct.pack(">i", 1000), b"T"),
        compressed_body(VERSION, struct.pack(">i", 0), sized(b"{}")),
        compressed_body(VERSION, struct.pack(">i", 0), sized(b"[]"), struct.pack(">i", 9)),
        compressed_body(
            VERSION, struct.pack(">i", 0), sized(b"[]"), struct.pack(">i", 1), sized(b"{}")
        ),
        zlib.compress(bytes(INFLATED_MAX + 1)),
    ],
)
def test_malformed(body) -> None:
    with pytest.raises(BadBody):
        RegisterBrokerBody.decode(body, compressed=True)
