"""Records as clients read them."""

import builtins
import zlib

import lz4.frame
import pytest
import zstandard
from tests.shortcuts.addresses import pack_host

from turbopump.engine import compression
from turbopump.engine.compression import CompressionMissing
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.message import (
    decode_batch,
    decode_messages,
    decompress_body,
    encode_batch,
)
from turbopump.net.wire.properties import encode_properties
from turbopump.pyx import record
from turbopump.pyx.region import Region

HOST = pack_host("10.0.0.5:10911")


def stored(body: bytes, *, sys_flag: int = 0, properties: bytes = b"", offset: int = 0) -> bytes:
    """A record as the log stores it."""
    area = bytearray(4096 + len(body))
    size = record.append(
        Region(area),
        0,
        len(area),
        log_offset=offset,
        topic=b"T",
        body=body,
        properties=properties,
        queue_id=3,
        flag=9,
        queue_offset=40,
        sys_flag=sys_flag,
        born_timestamp_ms=1,
        born_host=HOST,
        store_timestamp_ms=2,
        store_host=HOST,
        reconsume_times=1,
        prepared_transaction_offset=0,
        version=record.V1,
    )
    assert size > 0
    return bytes(area[:size])


def test_concatenated_records() -> None:
    properties = encode_properties({"UNIQ_KEY": "unique", "TAGS": "A"})
    body = stored(b"one", properties=properties) + stored(b"", offset=500)
    first, second = decode_messages(memoryview(body))
    assert (first.topic, first.queue_id, first.queue_offset, first.flag) == ("T", 3, 40, 9)
    assert (first.body, first.properties) == (b"one", {"UNIQ_KEY": "unique", "TAGS": "A"})
    assert first.message_id == "unique"
    assert second.message_id == second.offset_message_id == "0A00000500002A9F00000000000001F4"
    assert first.size + second.size == len(body)
    assert decode_messages(b"") == []


COMPRESSED = [
    (0x001, zlib.compress),
    (0x301, zlib.compress),
    (0x101, lz4.frame.compress),
    (0x201, zstandard.compress),
]


@pytest.mark.parametrize(("sys_flag", "compress"), COMPRESSED)
def test_compressed_bodies(sys_flag, compress) -> None:
    text = b"text " * 5000
    (message,) = decode_messages(stored(compress(text), sys_flag=sys_flag))
    assert message.body == text
    with pytest.raises(BadBody):
        decompress_body(sys_flag, b"nonsense")
    with pytest.raises(BadBody, match="ends"):
        decompress_body(sys_flag, compress(text)[:-3])


@pytest.mark.parametrize(("sys_flag", "compress"), COMPRESSED)
def test_decompression_is_bounded(sys_flag, compress, monkeypatch) -> None:
    monkeypatch.setattr(compression, "INFLATED_MAX", 1 << 20)
    with pytest.raises(BadBody, match="over"):
        decompress_body(sys_flag, compress(bytes(8 << 20)))
    assert len(decompress_body(sys_flag, compress(bytes(1 << 20)))) == 1 << 20


def test_zstandard_frames_without_a_size() -> None:
    compressor = zstandard.ZstdCompressor().compressobj()
    text = b"text " * 5000
    assert decompress_body(0x201, compressor.compress(text) + compressor.flush()) == text


def test_unknown_compression() -> None:
    with pytest.raises(BadBody, match="unknown"):
        decompress_body(0x701, b"x")


@pytest.mark.parametrize(("sys_flag", "package"), [(0x101, "lz4"), (0x201, "zstandard")])
def test_a_missing_package_is_named(sys_flag, package, monkeypatch) -> None:
    real = builtins.__import__

    def absent(name: str, *rest):
        if name.startswith(package):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(CompressionMissing, match=package):
        decompress_body(sys_flag, b"x")


def test_inner_batches_are_unwrapped() -> None:
    elements = [(n, b"body %d" % n, encode_properties({"n": str(n)})) for n in range(3)]
    properties = encode_properties({"INNER_NUM": "3", "INNER_BASE": "100"})
    body = stored(encode_batch(elements), sys_flag=0xC0, properties=properties)
    found = decode_messages(body)
    assert [one.queue_offset for one in found] == [100, 101, 102]
    assert [one.body for one in found] == [b"body 0", b"body 1", b"body 2"]
    assert [one.flag for one in found] == [0, 1, 2]
    assert found[2].properties == {"n": "2"}
    assert {one.store_host for one in found} == {HOST}


def test_damage_is_told() -> None:
    body = bytearray(stored(b"body"))
    body[88] ^= 1
    with pytest.raises(BadBody, match="changed"):
        decode_messages(body)
    assert decode_messages(body, check_crc=False)
    with pytest.raises(BadBody, match="byte 0"):
        decode_messages(b"x" * 200)
    with pytest.raises(BadBody):
        decode_messages(stored(b"body")[:-1])


def test_batch_elements_are_bounded_by_the_body() -> None:
    batch = encode_batch([(1, b"a", b"p\x01v\x02"), (2, b"", b"")])
    assert list(decode_batch(batch)) == [(1, b"a", b"p\x01v\x02"), (2, b"", b"")]
    for size in range(1, len(batch)):
        if size != 20 + 1 + 2 + 4:
            with pytest.raises(BadBody):
                list(decode_batch(batch[:size]))
    # A stored message may have any size field, which RocketMQ ignores; a sent message must have the
    # right one.
    assert list(decode_batch(batch, strict=True)) == list(decode_batch(batch))
    for size in (-8, 0, len(batch), 1 << 30):
        wrong = size.to_bytes(4, "big", signed=True) + batch[4:]
        assert len(list(decode_batch(wrong))) == 2
        with pytest.raises(BadBody, match=f"with the size {size}"):
            list(decode_batch(wrong, strict=True))
    for place in (16, 21):
        damaged = bytearray(batch)
        damaged[place] = 0xFF
        with pytest.raises(BadBody):
            list(decode_batch(damaged))


def test_properties_of_an_element_have_a_limit() -> None:
    with pytest.raises(ValueError, match="32768"):
        encode_batch([(0, b"", bytes(32768))])
