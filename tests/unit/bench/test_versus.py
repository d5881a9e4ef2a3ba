"""The comparison's command line and its tables, with invented figures."""

from pathlib import Path

import pytest
from bench.versus.__main__ import parse_arguments
from bench.versus.report import format_markdown
from bench.versus.runs import SIDES, Plan, Results
from bench.versus.targets import BESIDE, OURS, THEIRS


def plan(*sides: str) -> Plan:
    """A plan of three rounds."""
    return Plan(3, 1.0, 0.0, 1, 1, 1, sides=sides)


def measured() -> Results:
    """Results of three rounds; in the second the machine gave the load half of its time."""
    results = Results()
    for side, speeds, cpu in (
        (THEIRS, (10, 5, 10), (8, 8, 8)),
        (BESIDE, (100, 50, 100), (2, 4, 2)),
        (OURS, (90, 50, 120), (2, 2, 1)),
    ):
        for speed, us in zip(speeds, cpu, strict=True):
            results.add("sync-64x1.messages_per_s", side, speed)
            results.add("sync-64x1.cpu_us", side, us)
    return results


def test_two_trees_are_compared_round_by_round() -> None:
    page = format_markdown(measured(), plan(*SIDES, BESIDE), "5.5.0", "make versus")
    row = next(line for line in page.splitlines() if "100% (90% - 120%)" in line)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == [
        "sync flush, 64 connections x 1, 128 B",
        "10.00",
        "100",
        "90.00",
        "100% (90% - 120%)",
        "2.00",
        "2.00",
        "200% (100% - 200%)",
    ]


def test_without_another_tree_none_is_spoken_of() -> None:
    assert (
        "other"
        not in format_markdown(measured(), plan(*SIDES), "5.5.0", "make versus").split("TLS:")[1]
    )


def test_another_tree_is_a_side(tmp_path: Path) -> None:
    program = tmp_path / ".venv" / "bin" / "turbopump"
    program.parent.mkdir(parents=True)
    program.touch()
    found = parse_arguments(["--beside", str(tmp_path)])
    assert (found.sides, found.beside) == ((*SIDES, BESIDE), program)


def test_a_tree_without_its_program_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["--beside", str(tmp_path)])
    assert f"{tmp_path}/.venv/bin/turbopump does not exist" in capsys.readouterr().err
