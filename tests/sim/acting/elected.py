"""Groups with controllers whose replicas act while no master can be elected (RIP-32 beside RIP-44).

The machines are the machines of the suite `group`. Further invariants: a broker that acts writes
nothing to its log (I11), which the suite's checkers see; it stops acting once an elected master
serves, and that master has every offset of the brokers that it can reach (I13); and without
controllers a living replica acts. The faults do not separate brokers; in one seed of four some do,
and processes stand still: there two may act at a time, and all agree in the end.
"""

from tests.sim.group.stories import Story
from tests.sim.group.suite import Plan, Run
from tests.sim.ha.seed import Played
from turbopump.broker.ha.acting.acting_state import NO_MASTER_MS

KINDS = ("kill", "stop", "storm", "elections", "no controllers")
CUTS = ("partition", "one way", "reset", "pause", "black hole", "old master and replica")
OUTAGES = 3
"""Times that all controllers are gone."""
AWAY_MS = 12_000
ACTS_MS = NO_MASTER_MS + 12_000
"""Time until a replica acts: the name server may take 11 s for a broker that died silently."""


class ActingGroup(Run):
    """Run of a seed: outages of all controllers, and of the master meanwhile or before."""

    acts = True

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self.has_cuts = plan is None and seed % 4 == 3
        kinds = KINDS + CUTS * self.has_cuts
        super().__init__(seed, plan=plan or Plan(kinds, timeout_ms=2_000 + seed % 2 * 1_000))
        self.acted = 0
        """Number of changes of offsets that were seen at a broker that acts."""
        self.seen: dict[str, dict] = {}
        """Offsets of brokers that act."""
        self.begun: set[tuple[str, int]] = set()
        """Reigns that were looked at: brokers and epochs."""

    def play(self) -> Played:
        """Play the whole seed; AssertionError and StoreError are findings."""
        self.begin()
        self.until(self.is_whole, 30_000, "no whole group")
        for _ in range(OUTAGES):
            self._trouble(4_000)
            self._outage()
        self.settle()
        self.check()
        self.played.ends = self.ends
        return self.played

    def _trouble(self, for_ms: int) -> None:
        end_ms = self.now_ms + int(self.rng.random() * for_ms)
        while self.now_ms < end_ms:
            self.nemesis.step(self.now_ms)
            self.step()
        self.nemesis.pause()

    def _outage(self) -> None:
        """End all controllers, and the master with them, or before, or not at all."""
        rng = self.rng
        victims = [*self.controllers]
        if rng.random() < 0.7:
            victims += self.masters()
        rng.shuffle(victims)
        for one in victims:
            if one.up:
                one.crash(power=False)
            self.go(int(rng.random() ** 3 * 2_000))
        self.go(int(rng.random() * AWAY_MS))
        rng.shuffle(victims)
        for one in victims:
            self.start(one)
            self.go(int(rng.random() ** 3 * 2_000))

    def step(self) -> None:
        """Looked at after each."""
        super().step()
        for broker in self.brokers:
            if broker.up and broker.context is not None:
                self._look(broker)

    def _look(self, broker) -> None:
        role = broker.context.role
        term = (broker.name, broker.service.epoch)
        if role.is_acting:
            now = broker.tables.offsets()
            self.acted += now != self.seen.get(broker.name, now)
            self.seen[broker.name] = now
        if self.has_cuts:
            return
        if role.may_change_offsets:
            others = [
                one.name
                for one in self.brokers
                if one is not broker and one.up and one.context.role.may_change_offsets
            ]
            assert not others, f"{broker.name} and {others} keep offsets and locks (I17)"
        if not role.is_master or role.term is None or term in self.begun:
            return
        self.begun.add(term)
        mine, listed = broker.tables.offsets(), broker.replicating.acting.members.members.values()
        for other in self.brokers:
            if other is broker or not other.up or other.paused:
                continue
            known = other.context.role
            assert not known.is_acting, f"{other.name} acts as {broker.name} begins to serve"
            # A broker that came just now is queried while the master serves.
            if other.endpoint.address in listed and not self._is_cut(broker, other):
                for where, at in other.tables.offsets().items():
                    assert mine.get(where, -1) >= at or where in self.clerk.set_back, (
                        f"{broker.name} serves with {mine.get(where)} of {where}, {other.name} has"
                        f" {at} (I13)"
                    )

    def _is_cut(self, one, other) -> bool:
        return bool({(one.name, other.name), (other.name, one.name)} & self.net.blocked)


class ActingStory(Story, ActingGroup):
    """The same, logged step by step."""

    def __init__(self, seed: int = 1, **plan: object) -> None:
        ActingGroup.__init__(self, seed, Plan((), **plan))


def run_seed(seed: int) -> Played:
    """Play one seed of this suite."""
    return ActingGroup(seed).play()
