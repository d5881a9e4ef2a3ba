"""The clients' service in a proxy: its requests are executed by the brokers of a cluster.

Owns which broker executes a request. It must never know a message of gRPC. Made by node.py; called
by the services of net/messaging through the port GrpcGround.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from turbopump.net.grpc.codes import Code, MessageType
from turbopump.net.messaging.drafts import queue_of_group
from turbopump.net.messaging.ground import ANY_QUEUE, Done, NoRooms, Take, without_failing
from turbopump.net.messaging.rpc import RpcRefused
from turbopump.net.transport.peer import Peer, Timer
from turbopump.net.transport.turns import Steps, Turns
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request, response
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.heartbeat import HeartbeatData
from turbopump.net.wire.names import is_system_topic
from turbopump.net.wire.topics import MESSAGE_TYPE, MIXED, TopicConfig
from turbopump.proxy.broker_calls import BrokerCalls
from turbopump.proxy.cluster_map import ClusterMap
from turbopump.proxy.config import ProxyConfig
from turbopump.proxy.kept_answers import Absent
from turbopump.proxy.members import ClusterMembers

WAITING_MAX: Final = 256 << 20
"""Bytes of requests that wait until it is known what their names are; of more, each is refused
whose names are not known."""
WAITING_SIZE: Final = 1_000
"""Bytes of one name that is waited for."""
TOPIC_FIELDS: Final = ("topic", "b", "originTopic")
"""Where requests have their topic."""


class ClusterGround:
    """The port of a proxy. Loop thread only. `soon` has work done behind the turn of the loop that
    is under way, `call_later` after so many ms; `now_ms` is the wall clock, `steady_ms` the
    loop's."""

    def __init__(
        self,
        config: ProxyConfig,
        known: ClusterMap,
        calls: BrokerCalls,
        members: ClusterMembers,
        *,
        soon: Callable[[Callable[[], None]], object],
        call_later: Callable[[int, Callable[[], None]], Timer],
        now_ms: Callable[[], int],
        steady_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._known = known
        self._calls = calls
        self._members = members
        self.soon = soon
        self.call_later = call_later
        self.now_ms = now_ms
        self.steady_ms = steady_ms
        self._turns = Turns(soon, NoRooms())
        self._next = 0
        self.waiting = 0
        """Bytes that wait for names."""

    @property
    def body_max(self) -> int:
        """Bytes of a message's body."""
        return self._config.max_message_size

    def work(self, host: bytes, steps: Steps[None]) -> None:
        """Go through steps, each some milliseconds; those of one host follow one another."""
        self._turns.work(host, without_failing(steps))

    def know(
        self,
        topics: Sequence[str],
        groups: Sequence[str],
        then: Callable[[], None],
        size: int = 0,
    ) -> None:
        """Find out what there is of these names; what is not known yet is not waited for where too
        much waits."""
        wanted = [(self._known.topics.want, name) for name in topics]
        wanted += [(self._known.groups.want, name) for name in groups]
        size += WAITING_SIZE * len(wanted)
        if self.waiting + size > WAITING_MAX:
            then()
            return
        self.waiting += size
        left = len(wanted) + 1

        def one_less() -> None:
            nonlocal left
            left -= 1
            if not left:
                self.waiting -= size
                then()

        for want, name in wanted:
            want(name, one_less)
        one_less()

    def topics_of(self, name: str) -> Mapping[str, TopicConfig]:
        """A topic by the names of its brokers; raises RpcRefused."""
        found = self._known.topics.get(name)
        if found is None:
            raise RpcRefused(Code.INTERNAL_SERVER_ERROR, f"the route of {name} is not known yet")
        if isinstance(found, Absent):
            code = Code.TOPIC_NOT_FOUND if found.is_certain else Code.INTERNAL_SERVER_ERROR
            raise RpcRefused(code, found.text)
        return found.topics

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        """A consumer group; raises RpcRefused where no broker could be asked."""
        found = self._known.groups.get(name)
        if isinstance(found, Absent):
            if found.is_certain:
                return None
            raise RpcRefused(Code.INTERNAL_SERVER_ERROR, found.text)
        return found

    def is_system(self, topic: str) -> bool:
        """Whether a topic is the brokers' own."""
        return is_system_topic(topic)

    def serves(self, broker_name: str) -> bool:
        """Whether there is, or was a moment ago, such a broker."""
        return self._known.knows(broker_name)

    def choose(self, topic: str, message_group: str | None) -> tuple[str, int]:
        """Brokers take turns, those that failed a moment ago have none; a message group has one of
        all queues. Raises RpcRefused."""
        writable = {
            name: of.write_queue_nums
            for name, of in self.topics_of(topic).items()
            if of.is_writable and of.write_queue_nums > 0
        }
        if not writable:
            raise RpcRefused(Code.FORBIDDEN, "no writable queue")
        if message_group is not None:
            number = queue_of_group(message_group, sum(writable.values()))
            for name, count in writable.items():
                if number < count:
                    return name, number
                number -= count
        return self._one_of(writable), ANY_QUEUE

    def choose_readable(self, topic: str) -> str:
        """Brokers take turns. Raises RpcRefused."""
        return self._one_of(self.topics_of(topic))

    def _one_of(self, names: Iterable[str]) -> str:
        found = list(names)
        up = [name for name in found if self._known.is_up(name)] or found
        self._next += 1
        return up[self._next % len(up)]

    def take(self, _take: Take) -> None:
        """A broker is asked."""

    def ask(
        self, broker_name: str, request: Command, _peer: Peer, done: Done, wait_ms: int = 0
    ) -> None:
        """Ask the master of a group."""
        topics = [request.fields[name] for name in TOPIC_FIELDS if name in request.fields]
        self._calls.ask(broker_name, request, topics, done, wait_ms)

    def beat(self, data: HeartbeatData, peer: Peer, done: Done) -> None:
        """Brokers hear of it as soon as they can: the client does not wait for that."""
        named = (one.group_name for one in data.producer_data_set)
        transactional = [topic for topic in named if self._is_transactional(topic)]
        self._members.produces(data.client_id, transactional, peer)
        for one in data.consumer_data_set:
            self._members.consumes(data.client_id, one, peer)
        done(response(new_request(RequestCode.HEART_BEAT), ResponseCode.SUCCESS))

    def leave(self, client_id: str, _group: str, _peer: Peer) -> None:
        """A client is gone."""
        self._members.leave(client_id)

    def _is_transactional(self, topic: str) -> bool:
        found = self._known.topics.get(topic)
        if found is None or isinstance(found, Absent):
            return False
        return found.attributes.get(MESSAGE_TYPE) in (MessageType.TRANSACTION.name, MIXED)
