"""The throughput job without Spark: percentiles, its command, and that it needs no Spark."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.spark_stores import NOW_MS, fill, model_rows, opened

from turbopump.spark.throughput import local_tables
from turbopump.spark.throughput.job import main
from turbopump.spark.throughput.statistics import compute_percentile


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two outages of three seconds."""
    root = tmp_path_factory.mktemp("local") / "store"
    with opened(root) as made:
        for seed, first_ms in ((1, 0), (2, 4_000), (3, 8_000)):
            fill(made, 100, seed=seed, first_ms=NOW_MS + first_ms)
    return root


@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_percentiles_are_numpys(count: int) -> None:
    rng = np.random.default_rng(count)
    values = np.sort(rng.permutation(1000)[:count].astype(np.float64))
    counts = rng.integers(1, 50, count)
    whole, ends = np.repeat(values, counts), list(np.cumsum(counts))
    for part in (0.0, 0.5, 0.99, 0.999, 1.0):
        expected = np.percentile(whole, part * 100)
        assert compute_percentile(list(values), ends, part) == pytest.approx(expected, rel=1e-12)


def test_the_command_tells_short_silences(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    assert main([str(store), "--local", "--html", str(page)]) == 0
    output = capsys.readouterr().out
    assert "300 messages" in output and "0 of stores" in output
    assert "longest silences of a store: 3,010 ms from 2023-11-14T22:13:20.990Z, 3,010 ms" in output
    assert "Longest silences" in page.read_text()
    assert main([str(store), "--local", "--json", "-t", "topic-1", "--queue", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = [r for r in model_rows(store) if (r["topic"], r["queue_id"]) == ("topic-1", 2)]
    assert found["totals"]["messages"] == len(rows)
    assert found["totals"]["duplicate_offsets"] == found["totals"]["missing_offsets"] == 0
    assert found["totals"]["bytes"] == sum(row["size"] for row in rows)
    assert main([str(store), "--local", "-t", "none"]) == 0
    assert "no message" in capsys.readouterr().out


def test_unsupported_analyses_are_reported(
    store: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for words, sentence in (
        (["--output", str(tmp_path / "out")], "--output is Spark's work: leave --local out"),
        (["--copy", str(store)], "--copy is Spark's work"),
        (["--stall-seconds", "0"], "at least one second"),
    ):
        assert main([str(store), "--local", *words]) == 2
        assert sentence in capsys.readouterr().err
    assert main([str(tmp_path / "nowhere"), "--local"]) == 2
    assert "nowhere" in capsys.readouterr().err
    monkeypatch.setattr(local_tables, "CELLS_MAX", 10)
    monkeypatch.setattr(local_tables, "MERGED_AT", 1)
    assert main([str(store), "--local"]) == 2
    assert "too large for --local: it has more than 10 cells" in capsys.readouterr().err


def test_it_needs_no_spark(store: Path) -> None:
    code = (
        "import sys; from turbopump.spark.throughput.job import main\n"
        f"main([{str(store)!r}, '--local'])\n"
        "assert not [name for name in sys.modules if name.startswith(('pyspark', 'py4j'))]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
