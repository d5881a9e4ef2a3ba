"""Bits of a bit map for a consumer group's filter.

Owns RocketMQ's BloomFilter: Guava's murmur3_128 and the bit positions made from it (store.md 12).
It must never know a filter.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, e, log
from typing import Final

_MASK: Final = (1 << 64) - 1
_FIRST, _SECOND = 0x87C37B91114253D5, 0x4CF5AD432745937F


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """Parameters of RocketMQ's BloomFilter: `error_rate` is a percentage (1 to 99), `expected` the
    number of filters that share a bit map."""

    error_rate: int
    expected: int

    @property
    def hash_count(self) -> int:
        """Number of bit positions per filter; some may coincide."""
        return ceil(log(self.error_rate / 100) / log(0.5))

    @property
    def bit_count(self) -> int:
        """Number of bits in a bit map, a multiple of 8."""
        wanted = ceil(self.expected * (log(100 / self.error_rate) / log(2)) * (log(e) / log(2)))
        return 8 * ceil(wanted / 8)

    def bit_positions(self, text: str) -> tuple[int, ...]:
        """The `hash_count` bit numbers of a text (RocketMQ's is `group#topic`), in the order of its
        hashes, perhaps with repeats."""
        low = murmur3(text.encode(errors="surrogatepass"))
        first, second = low & 0xFFFFFFFF, low >> 32
        found = []
        for number in range(1, self.hash_count + 1):
            both = (first + number * second) & 0xFFFFFFFF
            both = both ^ 0xFFFFFFFF if both >> 31 else both
            found.append(both % self.bit_count)
        return tuple(found)

    def bit_map(self, positions: Iterable[int]) -> bytes:
        """Build a map of `bit_count` bits with these bits set: bit n is bit n % 8, from the lowest,
        of byte n // 8 (RocketMQ: BitsArray)."""
        bits = bytearray(self.bit_count // 8)
        for position in positions:
            bits[position // 8] |= 1 << position % 8
        return bytes(bits)


def _rotate_left(value: int, by: int) -> int:
    """Rotate a 64-bit number left by `by` bits."""
    return (value << by | value >> (64 - by)) & _MASK


def _finalize(value: int) -> int:
    """The finalizer of murmur3 for a 64-bit number."""
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


def murmur3(data: bytes) -> int:
    """The first 8 bytes of Guava's murmur3_128 of `data` with seed 0, as an unsigned little-endian
    number."""
    one = other = 0
    padded = data + bytes(-len(data) % 16)
    for at in range(0, len(padded), 16):
        low = int.from_bytes(padded[at : at + 8], "little")
        high = int.from_bytes(padded[at + 8 : at + 16], "little")
        is_tail = at + 16 > len(data)
        one ^= _rotate_left(low * _FIRST & _MASK, 31) * _SECOND & _MASK
        if not is_tail:
            one = (_rotate_left(one, 27) + other & _MASK) * 5 + 0x52DCE729 & _MASK
        other ^= _rotate_left(high * _SECOND & _MASK, 33) * _FIRST & _MASK
        if not is_tail:
            other = (_rotate_left(other, 31) + one & _MASK) * 5 + 0x38495AB5 & _MASK
    one, other = one ^ len(data), other ^ len(data)
    one = one + other & _MASK
    other = other + one & _MASK
    one, other = _finalize(one), _finalize(other)
    return one + other & _MASK
