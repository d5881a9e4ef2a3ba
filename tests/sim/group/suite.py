"""A seed of the group suite: controllers, brokers, a name server and clients, and the checks.

Every part that decides is real: Raft and its log on disk, the controller's state machine, the
membership of brokers, replication and the store, the name server's table. Simulated are the clocks,
the network, the disks, and operators: faults of some kinds, drawn from the seed, begin and end
while clients send. Then trouble stops: within 10 seconds a message is acknowledged, within 30 all
brokers are in the set and their logs are equal.

With `enableElectUncleanMaster`, or where disks do not sync and the power may be cut everywhere at
once, messages may be lost; logs must be equal in the end all the same.
"""

import hashlib
import random
from collections.abc import Callable, Container
from dataclasses import dataclass
from itertools import pairwise

from tests.sim.group.broker import GroupBroker, settings_of
from tests.sim.group.calls import Trouble
from tests.sim.group.checkers import Journal
from tests.sim.group.controller import Controller, Timing
from tests.sim.group.disks import DISK_FAULTS, Backup, draw
from tests.sim.group.faults import FAULTS, Nemesis
from tests.sim.group.machines import Admin, Client, Names, Process
from tests.sim.group.tables import Clerk
from tests.sim.ha.checkers import DOOMED, History, check_reads, check_same
from tests.sim.ha.net import Network
from tests.sim.ha.seed import Played
from tests.sim.ha.settings import Sent
from tests.sim.ha.work import SIZES, TOPICS
from tests.sim.store_seed import START_MS
from tests.sim.work import Stands
from turbopump.engine.types import LogOffset, StoreError
from turbopump.net.ha.acks import ALL

CONTROLLERS = BROKERS = 3
TROUBLE_MS = (3000, 6000, 12_000)
SETTLE_MS, WRITES_MS = 30_000, 10_000
"""I19: after the last fault all members are back, and writes succeed."""
WITHOUT_MS = 15_000
"""Time for the group to go on without its last master: a new leader of the controllers waits 10 s
for unknown brokers, also for a broker that lost its disk and has another id since.
"""
ONE_MS = 60_000
"""Time until no broker reads less than another: a last acknowledgement is on its way."""
LATENCY_MS = 3
THEMED = 0.6
COPIED_EVERY_MS = 25
TABLES_MS = 20_000
"""Time until all brokers have the topics, groups and offsets of the master: some rounds of theirs,
the first of which may fail.
"""
TIMEOUTS_MS = (1000, 2000, 10_000)
BIG_SIZES = (700, 1500)
AGAIN_MS = 1000
"""Delay between a failed start and the next one."""


class Disks(list):
    """All disks of the group, compared as one."""

    def digest(self) -> str:
        """A hash of all."""
        text = " ".join(machine.disk.digest() for machine in self)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(slots=True, frozen=True)
class Plan:
    """Draws of a seed; a scripted test sets them instead."""

    kinds: tuple[str, ...]
    theme: str = ""
    safe: bool = True
    sync: bool = True
    unclean: bool = False
    timeout_ms: int = 2000
    small_pieces: bool = False
    torn: bool = False
    snapshot_entries: int = 1000

    @classmethod
    def draw(cls, rng: random.Random, about: tuple[str, ...], seed: int) -> "Plan":
        """`about`: faults that it surely knows, the first as its theme."""
        names = sorted(set(FAULTS) - set(DISK_FAULTS))
        theme = rng.choice(names) if rng.random() < THEMED else ""
        kinds = {name for name in names if rng.random() < 0.2}
        if about:
            theme = about[0]
            kinds |= set(about)
        elif theme:
            kinds.add(theme)
        kinds |= draw(seed)
        return cls(
            tuple(sorted(kinds)),
            theme,
            sync=rng.random() < 0.6,
            unclean=rng.random() < 0.06,
            timeout_ms=rng.choice(TIMEOUTS_MS[: 2 + (rng.random() < 0.15)]),
            small_pieces=rng.random() < 0.1,
            torn=rng.random() < 0.2,
            snapshot_entries=rng.choice((5, 20, 1000)),
        )


class Run:
    """Run of a seed."""

    acts = False
    """Whether replicas act while no master can be elected (acting/elected.py)."""

    def __init__(self, seed: int, about: tuple[str, ...] = (), plan: Plan | None = None) -> None:
        rng = self.rng = random.Random(seed)
        self.now_ms = 0
        self.start_ms = START_MS
        self.plan = plan or Plan.draw(rng, about, seed)
        self.trouble = Trouble()
        self.net = Network(rng)
        if not self.plan.small_pieces:
            self.net.windows, self.net.pieces = self.net.windows[2:], self.net.pieces[4:]
        self.history = History()
        self.journal = Journal(self)
        self.played = Played()
        self.ends = 0
        self.number = 0
        self.chance = rng.choice((0.5, 0.9, 1.0))
        self.retention = "retention" in self.plan.kinds
        self.settings = settings_of(self.plan, rng)
        self.timing = Timing(self.plan.timeout_ms)
        self.controllers = [Controller(self, number) for number in range(CONTROLLERS)]
        self.names = Names(self, "names")
        self.brokers = [GroupBroker(self, number) for number in range(1, BROKERS + 1)]
        self.clients = [
            Client(self, f"client-{number}", topic, queues)
            for number, (topic, queues) in enumerate((("A", 2), ("Longer-topic", 1)))
        ]
        self.clerk = Clerk(self, "clerk")
        self.admin = Admin(self, "admin")
        self.servers = [*self.controllers, self.names, *self.brokers]
        self.machines = [*self.servers, *self.clients, self.clerk, self.admin]
        for machine in (*self.controllers, *self.brokers):
            machine.disk.torn_pages = self.plan.torn
            machine.disk.ordered = rng.random() < 0.2
        self.disk = Disks([*self.controllers, *self.brokers])
        self.nemesis = Nemesis(self, list(self.plan.kinds), self.plan.theme)
        self.acked_since: int | None = None
        self.compared_ms = 0
        """Time of the last comparison of tables."""
        self.standing: list[Stands] = []
        """Machines whose loop waits for a sync."""
        self.sick: dict[Process | GroupBroker, Callable[[], None]] = {}
        """Machines that stay slow, full or failing, each with the function that ends it."""
        self.again: list[tuple[int, Process | GroupBroker]] = []
        """Processes that ended at their start, and when they are started again."""
        self.backup: Backup | None = None
        """Copies of all controllers' disks."""

    @property
    def pace(self) -> float:
        """Factor of fault durations for the timeout after which a broker counts as dead."""
        return min(1.0, self.plan.timeout_ms / 3000)

    @property
    def may_lose(self) -> bool:
        """Whether a broker may be elected that has less than was confirmed."""
        return self.settings.ha.may_lose

    # Its life

    def play(self) -> Played:
        """Play the whole seed; AssertionError and StoreError are findings."""
        rng = self.rng
        self.begin()
        if rng.random() < 0.7:
            self.until(self.is_whole, SETTLE_MS, "no whole group")
        end_ms = self.now_ms + rng.choice(TROUBLE_MS)
        while self.now_ms < end_ms:
            self.nemesis.step(self.now_ms)
            self.step()
            if rng.random() < 0.02:
                self.read()
        self.settle()
        self.check()
        self.played.ends = self.ends
        return self.played

    def begin(self) -> None:
        """Start all machines, in any order."""
        machines = list(self.machines)
        self.rng.shuffle(machines)
        for machine in machines:
            self.start(machine)
            if self.rng.random() < 0.3:
                self.go(int(self.rng.random() * 300))

    def start(self, machine: Process | GroupBroker) -> None:
        """Start a process, unless one is running."""
        machine.paused = False
        if machine.up:
            if isinstance(machine, GroupBroker):
                machine.start_again()
            return
        machine.due_ms = self.now_ms
        try:
            machine.start()
        except (OSError, StoreError):
            if machine not in self.sick:
                raise
            machine.crash(power=False)
            self.again.append((self.now_ms + AGAIN_MS, machine))

    def step(self) -> None:
        """Advance by some milliseconds, or to the next tick of a machine if nothing happens."""
        rng = self.rng
        busy = self.net.sweep(self.chance)
        for machine in self.machines:
            if machine.up and not machine.paused and machine.turn():
                busy = True
        if busy:
            self.now_ms += 1 + int(rng.random() * LATENCY_MS)
        else:
            due_ms = [
                self._wakes_ms(one)
                for one in self.machines
                if one.up and (not one.paused or one in self.standing)
            ]
            self.now_ms = max(self.now_ms + 1, min(due_ms, default=0))
        now_ms = self.net.now_ms = self.now_ms
        for one in [one for one in self.standing if one.stands_until_ms <= now_ms]:
            self.standing.remove(one)
            one.go_on()
        for again in [one for one in self.again if one[0] <= now_ms]:
            self.again.remove(again)
            self.start(again[1])
        for machine in self.machines:
            if machine.due_ms <= now_ms and machine.up and not machine.paused:
                machine.due_ms = now_ms + machine.tick_ms
                machine.tick()

    def _wakes_ms(self, machine: Process | GroupBroker) -> int:
        return machine.wakes_ms() if isinstance(machine, Stands) else machine.due_ms

    def stands(self, machine: Stands) -> None:
        """The loop of its process waits for the disk."""
        if machine.stand(self.now_ms) and machine not in self.standing:
            self.standing.append(machine)

    def go(self, for_ms: int) -> None:
        """Let time pass."""
        end_ms = self.now_ms + for_ms
        while self.now_ms < end_ms:
            self.step()

    def until(self, true: Callable[[], bool], within_ms: int, what: str) -> int:
        """Let time pass until that is so; how long it took."""
        start_ms = self.now_ms
        while not true():
            late = self.now_ms - start_ms > within_ms
            assert not late, f"{what} after {within_ms} ms\n{self.states()}"
            self.step()
        return self.now_ms - start_ms

    # For suites that extend this one

    def broker_ticks(self, broker: GroupBroker) -> None:
        """Do a broker's other periodic work, at each tick."""

    def broker_wrote(self, broker: GroupBroker, start: LogOffset) -> None:
        """Note that the broker appended records from `start`: its own work, or a SEND_MESSAGE_V2
        request.
        """

    def broker_stopped(self, broker: GroupBroker) -> None:
        """Save the rest of the state after a broker's store was closed."""

    # For faults and checks

    def masters(self) -> list[GroupBroker]:
        """Brokers that take themselves for the master."""
        return [broker for broker in self.brokers if broker.is_master]

    def think_ms(self) -> int:
        """Random pause of a client."""
        return int(self.rng.random() ** 3 * 600)

    def new_body(self) -> bytes:
        """Unique body of a message."""
        self.number += 1
        size = SIZES[int(self.rng.random() * len(SIZES))]
        return b"%08d" % self.number + b"x" * (size - 8)

    def burst(self, count: int) -> None:
        """Many bytes at once."""
        for broker in self.masters():
            for _ in range(count):
                if broker.up and not broker.paused:
                    self.number += 1
                    size = BIG_SIZES[int(self.rng.random() * len(BIG_SIZES))]
                    broker.send(*TOPICS[0], b"%08d" % self.number + b"y" * (size - 8))

    def read(self) -> None:
        """A pull from some broker."""
        broker = self.brokers[int(self.rng.random() * BROKERS)]
        if broker.up and not broker.paused:
            broker.read(*TOPICS[int(self.rng.random() * len(TOPICS))])

    def answered(self, broker: GroupBroker, sent: Sent) -> None:
        """Note that a broker reported a message as safe."""
        self.journal.acknowledged(broker, sent)
        if sent.need == ALL:
            queue = (sent.topic, sent.queue_id)
            self.clerk.safe[queue] = max(self.clerk.safe.get(queue, 0), sent.queue_offset + 1)

    def confirmed(self, broker: GroupBroker, start: int, stop: int) -> None:
        """A master confirms bytes."""
        self.journal.confirmed(broker, start, stop)

    def client_acked(self, client: Client, body: bytes) -> None:
        """A client received the acknowledgement."""
        self.played.acked += 1
        if self.acked_since is None:
            self.acked_since = self.now_ms

    # The end

    def heal(self, away: GroupBroker | None = None) -> None:
        """Start all machines but `away`, and let them reach each other."""
        self.net.heal()
        for machine in self.machines:
            disk = getattr(machine, "disk", None)
            if disk is not None and machine.up:
                disk.cut_after = None
            if machine is not away:
                self.start(machine)

    def settle(self) -> None:
        """No more trouble (I19)."""
        self.nemesis.end()
        self.net.heal()
        self.chance = 1.0
        if self.sick:
            self._live_beside_the_sick()
        away = self.broker_of(self.journal.role.master) if self.rng.random() < 0.3 else None
        if away is not None and away.up:
            away.crash(power=False)
        self.heal(away)
        self.acked_since = None
        if away is not None:
            self._write_without(away)
        healed_ms, last = self.now_ms, self.journal.role
        self.until(lambda: self.acked_since is not None, WITHOUT_MS, "no write")
        took_ms = self.now_ms - healed_ms
        if all(self.broker_of(member) is not None for member in last.members):
            assert took_ms <= WRITES_MS, f"no write until {took_ms} ms\n{self.states()}"
        self.until(self.is_whole, SETTLE_MS - (self.now_ms - healed_ms), "not whole")
        for client in (*self.clients, self.clerk):
            client.active = False
        self.until(lambda: self.agree() and self.is_one(), ONE_MS, "not one")
        # A send from before may come late: logs are equal again after it.
        self.until(lambda: self.is_copied() and self.is_one(), TABLES_MS, "tables differ")

    def _live_beside_the_sick(self) -> None:
        """Check that the group goes on without the machines that stay slow, full or failing."""
        self.heal()
        if not all(self.can_do_without(one) for one in self.brokers if one in self.sick):
            self._cure()
            return  # it alone has all that was acknowledged
        self.acked_since = None
        self.until(lambda: self.acked_since is not None, WITHOUT_MS, "no write beside the sick")
        self.until(lambda: self.is_whole(self.sick), SETTLE_MS, "not whole beside the sick")
        for client in self.clients:
            before = client.acked
            self.until(
                lambda one=client, count=before: one.acked >= count + 3,
                WITHOUT_MS,
                f"{client.name} does not get on beside the sick",
            )
        self._cure()

    def _cure(self) -> None:
        for heal in self.sick.values():
            heal()
        self.sick.clear()

    def _write_without(self, away: GroupBroker) -> None:
        """The last master stays away; others of the set do without it, if there are any that may
        (I19, R33)."""

        def is_over() -> bool:
            return self.acked_since is not None or not self.can_do_without(away)

        self.until(is_over, WITHOUT_MS, f"no write without {away.name}")
        self.start(away)

    def can_do_without(self, broker: GroupBroker) -> bool:
        """Whether another candidate surely has all that was acknowledged."""
        role, journal = self.journal.role, self.journal
        others = [self.broker_of(one) for one in role.candidates - role.unfit]
        return any(
            one is not None
            and one is not broker
            and not one.epochs_damaged
            and one.number not in journal.doubtful
            for one in others
        )

    def broker_of(self, broker_id: int | None) -> GroupBroker | None:
        """Broker by the id that its controllers gave it."""
        if not broker_id:
            return None
        return next((one for one in self.brokers if one.controller_id == broker_id), None)

    def is_whole(self, but: Container[Process | GroupBroker] = ()) -> bool:
        """Whether all brokers but some are in the set, and take part.

        A broker with a slow disk delays sends again and again: it may be outside of the set because
        of haMaxTimeSendsWait, but must follow.
        """
        known = {broker.controller_id for broker in self.brokers}
        well = [one for one in self.brokers if one not in but]
        late = {one.controller_id for one in self.brokers if one.may_be_late or one in but}
        if not known - late <= self.journal.members <= known:
            return False
        return sum(one.is_master for one in self.brokers) == 1 and all(
            one.is_master or one.follows for one in well
        )

    def is_copied(self) -> bool:
        """Whether replicas' tables equal the master's; compared at intervals.

        The steps of a calm group may all have one remainder, so the time of a comparison cannot
        depend on its clock.
        """
        if self.now_ms < self.compared_ms + COPIED_EVERY_MS:
            return False
        self.compared_ms = self.now_ms
        masters = self.masters()
        if len(masters) != 1:
            return False  # an election that was due when trouble ended
        (master,) = masters
        return not any(one.tables.same(master.tables) for one in self.brokers if one is not master)

    def agree(self) -> bool:
        """Whether one controller leads, and all have the agreed state."""
        role = self.journal.role
        if not all(
            one.up and one.driver is not None and one.agreed_state() == role.state
            for one in self.controllers
        ):
            return False
        return sum(one.is_leader for one in self.controllers) == 1

    def is_one(self) -> bool:
        """Whether all logs end at the same byte, and all brokers confirm it."""
        logs = [broker.replicated for broker in self.brokers]
        ends = {end for log in logs for end in (log.end, log.confirm, log.flushed)}
        return self.is_whole() and len(ends) == 1

    def check(self) -> None:
        """Check the group after all trouble."""
        self.journal.check_calm()
        logs = {}
        for broker in self.brokers:
            log = broker.replicated
            logs[broker.number] = (broker.log, log.min, log.end)
        found = [one for one in check_same(logs, self.history) if not one.key[0].endswith(DOOMED)]
        first = max(minimum for _log, minimum, _end in logs.values())
        lists = [one.replicated.epochs.without_expired(first) for one in self.brokers]
        assert all(one == other for one, other in pairwise(lists)), f"epochs differ: {lists}"
        for broker in self.brokers:
            assert broker.store is not None, "it is up"
            count = check_reads(broker.store, broker.show)
            assert count >= len(found), f"broker {broker.number} shows {count} of {len(found)}"

    def states(self) -> str:
        """Description of all machines for a finding."""
        lines = [f"at {self.now_ms}; faults: {', '.join(self.nemesis.begun)}", str(self.plan)]
        lines += [one.state() for one in (*self.controllers, *self.brokers)]
        lines += [f"{one.name}: {one.acked} acknowledged, {one.refused}" for one in self.clients]
        lines.append(f"agreed: {self.journal.role}")
        for master in self.masters():
            lines += [
                f"{one.name}: {one.tables.same(master.tables)}"
                for one in self.brokers
                if one.tables is not None
            ]
        return "\n".join(lines)


def run_seed(seed: int, about: tuple[str, ...] = ()) -> Played:
    """Play one seed of this suite."""
    return Run(seed, about).play()
