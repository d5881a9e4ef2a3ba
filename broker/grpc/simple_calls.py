"""Decision about gRPC calls that the fast lane may serve without Python code reading their content.

Owns that decision: an accepted call has the same result as through net/messaging. It must never
store anything. GrpcLane (pyx/grpc_lane.pyx) asks for each call that is plain by its bytes.

Tests: tests/unit/broker/grpc/test_recorded.py
"""

from typing import Final

from turbopump.broker.context import BrokerContext
from turbopump.net.grpc.codes import MessageType
from turbopump.net.messaging.messaging import Messaging
from turbopump.net.messaging.routes import type_of
from turbopump.net.wire.names import validate_group_name, validate_topic_name
from turbopump.net.wire.topics import MIXED
from turbopump.pyx.lane import Lane

_TYPES: Final = (MessageType.NORMAL.name, MIXED)
NAMES_MAX: Final = 1_000
"""Maximum checked names, and maximum checked pairs of names, that are remembered, 600 bytes each;
then all are forgotten and checked again."""


class SimpleCalls:
    """Decides about gRPC calls that native code may serve without the service: `find_native_lane`
    for sends and `may_ack` for acknowledgements, as GrpcLane calls them, with names as ASCII bytes.
    Loop thread only."""

    def __init__(self, broker: BrokerContext, service: Messaging) -> None:
        self._broker = broker
        self._clients = service.clients
        self._renewals = service.renewals
        self._names: dict[bytes, str] = {}
        self._pairs: set[tuple[bytes, bytes]] = set()

    def may_ack(self, group: bytes, topic: bytes, client_id: bytes) -> Lane | None:
        """Return the lane if it may acknowledge natively for this group, topic and client, which
        counts as a sign of life of the client. None if the service has to handle the call: a name
        is invalid, or receipts of the client are renewed."""
        name = client_id.decode("ascii")
        if self._renewals.is_renewed(name):
            return None
        if (group, topic) not in self._pairs and not self._are_legal(group, topic):
            return None
        self._clients.get(name)
        return self._broker.fast.lane

    def _are_legal(self, group: bytes, topic: bytes) -> bool:
        """Whether group and topic have legal names; a legal pair is remembered."""
        if validate_group_name(group.decode("ascii")) is not None:
            return False
        if validate_topic_name(topic.decode("ascii")) is not None:
            return False
        if len(self._pairs) == NAMES_MAX:
            self._pairs.clear()
        self._pairs.add((group, topic))
        return True

    def find_native_lane(
        self, topic: bytes, client_id: bytes
    ) -> tuple[Lane, int, bytes | None] | None:
        """Return (lane, queue id, the client's packed host or None if it has no settings) for a
        native send to the topic, with a random queue. None if the service has to handle the call: a
        system topic, an unknown or unwritable topic, a type besides NORMAL and MIXED, or a replica.
        A result counts as a sign of life of the client."""
        broker = self._broker
        role, name = broker.role, self._names.get(topic) or self._check_topic(topic)
        config = broker.topics.get(name)
        if config is None or not (role.is_master and role.is_known):
            return None
        if not config.is_writable or config.write_queue_nums <= 0 or type_of(config) not in _TYPES:
            return None
        client = self._clients.get(client_id.decode("ascii"))
        queue_id = int(broker.random.random() * config.write_queue_nums)
        return broker.fast.lane, queue_id, None if client is None else client.peer.host

    def _check_topic(self, topic: bytes) -> str:
        """Return the topic's name as text, and remember it; "" for a system topic and an illegal
        name."""
        name = topic.decode("ascii")
        if self._broker.topics.is_system(name) or validate_topic_name(name) is not None:
            return ""
        if len(self._names) == NAMES_MAX:
            self._names.clear()
        self._names[topic] = name
        return name
