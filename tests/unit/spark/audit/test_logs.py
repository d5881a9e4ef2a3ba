"""A log joined from the reports of its files, and compared with its epoch list."""

from typing import Any

import pytest
from tests.unit.spark.audit.stores import FILE, log, logs_of, replica, reported_places

from turbopump.pyx.record import FILLER_SIZE
from turbopump.spark.audit.ledger import Cut
from turbopump.spark.audit.logs import (
    AuditedLog,
    TrailingBytes,
    check_labels,
    check_same_bytes_same_labels,
    check_same_labels,
    check_tails,
    epoch_at,
    join_reports,
    names_store,
    task_of,
)
from turbopump.spark.audit.replicas import AuditedReplica, Labels, LogFile
from turbopump.spark.audit.scan import FileReport, QueueRun
from turbopump.spark.audit.verdicts import Finding, Tally


def report(of: AuditedReplica, number: int, end: int | None = None, **more: Any) -> FileReport:
    """The report of a file, which is full unless `end` is given."""
    file = of.files[number]
    made = FileReport(task_of(of, file))
    made.end = file.end if end is None else end
    made.is_full = end is None
    made.confirmed = made.end if of.confirm is None else min(made.end, of.confirm)
    made.count = 10
    for name, value in more.items():
        setattr(made, name, value)
    return made


def joined(of: AuditedReplica, *reports: FileReport) -> tuple[AuditedLog, Tally, Tally]:
    records, places = Tally("records"), Tally("queue-offsets")
    return join_reports(of, reports, records, places), records, places


def test_scanned_parts_of_a_file() -> None:
    of = replica("a", 2500, [(1, 0), (2, 1000), (3, 1000), (4, 1999), (5, 2000)], confirm=2400)
    task = task_of(of, of.files[1])
    assert (task.store, task.root, task.confirm) == ("a", "/data/a", 2400)
    assert task.starts == (1000, 1999), "epochs without a byte begin where the next one does"
    assert task_of(of, of.files[0]).starts == (0,)


def test_a_log_ends_in_its_last_file() -> None:
    of = replica("a", 2500)
    found, records, places = joined(of, report(of, 0), report(of, 1), report(of, 2, 2400))
    assert (found.replica.end, found.count, found.replica.confirm) == (2400, 30, None)
    assert reported_places(records) == reported_places(places) == []
    assert records.counts == {"records": 30, "stores": 1} and places.counts == {"queues": 0}


def test_a_file_that_ends_early_is_damage_where_the_log_goes_on() -> None:
    of = replica("a", 2500)
    found, records, _ = joined(of, report(of, 0), report(of, 1, 1700), report(of, 2, 2400))
    assert found.replica.end == 2400
    assert reported_places(records) == [
        "a: the records of this file end at 1700, and go on at 2000"
    ]
    (finding,) = records.findings
    assert (finding.file, finding.position) == (of.files[2].path, 0)


def test_files_behind_the_end_are_bytes_behind_it() -> None:
    """Above the confirmed offset, records after a hole are leftovers of a crash."""
    of = replica("a", 2500, confirm=1600)
    last = report(of, 2, 2400, count=3)
    found, records, _ = joined(of, report(of, 0), report(of, 1, 1700), last)
    assert (found.replica.end, found.replica.confirm, reported_places(records)) == (1700, 1600, [])
    (behind,) = found.trailing
    assert (behind.file.base, behind.first, behind.is_half) == (2000, 2000, False)
    empty = report(of, 2, 2000, count=0, trailing=(2100, 2300))
    found, _, _ = joined(of, report(of, 0), report(of, 1, 1700), empty)
    assert [(one.first, one.last) for one in found.trailing] == [(2100, 2300)]
    zeros = report(of, 2, 2000, count=0)
    found, _, _ = joined(of, report(of, 0), report(of, 1, 1700), zeros)
    assert found.trailing == []


@pytest.mark.parametrize(("half", "is_half"), [(0, True), (300, True), (FILLER_SIZE, False)])
def test_the_beginning_of_a_record_behind_the_end(half: int, is_half: bool) -> None:
    of = replica("a", 500)
    last = 500 + (0 if half == 0 else 100)
    found, _, _ = joined(of, report(of, 0, 500, trailing=(500, last), half=half))
    assert [one.is_half for one in found.trailing] == [is_half]


def test_a_log_that_is_shorter_than_its_confirmed_offset() -> None:
    stopped = replica("a", 500, confirm=900)
    found, records, _ = joined(stopped, report(stopped, 0, 500))
    assert reported_places(records) == ["a: 900 is confirmed, whole records end at 500"]
    assert found.replica.confirm == 900, "it is held to its word"
    assert records.findings[0].position == 500
    running = replica("a", 500, confirm=900, is_stopped=False)
    found, records, _ = joined(running, report(running, 0, 500))
    (text,) = reported_places(records)
    assert text.endswith("it was not stopped in order, and may be open")
    assert found.replica.confirm == 500


def run(first: int, following: int, first_log: int = 0, last_log: int = 0) -> dict[Any, QueueRun]:
    return {("T", 0): QueueRun(first, following, first_log, last_log)}


def test_queues_go_on_from_file_to_file() -> None:
    of = replica("a", 1500)
    one, two = report(of, 0, queues=run(5, 9, 10, 900)), report(of, 1, 1500, queues=run(9, 12))
    found, _, places = joined(of, one, two)
    assert reported_places(places) == [] and places.counts["queues"] == 1
    assert (found.queues, found.queue_ends) == ({("T", 0): 5}, {("T", 0): 12})
    two = report(of, 1, 1500, queues=run(11, 12, 1100, 1200))
    _, _, places = joined(of, one, two)
    assert reported_places(places) == ["a: queue 9 to 10 are missing before 11"]
    assert places.findings[0].log_offset == 1100


def test_messages_that_may_lie_in_damage_are_not_missing() -> None:
    of = replica("a", 1500)
    damaged = Tally("records")
    damaged.add_finding(Finding("no whole record", "a"))
    one = report(of, 0, queues=run(5, 9, 10, 900), records=damaged)
    _, records, places = joined(of, one, report(of, 1, 1500, queues=run(11, 12, 1100, 1200)))
    assert len(reported_places(records)) == 1
    assert reported_places(places) == [
        "a: T queue 0 from 9 to 10: they may have lain where the log is damaged"
    ]


def test_a_topic_that_was_deleted_begins_anew() -> None:
    of = replica("a", 1500, deleted={"T": 1000})
    one = report(of, 0, queues=run(5, 9, 10, 900))
    found, _, places = joined(of, one, report(of, 1, 1500, queues=run(0, 3, 1100, 1200)))
    assert reported_places(places) == [] and found.queues == {("T", 0): 0}


# Epoch lists


def labels(*logs: AuditedLog) -> list[str]:
    epochs = Tally("epochs")
    check_labels(logs, epochs)
    return reported_places(epochs)


def test_a_list_of_which_nothing_is_known() -> None:
    assert labels(log(replica("a", 500))) == []
    assert labels(log(replica("a", 500, None))) == ["a has no epoch list"]
    assert labels(log(replica("a", 500, None, replicated=False))) == [], "it needs none"
    damaged = Labels(findings=(Finding("the epoch file is damaged", "a"),))
    assert labels(log(replica("a", 500, labels=damaged))) == [
        *("a: the epoch file is damaged", "a has no whole epoch list")
    ]


def test_epochs_begin_where_records_do_and_not_behind_the_end() -> None:
    of = replica("a", 1500, [(1, 0), (2, 1100), (3, 1500)])
    assert labels(log(of)) == [], "an epoch that begins at the end has no byte yet"
    assert labels(log(of, loose=(1100,))) == ["a: an epoch begins inside of a record"]
    beyond = replica("a", 1400, [(1, 0), (2, 1401)])
    assert labels(log(beyond)) == ["a: an epoch begins after the log's end, 1400"]
    running = replica("a", 1400, [(1, 0), (2, 1401)], is_stopped=False)
    (text,) = labels(log(running))
    assert text.startswith("a: epoch 2 begins after the log's end; it was not stopped in order")


def test_an_epoch_begins_at_one_place() -> None:
    leader = replica("b", 900, [(1, 0), (2, 400)])
    other = replica("a", 900, [(1, 0), (2, 500)])
    epochs = Tally("epochs")
    check_same_labels(logs_of(other, leader), logs_of(leader)[0], epochs)
    assert reported_places(epochs) == ["a: the epoch begins at 400 in b, here at 500"], (
        "the leader is right"
    )
    assert (epochs.findings[0].epoch, epochs.findings[0].log_offset) == (2, 500)


@pytest.mark.parametrize(
    ("own", "theirs", "point", "wrong"),
    [
        ([(1, 0), (2, 400)], [(1, 0), (2, 400)], 900, None),
        ([(1, 0), (2, 400)], [(1, 0), (3, 400)], 400, None),
        ([(1, 0), (2, 400)], [(1, 0), (3, 400)], 900, 400),
        ([(1, 0), (2, 400), (3, 700)], [(1, 0), (3, 400)], 900, 400),
        ([(1, 0)], [(2, 0)], 900, 0),
        ([(1, 0)], [(2, 0)], 0, None),
        ([(2, 400)], [(1, 0), (2, 400)], 900, None),
        ([(2, 400)], [(1, 0), (2, 300)], 900, None),
        ([], [(1, 0)], 900, None),
    ],
)
def test_a_byte_is_of_one_epoch(own: Any, theirs: Any, point: int, wrong: int | None) -> None:
    one, leader, epochs = replica("a", 900, own), replica("b", 900, theirs), Tally("epochs")
    check_same_bytes_same_labels(one, leader, point, epochs)
    found = [finding.log_offset for finding in epochs.findings]
    assert found == ([] if wrong is None else [wrong])


def test_the_label_of_a_byte() -> None:
    epochs = replica("a", 900, [(2, 100), (3, 400), (4, 400)]).epochs
    assert [epoch_at(epochs, at) for at in (0, 99, 100, 399, 400, 10_000)] == [
        *(None, None, 2, 2, 4, 4)
    ]


# Behind the end


def tail(first: int, *, is_half: bool = False) -> TrailingBytes:
    file = LogFile("/data/a/commitlog/0", 0, FILE)
    return TrailingBytes(file, first, first + 50, is_half)


def tails(of: AuditedLog, *cuts: Cut) -> list[str]:
    truncation = Tally("truncation")
    check_tails([of], cuts, truncation)
    assert truncation.counts == {"tails": 1}
    return reported_places(truncation)


def test_bytes_behind_the_end_of_a_log() -> None:
    stopped, running = replica("a", 500), replica("a", 500, is_stopped=False)
    alone = replica("a", 500, replicated=False)
    assert tails(log(stopped)) == []
    assert tails(log(stopped, tail(500, is_half=True))) == [], "a transfer ends anywhere"
    text = "a: bytes up to 550 are not zeros, the log ends at 500"
    assert tails(log(alone, tail(500, is_half=True))) == [text], "no master sends it half records"
    assert tails(log(stopped, tail(500))) == [text]
    assert len(tails(log(stopped, tail(500, is_half=True), tail(700)))) == 2
    (undecided,) = tails(log(running, tail(500)))
    assert undecided.endswith("it was not stopped in order, and may be open")


@pytest.mark.parametrize("name", ["a", "/data/a"])
def test_cut_bytes_are_zeros_in_any_case(name: str) -> None:
    running = log(replica("a", 500, is_stopped=False), tail(600))
    text = "a: bytes up to 650 are not zeros, the log ends at 500, and it was cut at 500"
    assert tails(running, Cut(name, 900, 500)) == [text]
    for other in (Cut(name, 600, 500), Cut(name, 900, 601), Cut("b", 900, 500)):
        assert "may be open" in tails(running, other)[0], "these are not the bytes of that cut"


def test_names_of_a_store() -> None:
    of = replica("a", 500)
    assert names_store("a", of) and names_store("/data/a", of)
    assert not names_store("data", of) and not names_store("", of)
