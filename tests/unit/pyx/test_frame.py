"""Frame boundaries: whole frames, incomplete frames, invalid frames."""

import pytest

from turbopump.pyx.frame import find_frames

MAX = 1 << 20


def frame(size: int) -> bytes:
    return (size - 4).to_bytes(4, "big") + bytes(size - 4)


def test_no_bytes_no_frames() -> None:
    assert find_frames(b"", 0, MAX) == ([], 0, 0)


def test_whole_frames_and_the_size_of_the_next() -> None:
    data = frame(8) + frame(20) + frame(30)[:5]
    assert find_frames(data, len(data), MAX) == ([(0, 8), (8, 20)], 28, 30)


def test_the_size_is_unknown_before_four_bytes() -> None:
    data = frame(8) + b"\x00\x00\x00"
    assert find_frames(data, len(data), MAX) == ([(0, 8)], 8, 0)


def test_only_the_given_length_counts() -> None:
    assert find_frames(bytearray(frame(8) * 3), 15, MAX) == ([(0, 8)], 8, 8)
    with pytest.raises(IndexError):
        find_frames(b"1234", 5, MAX)
    with pytest.raises(IndexError):
        find_frames(b"1234", -1, MAX)


def test_more_frames_than_one_round_holds() -> None:
    for count in (63, 64, 65, 128, 1000):
        found, consumed, needed = find_frames(frame(8) * count, 8 * count, MAX)
        assert found == [(8 * i, 8) for i in range(count)]
        assert (consumed, needed) == (8 * count, 0)


@pytest.mark.parametrize("length", [-1, 0, 3, -(1 << 31)])
def test_lengths_that_no_frame_has(length: int) -> None:
    data = frame(8) + length.to_bytes(4, "big", signed=True) + bytes(8)
    with pytest.raises(ValueError, match="frame at 8"):
        find_frames(data, len(data), MAX)


def test_a_frame_above_the_maximum_is_refused_before_it_is_there() -> None:
    assert find_frames(frame(MAX)[:4], 4, MAX) == ([], 0, MAX)
    with pytest.raises(ValueError, match="frame at 0"):
        find_frames((MAX - 3).to_bytes(4, "big"), 4, MAX)
    with pytest.raises(ValueError, match="frame at 0"):
        find_frames(b"\x7f\xff\xff\xff", 4, MAX)
