"""Buckets of a histogram that can be added up: how percentiles of any size come from counts.

Owns the one mapping value -> bucket, for numpy and as Spark SQL. It must never need
Spark. Called by the throughput job (which counts per bucket) and by the report (which draws bucket
edges).

Values below 256 have a bucket each: what is computed from them is exact. Above, every power of two
is cut into 128 buckets, so a bucket is at most 1/128 of its values wide, and a percentile that is
given as the mean of the values in its bucket is off by less than 0.8 %. Counts of buckets can be
added, percentiles cannot: that is why the job keeps buckets.

    value < 256: bucket = value
    else:        e = bits(value) - 8, bucket = 128 * e + (value >> e)

    0 1 2 ... 255 | 256 258 260 ... 510 | 512 516 520 ... 1020 | ...
"""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

STEPS = 128
"""Buckets in a power of two."""
EXACT_BELOW = 2 * STEPS
ERROR_MAX = 1 / STEPS
"""A percentile is off by less than this part of its value."""
_SHIFT = EXACT_BELOW.bit_length() - 1


def buckets_of(values: Ints) -> Ints:
    """The bucket of each value of an array; none is negative. A float rounded up to a power of two
    does no harm: both formulas give the same bucket there."""
    bits = np.frexp(np.maximum(values, EXACT_BELOW).astype(np.float64))[1].astype(np.int64)
    exponent: Ints = bits - _SHIFT
    return np.where(values < EXACT_BELOW, values, STEPS * exponent + (values >> exponent))


def bounds(bucket: int) -> tuple[int, int]:
    """The least value of a bucket, and the least one above it."""
    if bucket < EXACT_BELOW:
        return bucket, bucket + 1
    exponent = bucket // STEPS - 1
    low = (bucket - STEPS * exponent) << exponent
    return low, low + (1 << exponent)


def bucket_sql(value: str) -> str:
    """The same as Spark SQL over an expression of type BIGINT that is not negative.

    A logarithm that is rounded to the wrong side of a power of two does no harm: both formulas give
    the same bucket there.
    """
    exponent = f"(cast(floor(log2({value})) as int) - {_SHIFT - 1})"
    wide = f"cast({STEPS} * {exponent} + shiftright({value}, {exponent}) as bigint)"
    return f"(case when {value} < {EXACT_BELOW} then {value} else {wide} end)"
