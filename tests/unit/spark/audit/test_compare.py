"""Comparison of replicas: the leader, the points where logs diverge, and the differing bytes."""

from typing import Any

import pytest
from tests.unit.spark.audit.stores import log, logs_of, replica, reported_places

from turbopump.spark.audit import compare
from turbopump.spark.audit.compare import (
    block_boundaries,
    check_bytes,
    check_cuts,
    check_points,
    leader_of,
    truncation_point,
)
from turbopump.spark.audit.digests import DigestReport, DigestTask, RecordPlace
from turbopump.spark.audit.ledger import Cut
from turbopump.spark.audit.logs import AuditedLog
from turbopump.spark.audit.replicas import AuditedReplica
from turbopump.spark.audit.verdicts import FINDINGS_MAX, Tally

OLD, NEW = [(1, 0)], [(1, 0), (2, 400)]


def leads(*logs: AuditedReplica, name: str = "", elected: Any = ()) -> str:
    return leader_of(logs_of(*logs), name, elected).replica.name


def test_the_newest_epoch_leads_then_the_longest_log() -> None:
    a, b, c = replica("a", 900, OLD), replica("b", 500, NEW), replica("c", 600, NEW)
    assert leads(a, b, c) == "c"
    assert leads(a, replica("b", 300, NEW)) == "a", "an epoch after the end was never reached"
    assert leads(b, replica("d", 500, NEW), elected=[(2, "d"), (1, "b")]) == "d"
    assert leads(b, replica("d", 500, NEW), elected=[(1, "d")]) == "b", "of an earlier term"
    assert leads(a, b, c, name="a") == leads(a, b, c, name="/data/a") == "a"
    with pytest.raises(ValueError, match=r"^no store is named d$"):
        leads(a, b, name="d")


def points(leader: AuditedReplica, *others: AuditedReplica) -> tuple[dict[str, int], list[str]]:
    truncation, epochs = Tally("truncation"), Tally("epochs")
    logs = logs_of(leader, *others)
    found = check_points(logs, logs[0], truncation, epochs)
    assert truncation.counts.get("consistent points", 0) == len(found)
    return found, reported_places(truncation) + reported_places(epochs)


def test_where_a_replica_would_cut() -> None:
    leader = replica("a", 900, NEW)
    assert points(leader, replica("b", 700, NEW)) == ({"b": 700}, [])
    assert points(leader, replica("b", 700, OLD, confirm=400)) == ({"b": 400}, [])
    found, wrong = points(leader, replica("b", 700, OLD, confirm=401))
    assert found == {"b": 400}
    assert wrong == ["b: it would be cut at 400 as a replica of a, and has confirmed 401"]


def test_stores_that_are_not_compared() -> None:
    leader = replica("a", 900, NEW)
    assert points(leader, replica("b", 700, OLD, replicated=False)) == ({}, [])
    assert points(leader, replica("b", 0, OLD)) == ({}, []), "an empty log has nothing to cut"
    assert points(replica("a", 0, OLD), replica("b", 700, OLD)) == ({}, [])
    assert points(replica("a", 900, NEW, replicated=False), replica("b", 700, OLD)) == ({}, [])
    found, wrong = points(leader, replica("b", 700, None))
    assert (found, wrong) == ({}, ["b and a: their epoch lists show nothing in common"])
    assert truncation_point(replica("b", 700, [(5, 0)]), leader) is None


def test_blocks_are_divided_at_ends_and_points() -> None:
    logs = logs_of(replica("a", 900, NEW, confirm=850), replica("b", 700, start=100, confirm=600))
    assert block_boundaries(logs, {"b": 650, "c": 700}) == [0, 100, 600, 650, 700, 850, 900]


def digested(of: AuditedReplica, *pieces: tuple[int, int, bytes]) -> DigestReport:
    bounds = (pieces[0][0], *(end for _, end, _ in pieces))
    return DigestReport(DigestTask(of.name, of.files[0], bounds), tuple(d for _, _, d in pieces))


class Bytes:
    """The verdicts on digests; the test has no files."""

    def __init__(self, *logs: AuditedLog, **points: int) -> None:
        self.equal, self.truncation = Tally("confirmed-equal"), Tally("truncation")
        self._logs, self._points = logs, points

    def judge(self, *reports: DigestReport) -> "Bytes":
        check_bytes(self._logs, self._logs[0], self._points, reports, self.equal, self.truncation)
        return self


@pytest.fixture(autouse=True)
def no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader for tests without files: differences are at the third byte of a run, in an earlier
    record."""
    monkeypatch.setattr(compare, "first_difference", lambda one, other, start, end: start + 2)
    monkeypatch.setattr(compare, "record_at", lambda file, at: RecordPlace(at - 9, "T", 1, 33))


A, B, C = (replica(name, 900, NEW, confirm=800) for name in "abc")


def test_all_that_is_confirmed_is_the_same() -> None:
    pieces = ((0, 400, b"x"), (400, 800, b"y"))
    found = Bytes(*logs_of(A, B, C)).judge(*(digested(one, *pieces) for one in (A, B, C)))
    assert reported_places(found.equal) == reported_places(found.truncation) == []
    assert found.equal.counts == {"pieces compared": 2, "bytes compared": 800}


def test_the_odd_one_is_named_with_its_byte() -> None:
    found = Bytes(*logs_of(A, B, C)).judge(
        digested(A, (0, 400, b"odd")), digested(B, (0, 400, b"x")), digested(C, (0, 400, b"x"))
    )
    (finding,) = found.equal.findings
    assert finding.store == "a", "two are right against the leader"
    assert (finding.log_offset, finding.position) == (2, 2)
    assert (finding.topic, finding.queue_id, finding.queue_offset) == ("T", 1, 33)
    assert finding.what == (
        "the byte differs from b's, in the record at -7; both have blocks that differ up to 400"
    )
    found = Bytes(*logs_of(A, B)).judge(digested(A, (0, 400, b"x")), digested(B, (0, 400, b"y")))
    assert [one.store for one in found.equal.findings] == ["b"], "in doubt the leader is right"


def test_pieces_in_a_row_are_one_difference() -> None:
    pieces = (0, 100, b"1"), (100, 200, b"2"), (200, 300, b"same"), (300, 400, b"3")
    other = (0, 100, b"x"), (100, 200, b"x"), (200, 300, b"same"), (300, 400, b"x")
    found = Bytes(*logs_of(A, B)).judge(digested(A, *pieces), digested(B, *other))
    assert [(one.log_offset, one.what[-3:]) for one in found.equal.findings] == [
        *((2, "200"), (302, "400"))
    ]


def test_only_the_first_differences_are_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def first(one: Any, other: Any, start: int, end: int) -> int:
        looked.append(start)
        return start

    monkeypatch.setattr(compare, "first_difference", first)
    pieces = [(at, at + 1, b"x" if at % 2 else b"same") for at in range(200)]
    other = [(at, at + 1, b"y" if at % 2 else b"same") for at in range(200)]
    found = Bytes(*logs_of(A, B)).judge(digested(A, *pieces), digested(B, *other))
    assert found.equal.total == 100 and len(looked) == FINDINGS_MAX


def test_a_replica_may_differ_after_its_point_above_the_confirmed_offset() -> None:
    reports = digested(A, (800, 850, b"x")), digested(B, (800, 850, b"y"))
    found = Bytes(*logs_of(A, B), b=800).judge(*reports)
    assert reported_places(found.equal) == reported_places(found.truncation) == []
    found = Bytes(*logs_of(A, B), b=850).judge(*reports)
    assert reported_places(found.equal) == []
    (finding,) = found.truncation.findings
    assert finding.what.endswith("; a handshake would keep all before 850")
    assert found.equal.counts["pieces compared"] == 0


def test_stores_of_which_nothing_was_compared_are_named() -> None:
    empty = log(replica("d", 0, NEW), count=0)
    apart = log(replica("e", 2900, NEW, start=2000))
    found = Bytes(*logs_of(A, B), empty, apart).judge(
        digested(A, (0, 400, b"x")), digested(B, (0, 400, b"x"))
    )
    assert reported_places(found.equal) == [
        "d has no message: nothing of it was compared",
        "e has confirmed 2000 to 2900, of which no other store has confirmed anything: nothing of "
        "it was compared",
    ]


# Cuts


def cut(to: int, **more: Any) -> list[str]:
    truncation = Tally("truncation")
    check_cuts([Cut("a", 900, to, 2, **more)], logs_of(A, B), truncation)
    assert truncation.counts == {"cuts": 1}
    return reported_places(truncation)


def test_nothing_that_was_confirmed_is_cut() -> None:
    assert cut(400) == cut(400, confirm=400) == []
    assert cut(399, confirm=400) == ["a: it was cut at 399, and had confirmed 400"]
    truncation = Tally("truncation")
    check_cuts([Cut("gone", 900, 1, confirm=2)], logs_of(A), truncation)
    assert reported_places(truncation) == ["gone: it was cut at 1, and had confirmed 2"]


def test_a_cut_is_where_the_lists_say() -> None:
    lists: dict[str, Any] = {"own": ((1, 0),), "other": ((1, 0), (2, 400)), "other_end": 700}
    assert cut(400, **lists) == []
    assert cut(500, **lists) == ["a: it was cut at 500, the consistent point is 400"]
    nothing = {**lists, "other": ((9, 0),)}
    assert cut(400, **nothing) == ["a: it was cut at 400, the consistent point is None"]
    (text,) = cut(400, **{**lists, "own": ((2, 0), (1, 5))})
    assert text.startswith("a: the cut at 400 names no epoch list: epoch 1 from 5 on follows")
    assert cut(500, **{**lists, "other_end": None}) == [], "half of it was written down"
