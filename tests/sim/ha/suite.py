"""A seed of the replication suite: a group of brokers, random trouble, and the checks.

Real stores on simulated disks, the real drivers and machines of replication, a virtual network and
clock, and an oracle that elects. Each seed draws the group (two or three brokers, a learner, the
acknowledgement of sends, SYNC_FLUSH or not) and its kinds of trouble (seed.py). Steps are work
(work.py) and trouble (trouble.py). Trouble then stops, and within a minute all brokers are equal
again: the same log, the same epochs, all in the set.

Permitted losses depend on the seed. With allAckInSyncStateSet sends wait for the set: no
acknowledged, confirmed or read message is ever lost, except by an election that the oracle counts
as unclean. Without it only copies are counted, and logs must be equal in the end. A few seeds play
default HA: one master, whose process may be killed, and replicas that may lose the power, too.
"""

from collections.abc import Callable
from unittest.mock import patch

from tests.sim.ha.broker import Broker
from tests.sim.ha.carried import OVER_MS, Carried
from tests.sim.ha.checkers import check_reads, check_same
from tests.sim.ha.seed import Played
from tests.sim.ha.trouble import GroupTrouble
from tests.sim.ha.work import SETTLE_STEP_MS
from turbopump.engine.log import replica_append

STEPS_MAX = 160
# Smaller than a few records: with the real size all would be stored through mappings.
WRITE_MIN = 300
PAUSES_MS = (0, 0, 1, 5, 20, 100, 400)
THEME_FACTOR = 4
# Time after the last trouble, in ms: I19, plus the wait of a replica that was suspended before.
SETTLE_MS = 60_000


class Run(GroupTrouble):
    """Run of a seed."""

    def __init__(self, seed: int, about: tuple[str, ...] = ()) -> None:
        """`about`: troubles that it surely knows, the first as its theme."""
        super().__init__(seed, about)
        self.actions = self._actions()

    def _actions(self) -> list[Callable[[], None]]:
        """Possible steps, each repeated by its weight."""
        weights = {
            self._send: 22,
            self._deliver: 40,
            self._tick: 14,
            self._work: 14,
            self._notice: 8,
            self._answer: 5,
            self._read: 4,
            self._restart: 3,
            self._turn: 6,
            self._go_on: 8,
        }
        optional = {
            "crash": {self._crash: 1},
            "kill": {self._kill: 1},
            "election": {self._elect: 2},
            "partition": {self._partition: 2, self._join: 2},
            "one way": {self._block: 2, self._join: 1},
            "reset": {self._reset: 2},
            "stall": {self._stall: 2},
            "lost answers": {self._lose_answer: 3},
            "retention": {self._expire: 2, self._burst: 2},
            "writeback": {self._writeback: 6},
            "epochs": {self._damage_epochs: 1},
            "slow disk": {},
            "cut off": {self._cut_off: 2},
            "pause": {self._pause: 3},
            "idle elections": {self._elect_twice: 1},
            "failing disk": {self._fail_sync: 2},
        }
        for name in sorted(self.troubles):
            factor = THEME_FACTOR if name == self.theme else 1
            for action, weight in optional.get(name, {}).items():
                weights[action] = weights.get(action, 0) + weight * factor
        if "slow disk" in self.troubles:
            weights[self._work] = 5
        if self.carried is not None:
            weights |= {self.carried.act: 25, self.carried.jump: 1}
        return [action for action, weight in weights.items() for _ in range(weight)]

    def play(self) -> Played:
        """Play the whole seed; AssertionError and StoreError are findings."""
        with patch.object(replica_append, "WRITE_MIN", WRITE_MIN):
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
        if self.carried is not None:
            self._carry_out(self.carried)
        self._check()
        self.played.ends = self.ends
        return self.played

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

    def _carry_out(self, carried: Carried) -> None:
        """Check that all scheduled messages are delivered exactly, including those due while there
        was no master.
        """
        if self.switches and self.rng.random() < 0.6:
            for broker in self.brokers:
                if broker.is_master:
                    broker.crash(power=False)
        carried.all_is_due()
        deadline_ms = self.now_ms + OVER_MS
        while not carried.is_over():
            self._wait(1)
            self._notice()
            self.proposals.deliver()
            carried.answer()
            assert self.now_ms < deadline_ms, f"it does not come: {carried} {self._states()}"
        self._settle()
        (master,) = [one for one in self.brokers if one.is_master]
        assert master.store is not None, "it is up"
        carried.check(master.store)

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
        """Whether it copies only from the last file, and that file has no records yet."""
        log = broker.replicated
        return broker.options.sync_from_last_file and log.min == log.end

    def _states(self) -> str:
        role = self.oracle.role
        lines = [f"{role}"]
        for one in self.brokers:
            log = one.replicated
            follower = one.service.follower if one.service is not None else None
            machine = follower.machine if follower is not None else None
            lines.append(
                f"{one.name}: [{log.min}, {log.end}) confirm {log.confirm} flushed {log.flushed} "
                f"epochs {log.epochs.entries} "
                f"{'master' if one.is_master else machine and (machine.state.name, machine.reason)}"
            )
        return "\n".join(lines)

    def _check(self) -> None:
        """Check the group after all trouble."""
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
    """Play one seed of this suite."""
    return Run(seed, about).play()
