"""Workload files of OpenMessaging Benchmark: the plans they lead to, and refused files."""

from pathlib import Path

import pytest

pytest.importorskip("yaml")

from turbopump.cli.bench.workload import Workload
from turbopump.cli.errors import UserError


def workload(folder: Path, text: str) -> Workload:
    path = folder / "w.yaml"
    path.write_text(text)
    return Workload(path)


def test_openmessagings_own_file(tmp_path: Path) -> None:
    """The file workloads/1-topic-1-partition-1kb.yaml of its release."""
    found = workload(
        tmp_path,
        "name: 1 topic / 1 partition / 1Kb\n\ntopics: 1\npartitionsPerTopic: 1\n"
        'keyDistributor: "NO_KEY"\nmessageSize: 1024\npayloadFile: "payload/payload-1Kb.data"\n'
        "subscriptionsPerTopic: 1\nconsumerPerSubscription: 1\nproducersPerTopic: 1\n"
        "producerRate: 50000\nconsumerBacklogSizeGB: 0\ntestDurationMinutes: 15\n",
    )
    assert found.plan_fields() == {
        "topics": 1,
        "queues": 1,
        "send_connections": 1,
        "duration_s": 900.0,
        "rate": 50_000.0,
        "pull_connections": 1,
    }
    assert found.shape_fields() == {"size": 1024, "keys": False}
    assert found.ignored == ["consumerBacklogSizeGB"]
    assert found.read_body() is None, "its payload is not beside it, but its size is known"


def test_options_of_a_topic_count_for_each(tmp_path: Path) -> None:
    text = "topics: 4\nproducersPerTopic: 3\nconsumerPerSubscription: 2\nwarmupDurationMinutes: .5"
    plan = workload(tmp_path, text).plan_fields()
    assert plan == {"topics": 4, "send_connections": 12, "pull_connections": 8, "warmup_s": 30.0}


@pytest.mark.parametrize("rate, wanted", [(999_999, 999_999.0), (1_000_000, 0.0), (0, 0.0)])
def test_a_rate_that_means_as_fast_as_possible(tmp_path: Path, rate: int, wanted: float) -> None:
    assert workload(tmp_path, f"producerRate: {rate}").plan_fields() == {"rate": wanted}


def test_unset_options_decide_nothing(tmp_path: Path) -> None:
    found = workload(tmp_path, "name: empty\ntopics: null\n")
    assert (found.plan_fields(), found.shape_fields(), found.read_body()) == ({}, {}, None)


@pytest.mark.parametrize(
    "text, why",
    [
        ("topics: 0", "topics is 0: a whole number from 1 is expected"),
        ("topics: true", "topics is True: a whole number from 1 is expected"),
        ("topics: 1.5", "topics is 1.5: a whole number"),
        ("messageSize: '1024'", "messageSize is '1024': a whole number"),
        ("producerRate: -1", "producerRate is -1: a number from 0 is expected"),
        ("producerRate: .nan", "producerRate is nan: a number from 0 is expected"),
        ("testDurationMinutes: .inf", "testDurationMinutes is inf: a number from 0"),
        ("producerRate: yes", "producerRate is True: a number from 0 is expected"),
        ("payloadFile: [a]", r"payloadFile is \['a'\]: text is expected"),
        ("- topics", "is no workload: keys and values are expected"),
        ("", "is no workload"),
        ("a: [", "is not YAML: "),
        ("!!python/object/apply:os.system [id]", "is not YAML: "),
    ],
)
def test_an_impossible_value_is_one_sentence_with_the_file(
    tmp_path: Path, text: str, why: str
) -> None:
    with pytest.raises(UserError, match=why) as refused:
        workload(tmp_path, text)
    assert str(tmp_path / "w.yaml") in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_payload_is_sent_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"\0\xffx")
    assert workload(tmp_path, "payloadFile: p").read_body() == b"\0\xffx"
    assert workload(tmp_path, "payloadFile: p\nmessageSize: 3").read_body() == b"\0\xffx"
    with pytest.raises(UserError, match="has 3 bytes, messageSize is 4"):
        workload(tmp_path, "payloadFile: p\nmessageSize: 4").read_body()
    with pytest.raises(UserError, match="gone: No such file"):
        workload(tmp_path, "payloadFile: gone").read_body()
