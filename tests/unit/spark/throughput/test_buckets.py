"""Buckets: each value has exactly one, in order, with the promised width."""

import itertools
import random

import numpy as np
import pytest

from turbopump.spark.throughput.buckets import (
    ERROR_MAX,
    EXACT_BELOW,
    STEPS,
    bucket_bounds,
    buckets_of,
)

_SHIFT = 8
"""Number of bits of the values that have their own bucket."""
AROUND_POWERS = [(1 << bits) + near for bits in range(1, 62) for near in (-2, -1, 0, 1, 2)]


def bucket_of(value: int) -> int:
    """The bucket of a value, computed with integers alone."""
    if value < EXACT_BELOW:
        return value
    exponent = value.bit_length() - _SHIFT
    return STEPS * exponent + (value >> exponent)


@pytest.mark.parametrize("seed", range(3))
def test_a_value_lies_within_the_bounds_of_its_bucket(seed: int) -> None:
    rng = random.Random(seed)
    for value in [rng.getrandbits(rng.randrange(1, 62)) for _ in range(2000)] + AROUND_POWERS:
        value = max(0, value)
        low, high = bucket_bounds(bucket_of(value))
        assert low <= value < high
        assert high - low == 1 or (high - low) / low <= ERROR_MAX
        assert value >= EXACT_BELOW or high - low == 1


def test_buckets_follow_each_other_without_a_hole() -> None:
    ends = [bucket_bounds(bucket) for bucket in range(5000)]
    assert ends[0][0] == 0
    assert all(one[1] == other[0] for one, other in itertools.pairwise(ends))
    assert [bucket_of(low) for low, _ in ends] == list(range(5000))
    assert [bucket_of(high - 1) for _, high in ends] == list(range(5000))


def test_arrays_of_values_have_the_same_buckets() -> None:
    rng = random.Random(1)
    values = [rng.getrandbits(rng.randrange(1, 63)) for _ in range(5000)]
    values += [max(0, value) for value in AROUND_POWERS] + [0, (1 << 63) - 1]
    assert buckets_of(np.array(values, np.int64)).tolist() == [bucket_of(one) for one in values]
