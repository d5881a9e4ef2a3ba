"""Faults of a simulated group: each begins at some time, lasts a while, and ends.

docs/INVARIANTS.md lists the ids in brackets (F1 and so on). The details of a fault are drawn
from the seed when it begins; a seed has some kinds, and mostly one theme.
"""

from collections.abc import Callable
from itertools import combinations, product
from typing import TYPE_CHECKING

from tests.sim.group.disks import DISK_FAULTS
from tests.sim.work import Stands

if TYPE_CHECKING:
    from tests.sim.group.broker import GroupBroker
    from tests.sim.group.suite import Run

Undo = Callable[[], None]
Fault = Callable[["Run"], Undo | None]

HOUR_MS = 3_600_000
# Durations of a fault: mostly less than a heartbeat's timeout, sometimes longer.
LASTS_MS = (300, 1000, 2500, 5000, 9000)
# Gaps between faults; sometimes several are there at once.
GAPS_MS = (0, 300, 1500, 4000)
DRIFT = 0.2
LOSABLE = (
    frozenset({1001}),
    frozenset({1002, 1003}),
    frozenset({1012, 1013}),
    frozenset({904, 1004}),
)
"""Codes whose responses are lost together."""
OPERATIONS_MAX = 25
JUNK_CODES = (
    0, 15, 17, 21, 28, 38, 43, 105, 200, 310, 901, 904, 906, 1001, 1002, 1003, 1004, 1005, 1006,
    1008, 1009, 1010, 1011, 1012, 1013, 1018, 51001, 51002, 51005, 51006, 51007, 60_000,
)  # fmt: skip
JUNK_FIELDS = (
    "brokerId", "masterBrokerId", "masterEpoch", "syncStateSetEpoch", "heartbeatTimeoutMillis",
    "epoch", "maxOffset", "appliedBrokerId", "topic", "queueId", "commitOffset",
    "cleanLivingBroker",
)  # fmt: skip
"""Header fields with random values, without fields that name a broker's group: a wrong group is not
junk.
"""
JUNK_VALUES = ("", "-1", "0", "99999999999999999999", "x", "true", "\0", "é" * 300)


class Nemesis:
    """Begins and ends faults as the time comes."""

    def __init__(self, group: "Run", kinds: list[str], theme: str) -> None:
        self._group = group
        self._kinds = kinds + [theme] * (2 * len(kinds)) if theme else kinds
        self._next_ms = group.rng.randrange(200, 4000)
        self._undo: list[tuple[int, Undo]] = []
        self.begun: list[str] = []

    def step(self, now_ms: int) -> None:
        """Begin and end the faults that are due."""
        for due in [due for due in self._undo if due[0] <= now_ms]:
            self._undo.remove(due)
            due[1]()
        if now_ms < self._next_ms or not self._kinds:
            return
        rng = self._group.rng
        kind = self._kinds[int(rng.random() * len(self._kinds))]
        lasts_ms = int(LASTS_MS[int(rng.random() * len(LASTS_MS))] * self._group.pace)
        self.begun.append(f"{now_ms} {kind}")
        undo = FAULTS[kind](self._group)
        now_ms = self._group.now_ms
        if undo is not None:
            self._undo.append((now_ms + lasts_ms, undo))
        if rng.random() < 0.6:
            now_ms += lasts_ms
        gap_ms = GAPS_MS[int(rng.random() * len(GAPS_MS))] * self._group.pace
        self._next_ms = now_ms + int(gap_ms) + 50

    def pause(self) -> None:
        """End all current faults."""
        undo, self._undo = self._undo, []
        for _, end in undo:
            end()

    def end(self) -> None:
        """End all faults, and begin no others."""
        self.pause()
        self._kinds = []


# The network


def _names(group: "Run") -> list[str]:
    return [machine.name for machine in group.machines]


def _cut(group: "Run", ways: set[tuple[str, str]]) -> Undo:
    mine = ways - group.net.blocked
    group.net.blocked |= mine

    def undo() -> None:
        group.net.blocked -= mine

    return undo


def _apart(group: "Run", left: set[str]) -> Undo:
    right = set(_names(group)) - left
    return _cut(group, set(product(left, right)) | set(product(right, left)))


def partition(group: "Run") -> Undo:
    """Separate two sides (F1)."""
    rng, servers = group.rng, [machine.name for machine in group.servers]
    left = set(rng.sample(servers, rng.randrange(1, len(servers))))
    left |= {client.name for client in group.clients if rng.random() < 0.5}
    return _apart(group, left)


def one_way(group: "Run") -> Undo:
    """Let one machine not receive, or its packets not arrive (F2)."""
    rng, names = group.rng, _names(group)
    one = rng.choice(names)
    ways = {(one, other) for other in names if other != one and rng.random() < 0.8}
    if rng.random() < 0.5:
        ways = {(to, source) for source, to in ways}
    return _cut(group, ways)


def bridge(group: "Run") -> Undo:
    """Separate two sides, except for one machine that both reach (F3)."""
    rng, names = group.rng, _names(group)
    rng.shuffle(names)
    middle = len(names) // 2
    left, right = names[:middle], names[middle + 1 :]
    return _cut(group, set(product(left, right)) | set(product(right, left)))


def no_controllers(group: "Run") -> Undo:
    """Brokers, or the master alone, reach no controller (F8)."""
    brokers = group.masters() if group.rng.random() < 0.6 else group.brokers
    left = {broker.name for broker in brokers}
    right = {one.name for one in group.controllers}
    return _cut(group, set(product(left, right)) | set(product(right, left)))


def old_master_and_replica(group: "Run") -> Undo:
    """The master and a replica, apart from all others but clients (F9, F10)."""
    rng = group.rng
    left = {broker.name for broker in group.masters()}
    others = [broker.name for broker in group.brokers if broker.name not in left]
    if others and rng.random() < 0.7:
        left.add(rng.choice(others))
    left |= {client.name for client in group.clients if rng.random() < 0.7}
    return _apart(group, left)


def leader_alone(group: "Run") -> Undo:
    """The leading controller, apart from the other controllers or from all."""
    left = {one.name for one in group.controllers if one.is_leader}
    if group.rng.random() < 0.5:
        return _apart(group, left)
    right = {one.name for one in group.controllers} - left
    return _cut(group, set(product(left, right)) | set(product(right, left)))


def black_hole(group: "Run") -> Undo:
    """Let one controller accept connections and answer no request (R34)."""
    one = group.rng.choice(group.controllers).name
    return _cut(group, {(one, other) for other in _names(group) if other != one})


def ring(group: "Run") -> Undo:
    """Let each machine reach most of the others, and no two the same ones (F4)."""
    names = [machine.name for machine in group.servers]
    group.rng.shuffle(names)
    count = len(names)
    apart = {
        (one, names[(place + count // 2 + step) % count])
        for place, one in enumerate(names)
        for step in (0, 1)
    }
    return _cut(group, apart | {(to, source) for source, to in apart})


def reset(group: "Run") -> None:
    """Break connections (F5)."""
    rng, net = group.rng, group.net
    for link in rng.sample(net.links, min(len(net.links), rng.choice((1, 3, 100)))):
        if link in net.links:
            net.reset(link)


def stall(group: "Run") -> None:
    """Delay connections, all connections of a machine or some (F6, F7)."""
    rng, net = group.rng, group.net
    name = rng.choice([*_names(group), ""])
    for link in net.links:
        if name in (link.hosts[0].name, link.hosts[1].name) or (not name and rng.random() < 0.3):
            net.stall(link, int(rng.choice((100, 1000, 4000, 12_000)) * group.pace))


def slow_network(group: "Run") -> Undo:
    """Everything takes its time (F5, F6)."""
    before, group.chance = group.chance, 0.08

    def undo() -> None:
        group.chance = before

    return undo


def lost_answers(group: "Run") -> Undo:
    """Controllers do as they are asked, and the answers are lost (F30)."""
    group.trouble.lose = LOSABLE[int(group.rng.random() * len(LOSABLE))]

    def undo() -> None:
        group.trouble.lose = frozenset()

    return undo


def repeats(group: "Run") -> Undo:
    """Requests arrive twice (F32)."""
    group.trouble.repeat = True

    def undo() -> None:
        group.trouble.repeat = False

    return undo


def junk(group: "Run") -> None:
    """Requests without sense, to any node (F33)."""
    rng = group.rng
    for _ in range(rng.randrange(1, 12)):
        server = rng.choice(group.servers)
        code = rng.choice(JUNK_CODES)
        keys = rng.sample(JUNK_FIELDS, rng.randrange(4))
        fields = {key: rng.choice(JUNK_VALUES) for key in keys}
        body = rng.randbytes(rng.randrange(9))
        group.admin.send_junk(server.endpoint.address, code, fields, body)


# Processes


def _some(group: "Run") -> list["GroupBroker"]:
    rng = group.rng
    draw = rng.random()
    if draw < 0.35:
        return list(group.masters())
    if draw < 0.5:
        return [one for one in group.controllers if one.is_leader]
    if draw < 0.6:
        return [*group.masters(), *(one for one in group.controllers if one.is_leader)]
    servers = group.servers
    return rng.sample(servers, rng.choice((1, 1, 2, 3, len(servers))))


def _end(group: "Run", *, power: bool) -> Undo:
    rng = group.rng
    victims = [one for one in _some(group) if one.up]
    for one in victims:
        disk = getattr(one, "disk", None)
        if disk is not None and rng.random() < 0.4:
            disk.kill = not power
            disk.cut_after = rng.randrange(OPERATIONS_MAX)
        else:
            one.crash(power=power)

    def undo() -> None:
        for one in victims:
            group.start(one)

    return undo


def kill(group: "Run") -> Undo:
    """Kill processes, now or during a write (F11, F14)."""
    return _end(group, power=False)


def power(group: "Run") -> Undo:
    """Cut the power of machines, which lose all unsynced data (F17, F38)."""
    return _end(group, power=True)


def storm(group: "Run") -> None:
    """Restarts, each at once (F13)."""
    rng = group.rng
    for one in rng.sample(group.servers, rng.randrange(1, 4)):
        if one.up:
            one.crash(power=False)
        group.start(one)


def stop(group: "Run") -> Undo:
    """A clean stop: a master hands its lead over first."""
    one = group.rng.choice(group.brokers)
    if one.up and not one.paused:
        one.stop()
    return lambda: group.start(one)


def pause(group: "Run") -> Undo:
    """Processes stand still (F12)."""
    victims = [one for one in _some(group) if one.up]
    for one in victims:
        one.paused = True
        if isinstance(one, Stands):
            one.stands_until_ms = 0

    def undo() -> None:
        for one in victims:
            one.paused = False

    return undo


def upgrade(group: "Run") -> Undo:
    """Servers are restarted one after the other as a version to come, or as this one again (F15):
    their frames have another number and members that are unknown here."""
    one = group.rng.choice(group.servers)

    def other() -> None:
        one.endpoint.is_later = not one.endpoint.is_later

    if one.up and group.rng.random() < 0.5 and one in group.brokers and not one.paused:
        one.stop(other)
        return lambda: group.start(one)
    if one.up:
        one.crash(power=False)
    other()
    return lambda: group.start(one)


def empty_disk(group: "Run") -> Undo:
    """A broker loses its disk, its id too, and joins with an empty one (F26). If the others of its
    set lost their page caches, too, only an administrator could name the next master."""

    def harm(one: "GroupBroker") -> None:
        if not group.may_lose or one.controller_id not in group.journal.role.candidates:
            one.lose_disk()

    return _while_away(group, harm)


def _while_away(group: "Run", harm: Callable[["GroupBroker"], None]) -> Undo:
    """A broker is killed; before it comes back that is done to it, if another has all it had."""
    one = group.rng.choice(group.brokers)
    if one.up:
        one.crash(power=False)

    def undo() -> None:
        if not one.up and group.can_do_without(one):
            harm(one)
        group.start(one)

    return undo


def moved(group: "Run") -> None:
    """A broker comes back at another address (F16, R30)."""
    one = group.rng.choice(group.brokers)
    if one.up:
        one.crash(power=False)
    one.move()
    group.start(one)


# Clocks


def clock_jump(group: "Run") -> None:
    """A wall clock is set (F27, F29)."""
    one = group.rng.choice(group.machines)
    one.clock.ahead_ms += group.rng.choice((-HOUR_MS, HOUR_MS, -5000, 5000))


def drift(group: "Run") -> Undo:
    """Clocks go too fast or too slowly (F28)."""
    rng = group.rng
    one = rng.choice(group.machines)
    one.clock.drift(1 + rng.choice((-DRIFT, DRIFT)))
    return lambda: one.clock.drift(1.0)


# Disks


def slow_disk(group: "Run") -> Undo:
    """A disk takes its time (F22)."""
    one = group.rng.choice([*group.brokers, *group.controllers])
    one.disk_chance = 0.02

    def undo() -> None:
        one.disk_chance = 1.0

    return undo


def writeback(group: "Run") -> None:
    """Let the system write back some dirty data."""
    group.rng.choice([*group.brokers, *group.controllers]).disk.writeback()


def retention(group: "Run") -> None:
    """Old files of a log go, also while others are away (F40)."""
    group.burst(6)
    for broker in group.brokers:
        if broker.up and not broker.paused and group.rng.random() < 0.6:
            broker.expire(2 * HOUR_MS)


def epochs(group: "Run") -> Undo:
    """Make both copies of a broker's epoch list unreadable (S1)."""
    return _while_away(group, lambda one: one.damage_epochs())


# Elections


def elections(group: "Run") -> None:
    """An administrator names a master, several times at once (F35, F36, F37)."""
    for _ in range(group.rng.randrange(1, 4)):
        group.admin.elect(group.rng.choice(group.brokers).controller_id)


FAULTS: dict[str, Fault] = {
    one.__name__.replace("_", " "): one
    for one in (
        partition, one_way, bridge, no_controllers, old_master_and_replica, leader_alone,
        black_hole, ring, reset, stall, slow_network, lost_answers, repeats, junk, kill, power,
        storm, stop, pause, upgrade, empty_disk, moved, clock_jump, drift, slow_disk, writeback,
        retention, epochs, elections,
    )
}  # fmt: skip
FAULTS |= DISK_FAULTS
PAIRS = tuple(combinations(sorted(FAULTS), 2))
"""Pairs of faults, to play each with each other."""
