"""CRC-32 against zlib: every path, every alignment, every length around a block."""

import ctypes
import zlib

import pytest

from turbopump.pyx.crc32 import crc32, kernel_name, masked_crc32

DATA = bytes((i * 37 + (i >> 3)) & 0xFF for i in range(5000))


@pytest.mark.parametrize("start", range(9))
def test_every_length_around_the_blocks_agrees_with_zlib(start: int) -> None:
    for length in [*range(200), 255, 256, 257, 1023, 1024, 1025, 4095, 4096, 4097]:
        piece = DATA[start : start + length]
        assert crc32(piece) == zlib.crc32(piece), length
        # The copy has no memory after its end: `make asan` reports a read beyond it.
        exact = (ctypes.c_uint8 * length).from_buffer_copy(piece)
        assert crc32(memoryview(exact)) == zlib.crc32(piece), length


def test_a_value_goes_on_where_it_was() -> None:
    for cut in range(0, 300, 7):
        assert crc32(DATA[cut:300], crc32(DATA[:cut])) == zlib.crc32(DATA[:300])


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_takes_objects_with_bytes(kind: type) -> None:
    assert crc32(kind(DATA)) == zlib.crc32(DATA)


def test_the_masked_one_is_a_positive_java_int() -> None:
    assert zlib.crc32(b"a") > 0x7FFFFFFF
    assert masked_crc32(b"a") == zlib.crc32(b"a") & 0x7FFFFFFF
    assert masked_crc32(b"") == 0


def test_says_which_kernel_runs() -> None:
    assert kernel_name() in ("pclmul", "table")


def test_refuses_objects_without_bytes() -> None:
    with pytest.raises(TypeError):
        crc32("text")  # type: ignore[arg-type]
