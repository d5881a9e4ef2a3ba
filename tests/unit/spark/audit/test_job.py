"""The command: its report, its exit codes, and that it needs neither Spark nor much memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.spark.audit.conftest import FILE_SIZE, Group

from turbopump.spark.audit import facts
from turbopump.spark.audit.claims import Judgement
from turbopump.spark.audit.job import main, run
from turbopump.spark.audit.ledger import Claim, digest_of

Output = pytest.CaptureFixture[str]


def arguments(group: Group) -> list[str]:
    stores = [f"{name}={group.root(name)}" for name in group.logs]
    return [*stores, "--local", "--ledger", str(group.ledger())]


def test_the_report(group: Group, capsys: Output) -> None:
    assert main(arguments(group)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("b: log from 0 to ") and lines[1].endswith("epoch 6, leads")
    assert [line.split()[1] for line in lines[3:]] == ["holds"] * 8
    assert main([*arguments(group), "--json", "--leader", "c"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["broken"], found["leader"], len(found["verdicts"])) == (False, "c", 8)


def test_a_broken_promise(group: Group, capsys: Output) -> None:
    group.entries.append(Claim(False, "T", 1, 4000, digest_of(b"gone"), log_offset=100))
    assert main([*arguments(group), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    verdict = next(one for one in found["verdicts"] if one["outcome"] == "violated")
    assert verdict["verdict"] == "acked-survives" and verdict["more"] == 0
    first = verdict["findings"][0]
    assert (first["topic"], first["queue"], first["queueOffset"]) == ("T", 1, 4000)
    assert first["what"].endswith("its body or key is found nowhere else")
    assert main(arguments(group)) == 1
    assert "VIOLATED" in capsys.readouterr().out


def test_unusable_stores(group: Group, tmp_path: Path, capsys: Output) -> None:
    def refused(arguments: list[str]) -> str:
        assert main([*arguments, "--local"]) == 2
        found = capsys.readouterr()
        assert not found.out
        return found.err

    store = str(group.root("a"))
    assert "it has no folder commitlog" in refused([str(tmp_path / "nothing")])
    assert "two stores have one name" in refused([store, store])
    assert "no store is named d" in refused([store, "--leader", "d"])
    assert "No such file" in refused([store, "--ledger", str(tmp_path / "none.jsonl")])
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{}\n")
    assert "broken.jsonl: the line at byte 0" in refused([store, "--ledger", str(broken)])
    (group.root("a") / "commitlog" / f"{FILE_SIZE:020d}").unlink()
    assert "does not go on where" in refused([store])


def test_no_spark_is_needed(group: Group) -> None:
    """Spark is not imported either: a JVM takes a second and a gigabyte."""
    code = (
        "import sys; from turbopump.spark.audit.job import main; code = main(sys.argv[1:]); "
        "assert 'pyspark' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments(group)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_nothing_is_changed(group: Group) -> None:
    def state() -> dict[Path, tuple[int, bytes]]:
        files = [path for path in group.folder.rglob("*") if path.is_file()]
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    options = group.options()
    before = state()
    run(None, options)
    assert state() == before


def test_claims_are_judged_in_rounds(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round holds a bounded number of claims, and all rounds together give the same result."""
    group.entries.append(Claim(False, "T", 1, 4000, digest_of(b"gone"), log_offset=100))
    expected = group.audit()
    rounds: list[int] = []
    whole = facts.judge_in_rounds

    def small(*args: object) -> Judgement:
        return whole(*args, count=10)  # type: ignore[arg-type]

    real = facts.facts_of
    monkeypatch.setattr(
        facts,
        "facts_of",
        lambda task, wanted=None: rounds.append(len(wanted or ())) or real(task, wanted),
    )
    monkeypatch.setattr("turbopump.spark.audit.executors.judge_in_rounds", small)
    assert group.audit().members() == expected.members()
    assert max(rounds) <= 10
