"""The bounds of this machine: a bare responder under the load generator, bare msync, bare copies.

Back of the envelope: a request answered one at a time costs a recv and a send on each side, some
microseconds; 32 in flight share them, and the rest is finding a frame, one copy and one fixed
answer, a tenth of a microsecond. `python -m bench.bound` measures longer, with the CPU of both
sides; brokers are held against these figures by the side-by-side run.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.bound import (
    SHAPES,
    TOPIC,
    Shape,
    compile_program,
    copy_rate,
    load,
    msync_rate,
    run_responder,
)

MESSAGES = 64_000
SECONDS = 0.3
CLOSED = [shape for shape in SHAPES if "--rate" not in shape.options]


def record_rate(benchmark: Any, group: str, rate: Callable[[], float]) -> None:
    """Record the rate per second that `rate` returns, which the measured program counts without its
    start and end."""
    benchmark.group = f"bound: {group}"
    found = benchmark.pedantic(rate, rounds=1, iterations=1)
    benchmark.extra_info["operations"] = found * benchmark.stats.stats.min


@pytest.mark.parametrize("shape", CLOSED, ids=lambda shape: shape.name)
def test_bound(benchmark: Any, shape: Shape) -> None:
    """Measure the messages per second of the load generator with a bare responder."""
    with run_responder(shape.body) as running:

        def rate() -> float:
            found = load(shape, running.address, TOPIC, "-q", str(MESSAGES))
            assert found["all_messages"] >= MESSAGES and not found["errors"]
            return float(found["messages_per_s"])

        record_rate(benchmark, shape.name, rate)


def test_bound_of_msync(benchmark: Any, tmp_path: Path) -> None:
    """Measure the msyncs of a page per second."""
    program = compile_program(tmp_path)
    record_rate(benchmark, "msync of a page", lambda: msync_rate(program, tmp_path, SECONDS))


@pytest.mark.parametrize("size", [128, 1024])
def test_bound_of_copies(benchmark: Any, tmp_path: Path, size: int) -> None:
    """Measure the records per second that are copied into a warm mapping."""
    program = compile_program(tmp_path)
    name = f"copies of {size} B records"
    record_rate(benchmark, name, lambda: copy_rate(program, tmp_path, size, SECONDS))
