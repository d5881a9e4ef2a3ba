"""Registration of a proxy's clients at brokers: topics with a transactional producer, and groups
with a consumer.

Owns the registration of this proxy at all masters, as one client of each, and the forwarding of
brokers' requests to a client. It must never keep a client's settings.

A broker keeps one member of a group for each connection, and a proxy has one connection to each
broker. So the proxy is the member, under its own client id, as RocketMQ's proxy is for producer
groups.

Tests: tests/unit/proxy/test_cluster_map.py
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from turbopump.engine.deferred import Deferred
from turbopump.net.transport.dispatcher import Dispatcher, Response
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import properties as names
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request, new_response
from turbopump.net.wire.headers.clients import UnregisterClientRequest
from turbopump.net.wire.heartbeat import ConsumerData, HeartbeatData, ProducerData
from turbopump.net.wire.message import decode_messages
from turbopump.net.wire.names import kept_size
from turbopump.proxy.broker_calls import BrokerCalls
from turbopump.proxy.cluster_map import ClusterMap

logger = logging.getLogger(__name__)

BEAT_MS: Final = 30_000
"""Interval of full heartbeats to a master; changes are sent immediately."""
BEAT_GROUPS_MAX: Final = 100
"""Maximum number of groups in one heartbeat."""
GROUPS_SIZE_MAX: Final = 64 << 20
"""Bytes of all groups, at most; groups beyond it are not registered."""
GROUP_SIZE: Final = 1_000
"""Estimated bytes of a group besides its name, subscriptions and members."""
MEMBER_SIZE: Final = 200
"""Estimated bytes of a member besides its client id."""
RELAY_MS: Final = 5_000
"""Timeout of a client's response to an operator's request
(grpcProxyRelayRequestTimeoutInSeconds)."""


@dataclass(slots=True)
class _Group:
    """The clients of this proxy in a group: connections by client id, and a consumer
    group's data."""

    members: dict[str, Peer] = field(default_factory=dict)
    data: ConsumerData | None = None
    size: int = 0


class ClusterMembers:
    """The clients of this proxy by group. Loop thread only. `client_id` is the proxy's own,
    `steady_ms` the monotonic clock in ms. Requests to brokers are sent at once, and a failure is
    repaired by the next full heartbeat (`tick`)."""

    def __init__(
        self,
        known: ClusterMap,
        calls: BrokerCalls,
        client_id: str,
        steady_ms: Callable[[], int],
    ) -> None:
        self._known = known
        self._calls = calls
        self._client_id = client_id
        self._steady_ms = steady_ms
        self._producers: dict[str, _Group] = {}
        self._consumers: dict[str, _Group] = {}
        self._of_client: dict[str, tuple[set[str], set[str]]] = {}
        self._sent_ms: dict[str, int] = {}
        self._size = 0

    def register(self, table: Dispatcher) -> None:
        """Add the handlers of requests that brokers send on the proxy's connections to `table`."""
        table.add(RequestCode.CHECK_TRANSACTION_STATE, self._forward_check)
        table.add(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, lambda _request, _peer, _now_ms: None)
        table.add(RequestCode.GET_CONSUMER_RUNNING_INFO, self._forward_to_member)
        table.add(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._forward_to_member)

    def unregister_all(self) -> None:
        """Unregister all clients at the brokers, because the proxy stops; returns before the
        responses (see BrokerCalls.held)."""
        for client_id in list(self._of_client):
            self.remove_client(client_id)

    def register_producer(self, client_id: str, topics: Iterable[str], peer: Peer) -> None:
        """Register a client that sends transactions to topics, connected by `peer`; the masters
        receive a heartbeat for each topic that is new at this proxy."""
        new = [
            topic
            for topic in topics
            if self._add_member(self._producers, 0, topic, client_id, peer)
        ]
        if new:
            self._register_at_masters([ProducerData(topic) for topic in new], [])

    def register_consumer(self, client_id: str, data: ConsumerData, peer: Peer) -> None:
        """Register a client, connected by `peer`, that consumes for the group of `data`; the
        masters receive a heartbeat if the group or its subscriptions are new here."""
        group = data.group_name
        is_new = self._add_member(self._consumers, 1, group, client_id, peer)
        known = self._consumers.get(group)
        if known is None:
            return
        is_changed = known.data is None or _subscription_keys(known.data) != _subscription_keys(
            data
        )
        if is_changed:
            size = sum(one.size for one in data.subscription_data_set)
            if self._size + size > GROUPS_SIZE_MAX:
                return
            before = () if known.data is None else known.data.subscription_data_set
            size -= sum(one.size for one in before)
            known.size += size
            self._size += size
            known.data = data
        if is_new or is_changed:
            self._register_at_masters([], [data])

    def remove_client(self, client_id: str) -> None:
        """Remove a client that has disconnected, and unregister groups without other clients at the
        brokers; without effect for an unknown client."""
        topics, groups = self._of_client.pop(client_id, (set(), set()))
        for topic in topics:
            if self._remove_member(self._producers, topic, client_id):
                self._unregister_at_masters(
                    UnregisterClientRequest(self._client_id, producer_group=topic)
                )
        for group in groups:
            if self._remove_member(self._consumers, group, client_id):
                self._unregister_at_masters(
                    UnregisterClientRequest(self._client_id, consumer_group=group)
                )

    def tick(self) -> None:
        """Send a full heartbeat to each master whose last one is BEAT_MS old, or failed."""
        now_ms, masters = self._steady_ms(), self._known.master_addresses()
        for name, address in masters.items():
            if now_ms - self._sent_ms.get(address, now_ms - BEAT_MS) >= BEAT_MS:
                self._sent_ms[address] = now_ms
                self._send_full_heartbeat(name, address)
        for address in self._sent_ms.keys() - set(masters.values()):
            del self._sent_ms[address]

    def note_lost(self, address: str) -> None:
        """Have the next `tick` send a full heartbeat to the master at `address`: with the lost
        connection the broker has removed the proxy's groups."""
        self._sent_ms.pop(address, None)

    def _add_member(
        self, groups: dict[str, _Group], kind: int, name: str, client_id: str, peer: Peer
    ) -> bool:
        """Add a client to its group, which is added if it is missing; returns whether the group is
        new at this proxy."""
        group = groups.get(name)
        if group is not None and client_id in group.members:
            group.members[client_id] = peer
            return False
        size = MEMBER_SIZE + kept_size(client_id)
        more = 0 if group is not None else GROUP_SIZE + kept_size(name)
        if self._size + size + more > GROUPS_SIZE_MAX:
            logger.warning("%s is not registered: all groups exceed the limit of bytes", name)
            return False
        is_new = group is None
        group = groups.setdefault(name, _Group())
        group.members[client_id] = peer
        group.size += size + more
        self._size += size + more
        self._of_client.setdefault(client_id, (set(), set()))[kind].add(name)
        return is_new

    def _remove_member(self, groups: dict[str, _Group], name: str, client_id: str) -> bool:
        """Remove a client from a group; returns whether the group has no members left."""
        group = groups[name]
        del group.members[client_id]
        size = MEMBER_SIZE + kept_size(client_id)
        if not group.members:
            size = group.size
            del groups[name]
        group.size -= size
        self._size -= size
        return not group.members

    def _send_full_heartbeat(self, name: str, address: str) -> None:
        """Send all groups to the master of the broker group `name`, in heartbeats of at most
        BEAT_GROUPS_MAX groups."""
        producers = [ProducerData(topic) for topic in self._producers]
        consumers = [one.data for one in self._consumers.values() if one.data is not None]
        most = max(len(producers), len(consumers))
        for at in range(0, most, BEAT_GROUPS_MAX):
            to = at + BEAT_GROUPS_MAX
            self._send_heartbeat(name, address, producers[at:to], consumers[at:to])

    def _register_at_masters(
        self, producers: list[ProducerData], consumers: list[ConsumerData]
    ) -> None:
        """Send these groups to all masters."""
        for name, address in self._known.master_addresses().items():
            self._send_heartbeat(name, address, producers, consumers)

    def _send_heartbeat(
        self,
        name: str,
        address: str,
        producers: list[ProducerData],
        consumers: list[ConsumerData],
    ) -> None:
        """Send groups to a master; if it refuses, the next tick sends all groups again."""
        body = HeartbeatData(self._client_id, producers, consumers).encode()

        def answered(response: Command) -> None:
            if response.code != ResponseCode.SUCCESS:
                logger.info("%s refused a heartbeat: %s", name, response.remark)
                self._sent_ms.pop(address, None)

        self._calls.send_to_master(
            name, new_request(RequestCode.HEART_BEAT, body=body), (), answered
        )

    def _unregister_at_masters(self, header: UnregisterClientRequest) -> None:
        for name in self._known.master_addresses():
            request = new_request(RequestCode.UNREGISTER_CLIENT, header)
            self._calls.send_to_master(name, request, (), lambda _answer: None)

    # Requests from brokers

    def _forward_check(self, request: Command, peer: Peer, _now_ms: int) -> None:
        """Forward a check of a transaction (39) to one of the topic's producers."""
        assert not isinstance(request.body, list), "a decoded body is one buffer"
        for view in decode_messages(request.body):
            producer = _next_of(self._producers, view.properties.get(names.PGROUP, ""))
            if producer is not None:
                fields = {"bname": self._known.name_at(peer.address), **request.fields}
                asked = new_request(request.code, None, bytes(request.body), fields=fields)
                producer.notify(asked)

    def _forward_to_member(self, request: Command, _peer: Peer, _now_ms: int) -> Response:
        """Forward an operator's request to a consumer (307, 309) to a member of its group at this
        proxy."""
        group = request.fields.get("consumerGroup", "")
        consumer = _next_of(self._consumers, group)
        if consumer is None:
            remark = f"the consumer group {group} has no member at this proxy"
            return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
        body = b"".join(request.body) if isinstance(request.body, list) else bytes(request.body)
        asked = new_request(request.code, None, body, fields=dict(request.fields))
        answered: Deferred[Command | None] = consumer.call(asked, RELAY_MS)
        opaque = request.opaque

        def passed_on(response: Command | None) -> Command:
            if response is None:
                remark = "the client did not answer in time"
                return new_response(
                    Command(request.code, opaque), ResponseCode.SYSTEM_ERROR, remark
                )
            response.opaque = opaque
            return response

        return answered.map(passed_on)


def _next_of(groups: dict[str, _Group], name: str) -> Peer | None:
    """The next connected member of a group, in rotation; None if it has none."""
    group = groups.get(name)
    if group is None:
        return None
    for client_id, peer in list(group.members.items()):
        group.members[client_id] = group.members.pop(client_id)
        if not peer.closed:
            return peer
    return None


def _subscription_keys(data: ConsumerData) -> set[tuple[str, str, str]]:
    """(topic, expression type, expression) of each subscription of a group."""
    return {(one.topic, one.expression_type, one.sub_string) for one in data.subscription_data_set}
