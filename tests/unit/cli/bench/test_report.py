"""The report of a finished load."""

from dataclasses import replace
from pathlib import Path

import pytest

from turbopump.cli.bench.plan import Plan
from turbopump.cli.bench.report import LoadReport, Outage, Section, draw_plot
from turbopump.cli.errors import CommandFailed
from turbopump.pyx.load import PULL, SEND

LATENCY = {"p50": 100.0, "p90": 200.0, "p99": 900.0, "p99.9": 9e3, "p99.99": 8e4, "max": 9e4}
ROW = {"messages": 50, "p50_us": 100.0, "p99_us": 900.0, "max_us": 9e4}
SECTION = Section(
    messages=100,
    all_messages=120,
    requests=100,
    bytes=12_800,
    duration_s=2.0,
    errors={},
    remarks={},
    latency_us=LATENCY,
    delivery_us={},
    series=[ROW, ROW],
)
REPORT = LoadReport(
    Plan(["127.0.0.1:9876"], send_connections=3),
    {SEND: SECTION},
    connections=3,
    connections_lost=0,
    queues_unread=0,
    unsent=0,
    generator_cpu_s=0.5,
    is_late=False,
    is_lost=False,
)


def test_the_json_of_one_kind_is_flat_and_of_two_is_not() -> None:
    found = REPORT.to_json()
    assert (found["messages"], found["messages_per_s"], found["bytes"]) == (100, 50.0, 12_800)
    assert found["workload"]["topic"] == "BenchmarkTest"
    assert found["latency_us"] == LATENCY
    assert "delivery_us" not in found
    pulls = replace(SECTION, delivery_us={"p50": 5.0})
    both = replace(REPORT, sections={SEND: SECTION, PULL: pulls}).to_json()
    assert both["producer"]["messages"] == 100
    assert both["consumer"]["delivery_us"] == {"p50": 5.0}


def test_people_read_lines() -> None:
    failing = replace(SECTION, errors={"2": 7, "unanswered": 1}, remarks={"2": "busy"})
    lines = replace(REPORT, sections={SEND: failing}, unsent=4).lines()
    assert lines == [
        "producer: 100 messages in 2.00 s, 50 a second, 0.0 MiB/s",
        "  latency   p50 100 us  p90 200 us  p99 900 us  p99.9 9,000 us  p99.99 80.0 ms"
        "  max 90.0 ms",
        "  7 times 2 SYSTEM_BUSY: busy",
        "  1 times unanswered",
        "4 requests were due and never had room to be sent",
        "load generator: 0.50 s of CPU, 3 connections",
    ]


def test_the_cost_of_a_failover() -> None:
    outages = [
        Outage.from_figures(1_500_000_000, 2_250_000_000, 800_000_000, 64),
        Outage.from_figures(9_000_000_000, -1, 3_000_000_000, 1_000),
    ]
    report = replace(REPORT, outages=outages)
    first, second, _ = report.lines()[-3:]
    assert first == (
        "failover at 1.5 s: no acknowledgement for 800 ms, 64 sends failed, acknowledged again "
        "750 ms after the first of them"
    )
    assert second.endswith("for 3,000 ms, 1,000 sends failed, not acknowledged again")
    assert report.to_json()["outages"][0] == {
        "at_s": 1.5,
        "gap_ms": 800.0,
        "failed_sends": 64,
        "resumed_ms": 750.0,
    }
    assert report.to_json()["outages"][1]["resumed_ms"] is None
    assert REPORT.to_json()["outages"] == []


@pytest.mark.parametrize(
    ("report", "word"),
    [
        (replace(REPORT, is_lost=True, connections_lost=3), "closed 3 of 3 connections, after 120"),
        (replace(REPORT, queues_unread=2), "2 queues could not be read"),
        (replace(REPORT, is_late=True), "in time"),
        (
            replace(
                REPORT,
                sections={
                    SEND: replace(
                        SECTION,
                        all_messages=0,
                        errors={"17": 4, "2": 1},
                        remarks={"17": "no topic"},
                    )
                },
            ),
            "nothing but errors, 17 TOPIC_NOT_EXIST: no topic",
        ),
    ],
)
def test_a_load_that_measured_nothing_fails(report: LoadReport, word: str) -> None:
    with pytest.raises(CommandFailed, match=word):
        report.check_measured()


def test_errors_among_messages_are_a_result() -> None:
    replace(REPORT, sections={SEND: replace(SECTION, errors={"2": 7})}).check_measured()


def test_a_picture(tmp_path: Path) -> None:
    draw_plot(REPORT, tmp_path / "load.png")
    assert (tmp_path / "load.png").read_bytes().startswith(b"\x89PNG")
