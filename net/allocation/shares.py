"""Arguments and results of a strategy: members, queues, and the previous allocation.

Owns the order of members and queues, on which every node must agree. It must never send a request
to a node.

Tests: tests/unit/net/allocation/test_strategies.py
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.route import TopicRouteData, bounded_queue_counts
from turbopump.net.wire.topics import PERM_READ

Shares = dict[str, list[MessageQueue]]
"""Map of client ids to their queues, in the order of the strategy; each member has an entry, even
without queues."""


class AllocationError(ValueError):
    """A strategy that does not exist, or does not fit its arguments; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class MachineRooms:
    """Machine rooms of clients and brokers, by the beginning of client ids and broker names.

    `prefixes` are pairs of a prefix and its room; the longest matching prefix counts. A broker
    without a matching prefix is in the room before the only `@` of its name (`room@name`).
    """

    prefixes: tuple[tuple[str, str], ...] = ()

    def of_client(self, client_id: str) -> str:
        """The room of a client by its prefix; "" without a matching prefix."""
        fitting = [pair for pair in self.prefixes if client_id.startswith(pair[0])]
        return max(fitting, key=lambda pair: len(pair[0]))[1] if fitting else ""

    def of_broker(self, broker_name: str) -> str:
        """The room of a broker by its prefix, else by its name `room@name`; "" if unknown."""
        return self.of_client(broker_name) or named_room(broker_name)

    def __str__(self) -> str:
        """Format the rooms as in the configuration: `room:prefix,prefix;room:prefix`."""
        rooms: dict[str, list[str]] = {}
        for prefix, room in self.prefixes:
            rooms.setdefault(room, []).append(prefix)
        return ";".join(f"{room}:{','.join(found)}" for room, found in rooms.items())

    @property
    def names(self) -> frozenset[str]:
        """All rooms that have a prefix."""
        return frozenset(room for _, room in self.prefixes)


@dataclass(frozen=True, slots=True)
class Sharing:
    """A consumer group and the queues of a topic, the input of a strategy.

    Members and queues are sorted, without duplicates. `previous` is the previous allocation,
    possibly with queues and members that no longer exist (STICKY). `fixed` is the user's
    allocation (CONFIG). All maps are by client id.
    """

    members: tuple[str, ...]
    queues: tuple[MessageQueue, ...]
    previous: Mapping[str, Sequence[MessageQueue]] = field(default_factory=dict)
    fixed: Mapping[str, Sequence[MessageQueue]] = field(default_factory=dict)
    rooms: MachineRooms = MachineRooms()


def sharing_of(
    members: Iterable[str],
    queues: Iterable[MessageQueue],
    previous: Mapping[str, Sequence[MessageQueue]] | None = None,
    fixed: Mapping[str, Sequence[MessageQueue]] | None = None,
    rooms: MachineRooms | None = None,
) -> Sharing:
    """Build the input of a strategy: members (client ids) and queues sorted in the order that all
    nodes agree on, without duplicates.

    Duplicate client ids (a client with two connections) count once: counting them twice, as
    AllocateMessageQueueAveragely does, leaves the share of the second without a consumer.
    """
    return Sharing(
        tuple(sorted_names(set(members))),
        tuple(sorted_queues(set(queues))),
        previous or {},
        fixed or {},
        rooms or MachineRooms(),
    )


def named_room(broker_name: str) -> str:
    """The room in a broker name `room@name`; "" unless the name has a single `@`, with a text on
    both sides."""
    room, _, name = broker_name.partition("@")
    return room if name and "@" not in name else ""


def java_order(text: str) -> bytes:
    """A sort key with the order of Java's String.compareTo (UTF-16 units, not code points)."""
    return text.encode("utf-16-be", "surrogatepass")


def sorted_names(names: Collection[str]) -> list[str]:
    """A sorted copy of `names` in the order of Java's String.compareTo, which for ASCII equals
    Python's."""
    return sorted(names) if all(map(str.isascii, names)) else sorted(names, key=java_order)


def sorted_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """A list of the queues sorted by topic, broker name and queue id, texts in Java's order, on
    which every member agrees (common/message/MessageQueue.compareTo)."""
    found = list(queues)
    if all(queue.broker_name.isascii() and queue.topic.isascii() for queue in found):
        return sorted(found)
    return sorted(
        found,
        key=lambda queue: (java_order(queue.topic), java_order(queue.broker_name), queue.queue_id),
    )


def readable_counts(data: TopicRouteData) -> tuple[tuple[str, int], ...]:
    """(broker name, number of readable queues) of each broker of a route with read permission and
    an address, sorted by name, within the bounds of `bounded_queue_counts`
    (MQClientInstance.topicRouteData2TopicSubscribeInfo)."""
    known = {broker.broker_name for broker in data.broker_datas if broker.broker_addrs}
    counts = {
        queues.broker_name: queues.read_queue_nums
        for queues in data.queue_datas
        if queues.perm & PERM_READ and queues.broker_name in known
    }
    return tuple(bounded_queue_counts(sorted(counts.items())))


def queues_of(topic: str, counts: Iterable[tuple[str, int]]) -> tuple[MessageQueue, ...]:
    """List the queues 0 to count - 1 of each (broker name, count), sorted, within the bounds of
    `bounded_queue_counts`."""
    return tuple(
        sorted_queues(
            MessageQueue(topic, broker_name, queue_id)
            for broker_name, count in bounded_queue_counts(counts)
            for queue_id in range(count)
        )
    )
