"""A broker, or several, with consumers that have no sockets."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.broker.conftest import World

from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request, new_response
from turbopump.net.wire.heartbeat import ConsumerData, HeartbeatData
from turbopump.net.wire.route import BrokerData, QueueData, TopicRouteData
from turbopump.net.wire.subscription import parse_subscription
from turbopump.net.wire.topics import TopicConfig

GROUP, TOPIC = "G", "T"


class Brokers:
    """Brokers by name. `route` is the name server's response; requests between the brokers are
    answered at once, unless `cut` has the address."""

    def __init__(self, make: Callable[..., World]) -> None:
        self._make = make
        self.worlds: dict[str, World] = {}
        self.cut: set[str] = set()
        self.peers: dict[tuple[str, str], Peer] = {}
        self.left_out: set[str] = set()
        """Broker names that are not on the route."""

    def add(self, name: str, queues: int = 4, properties: str = "") -> World:
        text = f"brokerName={name}\nnamesrvAddr=ns:9876\nrebalanceStrategy=STICKY\n{properties}"
        world = self.worlds[name] = self._make(text, folder=name)
        self.opened(name, queues)
        return world

    def opened(self, name: str, queues: int = 4) -> None:
        """Start a broker again."""
        world = self.worlds[name]
        world.broker.address = f"{name}:10911"
        world.call = self._call  # type: ignore[method-assign]
        if queues:
            world.broker.topics.put(TopicConfig(TOPIC, queues, queues), world.now_ms)

    def _call(self, address: str, request: Command, timeout_ms: int) -> Any:
        from turbopump.engine.deferred import Deferred

        later: Deferred[Command | str] = Deferred()
        if address in self.cut:
            later.resolve(f"{address} cannot be reached")
        elif address == "ns:9876":
            later.resolve(new_response(request, 0, body=self.route().encode()))
        else:
            world = self.worlds[address.partition(":")[0]]
            copy = new_request(request.code, None, bytes(request.body), fields=request.fields)
            later.resolve(world.dispatch(copy))  # type: ignore[arg-type]
        return later

    def route(self) -> TopicRouteData:
        names = [name for name in self.worlds if name not in self.left_out]
        found = {name: self.worlds[name].broker.topics.get(TOPIC) for name in names}
        return TopicRouteData(
            [
                QueueData(name, config.read_queue_nums, config.write_queue_nums, 6)
                for name, config in found.items()
                if config is not None
            ],
            [BrokerData("C", name, {0: f"{name}:10911"}) for name in names],
        )

    def join(self, *client_ids: str, group: str = GROUP) -> None:
        for client_id in client_ids:
            for name, world in self.worlds.items():
                peer = self.peers.get((name, client_id))
                if peer is None:
                    peer = self.peers[name, client_id] = world.peer()
                beat(world, peer, client_id, group)

    def leave(self, client_id: str, group: str = GROUP) -> None:
        for name, world in self.worlds.items():
            del self.peers[name, client_id]
            fields = {"clientID": client_id, "consumerGroup": group}
            peer = next(
                peer
                for peer, member in world.broker.consumers.group(group).members.items()  # type: ignore[union-attr]
                if member.client_id == client_id
            )
            world.dispatch(new_request(RequestCode.UNREGISTER_CLIENT, fields=fields), peer)

    def ask(self, client_id: str, at: str = "a", **more: Any) -> list[tuple[str, int]] | None:
        return queues_of(self.query(client_id, at, **more))

    def query(self, client_id: str, at: str = "a", **more: Any) -> Command:
        body = {
            "clientId": client_id,
            "consumerGroup": GROUP,
            "messageModel": "CLUSTERING",
            "strategyName": "AVG",
            "topic": TOPIC,
            **more,
        }
        return self.worlds[at].ask(RequestCode.QUERY_ASSIGNMENT, body=json.dumps(body).encode())

    def ask_all(self, *client_ids: str, at: str = "a") -> dict[str, list[tuple[str, int]] | None]:
        return {client_id: self.ask(client_id, at) for client_id in client_ids}

    def pass_time(self, duration_ms: int) -> None:
        for world in self.worlds.values():
            world.pass_time(duration_ms)

    def noticed(self, client_id: str, at: str = "a") -> int:
        """Clients that received a notice (40) since the last call."""
        sent = self.peers[at, client_id]._link.sent  # type: ignore[attr-defined]
        count = sum(one.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED for one in sent)
        sent.clear()
        return count


def beat(world: World, peer: Peer, client_id: str, group: str = GROUP) -> None:
    subscription = parse_subscription(TOPIC, "*", "TAG", 1)
    data = ConsumerData(
        group_name=group,
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscription_data_set=[subscription],
    )
    body = HeartbeatData(client_id, consumer_data_set=[data]).encode()
    world.ask(RequestCode.HEART_BEAT, body=body, peer=peer)


def queues_of(response: Command) -> list[tuple[str, int]] | None:
    assert response.code == 0, response.remark
    found = json.loads(bytes(response.body)).get("messageQueueAssignments")
    if found is None:
        return None
    assert all(one["mode"] == "PULL" for one in found)
    beans = [one["messageQueue"] for one in found]
    return [(bean["brokerName"], bean["queueId"]) for bean in beans]


@pytest.fixture
def brokers(make_world: Callable[..., World]) -> Iterator[Brokers]:
    yield Brokers(make_world)
