"""Stand-in for the controller: it elects masters and agrees to SyncStateSets.

It elects only members of the agreed set, each time with a new epoch; the set then has only the new
master. It agrees to a set of the present master that names the set's present epoch. A broker that
starts after an unclean end of a life in which it acknowledged bytes that were not durable leaves
the set (KIP-966): it may have lost them. It must never know a log. Brokers reach it when the
simulation lets them: a response may be late or lost.
"""

import random
from dataclasses import dataclass

from turbopump.net.ha.sync_state import Proposal


@dataclass(slots=True, frozen=True)
class Role:
    """State of the controller: the master, its epoch, and the SyncStateSet with its own epoch."""

    master: int
    epoch: int
    members: frozenset[int]
    set_epoch: int


class Oracle:
    """Stand-in for the controller (see the module)."""

    def __init__(self, rng: random.Random, brokers: tuple[int, ...]) -> None:
        self.rng = rng
        self.brokers = brokers
        self.role = Role(0, 0, frozenset(), 0)
        """Master 0: there never was one."""
        self.doubtful: set[int] = set()
        """Members that may have lost acknowledged bytes while no other member was in the set."""
        self.elections = 0

    def candidates(self, up: set[int]) -> list[int]:
        """Brokers that are up and may be elected."""
        members = self.role.members or frozenset(self.brokers)
        return sorted(members & up)

    def elect(self, broker: int) -> None:
        """Make that member the master."""
        role = self.role
        assert not role.members or broker in role.members, "elected from outside the set"
        self.elections += 1
        self.role = Role(broker, role.epoch + 1, frozenset({broker}), role.set_epoch + 1)

    def decide(self, broker: int, epoch: int, proposal: Proposal) -> bool:
        """Whether a proposal is the set now."""
        role = self.role
        if (broker, epoch) != (role.master, role.epoch) or proposal.set_epoch != role.set_epoch:
            return False
        assert broker in proposal.members, "a master proposed a set without itself"
        self.role = Role(broker, epoch, proposal.members, role.set_epoch + 1)
        return True

    def register(self, broker: int, *, lossy: bool) -> None:
        """A process starts on a broker's disk; `lossy`: it may have less than it acknowledged."""
        role = self.role
        if not lossy or not role.members:
            return
        others = role.members - {broker}
        if others:
            # A proposal on its way may include this broker: its set epoch is too old then.
            self.role = Role(role.master, role.epoch, others, role.set_epoch + 1)
        else:
            self.doubtful.add(broker)
