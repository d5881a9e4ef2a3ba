"""What a strategy is given and what it gives: members, queues, and who had what before.

Owns the order in which members and queues are taken, on which every node has to agree. It must
never ask a node anything. Called by the strategies beside it and the client's
rebalance.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.route import TopicRouteData
from turbopump.net.wire.topics import PERM_READ

Shares = dict[str, list[MessageQueue]]
"""Client id to its queues, sorted; each member is there, also one without queues."""

QUEUES_MAX: Final = 65_536
"""Queues of one topic that are looked at: a damaged route must not fill the memory."""


class AllocationError(ValueError):
    """A strategy does not exist, or cannot be used with what it was given; a sentence."""


@dataclass(frozen=True, slots=True)
class MachineRooms:
    """Which machine room a client or a broker is in, by the beginning of its name.

    `prefixes` are pairs of a prefix and its room, of which the longest one that fits counts. A
    broker that none fits is in the room before the one `@` of its name (`room@name`).
    """

    prefixes: tuple[tuple[str, str], ...] = ()

    def of_client(self, client_id: str) -> str:
        """The room, "" if it is not known."""
        fitting = [pair for pair in self.prefixes if client_id.startswith(pair[0])]
        return max(fitting, key=lambda pair: len(pair[0]))[1] if fitting else ""

    def of_broker(self, broker_name: str) -> str:
        """The room, "" if it is not known."""
        return self.of_client(broker_name) or named_room(broker_name)

    def __str__(self) -> str:
        """As the configuration has it: `room:prefix,prefix;room:prefix`."""
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
    """A consumer group and the queues of one topic, as a strategy takes them.

    Members and queues are sorted and each is there once. `previous` is who had what; queues and
    members that are gone may be in it. `fixed` is what the user gave to members (CONFIG).
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
    """Members and queues in the order that all nodes agree on.

    Duplicate client ids (one client over two sockets) count once: counting them twice, as
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
    """The room of `room@name`; "" of a name without just one `@`, or that begins with it."""
    room, _, name = broker_name.partition("@")
    return room if name and "@" not in name else ""


def java_order(text: str) -> bytes:
    """A sort key with the order of Java's String.compareTo (UTF-16 units, not code points)."""
    return text.encode("utf-16-be", "surrogatepass")


def sorted_names(names: Collection[str]) -> list[str]:
    """Names in Java's order. That of ASCII is Python's, too."""
    return sorted(names) if all(map(str.isascii, names)) else sorted(names, key=java_order)


def sorted_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Queues in the order every member agrees on (common/message/MessageQueue.compareTo)."""
    found = list(queues)
    if all(queue.broker_name.isascii() and queue.topic.isascii() for queue in found):
        return sorted(found)
    return sorted(
        found,
        key=lambda queue: (java_order(queue.topic), java_order(queue.broker_name), queue.queue_id),
    )


def readable_counts(data: TopicRouteData) -> tuple[tuple[str, int], ...]:
    """How many queues of a route can be read on each broker, sorted
    (MQClientInstance.topicRouteData2TopicSubscribeInfo)."""
    known = {broker.broker_name for broker in data.broker_datas if broker.broker_addrs}
    counts = {
        queues.broker_name: queues.read_queue_nums
        for queues in data.queue_datas
        if queues.perm & PERM_READ and queues.broker_name in known
    }
    return tuple(sorted(counts.items()))


def queues_of(topic: str, counts: Iterable[tuple[str, int]]) -> tuple[MessageQueue, ...]:
    """Queues 0 to count - 1 of each broker, sorted, QUEUES_MAX at most."""
    queues: list[MessageQueue] = []
    for broker_name, count in counts:
        room = QUEUES_MAX - len(queues)
        queues += [MessageQueue(topic, broker_name, at) for at in range(min(count, room))]
    return tuple(sorted_queues(queues))
