"""The part of getting a Spark session that needs no Spark."""

import argparse

import pytest

from turbopump.spark import session
from turbopump.spark.commands.parsers import add_selection, add_spark
from turbopump.spark.selection import RowSelection, selection_of


def test_without_java_there_is_a_sentence(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(session.SparkUnavailable, match="Java 17"):
        session.start("job")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert session.find_java() is None


def test_without_pyspark_the_command_that_helps_is_named(monkeypatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    with pytest.raises(session.SparkUnavailable, match=r"pip install '\.\[spark\]' in a clone"):
        session.check_installed()


@pytest.mark.parametrize("text", ["key", "=value", " =x"])
def test_a_setting_without_a_key_is_refused(text) -> None:
    with pytest.raises(session.JobError, match="KEY=VALUE"):
        session.start("job", conf=[text])


def test_a_job_that_cannot_begin_ends_with_two_and_a_sentence(capsys) -> None:
    parser = argparse.ArgumentParser("turbopump analyze job")
    add_spark(parser)
    assert session.job_main(parser, ["--conf", "x"], lambda spark, given: 0) == 2
    assert capsys.readouterr().err == ("turbopump analyze job: --conf x: KEY=VALUE is expected\n")


REPORT = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 1, in main
turbopump.pyx.record.Short: inner

The above exception was the direct cause of the following exception:

turbopump.engine.snapshot.log_table.DamagedLog: 0000 is damaged at byte 5: crc
    at org.apache.spark.api.python.BasePythonRunner
"""


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        (REPORT, "0000 is damaged at byte 5: crc"),
        ("\n[PATH_NOT_FOUND] no such path\nJVM stacktrace:", "[PATH_NOT_FOUND] no such path"),
        ("", "Spark failed without a message"),
    ],
)
def test_of_sparks_reports_a_sentence_is_left(report, sentence) -> None:
    assert session.sentence_of(report) == sentence


def chosen(*arguments: str) -> RowSelection:
    parser = argparse.ArgumentParser()
    add_selection(parser)
    return selection_of(parser.parse_args(arguments))


def test_a_choice_equals_the_options(capsys) -> None:
    assert chosen("a", "b") == RowSelection(("a", "b"))
    found = chosen(
        "a",
        "-t",
        "x",
        "--topic",
        "y",
        "--queue",
        "3",
        "--since",
        "2023-11-14T22:13:20+00:00",
        "--until",
        "1700000000001",
        "--min-log-offset",
        "5",
        "--max-log-offset",
        "9",
        "--unconfirmed",
        "--prune-by-time",
    )
    assert found == RowSelection(
        ("a",), ("x", "y"), (3,), 1_700_000_000_000, 1_700_000_000_001, 5, 9, False, True
    )
    assert chosen("a", "--since", "2023-11-14T22:13:20").from_ms == 1_700_000_000_000
    with pytest.raises(SystemExit):
        chosen("a", "--since", "yesterday")
    assert "neither ISO 8601 nor epoch ms" in capsys.readouterr().err
