"""QUERY_ASSIGNMENT and SET_MESSAGE_REQUEST_MODE: RocketMQ's behaviour and Turbopump's additions."""

import json
from typing import Any

import pytest
from tests.unit.broker.assignment.conftest import GROUP, TOPIC, Brokers

from turbopump.net.wire.topics import TopicConfig

QUEUES = [("a", number) for number in range(8)]


def set_mode(brokers: Brokers, at: str = "a", **members: Any) -> int:
    body = {"topic": TOPIC, "consumerGroup": GROUP, **members}
    return brokers.worlds[at].ask(401, body=json.dumps(body).encode()).code


def plain(brokers: Brokers, properties: str = "") -> None:
    brokers.add("a", queues=8, properties=f"rebalanceStrategy=\n{properties}")


@pytest.mark.parametrize("mode", ["BROKER", "CLIENT"])
def test_members_get_the_shares_of_their_strategy(brokers: Brokers, mode: str) -> None:
    plain(brokers, f"rebalanceMode={mode}\n")
    brokers.join("c0", "c1", "c2")
    found = [[queue for _, queue in brokers.ask(who) or []] for who in ("c0", "c1", "c2")]
    assert found == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_answers_of_rocketmq_to_unknown_names(brokers: Brokers) -> None:
    plain(brokers)
    assert brokers.ask("c0") is None  # a group without connections
    brokers.join("c0")
    assert brokers.ask("c0", topic="unknown") is None
    assert brokers.ask("c0", strategyName="NONE") is None
    assert brokers.ask("stranger") == []
    assert brokers.ask("c0", messageModel="BROADCASTING") == QUEUES
    response = brokers.query("c0")
    assert response.body == (
        b'{"messageQueueAssignments":['
        + b",".join(
            b'{"messageQueue":{"brokerName":"a","queueId":%d,"topic":"T"},"mode":"PULL"}' % number
            for number in range(8)
        )
        + b"]}"
    )


def test_all_queues_for_all_where_brokers_do_not_balance(brokers: Brokers) -> None:
    plain(brokers, "serverLoadBalancerEnable=false\n")
    brokers.join("c0", "c1")
    assert brokers.ask("c0") == brokers.ask("c1") == QUEUES


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": ""},
        {"consumerGroup": ""},
        {"clientId": None},
        {"clientId": "x" * 256},
        {"messageModel": "NONE"},
        {"strategyName": "x" * 256},
        {"topic": ["T"]},
    ],
)
def test_an_invalid_question_is_refused(brokers: Brokers, wrong: dict[str, Any]) -> None:
    plain(brokers)
    assert brokers.query("c0", **wrong).code == 1


def test_a_strange_name_is_a_member_like_others(brokers: Brokers) -> None:
    plain(brokers)
    brokers.join("\U0001f600@\n", "\uff5e", "c0")
    found = [brokers.ask(who) or [] for who in ("c0", "\U0001f600@\n", "\uff5e")]
    assert sorted(queue for share in found for queue in share) == QUEUES


def test_the_mode_is_switched_while_members_run(brokers: Brokers) -> None:
    plain(brokers)
    brokers.join("c0", "c1", "c2")
    assert set_mode(brokers, mode="PULL", rebalance="CLIENT") == 0
    average = brokers.ask_all("c0", "c1", "c2")
    brokers.noticed("c0")
    assert set_mode(brokers, topic="*", rebalance="BROKER", strategyName="STICKY") == 0
    assert brokers.noticed("c0") == 1
    assert brokers.ask_all("c0", "c1", "c2") == average  # the topic's own entry counts
    assert set_mode(brokers, rebalance="BROKER") == 0
    assert brokers.ask_all("c0", "c1", "c2") == average  # and all is in its place already
    brokers.leave("c0")
    shares = brokers.ask_all("c1", "c2")
    assert all(set(average[who] or []) < set(share or []) for who, share in shares.items())
    assert set_mode(brokers, rebalance="CLIENT") == 0
    assert brokers.ask_all("c1", "c2") == {"c1": QUEUES[:4], "c2": QUEUES[4:]}


def test_the_mode_of_all_groups_is_a_key(brokers: Brokers) -> None:
    plain(brokers)
    a = brokers.worlds["a"]
    brokers.join("c0", "c1")
    brokers.ask_all("c0", "c1")
    brokers.noticed("c0")
    assert a.ask(25, body=b"rebalanceStrategy=AVG_BY_CIRCLE\n").code == 0
    a.broker.assignments.reconfigure()  # as the node does
    brokers.pass_time(100)
    brokers.ask_all("c0", "c1")
    brokers.pass_time(2_000)
    assert brokers.ask_all("c0", "c1") == {"c0": QUEUES[::2], "c1": QUEUES[1::2]}


def test_the_checks_of_401(brokers: Brokers) -> None:
    plain(brokers)
    assert set_mode(brokers, mode="PULL", popShareQueueNum=0) == 0
    assert set_mode(brokers, mode="PULL", topic=f"%RETRY%{GROUP}") == 16
    assert set_mode(brokers, mode="PULL", topic="unknown") == 17
    a = brokers.worlds["a"]
    a.ask(25, body=b"autoCreateSubscriptionGroup=false\n")
    assert set_mode(brokers, mode="PULL", consumerGroup="unknown") == 26
    for wrong in (
        {"mode": "PUSH"},
        {"rebalance": "BOTH"},
        {"strategyName": "NONE"},
        {"mode": "PULL", "popShareQueueNum": 2**40},
        {"queues": {"c0": ["a"]}},
        {"queues": {"c0": ["a:-1"]}},
    ):
        assert set_mode(brokers, **wrong) == 1
    assert a.ask(402).body == (
        b'{"messageRequestModeMap":{"T":{"G":'
        b'{"consumerGroup":"G","mode":"PULL","popShareQueueNum":0,"topic":"T"}}}}'
    )


def test_queues_of_config_are_an_operators(brokers: Brokers) -> None:
    plain(brokers)
    brokers.join("c0", "c1")
    given = {"c0": ["a:3", "a:1"], "gone": ["a:0"]}
    assert set_mode(brokers, strategyName="CONFIG", queues=given) == 0
    brokers.ask_all("c0", "c1")
    assert brokers.ask_all("c0", "c1") == {"c0": [("a", 3), ("a", 1)], "c1": []}


def test_a_mode_file_of_rocketmq_is_kept_and_one_that_makes_no_sense_does_nothing(
    brokers: Brokers,
) -> None:
    plain(brokers)
    a = brokers.worlds["a"]
    entry = {"topic": TOPIC, "consumerGroup": GROUP, "mode": "LATER", "popShareQueueNum": -7}
    a.broker.request_modes.adopt_modes({"messageRequestModeMap": {TOPIC: {GROUP: entry}}})
    brokers.join("c0")
    assert brokers.ask("c0") == QUEUES
    assert a.broker.request_modes.to_json()["messageRequestModeMap"][TOPIC][GROUP] == entry


def test_thousands_of_queues_are_shared_on_another_thread(brokers: Brokers) -> None:
    plain(brokers)
    a = brokers.worlds["a"]
    a.broker.topics.put(TopicConfig(TOPIC, 4_000, 4_000), a.now_ms)
    brokers.join("c0", "c1")
    a.config_disk.hold()
    first = a.dispatch(query_of("c0"))
    second = a.dispatch(query_of("c1"))
    assert not first.done and not second.done  # type: ignore[union-attr]
    a.config_disk.release()
    found = [json.loads(later.value.body) for later in (first, second)]  # type: ignore[union-attr]
    assert [len(one["messageQueueAssignments"]) for one in found] == [2_000, 2_000]


def query_of(client_id: str) -> Any:
    from turbopump.net.wire.command import new_request

    body = {"clientId": client_id, "consumerGroup": GROUP, "topic": TOPIC, "strategyName": "AVG"}
    return new_request(400, None, json.dumps(body).encode())
