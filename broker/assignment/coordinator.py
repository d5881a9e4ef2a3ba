"""Topics of groups that this broker coordinates: assignments, computed after changes and cached.

Owns the entries, the decision when one is computed again, the kept assignments, and the lines of
the histories. Routes and other brokers are handled elsewhere.

    inherited --first query--> busy (computed) --> settling --all members hold--> settled
                                 ^ members, queues or configuration changed -'-------'
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypeVar

from turbopump.broker.assignment.handover import QueueHandover
from turbopump.broker.assignment.history import AssignmentChange, AssignmentHistory
from turbopump.broker.assignment.routes import KnownRoute
from turbopump.broker.tables.assignment_store import AssignmentStore, StoredAssignment
from turbopump.broker.tables.consumers import ConsumerGroup
from turbopump.broker.tables.request_modes import GroupMode
from turbopump.engine.deferred import Deferred
from turbopump.net.allocation.shares import (
    AllocationError,
    MachineRooms,
    Shares,
    Sharing,
    sharing_of,
)
from turbopump.net.allocation.strategies import allocate_by_name
from turbopump.net.wire.queues import MessageQueue

T = TypeVar("T")

INLINE: Final = 500
"""Maximum number of members plus queues that are computed on the loop, some 2 ms; more on another
thread."""
REJOIN_MS: Final = 35_000
"""Time in ms after a start in which unconnected members of the last assignment count as members:
clients send a heartbeat every 30 s, and the first ones to return get only their own queues."""
COMPUTE_TRIES_MAX: Final = 3
"""Maximum number of computations for a query if members keep coming and going meanwhile."""

Computed = tuple[Shares, float] | AllocationError
"""(shares, duration of the computation in ms), or the error."""


class RunOnThread(Protocol):
    """A function that runs work on another thread."""

    def __call__(self, work: Callable[[], T]) -> Deferred[T | OSError]:
        """Run `work` on another thread; resolves on the loop thread to its result or its
        OSError."""


@dataclass(frozen=True, slots=True)
class _Basis:
    """The input of an assignment: equal inputs give equal assignments."""

    group_generation: int
    route_version: int
    strategy: str
    mode: GroupMode
    rooms: MachineRooms
    absent: int
    pops: bool


@dataclass(frozen=True, slots=True)
class _Decision:
    """An assignment computed from a basis. `before` are the shares that it replaces; `is_same`:
    they are equal to the new ones."""

    sharing: Sharing
    kept: StoredAssignment
    trigger: str
    before: Shares
    compute_ms: float
    is_same: bool


@dataclass(slots=True)
class CoordinatedTopic:
    """The assignment of a topic's queues to a group; times are ms of the monotonic clock. While it
    is `busy`, another thread uses `handover`.

    `generation` counts assignments of this topic and group over all brokers. `error` is why the
    last computation failed, "" if it did not. `busy` resolves when the work on another thread ends.
    `inherited` was in force before this broker coordinated it; `asked_strategies` are the
    strategies that members ask for, by client id; `departed` is when members left that may be back;
    `not_yet_returned` are members from before a restart that may return until `return_until_ms`.
    `changed_ms` is the time of the first change since the last computation, `used_ms` of the last
    query.
    """

    group: str
    topic: str
    handover: QueueHandover = field(default_factory=QueueHandover)
    sharing: Sharing = field(default_factory=lambda: Sharing((), ()))
    basis: _Basis | None = None
    strategy: str = ""
    generation: int = 0
    error: str = ""
    busy: Deferred[None] | None = None
    inherited: Shares | None = None
    asked_strategies: dict[str, str] = field(default_factory=dict)
    departed: dict[str, int] = field(default_factory=dict)
    not_yet_returned: set[str] = field(default_factory=set)
    return_until_ms: int = 0
    changed_ms: int | None = None
    used_ms: int = 0
    change: AssignmentChange | None = None
    """The last change, until all members hold their shares."""
    bodies: dict[str, bytes] = field(default_factory=dict)
    """Answers to members that hold their share."""


class CoordinatedTopics:
    """The topics of consumer groups that this broker coordinates: computes their assignments after
    changes, and answers members with the queues that they may have. An entry is a CoordinatedTopic;
    times are ms of the monotonic clock. Loop thread only, except for the work on a busy entry."""

    def __init__(
        self,
        kept: AssignmentStore,
        history: AssignmentHistory,
        steady_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        run_on_disk_thread: RunOnThread,
        on_awaited: Callable[[str, Collection[str] | None], None],
    ) -> None:
        """`on_awaited` is called with members of a group that must ask again; None: all of them."""
        self._on_awaited = on_awaited
        self.handover_ms = 0
        """Time in ms after which queues of members that did not ask are given to their new owners
        (rebalanceHandoverMs); set by the caller."""
        self.writes_history = False
        """Whether changes are added to the history; set by the caller."""
        self._kept = kept
        self._history = history
        self._steady_ms = steady_ms
        self._wall_ms = wall_ms
        self._run_on_disk_thread = run_on_disk_thread
        self._started_ms = steady_ms()
        self._groups: dict[str, dict[str, CoordinatedTopic]] = {}
        self._open: dict[tuple[str, str], CoordinatedTopic] = {}

    def run(self, work: Callable[[], T], weight: int) -> Deferred[T]:
        """Run `work` now if `weight` (members plus queues) is at most INLINE, else on another
        thread. Resolves on the loop thread to the result of `work`, which must not raise."""
        if weight <= INLINE:
            return Deferred.resolved(work())
        done: Deferred[T] = Deferred()

        def resolve_result(result: T | OSError) -> None:
            assert not isinstance(result, OSError), "an allocation reads and writes no file"
            done.resolve(result)

        self._run_on_disk_thread(work).then(resolve_result)
        return done

    def of_group(self, group: str) -> list[CoordinatedTopic]:
        """Return the entries of a group, one for each topic that this broker coordinates."""
        return list(self._groups.get(group, {}).values())

    def get(self, group: ConsumerGroup, topic: str, held: Shares | None) -> CoordinatedTopic:
        """Return the entry of a group and topic, made if missing, and count it as used now. `held`
        are the members' present queues as far as known, None: those in the stored assignment; only
        used for a new entry."""
        topics = self._groups.setdefault(group.name, {})
        entry = topics.get(topic)
        if entry is None:
            entry = topics[topic] = CoordinatedTopic(group.name, topic)
            self._inherit_shares(entry, group, held)
        entry.used_ms = self._steady_ms()
        return entry

    def drop_topic(self, group: str, topic: str) -> None:
        """Remove an entry, if there is one: this broker no longer coordinates it. Its change goes
        to the history as not settled; the stored assignment stays."""
        topics = self._groups.get(group, {})
        entry = topics.pop(topic, None)
        if entry is None:
            return
        if not topics:
            del self._groups[group]
        self._open.pop((group, topic), None)
        self._end_change(entry, is_settled=False)

    def bring_up_to_date(
        self,
        entry: CoordinatedTopic,
        group: ConsumerGroup,
        route: KnownRoute,
        mode: GroupMode,
        rooms: MachineRooms,
        pops: bool,
        tries: int = COMPUTE_TRIES_MAX,
    ) -> Deferred[None]:
        """Compute the entry's assignment again if any of these inputs has changed since its last
        computation. Resolves to None when the assignment is of these inputs and the entry is not
        busy; also after `tries` computations if members keep coming and going: then check
        `is_ready`. `rooms`: machine rooms; `pops`: whether members pop."""
        done: Deferred[None] = Deferred()
        absent = len(entry.not_yet_returned)
        basis = _Basis(group.generation, route.version, entry.strategy, mode, rooms, absent, pops)
        if (basis == entry.basis and entry.busy is None) or tries == 0:
            done.resolve(None)
            return done
        if entry.busy is None:
            self._begin_computation(entry, group, route, basis)
        again = partial(self.bring_up_to_date, entry, group, route, mode, rooms, pops, tries - 1)
        if entry.busy is None:
            return again()
        entry.busy.then(lambda _: again().then(done.resolve))
        return done

    def is_ready(self, entry: CoordinatedTopic) -> bool:
        """Whether the entry has an assignment, is not busy, and was not dropped."""
        return entry.basis is not None and entry.busy is None and self._is_current(entry)

    def answer_member(
        self,
        entry: CoordinatedTopic,
        member: str,
        encode: Callable[[Sequence[MessageQueue]], bytes],
    ) -> Deferred[bytes]:
        """Answer a member's query: resolves to the queues that the member may have now, encoded by
        `encode`, maybe from the cache. Queues of the member that are not in its share are free for
        others from this call. The entry must be `is_ready`."""
        body = entry.bodies.get(member)
        if body is not None:
            return Deferred.resolved(body)
        now_ms, settling = self._steady_ms(), entry.handover

        def encode_share() -> tuple[bytes, Collection[str]]:
            queues, awaited = settling.queues_for_member(member, now_ms)
            return encode(queues), awaited

        def on_encoded(result: tuple[bytes, Collection[str]]) -> bytes:
            if result[1]:
                self._on_awaited(entry.group, result[1])
            if settling.holds_all(member):
                entry.bodies[member] = result[0]
            self._end_if_settled(entry)
            return result[0]

        share = settling.shares.get(member, ())
        return self._run_exclusively(entry, encode_share, 2 * len(share)).map(on_encoded)

    def group_changed(self, name: str) -> None:
        """Note for the history that connections of the group `name` came or went now. Nothing is
        computed here."""
        for entry in self._groups.get(name, {}).values():
            if entry.changed_ms is None:
                entry.changed_ms = self._steady_ms()

    def members_changed(self, entry: CoordinatedTopic, group: ConsumerGroup | None) -> None:
        """Note members of the entry that are not in `group` (None: it has no members) as departed.
        Nothing is computed before the next query."""
        now_ms = self._steady_ms()
        present = group.client_ids() if group is not None else set()
        entry.not_yet_returned -= present
        shares = entry.inherited if entry.inherited is not None else entry.handover.shares
        for member in shares.keys() - present - entry.not_yet_returned:
            entry.departed.setdefault(member, now_ms)
            entry.asked_strategies.pop(member, None)

    def tick(self) -> None:
        """Force handovers that are due, and end the wait for members that did not return in time
        after a restart; `on_awaited` is called for members that must ask again."""
        now_ms = self._steady_ms()
        for entry in list(self._open.values()):
            if entry.busy is not None:
                continue
            if entry.handover.is_due(now_ms):
                self._force_handover(entry, now_ms)
            if entry.not_yet_returned and now_ms >= entry.return_until_ms:
                entry.not_yet_returned.clear()
                entry.changed_ms = now_ms
                self._on_awaited(entry.group, None)
            if entry.change is None and not entry.not_yet_returned:
                self._open.pop((entry.group, entry.topic), None)

    def forget_unused(self, unused_ms: int) -> None:
        """Drop entries without a query for `unused_ms` ms; their stored assignments stay."""
        now_ms = self._steady_ms()
        for entry in [one for topics in self._groups.values() for one in topics.values()]:
            if now_ms - entry.used_ms >= unused_ms and entry.busy is None:
                self.drop_topic(entry.group, entry.topic)

    def _is_current(self, entry: CoordinatedTopic) -> bool:
        """Whether the entry is still in the table, so was not dropped."""
        return self._groups.get(entry.group, {}).get(entry.topic) is entry

    def _run_exclusively(
        self, entry: CoordinatedTopic, work: Callable[[], T], weight: int
    ) -> Deferred[T]:
        """Run work on the entry's handover (`handover`), with the entry busy meanwhile; resolves to
        the result of `work`. `weight` as in `run`. The entry must not be busy."""
        assert entry.busy is None, "another thread works on the entry"
        entry.busy = busy = Deferred[None]()
        result: Deferred[T] = Deferred()

        def end_work(value: T) -> None:
            entry.busy = None
            result.resolve(value)
            busy.resolve(None)

        self.run(work, weight).then(end_work)
        return result

    def _inherit_shares(
        self, entry: CoordinatedTopic, group: ConsumerGroup, held: Shares | None
    ) -> None:
        """Set the shares and the generation with which a new entry begins: `held`, or else the
        stored assignment. Shortly after a restart, members in the stored assignment count as
        present until REJOIN_MS."""
        kept = self._kept.get(entry.group, entry.topic)
        if kept is not None:
            entry.generation = kept.generation
        if held is None and kept is not None:
            held = kept.shares
            until_ms = self._started_ms + REJOIN_MS
            if self._steady_ms() < until_ms:
                entry.not_yet_returned = set(held) - group.client_ids()
                entry.return_until_ms = until_ms
                self._open[entry.group, entry.topic] = entry
        entry.inherited = held

    def _force_handover(self, entry: CoordinatedTopic, now_ms: int) -> None:
        """Free the queues of members that did not ask in time, and have the members notified that
        must ask again."""

        def on_forced(awaited: set[str]) -> None:
            if awaited:
                self._on_awaited(entry.group, awaited)

        work = partial(entry.handover.tick, now_ms)
        self._run_exclusively(entry, work, len(entry.sharing.queues)).then(on_forced)

    def _begin_computation(
        self, entry: CoordinatedTopic, group: ConsumerGroup, route: KnownRoute, basis: _Basis
    ) -> None:
        """Begin to compute the assignment of `basis`, maybe on another thread; the entry is busy
        until the result is applied."""
        members, departed = group.client_ids() | entry.not_yet_returned, entry.departed
        inherited, former, settling = entry.inherited, entry.basis, entry.handover
        entry.inherited, entry.departed = None, {}
        now_ms, wall_ms, handover_ms = self._steady_ms(), self._wall_ms(), self.handover_ms
        generation = entry.generation + 1

        def compute_decision() -> _Decision | AllocationError:
            if inherited is not None:
                settling.set_held_shares(inherited)
            for member in departed.keys() | (settling.shares.keys() - members):
                settling.remove_member(member, departed.get(member, now_ms))
            held, fixed = settling.shares, basis.mode.fixed
            sharing = sharing_of(members, route.queues, held, fixed, basis.rooms)
            result = compute_shares(basis.strategy, sharing)
            if isinstance(result, AllocationError):
                return result
            shares, compute_ms = result
            kept = StoredAssignment(
                entry.group, entry.topic, basis.strategy, generation, wall_ms, shares
            )
            kept.row()  # encoded here, not on the loop
            trigger = _reason_of_change(held, former, basis, sharing)
            is_same = shares == held and former is not None
            if basis.pops:
                settling.set_held_shares(shares)
            elif not is_same:
                settling.begin_handover(shares, now_ms, handover_ms)
            return _Decision(sharing, kept, trigger, held, compute_ms, is_same)

        def apply_decision(result: _Decision | AllocationError) -> None:
            if self._is_current(entry):
                for member in departed:
                    entry.bodies.pop(member, None)
                self._apply_result(entry, basis, result)

        weight = len(members) + route.size
        self._run_exclusively(entry, compute_decision, weight).then(apply_decision)

    def _apply_result(
        self, entry: CoordinatedTopic, basis: _Basis, result: _Decision | AllocationError
    ) -> None:
        """Apply the result of a computation: store a changed assignment and open its change for the
        history, or note the error."""
        entry.basis = basis
        if isinstance(result, AllocationError):
            entry.error = str(result)
            return
        entry.error = ""
        now_ms, wall_ms, kept = self._steady_ms(), self._wall_ms(), result.kept
        began_ms = now_ms if entry.changed_ms is None else entry.changed_ms
        entry.changed_ms = None
        if basis.pops or not result.is_same:
            entry.bodies.clear()
        if result.is_same:
            return
        self._end_change(entry, is_settled=False)
        entry.generation = kept.generation
        entry.sharing = result.sharing
        self._kept.put(kept)
        if basis.pops:
            return
        entry.change = AssignmentChange(
            entry.group,
            entry.topic,
            basis.strategy,
            result.trigger,
            result.before,
            kept.shares,
            start_ms=wall_ms - (now_ms - began_ms),
            decided_ms=wall_ms,
            end_ms=0,
            compute_ms=result.compute_ms,
            overlap_ms=0,
            unowned_ms=0,
        )
        self._open[entry.group, entry.topic] = entry
        self._end_if_settled(entry)

    def _end_if_settled(self, entry: CoordinatedTopic) -> None:
        """If all members hold their shares, end the entry's open change in the history."""
        if entry.change is not None and entry.handover.is_settled:
            self._end_change(entry, is_settled=True)

    def _end_change(self, entry: CoordinatedTopic, *, is_settled: bool) -> None:
        """Add the entry's open change, if there is one, to the history; `is_settled`: all members
        hold their shares."""
        change, entry.change = entry.change, None
        if change is None or not self.writes_history:
            return
        settling = entry.handover
        end_ms = self._wall_ms() if is_settled else 0
        self._history.add(change.with_end(end_ms, settling.overlap_ms, settling.unowned_ms))


def compute_shares(strategy: str, sharing: Sharing) -> Computed:
    """Return (shares, duration of the computation in ms), or the AllocationError; nothing is
    raised. May run on any thread."""
    began = time.perf_counter_ns()
    try:
        shares = allocate_by_name(strategy, sharing)
    except AllocationError as error:
        return error
    return shares, (time.perf_counter_ns() - began) / 1e6


def _reason_of_change(
    before: Shares, former: _Basis | None, basis: _Basis, sharing: Sharing
) -> str:
    """Return why an assignment changed, in the words of the histories."""
    had = {queue for share in before.values() for queue in share}
    found = {
        "join": set(sharing.members) - before.keys(),
        "leave": before.keys() - set(sharing.members),
        "queues": had and had != set(sharing.queues),
        "admin": former is not None
        and (former.strategy, former.mode, former.rooms)
        != (basis.strategy, basis.mode, basis.rooms),
    }
    return "+".join(word for word, is_so in found.items() if is_so) or "timer"
