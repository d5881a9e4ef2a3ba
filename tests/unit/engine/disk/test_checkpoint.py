"""The checkpoint's bytes:

RocketMQ's fields at their places, Turbopump's fields only while they match.
"""

import struct
from pathlib import Path

import pytest

from turbopump.engine.disk import checkpoint as checkpoints
from turbopump.engine.disk.checkpoint import Checkpoint, DurableMarks
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.types import LogOffset

FULL = Checkpoint(
    10_000,
    9000,
    8000,
    7,
    6,
    5,
    DurableMarks(LogOffset(100), LogOffset(90), LogOffset(80), 3, 50, 40, LogOffset(30), 20),
)


def test_rocketmqs_numbers_lie_where_it_reads_them() -> None:
    data = checkpoints.encode(FULL)
    assert len(data) == 4096
    assert struct.unpack_from(">6q", data) == (10_000, 9000, 8000, 7, 6, 5)
    assert not any(data[48:2048])


def test_encoded_changes_are_decoded() -> None:
    assert checkpoints.decode(checkpoints.encode(FULL)) == FULL
    assert checkpoints.decode(checkpoints.encode(Checkpoint(1, 2, 3))) == Checkpoint(1, 2, 3)
    assert FULL.safe_timestamp_ms == 6000
    assert Checkpoint(2000, 9000).safe_timestamp_ms == 0


@pytest.mark.parametrize("at", [*range(48), *range(2048, 2172, 9), 2119, 2120, 2167, 2168, 2171])
def test_any_changed_bit_makes_our_numbers_void(at: int) -> None:
    data = bytearray(checkpoints.encode(FULL))
    data[at] ^= 1
    assert checkpoints.decode(bytes(data)).marks is None


def test_a_rocketmq_that_used_the_store_makes_them_void_too() -> None:
    data = bytearray(checkpoints.encode(FULL))
    struct.pack_into(">2q", data, 0, 20_000, 19_000)
    # RocketMQ began at our last state, so the fields that we wrote still hold.
    known = Checkpoint(10_000, 9000, 8000, 7, 6, 5, damaged=True)
    assert checkpoints.decode(bytes(data)) == known
    # A start that is killed before it has counted the queues must keep the damage mark.
    assert checkpoints.decode(checkpoints.encode(known)) == known


def test_numbers_of_rocketmq_alone_are_taken_as_they_are() -> None:
    data = bytearray(4096)
    struct.pack_into(">6q", data, 0, 6, 5, 4, 3, 2, -1)
    assert checkpoints.decode(bytes(data)) == Checkpoint(6, 5, 4, 3, 2, 0)


@pytest.mark.parametrize("at", range(48))
def test_a_flipped_bit_never_promises_more(at: int) -> None:
    data = bytearray(checkpoints.encode(FULL))
    data[at] ^= 1 << at % 7
    found = checkpoints.decode(bytes(data))
    assert found.log_timestamp_ms <= 10_000
    assert found.queue_timestamp_ms <= 9000
    assert found.index_timestamp_ms <= 8000


@pytest.mark.parametrize("data", [b"", b"\0" * 47, b"\0" * 4096, b"\xff" * 4096, b"\xff" * 2100])
def test_damage_knows_nothing(data: bytes) -> None:
    assert checkpoints.decode(data) == checkpoints.UNKNOWN


def test_files(tmp_path: Path) -> None:
    files = RealFiles()
    assert checkpoints.load(files, str(tmp_path)) == checkpoints.UNKNOWN
    checkpoints.save(files, str(tmp_path), FULL)
    checkpoints.save(files, str(tmp_path), FULL)
    assert checkpoints.load(files, str(tmp_path)) == FULL
