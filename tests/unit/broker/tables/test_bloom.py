"""Bits of filters, as RocketMQ 5.5.0's BloomFilter places them."""

import pytest

from turbopump.broker.tables.bloom import BloomFilter

KNOWN = [
    (20, 32, 3, 112, "g#T", (90, 68, 28)),
    (20, 32, 3, 112, "", (0, 0, 0)),
    (20, 32, 3, 112, "CID_a#TopicTest", (6, 44, 82)),
    (10, 128, 4, 616, "0123456789abcdef", (11, 215, 508, 304)),
    (10, 128, 4, 616, "0123456789abcdef0", (452, 459, 466, 473)),
    (10, 128, 4, 616, "组#主题", (38, 9, 19, 48)),
    (50, 1, 1, 8, "g#T", (2,)),
]


@pytest.mark.parametrize(("rate", "expected", "hashes", "bits", "text", "positions"), KNOWN)
def test_positions(
    rate: int, expected: int, hashes: int, bits: int, text: str, positions: tuple[int, ...]
) -> None:
    bloom = BloomFilter(rate, expected)
    assert (bloom.hash_count, bloom.bit_count) == (hashes, bits)
    assert bloom.bit_positions(text) == positions
    assert len(bloom.bit_map(positions)) == bits // 8
