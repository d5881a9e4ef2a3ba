"""QueryRoute and QueryAssignment: where a client finds the queues of a topic.

Owns the shape of the answers (RocketMQ: RouteActivity). It must never decide about a topic. Called
by messaging.py.

The queues are those of this broker, and their address is its own: a client that knows another
broker asks that. RocketMQ's proxy numbers the queues by their permission; here a queue has its own
number, because a consumer in order asks for queues by it.
"""

import ipaddress
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from turbopump.broker.grpc.ground import GrpcGround
from turbopump.broker.grpc.rpc import Rpc, RpcRefused, group_of, topic_of
from turbopump.broker.tables.topic_attributes import MESSAGE_TYPE, MIXED
from turbopump.broker.traffic.replies import SEE_FAQ
from turbopump.net.grpc.codes import AddressScheme, Code, MessageType, Permission
from turbopump.net.grpc.messages import message_class
from turbopump.net.transport.turns import Steps
from turbopump.net.wire.hosts import split
from turbopump.net.wire.topics import TopicConfig

ANY_QUEUE: Final = -1
QUEUES_OF_STEP: Final = 256

T = TypeVar("T")

_Assignment: Final = message_class("Assignment")
_Broker: Final = message_class("Broker")
_Endpoints: Final = message_class("Endpoints")
_MessageQueue: Final = message_class("MessageQueue")
_OF_MIXED: Final = (
    MessageType.NORMAL,
    MessageType.FIFO,
    MessageType.DELAY,
    MessageType.TRANSACTION,
)


class Routes:
    """Answers of one broker; `address` is where clients find its gRPC port."""

    def __init__(self, ground: GrpcGround, address: Callable[[], str]) -> None:
        self._broker = ground.broker
        self._now_ms = ground.now_ms
        self._work = ground.work
        self._address = address

    def query(self, rpc: Rpc) -> None:
        """QueryRoute."""
        resource = rpc.request.topic
        topic = self.topic(topic_of(resource))
        broker, types = self._me(), accepted(topic)

        def queue(one: tuple[int, Permission]) -> Any:
            return _MessageQueue(
                topic=resource,
                id=one[0],
                permission=one[1],
                broker=broker,
                accept_message_types=types,
            )

        self._answer(rpc, "message_queues", _queues(topic), queue)

    def assign(self, rpc: Rpc) -> None:
        """QueryAssignment: every member gets all, because pops share messages out."""
        request = rpc.request
        topic = self.topic(topic_of(request.topic))
        name = group_of(request.group)
        if not topic.is_readable or topic.read_queue_nums <= 0:
            raise RpcRefused(Code.FORBIDDEN, "no readable queue")
        group = self._broker.groups.find(name, self._now_ms())
        in_order = group is not None and group.consume_message_orderly
        broker = self._me()
        permission = Permission.READ_WRITE if topic.is_writable else Permission.READ

        def assignment(queue_id: int) -> Any:
            queue = _MessageQueue(
                topic=request.topic, id=queue_id, permission=permission, broker=broker
            )
            return _Assignment(message_queue=queue)

        queue_ids = range(topic.read_queue_nums) if in_order else (ANY_QUEUE,)
        self._answer(rpc, "assignments", queue_ids, assignment)

    def _answer(self, rpc: Rpc, field: str, items: Sequence[T], make: Callable[[T], Any]) -> None:
        """Answer with a message for each item, in steps where there are many."""

        def steps() -> Steps[None]:
            made = []
            for number, one in enumerate(items, 1):
                made.append(make(one))
                if number % QUEUES_OF_STEP == 0:
                    yield
            fields: dict[str, Any] = {field: made}
            rpc.answer(**fields)

        if len(items) < QUEUES_OF_STEP:
            for _ in steps():
                pass
        else:
            self._work(rpc.call.host, steps())

    def topic(self, name: str) -> TopicConfig:
        """A topic of this broker, which leads; raises RpcRefused."""
        role = self._broker.role
        if not (role.is_master and role.is_known):
            raise RpcRefused(Code.HA_NOT_AVAILABLE, "this broker is a replica: ask its master")
        topic = self._broker.topics.get(name)
        if topic is None:
            text = f"No topic route info in name server for the topic: {name}{SEE_FAQ}"
            raise RpcRefused(Code.TOPIC_NOT_FOUND, text)
        return topic

    def _me(self) -> Any:
        # Clients look at brokers of id 0 alone, also where a replica acts for its master.
        host, port = split(self._address())
        endpoints = _Endpoints(scheme=scheme_of(host), addresses=[{"host": host, "port": port}])
        return _Broker(name=self._broker.config.broker_name, id=0, endpoints=endpoints)


def scheme_of(host: str) -> AddressScheme:
    """What kind of text a host is."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return AddressScheme.DOMAIN_NAME
    return AddressScheme.IPv4 if version == 4 else AddressScheme.IPv6


def type_of(topic: TopicConfig) -> str:
    """The message.type of a topic, NORMAL where it has none."""
    return topic.attributes.get(MESSAGE_TYPE, MessageType.NORMAL.name)


def accepted(topic: TopicConfig) -> tuple[MessageType, ...]:
    """The types of messages that a topic takes."""
    name = type_of(topic)
    if name == MIXED:
        return _OF_MIXED
    unknown = MessageType.MESSAGE_TYPE_UNSPECIFIED
    return (MessageType[name] if name in MessageType.__members__ else unknown,)


def _queues(topic: TopicConfig) -> list[tuple[int, Permission]]:
    """Queue ids with what may be done with them."""
    reads = topic.read_queue_nums if topic.is_readable else 0
    writes = topic.write_queue_nums if topic.is_writable else 0
    if not reads and not writes:
        most = max(1, topic.read_queue_nums, topic.write_queue_nums)
        return [(queue_id, Permission.NONE) for queue_id in range(most)]
    return [
        (queue_id, _permission(queue_id < reads, queue_id < writes))
        for queue_id in range(max(reads, writes))
    ]


def _permission(reads: bool, writes: bool) -> Permission:
    if reads and writes:
        return Permission.READ_WRITE
    return Permission.READ if reads else Permission.WRITE
