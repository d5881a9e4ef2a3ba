"""The output of `top` as lines and on a screen."""

import io
import json
from dataclasses import replace
from typing import Any

from rich.console import Console

from turbopump.cli.output import local_time
from turbopump.cli.top import JsonLines, PlainLines
from turbopump.cli.top_view import (
    age_text,
    build_screen,
    group_title,
    lag_text,
    sample_lines,
    size_text,
)
from turbopump.net.client.admin.group_view import (
    BrokerView,
    Change,
    ControllerView,
    GroupView,
    LagView,
    PopView,
    Sample,
    WaitingView,
)

BROKERS = [
    BrokerView(1, "10.0.0.1:10911", "master", True, True, 4, 1000, 900, None, None, 12.5, 3.0),
    BrokerView(2, "10.0.0.2:10911", "slave", True, True, 4, 950, 880, 3072, 40, state="TRANSFER"),
    BrokerView(
        3,
        "10.0.0.3:10911",
        alive=False,
        in_sync=False,
        error="[gone] cannot be reached",
        age_ms=None,
    ),
]
GROUP = GroupView("DefaultCluster", "broker-a", 1, 4, 9, [1, 2], BROKERS)
CONTROLLERS = [
    ControllerView("n0", "10.0.0.1:9878", True, "n0", 5),
    ControllerView("n1", "10.0.0.2:9878", error="timed out", age_ms=12_000),
]
SAMPLE = Sample(1_700_000_000_123, CONTROLLERS, [GROUP], ["name server: timed out"])
CHANGES = [Change(1_700_000_000_123, "election", "broker-a: 1 is master in epoch 4 (was 2)")]


def test_lines() -> None:
    """Columns are compared by their words."""
    assert [" ".join(line.split()) for line in sample_lines(SAMPLE)] == [
        local_time(SAMPLE.at_ms),
        "! name server: timed out",
        "controller address role term age error",
        "n0 10.0.0.1:9878 leader 5 -",
        "n1 10.0.0.2:9878 - - 12 s timed out",
        "broker-a of DefaultCluster: master 1, epoch 4, SyncStateSet {1,2} of epoch 9",
        "id address role epoch set alive end confirm lag in/s out/s age state",
        "1 10.0.0.1:10911 master 4 yes yes 1000 900 - 12.5 3.0 -",
        "2 10.0.0.2:10911 slave 4 yes yes 950 880 3.0 KiB 40 ms 0.0 0.0 - TRANSFER",
        "3 10.0.0.3:10911 - - no no - - - 0.0 0.0 never [gone] cannot be reached",
        "",
    ]


def test_consumer_groups_that_are_behind() -> None:
    lags = [
        LagView("billing", "Orders", 1_204, 192_000, True, 0),
        LagView("mail", "Orders", 7, None, False, 3),
    ]
    sample = Sample(1_700_000_000_123, [], [replace(GROUP, lags=lags)])
    *_, head, first, second, _ = (line.split() for line in sample_lines(sample))
    assert head == ["consumer", "group", "topic", "behind", "for", "members"]
    assert first == ["billing", "Orders", "1204", "3", "min", "12", "s", "away"]
    assert second == ["mail", "Orders", "7", "N/A", "3"]
    out = io.StringIO()
    Console(file=out, width=100).print(build_screen("Top", sample, [], 100))
    assert "3 min 12 s" in out.getvalue() and "away" in out.getvalue()


def test_consumer_groups_that_pop() -> None:
    pops = [PopView("billing", 12.5, 3.0, 1_204, 0), PopView("mail", 0.0, 0.0, 7, 4_200)]
    sample = Sample(1_700_000_000_123, [], [replace(GROUP, pops=pops)])
    *_, head, first, second, _ = (line.split() for line in sample_lines(sample))
    assert " ".join(head) == "pops by popped/s acked/s in flight revival late by"
    assert first == ["billing", "12.5", "3.0", "1204", "-"]
    assert second == ["mail", "0.0", "0.0", "7", "4.2", "s"]
    out = io.StringIO()
    Console(file=out, width=100).print(build_screen("Top", sample, [], 100))
    assert "1204" in out.getvalue() and "4.2 s" in out.getvalue()


def test_messages_that_wait_for_a_time_or_an_end() -> None:
    waiting = WaitingView(
        7, 1_700_000_003_323, {"5 s": 3, "60 s": 4, "300 s": 0}, halves=2, asked=5, given_up=1
    )
    sample = Sample(1_700_000_000_123, [], [replace(GROUP, waiting=waiting)])
    *_, timers, transactions, _ = (line.strip() for line in sample_lines(sample))
    assert timers == "timers: 7 wait, next in 3.2 s; due within 5 s: 3, 60 s: 4"
    assert transactions == (
        "transactions: 2 open; asked 5 times, 0 times without a producer, given up 1"
    )
    out = io.StringIO()
    Console(file=out, width=100).print(build_screen("Top", sample, [], 100))
    assert timers in out.getvalue() and transactions in out.getvalue()


def test_the_acting_replica_and_its_time() -> None:
    since_ms = 1_700_000_000_123
    acts = BrokerView(1, "h:2", "acting", state="READY", acting_since_ms=since_ms)
    (line,) = sample_lines(
        Sample(since_ms + 9, [], [GroupView("c", "b", None, None, None, [], [acts])])
    )[3:4]
    assert " acting " in line
    assert line.endswith(f"acts since {local_time(since_ms)} READY")


def test_titles_of_groups() -> None:
    assert group_title(GroupView("", "b", None, 5, 9, [], [])) == (
        "b: no master, epoch 5, SyncStateSet {} of epoch 9"
    )
    assert group_title(GroupView("c", "b", 0, None, None, [], [])) == "b of c: master 0"


def test_sizes() -> None:
    assert [size_text(size) for size in (None, 0, 1023, 1024, 1536 << 10, 5 << 40, 5 << 50)] == [
        "-",
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 MiB",
        "5.0 TiB",
        "5120.0 TiB",
    ]
    assert lag_text(BrokerView(1, "a:1", lag=0, lag_ms=0)) == "0 B"


def test_ages() -> None:
    assert [age_text(age) for age in (None, 0, 40, 9_940, 119_000, 120_000, 7_200_000)] == [
        "never",
        "-",
        "0.0 s",
        "9.9 s",
        "119 s",
        "2 min",
        "2 h",
    ]


OLD_GROUP = replace(GROUP, age_ms=12_000)
OLD_SAMPLE = replace(SAMPLE, groups=[OLD_GROUP])


def test_old_words_are_marked_as_such() -> None:
    lines = [line.split() for line in sample_lines(OLD_SAMPLE)]
    assert group_title(OLD_GROUP).endswith("SyncStateSet {1,2} of epoch 9 (12 s ago)")
    assert lines[7][4:6] == ["yes?", "yes?"] and lines[9][4:6] == ["no?", "no?"]


def test_old_words_are_grey_on_a_screen() -> None:
    grey = "\x1b[90m"
    assert grey not in drawn(140, in_colour=True)
    shown = drawn(140, OLD_SAMPLE, in_colour=True)
    for text in ("broker-a of DefaultCluster", "yes?"):
        assert f"{grey}{text}" in shown, shown
    assert f"{grey}10.0.0.1:10911" not in shown


def drawn(width: int, sample: Sample = SAMPLE, *, in_colour: bool = False) -> str:
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=in_colour,
        color_system="standard" if in_colour else None,
    )
    console.print(build_screen("Top", sample, CHANGES, width))
    return out.getvalue()


def test_a_screen() -> None:
    shown = drawn(140)
    for text in (
        *("Top", "name server: timed out", "leader", "{1,2}", "1000", "12.5", "3.0 KiB 40 ms"),
        *("[gone] cannot be reached", "What happened", "1 is master in epoch 4"),
    ):
        assert text in shown, shown


def test_a_narrow_screen_shows_less_and_all_of_that() -> None:
    shown = drawn(80)
    assert all(len(line) <= 80 for line in shown.splitlines())
    for text in ("10.0.0.1:10911", "master", "confirm", "900", "3.0 KiB 40 ms", "[gone]"):
        assert text in shown, shown
    assert "out/s" not in shown


def test_lines_for_programs_and_for_files(capsys: Any) -> None:
    JsonLines().show(SAMPLE, CHANGES)
    printed = json.loads(capsys.readouterr().out)
    assert printed["changes"][0]["kind"] == "election"
    assert printed["groups"][0]["brokers"][1]["lag"] == 3072
    assert printed["controllers"][0]["term"] == 5
    PlainLines().show(SAMPLE, CHANGES)
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == f"* {local_time(SAMPLE.at_ms)} broker-a: 1 is master in epoch 4 (was 2)"
    assert second == local_time(SAMPLE.at_ms)
