"""Queue locks that a majority of the group gives (lockInStrictMode; ha.md 12.8)."""

import json
from collections.abc import Callable

import pytest
from tests.unit.broker.ha.acting import test_acting_group
from tests.unit.broker.ha.acting.test_acting_group import (
    ACTING,
    AS_SLAVE,
    MASTER,
    OTHER,
    SLAVE,
    Bench,
)

from turbopump.broker.ha.acting.lock_quorum import RESPONSE_MAX, YOUNG, YOUNG_MS
from turbopump.engine.deferred import Deferred
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request

make = test_acting_group.make
STRICT = "lockInStrictMode=true\n"
TWO = (ACTING + STRICT + "skipPreOnline=true\n", AS_SLAVE + STRICT)


def ask(bench: Bench, client_id: str, code: int = RequestCode.LOCK_BATCH_MQ) -> Command:
    queues = [{"topic": "T", "brokerName": "b", "queueId": each} for each in range(2)]
    body = {"consumerGroup": "G", "clientId": client_id, "mqSet": queues}
    later = bench.world.dispatch(new_request(code, None, json.dumps(body).encode()))
    response = later.value if isinstance(later, Deferred) else later
    assert isinstance(response, Command)
    return response


def locks(bench: Bench, client_id: str) -> int:
    """Number of queues, of two, that a client locks."""
    response = ask(bench, client_id)
    assert response.code == 0, response.remark
    return len(json.loads(response.body)["lockOKMQSet"])


def together(*benches: Bench) -> None:
    """Make the brokers known to each other."""
    brokers = [bench.world.broker for bench in benches]
    benches[0].names.members = {one.config.broker_id: one.address for one in brokers}
    for bench in benches:
        bench.world.pass_time(2_000)


@pytest.fixture
def pair(make: Callable[..., Bench]) -> tuple[Bench, Bench]:
    """A master and its replica, both up for some time."""
    master, slave = make(TWO[0], MASTER), make(TWO[1], SLAVE)
    slave.has_master = True
    together(master, slave)
    for bench in (master, slave):
        bench.world.now_ms += YOUNG_MS
    return master, slave


def test_a_lock_is_kept_by_a_majority(pair: tuple[Bench, Bench]) -> None:
    master, slave = pair
    assert locks(master, "a") == 2
    assert (len(master.world.broker.locks), len(slave.world.broker.locks)) == (2, 2)
    assert locks(master, "b") == 0
    assert locks(master, "a") == 2, "it is renewed"
    ask(master, "a", RequestCode.UNLOCK_BATCH_MQ)
    assert (len(master.world.broker.locks), len(slave.world.broker.locks)) == (0, 0)
    assert locks(master, "b") == 2


def test_half_of_a_group_gives_no_lock_and_keeps_none(pair: tuple[Bench, Bench]) -> None:
    master, slave = pair
    master.names.dead.add(SLAVE)
    assert locks(master, "a") == 0
    assert len(master.world.broker.locks) == 0, "another client would wait for its end"
    slave.has_master = False
    master.names.dead.add(MASTER)
    slave.say(_1=SLAVE)
    assert slave.world.broker.role.is_acting
    assert locks(slave, "a") == 0


def test_a_master_that_comes_back_asks_for_the_holder_of_a_lock(
    pair: tuple[Bench, Bench], make: Callable[..., Bench]
) -> None:
    master, slave = pair
    assert locks(master, "a") == 2
    again = make(TWO[0], "10.0.0.4:10911")
    together(again, slave)
    assert again.group.quorum.is_young
    assert locks(again, "b") == 0, "its replica remembers"
    assert locks(again, "a") == 2
    assert locks(again, "b") == 0


def test_brokers_that_all_forgot_give_nothing_for_a_while(make: Callable[..., Bench]) -> None:
    master, slave = make(TWO[0], MASTER), make(TWO[1], SLAVE)
    slave.has_master = True
    together(master, slave)
    assert locks(master, "a") == 0, "a client may believe in its lock"
    assert len(master.world.broker.locks) == 0
    master.world.now_ms += YOUNG_MS
    assert locks(master, "a") == 2


def test_two_of_three_are_enough_if_they_remember(make: Callable[..., Bench]) -> None:
    of_three = [text.replace("totalReplicas=2", "totalReplicas=3") for text in TWO]
    master, slave = make(of_three[0], MASTER), make(of_three[1], SLAVE)
    other = make(of_three[1].replace("brokerId=1", "brokerId=2"), OTHER)
    slave.has_master = other.has_master = True
    together(master, slave, other)
    for bench in (master, slave):
        bench.world.now_ms += YOUNG_MS
    master.names.dead.add(OTHER)
    assert locks(master, "a") == 2
    master.names.dead.clear()
    master.names.dead.add(SLAVE)
    assert locks(master, "a") == 0, "the third has started just now"


def test_a_replica_votes_and_serves_no_client(pair: tuple[Bench, Bench]) -> None:
    _master, slave = pair
    assert ask(slave, "a").code == 14
    assert len(slave.world.broker.locks) == 0


def test_a_vote_says_that_its_table_is_young(make: Callable[..., Bench]) -> None:
    slave = make(TWO[1], SLAVE)
    queues = [{"topic": "T", "brokerName": "b", "queueId": 0}]
    body = {"consumerGroup": "G", "clientId": "a", "mqSet": queues, "onlyThisBroker": True}
    vote = json.loads(slave.world.ask(41, None, json.dumps(body).encode()).body)
    assert vote == {"lockOKMQSet": queues, YOUNG: True}
    slave.world.now_ms += YOUNG_MS
    vote = json.loads(slave.world.ask(41, None, json.dumps(body).encode()).body)
    assert vote == {"lockOKMQSet": queues}


VOTE = json.dumps(
    {"lockOKMQSet": [{"topic": "T", "brokerName": "b", "queueId": each} for each in range(2)]}
).encode()


@pytest.mark.parametrize(
    "response",
    [b"[]", b'{"lockOKMQSet":[{"topic":"T","queueId":"x"}]}', VOTE + b" " * RESPONSE_MAX],
    ids=["no object", "no queues", "endless"],
)
def test_a_voter_that_says_nonsense_has_no_vote(
    pair: tuple[Bench, Bench], monkeypatch: pytest.MonkeyPatch, response: bytes
) -> None:
    master, _slave = pair
    real = master.names._answer

    def nonsense(address: str, request: Command) -> Command | str:
        if address == SLAVE and request.code == RequestCode.LOCK_BATCH_MQ:
            return Command(code=0, body=response)
        return real(address, request)

    monkeypatch.setattr(master.names, "_answer", nonsense)
    assert locks(master, "a") == 0


def test_a_request_for_very_many_queues_is_refused(pair: tuple[Bench, Bench]) -> None:
    queues = [{"topic": "T", "brokerName": "b", "queueId": each} for each in range(4_097)]
    body = {"consumerGroup": "G", "clientId": "a", "mqSet": queues}
    response = pair[0].world.dispatch(new_request(41, None, json.dumps(body).encode()))
    assert isinstance(response, Command), "it is refused at once"
    assert response.code == 29
    assert "more than 4096 queues" in response.remark


def test_a_group_of_one_gives_locks_at_once(make: Callable[..., Bench]) -> None:
    """RocketMQ starts with totalReplicas=1, so the broker has no other broker to ask."""
    one = make(TWO[0].replace("totalReplicas=2", "totalReplicas=1"), MASTER)
    one.names.members = {0: one.world.broker.address}
    one.world.pass_time(2_000)
    assert locks(one, "a") == 2
