"""The strategies by name: a whole group in, the share of each member out.

Owns RocketMQ's rules (client/consumer/rebalance/AllocateMessageQueue*) and the table of names. It
must never depend on anything but its arguments: brokers and members compute the same.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from turbopump.net.allocation.ring import consistent_hash
from turbopump.net.allocation.shares import AllocationError, Shares, Sharing, java_order, named_room
from turbopump.net.allocation.sticky import allocate_sticky
from turbopump.net.wire.queues import MessageQueue

Strategy = Callable[[Sharing], Shares]
"""A function from a group and its queues to each member's queues; it must be pure."""

NEARBY: Final = "MACHINE_ROOM_NEARBY"
"""Name of a strategy, alone, or followed by `-` and the strategy to use inside a room."""

STICKY: Final = "STICKY"
"""Name of the strategy that moves as few queues as possible; see sticky.py."""
AVG: Final = "AVG"
"""Name of the strategy of consecutive shares, RocketMQ's default."""
CONFIG: Final = "CONFIG"
"""Name of the strategy by which the user gives each member its queues."""


def allocate_averagely(group: Sharing) -> Shares:
    """AVG: consecutive shares that differ by at most one queue, the first shares larger."""
    if not group.members:
        return {}
    each, larger = divmod(len(group.queues), len(group.members))
    shares: Shares = {}
    start = 0
    for index, member in enumerate(group.members):
        end = start + each + (index < larger)
        shares[member] = list(group.queues[start:end])
        start = end
    return shares


def by_circle(group: Sharing) -> Shares:
    """AVG_BY_CIRCLE: queues are dealt out in turn, in their order, beginning with the first
    member."""
    step = len(group.members)
    return {member: list(group.queues[at::step]) for at, member in enumerate(group.members)}


def allocate_configured(group: Sharing) -> Shares:
    """CONFIG: the queues that the user gave to each member in `group.fixed`, in the user's order,
    even if they do not exist; other queues have no consumer."""
    return {member: list(group.fixed.get(member, ())) for member in group.members}


def by_machine_room(group: Sharing) -> Shares:
    """MACHINE_ROOM: the queues of brokers named `room@name`, shared by all members.

    If rooms are configured (consumeridcs), only the queues in these rooms are shared; the others
    have no consumer.
    """
    names = group.rooms.names
    queues = []
    for queue in group.queues:
        room = named_room(queue.broker_name)
        if room and (not names or room in names):
            queues.append(queue)
    shares: Shares = {}
    count = len(group.members)
    for at, member in enumerate(group.members):
        each = len(queues) // count
        shares[member] = queues[each * at : each * (at + 1)]
        if len(queues) % count > at:
            shares[member].append(queues[each * count + at])
    return shares


def allocate_in_rooms(inner: Strategy, group: Sharing) -> Shares:
    """MACHINE_ROOM_NEARBY: `inner` inside each room; `inner` also divides the queues of a room
    without members among all. A share is sorted by room, then as `inner` returns it.

    Raises AllocationError for a member or a broker of an unknown room.
    """
    clients: dict[str, list[str]] = {}
    for member in group.members:
        room = group.rooms.of_client(member)
        if not room:
            raise AllocationError(f"the machine room of consumer {member[:200]} is not known")
        clients.setdefault(room, []).append(member)
    queues: dict[str, list[MessageQueue]] = {}
    for queue in group.queues:
        room = group.rooms.of_broker(queue.broker_name)
        if not room:
            raise AllocationError(f"the machine room of broker {queue.broker_name} is not known")
        queues.setdefault(room, []).append(queue)
    shares: Shares = {member: [] for member in group.members}
    for room in sorted(queues, key=java_order):
        members = tuple(clients.get(room, group.members))
        part = replace(group, members=members, queues=tuple(queues[room]))
        for member, share in inner(part).items():
            shares[member] += share
    return shares


STRATEGIES: Final[dict[str, Strategy]] = {
    AVG: allocate_averagely,
    "AVG_BY_CIRCLE": by_circle,
    CONFIG: allocate_configured,
    "MACHINE_ROOM": by_machine_room,
    "CONSISTENT_HASH": consistent_hash,
    STICKY: allocate_sticky,
}
"""The strategies by RocketMQ's names, without MACHINE_ROOM_NEARBY, which wraps another."""


def is_strategy(name: str) -> bool:
    """Whether `allocate_by_name` knows the name: a key of STRATEGIES, NEARBY, or NEARBY-`key`."""
    return name.removeprefix(f"{NEARBY}-") in STRATEGIES or name == NEARBY


def allocate_by_name(name: str, group: Sharing) -> Shares:
    """Allocate queues to each member by the strategy of that name. Raises AllocationError for an
    unknown name, and for members or brokers of unknown machine rooms."""
    if name == NEARBY:
        return allocate_in_rooms(allocate_averagely, group)
    inner = STRATEGIES.get(name.removeprefix(f"{NEARBY}-"))
    if inner is None:
        raise AllocationError(f"there is no strategy {name[:100]}: {', '.join(STRATEGIES)}")
    return inner(group) if name in STRATEGIES else allocate_in_rooms(inner, group)
