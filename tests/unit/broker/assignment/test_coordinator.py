"""A single broker assigns the queues of a group, whichever broker receives the request, also after
restarts and switches."""

import json

from tests.unit.broker.assignment.conftest import GROUP, TOPIC, Brokers, queues_of

from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.topics import TopicConfig

ALL = [(name, queue) for name in "ab" for queue in range(4)]


def flat(shares: dict[str, list[tuple[str, int]] | None]) -> list[tuple[str, int]]:
    return sorted(queue for share in shares.values() for queue in share or [])


def test_each_broker_gives_the_coordinators_answer(brokers: Brokers) -> None:
    a, b = brokers.add("a"), brokers.add("b")
    brokers.join("c0", "c1", "c2")
    shares = {"c0": brokers.ask("c0", "b"), "c1": brokers.ask("c1"), "c2": brokers.ask("c2", "b")}
    assert flat(shares) == ALL
    assert sorted(map(len, shares.values())) == [2, 3, 3]  # type: ignore[arg-type]
    assert brokers.ask_all("c0", "c1", "c2", at="b") == shares
    # b keeps the last result, too, and asks for nothing when it has it.
    kept = b.broker.assignments.kept.get(GROUP, TOPIC)
    assert kept is not None and kept == a.broker.assignments.kept.get(GROUP, TOPIC)


def test_a_broker_other_than_the_coordinator_names_it(brokers: Brokers) -> None:
    brokers.add("a")
    b = brokers.add("b")
    brokers.join("c0")
    body = json.dumps({"clientId": "c0", "consumerGroup": GROUP, "topic": TOPIC}).encode()
    request = new_request(RequestCode.QUERY_ASSIGNMENT, None, body, fields={"forwardedBy": "z"})
    response = b.dispatch(request)
    assert response.code == 1
    assert response.remark == "b does not coordinate G for T: a (0) at a:10911 does"
    assert response.fields["coordinatorAddr"] == "a:10911"


def test_members_keep_their_queues_when_the_coordinator_is_silent(brokers: Brokers) -> None:
    brokers.add("a")
    brokers.add("b")
    brokers.join("c0", "c1")
    shares = brokers.ask_all("c0", "c1")
    brokers.cut.add("a:10911")
    response = brokers.query("c0", "b")
    assert queues_of(response) is None
    assert response.fields["coordinatorName"] == "a"
    assert "cannot be reached" in (response.remark or "")
    # Once it is off the route, b decides, with a's last result: only a's queues go.
    brokers.cut.clear()
    assert brokers.ask("c0", "b") == shares["c0"]
    brokers.cut.add("a:10911")
    brokers.left_out.add("a")
    brokers.pass_time(11_000)
    brokers.ask_all("c0", "c1", at="b")
    kept = {who: [q for q in share or [] if q[0] == "b"] for who, share in shares.items()}
    assert brokers.ask_all("c0", "c1", at="b") == kept
    # Broker a returns with its old assignment; b passes on the later ones.
    brokers.cut.clear()
    brokers.left_out.clear()
    brokers.pass_time(11_000)
    brokers.ask_all("c0", "c1", at="b")
    back = brokers.ask_all("c0", "c1", at="b")
    assert flat(back) == ALL
    assert all(set(kept[who]) <= set(back[who] or []) for who in kept)


def test_a_restart_brings_the_result_back(brokers: Brokers) -> None:
    a = brokers.add("a", queues=8)
    brokers.join("c0", "c1", "c2")
    first = brokers.ask_all("c0", "c1", "c2")
    brokers.leave("c1")
    shares = brokers.ask_all("c0", "c2")
    shares = brokers.ask_all("c0", "c2")
    assert all(set(first[who] or []) <= set(share or []) for who, share in shares.items())
    a.close()
    brokers.peers.clear()
    a.open()
    brokers.opened("a", queues=0)
    # The first member that is back gets its own queues, not the other member's, too.
    brokers.join("c2")
    assert brokers.ask("c2") == shares["c2"]
    brokers.join("c0")
    assert brokers.ask_all("c0", "c2") == shares
    # A member that does not come back keeps its queues until its heartbeat times out.
    a.close()
    brokers.peers.clear()
    a.open()
    brokers.opened("a", queues=0)
    brokers.join("c2")
    assert brokers.ask("c2") == shares["c2"]
    brokers.noticed("c2")
    brokers.pass_time(35_100)
    assert brokers.noticed("c2") == 1
    assert len(brokers.ask("c2") or []) == 8


def test_new_queues_are_noticed_and_told(brokers: Brokers) -> None:
    a = brokers.add("a", queues=2)
    brokers.join("c0", "c1")
    assert brokers.ask_all("c0", "c1") == {"c0": [("a", 0)], "c1": [("a", 1)]}
    brokers.noticed("c0")
    a.broker.topics.put(TopicConfig(TOPIC, 4, 4), a.now_ms)
    brokers.pass_time(1_000)
    assert brokers.noticed("c0") == 1
    assert flat(brokers.ask_all("c0", "c1")) == [("a", number) for number in range(4)]


def test_without_name_servers_the_broker_decides_alone(brokers: Brokers) -> None:
    a = brokers.add("a", properties="namesrvAddr=\n")
    brokers.join("c0")
    assert brokers.ask("c0") == [("a", number) for number in range(4)]
    a.broker.topics.put(TopicConfig(TOPIC, 5, 5), a.now_ms)
    assert len(brokers.ask("c0") or []) == 5
