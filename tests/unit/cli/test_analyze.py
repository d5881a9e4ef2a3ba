"""`turbopump analyze`: help without any extra, arguments, and a folder of `up` as the argument."""

import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from turbopump.cli.analyze import app
from turbopump.cli.errors import UserError
from turbopump.spark.commands.parsers import PARSERS
from turbopump.spark.commands.stores import SeveralStores, named_stores, one_store, stores_in
from turbopump.spark.session import use_this_python

ROOT = Path(__file__).resolve().parents[3]
BLOCKED = """
import sys
for name in {blocked}: sys.modules[name] = None
"""


def run_without(packages: set[str], code: str) -> str:
    """The output of a fresh interpreter that cannot import these packages."""
    program = BLOCKED.format(blocked=sorted(packages)) + code
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_needs_no_extra() -> None:
    packages = {"pyarrow", "numpy", "pyspark", "mmap_ninja", "matplotlib"}
    output = run_without(
        packages,
        """
from turbopump.cli.analyze import app
for job in ("throughput", "truncation", "rebalance", "export"):
    try:
        app([job, "--help"])
    except SystemExit as ended:
        assert not ended.code, ended.code
""",
    )
    for job, parser in PARSERS.items():
        assert f"Usage: turbopump analyze {job} " in output
        assert all(f"--{name}" in output for name in ("json", "master", "verbose"))
        assert parser().prog == f"turbopump analyze {job}"
    assert "--ledger" in output and "╭─ Options" in output


def test_arrow_is_enough_for_read_arrow() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = extras["optional-dependencies"]
    assert [name.partition(">")[0] for name in extras["arrow"]] == ["pyarrow"]
    assert any(name.startswith("numpy") for name in extras["spark"])
    assert "turbopump[arrow]" in extras["spark"]
    run_without(
        {"numpy", "pyspark", "py4j", "mmap_ninja", "matplotlib"},
        "from turbopump.spark import COLUMNS, read_arrow; assert 'topic' in COLUMNS",
    )


@pytest.mark.parametrize("job", sorted(PARSERS))
def test_wrong_arguments_are_one_sentence(job) -> None:
    done = CliRunner().invoke(app, [job, "--no-such-option"])
    assert isinstance(done.exception, UserError)
    assert str(done.exception).startswith(f"analyze {job}: ")
    assert CliRunner().invoke(app, [job]).exit_code == 2


def test_the_folder_of_up_means_its_stores(tmp_path: Path) -> None:
    for name in ("broker-b", "broker-a"):
        (tmp_path / "data" / name / "commitlog").mkdir(parents=True)
    (tmp_path / "data" / "logs").mkdir()
    data, store = str(tmp_path / "data"), str(tmp_path / "data" / "broker-a")
    assert stores_in(data) == [store, str(tmp_path / "data" / "broker-b")]
    assert named_stores(data) == [f"broker-a={store}", f"broker-b={tmp_path}/data/broker-b"]
    assert named_stores(f"x={data}")[0] == f"x-broker-a={store}"
    assert named_stores(f"x={store}") == [f"x={store}"]
    with pytest.raises(SeveralStores, match=r"has 2 stores; name the one to read: .*broker-a, "):
        one_store(data)
    (tmp_path / "data" / "broker-b" / "commitlog").rmdir()
    assert one_store(data) == store


@pytest.mark.parametrize("path", ["none", "s3://bucket/store", "store", "store/commitlog", "file"])
def test_any_other_path_means_itself(tmp_path: Path, path: str) -> None:
    (tmp_path / "store" / "commitlog" / "x").mkdir(parents=True)
    (tmp_path / "store" / "other" / "commitlog").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    text = path if "://" in path else str(tmp_path / path)
    assert stores_in(text) == [text] and one_store(text) == text and named_stores(text) == [text]


@pytest.mark.parametrize(
    ("master", "environment", "setting", "is_set"),
    [
        ("local[*]", "", "", True),
        ("spark://one:7077", "", "", False),
        ("local[2]", "/python", "", False),
        ("local[2]", "", "/python", False),
    ],
)
def test_workers_run_the_python_of_the_session(
    monkeypatch, master, environment, setting, is_set
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", environment)
    context = SimpleNamespace(master=master, pythonExec="python3")
    conf = SimpleNamespace(get=lambda name, default: setting or default)
    use_this_python(SimpleNamespace(sparkContext=context, conf=conf))  # type: ignore[arg-type]
    assert (context.pythonExec == sys.executable) == is_set


@pytest.mark.parametrize("job", ["throughput", "rebalance", "export"])
def test_a_job_runs_as_a_module(job: str) -> None:
    command = [sys.executable, "-m", f"turbopump.spark.{job}", "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--output" in done.stdout
