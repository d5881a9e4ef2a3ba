"""A log copied to replicas, beside a bare `sendfile` loop; and sends that wait for replicas.

The sends are compared with a broker without replicas.

Back of the envelope: a gigabyte by `sendfile` costs the receiver a copy out of the socket into
fresh pages, 0.4 s here; a replica writes its queues and index besides. A send that waits is one
more round trip, some 50 us of two processes, shared by all sends in flight.

`python -m bench.replication` measures longer, with the CPU of all sides.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.replication.loop import compile_program, measure_bare
from bench.replication.pairs import LOADS, measure_side, run_pair
from bench.versus.servers import KINDS
from bench.versus.targets import OURS

SIZE = 256 << 20
SECONDS = 0.5
WARMUP_S = "0.1"


def record_rate(benchmark: Any, group: str, found: Callable[[], float]) -> None:
    """Record the rate per second that `found` returns, measured without start and end of
    the processes."""
    benchmark.group = f"replication: {group}"
    rate = benchmark.pedantic(found, rounds=1, iterations=1)
    benchmark.extra_info["operations"] = rate * benchmark.stats.stats.min


@pytest.mark.parametrize("replicas", [1, 2])
def test_sendfile_limit(benchmark: Any, tmp_path: Path, replicas: int) -> None:
    """Measure the bytes per second that the bare sendfile loop copies to each receiver."""
    program = compile_program(tmp_path)
    name = f"bytes to each of {replicas}"
    record_rate(
        benchmark, name, lambda: measure_bare(program, tmp_path, SIZE, replicas).bytes_per_s
    )


@pytest.mark.parametrize("replicas", [1, 2])
def test_replicas(benchmark: Any, replicas: int) -> None:
    """Measure the bytes per second that empty replicas copy, and sends that wait for them; their
    latencies go into the report of the run."""

    def rate() -> float:
        found = measure_side(OURS, replicas, SIZE, SECONDS, warm_up_s=0)
        benchmark.extra_info["latency_us"] = {
            f"{replicas} replicas, {name}": (load.p50_us, load.p99_us)
            for name, load in found.sent.items()
        }
        return found.copied.bytes_per_s

    record_rate(benchmark, f"bytes to each of {replicas}", rate)


def test_alone(benchmark: Any) -> None:
    """Measure sends that wait for no replica."""

    def rate() -> float:
        rates = []
        with run_pair(KINDS[OURS]) as group:
            for name, options in LOADS.items():
                load = group.load(*options, "--warmup", WARMUP_S, "--duration", str(SECONDS))
                latency = (load["latency_us"]["p50"], load["latency_us"]["p99"])
                latencies = benchmark.extra_info.setdefault("latency_us", {})
                latencies[f"no replica, {name}"] = latency
                rates.append(load["messages_per_s"])
        return float(rates[0])

    record_rate(benchmark, "sends that wait for no replica", rate)
