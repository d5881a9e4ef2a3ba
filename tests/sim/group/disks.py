"""Disk trouble: slow, failing, hanging and full disks of brokers and controllers, and controllers
whose disk is empty or an older copy (F20 to F26).

Apart from the faults of group/faults.py, because seeds draw these with a random generator of their
own: a seed without any of them keeps its story.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.disk import Copy
    from tests.sim.group.broker import GroupBroker
    from tests.sim.group.checkers import Copy as Copied
    from tests.sim.group.controller import Controller
    from tests.sim.group.suite import Run

Undo = Callable[[], None]
Backup = tuple["Copied", list["Copy"]]
"""Copy of the agreed state, and of the disk of each controller."""

DRAWN = 0.3
"""Fraction of the seeds with such trouble."""
SYNC_MS = (25, 75, 150, 300, 1000, 3000)
"""Durations of a sync while a disk is slow, in ms."""
STAYS_MS = (25, 75, 150)
"""Durations of a sync on a machine that stays slow, in ms: the limits of I19 must hold."""
SICK_MS = (1000, 2000, 3000)
"""Durations of a sync on a machine that stays very slow, in ms; the others go on without it."""
FORGOT_MS = 20_000
"""Time from the start of controllers without state, in ms: their election, 4 s for reports of
brokers, and the return under other ids.
"""
SALT, LATER_SALT = 0x5EED, 0x1A7E
LATER_DRAWN = 0.1
"""Fraction of the seeds with one of LATER_FAULTS."""


def draw(seed: int) -> set[str]:
    """The kinds of these troubles that a seed knows beside its others."""
    rng = random.Random(seed ^ SALT)
    names = sorted(set(DISK_FAULTS) - set(LATER_FAULTS) - set(WAITING))
    found: set[str] = set()
    if rng.random() < DRAWN and names:
        found = set(rng.sample(names, min(len(names), rng.choice((1, 1, 2)))))
    rng = random.Random(seed ^ LATER_SALT)
    names = sorted(set(LATER_FAULTS) - set(WAITING))
    if rng.random() < LATER_DRAWN and names:
        found.add(rng.choice(names))
    return found


# Time


def _slow(
    group: "Run", machines: list["GroupBroker"] | list["Controller"], times_ms: tuple[int, ...]
) -> Undo:
    sync_ms = times_ms[int(group.rng.random() * len(times_ms))]
    for one in machines:
        one.disk.sync_ms = sync_ms

    def undo() -> None:
        for one in machines:
            one.disk.sync_ms = 0

    return undo


def slow_syncs_of_a_broker(group: "Run") -> Undo:
    """Make syncs of a broker slow, including those on the loop (F22)."""
    return _slow(group, [group.rng.choice(group.brokers)], SYNC_MS)


def slow_syncs_of_brokers(group: "Run") -> Undo:
    """The same of all: they are on one array of disks."""
    return _slow(group, group.brokers, SYNC_MS)


def slow_syncs_of_controllers(group: "Run") -> Undo:
    """The same of controllers, one or all."""
    rng = group.rng
    some = group.controllers if rng.random() < 0.5 else [rng.choice(group.controllers)]
    return _slow(group, some, SYNC_MS)


def a_broker_stays_slow(group: "Run") -> None:
    """Make syncs of a broker slow until the end of the run."""
    _slow(group, [group.rng.choice(group.brokers)], STAYS_MS)


def controllers_stay_slow(group: "Run") -> None:
    """Make syncs of all controllers slow until the end of the run."""
    _slow(group, group.controllers, STAYS_MS)


# Errors


def _fail(group: "Run", machines: list["GroupBroker"] | list["Controller"]) -> Undo | None:
    """Let one sync fail, or all for a while (F20)."""
    one = group.rng.choice(machines)
    if group.rng.random() < 0.5:
        one.disk.fail_syncs += 1
        return None
    one.disk.failing = True

    def undo() -> None:
        one.disk.failing = False

    return undo


def failing_syncs_of_a_broker(group: "Run") -> Undo | None:
    """EIO, once or for seconds."""
    return _fail(group, group.brokers)


def failing_syncs_of_a_controller(group: "Run") -> Undo | None:
    """Let one sync of a controller fail, or all for seconds (EIO): it drops all state but its
    files, and opens them again.
    """
    return _fail(group, group.controllers)


def _hang(group: "Run", machines: list["GroupBroker"] | list["Controller"]) -> Undo:
    one = group.rng.choice(machines)
    one.disk.hangs, one.disk_chance = True, 0.0

    def undo() -> None:
        one.disk.hangs, one.disk_chance = False, 1.0
        one.mended(group.now_ms)

    return undo


def hanging_syncs_of_a_broker(group: "Run") -> Undo:
    """Let no sync of a broker return."""
    return _hang(group, group.brokers)


def hanging_syncs_of_a_controller(group: "Run") -> Undo:
    """Let no sync of a controller return."""
    return _hang(group, group.controllers)


def _fill(group: "Run", machines: list["GroupBroker"] | list["Controller"]) -> Undo:
    some = machines if group.rng.random() < 0.3 else [group.rng.choice(machines)]
    for one in some:
        one.disk.full = True

    def undo() -> None:
        for one in some:
            one.disk.full = False

    return undo


def full_disk_of_a_broker(group: "Run") -> Undo:
    """Fill the disk of a broker or of all brokers (F21)."""
    return _fill(group, group.brokers)


def full_disk_of_a_controller(group: "Run") -> Undo:
    """Fill the disk of a controller or of all controllers."""
    return _fill(group, group.controllers)


# Loss of a controller's disk


def _without(group: "Run", harm: Callable[["Controller"], None]) -> Undo:
    """Kill a controller and damage its disk before it restarts, if that is safe: the others have a
    leader with followers, and every committed entry. State that a majority lost cannot be restored.
    """
    one = group.rng.choice(group.controllers)
    if one.up:
        one.crash(power=False)

    def undo() -> None:
        if not one.up and _do_without(group, one):
            harm(one)
            group.journal.terms.pop(one.name, None)
        group.start(one)

    return undo


def _do_without(group: "Run", away: "Controller") -> bool:
    others = [one for one in group.controllers if one is not away]
    if not all(one.up and one.driver is not None for one in others):
        return False
    leader = next((one for one in others if one.is_leader), None)
    known = len(group.journal.entries)
    return leader is not None and all(
        one.raft.term == leader.raft.term
        and one.raft.leader_id == leader.id
        and one.raft.member.log.end + 1 >= known
        and one.applied_end == known
        for one in others
    )


def emptied_controller(group: "Run") -> Undo:
    """Restart a controller with an empty disk (F26)."""
    return _without(group, lambda one: one.lose_disk())


def restored_controller(group: "Run") -> Undo:
    """Restart a controller with an earlier copy of its disk (F25)."""
    return _without(group, lambda one: one.restore_disk())


def _all_of_them(
    group: "Run", harm: Callable[[], None], changes: Callable[[], None] = lambda: None
) -> None:
    """Kill all controllers, remove state, and start them again.

    Only while there is no other trouble, because they can only learn from the reports of living
    brokers. Afterwards there is a master, messages are written, and the controllers have a leader.
    """
    if group.sick:
        return  # one at a time
    group.nemesis.pause()
    group.heal()
    group.go(int(group.rng.random() * 1500))
    if group.may_lose or not all(one.up and not one.paused for one in group.brokers):
        return
    changes()
    for one in group.controllers:
        if one.up:
            one.crash(power=False)
    harm()
    for one in group.controllers:
        group.start(one)
    group.acked_since = None
    group.until(lambda: group.acked_since is not None, FORGOT_MS, "no write, they forgot")
    group.until(group.journal.knows, FORGOT_MS, "they do not know the leader")
    group.journal.forgot = False


def all_controllers_emptied(group: "Run") -> None:
    """Restart all controllers with empty disks (F26)."""

    def harm() -> None:
        for one in group.controllers:
            one.lose_disk()
        group.journal.forget(None)
        group.backup = None

    _all_of_them(group, harm)


def all_controllers_restored(group: "Run") -> None:
    """Copy all controllers' disks; the next time restart them with the copies (F25)."""

    def harm() -> None:
        assert group.backup is not None, "there is one"
        copy, disks = group.backup
        for one, disk in zip(group.controllers, disks, strict=True):
            one.disk.put_back(disk)
        group.journal.forget(copy)

    def changes() -> None:
        """Mostly there is a later term than that of the copy, or a later set."""
        role, rng = group.journal.role, group.rng
        one = group.broker_of(role.master)
        if rng.random() < 0.3 or one is None or not one.up:
            return
        if rng.random() < 0.4:
            one = rng.choice(group.brokers)
        one.crash(power=False)
        group.go(int(rng.random() * 2 * group.plan.timeout_ms))
        group.start(one)
        group.go(int(rng.random() * 1500))

    if group.backup is None:
        disks = [one.disk.copy() for one in group.controllers]
        group.backup = (group.journal.copy(), disks)
        return
    _all_of_them(group, harm, changes)
    if group.rng.random() < 0.5:
        group.backup = None


# Machines that stay so


def _stay(group: "Run", one: "GroupBroker | Controller", how: str) -> None:
    disk = one.disk
    if any(type(other) is type(one) for other in group.sick):
        return  # the others are whole
    sync_ms = SICK_MS[int(group.rng.random() * len(SICK_MS))]

    def heal() -> None:
        disk.sync_ms, disk.failing, disk.stays_full = 0, False, False
        disk.full = False
        one.mended(group.now_ms)

    group.sick[one] = heal
    if how == "slow":
        disk.sync_ms = sync_ms
    elif how == "failing":
        disk.failing = True
    else:
        disk.full = disk.stays_full = True


def a_broker_stays_very_slow(group: "Run") -> None:
    """Let each sync of a broker take 1 to 3 s, for the rest of the run."""
    _stay(group, group.rng.choice(group.brokers), "slow")


def a_broker_stays_failing(group: "Run") -> None:
    """Let each sync of a broker fail, for the rest of the run."""
    _stay(group, group.rng.choice(group.brokers), "failing")


def a_broker_stays_full(group: "Run") -> None:
    """Fill the disk of a broker, for the rest of the run."""
    _stay(group, group.rng.choice(group.brokers), "full")


def a_controller_stays_very_slow(group: "Run") -> None:
    """Let each sync of a controller take 1 to 3 s, for the rest of the run."""
    _stay(group, group.rng.choice(group.controllers), "slow")


def a_controller_stays_failing(group: "Run") -> None:
    """Let each sync of a controller fail, for the rest of the run."""
    _stay(group, group.rng.choice(group.controllers), "failing")


def a_controller_stays_full(group: "Run") -> None:
    """Fill the disk of a controller, for the rest of the run."""
    _stay(group, group.rng.choice(group.controllers), "full")


DISK_FAULTS: dict[str, Callable[["Run"], Undo | None]] = {
    one.__name__.replace("_", " "): one
    for one in (
        slow_syncs_of_a_broker, slow_syncs_of_brokers, slow_syncs_of_controllers,
        a_broker_stays_slow, controllers_stay_slow, failing_syncs_of_a_broker,
        failing_syncs_of_a_controller, hanging_syncs_of_a_broker, hanging_syncs_of_a_controller,
        full_disk_of_a_broker, full_disk_of_a_controller, emptied_controller, restored_controller,
    )
}  # fmt: skip
LATER_FAULTS: dict[str, Callable[["Run"], Undo | None]] = {
    one.__name__.replace("_", " "): one
    for one in (
        all_controllers_emptied,
        all_controllers_restored,
        a_broker_stays_very_slow,
        a_broker_stays_failing,
        a_broker_stays_full,
        a_controller_stays_very_slow,
        a_controller_stays_failing,
        a_controller_stays_full,
    )
}
"""Faults that are drawn apart from the others, so that older seeds keep their stories."""
DISK_FAULTS |= LATER_FAULTS
WAITING: dict[str, str] = {}
"""Faults that no seed draws yet, each with the reason; a seed may still have one as its theme."""
