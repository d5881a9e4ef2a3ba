"""Invariants of a group whose replicas act (I11, I13, I17).

Offsets of a group only grow here. They never decrease at a broker as long as it lives; a master
that begins to serve has the offsets of each replica that acted and is known to name servers (I13);
in seeds without cuts at most one broker keeps progress at a time, and so gives locks (I17); a
replica's log grows only by its master's bytes (I11).
"""

from typing import TYPE_CHECKING

from tests.sim.broker.remakes import Life

if TYPE_CHECKING:
    from tests.sim.acting.machines import Member
    from tests.sim.acting.operators import Operator
    from tests.sim.acting.suite import Run

Where = tuple[int, int]
"""Queue id and queue offset."""


class Model:
    """Expected state of a group (see the module)."""

    def __init__(self, group: "Run") -> None:
        self.acked = 0
        """Commits that were acknowledged."""
        self.acted = 0
        """Number of commits that an acting replica acknowledged."""
        self.grants = 0
        """Locks that clients were given by a majority."""
        self.ends = 0
        self.returns = 0
        """Number of times that a master began to serve."""
        self._group = group
        self._has: dict[str, dict[int, int]] = {}
        self._lives: dict[str, int] = {}
        self._acts: set[str] = set()
        """Names of the replicas that act."""
        self._served: set[str] = set()
        """Masters that served in this life."""
        self._asked: dict[tuple[Life, int], int] = {}
        """Highest commits of consumers, by life of the topic and their group, and queue."""
        self._dropped: dict[tuple[str, int], int] = {}
        """Addresses and queues: for how many deletions an offset went, or went back."""
        self._drops: dict[tuple[str, int], int] = {}
        """The same: how often it did."""
        self._hopeful: set[str] = set()
        """Masters that did not serve in their last life: replicas wait for them for a while."""

    # Events of brokers

    def begins(self, broker: "Member") -> None:
        """Note the start of a process."""
        address = broker.endpoint.address
        self._has[address] = offsets_of(broker)
        self._lives[address] = self._lives.get(address, 0) + 1

    def ended(self, broker: "Member") -> None:
        """Note the end of a process, which may lose offsets since the last save."""
        self.ends += 1
        self._acts.discard(broker.name)
        (self._hopeful.discard if broker.name in self._served else self._hopeful.add)(broker.name)
        self._served.discard(broker.name)
        self._has.pop(broker.endpoint.address, None)

    def look(self, broker: "Member") -> None:
        """Check a broker after each of its events."""
        context = broker.context
        assert context is not None, "it is up"
        now, before = offsets_of(broker), self._has.get(broker.endpoint.address, {})
        for queue_id, at in before.items():
            end = max(0, context.store.max_queue_offset("T", queue_id))
            known = min(at, end)  # one beyond the log is set back to its end (R14)
            is_kept = now.get(queue_id, -1) >= known or self._may_drop(broker, queue_id)
            assert is_kept, f"{broker.name}: {at} went to {now} (I13)"
        self._has[broker.endpoint.address] = now
        if context.role.may_change_offsets:
            self._check_bounds(broker, now)
        if context.role.is_acting and broker.name not in self._acts:
            self._begins_to_act(broker, now)
        (self._acts.add if context.role.is_acting else self._acts.discard)(broker.name)
        if broker.number:
            self._check_log(broker)
        if not self._group.has_cuts and context.role.may_change_offsets:
            others = [
                one.name
                for one in self._group.brokers
                if one is not broker
                and one.context is not None
                and one.context.role.may_change_offsets
            ]
            assert not others, f"{broker.name} and {others} keep offsets and locks (I17)"

    def _check_log(self, broker: "Member") -> None:
        end = broker.context.store.max_log_offset
        if end > broker.log_end:
            follower = broker.replicating.service.follower
            assert follower is not None and follower.connection is not None, (
                f"{broker.name} writes to its log without a master (I11)"
            )
        broker.log_end = end

    def _begins_to_act(self, broker: "Member", now: dict[int, int]) -> None:
        """Check a replica that begins to act: it has the offsets of the replica that acted before,
        and the topics of its log (R20).
        """
        context = broker.context
        missing = set(context.store.topics()) - context.topics.all_topics().keys()
        missing -= context.store.deletions.in_progress
        assert not missing, f"{broker.name} acts without the topics {missing} (R20)"
        known = broker.replicating.acting.members.members.values()
        for other in [] if self._group.has_cuts else self._listed(broker):
            if other.endpoint.address not in known:
                continue  # it came just now: `quiet` looks after it
            if not self._is_one_life(broker, other):
                continue
            for queue_id, at in offsets_of(other).items():
                assert now.get(queue_id, -1) >= at, (
                    f"{broker.name} acts with {now}, {other.name} has {at} (I13)"
                )

    def _listed(self, broker: "Member") -> list["Member"]:
        """The others that a name server knows."""
        names = [one for one in self._group.names if one.up]
        known = {at for one in names for at in one.routes.member_group("broker").values()}
        return [
            one
            for one in self._group.brokers
            if one is not broker and one.context is not None and one.endpoint.address in known
        ]

    # Lives of the topic and the group

    @property
    def _operator(self) -> "Operator | None":
        """The operator, if it deletes the topic of these consumers."""
        operator = self._group.operator
        return operator if operator is not None and operator.remakes.topic == "T" else None

    def life_at(self, address: str) -> Life:
        """The life of the topic and the group as a broker knows it."""
        broker = next(one for one in self._group.brokers if one.endpoint.address == address)
        operator = self._operator
        if operator is None or broker.context is None:
            return (0, 0)
        return operator.deletion.life_of(broker)

    def _may_drop(self, broker: "Member", queue_id: int) -> bool:
        """An offset goes, or goes back, once for each deletion; where the deletion waits for the
        log of a replica that acts meanwhile, once more."""
        operator = self._operator
        if operator is None:
            return False
        key = broker.endpoint.address, queue_id
        before, self._dropped[key] = self._dropped.get(key, 0), operator.asked
        self._drops[key] = self._drops.get(key, 0) + 1
        is_late = not operator.is_sure or broker in operator.deletion.unaware
        return before < operator.asked or is_late

    def _is_one_life(self, *brokers: "Member") -> bool:
        """Whether offsets there can be compared."""
        operator = self._operator
        if operator is None:
            return True
        return operator.is_sure and len(set(map(operator.deletion.life_of, brokers))) == 1

    def _check_bounds(self, broker: "Member", now: dict[int, int]) -> None:
        """Check that a broker that keeps progress counts no offsets of a former life."""
        operator = self._operator
        if operator is None or not operator.is_sure or operator.wants or self._group.has_cuts:
            return
        life = operator.deletion.life_of(broker)
        for queue_id, at in now.items():
            asked = self._asked.get((life, queue_id), 0)
            assert at <= asked, (
                f"{broker.name} has {at} of queue {queue_id}, of a former life: {asked} was"
                " committed since"
            )

    def serves(self, master: "Member") -> None:
        """Check a master that begins to serve clients."""
        self.returns += 1
        self._served.add(master.name)
        if self._group.has_cuts:
            return
        mine, listed = offsets_of(master), master.replicating.acting.members.members.values()
        for other in self._listed(master):
            if other.endpoint.address not in listed:
                continue  # it came just now: `quiet` looks after it
            assert not other.context.role.is_acting, f"{other.name} acts still"
            if not self._is_one_life(master, other):
                continue
            for queue_id, at in offsets_of(other).items():
                assert mine.get(queue_id, -1) >= at, (
                    f"{master.name} serves with {mine}, {other.name} has {at} (I13)"
                )

    def quiet(self) -> None:
        """Check a group without an event for QUIET_MS.

        Brokers that no name server reports are unknown.
        """
        if not any(one.up for one in self._group.names):
            return
        up = [one for one in self._group.brokers if one.context is not None]
        master, *replicas = self._group.brokers
        if master.context is None:
            acting = [one.name for one in up if one.context.role.is_acting]
            waits = master.name in self._hopeful or any(map(_waits, up))
            assert acting or waits or not up, "the master is gone, and no replica acts"
            return
        if master.context.role.may_change_offsets:
            mine = offsets_of(master)
            for other in set(replicas) & set(up):
                if not self._is_one_life(master, other):
                    continue
                for queue_id, at in offsets_of(other).items():
                    assert mine.get(queue_id, -1) >= at, (
                        f"{master.name} has {mine} after a while, {other.name} has {at} (I13)"
                    )

    # Events of consumers

    def bound(self, address: str, queue_id: int) -> tuple[tuple[int, int], int]:
        """Lower bound of the response to a request that leaves now: the broker's life and its
        offset.
        """
        return self._life(address, queue_id), self._has.get(address, {}).get(queue_id, -1)

    def _life(self, address: str, queue_id: int) -> tuple[int, int]:
        """Processes of a broker, and how often its offset went by a deletion."""
        return self._lives.get(address, 0), self._drops.get((address, queue_id), 0)

    def answered(
        self, address: str, queue_id: int, bound: tuple[tuple[int, int], int], at: int
    ) -> None:
        """Check a response with an offset: in one life of a broker offsets never decrease."""
        life, least = bound
        if self._life(address, queue_id) == life:
            assert at >= least, f"{address}: {least} of queue {queue_id} became {at} (I13)"

    def asks(self, life: Life, queue_id: int, to: int) -> None:
        """Note that a commit leaves."""
        self._asked[life, queue_id] = max(self._asked.get((life, queue_id), 0), to)

    def committed(self, address: str, queue_id: int, to: int) -> None:
        """A commit was acknowledged: it is there."""
        self.acked += 1
        broker = next(one for one in self._group.brokers if one.endpoint.address == address)
        if broker.context is None:
            return
        self.acted += broker.context.role.is_acting

    def settled(self) -> None:
        """Check long after all trouble that all brokers have the same offsets."""
        tables = [offsets_of(one) for one in self._group.brokers]
        assert all(one == tables[0] for one in tables), f"offsets differ: {tables}"
        master, *replicas = self._group.brokers
        operator = self._group.operator
        if operator is not None and operator.is_sure:
            lives = list(map(operator.deletion.life_of, self._group.brokers))
            assert len(set(lives)) == 1, f"not all know of the last deletion: {lives}"
        assert master.context.role.may_change_offsets, (
            f"no master serves: {master.replicating.acting.reason_not_serving}"
        )
        for one in replicas:
            assert not one.context.role.is_acting, f"{one.name} acts beside its master"
            assert one.log_end == master.context.store.max_log_offset, "the logs differ"


def _waits(broker: "Member") -> bool:
    """Whether a replica waits for its master: it was notified of its return, or requests
    it again.
    """
    assert broker.context is not None, "it is up"
    return broker.replicating.acting.acting_state._coming_until_ms > broker.clock.now_ms


def offsets_of(broker: "Member") -> dict[int, int]:
    """Queue id to offset."""
    assert broker.context is not None, "it is up"
    queues = broker.context.offsets.all_offsets().committed.get(("T", "g"), {})
    return {queue_id: int(at) for queue_id, at in queues.items()}
