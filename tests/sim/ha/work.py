"""Normal steps of a group's brokers, clients and controller."""

from tests.sim.ha.broker import Broker
from tests.sim.ha.seed import GroupSeed
from tests.sim.ha.settings import Sent
from turbopump.net.ha.acks import ALL

TOPICS = (("A", 0), ("A", 1), ("Longer-topic", 0))
SIZES = (8, 20, 60, 200, 700)
BIG_SIZES = (700, 1500)
SETTLE_STEP_MS = 100


class GroupWork(GroupSeed):
    """A group at work."""

    def _send(self) -> None:
        broker = self._up()
        masters = [one for one in self.brokers if one.is_master and not one.paused]
        if masters and self.rng.random() < 0.95:
            broker = masters[int(self.rng.random() * len(masters))]
        if broker is not None:
            self.send(broker)

    def send(self, broker: Broker, sizes: tuple[int, ...] = SIZES) -> Sent | None:
        """Send one message of a random queue and size."""
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
        """Let all brokers work for a while, so that trouble also meets a settled group: replicas
        catch up, and the set grows.
        """
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
        """Exchange news between a broker and the controller, including brokers that went down."""
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
            return  # a term does not outlive its process
        if role.master:
            broker.take(role)

    def _watch(self) -> None:
        """Elect another master, if possible, when the present one is down or was restarted."""
        role = self.oracle.role
        master = next((one for one in self.brokers if one.number == role.master), None)
        if master is None or not master.up or role.master not in role.members:
            if self.rng.random() < 0.5:
                self._elect()
        elif master.lives != self.elected_life:
            self._elect()

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
        """Separate a broker from the controller, or reconnect it."""
        self.cut_off ^= {self._some().number}

    # Results that the group reports

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
            one.number
            for one in self.brokers
            if one.log.read(sent.start, sent.end, durable=sync) == record
        }
        if sent.need == ALL:
            assert role.members <= have, (
                f"{sent.body[:8]!r}: acknowledged, {sorted(role.members)} need it, "
                f"{sorted(have)} have it"
            )
            assert len(have) >= self.settings.ha.min_in_sync_replicas
        else:
            assert len(have) >= sent.need, f"{len(have)} of {sent.need} copies"

    def confirmed(self, broker: Broker, start: int, stop: int) -> None:
        """Check bytes that a master reports as safe: every broker that may become master has them
        (I6).
        """
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
