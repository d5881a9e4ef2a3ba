"""A load that loses its broker: the time of route requests, and the new targets of connections."""

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from turbopump.cli.errors import CommandFailed
from turbopump.cli.load import failover
from turbopump.cli.load.failover import SILENT_S, BrokerLink, Links
from turbopump.net.client.options import ClientOptions

OLD, NEW, REPLICA = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"


def link(is_sender: bool) -> BrokerLink:
    return BrokerLink("a", "T", is_sender, OLD, socket.socket())


@pytest.mark.parametrize(
    ("known", "sender", "reader"),
    [
        ({0: NEW, 1: REPLICA}, NEW, NEW),
        ({1: REPLICA, 2: OLD}, None, REPLICA),
        ({}, None, None),
    ],
)
def test_where_a_connection_goes(
    known: dict[int, str], sender: str | None, reader: str | None
) -> None:
    for is_sender, wanted in ((True, sender), (False, reader)):
        one = link(is_sender)
        assert one.address_to_connect({"a": known}) == wanted
        assert one.address_to_connect({"b": {0: NEW}}) is None, "of another broker"
        one.made.close()


class Load:
    """Stands for the native loop: the lost connections, and the calls it receives."""

    def __init__(self) -> None:
        self.lost: set[int] = set()
        self.acked = 0
        self.given: list[tuple[int, int]] = []
        self.dropped: list[int] = []

    def progress(self) -> tuple[float, int, int, int]:
        return 0.0, self.acked, 0, 0

    @property
    def away(self) -> int:
        return len(self.lost)

    def is_away(self, number: int) -> bool:
        return number in self.lost

    def hand_over(self, number: int, descriptor: int) -> None:
        self.given.append((number, descriptor))
        self.lost.discard(number)

    def drop(self, number: int) -> None:
        self.dropped.append(number)
        self.lost.add(number)


class World:
    """Sockets that connect at once, a clock, and a name server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.tried: list[str] = []
        self.refused: set[str] = set()
        self.routes: dict[str, dict[int, str]] = {"a": {0: OLD, 1: REPLICA}}
        self.asked = 0
        self.made: list[socket.socket] = []
        monkeypatch.setattr(failover, "open_socket", self._open)
        monkeypatch.setattr(failover, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(Links, "_query_addresses", self._ask)
        self.links = Links(["n:1"], ClientOptions())
        self.load: Any = Load()

    def _open(self, address: str, _timeout_s: float) -> socket.socket:
        self.tried.append(address)
        if address in self.refused:
            raise ConnectionRefusedError(111, "Connection refused")
        self.made.append(socket.socket())
        return self.made[-1]

    def _ask(self) -> dict[str, dict[int, str]]:
        self.asked += 1
        return self.routes

    def connect(self, is_sender: bool = True) -> int:
        return self.links.open_connection("a", "T", is_sender, OLD)

    def look(self, after_s: float = 0.02) -> None:
        self.now_s += after_s
        self.links.maintain_connections(self.load)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = World(monkeypatch)
    yield made
    made.links.close()
    assert all(one.fileno() == -1 for one in made.made), "all sockets are closed"


def test_while_answers_come_nothing_is_asked(world: World) -> None:
    assert world.connect() == world.made[0].fileno() and len(world.links) == 1
    for number in range(200):
        world.load.acked = number
        world.look()
    assert world.asked == 0 and world.tried == [OLD]


def test_a_lost_sender_goes_to_the_new_master(world: World) -> None:
    world.connect()
    world.connect(is_sender=False)
    world.load.lost = {0}
    world.routes = {"a": {0: NEW}}
    world.look()
    assert world.load.given == [(0, world.made[-1].fileno())] and world.tried[-1] == NEW
    assert world.made[0].fileno() == -1, "the old socket is closed"
    world.look()
    assert world.asked == 1, "nothing is lost from now"


def test_without_a_master_senders_wait_and_readers_go_on(world: World) -> None:
    world.connect()
    world.connect(is_sender=False)
    world.load.lost = {0, 1}
    world.routes = {"a": {1: REPLICA}}
    world.look()
    assert [number for number, _ in world.load.given] == [1] and world.tried[-1] == REPLICA
    world.routes = {}
    world.look()
    assert world.load.lost == {0} and len(world.load.given) == 1


def test_an_address_that_refuses_is_tried_once_a_look(world: World) -> None:
    for _ in range(3):
        world.connect()
    world.load.lost = {0, 1, 2}
    world.refused = {OLD}
    world.look()
    assert world.tried == [OLD] * 4 and not world.load.given
    world.refused = set()
    world.look()
    assert world.load.lost == set()


def test_silence_is_a_question_too(world: World) -> None:
    """A machine that lost its power closes no connection."""
    world.connect()
    world.look(SILENT_S - 0.1)
    assert world.asked == 0
    world.look(0.2)
    assert world.asked == 1 and not world.load.dropped, "the master is where it was"
    world.look(SILENT_S - 0.1)
    assert world.asked == 1, "not at each look"
    world.routes = {"a": {0: NEW}}
    world.look(0.2)
    assert world.load.dropped == [0] and not world.load.given
    world.look()
    assert [number for number, _ in world.load.given] == [0] and world.tried[-1] == NEW


def test_a_broker_that_cannot_be_reached_at_first(world: World) -> None:
    world.refused = {OLD}
    with pytest.raises(CommandFailed, match=f"^{OLD}: Connection refused$"):
        world.connect()
    assert len(world.links) == 0
