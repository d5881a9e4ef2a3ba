"""Frames from reads of any size, and their memory."""

import struct

import pytest

from turbopump.net.transport.peer import Peer
from turbopump.net.transport.receive_buffer import SCRATCH_SIZE, Area, Receiver
from turbopump.net.wire.command import FRAME_MAX, WireError
from turbopump.pyx.frame_memory import SIZE_MIN


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Reader:
    """Feeds a receiver as a loop does: at most the offered room at once."""

    def __init__(self, area: Area, max_frame: int = FRAME_MAX, address: int = 1) -> None:
        self.peer = Peer(f"10.0.0.{address}:1", bytes([10, 0, 0, address, 0, 0, 0, 1]), self)
        self.receiver = Receiver(area, max_frame, self)
        self.cut = False
        self.frames: list[bytes] = []

    def feed(self, data: bytes, piece: int = SCRATCH_SIZE) -> None:
        while data:
            room = self.receiver.room()
            assert len(room)
            size = min(len(room), len(data), piece)
            room[:size] = data[:size]
            self.receiver.received(size, self.take)
            data = data[size:]

    def abort(self) -> None:
        self.cut = True
        self.receiver.release()

    def take(self, frame: memoryview) -> bool:
        self.frames.append(bytes(frame))
        return True


FRAMES = [framed(b"head" + b"x" * size) for size in (0, 1, 100, 5000, 300_000)]


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 100, 4096, 100_000, SCRATCH_SIZE])
def test_the_same_frames_at_any_split(piece) -> None:
    area = Area(1 << 22)
    reader = Reader(area)
    frames = FRAMES if piece > 3 else FRAMES[:4]
    reader.feed(b"".join(frames), piece)
    assert reader.frames == frames
    assert not reader.receiver.partial
    assert area.in_use == 0


def test_an_announced_frame_costs_its_arrived_bytes() -> None:
    area = Area(1 << 30)
    reader = Reader(area)
    reader.feed(struct.pack(">i", FRAME_MAX - 4))
    assert reader.receiver.partial
    assert area.in_use == SIZE_MIN
    reader.feed(bytes(10_000))
    assert area.in_use <= 4 * 10_004
    reader.receiver.release()
    assert area.in_use == 0
    assert not reader.receiver.partial


def test_the_last_area_is_not_larger_than_the_frame() -> None:
    area = Area(1 << 30)
    reader = Reader(area)
    frame = framed(bytes(3 << 20))
    reader.feed(frame[:-1])
    assert area.in_use == len(frame)
    reader.feed(frame[-1:])
    assert reader.frames == [frame]
    assert area.in_use == 0


def test_the_oldest_incomplete_frame_is_cut_where_all_hold_too_much() -> None:
    area = Area(2 * SIZE_MIN)
    readers = [Reader(area) for _ in range(4)]
    for reader in readers:
        reader.feed(b"\0")
    assert [one.cut for one in readers] == [True, True, False, False]
    assert area.in_use == 2 * SIZE_MIN
    # A complete frame frees its room, and the next frame counts as young.
    readers[2].feed(FRAMES[1][1:] + b"\0")
    readers.append(Reader(area))
    readers[4].feed(b"\0")
    assert [one.cut for one in readers] == [True, True, False, True, False]
    for reader in readers:
        reader.receiver.release()
    assert area.in_use == 0


def test_an_address_has_its_part_of_the_budget() -> None:
    area = Area(4 * SIZE_MIN, 2 * SIZE_MIN)
    honest = [Reader(area, address=2) for _ in range(2)]
    others = [Reader(area, address=3) for _ in range(50)]
    for reader in (*honest, *others):
        reader.feed(b"\0")
    assert not any(one.cut for one in honest)
    assert sum(not one.cut for one in others) == 2
    assert area.in_use == 4 * SIZE_MIN


def test_a_frame_that_grows_cuts_others_and_not_itself() -> None:
    area = Area(1 << 20)
    first, second = Reader(area), Reader(area)
    first.feed(framed(bytes(700_000))[:-1])
    second.feed(b"\0")
    assert not first.cut and not second.cut
    second.feed(framed(bytes(900_000))[1:-1])
    assert first.cut and not second.cut
    with pytest.raises(WireError, match="hold"):
        Reader(area).feed(framed(bytes(2 << 20))[:-1])


@pytest.mark.parametrize("length", [-1, 0, 3, -(2**31), 2**31 - 1, FRAME_MAX - 3])
def test_lengths_that_no_frame_has(length) -> None:
    reader = Reader(Area(1 << 20))
    with pytest.raises(WireError):
        reader.feed(struct.pack(">i", length) + bytes(100))


@pytest.mark.parametrize("piece", [1, 5, SCRATCH_SIZE])
def test_frames_before_a_bad_length_count_at_any_split(piece) -> None:
    reader = Reader(Area(1 << 20))
    with pytest.raises(WireError):
        reader.feed(b"".join(FRAMES[:4]) + struct.pack(">i", -1) + FRAMES[0], piece)
    assert reader.frames == FRAMES[:4]


def test_stopping_drops_later_frames() -> None:
    area = Area(1 << 20)
    receiver = Reader(area).receiver
    data = FRAMES[1] * 3 + b"\0"
    receiver.room()[: len(data)] = data
    seen: list[bytes] = []
    receiver.received(len(data), lambda frame: seen.append(bytes(frame)) is not None)
    assert seen == [FRAMES[1]]
    assert area.in_use == 0
