"""The mode in the response to 400: the group's entry, else that of all its topics, else the
broker's."""

import json
from typing import Any

import pytest
from tests.unit.broker.assignment.conftest import GROUP, TOPIC, Brokers

from turbopump.net.wire.topics import TopicConfig

ANY = [("a", -1)]
POPS = "defaultMessageRequestMode=POP\n"


def answered(brokers: Brokers, who: str = "c0", **more: Any) -> tuple[str, list[tuple[str, int]]]:
    """The mode and the queues in the response to 400."""
    found = json.loads(bytes(brokers.query(who, **more).body))["messageQueueAssignments"]
    (mode,) = {one["mode"] for one in found}
    beans = [one["messageQueue"] for one in found]
    return mode, [(bean["brokerName"], bean["queueId"]) for bean in beans]


def set_mode(brokers: Brokers, **members: Any) -> None:
    body = {"topic": TOPIC, "consumerGroup": GROUP, **members}
    assert brokers.worlds["a"].ask(401, body=json.dumps(body).encode()).code == 0


def modes(brokers: Brokers) -> Any:
    """The modes of the topic's groups in the response to 402."""
    return json.loads(bytes(brokers.worlds["a"].ask(402).body))["messageRequestModeMap"]


@pytest.mark.parametrize(
    ("default", "by", "queues"),
    [
        ("PULL", "BROKER", [0]),
        ("PULL", "CLIENT", [0]),
        ("POP", "BROKER", [-1]),
        ("POP", "CLIENT", [0]),  # the client would compute the same
    ],
)
def test_a_group_of_which_nothing_was_said_has_the_mode_of_all(
    brokers: Brokers, default: str, by: str, queues: list[int]
) -> None:
    """The response to 402 has no defaults, because a replica has its own."""
    more = f"defaultMessageRequestMode={default}\nrebalanceMode={by}\n"
    brokers.add("a", queues=2, properties=more)
    brokers.join("c0", "c1")
    assert answered(brokers) == (default, [("a", queue) for queue in queues])
    assert modes(brokers) == {}


def test_settings_of_a_group_count_more_than_the_default(brokers: Brokers) -> None:
    brokers.add("a", queues=2, properties=POPS)
    brokers.join("c0")
    set_mode(brokers, mode="PULL")
    assert answered(brokers)[0] == "PULL"
    assert modes(brokers)[TOPIC][GROUP]["mode"] == "PULL"
    brokers.join("d0", group="other")
    assert answered(brokers, "d0", consumerGroup="other") == ("POP", ANY)


def test_an_entry_for_all_topics_counts_where_the_topic_has_none(brokers: Brokers) -> None:
    brokers.add("a", queues=2)
    brokers.join("c0")
    set_mode(brokers, topic="*", mode="POP")
    assert answered(brokers) == ("POP", ANY)
    assert modes(brokers)["*"][GROUP]["mode"] == "POP"
    set_mode(brokers, mode="PULL")
    assert answered(brokers)[0] == "PULL"


def test_no_default_makes_a_retry_topic_popped(brokers: Brokers) -> None:
    """A pop of the topic reads the retry topic, too (QueryAssignmentProcessor)."""
    brokers.add("a", queues=2, properties=POPS)
    a = brokers.worlds["a"]
    a.broker.topics.put(TopicConfig(f"%RETRY%{GROUP}", 1, 1), a.now_ms)
    brokers.join("c0")
    assert answered(brokers, topic=f"%RETRY%{GROUP}") == ("PULL", [("a", 0), ("a", 1)])


@pytest.mark.parametrize(
    ("number", "queues"), [("-1", [-1]), ("0", [-1]), ("1", [0, 1]), ("2", [0, 1, 2]), ("9", [-1])]
)
def test_the_share_of_a_member_is_a_default_too(
    brokers: Brokers, number: str, queues: list[int]
) -> None:
    brokers.add("a", queues=4, properties=f"{POPS}defaultPopShareQueueNum={number}\n")
    brokers.join("c0", "c1", "c2", "c3")
    assert answered(brokers) == ("POP", [("a", queue) for queue in queues])
    set_mode(brokers, mode="POP", popShareQueueNum=1)
    assert answered(brokers) == ("POP", [("a", 0), ("a", 1)])


def test_the_default_is_changed_while_members_run(brokers: Brokers) -> None:
    brokers.add("a", queues=2)
    brokers.join("c0")
    assert answered(brokers)[0] == "PULL"
    a = brokers.worlds["a"]
    assert a.ask(25, body=POPS.encode()).code == 0
    a.broker.assignments.reconfigure()  # as the node does
    assert answered(brokers) == ("POP", ANY)


def test_the_mode_is_that_of_the_broker_that_decides(brokers: Brokers) -> None:
    brokers.add("a", queues=2, properties=POPS)
    brokers.add("b", queues=2)
    brokers.join("c0")
    assert answered(brokers, at="b") == ("POP", [("a", -1), ("b", -1)])
