"""Trace records, in the forms that RocketMQ's clients of several releases write."""

from turbopump.net.client.admin.trace import RECORDS_MAX, TraceRecord, read_trace, trace_of
from turbopump.net.client.messages import ReceivedMessage


def line(*fields: object) -> str:
    return "\x01".join(map(str, fields)) + "\x02"


PUB = ("Pub", 1700000000000, "DefaultRegion", "PG", "T", "ID1", "TagA", "k1 k2", "10.0.0.1:10911")
SENT = TraceRecord(
    "Pub",
    timestamp_ms=1700000000000,
    region="DefaultRegion",
    group="PG",
    topic="T",
    message_id="ID1",
    tags="TagA",
    keys="k1 k2",
    store_host="10.0.0.1:10911",
    body_size=5,
    cost_ms=3,
    message_type="DELAY",
    offset_message_id="OFF",
    is_success=True,
)


def records(text: str) -> list[TraceRecord]:
    return list(read_trace(text))


def test_a_send() -> None:
    assert records(line(*PUB, 5, 3, 3, "OFF", "true")) == [SENT]
    (old,) = records(line(*PUB, 5, 3, 0, "false"))
    assert (old.offset_message_id, old.is_success, old.message_type) == ("", False, "NORMAL")
    (older,) = records(line(*PUB, 5, 3, 4, "OFF", "true", "10.0.0.2"))
    assert (older.client_host, older.message_type) == ("10.0.0.2", "ORDER")


def test_a_delivery() -> None:
    before = line("SubBefore", 10, "null", "CG", "R1", "ID1", 2, "null")
    after = line("SubAfter", "R1", "ID1", 7, "true", "", 0, 20, "CG")
    assert records(before + after) == [
        TraceRecord(
            "SubBefore",
            timestamp_ms=10,
            group="CG",
            request_id="R1",
            message_id="ID1",
            retry_times=2,
        ),
        TraceRecord(
            "SubAfter",
            timestamp_ms=20,
            group="CG",
            request_id="R1",
            message_id="ID1",
            cost_ms=7,
            is_success=True,
            outcome="SUCCESS",
        ),
    ]
    (failed,) = records(line("SubAfter", "R1", "ID1", 7, "false", "k", 4, ""))
    assert (failed.outcome, failed.timestamp_ms, failed.group) == ("FAILED", None, "")


def test_the_end_of_a_transaction_and_a_recall() -> None:
    ended, recalled = records(
        line(
            "EndTransaction",
            5,
            "R",
            "PG",
            "T",
            "ID1",
            "t",
            "k",
            "h",
            2,
            "TX",
            "COMMIT_MESSAGE",
            "true",
        )
        + line("Recall", 6, "R", "PG", "T", "ID1", "true")
    )
    assert (ended.transaction_id, ended.transaction_state) == ("TX", "COMMIT_MESSAGE")
    assert (ended.from_check, ended.message_type) == (True, "COMMIT")
    assert (recalled.kind, recalled.topic, recalled.is_success) == ("Recall", "T", True)


def test_unreadable_messages_are_left_out() -> None:
    good = line(*PUB, 5, 3, 3, "OFF", "true")
    for bad in (
        "",
        "x",
        line("Pub"),
        line("Pub", "now"),
        line("Pop", 1),
        line("SubAfter", 1, 2, "x"),
    ):
        found = records(bad + good if bad.endswith("\x02") else good + bad)
        assert SENT in found
    assert records(line("Pub", "9" * 5_000)) != []
    assert len(records(line("Recall", 1) * (RECORDS_MAX + 5))) == RECORDS_MAX


def message(text: str, host: str = "10.0.0.9:40000") -> ReceivedMessage:
    found = ReceivedMessage.__new__(ReceivedMessage)
    found.body, found.born_host = text.encode(), host
    return found


def test_the_steps_of_one_message() -> None:
    sent = message(line(*PUB, 5, 3, 3, "OFF", "true") + line("Pub", 1, "", "PG", "T", "ID2"))
    taken = message(
        line("SubAfter", "R1", "ID1", 7, "true", "k1", 0, "")
        + line("SubBefore", 1700000000009, "", "CG", "R1", "ID1", 0, "k1")
    )
    steps = trace_of("ID1", [taken, sent])
    assert [(one.kind, one.group, one.client_host) for one in steps] == [
        ("Pub", "PG", "10.0.0.9:40000"),
        ("SubBefore", "CG", "10.0.0.9:40000"),
        ("SubAfter", "CG", "10.0.0.9:40000"),
    ]
    assert [one.timestamp_ms for one in steps[1:]] == [1700000000009] * 2
    assert len(trace_of("k1", [taken, sent])) == 3
    assert trace_of("k", [taken, sent]) == []
