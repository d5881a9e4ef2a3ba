"""The audit log: bounded, in order, without delaying a request."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turbopump.broker.auth.audit_log import DENIALS_PER_SECOND, PENDING_MAX, AuditLog
from turbopump.broker.auth.guard import Denial
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.disk.rotating_jsonl import RotatingJsonl

DENIAL = Denial(310, "ann", "127.0.0.1:5", "no\x1b reason" + "x" * 1_000)


class Disk:
    """A disk thread that the test runs."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], Deferred[Any]]] = []

    def run(self, work: Callable[[], None]) -> Deferred[Any]:
        later: Deferred[Any] = Deferred()
        self.waiting.append((work, later))
        return later

    def finish(self, error: OSError | None = None) -> None:
        work, later = self.waiting.pop(0)
        if error is None:
            work()
        later.resolve(error)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def log(tmp_path: Path, disk: Disk) -> AuditLog:
    return AuditLog(RotatingJsonl(RealFiles(), str(tmp_path / "audit"), "auth"), disk.run)


def lines(tmp_path: Path) -> list[Any]:
    files = sorted((tmp_path / "audit").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_lines_are_written_in_order_one_write_at_a_time(
    tmp_path: Path, disk: Disk, log: AuditLog
) -> None:
    log.denied(DENIAL, 5_000)
    log.changed("root", "127.0.0.1:6", 3001, "User:a", 5_001)
    assert len(disk.waiting) == 1
    disk.finish()
    disk.finish()
    assert not disk.waiting
    first, second = lines(tmp_path)
    assert (first["event"], first["user"], first["timeMs"]) == ("denied", "ann", 5_000)
    assert "\x1b" not in first["reason"] and len(first["reason"]) < 500
    assert second == {
        "address": "127.0.0.1:6", "code": 3001, "event": "changed", "target": "User:a",
        "timeMs": 5_001, "user": "root",
    }  # fmt: skip


def test_denials_are_limited_by_second(tmp_path: Path, disk: Disk, log: AuditLog) -> None:
    for _ in range(DENIALS_PER_SECOND + 7):
        log.denied(DENIAL, 5_000)
    log.denied(DENIAL, 6_000)
    while disk.waiting:
        disk.finish()
    found = lines(tmp_path)
    assert len(found) == DENIALS_PER_SECOND + 1
    assert found[-1]["omitted"] == 7


def test_waiting_lines_are_limited(tmp_path: Path, disk: Disk, log: AuditLog) -> None:
    for number in range(PENDING_MAX + 10):
        log.changed("root", "a", number, "t", 1)
    disk.finish()
    log.changed("root", "a", 1, "t", 1)
    while disk.waiting:
        disk.finish()
    found = lines(tmp_path)
    assert len(found) == PENDING_MAX + 2
    assert found[-1]["omitted"] == 9


def test_a_failed_write_loses_its_lines_only(tmp_path: Path, disk: Disk, log: AuditLog) -> None:
    log.changed("root", "a", 1, "t", 1)
    disk.finish(OSError("full"))
    log.changed("root", "a", 2, "t", 1)
    disk.finish()
    assert [one["code"] for one in lines(tmp_path)] == [2]
