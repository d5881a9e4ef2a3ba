"""Requests of a load: the native code fills a template with the same bytes as net/wire encodes."""

import json
from dataclasses import replace

import pytest

from turbopump.cli.bench import frames as frames
from turbopump.cli.bench.frames import Shape, Signing, Templates
from turbopump.net.client.credentials import Credentials, signer_of
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Codec, Command, decode, encode
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.pull import PullMessageRequest
from turbopump.net.wire.headers.send import SendMessageRequest, read_send
from turbopump.net.wire.message import decode_batch
from turbopump.net.wire.properties import decode_properties
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.signature import is_signed
from turbopump.pyx.load_parts import OPAQUE_BASE, put

NOW_MS = 1_795_270_644_839
QUEUE = MessageQueue("Topic", "broker-a", 12)
PREFIX = "7F0000010001AABBCCDD"
BOTH = pytest.mark.parametrize("codec", list(Codec))


def sent(
    shape: Shape, queue: MessageQueue = QUEUE, tag: int = 0, body: bytes = b"x" * 128
) -> Command:
    made = Templates()
    frames.add_send(made, shape, MessageQueue("Other-topic", "b", 0), 0, len(body))
    number = frames.add_send(made, shape, queue, tag, len(body))
    frame = put(
        bytes(made.texts), made.rows[number], body, slot=65_534, epoch_ms=NOW_MS, serial=0xABC
    )
    command = decode(frame)
    assert b"".join(bytes(part) for part in encode(command)) == frame, "lengths agree"
    return command


def header_of(command: Command) -> SendMessageRequest:
    return read_send(command.code, command.fields)


@BOTH
def test_a_send_is_a_send(codec: Codec) -> None:
    command = sent(Shape(codec=codec, unique_prefix=PREFIX))
    assert (command.code, command.codec) == (RequestCode.SEND_MESSAGE_V2, codec)
    assert command.opaque == OPAQUE_BASE + 65_534
    assert command.body == b"x" * 128
    header = header_of(command)
    assert (header.topic, header.queue_id, header.broker_name) == ("Topic", 12, "broker-a")
    assert header.born_timestamp == NOW_MS
    assert header.producer_group == "benchmark_producer"
    assert header.batch is False
    assert decode_properties(header.properties or "") == {
        "UNIQ_KEY": PREFIX + "000000000ABC",
        "WAIT": "true",
    }


@BOTH
def test_a_send_has_the_requested_properties(codec: Codec) -> None:
    shape = Shape(codec=codec, keys=True, tag_count=3, property_size=20, delay_level=4)
    found = decode_properties(header_of(sent(shape, tag=2)).properties or "")
    assert found == {
        "KEYS": str(NOW_MS // 1000),
        "WAIT": "true",
        "DELAY": "4",
        "TAGS": "tag2",
        "prop0": "hello10",
        "prop1": "10",
        "prop2": "hello12",
        "prop3": "12",
    }


@BOTH
def test_json_and_binary_say_the_same(codec: Codec) -> None:
    shape = Shape(unique_prefix=PREFIX, keys=True)
    one, other = sent(shape), sent(replace(shape, codec=codec))
    assert one.fields == other.fields


@BOTH
@pytest.mark.parametrize("size", [1, 2047, 2048, 2049, 100_000])
def test_a_body_of_any_size(codec: Codec, size: int) -> None:
    body = frames.random_body(size)
    assert len(body) == size
    assert sent(Shape(codec=codec), body=body).body == body


@BOTH
@pytest.mark.parametrize("prefix", [PREFIX, ""])
def test_a_batch_is_a_batch(codec: Codec, prefix: str) -> None:
    shape = Shape(codec=codec, batch=3, unique_prefix=prefix)
    body, unique_at, stride = frames.batch_body(shape, b"content")
    made = Templates()
    frames.add_send(made, shape, QUEUE, 0, len(body))
    frame = put(
        bytes(made.texts),
        made.rows[0],
        body,
        epoch_ms=NOW_MS,
        serial=0xFFFF,
        batch=(3, unique_at, stride),
    )
    command = decode(frame)
    assert command.code == RequestCode.SEND_BATCH_MESSAGE
    assert header_of(command).batch is True
    elements = list(decode_batch(command.body if isinstance(command.body, bytes) else b""))
    assert [content for _, content, _ in elements] == [b"content"] * 3
    keys = [decode_properties(text).get("UNIQ_KEY") for _, _, text in elements]
    if prefix:
        assert keys == [prefix + f"{0xFFFF + number:012X}" for number in (1, 2, 3)]
    else:
        assert keys == [None] * 3


@BOTH
@pytest.mark.parametrize("offset", [0, 9, 10, 4711, 10**18, (1 << 63) - 1])
@pytest.mark.parametrize("follow", [False, True])
def test_a_pull_is_a_pull(codec: Codec, offset: int, follow: bool) -> None:
    made = Templates()
    number = frames.add_pull(made, codec, "group", QUEUE, 32, follow)
    frame = put(bytes(made.texts), made.rows[number], b"", slot=3, queue_offset=offset)
    command = decode(frame)
    assert b"".join(bytes(part) for part in encode(command)) == frame
    assert (command.code, command.opaque) == (RequestCode.PULL_MESSAGE, OPAQUE_BASE + 3)
    header = read_header(PullMessageRequest, command.fields)
    assert header.queue_offset == offset
    assert (header.topic, header.queue_id, header.max_msg_nums) == ("Topic", 12, 32)
    assert header.sys_flag == (6 if follow else 4)


def test_templates_of_one_kind_are_measured_once() -> None:
    """Ten thousand queues must not be encoded six times each."""
    made = Templates()
    for number in range(100):
        frames.add_send(made, Shape(), MessageQueue("Topic", "broker-a", number), 0, 5)
    assert len(made.rows) == 100
    assert len(made._positions) == 2  # positions of queue numbers with one digit and with two
    for number, row in enumerate(made.rows):
        frame = put(bytes(made.texts), row, b"12345", epoch_ms=NOW_MS)
        assert header_of(decode(frame)).queue_id == number


def test_padding_is_as_long_as_asked_for() -> None:
    assert frames.padding_properties(0) == {}
    for size in (1, 50, 2000):
        assert (
            sum(len(name) + len(text) for name, text in frames.padding_properties(size).items())
            > size
        )


def test_bodies_need_no_escape() -> None:
    assert json.dumps(frames.random_body(500).decode())[1:-1].encode() == frames.random_body(500)


@BOTH
@pytest.mark.parametrize("batch", [1, 4])
def test_a_signed_send_is_signed_whatever_the_native_code_fills_in(
    codec: Codec, batch: int
) -> None:
    shape = Shape(codec=codec, batch=batch, keys=True, tag_count=2, property_size=40)
    body = frames.batch_body(shape, b"x" * 128)[0] if batch > 1 else b"x" * 128
    sign = signer_of(Credentials("alice", "s3cret", "t0ken"))
    assert sign is not None
    signing = Signing(sign, body, NOW_MS)
    made = Templates()
    rows = [
        frames.add_send(made, shape, queue, tag, len(body), signing)
        for queue in (QUEUE, MessageQueue("Topic", "broker-a", 13))
        for tag in (0, 1)
    ]
    signatures = set()
    for number in rows:
        for slot in (1, 65_534):
            row = made.rows[number]
            frame = put(bytes(made.texts), row, body, slot=slot, epoch_ms=NOW_MS + slot, serial=5)
            command = decode(frame)
            assert command.opaque == OPAQUE_BASE + slot
            assert is_signed(command, "s3cret") and command.fields["AccessKey"] == "alice"
            assert header_of(command).born_timestamp == NOW_MS
            signatures.add(command.fields["Signature"])
    assert len(signatures) == 4


def test_a_signed_shape_has_no_unique_keys() -> None:
    signing = Signing(lambda request: None, b"", NOW_MS)
    with pytest.raises(AssertionError):
        frames.add_send(Templates(), Shape(unique_prefix=PREFIX), QUEUE, 0, 0, signing)
