"""Garbage collection in a serving process: objects seen by a long collection are skipped by later
ones."""

import gc
from collections.abc import Iterator

import pytest

from turbopump.cli.gc_tuning import FROZEN_OVER_MS, GcTuning

ROWS = 50_000


class Clock:
    """A clock that advances by `step_ms` at each call."""

    def __init__(self, step_ms: float) -> None:
        self.step_ms, self.now_ms = step_ms, 0.0

    def __call__(self) -> float:
        self.now_ms += self.step_ms
        return self.now_ms


@pytest.fixture
def quiet() -> Iterator[None]:
    """Disable collections, except for the test's own."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    ("step_ms", "looked_at"), [(FROZEN_OVER_MS + 1, False), (FROZEN_OVER_MS - 1, True)]
)
def test_objects_of_a_long_collection_are_looked_at_once(
    quiet: None, step_ms: float, looked_at: bool
) -> None:
    gc_tuning = GcTuning(Clock(step_ms))
    gc_tuning.begin_freezing()
    try:
        rows = [[[]] for _ in range(ROWS)]
        gc.collect(1)
        assert len(gc.get_objects(generation=2)) >= ROWS
        gc.collect()
        assert (len(gc.get_objects(generation=2)) >= ROWS) is looked_at
        del rows
    finally:
        gc_tuning.end_freezing()
    assert gc.get_freeze_count() == 0
    assert gc_tuning not in gc.callbacks
