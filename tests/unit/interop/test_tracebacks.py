"""Tracebacks in the logs of a run's processes."""

from pathlib import Path

from interop.support.tracebacks import BEGIN, tracebacks


def test_each_traceback_of_each_log_is_found(tmp_path: Path) -> None:
    (tmp_path / "a" / "logs").mkdir(parents=True)
    text = f"request 11 of 127.0.0.1:1 failed\n{BEGIN}\n  File\nOverflowError: large\n"
    (tmp_path / "a" / "logs" / "turbopump.log").write_text(f"begins\n{text}{text}")
    (tmp_path / "a" / "logs" / "turbopump.log.1").write_text(text)
    (tmp_path / "broker.err").write_text(text)
    (tmp_path / "00000000000000000000").write_text(text)
    found = tracebacks(tmp_path)
    assert len(found) == 4, "two in a log, one in the log before it, one in an output"
    assert all("request 11" in one and "OverflowError" in one for one in found)


def test_logs_without_a_traceback_and_no_folder_have_none(tmp_path: Path) -> None:
    (tmp_path / "broker.log").write_text("request 11 of 127.0.0.1:1 failed: No space left\n")
    assert tracebacks(tmp_path) == []
    assert tracebacks(tmp_path / "missing") == []


def test_the_outputs_of_clients_are_not_counted(tmp_path: Path) -> None:
    for name in ("client", "client-5"):
        (tmp_path / "restarts" / name).mkdir(parents=True)
        (tmp_path / "restarts" / name / "restarted.err").write_text(f"{BEGIN}\n")
    assert tracebacks(tmp_path) == []
