"""`make sim`: a seed's run depends on its number alone, and failures are reported."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from tests.sim import __main__ as sim

GROUPS = {
    "group", "payments", "reminders", "poppers", "ordered", "acting", "escapes", "halves",
    "popped", "elected",
}  # fmt: skip
"""A seed of a whole group takes as long as ten seeds of the other suites."""
SEEDS = {suite: range(1 if suite in GROUPS else 4) for suite in sim.SUITES}


@pytest.mark.long
@pytest.mark.parametrize("part", [0, 1])
def test_a_seed_is_the_same_in_any_process(part: int) -> None:
    """The hash seed, the process id and earlier seeds must have no effect: a failing seed out of a
    million has to fail again alone. The other process plays the seeds backwards."""
    played = [(suite, seed) for suite in sorted(sim.SUITES)[part::2] for seed in SEEDS[suite]]
    here = {(suite, seed): sim.trace(suite, seed) for suite, seed in played}
    assert len(set(here.values())) == len(here)
    code = (
        "import logging; logging.disable(50); from tests.sim.__main__ import trace\n"
        f"for suite, seed in {played[::-1]}: print(trace(suite, seed))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )
    there = dict(zip(played[::-1], done.stdout.splitlines(), strict=True))
    assert [one for one in played if there[one] != here[one]] == []


class Seed:
    """A seed that fails if its number ends with 7."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def play(self) -> SimpleNamespace:
        assert self._seed % 10 != 7, f"seed {self._seed} does not hold"
        return SimpleNamespace(acked=2, ends=1)


def test_failing_seeds_are_counted_and_the_first_ones_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sim, "SUITES", {"store": Seed})
    monkeypatch.setattr(sim, "CHUNK", 3)
    monkeypatch.setattr(sys, "argv", ["sim", "--first=100", "--seeds=50", "--jobs=2"])
    assert sim.main() == 1
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("replay")] == [
        f"replay: make sim SUITE=store SEED={seed}" for seed in (107, 117, 127)
    ]
    assert "store: 50 seeds in" in out
    assert "from seed 100 on: 90 messages acknowledged, 45 power cuts and kills, 5 seeds" in out


def test_a_range_that_holds_ends_with_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sim, "SUITES", {"store": Seed})
    monkeypatch.setattr(sys, "argv", ["sim", "--first=110", "--seeds=7", "--jobs=1"])
    assert sim.main() == 0
    assert "0 seeds failed" in capsys.readouterr().out


def test_a_bug_that_fails_every_seed_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim, "SUITES", {"store": Seed})
    monkeypatch.setattr(sim, "CHUNK", 10)
    monkeypatch.setattr(sim, "FAILURES_MAX", 3)
    tally = sim.play_all("store", 0, 1000, 1, lambda tally: None)
    assert tally.failed == 3
    assert tally.seeds == 30
