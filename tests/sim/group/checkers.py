"""Invariants of a group with controllers, whatever happens. Apart from the harness.

`Journal` reads the log that the controllers agree on with a reader of its own: the resulting
tables, the master of each epoch, and the set in force. docs/INVARIANTS.md lists the names:
Raft-1 to Raft-10 of the quorum, K1 to K7 of the controller's tables, I1 to I20 of the group.
"""

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.sim.ha.checkers import common
from tests.sim.ha.settings import Sent
from turbopump.net.ha.acks import ALL

if TYPE_CHECKING:
    from tests.sim.group.broker import GroupBroker
    from tests.sim.group.suite import Run

ALTER, APPLY_ID, ELECT, READ, CLEAN, ADDRESS = range(1, 7)
BATCH, MARK, BEGIN = 100, 101, 102
"""Our own event kinds: several events at once; a broker that may lack bytes it had acknowledged;
the beginning of a term.
"""


AgreedState = tuple[int | None, int, frozenset[int], int, frozenset[int]]
"""Master, epoch, set, epoch of the set, members eligible beside it."""


@dataclass(slots=True, frozen=True)
class Agreed:
    """State of the group that the controllers agreed on."""

    master: int | None = None
    epoch: int = 0
    members: frozenset[int] = frozenset()
    set_epoch: int = 0
    codes: dict[int, str] = field(default_factory=dict)
    """Check code by id (K4)."""
    unfit: frozenset[int] = frozenset()
    eligible: frozenset[int] = frozenset()
    """Brokers that are eligible beside the members, until the term begins."""

    @property
    def candidates(self) -> frozenset[int]:
        """Brokers that may be elected: they have all acknowledged bytes, unless they lost them
        since.
        """
        return self.members | self.eligible

    @property
    def state(self) -> AgreedState:
        """The state in the form in which tables report it."""
        return self.master, self.epoch, self.members, self.set_epoch, self.eligible


def after(role: Agreed, kind: int, event: dict[str, Any], *, unclean: bool) -> Agreed:
    """State of the tables after an event (reference 2.1); fails if the event is not permitted."""
    if kind == ALTER:
        members = frozenset(map(int, event["newSyncStateSet"]))
        assert role.master is not None, f"the set of no master becomes {sorted(members)}"
        assert role.master in members, f"a set without its master {role.master}: {sorted(members)}"
        assert members <= set(role.codes), f"no broker has all of {sorted(members)}"
        return replace(
            role,
            members=members,
            set_epoch=role.set_epoch + 1,
            unfit=role.unfit - members,
            eligible=role.eligible - members,
        )
    if kind == ELECT:
        epoch = int(event.get("masterEpoch") or role.epoch + 1)
        assert epoch > role.epoch, f"epoch {role.epoch} is followed by {epoch} (K1)"
        if not event.get("newMasterElected"):
            return replace(role, master=None, epoch=epoch)
        master = int(event["newMasterBrokerId"])
        assert unclean or not role.members or master in role.candidates, (
            f"{master} is elected from outside of {sorted(role.candidates)} (K6)"
        )
        members = frozenset({master})
        eligible = role.candidates - members if event.get("onLease") else frozenset()
        return replace(
            role,
            master=master,
            epoch=epoch,
            members=members,
            set_epoch=role.set_epoch + 1,
            unfit=role.unfit - members,
            eligible=eligible,
        )
    if kind == BEGIN:
        assert role.master is not None and int(event["masterEpoch"]) == role.epoch, (
            f"epoch {event['masterEpoch']} begins in {role}"
        )
        return replace(role, eligible=frozenset())
    if kind == APPLY_ID:
        broker_id, code = int(event["newBrokerId"]), str(event["registerCheckCode"])
        known = role.codes.setdefault(broker_id, code)
        assert known == code, f"id {broker_id} is given to {known} and to {code} (K4)"
        return role
    if kind == CLEAN:
        gone = set(map(int, event.get("brokerIdSetToClean") or ()))
        assert gone, "the whole group is cleaned"
        for broker_id in gone:
            role.codes.pop(broker_id, None)
        if role.members & gone:
            role = replace(role, members=role.members - gone, set_epoch=role.set_epoch + 1)
        role = replace(role, eligible=role.eligible - gone)
        if role.master in gone:
            role = replace(role, master=None, epoch=role.epoch + 1)
        return role
    if kind == MARK:
        unfit = role.unfit | {int(event["brokerId"])}
        return replace(role, unfit=unfit, set_epoch=role.set_epoch + 1)
    assert kind in (READ, ADDRESS), f"an event of type {kind}"
    return role


Copy = tuple[Agreed, int, dict[int, frozenset[int]]]
"""Copy of the journal: agreed state, number of entries, and sets by epoch."""


class Journal:
    """Journal of the controllers' agreed log (see the module)."""

    def __init__(self, group: "Run") -> None:
        self._group = group
        self.role = Agreed()
        self.entries: list[bytes] = []
        """Applied entries, by index (Raft-7)."""
        self.after_entry: list[AgreedState] = []
        """State of all tables after an entry, by its index."""
        self.sets: dict[int, frozenset[int]] = {}
        """Members of each set, by the set's epoch."""
        self.leaders: dict[int, str] = {}
        """Leader of each term (Raft-1)."""
        self.masters: dict[int, int] = {}
        """Master of each epoch (I4, K3)."""
        self.elected_ms: dict[int, int] = {}
        self.master_terms: dict[int, tuple[int, int]] = {}
        """Master and begin of each term of a master, by epoch."""
        self.terms: dict[str, tuple[int, str | None]] = {}
        self.doubtful: set[int] = set()
        """Numbers of brokers that may have lost acknowledged bytes, and have not joined a set since
        (KIP-966).
        """
        self.lossy: set[int] = set()
        """Epochs whose master may lack confirmed bytes."""
        self.forgot = False
        """Whether the controllers lost state, and may not know the set in force."""
        self.forgotten: set[int] = set()
        """Epochs that there were before: none may be given again."""
        self._left: dict[int, int] = {}
        """Length of the confirmed log when a broker ceased to be a candidate, by id.

        Later bytes are confirmed without it.
        """
        self._taken_ms: dict[tuple[int, int], int] = {}
        self._registered: dict[str, int] = {}
        self._reigned: set[str] = set()

    @property
    def members(self) -> frozenset[int]:
        """The set in force."""
        return self.role.members

    # Loss of the controllers' state

    def copy(self) -> "Copy":
        """Copy the agreed state."""
        role = replace(self.role, codes=dict(self.role.codes))
        return role, len(self.entries), dict(self.sets)

    def forget(self, copy: "Copy | None") -> None:
        """Reset all controllers to the state of a copy, or to none."""
        role, count, sets = copy or (Agreed(), 0, {})
        self.role = replace(role, codes=dict(role.codes))
        del self.entries[count:], self.after_entry[count:]
        self.sets, self.forgot = dict(sets), True
        self._left.clear()
        self.leaders.clear()
        self.terms.clear()
        self.forgotten |= set(self.masters)

    def knows(self) -> bool:
        """Whether the broker that was agreed on reigns, over the set that was."""
        role = self.role
        broker = self._group.broker_of(role.master)
        if broker is None or not broker.is_master or broker.service.epoch != role.epoch:
            return False
        return broker.counted == (role.members, role.set_epoch)

    # Of controllers

    def leads(self, name: str, term: int) -> None:
        """A controller leads in a term (Raft-1)."""
        leader = self.leaders.setdefault(term, name)
        assert leader == name, f"{leader} and {name} both lead in term {term}"

    def saves(self, name: str, term: int, vote: str | None) -> None:
        """A controller has a term and a vote on its disk: they never go back, and a vote is given
        once (Raft-2, Raft-3)."""
        before, given = self.terms.get(name, (-1, None))
        assert term >= before, f"{name} goes back from term {before} to {term}"
        assert term > before or given in (None, vote), f"{name} votes twice in term {term}"
        self.terms[name] = (term, vote)

    def restores(self, name: str, term: int, vote: str | None) -> None:
        """Check that a controller starts with its last term and vote (Raft-2, Raft-3)."""
        before, given = self.terms.get(name, (term, vote))
        assert term > before or (term == before and given in (None, vote)), (
            f"{name} starts in term {term} with a vote for {vote}, it had {before}, {given}"
        )

    def applies(self, name: str, index: int, body: bytes) -> None:
        """A controller applies an entry (Raft-7)."""
        assert index <= len(self.entries), f"{name} applies {index}, none knows those before"
        if index < len(self.entries):
            assert self.entries[index] == body, f"{name} applies another entry {index}"
            return
        self.entries.append(body)
        if len(body) > 2:
            kind, event = int.from_bytes(body[:2]), json.loads(body[2:])
            if kind == BATCH:
                for one in event["events"]:
                    self._happens(int(one["type"]), one["event"])
            else:
                self._happens(kind, event)
        self.sets[self.role.set_epoch] = self.role.members
        self.after_entry.append(self.role.state)

    def stands(self, name: str, index: int, state: AgreedState) -> None:
        """Check the tables of a controller after an entry, as applied or as loaded from a snapshot
        (Raft-7).
        """
        wanted = self.after_entry[index] if index >= 0 else Agreed().state
        assert state == wanted, f"{name} has {state} after entry {index}, agreed is {wanted}"

    def _happens(self, kind: int, event: dict[str, Any]) -> None:
        before = self.role
        is_free = self._group.plan.unclean or self.forgot
        self.role = after(before, kind, event, unclean=is_free)
        for one in before.candidates - self.role.candidates:
            self._left[one] = len(self._group.history.log)
        if kind == ELECT and self.role.master is not None:
            if self.forgot:
                self._follows_what_was()
            self.masters[self.role.epoch] = self.role.master
            self.elected_ms[self.role.epoch] = self._group.now_ms
            numbers = {self._number(one) for one in before.candidates}
            if self._group.plan.unclean or (numbers and numbers <= self.doubtful):
                self.lossy.add(self.role.epoch)
        if kind == ALTER:
            joined = {self._number(one) for one in self.role.members - before.members}
            for broker in self._group.brokers:
                if broker.number in joined - self.doubtful:
                    self._joins(broker)
            self.doubtful -= joined

    def _follows_what_was(self) -> None:
        """The first master of controllers that forgot: it has all that is confirmed, and an epoch
        of its own."""
        broker = self._group.broker_of(self.role.master)
        assert self.role.epoch not in self.forgotten, f"{self.role} is of an epoch that was"
        if broker is not None and broker.number not in self.doubtful:
            self._joins(broker)

    def _joins(self, broker: "GroupBroker") -> None:
        """Check a broker that joins the set: it has all confirmed bytes (I6), unless its disk lost
        some after its master knew of them.
        """
        group, confirmed, least = self._group, self._group.history.log, broker.log.first
        if group.may_lose or broker.epochs_damaged:
            return
        has = broker.log.read(least, len(confirmed), durable=group.settings.is_sync)
        end = least + common(has, confirmed[least:])
        assert end == len(confirmed), (
            f"{broker.name} joins the set with {least} to {end} of {len(confirmed)} confirmed bytes"
        )

    def _number(self, broker_id: int) -> int:
        for broker in self._group.brokers:
            if broker.controller_id == broker_id:
                return broker.number
        return 0

    # Of brokers

    def due(self, broker: "GroupBroker", epoch: int) -> int | None:
        """Number of confirmed bytes that a master of that epoch has to have; None: all.

        A broker that was paused may begin a term that has ended already: it cannot know this before
        a controller notifies it, and has no lease until then. Such a term needs only the bytes that
        were confirmed while the broker could still be elected.
        """
        one = broker.controller_id
        if epoch >= self.role.epoch or one in self.role.candidates:
            return None
        return self._left.get(one)

    def reigns_now(self, broker: "GroupBroker", epoch: int) -> None:
        """A broker takes itself for the master of an epoch: it was elected (I4, I11)."""
        elected = self.masters.get(epoch)
        assert elected == broker.controller_id, (
            f"{broker.name}, {broker.controller_id}, reigns in epoch {epoch}, elected is {elected}"
        )
        self.master_terms[epoch] = (broker.number, self._group.now_ms)
        self._reigned.add(broker.endpoint.address)

    def took(self, broker: "GroupBroker", sent: Sent) -> None:
        """A master wrote a message."""
        self._taken_ms[sent.epoch, sent.start] = self._group.now_ms

    def acknowledged(self, broker: "GroupBroker", sent: Sent) -> None:
        """Check a message that a master acknowledges: there was no later master when it was taken,
        and all members of the set have it (I1, I5).
        """
        group = self._group
        taken_ms = self._taken_ms.get((sent.epoch, sent.start), group.now_ms)
        for epoch, (_, since_ms) in self.master_terms.items():
            assert epoch <= sent.epoch or since_ms >= taken_ms or group.may_lose, (
                f"{broker.name} acknowledges in epoch {sent.epoch} what it took at {taken_ms}, "
                f"epoch {epoch} reigns since {since_ms}"
            )
        if self.role.epoch == sent.epoch and sent.need == ALL and not group.may_lose:
            self._all_have(broker, sent.start, sent.end, "acknowledges")

    def confirmed(self, broker: "GroupBroker", start: int, stop: int) -> None:
        """A master confirms bytes (I5, I6)."""
        mine = (self.role.master, self.role.epoch) == (broker.controller_id, broker.role.epoch)
        if mine and not self._group.may_lose:
            self._all_have(broker, start, stop, "confirms")

    def _all_have(self, broker: "GroupBroker", start: int, stop: int, what: str) -> None:
        group = self._group
        wanted = broker.log.read(start, stop)
        for other in group.brokers:
            if other.controller_id in self.role.candidates and other is not broker:
                has = other.log.read(start, stop, durable=group.settings.is_sync)
                assert has == wanted, (
                    f"{broker.name} {what} {start} to {stop}, {other.name} of "
                    f"{sorted(self.role.candidates)} has them not"
                )

    def same_set(self, broker: "GroupBroker", members: frozenset[int], set_epoch: int) -> None:
        """Check that the set which a master considers in force was agreed on (R02)."""
        if broker.role.epoch in self.forgotten:
            return
        agreed = self.sets.get(set_epoch)
        assert members == agreed, f"{broker.name} counts on {members}, set {set_epoch} is {agreed}"

    # Of the name server

    def registered(self, address: str, epoch: int) -> None:
        """A master of that epoch registers."""
        self._registered[address] = max(epoch, self._registered.get(address, -1))

    def routed(self, address: str) -> None:
        """Check the master that a client is routed to: it was a master (R29, R32), or is a replica
        that may act for one.
        """
        assert address in self._reigned or self._group.acts, (
            f"a client is led to {address}, which never was a master"
        )

    def shown(self, before: str, now: str) -> None:
        """The name server shows another master than before, which still lives (R28)."""
        old, new = self._registered.get(before, -1), self._registered.get(now, -1)
        assert new >= old, f"the name server forgets {before} of epoch {old} for {now} of {new}"

    # When all is calm

    def check_calm(self) -> None:
        """Check that the present master is the agreed one."""
        group, role = self._group, self.role
        ids = [broker.controller_id for broker in group.brokers]
        assert len(set(ids)) == len(ids), f"brokers share an id: {ids}"
        (master,) = group.masters()
        assert (master.controller_id, master.role.epoch) == (role.master, role.epoch), (
            f"{master.name} reigns in {master.role.epoch}, agreed is {role}"
        )
