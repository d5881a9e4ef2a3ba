"""A seed of the suite of escapes (RIP-32, enableRemoteEscape): the group of the suite of acting
replicas, masters of other groups, and a producer of delayed messages and timers.

An acknowledged message is delivered at least once, by any master, and never before its time (I14);
a replica writes nothing to its log (I11); a master that begins to serve has the progress of each
replica that name servers know (I13). Brokers and other masters are killed and restarted.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.sim.acting import suite as acting
from tests.sim.acting.machines import TOPIC
from tests.sim.acting.model import Model
from tests.sim.escapes.machines import EscapingMember, OtherMaster, Sender
from turbopump.broker.context import BrokerContext
from turbopump.engine.types import QueueOffset

if TYPE_CHECKING:
    from tests.sim.acting.machines import Member
SAVED_MS = 4_000
"""Time before the end of a process after which deliveries are surely saved, in ms."""


@dataclass
class Reminded:
    """Sent messages with their due times, and the acknowledged ones."""

    due_ms: dict[bytes, int] = field(default_factory=dict)
    safe: set[bytes] = field(default_factory=set)
    escaped: int = 0
    """Deliveries at other masters."""
    again: int = 0
    """Deliveries beyond the first one of each."""

    @property
    def count(self) -> int:
        """Number of sent messages."""
        return len(self.due_ms)

    def sent(self, body: bytes, due_ms: int) -> None:
        """Note a message that may be stored."""
        self.due_ms[body] = due_ms

    def acked(self, body: bytes) -> None:
        """Note that a message is stored."""
        self.safe.add(body)

    def leave(self) -> None:
        """Drop all expectations: the topic is about to be deleted."""
        self.safe.clear()


class EscapeModel(Model):
    """The model of acting replicas, with the progress of deliveries."""

    def __init__(self, group: "Run") -> None:
        super().__init__(group)
        self._had: dict[str, list[tuple[int, dict[int, QueueOffset]]]] = {}
        """Progress of acting replicas, with the time of each change."""

    def look(self, broker: "Member") -> None:
        super().look(broker)
        if broker.context.role.is_acting:
            had = self._had.setdefault(broker.name, [])
            progress = broker.context.delay.copy_progress()
            if not had or had[-1][1] != progress:
                had.append((broker.clock.now_ms, progress))
        elif broker.name in self._had:
            # A master that serves already does not request this: a lower progress counts
            # afterwards.
            last, now = self._had[broker.name][-1][1], broker.context.delay.copy_progress()
            if any(now.get(level, 0) < at for level, at in last.items()):
                del self._had[broker.name]

    def begins(self, broker: "Member") -> None:
        """Check that a broker starts with its progress, except for the last seconds."""
        super().begins(broker)
        had = self._had.pop(broker.name, [])
        progress, end_ms = broker.context.delay.copy_progress(), had[-1][0] if had else 0
        for at_ms, before in had:
            for level, at in before.items() if at_ms < end_ms - SAVED_MS else ():
                assert progress.get(level, 0) >= at, (
                    f"{broker.name} had delivered {at} of level {level} and begins at {progress}"
                )

    def serves(self, master: "Member") -> None:
        super().serves(master)
        if self._group.has_cuts:
            return
        mine, known = master.context, master.replicating.acting.members.members.values()
        for other in self._listed(master):
            theirs = other.context
            if other.endpoint.address not in known:
                continue  # it came just now: its deliveries may be repeated
            if theirs.store.max_log_offset > mine.store.max_log_offset:
                continue
            progress = mine.delay.copy_progress()
            for level, at in theirs.delay.copy_progress().items():
                assert progress.get(level, 0) >= at, (
                    f"{master.name} serves with {progress}, {other.name} has delivered"
                    f" {at} of level {level} (I13)"
                )
            read_ms = (mine.timers._newer or mine.timers.durable.current).read_ms
            assert read_ms >= theirs.timers.durable.current.read_ms, (
                f"{master.name} serves without the timers that {other.name} delivered (I13)"
            )


class Run(acting.Run):
    """Run of a seed."""

    member_class: type[EscapingMember] = EscapingMember
    other_class: type[OtherMaster] = OtherMaster

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.is_sending = True
        self.reminded = Reminded()
        self.model = EscapeModel(self)
        count = len(self.brokers)
        self.brokers = [self.member_class(self, number) for number in range(count)]
        others = self.rng.choice((1, 2))
        self.others = [self.other_class(self, f"other-{n}") for n in range(others)]
        self.sender = Sender(self, "sender")

    @property
    def machines(self) -> list:
        """All machines, with the other masters and the sender."""
        return [*super().machines, *self.others, self.sender]

    def play(self) -> Model:
        """Play the whole seed; AssertionError is a finding."""
        model = super().play()
        self._check()
        model.acked += len(self.reminded.safe)
        return model

    def masters(self) -> list:
        return [*super().masters(), *self.others]

    def clients(self) -> list:
        return [*super().clients(), self.sender]

    def leaves(self, *, is_gone: bool) -> None:
        super().leaves(is_gone=is_gone)
        if is_gone:
            self.reminded.leave()

    def is_unsure(self) -> None:
        super().is_unsure()
        self.reminded.leave()

    def _heal(self) -> None:
        super()._heal()
        self.is_sending = False

    def _trouble(self) -> None:
        if self.rng.random() < 0.15:
            self._end(self.others[int(self.rng.random() * len(self.others))], 3_000)
        else:
            super()._trouble()

    def _check(self) -> None:
        found: dict[bytes, int] = {}
        contexts = [self.brokers[0].context, *(one.context for one in self.others)]
        for number, context in enumerate(contexts):
            for body, stored_ms in _delivered(context):
                due_ms = self.reminded.due_ms.get(body)
                if due_ms is None:
                    continue
                assert stored_ms >= due_ms, f"{body!r} comes {due_ms - stored_ms} ms early (I14)"
                found[body] = found.get(body, 0) + 1
                self.reminded.escaped += number > 0
        lost = sorted(self.reminded.safe - found.keys())
        assert not lost, f"{len(lost)} of {len(self.reminded.safe)} never came: {lost[:9]} (I14)"
        self.reminded.again = sum(found.values()) - len(found)


def _delivered(context: BrokerContext) -> list[tuple[bytes, int]]:
    """Bodies and store times of the messages that consumers can read."""
    store, found = context.store, []
    for queue_id in store.queue_ids(TOPIC):
        for unit in store.units(TOPIC, queue_id, QueueOffset(0), 100_000):
            record = store.record(unit.log_offset)
            assert record is not None, f"no record at {unit.log_offset}"
            found.append((bytes(record.body), record.store_timestamp_ms))
    return found


def run_seed(seed: int) -> tuple[Model, Reminded]:
    """Play one seed of this suite."""
    run = Run(seed)
    return run.play(), run.reminded
