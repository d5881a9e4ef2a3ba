"""`turbopump bench`: the plan made from RocketMQ's flags, and plans refused before the start."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mmap_ninja import RaggedMmap
from tests.unit.cli.conftest import Command

from turbopump.cli.bench import commands, report, run
from turbopump.cli.bench.plan import Plan
from turbopump.cli.errors import CommandFailed
from turbopump.net.wire.command import Codec


class Report:
    """The report of a load without results."""

    fails = False

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def to_json(self) -> dict[str, Any]:
        return {"plan": self.plan.describe_as_json()}

    def lines(self) -> list[str]:
        return ["it is over"]

    def check_measured(self) -> None:
        if Report.fails:
            raise CommandFailed("of 5 messages 2 were refused")


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that commands run; they connect to no server."""
    made: list[Plan] = []

    def carry_out(plan: Plan, watch: Any) -> Report:
        made.append(plan.check_possible())
        watch(None)
        return Report(plan)

    monkeypatch.setattr(run, "run_load", carry_out)
    monkeypatch.setattr(Report, "fails", False)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    return made


def test_defaults_of_a_producer(command: Command, plans: list[Plan]) -> None:
    assert command("bench", "producer").lines == ["it is over"]
    (plan,) = plans
    assert (plan.namesrv, plan.topic, plan.topics) == (["127.0.0.1:9876"], "BenchmarkTest", 1)
    assert (plan.send_connections, plan.pull_connections, plan.in_flight) == (64, 0, 1)
    assert (plan.shape.size, plan.shape.codec, plan.shape.delay_level) == (128, Codec.ROCKETMQ, 0)
    assert len(plan.shape.unique_prefix) == 20


def test_the_flags_of_a_producer(command: Command, plans: list[Plan]) -> None:
    words = "-n", "a:1;b:2", "-t", "T", "-w", 3, "-s", 99, "-k", "true", "-p", 5, "-l", 4, "-q", 7
    command("bench", "producer", *words, "-d", "true", "-e", 3, "-b", 2, "--encoding", "json")
    (plan,) = plans
    assert (plan.namesrv, plan.topic, plan.send_connections) == (["a:1", "b:2"], "T", 3)
    shape = plan.shape
    assert (shape.size, shape.keys, shape.property_size, shape.tag_count) == (99, True, 5, 4)
    assert (plan.messages, shape.delay_level, shape.batch, shape.codec) == (7, 3, 2, Codec.JSON)
    command("bench", "producer", "-e", 3, "--no-unique-key", "--rate", 1.5, "--duration", 2)
    plan = plans[-1]
    assert plan.shape.delay_level == 0, "a level without -d has no effect"
    assert (plan.shape.unique_prefix, plan.rate, plan.duration_s) == ("", 1.5, 2.0)


def test_asynchronous_is_one_connection_with_many_in_flight(
    command: Command, plans: list[Plan]
) -> None:
    command("bench", "producer", "-y", "true", "-w", 9)
    command("bench", "producer", "-y", "true", "--in-flight", 5)
    assert [(plan.send_connections, plan.in_flight) for plan in plans] == [(1, 256), (1, 5)]


def test_the_flags_of_a_consumer(command: Command, plans: list[Plan]) -> None:
    command("bench", "consumer", "-g", "G", "--pull-size", 8, "--check-crc", "-w", 2)
    command("bench", "consumer", "--from", "last", "-g", "G", "-p", "true")
    first, last = plans
    assert (first.group, first.pull_size, first.check_crc) == ("G", 8, True)
    assert (first.send_connections, first.pull_connections) == (0, 2)
    assert (first.from_end, first.follow, first.shape.unique_prefix) == (False, False, "")
    assert (last.from_end, last.follow) == (True, True), (
        "after all existing messages only new ones arrive"
    )
    name, _, number = last.group.partition("_")
    assert name == "G" and 0 <= int(number) < 100, "RocketMQ's suffix"


def test_sending_and_reading_at_once(command: Command, plans: list[Plan]) -> None:
    (result,) = command("bench", "mixed", "-w", 3, "--consumers", 2, "--json").json
    (plan,) = plans
    assert (plan.send_connections, plan.pull_connections) == (3, 2)
    assert plan.from_end and plan.follow
    assert result["plan"]["pull_connections"] == 2


@pytest.mark.parametrize("what", ["producer", "consumer"])
@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("-m", "-m true: traces are not part of a load"),
        ("-a", "-a true needs the credentials that sign: --access-key or --credentials"),
    ],
)
def test_options_a_load_does_not_have(
    command: Command, plans: list[Plan], what: str, option: str, sentence: str
) -> None:
    code, error = command("bench", what, option, "true").failure
    assert code == 2 and error.startswith(sentence) and not plans
    assert command("bench", what, option, "false").code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-n", "nowhere"), "nowhere is no address"),
        (("-t", "no topic"), "no topic name"),
        (("--rate", "nan"), ""),
        (("--duration", "1e9"), "seconds are not from 0 to a day"),
        (("-w", "20000"), "more than 10000 connections"),
        (("--workload", "/no/such.yaml"), "/no/such.yaml: No such file or directory"),
        (("--replay", "/no/such"), "/no/such is neither an mmap-ninja dataset nor Parquet"),
        (("--plot", "/no/such/picture.png"), "/no/such is no folder"),
    ],
)
def test_invalid_loads(
    command: Command, plans: list[Plan], words: tuple[str, ...], sentence: str
) -> None:
    ran = command("bench", "producer", *words)
    assert ran.code == 2 and not ran.out and sentence in ran.err and not plans
    assert "Traceback" not in ran.err


def test_a_load_that_went_wrong_is_shown_and_fails(
    command: Command, plans: list[Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Report, "fails", True)
    ran = command("bench", "producer")
    assert (ran.code, ran.out) == (1, "it is over\n")
    assert ran.err == "turbopump: of 5 messages 2 were refused\n"


def test_a_picture_is_drawn_last(
    command: Command, plans: list[Plan], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(report, "draw_plot", lambda made, path: drawn.append((made.plan, path)))
    command("bench", "producer", "--plot", tmp_path / "a.png")
    assert drawn == [(plans[0], tmp_path / "a.png")]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, error = command("bench", "producer", "--plot", tmp_path / "b.png").failure
    assert code == 2 and error.startswith("--plot needs matplotlib") and len(plans) == 1


def test_a_workload_file_over_options(command: Command, plans: list[Plan], tmp_path: Path) -> None:
    path = tmp_path / "load.yaml"
    path.write_text(
        "topics: 2\npartitionsPerTopic: 16\nmessageSize: 1000\nproducersPerTopic: 3\n"
        "producerRate: 500\ntestDurationMinutes: 1\ncolour: red\n"
    )
    ran = command("bench", "producer", "--workload", path, "-s", 5)
    (plan,) = plans
    assert (plan.topics, plan.queues, plan.shape.size, plan.rate) == (2, 16, 1000, 500)
    assert plan.send_connections == 6 and plan.duration_s == 60
    assert ran.code == 0 and ran.err == f"turbopump: {path}: these keys are ignored: colour\n"


def test_bodies_of_a_dataset(command: Command, plans: list[Plan], tmp_path: Path) -> None:
    bodies = [np.frombuffer(body, np.uint8) for body in (b"one", b"three" * 9)]
    RaggedMmap.from_lists(tmp_path / "bodies", bodies)
    (shown,) = command("bench", "producer", "--replay", tmp_path / "bodies", "--json").json
    (plan,) = plans
    assert plan.corpus is not None and len(plan.corpus) == 2
    assert plan.shape.size == 45, "the largest"
    assert json.loads(json.dumps(shown))["plan"]["replay"] == str(tmp_path / "bodies")


class Load:
    """Figures that the native loop reports one after the other."""

    def __init__(self, *looks: tuple[float, int, int, int]) -> None:
        self._looks = iter(looks)
        self.last: list[Any] = []

    def progress(self) -> tuple[float, int, int, int]:
        return next(self._looks)

    def rows(self) -> list[Any]:
        return self.last


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Live:
        def __init__(self, **_: Any) -> None:
            pass

        def start(self) -> None:
            shown.append("begin")

        def stop(self) -> None:
            shown.append("end")

        def update(self, text: str, refresh: bool) -> None:
            shown.append(text)

    monkeypatch.setattr("rich.live.Live", Live)
    load = Load((1.0, 0, 0, 0), (2.0, 1_000, 0, 0), (2.5, 2_000, 10, 3))
    with commands._Progress() as show:
        show(load)  # type: ignore[arg-type]
        show(load)  # type: ignore[arg-type]
        load.last = [((0, 1_500, 9_000_000), (0, 0, 0))]
        show(load)  # type: ignore[arg-type]
    assert [line.split("  ") for line in shown[1:-1]] == [
        ["", " 1.0 s"],
        ["", " 2.0 s", "sent 1,000 (1,000/s)"],
        [
            *("", " 2.5 s", "sent 2,000 (2,000/s)", "read 10 (20/s)"),
            *("p50 2 us", "p99 9,000 us", "errors 3"),
        ],
    ]
    assert (shown[0], shown[-1]) == ("begin", "end")
