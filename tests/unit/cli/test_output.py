import json
import time

import pytest

from turbopump.cli.output import (
    duration_text,
    format_columns,
    format_table,
    local_seconds,
    local_time,
    print_json,
    shorten_text,
)


def test_columns_are_padded_and_end_without_blanks() -> None:
    layout = "{:<6}  {:>4} {:<5}"
    assert format_columns(layout, "a", 1, "b") == "a          1 b"
    assert format_columns(layout, "longer than six", 12345, "") == "longer than six  12345"


def test_values_are_printed_as_java_does() -> None:
    assert format_columns("{:<5} {:>6}", True, False) == "true   false"
    nested = {"type": "CUSTOMIZED", "on": True, "of": {"a": 1}}
    assert format_columns("{}", nested) == "{type=CUSTOMIZED, on=true, of={a=1}}"
    assert format_columns("{}", {}) == "{}"


def test_a_table_has_its_head_first() -> None:
    lines = format_table("{:<4} {}", ("#A", "#B"), (("x", n) for n in range(2)))
    assert lines == ["#A   #B", "x    0", "x    1"]


def test_front() -> None:
    assert shorten_text("broker-a", 6) == "broker"
    assert shorten_text("b", 6) == "b"


def test_times_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        assert local_time(1_795_267_219_834) == "2026-11-21 21:20:19,834"
        assert local_seconds(1_795_267_219_834) == "2026-11-21 21:20:19"
        assert local_time(0) == ""
        assert local_time(-1) == ""
    finally:
        monkeypatch.undo()
        time.tzset()


def test_json_is_one_line_of_readable_text(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"topic": "主题", "body": "a\nb"}
    print_json(value)
    written = capsys.readouterr().out
    assert written.count("\n") == 1
    assert "主题" in written
    assert json.loads(written) == value


def test_durations() -> None:
    lengths_ms = 0, 849, 59_999, 200_000, 7_500_000, 273_600_000
    assert [duration_text(length_ms) for length_ms in lengths_ms] == [
        "0.0 s",
        "0.8 s",
        "59 s",
        "3 min 20 s",
        "2 h 5 min",
        "3 d 4 h",
    ]
    assert duration_text(59_000, known=False) == ">= 59 s"
    assert duration_text(None) == "N/A"


@pytest.mark.parametrize("epoch_ms", [67_768_036_191_676_800_000, 10**30])
def test_a_time_that_no_calendar_has_is_a_number(epoch_ms: int) -> None:
    """A trace is text of any client: a malformed line must not end the list of the others."""
    assert local_time(epoch_ms) == local_seconds(epoch_ms) == f"{epoch_ms} ms"
