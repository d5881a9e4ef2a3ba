"""The selection of a job: paths, times, and the rows that its options select."""

import argparse
from datetime import UTC, datetime
from pathlib import Path

import pytest

from turbopump.spark.commands.parsers import PARSERS, STALL_S, time_of
from turbopump.spark.commands.stores import SeveralStores, named_stores, one_store, stores_in
from turbopump.spark.commands.times import TIME_MS_MAX, time_ms
from turbopump.spark.selection import RowSelection, selection_of
from turbopump.spark.session import JobError


def store(path: Path) -> str:
    (path / "commitlog").mkdir(parents=True)
    return str(path)


# Paths


def test_a_folder_with_a_log_is_a_store_and_so_is_a_log(tmp_path: Path) -> None:
    root = store(tmp_path / "a")
    assert stores_in(root) == [root]
    assert stores_in(f"{root}/commitlog") == [f"{root}/commitlog"]


def test_a_data_folder_means_the_stores_directly_in_it(tmp_path: Path) -> None:
    found = [store(tmp_path / name) for name in ("broker-b", "broker-a")]
    store(tmp_path / "old" / "broker-z")
    (tmp_path / "conf").mkdir()
    assert stores_in(str(tmp_path)) == sorted(found)


@pytest.mark.parametrize("path", ["s3://bucket/store", "file:///data", "/none/at/all", ""])
def test_a_folder_that_is_not_here_is_kept_unchanged(path: str) -> None:
    assert stores_in(path) == [path]


def test_a_folder_without_stores_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("commitlog")
    assert stores_in(str(tmp_path)) == [str(tmp_path)]


def test_one_store_is_wanted_where_messages_are_counted(tmp_path: Path) -> None:
    only = store(tmp_path / "a")
    assert one_store(str(tmp_path)) == only
    store(tmp_path / "b")
    with pytest.raises(SeveralStores, match=r"has 2 stores; name the one to read: \S+a, \S+b$"):
        one_store(str(tmp_path))


def test_several_stores_of_one_name_are_told_apart(tmp_path: Path) -> None:
    first = store(tmp_path / "a")
    assert named_stores(str(tmp_path)) == [first]
    assert named_stores(f"old={tmp_path}") == [f"old={first}"]
    second = store(tmp_path / "b")
    assert named_stores(str(tmp_path)) == [f"a={first}", f"b={second}"]
    assert named_stores(f"old={tmp_path}") == [f"old-a={first}", f"old-b={second}"]


# Times


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("0", 0),
        ("1700000000123", 1_700_000_000_123),
        ("1970-01-01", 0),
        ("1970-01-01T00:00:00.5", 500),
        ("1970-01-01T01:00+01:00", 0),
        ("1969-12-31T23:59:59Z", -1_000),
        (str(TIME_MS_MAX), TIME_MS_MAX),
    ],
)
def test_times(text: str, wanted: int) -> None:
    assert time_ms(text) == time_of(text) == wanted


def test_a_time_without_a_zone_is_utc_wherever_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    at = datetime(2024, 3, 10, 2, 30, tzinfo=UTC)
    assert time_ms("2024-03-10T02:30") == int(at.timestamp() * 1000)


@pytest.mark.parametrize(
    "text", ["", "-5", "1e9", "yesterday", "2024-13-01", "٣", str(TIME_MS_MAX + 1), "9" * 5_000]
)
def test_an_invalid_time_is_one_sentence(text: str) -> None:
    """Kernels use 64 bits: larger numbers must not end in a traceback."""
    with pytest.raises(argparse.ArgumentTypeError, match="is neither ISO 8601 nor epoch ms"):
        time_of(text)


def test_the_first_writable_time_is_one_and_earlier_times_are_refused() -> None:
    assert -TIME_MS_MAX < time_of("0001-01-01T00:00Z") < 0
    assert time_of("0001-01-01T00:00+23:59") < time_of("0001-01-01T00:00Z")


# Options


def selected(*words: str, job: str = "throughput") -> RowSelection:
    return selection_of(PARSERS[job]().parse_args(words))


def test_all_confirmed_rows_unless_something_else_is_said() -> None:
    assert selected("/a", "/b") == RowSelection(("/a", "/b"))
    limits = selected("/a").read_arguments()
    assert limits.pop("confirmed") is True and limits.pop("prune_by_time") is False
    assert set(limits.values()) == {None}


def test_each_option_of_a_selection_reaches_it() -> None:
    flags = ["--unconfirmed", "--prune-by-time"]
    words = "/a -t T -t U --queue 0 --queue 3 --since 10 --until 20 --min-log-offset 5"
    found = selected(*words.split(), "--max-log-offset", "9", *flags)
    assert found == RowSelection(
        ("/a",), ("T", "U"), (0, 3), 10, 20, 5, 9, confirmed=False, prune_by_time=True
    )
    assert found.describe_as_json() == {
        "stores": ["/a"],
        "topics": ["T", "U"],
        "queue_ids": [0, 3],
        "from_ms": 10,
        "until_ms": 20,
        "min_log_offset": 5,
        "max_log_offset": 9,
        "confirmed": False,
        "prune_by_time": True,
    }


def test_until_is_exclusive_and_a_limit_of_0_is_one() -> None:
    limits = selected(
        "/a", "--since", "0", "--until", "0", "--min-log-offset", "0"
    ).read_arguments()
    assert (limits["min_store_ms"], limits["max_store_ms"]) == (0, -1)
    assert limits["min_log_offset"] == 0


def test_a_folder_of_several_stores_is_refused_by_the_job(tmp_path: Path) -> None:
    for name in "ab":
        store(tmp_path / name)
    with pytest.raises(JobError, match="has 2 stores"):
        selected(str(tmp_path))


@pytest.mark.parametrize("job", PARSERS)
def test_each_job_has_sparks_options_and_a_prog_of_its_own(job: str) -> None:
    parser = PARSERS[job]()
    assert parser.prog == f"turbopump analyze {job}"
    output = ["-o", "x"] if job == "export" else []
    given = parser.parse_args(
        ["/a", *output, "--master", "local[2]", "--conf", "a=b", "--conf", "c=d=e"]
    )
    assert (given.master, given.conf, given.verbose) == ("local[2]", ["a=b", "c=d=e"], False)
    assert parser.parse_args(["/a", *output]).conf == [], "a default is not shared"


@pytest.mark.parametrize("job", PARSERS)
def test_a_job_without_a_store_says_how_it_is_used(
    job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        PARSERS[job]().parse_args([])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"usage: turbopump analyze {job}")


def test_defaults_that_help_names() -> None:
    given = PARSERS["throughput"]().parse_args(["/a"])
    assert (given.stall_seconds, given.replica, given.copy) == (STALL_S, [], None)
    assert PARSERS["rebalance"]().parse_args(["/a"]).window == 60
    audit = PARSERS["truncation"]().parse_args(["/a", "--ledger", "x", "y", "--ledger", "z"])
    assert audit.ledger == ["x", "y", "z"] and audit.workers == 1
    assert PARSERS["export"]().parse_args(["/a", "-o", "t"]).format == "parquet"
