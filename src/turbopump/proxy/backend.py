"""The backend of the clients' service in a proxy: brokers of a cluster execute its requests.

Owns the choice of the broker for a request. It must never handle a message of gRPC. The services of
net/messaging use it through the port RequestBackend.

Tests: tests/unit/proxy/test_cluster_map.py
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from turbopump.engine.deferred import Deferred, gather
from turbopump.net.grpc.codes import Code, MessageType
from turbopump.net.messaging.backend import (
    ANY_QUEUE,
    Done,
    NoReadSizeLimit,
    PopRequest,
    logged_steps,
)
from turbopump.net.messaging.message_conversion import queue_of_group
from turbopump.net.messaging.rpc import RpcRefused
from turbopump.net.routing.name_servers import Absent
from turbopump.net.transport.fair_scheduler import FairScheduler, Steps
from turbopump.net.transport.peer import Peer, Timer
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request, new_response
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.heartbeat import HeartbeatData
from turbopump.net.wire.names import is_system_topic
from turbopump.net.wire.topics import MESSAGE_TYPE, MIXED, TopicConfig
from turbopump.proxy.broker_calls import BrokerCalls
from turbopump.proxy.cluster_map import ClusterMap
from turbopump.proxy.config import ProxyConfig
from turbopump.proxy.members import ClusterMembers

WAITING_MAX: Final = 256 << 20
"""Bytes of requests that wait for the look-up of their names; beyond it a request with an unknown
name is refused."""
WAITING_SIZE: Final = 1_000
"""Estimated bytes of a name that is looked up."""
TOPIC_FIELDS: Final = ("topic", "b", "originTopic")
"""Fields with the topic of a request."""


class ProxyRequestBackend:
    """The port of a proxy. Loop thread only.

    `call_soon` schedules work after the current turn of the loop, `call_later` after a delay in ms;
    `now_ms` is the wall clock (epoch ms), `steady_ms` the loop's monotonic clock in ms.
    """

    def __init__(
        self,
        config: ProxyConfig,
        known: ClusterMap,
        calls: BrokerCalls,
        members: ClusterMembers,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        call_later: Callable[[int, Callable[[], None]], Timer],
        now_ms: Callable[[], int],
        steady_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._known = known
        self._calls = calls
        self._members = members
        self.call_soon = call_soon
        self.call_later = call_later
        self.now_ms = now_ms
        self.steady_ms = steady_ms
        self._turns = FairScheduler(call_soon, NoReadSizeLimit())
        self._next = 0
        self.waiting = 0
        """Bytes of requests that wait for names."""

    @property
    def body_max(self) -> int:
        """Maximum bytes of a message's body."""
        return self._config.max_message_size

    def run_steps(self, host: bytes, steps: Steps[None]) -> None:
        """Schedule steps of some milliseconds each, in turns with other work; the `run_steps` calls
        of one host run one after another. An error in a step is logged."""
        self._turns.run_steps(host, logged_steps(steps))

    def resolve_names(
        self,
        topics: Sequence[str],
        groups: Sequence[str],
        then: Callable[[], None],
        size: int = 0,
    ) -> None:
        """Look up topics and groups, and call `then` once all are answered, found or not.

        `then` is called before this returns if all are cached, or if too many bytes wait already
        (WAITING_MAX). `size` is the bytes of the request that waits meanwhile.
        """
        size += WAITING_SIZE * (len(topics) + len(groups))
        if self.waiting + size > WAITING_MAX:
            then()
            return
        self.waiting += size
        wanted: list[Deferred[Any]] = [self._known.topics.get_or_query(name) for name in topics]
        wanted += [self._known.groups.get_or_query(name) for name in groups]

        def answered(_answers: list[Any]) -> None:
            self.waiting -= size
            then()

        gather(wanted).then(answered)

    def topics_of(self, name: str) -> Mapping[str, TopicConfig]:
        """Return the configuration of a topic by broker name, from the cache (`resolve_names`).
        Raises RpcRefused if the topic does not exist or is not known yet."""
        found = self._known.topics.get(name)
        if found is None:
            raise RpcRefused(Code.INTERNAL_SERVER_ERROR, f"the route of {name} is not known yet")
        if isinstance(found, Absent):
            code = Code.TOPIC_NOT_FOUND if found.is_certain else Code.INTERNAL_SERVER_ERROR
            raise RpcRefused(code, found.text)
        return found.topics

    def group_config(self, name: str) -> SubscriptionGroupConfig | None:
        """Return the configuration of a consumer group, from the cache (`resolve_names`); None if
        it does not exist. Raises RpcRefused if no broker responded, or the group is not known yet:
        the cache had no room for its name."""
        found = self._known.groups.get(name)
        if found is None:
            raise RpcRefused(Code.INTERNAL_SERVER_ERROR, f"the group {name} is not known yet")
        if isinstance(found, Absent):
            if found.is_certain:
                return None
            raise RpcRefused(Code.INTERNAL_SERVER_ERROR, found.text)
        return found

    def is_system(self, topic: str) -> bool:
        """Whether a topic is one of the brokers' system topics."""
        return is_system_topic(topic)

    def executes_for(self, broker_name: str) -> bool:
        """Whether a broker group of this name is known, with or without a master."""
        return self._known.has_broker_group(broker_name)

    def choose_queue(self, topic: str, message_group: str | None) -> tuple[str, int]:
        """Choose (broker name, queue id) for a message, from the cache. Without a message group:
        writable brokers in rotation, recently failed brokers only if there are no others, and
        ANY_QUEUE, so that the broker chooses. A message group has the same queue while the route is
        unchanged, even of a failed broker. Raises RpcRefused if the topic does not exist, is not
        known yet, or has no writable queue."""
        writable = {
            name: config.write_queue_nums
            for name, config in self.topics_of(topic).items()
            if config.is_writable and config.write_queue_nums > 0
        }
        if not writable:
            raise RpcRefused(Code.FORBIDDEN, "no writable queue")
        if message_group is not None:
            number = queue_of_group(message_group, sum(writable.values()))
            for name, count in writable.items():
                if number < count:
                    return name, number
                number -= count
        return self._next_of(writable), ANY_QUEUE

    def choose_receiver(self, topic: str) -> str:
        """Choose the name of a broker to receive messages of `topic` from, from the cache: brokers
        in rotation, recently failed brokers only if there are no others. Neither permissions nor
        numbers of read queues matter: the broker refuses the request. Raises RpcRefused if the
        topic does not exist or is not known yet."""
        return self._next_of(self.topics_of(topic))

    def _next_of(self, names: Iterable[str]) -> str:
        """The next of these broker names in rotation; recently failed brokers only if
        there are no others."""
        found = list(names)
        up = [name for name in found if self._known.is_up(name)] or found
        self._next += 1
        return up[self._next % len(up)]

    def pop_available(self, _request: PopRequest) -> None:
        """No-op: a broker does this when it receives the request."""

    def execute_request(
        self, broker_name: str, request: Command, _peer: Peer, done: Done, wait_ms: int = 0
    ) -> None:
        """Send a request to the master of a group; see BrokerCalls.send_to_master."""
        topics = [request.fields[name] for name in TOPIC_FIELDS if name in request.fields]
        self._calls.send_to_master(broker_name, request, topics, done, wait_ms)

    def register_client(self, data: HeartbeatData, peer: Peer, done: Done) -> None:
        """Register a client's groups at the brokers in the background, and answer its heartbeat at
        once."""
        named = (one.group_name for one in data.producer_data_set)
        transactional = [topic for topic in named if self._is_transactional(topic)]
        self._members.register_producer(data.client_id, transactional, peer)
        for one in data.consumer_data_set:
            self._members.register_consumer(data.client_id, one, peer)
        done(new_response(new_request(RequestCode.HEART_BEAT), ResponseCode.SUCCESS))

    def unregister_client(self, client_id: str, _group: str, _peer: Peer) -> None:
        """Remove a client that has disconnected from all its groups."""
        self._members.remove_client(client_id)

    def _is_transactional(self, topic: str) -> bool:
        """Whether the cached topic accepts transactions (message.type TRANSACTION or MIXED)."""
        found = self._known.topics.get(topic)
        if found is None or isinstance(found, Absent):
            return False
        return found.attributes.get(MESSAGE_TYPE) in (MessageType.TRANSACTION.name, MIXED)
