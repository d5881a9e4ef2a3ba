"""Blocks of logs: their boundaries, the comparison of digests, and the first differing byte."""

import hashlib
from pathlib import Path

import pytest

from turbopump.engine.log.epochs import Epochs
from turbopump.spark.audit.digests import (
    COMPARE_BYTES,
    DIGEST_BYTES,
    DigestTask,
    digest_file,
    first_difference,
    tasks_of,
)
from turbopump.spark.audit.executors import LocalTaskRunner
from turbopump.spark.audit.replicas import AuditedReplica, Labels, LogFile
from turbopump.spark.audit.verdicts import Finding, Tally

BLOCK = 100


def replica(name: str, least: int, end: int, *files: LogFile) -> AuditedReplica:
    labels = Labels(Epochs(()), "")
    return AuditedReplica(
        name, f"/{name}", files, labels, True, None, True, {}, frozenset(), least, end
    )


def bounds(replicas: list[AuditedReplica], cuts: list[int]) -> dict[str, list[tuple[int, ...]]]:
    found: dict[str, list[tuple[int, ...]]] = {}
    for task in tasks_of(replicas, cuts, BLOCK):
        found.setdefault(task.store, []).append(task.bounds)
    return found


def test_blocks_are_the_same_wherever_a_store_begins() -> None:
    whole = replica("a", 0, 400, LogFile("a0", 0, 400))
    later = replica("b", 130, 400, LogFile("b0", 0, 400))
    assert bounds([whole, later], []) == {
        "a": [(0, 100, 200, 300, 400)],
        "b": [(130, 200, 300, 400)],
    }


def test_they_are_divided_at_cuts_and_where_a_file_of_another_begins() -> None:
    one = replica("a", 0, 300, LogFile("a0", 0, 300))
    two = replica("b", 0, 300, LogFile("b0", 0, 150), LogFile("b1", 150, 150))
    found = bounds([one, two], [220, 300, 220])
    assert found["a"] == [(0, 100, 150, 200, 220, 300)]
    assert found["b"] == [(0, 100, 150), (150, 200, 220, 300)]


def test_an_end_inside_a_file_ends_the_last_piece() -> None:
    files = LogFile("a0", 0, 200), LogFile("a1", 200, 200)
    assert bounds([replica("a", 0, 250, *files)], []) == {"a": [(0, 100, 200), (200, 250)]}
    assert bounds([replica("a", 0, 200, *files)], []) == {"a": [(0, 100, 200)]}
    assert bounds([replica("a", 70, 70, *files)], []) == {}


def log(path: Path, data: bytes, base: int = 0) -> LogFile:
    path.write_bytes(data)
    return LogFile(str(path), base, len(data))


def test_digests_are_of_the_pieces_of_a_file_that_begins_anywhere(tmp_path: Path) -> None:
    data = bytes(range(256)) * 2
    file = log(tmp_path / "00000000000000001000", data, 1_000)
    report = digest_file(DigestTask("a", file, (1_010, 1_100, 1_512)))
    assert report.digests == tuple(
        hashlib.blake2b(part, digest_size=DIGEST_BYTES).digest()
        for part in (data[10:100], data[100:])
    )


@pytest.mark.parametrize("at", [0, 1, COMPARE_BYTES - 1, COMPARE_BYTES, 2 * COMPARE_BYTES + 6])
def test_the_first_byte_that_differs(tmp_path: Path, at: int) -> None:
    data = bytes(2 * COMPARE_BYTES + 7)
    other = bytearray(data)
    other[at] = 1
    other[-1] = 1
    one = log(tmp_path / "one", b"front" + data, 995)
    two = log(tmp_path / "two", bytes(other), 1_000)
    end = 1_000 + len(data)
    assert first_difference(one, two, 1_000, end) == 1_000 + at
    assert first_difference(one, two, 1_000, 1_000 + at) is None
    assert first_difference(two, two, 1_000, end) is None


def test_work_of_this_process_keeps_its_order_and_raises_as_it_is() -> None:
    assert list(LocalTaskRunner().run(str, [3, 1, 2])) == ["3", "1", "2"]
    assert list(LocalTaskRunner(8).run(str, [5])) == ["5"], "no process for one piece of work"
    with pytest.raises(ZeroDivisionError):
        list(LocalTaskRunner().run(lambda number: 1 // number, [1, 0]))


def test_tallies_add_up_in_any_order() -> None:
    def finding(number: int) -> Finding:
        return Finding("wrong", "s", "f", number, number, "T", 0, number)

    def part(numbers: list[int]) -> Tally:
        made = Tally("records", limit=3)
        for number in numbers:
            made.add_finding(finding(number))
            made.count("records")
        made.cannot_check(f"reason {numbers[0]}")
        return made

    totals = []
    for order in ([[9, 1, 5], [4, 2], [7]], [[7], [4, 2], [9, 1, 5]]):
        total = Tally("records", limit=3)
        for numbers in order:
            total.merge(part(numbers))
        totals.append((total.total, total.findings[:3], total.counts, total.reasons))
    assert totals[0] == totals[1]
    assert totals[0][0] == 6 and totals[0][2] == {"records": 6}
    assert [one.log_offset for one in totals[0][1]] == [1, 2, 4]
