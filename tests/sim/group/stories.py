"""Scripted stories of a group: a group in good state, and methods that make and end trouble."""

from itertools import product

from tests.sim.group.broker import GroupBroker
from tests.sim.group.suite import BROKERS, SETTLE_MS, Plan, Run
from turbopump.broker.replication import Stage


class Story(Run):
    """A group in which nothing goes wrong by itself."""

    def __init__(self, seed: int = 1, **plan: object) -> None:
        super().__init__(seed, plan=Plan((), **plan))

    @classmethod
    def whole(cls, seed: int = 1, **plan: object) -> "Story":
        """Group in which all brokers are in the set, and messages are written."""
        story = cls(seed, **plan)
        story.begin()
        story.until(story.is_whole, SETTLE_MS, "not whole")
        story.writes()
        return story

    # Names

    @property
    def master(self) -> GroupBroker:
        """Master of the last election."""
        return self.broker(self.journal.role.master)

    @property
    def replicas(self) -> list[GroupBroker]:
        """Brokers that are not the master."""
        return [one for one in self.brokers if one is not self.master]

    @property
    def leader(self):
        """The controller that leads."""
        return next(one for one in self.controllers if one.is_leader)

    def broker(self, broker_id: int) -> GroupBroker:
        """Broker by the id that controllers gave it."""
        return next(one for one in self.brokers if one.controller_id == broker_id)

    def is_known(self, broker: GroupBroker) -> bool:
        """Whether this life of a broker has registered."""
        member = broker.member
        return member is not None and member.stage is Stage.MEMBER

    # Trouble

    def apart(self, left, right) -> None:
        """Block the network between two sides."""
        one, other = [{each.name for each in side} for side in (left, right)]
        self.net.blocked |= set(product(one, other)) | set(product(other, one))

    def rest(self, *left) -> list:
        """Machines except the given ones."""
        return [each for each in self.machines if each not in left]

    # Progress

    def writes(self, within_ms: int = 10_000) -> int:
        """Wait until a message that is sent after this call is acknowledged."""
        count = self.played.acked
        return self.until(lambda: self.played.acked > count + 1, within_ms, "no write")

    def elected(self, epoch: int, within_ms: int = 20_000) -> int:
        """Wait until there is a master of a later epoch."""

        def is_there() -> bool:
            role = self.journal.role
            return role.epoch > epoch and role.master is not None

        return self.until(is_there, within_ms, "no broker is elected")

    def end(self) -> None:
        """End all trouble and check the group."""
        self.settle()
        self.check()

    def alone(self, number: int = BROKERS) -> None:
        """Wait until the set has `number` brokers."""
        what = f"not {number} in the set"
        self.until(lambda: len(self.journal.members) == number, SETTLE_MS, what)
