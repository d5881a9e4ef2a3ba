"""Which sends of gRPC the fast lane may store without a look of Python's at each, and into which
queue.

Owns that decision: what it lets pass ends as if net/messaging/sending.py had served it. It must
never store anything. Called by GrpcSends (pyx/grpc_sends.pyx), for each call that is a plain one by
its bytes; made by front.py.
"""

from typing import Final

from turbopump.broker.context import BrokerContext
from turbopump.net.grpc.codes import MessageType
from turbopump.net.messaging.clients import GrpcClients
from turbopump.net.messaging.routes import type_of
from turbopump.net.wire.names import validate_topic_name
from turbopump.net.wire.topics import MIXED
from turbopump.pyx.lane import Lane

_TYPES: Final = (MessageType.NORMAL.name, MIXED)


NAMES_MAX: Final = 1_000
"""Names of topics that were found to be legal, 200 bytes each; then they are looked at again."""


class PlainSends:
    """The `place` of GrpcSends. Loop thread only."""

    def __init__(self, broker: BrokerContext, clients: GrpcClients) -> None:
        self._broker = broker
        self._clients = clients
        self._names: dict[bytes, str] = {}

    def __call__(self, topic: bytes, client_id: bytes) -> tuple[Lane, int, bytes | None] | None:
        """The lane, a queue, and the host of a client that has settings, which has been heard of
        now; None where the service has to look."""
        broker = self._broker
        role, name = broker.role, self._names.get(topic) or self._look_at(topic)
        config = broker.topics.get(name)
        if config is None or not (role.is_master and role.is_known):
            return None
        if not config.is_writable or config.write_queue_nums <= 0 or type_of(config) not in _TYPES:
            return None
        client = self._clients.get(client_id.decode("ascii"))
        queue_id = int(broker.random.random() * config.write_queue_nums)
        return broker.fast.lane, queue_id, None if client is None else client.peer.host

    def _look_at(self, topic: bytes) -> str:
        """Its name, empty where producers may not send to it."""
        name = topic.decode("ascii")
        if self._broker.topics.is_system(name) or validate_topic_name(name) is not None:
            return ""
        if len(self._names) == NAMES_MAX:
            self._names.clear()
        self._names[topic] = name
        return name
