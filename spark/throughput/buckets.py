"""Buckets of a histogram that can be added up, which make percentiles of any size from counts.

Owns the only mapping value -> bucket, for numpy and as Spark SQL. It must never need Spark.

Each value below 256 has its own bucket, so figures from them are exact. Above, every power of two
is divided into 128 buckets, so a bucket is at most 1/128 of its values wide, and a percentile given
as the mean of the values in its bucket is off by less than 0.8 %. The job keeps buckets, because
their counts can be added and percentiles cannot.

    value < 256: bucket = value
    else:        e = bits(value) - 8, bucket = 128 * e + (value >> e)
    0 1 2 ... 255 | 256 258 260 ... 510 | 512 516 520 ... 1020 | ...
"""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
"""An array of int64."""

STEPS = 128
"""Buckets per power of two."""
EXACT_BELOW = 2 * STEPS
"""Values below it have their own buckets."""
ERROR_MAX = 1 / STEPS
"""A percentile is off by less than this fraction of its value."""
_SHIFT = EXACT_BELOW.bit_length() - 1


def buckets_of(values: Ints) -> Ints:
    """Return the number of the bucket of each value of an array without negative values.

    A float that is rounded up to a power of two does no harm: both formulas give the same bucket
    there.
    """
    bits = np.frexp(np.maximum(values, EXACT_BELOW).astype(np.float64))[1].astype(np.int64)
    exponent: Ints = bits - _SHIFT
    return np.where(values < EXACT_BELOW, values, STEPS * exponent + (values >> exponent))


def bucket_bounds(bucket: int) -> tuple[int, int]:
    """Return (the least value of the bucket with this number, the least value of the next
    bucket)."""
    if bucket < EXACT_BELOW:
        return bucket, bucket + 1
    exponent = bucket // STEPS - 1
    low = (bucket - STEPS * exponent) << exponent
    return low, low + (1 << exponent)


def bucket_sql(value: str) -> str:
    """Return `buckets_of` as Spark SQL, over an expression of type BIGINT that is not negative.

    A logarithm that is rounded to the wrong side of a power of two does no harm: both formulas give
    the same bucket there.
    """
    exponent = f"(cast(floor(log2({value})) as int) - {_SHIFT - 1})"
    wide = f"cast({STEPS} * {exponent} + shiftright({value}, {exponent}) as bigint)"
    return f"(case when {value} < {EXACT_BELOW} then {value} else {wide} end)"
