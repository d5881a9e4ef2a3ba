"""The request that a name server receives, and the answers that count."""

import json

import pytest

from turbopump.broker.ha.acting.group_members import GroupMembers
from turbopump.engine.deferred import Deferred
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response

AT = "10.0.0.9:9876"
REPLICA = {1: "10.0.0.2:10911"}
BOTH = {0: "10.0.0.1:10911", **REPLICA}
PERIOD_MS = 1_000


class NameServer:
    """A name server that may answer 901, and may have a route of the group's topic."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.is_up = True
        self.knows = True
        """901; a server of RocketMQ 4 does not answer it."""
        self.members_by_id = dict(BOTH)
        self.route: dict[int, str] = {}
        self.asked: list[int] = []
        self.waited_ms: list[int] = []
        """Timeouts of the requests 901."""
        self.members = GroupMembers("c", "b", self._call, lambda: self.now_ms)

    def run(self, for_ms: int) -> None:
        for _ in range(for_ms // 100):
            self.now_ms += 100
            self.members.tick([AT], PERIOD_MS)

    def _call(self, address: str, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        self.asked.append(request.code)
        if request.code == RequestCode.GET_BROKER_MEMBER_GROUP:
            self.waited_ms.append(timeout_ms)
        later: Deferred[Command | str] = Deferred()
        later.resolve(self._answer(request) if self.is_up else "refused")
        return later

    def _answer(self, request: Command) -> Command | str:
        if request.code == RequestCode.GET_BROKER_MEMBER_GROUP:
            group = {"brokerMemberGroup": {"brokerAddrs": _keys(self.members_by_id)}}
            return (
                new_response(request, 0, body=json.dumps(group).encode()) if self.knows else "late"
            )
        if not self.route:
            return new_response(request, ResponseCode.TOPIC_NOT_EXIST)
        group = {"cluster": "c", "brokerName": "b", "brokerAddrs": _keys(self.route)}
        return new_response(request, 0, body=json.dumps({"brokerDatas": [group]}).encode())


def _keys(members: dict[int, str]) -> dict[str, str]:
    return {str(key): at for key, at in members.items()}


@pytest.fixture
def names() -> NameServer:
    return NameServer()


def test_one_that_refused_before_it_ever_answered_is_no_old_one(names: NameServer) -> None:
    names.is_up = False
    names.run(100)
    names.is_up = True
    names.run(1_200)
    assert names.members.members == BOTH
    assert not names.members.is_old(AT)
    assert names.members.answered_ms > 0


def test_an_empty_route_of_one_that_knew_better_does_not_count(names: NameServer) -> None:
    names.run(100)
    names.knows = False
    names.run(60_000)
    assert RequestCode.GET_ROUTEINFO_BY_TOPIC in names.asked
    assert names.members.members == BOTH
    names.knows, names.members_by_id = True, dict(REPLICA)
    names.run(PERIOD_MS + 200)
    assert names.members.members == REPLICA, "901 is asked next after each empty route"


def test_one_that_knew_901_is_asked_that_again_after_a_refusal(names: NameServer) -> None:
    names.run(100)
    names.is_up = False
    names.run(PERIOD_MS)
    names.is_up = True
    names.run(10_000)
    assert set(names.asked) == {RequestCode.GET_BROKER_MEMBER_GROUP}
    assert not names.members.is_old(AT)


def test_a_route_between_two_refusals_is_no_proof(names: NameServer) -> None:
    """The name server starts, and has all topics of this broker by the time of the route
    request."""
    names.route, names.is_up = dict(BOTH), False
    names.run(100)
    names.is_up = True
    names.run(PERIOD_MS + 200)
    assert RequestCode.GET_ROUTEINFO_BY_TOPIC in names.asked
    assert not names.members.is_old(AT)
    names.asked.clear()
    names.run(10_000)
    assert set(names.asked) == {RequestCode.GET_BROKER_MEMBER_GROUP}


def test_one_that_is_silent_again_and_again_and_has_routes_is_an_old_one(
    names: NameServer,
) -> None:
    names.knows, names.route = False, dict(BOTH)
    names.run(5_000)
    assert names.members.members == BOTH
    assert names.members.is_old(AT)
    names.asked.clear()
    names.run(10_000)
    assert set(names.asked) == {RequestCode.GET_ROUTEINFO_BY_TOPIC}


def test_a_name_server_without_the_topic_reports_no_members(names: NameServer) -> None:
    names.knows = False
    names.run(5_000)
    assert (names.members.members, names.members.is_old(AT)) == ({}, True)
    assert names.members.answered_ms > 0, "a master that is alone is not held up"


def test_an_old_one_that_is_replaced_is_asked_itself(names: NameServer) -> None:
    names.knows, names.route = False, dict(BOTH)
    names.run(5_000)
    names.is_up = False
    names.run(PERIOD_MS)
    names.is_up = names.knows = True
    names.members_by_id = dict(REPLICA)
    names.run(2 * PERIOD_MS)
    assert names.members.members == REPLICA
    assert not names.members.is_old(AT)


def test_deletions_reported_once_before_are_not_settled(names: NameServer) -> None:
    """Seed 20 of the simulation `escapes`: a master served on the answer of a name server that had
    just started, before its replica had registered there."""
    names.run(100)
    names.is_up = False
    names.run(10_000)
    assert not names.members.is_stable
    names.is_up = True
    names.run(3_000)
    assert names.members.is_stable


def test_an_old_one_is_waited_for_once(names: NameServer) -> None:
    """Seed 6 of the simulation `popped`: a master learned of its replica more than 12 s too
    late."""
    names.knows, names.route = False, dict(BOTH)
    names.run(5_000)
    assert names.members.is_old(AT)
    assert names.waited_ms == [3_000, 1_000]
