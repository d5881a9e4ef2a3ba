"""One seed of the replication suite: a group of brokers, random trouble, and what must hold.

Real stores on simulated disks, the real drivers and machines of replication, a virtual network and
clock, and an oracle that elects. Each seed draws the group (two or three brokers, a learner, how
sends are acknowledged, SYNC_FLUSH or not) and which kinds of trouble it knows. Trouble then stops,
and within a minute all brokers are one again: the same log, the same epochs, all in the set.

What may be lost depends on the seed. With allAckInSyncStateSet sends wait for the set: nothing
acknowledged, confirmed or read is ever lost, but by an election that the oracle counts as unclean.
Without it only copies are counted, and logs must be one in the end. A few seeds play default HA:
one master, whose process may be killed, and replicas that may lose the power, too.
"""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from unittest.mock import patch

from tests.sim.ha.broker import ROOT, Broker, Options, Sent, Settings
from tests.sim.ha.checkers import History, check_reads, check_same
from tests.sim.ha.net import Network
from tests.sim.ha.oracle import Oracle
from tests.sim.ha.proposals import Proposals
from tests.sim.store_suite import START_MS
from turbopump.broker.config.replication_config import BrokerRole
from turbopump.engine.config import StoreConfig
from turbopump.engine.log import incoming
from turbopump.engine.types import FlushMode
from turbopump.net.ha.acks import ALL

STEPS_MAX = 160
TOPICS = (("A", 0), ("A", 1), ("Longer-topic", 0))
SIZES = (8, 20, 60, 200, 700)
BIG_SIZES = (700, 1500)
# Smaller than what several records are: with the real size all would be stored through mappings.
WRITE_MIN = 300
# More than the largest record, as IN_FLIGHT_MAX is: a part of one is not acknowledged.
IN_FLIGHT_LEAST = 1700
# A second's, where the flow is controlled: a burst takes several.
FLOW_BYTES = 5000
PAUSES_MS = (0, 0, 1, 5, 20, 100, 400)
TROUBLES = (
    "crash", "kill", "election", "partition", "one way", "reset", "stall", "lost answers",
    "retention", "writeback", "epochs", "slow disk", "small pieces", "cut off", "idle elections",
    "pause", "failing disk",
)  # fmt: skip
# What default HA has nothing for: the leader, and what to do about a log that parted.
SWITCHING = {"election", "idle elections", "epochs", "cut off", "lost answers", "retention"}
PLAIN = 0.07
THEMED = 0.6
THEME_FACTOR = 4
HOUR_MS = 3_600_000
# After the last trouble: I19, and what a replica may have to wait that was suspended before.
SETTLE_MS = 60_000
SETTLE_STEP_MS = 100


@dataclass(slots=True)
class Played:
    """What a seed leaves to be counted."""

    acked: int = 0
    ends: int = 0


def store_config(rng: random.Random, *, sync: bool) -> StoreConfig:
    """A store of small files."""
    return StoreConfig(
        root=ROOT,
        mapped_file_size_commit_log=4096,
        mapped_file_size_consume_queue=rng.choice((100, 400)),
        max_hash_slot_num=3,
        max_index_num=8,
        message_index_enable=rng.random() < 0.2,
        flush_disk_type=FlushMode.SYNC_FLUSH if sync else FlushMode.ASYNC_FLUSH,
        flush_commit_log_least_pages=0,
        flush_interval_consume_queue_ms=200,
        flush_consume_queue_thorough_interval_ms=rng.choice((300, 2000)),
        file_reserved_time_hours=1,
        max_message_size=2048,
    )


class Disks(list[Broker]):
    """All disks as one to be compared."""

    def digest(self) -> str:
        """A hash of all."""
        text = " ".join(broker.disk.digest() for broker in self)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Run:
    """One seed."""

    def __init__(self, seed: int, about: tuple[str, ...] = ()) -> None:
        """`about`: troubles that it surely knows, the first as its theme."""
        rng = self.rng = random.Random(seed)
        self.now_ms = 0
        self.troubles = {name for name in TROUBLES if rng.random() < 0.3}
        self.theme = rng.choice(TROUBLES) if rng.random() < THEMED else ""
        if about:
            self.theme = about[0]
            self.troubles.update(about)
        elif self.theme:
            self.troubles.add(self.theme)
        self.switches = bool(about) or rng.random() >= PLAIN
        if not self.switches:
            self.troubles -= SWITCHING
        self.retention = "retention" in self.troubles
        self.net = Network(rng)
        if "small pieces" not in self.troubles:
            self.net.windows, self.net.pieces = self.net.windows[1:], self.net.pieces[3:]
        self.history = History()
        self.played = Played()
        self.ends = 0
        self.number = 0
        self.cut_off: set[int] = set()
        """Brokers that do not reach the controller."""
        self.elected_life = 0
        """That of the master's process when it was elected."""
        settings = self._settings()
        count = 2 if rng.random() < 0.3 else 3
        learner = count == 3 and rng.random() < 0.1
        self.brokers = [
            Broker(
                self, number, settings, learner=learner and number == 3,
                last_file=learner and number == 3 and rng.random() < 0.3,
            )
            for number in range(1, count + 1)
        ]  # fmt: skip
        for broker in self.brokers:
            broker.disk.torn_pages = rng.random() < 0.2
            broker.disk.ordered = rng.random() < 0.2
            self.net.hosts[broker.name] = broker
        self.disk = Disks(self.brokers)
        voters = tuple(broker.number for broker in self.brokers if not broker.learner)
        self.oracle = Oracle(rng, voters)
        self.proposals = Proposals(rng, self.oracle, lambda: self.now_ms, self._joined)
        self.settings = settings
        self.actions = self._actions()

    @property
    def wall_ms(self) -> int:
        """What is written down."""
        return START_MS + self.now_ms

    def _settings(self) -> Settings:
        rng = self.rng
        safe = rng.random() < 0.85
        sync = rng.random() < 0.6
        store = store_config(rng, sync=sync)
        return Settings(store, Options(
            broker_role=BrokerRole.SYNC_MASTER,
            enable_controller_mode=self.switches,
            sync_flush=sync,
            ha_send_heartbeat_interval_ms=500,
            ha_housekeeping_interval_ms=2000,
            ha_transfer_batch_size=rng.choice((60, 300, 4000)),
            ha_max_time_slave_not_catchup_ms=1500,
            in_sync_replicas=rng.choice((1, 2, 2)),
            min_in_sync_replicas=rng.choice((1, 1, 1, 2)),
            all_ack_in_sync_state_set=safe,
            in_flight_max=rng.choice((IN_FLIGHT_LEAST, 4000, 1 << 20)),
            ha_flow_control_enable=rng.random() < 0.25,
            max_ha_transfer_byte_in_second=FLOW_BYTES,
            may_lose=not sync and "crash" in self.troubles,
        ))  # fmt: skip

    def _actions(self) -> list[Callable[[], None]]:
        """What a step may do, as often as it is likely."""
        weights = {
            self._send: 22, self._deliver: 40, self._tick: 14, self._work: 14, self._notice: 8,
            self._answer: 5, self._read: 4, self._restart: 3, self._turn: 6, self._go_on: 8,
        }  # fmt: skip
        optional = {
            "crash": {self._crash: 1}, "kill": {self._kill: 1}, "election": {self._elect: 2},
            "partition": {self._partition: 2, self._join: 2},
            "one way": {self._block: 2, self._join: 1}, "reset": {self._reset: 2},
            "stall": {self._stall: 2}, "lost answers": {self._lose_answer: 3},
            "retention": {self._expire: 2, self._burst: 2}, "writeback": {self._writeback: 6},
            "epochs": {self._damage_epochs: 1}, "slow disk": {},
            "cut off": {self._cut_off: 2}, "pause": {self._pause: 3},
            "idle elections": {self._elect_twice: 1}, "failing disk": {self._fail_sync: 2},
        }  # fmt: skip
        for name in sorted(self.troubles):
            factor = THEME_FACTOR if name == self.theme else 1
            for action, weight in optional.get(name, {}).items():
                weights[action] = weights.get(action, 0) + weight * factor
        if "slow disk" in self.troubles:
            weights[self._work] = 5
        return [action for action, weight in weights.items() for _ in range(weight)]

    def play(self) -> Played:
        """All of it; AssertionError and StoreError are findings."""
        with patch.object(incoming, "WRITE_MIN", WRITE_MIN):
            return self._play()

    def _play(self) -> Played:
        rng = self.rng
        for broker in self.brokers:
            assert broker.start(), "a broker does not start"
        if self.switches:
            self._elect()
        for _ in range(rng.randrange(STEPS_MAX // 4, STEPS_MAX)):
            self.now_ms += PAUSES_MS[int(rng.random() * len(PAUSES_MS))]
            self.net.now_ms = self.now_ms
            self.actions[int(rng.random() * len(self.actions))]()
        self._settle()
        self._check()
        self.played.ends = self.ends
        return self.played

    # Steps

    def _some(self) -> Broker:
        return self.brokers[int(self.rng.random() * len(self.brokers))]

    def _up(self) -> Broker | None:
        broker = self._some()
        return broker if broker.up and not broker.paused else None

    def _send(self) -> None:
        broker = self._up()
        masters = [one for one in self.brokers if one.is_master and not one.paused]
        if masters and self.rng.random() < 0.95:
            broker = masters[int(self.rng.random() * len(masters))]
        if broker is not None:
            self.send(broker)

    def send(self, broker: Broker, sizes: tuple[int, ...] = SIZES) -> Sent | None:
        """Some message."""
        rng = self.rng
        topic, queue_id = TOPICS[int(rng.random() * len(TOPICS))]
        self.number += 1
        size = sizes[int(rng.random() * len(sizes))]
        return broker.send(topic, queue_id, b"%08d" % self.number + b"x" * (size - 8))

    def _burst(self) -> None:
        masters = [one for one in self.brokers if one.is_master and not one.paused]
        for _ in range(self.rng.randrange(2, 8)):
            for broker in masters:
                if broker.up:
                    self.send(broker, BIG_SIZES)

    def _deliver(self) -> None:
        for _ in range(self.rng.randrange(1, 5)):
            if not self.net.step():
                return

    def _tick(self) -> None:
        broker = self._up()
        if broker is not None:
            broker.tick()

    def _turn(self) -> None:
        broker = self._up()
        if broker is not None:
            broker.turn()

    def _work(self) -> None:
        broker = self._up()
        if broker is not None:
            for _ in range(self.rng.randrange(1, 4)):
                if broker.up:
                    broker.do_work()

    def _go_on(self) -> None:
        """A while in which all do what they can, so that trouble meets more than beginners:
        replicas catch up, and the set grows."""
        for _ in range(self.rng.randrange(1, 6)):
            self.now_ms += SETTLE_STEP_MS
            self.net.now_ms = self.now_ms
            for broker in self.brokers:
                if broker.up and not broker.paused:
                    self._let_run(broker)
            self._notice()
            self._answer()
            self.net.drain(10)

    def _let_run(self, broker: Broker) -> None:
        broker.tick()
        if broker.up:
            broker.do_work(all_of_it=True)
        if broker.up:
            broker.turn()

    def _read(self) -> None:
        broker = self._up()
        if broker is not None:
            broker.read(*TOPICS[int(self.rng.random() * len(TOPICS))])

    # The controller

    def _notice(self) -> None:
        """A broker hears of the controller, which hears of it: what is down is found out."""
        if not self.switches:
            return
        broker = self._up()
        self._watch()
        if broker is not None and broker.number not in self.cut_off:
            self._tell(broker)

    def _tell(self, broker: Broker) -> None:
        role = self.oracle.role
        if not broker.up or broker.paused:
            return
        if role.master == broker.number and broker.lives != self.elected_life:
            return  # a reign does not outlive its process
        if role.master:
            broker.take(role)

    def _watch(self) -> None:
        """The master is down, or began a new life: another one, if there is one."""
        role = self.oracle.role
        master = next((one for one in self.brokers if one.number == role.master), None)
        if master is None or not master.up or role.master not in role.members:
            if self.rng.random() < 0.5:
                self._elect()
        elif master.lives != self.elected_life:
            self._elect()

    def _joined(self, number: int) -> None:
        """Its labels are its master's: whatever was damaged is repaired (seed 306355)."""
        self.brokers[number - 1].epochs_damaged = False

    def _elect(self) -> None:
        up = {one.number for one in self.brokers if one.up and not one.epochs_damaged}
        candidates = self.oracle.candidates(up)
        if not candidates:
            return
        number = candidates[int(self.rng.random() * len(candidates))]
        broker = self.brokers[number - 1]
        if number in self.oracle.doubtful:
            self.oracle.doubtful.discard(number)
            broker.look()
            log, epoch = broker.replicated, self.oracle.role.epoch + 1
            self.history.forget(broker.log, log.min, log.end, epoch)
        self.oracle.elect(number)
        self.elected_life = broker.lives
        if self.rng.random() < 0.5 and number not in self.cut_off:
            self._tell(broker)

    def _elect_twice(self) -> None:
        """Elections without a write between them (S2)."""
        for _ in range(self.rng.randrange(1, 4)):
            self._elect()
            broker = self.brokers[self.oracle.role.master - 1]
            if broker.up:
                self._tell(broker)

    def _answer(self) -> None:
        self.proposals.step(self.cut_off, loses="lost answers" in self.troubles)

    def _lose_answer(self) -> None:
        self.proposals.lose()

    def _cut_off(self) -> None:
        """A broker does not reach the controller any more, or does again."""
        self.cut_off ^= {self._some().number}

    # Trouble

    def _crash(self) -> None:
        self._end_one(power=True)

    def _kill(self) -> None:
        self._end_one(power=False)

    def _end_one(self, *, power: bool) -> None:
        """Now, or after some operations of the disk; sometimes of all."""
        rng = self.rng
        victims = self.brokers if rng.random() < 0.1 else [self._some()]
        for broker in victims:
            if not broker.up:
                continue
            power = power and (self.switches or broker.number > 1)
            if rng.random() < 0.5:
                broker.crash(power=power)
            elif rng.random() < 0.2:
                broker.stop()
            else:
                broker.disk.kill = not power
                broker.disk.cut_after = rng.randrange(30)

    def _fail_sync(self) -> None:
        """The next sync of a disk fails; now and then an operator looks after a broker of such a
        disk, which takes nothing until it is started anew."""
        broker = self._some()
        if broker.up and broker.disk_failed:
            broker.crash(power=False)
        else:
            broker.disk.fail_syncs = 1

    def _restart(self) -> None:
        broker = self._some()
        if not broker.up:
            self._start(broker)

    def _start(self, broker: Broker) -> None:
        if broker.start():
            self.oracle.register(broker.number, lossy=broker.is_lossy or broker.epochs_damaged)
            broker.is_lossy = False

    def _pair(self) -> tuple[str, str]:
        one, other = self.rng.sample(self.brokers, 2)
        return one.name, other.name

    def _partition(self) -> None:
        one, other = self._pair()
        self.net.blocked |= {(one, other), (other, one)}

    def _block(self) -> None:
        self.net.blocked.add(self._pair())

    def _join(self) -> None:
        self.net.blocked.clear()

    def _reset(self) -> None:
        if self.net.links:
            self.net.reset(self.net.links[self.rng.randrange(len(self.net.links))])

    def _stall(self) -> None:
        if self.net.links:
            link = self.net.links[self.rng.randrange(len(self.net.links))]
            self.net.stall(link, self.rng.choice((10, 300, 3000)))

    def _pause(self) -> None:
        """A process does not run, or does again (F12)."""
        broker = self._some()
        broker.paused = broker.up and not broker.paused

    def _expire(self) -> None:
        broker = self._up()
        if broker is not None:
            broker.expire(2 * HOUR_MS)

    def _writeback(self) -> None:
        self._some().disk.writeback()

    def _damage_epochs(self) -> None:
        """Of one that is down and not needed: the others have all that is confirmed."""
        broker = self._some()
        members = self.oracle.role.members
        others = members - {broker.number} - self.oracle.doubtful
        if not broker.up and others:
            broker.damage_epochs()
            # It alone is not waited for: that would be an operator's case.
            self.oracle.register(broker.number, lossy=True)

    # The end

    def answered(self, broker: Broker, sent: Sent) -> None:
        """A sender was answered with success: as many as it needed have the message."""
        self.played.acked += 1
        role = self.oracle.role
        if not self.switches:
            return
        if role.epoch != sent.epoch or self.settings.ha.may_lose:
            return
        sync = self.settings.is_sync
        record = broker.log.read(sent.start, sent.end)
        have = {
            one.number for one in self.brokers
            if one.log.read(sent.start, sent.end, durable=sync) == record
        }  # fmt: skip
        if sent.need == ALL:
            assert role.members <= have, (
                f"{sent.body[:8]!r}: acknowledged, {sorted(role.members)} need it, "
                f"{sorted(have)} have it"
            )
            assert len(have) >= self.settings.ha.min_in_sync_replicas
        else:
            assert len(have) >= sent.need, f"{len(have)} of {sent.need} copies"

    def confirmed(self, broker: Broker, start: int, stop: int) -> None:
        """A master says that bytes are safe: all that may become master have them (I6)."""
        role = self.oracle.role
        if (role.master, role.epoch) != (broker.number, broker.role.epoch):
            return
        if self.settings.ha.may_lose:
            return
        for number in role.members - {broker.number}:
            log = self.brokers[number - 1].log
            has = log.read(start, stop, durable=self.settings.is_sync)
            if has != self.history.log[start:stop]:
                raise AssertionError(
                    f"broker {broker.number} confirms {start} to {stop}, {number} of the set has "
                    "them not"
                )

    def _settle(self) -> None:
        """No more trouble: all are one again, and in the set, within a minute."""
        self.net.heal()
        self.cut_off.clear()
        for broker in self.brokers:
            broker.paused = False
        deadline_ms = self.now_ms + SETTLE_MS
        while True:
            self._wait(1)
            self._notice()
            self.proposals.deliver()
            if self._is_one():
                return
            assert self.now_ms < deadline_ms, f"not one after a minute: {self._states()}"

    def _wait(self, rounds: int) -> None:
        """Time in which nothing goes wrong."""
        for _ in range(rounds):
            self.now_ms += SETTLE_STEP_MS
            self.net.now_ms = self.now_ms
            for broker in self.brokers:
                self._calm(broker)
            self.net.drain(50)

    def _calm(self, broker: Broker) -> None:
        broker.disk.cut_after, broker.disk.fail_syncs = None, 0
        if broker.up and broker.disk_failed:
            broker.crash(power=False)
        if not broker.up:
            self._start(broker)
        if self.switches:
            self._tell(broker)
        self._let_run(broker)

    def _is_one(self) -> bool:
        role = self.oracle.role
        wanted = {one.number for one in self.brokers if not one.learner}
        if self.switches and (
            role.members != wanted or any(one.role.epoch != role.epoch for one in self.brokers)
        ):
            return False
        if not all(one.is_master or one.follows for one in self.brokers):
            return False
        logs = [one.replicated for one in self.brokers if not self._has_nothing(one)]
        return len({end for log in logs for end in (log.end, log.confirm, log.flushed)}) == 1

    def _has_nothing(self, broker: Broker) -> bool:
        """It takes the last file only, and nothing is in that yet."""
        log = broker.replicated
        return broker.options.sync_from_last_file and log.min == log.end

    def _states(self) -> str:
        role = self.oracle.role
        said = [f"{role}"]
        for one in self.brokers:
            log = one.replicated
            follower = one.service.follower if one.service is not None else None
            machine = follower.machine if follower is not None else None
            said.append(
                f"{one.name}: [{log.min}, {log.end}) confirm {log.confirm} flushed {log.flushed} "
                f"epochs {log.epochs.entries} "
                f"{'master' if one.is_master else machine and (machine.state.name, machine.reason)}"
            )
        return "\n".join(said)

    def _check(self) -> None:
        """When all is calm."""
        master = self.brokers[self.oracle.role.master - 1 if self.switches else 0]
        self._wait(1)
        sent = self.send(master)
        if sent is None:  # the next log file is being made
            self._wait(1)
            sent = self.send(master)
        assert sent is not None, "a healthy group takes messages"
        self._wait(10)
        assert sent.acked, f"a healthy group acknowledges messages: {sent.status}"
        logs = {}
        for broker in self.brokers:
            log = broker.replicated
            logs[broker.number] = (broker.log, log.min, log.end)
            assert log.confirm == log.end, f"broker {broker.number}: {log.confirm} of {log.end}"
        found = check_same(logs, self.history)
        first = max(minimum for _log, minimum, _end in logs.values())
        lists = {one.replicated.epochs.without_expired(first) for one in self.brokers}
        assert len(lists) == 1, f"epochs differ: {lists}"
        for broker in self.brokers:
            assert broker.store is not None, "it is up"
            count = check_reads(broker.store, broker.show)
            assert count >= len(found), f"broker {broker.number} shows {count} of {len(found)}"


def run_seed(seed: int, about: tuple[str, ...] = ()) -> Played:
    """Play one seed."""
    return Run(seed, about).play()
