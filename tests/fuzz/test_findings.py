"""Inputs that once broke something, and a few seeds, through every fuzz target, without a fuzzer.

A file of findings/TARGET is named by the runner that found it, or after the fault.
"""

import os
import subprocess
from itertools import islice
from pathlib import Path

import pytest

from tests.fuzz import native, targets
from tests.fuzz.seeds import seeds_of

FINDINGS = Path(__file__).parent / "findings"
KEPT = sorted(FINDINGS.rglob("*.bin"))
SEEDS = 40  # of each target


def few_seeds(name: str) -> list[bytes]:
    seeds = [b"", b"\0", *islice(seeds_of(name), 4000)]
    return seeds[:: max(1, len(seeds) // SEEDS)]


@pytest.mark.parametrize("name", targets.TARGETS)
def test_seeds_of_python_targets(name: str) -> None:
    assert len(few_seeds(name)) > 2
    for seed in few_seeds(name):
        targets.run(name, seed)


@pytest.mark.parametrize("name", targets.TARGETS)
def test_findings_of_python_targets(name: str) -> None:
    for path in KEPT:
        if path.parent.name == name:
            targets.run(name, path.read_bytes())


def test_every_finding_has_its_target() -> None:
    names = {path.parent.name for path in KEPT}
    assert names <= {*native.NAMES, *targets.TARGETS}
    assert not set(native.NAMES) & set(targets.TARGETS)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The native targets, built by the C compiler with sanitizers. The build has a limit of its own
    (native.BUILD_S), which is not taken from the first test's time."""
    return native.build_replays(tmp_path_factory.mktemp("native"))


@pytest.mark.timeout(120, func_only=True)
@pytest.mark.parametrize("name", native.NAMES)
def test_native_targets(name: str, programs: dict[str, Path], tmp_path: Path) -> None:
    """Over seeds and findings."""
    inputs = [path for path in KEPT if path.parent.name == name]
    for number, seed in enumerate(few_seeds(name)):
        inputs.append(tmp_path / f"seed-{number}")
        inputs[-1].write_bytes(seed)
    done = subprocess.run(
        [programs[name], *inputs],
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1"},
    )
    assert done.returncode == 0, done.stderr
