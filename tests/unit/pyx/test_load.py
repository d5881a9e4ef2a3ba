"""The load generator's kernels: histogram, requests, responses.

Its traffic is tested in tests/integration/cli.
"""

import ctypes
import random
import struct
from typing import Any

import pytest

from turbopump.pyx.load import WINDOW_MAX, Load
from turbopump.pyx.load_parts import OPAQUE_BASE, Histogram, count_records, put, put_replay, read

JSON, ROCKETMQ = 0, 1
MAGIC = 0xDAA320A7


def frame(header: bytes, body: bytes = b"", codec: int = JSON) -> bytes:
    size = 4 + len(header) + len(body)
    return struct.pack(">ii", size, codec << 24 | len(header)) + header + body


def binary(code: int, opaque: int, fields: dict[str, str], remark: str = "") -> bytes:
    pairs = b"".join(
        struct.pack(">h", len(k)) + k.encode() + struct.pack(">i", len(v)) + v.encode()
        for k, v in fields.items()
    )
    fixed = struct.pack(">hbhiii", code, 3, 513, opaque, 1, len(remark))
    return frame(fixed + remark.encode() + struct.pack(">i", len(pairs)) + pairs, codec=ROCKETMQ)


def record(body: bytes, born_ms: int, magic: int = MAGIC) -> bytes:
    head = struct.pack(">IIiiqqi", magic, 0, 0, 0, 0, 0, 0)
    tail = struct.pack(">q8sq8siq", born_ms, bytes(8), 0, bytes(8), 0, 0)
    texts = struct.pack(">i", len(body)) + body + b"\x01T" + b"\x00\x00"
    return struct.pack(">i", 4 + len(head) + len(tail) + len(texts)) + head + tail + texts


def rank_of(values: list[int], share: float) -> int:
    """A slow model: the smallest value that at least `share` of all do not exceed."""
    ordered = sorted(values)
    count = share * len(ordered)
    return ordered[max(int(count) + (count > int(count)), 1) - 1]


@pytest.mark.parametrize("seed", range(8))
def test_percentiles_are_those_of_a_sorted_list(seed: int) -> None:
    chosen = random.Random(seed)
    values = [int(chosen.lognormvariate(12, 3)) for _ in range(2000)]
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    assert histogram.total == len(values)
    assert histogram.max == max(values)
    for share in (0, 0.01, 0.5, 0.9, 0.99, 0.999, 0.9999, 1):
        exact = rank_of(values, share)
        assert exact <= histogram.at(share) <= exact + exact // 1000, share


def test_small_values_are_exact_and_huge_ones_are_kept_as_the_largest() -> None:
    histogram = Histogram()
    for value in (0, 1, 2047):
        histogram.record(value)
    assert histogram.counts() == [(0, 1), (1, 1), (2047, 1)]
    histogram.record(1 << 50)
    histogram.record(-5)
    assert histogram.counts()[0] == (0, 2)
    assert histogram.counts()[-1] == ((1 << 40) - 1, 1)
    assert histogram.max == histogram.at(1) == 1 << 50
    assert Histogram().at(0.5) == 0


@pytest.mark.parametrize("bits", range(11, 40))
def test_each_count_is_a_thousandth_wide(bits: int) -> None:
    for value in (1 << bits, (1 << bits) + 12345 % (1 << bits), (2 << bits) - 1):
        histogram = Histogram()
        histogram.record(value)
        ((upper, _),) = histogram.counts()
        assert value <= upper <= value + value // 1000


JSON_RESPONSE = (
    b'{"code":0,"extFields":{"queueId":"3","nextBeginOffset":"4711","msgId":"AB"},"flag":1,'
    b'"language":"JAVA","opaque":1000000007,"serializeTypeCurrentRPC":"JSON","version":513}'
)


def test_answers_are_read_from_both_headers() -> None:
    names = ["nextBeginOffset", "minOffset", "extOffset"]
    assert read(frame(JSON_RESPONSE, b"x" * 9), names) == (
        0,
        OPAQUE_BASE + 7,
        b"",
        {"nextBeginOffset": 4711},
    )
    fields = {"nextBeginOffset": "4711", "minOffset": "-1"}
    got = read(binary(19, OPAQUE_BASE + 7, fields, "no more"), names)
    assert got == (19, OPAQUE_BASE + 7, b"no more", {"nextBeginOffset": 4711, "minOffset": -1})


def test_answers_are_read_whatever_the_order_and_the_blanks() -> None:
    header = b'{ "opaque" : -12, "remark":"a \\"code\\":9 \\\\", "code" : 17}'
    assert read(frame(header)) == (17, -12, b'a \\"code\\":9 \\\\', {})


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        bytes(7),
        frame(b""),
        frame(b"{}"),
        frame(b'{"code":0}'),
        frame(b'{"opaque":1}'),
        frame(b'{"code":"x","opaque":1}'),
        frame(b'{"code":0,"opaque":'),
        struct.pack(">ii", 4, 100),
        frame(bytes(20), codec=ROCKETMQ),
        frame(bytes(30), codec=2),
    ],
)
def test_an_invalid_answer_is_refused(bad: bytes) -> None:
    assert read(bad) is None


def test_damaged_answers_are_never_read_beyond_their_end() -> None:
    """The test is most useful with the sanitizers."""
    chosen = random.Random(5)
    whole = [frame(JSON_RESPONSE), binary(0, 7, {"nextBeginOffset": "12", "a": "b"}, "remark")]
    for _ in range(4000):
        damaged = bytearray(chosen.choice(whole))
        for _ in range(chosen.randrange(1, 4)):
            damaged[chosen.randrange(8, len(damaged))] = chosen.randrange(256)
        read(bytes(damaged), ["nextBeginOffset", "zz"])


def test_records_are_counted() -> None:
    body = record(b"one", 5) + record(b"", 6) + record(b"x" * 100, 7)
    assert count_records(body) == (3, 7)
    assert count_records(b"") == (0, 0)
    assert count_records(body, check_crc=True)[0] == -1  # these have no CRC


@pytest.mark.parametrize("cut", [1, 50, 90, 94])
def test_an_invalid_sequence_of_records_is_reported(cut: int) -> None:
    assert count_records(record(b"one", 5)[:-cut])[0] == -1
    assert count_records(record(b"one", 5) + bytes(cut))[0] == -1
    assert count_records(record(b"one", 5, magic=MAGIC + 1))[0] == -1


def test_a_template_must_lie_in_its_text() -> None:
    for row in [(0, 11, 0, 0, 0, 0, 0, 0), (5, 6, 0, 0, 0, 0, 0, 0), (0, 40, 31, 0, 0, 0, 0, 0)]:
        with pytest.raises(ValueError, match="reaches out"):
            put(b"0123456789", row, b"")


def test_a_run_refuses_addresses_outside_its_memory() -> None:
    row = (0, 60, 10, 20, 0, 40, 0, 0)
    load = Load(bytes(60), [row], b"body", connections=1, queues=1)
    for first, count in [(0, 0), (0, 2), (1, 1)]:
        with pytest.raises(ValueError, match="no such templates"):
            load.add_sender(0, 1, first, count)
    for window in (0, WINDOW_MAX + 1):
        with pytest.raises(ValueError, match="a window of"):
            load.add_sender(0, window, 0, 1)
    with pytest.raises(ValueError, match="no such template of a pull"):
        load.add_puller(0, [(0, 0, 9)])
    with pytest.raises(ValueError, match="no room for another"):
        Load(b"", [], b"", connections=0).add_puller(0, [(0, 0, 9)])
    with pytest.raises(ValueError, match="a batch reaches out"):
        load.set_batch(2, 1, 4)


def exact(data: bytes) -> Any:
    """Memory of exactly that size, so that a sanitizer reports a byte too many."""
    return (ctypes.c_uint8 * len(data)).from_buffer_copy(data)


@pytest.mark.parametrize("per_send", [1, 3])
def test_bodies_of_a_corpus_are_read_to_their_last_byte(per_send: int) -> None:
    bodies = [b"first", b"", b"x" * 301, b"last"]
    ends = (ctypes.c_int64 * 4)(5, 5, 306, 310)
    starts = (ctypes.c_int64 * 4)(0, 5, 5, 306)
    properties = b"UNIQ_KEY\x01" + b"0" * 12 + b"\x02"
    element = struct.pack(">5iH", 22 + len(properties), 0, 0, 0, 0, len(properties)) + properties
    header = b'{"opaque":1000000000,"born":1000000000000}'
    row = (0, 8 + len(header), 18, 36, 0, 0, 0, JSON)
    requests = put_replay(
        frame(header),
        row,
        exact(b"".join(bodies)),
        memoryview(starts).cast("B").cast("q"),
        memoryview(ends).cast("B").cast("q"),
        element=element if per_send > 1 else b"",
        unique_at=31 if per_send > 1 else 0,
        per_send=per_send,
        serial=0xAB,
        count=4,
    )
    sent = []
    for number, request in enumerate(requests):
        size, head = struct.unpack_from(">ii", request)
        assert (size, head) == (len(request) - 4, len(header))
        rest = request[8 + len(header) :]
        if per_send == 1:
            sent.append(rest)
            continue
        for at in range(per_send):
            total, *zeros, length = struct.unpack_from(">5i", rest)
            assert (total, zeros) == (len(element) + length, [0, 0, 0])
            sent.append(rest[20 : 20 + length])
            serial = f"{0xAB + number * per_send + at:012X}".encode()
            assert rest[20 + length : total] == element[20:31] + serial + b"\x02"
            rest = rest[total:]
        assert rest == b""
    assert sent == bodies * per_send
