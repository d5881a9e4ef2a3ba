"""Histograms show the measurements: no bar is finer than a bucket."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from turbopump.spark.plots import BINS, _bin_edges, _in_bins, draw_histogram
from turbopump.spark.throughput.buckets import bucket_bounds, buckets_of


def test_messages_that_all_took_nothing_are_one_bar() -> None:
    """Measured: 1,355,657 of 1,399,369 messages of a real run had exactly 0 ms."""
    buckets = [(0, 1, 1_355_657), (1, 2, 40_000), *((ms, ms + 1, 9) for ms in range(2, 240))]
    edges = _bin_edges(buckets)
    counts = _in_bins(buckets, edges)
    assert edges[:2] == [0.0, 1.0] and counts[0] == 1_355_657
    assert "<svg" in draw_histogram(1, [(buckets, "#123456")], "ms")


@given(st.lists(st.tuples(st.integers(0, 1 << 50), st.integers(1, 1000)), max_size=200))
def test_each_bucket_is_counted_in_one_bar(values) -> None:
    found = buckets_of(np.array([value for value, _ in values], np.int64))
    buckets = [
        (*bucket_bounds(int(bucket)), count)
        for bucket, (_, count) in zip(found, values, strict=True)
    ]
    edges = _bin_edges(buckets)
    assert edges == sorted(set(edges)) and 2 <= len(edges) <= BINS + 1
    assert not any(low < edge < high for edge in edges for low, high, _ in buckets)
    counts = _in_bins(buckets, edges)
    assert sum(counts) == sum(count for _, _, count in buckets)
    for low, high, count in buckets:
        assert any(
            edges[at] <= low and high <= edges[at + 1] and counts[at] >= count
            for at in range(len(counts))
        )
