"""QueryRoute and QueryAssignment: the queues of a topic and their servers.

Owns the shape of the answers (RocketMQ: RouteActivity). It must never decide about a topic.

An answer has the queues of all brokers that the backend serves, each with the address of the server
that received the request. RocketMQ's proxy numbers the queues by their permission; here a queue
keeps its own number, because an ordered consumer asks for queues by it.

Tests: tests/unit/net/messaging/test_clients.py
"""

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from turbopump.net.grpc.codes import AddressScheme, Code, MessageType, Permission
from turbopump.net.grpc.messages import message_class
from turbopump.net.messaging.backend import ANY_QUEUE, RequestBackend
from turbopump.net.messaging.rpc import Rpc, RpcRefused, check_not_system, group_of, topic_of
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.wire.hosts import split_host_port
from turbopump.net.wire.topics import MESSAGE_TYPE, MIXED, TopicConfig

QUEUES_PER_STEP: Final = 256
"""Number of queues of an answer in a step; an answer with fewer is made at once."""

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
    """Serves routes. `endpoints` takes a request and returns the addresses at which clients find
    the server, as the message Endpoints. Loop thread only."""

    def __init__(self, backend: RequestBackend, endpoints: Callable[[Any], Any]) -> None:
        self._backend = backend
        self._endpoints = endpoints

    def serve_route(self, rpc: Rpc) -> None:
        """Serve QueryRoute: answer with all queues of a topic, by broker and then by id, once the
        topic is resolved. Raises RpcRefused for an invalid name or a system topic."""
        name = topic_of(rpc.request.topic)
        check_not_system(self._backend, name)
        rpc.when_resolved(self._backend, [name], [], lambda: self._answer_route(rpc, name))

    def _answer_route(self, rpc: Rpc, name: str) -> None:
        """Answer with the queues of the resolved topic `name`. Raises RpcRefused."""

        def queue(one: tuple[Any, tuple[MessageType, ...], int, Permission]) -> Any:
            return _MessageQueue(
                topic=rpc.request.topic,
                broker=one[0],
                accept_message_types=one[1],
                id=one[2],
                permission=one[3],
            )

        queues = [
            (broker, types, queue_id, permission)
            for broker, topic in self._brokers_of_topic(rpc, name)
            for types in (accepted_types(topic),)
            for queue_id, permission in _queue_permissions(topic)
        ]
        self._answer_in_steps(rpc, "message_queues", queues, queue)

    def serve_assignment(self, rpc: Rpc) -> None:
        """Serve QueryAssignment once topic and group are resolved: every member gets all readable
        queues, because pops divide the messages; a group that is not in order gets ANY_QUEUE of
        each broker. Raises RpcRefused for an invalid name."""
        name, group = topic_of(rpc.request.topic), group_of(rpc.request.group)
        rpc.when_resolved(
            self._backend, [name], [group], lambda: self._answer_assignment(rpc, name, group)
        )

    def _answer_assignment(self, rpc: Rpc, name: str, group_name: str) -> None:
        """Answer with the assignments of a resolved topic and group. Raises RpcRefused without a
        readable queue."""
        readable = [
            (broker, topic)
            for broker, topic in self._brokers_of_topic(rpc, name)
            if topic.is_readable and topic.read_queue_nums > 0
        ]
        if not readable:
            raise RpcRefused(Code.FORBIDDEN, "no readable queue")
        group = self._backend.group_config(group_name)
        in_order = group is not None and group.consume_message_orderly

        def assignment(one: tuple[Any, TopicConfig, int]) -> Any:
            broker, topic, queue_id = one
            permission = Permission.READ_WRITE if topic.is_writable else Permission.READ
            queue = _MessageQueue(
                topic=rpc.request.topic, id=queue_id, permission=permission, broker=broker
            )
            return _Assignment(message_queue=queue)

        assigned = [
            (broker, topic, queue_id)
            for broker, topic in readable
            for queue_id in (range(topic.read_queue_nums) if in_order else (ANY_QUEUE,))
        ]
        self._answer_in_steps(rpc, "assignments", assigned, assignment)

    def _answer_in_steps(
        self, rpc: Rpc, field: str, items: Sequence[T], make: Callable[[T], Any]
    ) -> None:
        """Answer with `make(item)` for each of `items` in the response's field `field`, in steps
        if there are many."""

        def steps() -> Steps[None]:
            made = []
            for number, one in enumerate(items, 1):
                made.append(make(one))
                if number % QUEUES_PER_STEP == 0:
                    yield
            fields: dict[str, Any] = {field: made}
            rpc.answer_call(**fields)

        if len(items) < QUEUES_PER_STEP:
            for _ in steps():
                pass
        else:
            self._backend.run_steps(rpc.call.packed_host, steps())

    def _brokers_of_topic(self, rpc: Rpc, name: str) -> Iterator[tuple[Any, TopicConfig]]:
        """Yield (the message Broker, its configuration of the topic) for each broker of a topic."""
        endpoints = self._endpoints(rpc.request)
        for broker_name, topic in self._backend.topics_of(name).items():
            # Clients only use brokers with id 0, so a replica that acts for its master has it, too.
            yield _Broker(name=broker_name, id=0, endpoints=endpoints), topic


def endpoints_at(address: str) -> Any:
    """The message Endpoints of a `host:port`. Raises ValueError for another text."""
    host, port = split_host_port(address)
    return _Endpoints(scheme=scheme_of(host), addresses=[{"host": host, "port": port}])


def scheme_of(host: str) -> AddressScheme:
    """The address scheme of a host: IPv4, IPv6 or domain name."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return AddressScheme.DOMAIN_NAME
    return AddressScheme.IPv4 if version == 4 else AddressScheme.IPv6


def type_of(topic: TopicConfig) -> str:
    """The topic's attribute message.type as text, such as FIFO or MIXED; NORMAL if it has none."""
    return topic.attributes.get(MESSAGE_TYPE, MessageType.NORMAL.name)


def accepted_types(topic: TopicConfig) -> tuple[MessageType, ...]:
    """The types of messages that a topic accepts, several for MIXED; MESSAGE_TYPE_UNSPECIFIED for
    an unknown type."""
    name = type_of(topic)
    if name == MIXED:
        return _OF_MIXED
    unknown = MessageType.MESSAGE_TYPE_UNSPECIFIED
    return (MessageType[name] if name in MessageType.__members__ else unknown,)


def _queue_permissions(topic: TopicConfig) -> list[tuple[int, Permission]]:
    """Return (queue id, the client's permission) for each queue of a topic."""
    reads = topic.read_queue_nums if topic.is_readable else 0
    writes = topic.write_queue_nums if topic.is_writable else 0
    if not reads and not writes:
        most = max(1, topic.read_queue_nums, topic.write_queue_nums)
        return [(queue_id, Permission.NONE) for queue_id in range(most)]
    return [
        (queue_id, _permission_of(queue_id < reads, queue_id < writes))
        for queue_id in range(max(reads, writes))
    ]


def _permission_of(reads: bool, writes: bool) -> Permission:
    if reads and writes:
        return Permission.READ_WRITE
    return Permission.READ if reads else Permission.WRITE
