"""Invalid plans of a load, and OpenMessaging Benchmark's files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from turbopump.cli.bench.frames import Shape
from turbopump.cli.bench.plan import Plan
from turbopump.cli.bench.workload import Workload
from turbopump.cli.errors import UserError

PLAN = Plan(["127.0.0.1:9876"], send_connections=1)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"topic": "no topic"}, "topic"),
        ({"topic": "t" * 126, "topics": 101}, "topic"),
        ({"group": "no group"}, "group"),
        ({"shape": Shape(size=17 << 20)}, "do not fit"),
        ({"shape": Shape(size=1 << 20, batch=20)}, "do not fit"),
        ({"rate": float("nan")}, "rate"),
        ({"rate": 2e8}, "rate"),
        ({"duration_s": float("inf")}, "seconds"),
        ({"warmup_s": 1e6}, "seconds"),
        ({"send_connections": 20_000}, "connections"),
        ({"in_flight": 70_000}, "in flight"),
    ],
)
def test_an_impossible_load_is_reported_before_it_begins(change: dict[str, Any], word: str) -> None:
    PLAN.check_possible()
    with pytest.raises(UserError, match=word):
        replace(PLAN, **change).check_possible()


def test_topics_are_numbered() -> None:
    assert PLAN.topic_names() == ["BenchmarkTest"]
    assert replace(PLAN, topics=3, topic="T").topic_names() == ["T-0", "T-1", "T-2"]


def workload(folder: Path, text: str) -> Workload:
    path = folder / "load.yaml"
    path.write_text(text)
    return Workload(path)


OWN_FILE = """
name: 1 topic, 16 partitions, 1 KB
topics: 2
partitionsPerTopic: 16
keyDistributor: "NO_KEY"
messageSize: 1024
payloadFile: "payload/payload-1Kb.data"
subscriptionsPerTopic: 1
consumerPerSubscription: 4
producersPerTopic: 3
producerRate: 50000
consumerBacklogSizeGB: 0
testDurationMinutes: 15
warmupDurationMinutes: 0.5
"""


def test_a_workload_of_openmessaging_is_understood(tmp_path: Path) -> None:
    found = workload(tmp_path, OWN_FILE)
    assert found.ignored == ["consumerBacklogSizeGB"]
    assert found.plan_fields() == {
        "topics": 2,
        "queues": 16,
        "send_connections": 6,
        "pull_connections": 8,
        "rate": 50_000.0,
        "duration_s": 900,
        "warmup_s": 30.0,
    }
    assert found.shape_fields() == {"size": 1024, "keys": False}
    assert found.read_body() is None


def test_the_fastest_rate_of_openmessaging_is_no_rate(tmp_path: Path) -> None:
    assert workload(tmp_path, "producerRate: 10000000").plan_fields() == {"rate": 0.0}


def test_a_payload_is_the_body(tmp_path: Path) -> None:
    (tmp_path / "some").write_bytes(b"payload")
    assert workload(tmp_path, "payloadFile: some").read_body() == b"payload"
    assert workload(tmp_path, "payloadFile: some\nmessageSize: 7").read_body() == b"payload"
    with pytest.raises(UserError, match="has 7 bytes, messageSize is 8"):
        workload(tmp_path, "payloadFile: some\nmessageSize: 8").read_body()
    with pytest.raises(UserError, match="No such file"):
        workload(tmp_path, "payloadFile: none").read_body()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("just words", "no workload"),
        ("a: [1", "is not YAML"),
        ("topics: 0", "topics is 0"),
        ("topics: many", "topics is 'many'"),
        ("messageSize: true", "messageSize is True"),
        ("producerRate: -1", "producerRate is -1"),
        ("payloadFile: 5", "payloadFile is 5"),
    ],
)
def test_a_bad_workload_is_named(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(UserError, match=word) as caught:
        workload(tmp_path, text)
    assert "load.yaml" in str(caught.value)
