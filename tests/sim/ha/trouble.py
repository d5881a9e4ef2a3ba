"""Kinds of trouble of a group in one step: processes, disks, connections."""

from tests.sim.ha.broker import Broker
from tests.sim.ha.work import GroupWork

HOUR_MS = 3_600_000


class GroupTrouble(GroupWork):
    """A group in trouble."""

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
        """Let the next sync of a disk fail; sometimes restart a broker with a failed disk, which
        rejects writes until then.
        """
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
        """Damage the epoch lists of a broker that is down and not needed: the others have all
        confirmed bytes.
        """
        broker = self._some()
        members = self.oracle.role.members
        others = members - {broker.number} - self.oracle.doubtful
        if not broker.up and others:
            broker.damage_epochs()
            # It alone is not waited for: that would be an operator's case.
            self.oracle.register(broker.number, lossy=True)
