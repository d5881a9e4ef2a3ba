"""Groups of real processes on disks that are slow, fail or hang, and the effects on a client.

Owns one measurement: a new group under load, its trouble, kills while it lasts, its end, and the
result. It must never know how the result is shown.

Three controllers, three brokers and a name server, each with a preloaded library that wraps its
syncs (tests/machine). Brokers sync each message (SYNC_FLUSH); all limits are the defaults.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from interop.support.controlled import Controlled, Member, NotReadyError
from interop.support.groups import Kind
from interop.support.kills import SETTLED_S, KillTimes, judge, make_topic
from interop.support.senders import Ledger, Senders, now_ms
from tests.machine.shim import Machine, build

from turbopump.engine.disk import sync_pace

TOPIC = "Disks"
MEMBERS = 3
SENDERS = 4
SEND_S = 15.0
"""Timeout of a send: on a disk whose syncs take 3 s the response comes after 6 s."""
SYNC_FLUSH = {"flushDiskType": "SYNC_FLUSH"}
HEALED_S = 4.0
"""Time after the end of a failing or hanging disk."""
LOOK_S = 0.1
FIRST_S, LEADS_S, WHOLE_S = 40.0, 60.0, 120.0
"""Time limits for a first success, for a leading controller, and for all brokers in sync."""
NEVER = float("inf")
MASTER, REPLICA, REPLICAS = "the master", "one replica", "all replicas"
LEADER, CONTROLLERS = "the leading controller", "all controllers"
PLACES: Final = (MASTER, REPLICA, REPLICAS, LEADER, CONTROLLERS)


@dataclass(frozen=True)
class Trouble:
    """A trouble of some disks, with its duration."""

    name: str
    """Name on the command line."""
    what: str
    where: str
    begin: Callable[[Machine], None]
    lasts_s: float
    kills: bool = False
    """Whether the master is killed while it lasts; and the leading controller, of controllers."""
    elects: bool = False
    """Whether it is a reason to elect another master."""
    aim_s: float | None = None
    """The longest gap there should be."""


def slow(sync_ms: int, where: str) -> Trouble:
    """Trouble in which each sync takes `sync_ms`."""
    return Trouble(
        f"{sync_ms}-{where.replace(' ', '-')}",
        f"syncs take {sync_ms} ms",
        where,
        lambda machine: machine.slow(sync_ms),
        6.0 + 4 * sync_ms / 1000,
        kills=True,
        elects=where == MASTER and sync_ms >= sync_pace.SLOW_MS,
    )


SLOW_MS: Final = (25, 100, 300, 1000, 3000)
TROUBLES: Final[Mapping[str, Trouble]] = {
    one.name: one
    for one in (
        *(slow(sync_ms, where) for where in PLACES for sync_ms in SLOW_MS),
        Trouble(
            "fail-the-master",
            "syncs fail (EIO) for 3 s",
            MASTER,
            Machine.fail,
            3.0,
            elects=True,
            aim_s=1.0,
        ),
        Trouble(
            "hang-the-master",
            "syncs hang for 12 s",
            MASTER,
            Machine.hang,
            12.0,
            elects=True,
            aim_s=6.0,
        ),
        Trouble(
            "fail-one-replica", "syncs fail (EIO) for 3 s", REPLICA, Machine.fail, 3.0, aim_s=3.0
        ),
        Trouble("hang-one-replica", "syncs hang for 12 s", REPLICA, Machine.hang, 12.0, aim_s=3.0),
    )
}


@dataclass
class Seen:
    """Results of a trouble; times in seconds, None where no time was measured."""

    gap_s: float | None = None
    """The longest time without an acknowledgement, of any sender, while it lasted."""
    first_s: float | None = None
    """Time from a kill of the master to the first acknowledged send that began after it;

    NEVER: there was none during the trouble, because the set had been the master alone.
    """
    leads_s: float | None = None
    """Time from a kill of the leading controller to another leader."""
    elections: int = 0
    """Number of epochs without a reason: the master lived, and its disk took its writes."""
    leads_lost: int = 0
    """Number of leading controllers that were replaced while all ran."""
    acked: int = 0
    lost: int = 0
    """Acknowledged, and not there at the end."""
    ended: str = ""
    """Reason for an early end."""


class Timed(Ledger):
    """Knows also when acknowledgements came."""

    acks_ms: list[float]

    def add(self, begun_ms: float, acked_ms: float, place: tuple[int, int], number: int) -> None:
        """Record one more acknowledgement."""
        super().add(begun_ms, acked_ms, place, number)
        self.acks_ms.append(acked_ms)

    def gap_s(self, from_ms: float, until_ms: float) -> float:
        """The longest time within these without any."""
        between = sorted(at for at in list(self.acks_ms) if from_ms < at < until_ms)
        pairs = pairwise([from_ms, *between, until_ms])
        return max(after - before for before, after in pairs) / 1000


@dataclass
class Troubled:
    """A group in which each member has a machine of its own."""

    group: Controlled
    machines: Mapping[str, Machine]
    ledger: Timed
    seen: Seen = field(default_factory=Seen)
    killed_masters: int = 0

    def at(self, where: str) -> list[Machine]:
        """The machines of a place, as the group stands now."""
        group = self.group
        master, leader = group.master, group.leader()
        assert master is not None and leader is not None
        replicas = [one for one in group.brokers if one is not master]
        found: dict[str, list[Member]] = {
            MASTER: [master],
            REPLICA: replicas[:1],
            REPLICAS: replicas,
            LEADER: [leader],
            CONTROLLERS: list(group.controllers),
        }
        return [self.machines[one.name] for one in found[where]]

    def epoch(self) -> int:
        """Epoch of the master."""
        found = self.group.sync()
        return found.master_epoch if found is not None else -1

    def play(self, trouble: Trouble) -> None:
        """Play the whole trouble; raises NotReadyError after a wait in vain."""
        began_epoch, seen = self.epoch(), self.seen
        machines = self.at(trouble.where)
        began_ms = now_ms()
        for machine in machines:
            trouble.begin(machine)
        self._watch(trouble.lasts_s)
        if not trouble.kills:
            self._heal()
            self._watch(HEALED_S)
        seen.gap_s = self.ledger.gap_s(began_ms, now_ms())
        try:
            if trouble.kills:
                self._kill_master()
            if trouble.kills and trouble.where in (LEADER, CONTROLLERS):
                self._kill_leader()
        finally:
            self._heal()
        for one in self.group.members:
            if not one.running:
                one.start()
        self.group.wait_whole(WHOLE_S)
        given_up = seen.first_s == NEVER  # the end of a term is an epoch, too
        caused = self.killed_masters + trouble.elects + given_up
        seen.elections = max(0, self.epoch() - began_epoch - caused)

    def _heal(self) -> None:
        for machine in self.machines.values():
            machine.heal()

    def _watch(self, lasts_s: float) -> None:
        """Time passes; no process is killed."""
        ends_s, before = time.monotonic() + lasts_s, self.group.leader()
        while time.monotonic() < ends_s:
            leader = self.group.leader()
            if leader is not None:
                self.seen.leads_lost += before is not None and leader is not before
                before = leader
            time.sleep(LOOK_S)

    def _kill_master(self) -> None:
        group, ledger = self.group, self.ledger
        group.until("a master", lambda: group.master is not None, FIRST_S)
        master, sync = group.master, group.sync()
        assert master is not None and sync is not None
        begun_ms = now_ms()
        master.kill()
        self.killed_masters += 1
        ledger.watch(now_ms())
        alone = len(sync.in_sync) == 1
        try:
            group.until("a first success", lambda: ledger.first_ms is not None, FIRST_S)
        except NotReadyError:
            if not alone:
                raise
        first_ms = ledger.first_ms
        self.seen.first_s = NEVER if first_ms is None else (first_ms - begun_ms) / 1000

    def _kill_leader(self) -> None:
        group = self.group
        group.until("a leading controller", lambda: group.leader() is not None, LEADS_S)
        dead, begun = group.leader(), time.monotonic()
        assert dead is not None
        dead.kill()
        group.until("another leads", lambda: group.leader() not in (None, dead), LEADS_S)
        self.seen.leads_s = time.monotonic() - begun


def started(
    folder: Path,
    kind: Callable[[Mapping[str, str]], Kind],
    settings: Mapping[str, str],
    stack: ExitStack,
) -> Troubled:
    """A group in sync, on healthy disks; `kind` makes its processes with an environment. It ends
    with the stack."""
    library = build(folder.parent)
    folder.mkdir(parents=True)
    controllers = [Machine(library, folder / f"rules-n{number}") for number in range(MEMBERS)]
    brokers = [Machine(library, folder / f"rules-broker-{number}") for number in range(MEMBERS)]
    for machine in (*controllers, *brokers):
        machine.heal()
    group = Controlled(
        folder,
        kind({}),
        [kind(one.environment()) for one in controllers],
        [kind(one.environment()) for one in brokers],
        {**SYNC_FLUSH, **settings},
    )
    named = zip((*group.controllers, *group.brokers), (*controllers, *brokers), strict=True)
    machines = {member.name: machine for member, machine in named}
    stack.callback(group.abandon)
    group.start()
    make_topic(group, TOPIC)
    ledger = Timed(TOPIC)
    ledger.acks_ms = []
    return Troubled(group, machines, ledger)


def measured(
    trouble: Trouble,
    folder: Path,
    kind: Callable[[Mapping[str, str]], Kind],
    settings: Mapping[str, str],
    say: Callable[[str], None],
) -> Seen:
    """Measure a trouble in a new group in that folder, which has to be empty; log the reason of an
    early end.
    """
    with ExitStack() as stack:
        troubled = started(folder, kind, settings, stack)
        group, ledger, seen = troubled.group, troubled.ledger, troubled.seen
        load = Senders(group.namesrv_address, ledger, SENDERS, SEND_S)
        stack.callback(load.stop)
        load.start()
        time.sleep(SETTLED_S)
        try:
            troubled.play(trouble)
        except NotReadyError as error:
            seen.ended = str(error).partition(";")[0]
            say(str(error))
        load.stop()
        times = KillTimes()
        try:
            judge(group, [ledger], times, is_whole=not seen.ended)
        except NotReadyError as error:
            seen.ended = seen.ended or str(error).partition(";")[0]
            say(str(error))
        found = times.found.get(TOPIC)
        if found is not None:
            seen.acked, seen.lost = found.acked, found.lost
        say(f"{found}, refused {ledger.errors}")
    return seen
