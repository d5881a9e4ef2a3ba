"""A broker group at one moment, and what became different since the last: facts for `top`.

Owns the shapes and the comparison. It must never ask a node or look at a clock. Filled by
group_watch.py, shown by the CLI.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from turbopump.net.client.admin.results import Result

MASTER: Final = "master"
SLAVE: Final = "slave"
ACTING: Final = "acting"
"""A slave that serves consumers while its master is gone."""


@dataclass(frozen=True, slots=True)
class ControllerView(Result):
    """One controller; `error` says why it did not answer, and the rest is what is known anyway.

    `term` is None where it does not tell (RocketMQ's do not). `age_ms` is how long ago it last
    answered: 0 in this sample, None never.
    """

    id: str
    address: str
    is_leader: bool = False
    leader_id: str = ""
    term: int | None = None
    error: str = ""
    age_ms: int | None = 0


@dataclass(frozen=True, slots=True)
class BrokerView(Result):
    """One broker of a group; what it did not tell is None, or empty.

    `broker_id` is the controller's id where there is a controller, else the name server's. `role`
    is what the broker itself takes itself for, `state` how its following goes. `alive` and
    `in_sync` are the controller's words. Offsets are log offsets; `lag` is what a replica has not
    got of the master's log, `lag_ms` for how long. `age_ms` is how long ago the broker last
    answered: 0 in this sample, None never. `acting_since_ms` (epoch ms) is since when it has acted
    for its master.
    """

    broker_id: int
    address: str
    role: str = ""
    alive: bool | None = None
    in_sync: bool | None = None
    epoch: int | None = None
    log_end: int | None = None
    confirm: int | None = None
    lag: int | None = None
    lag_ms: int | None = None
    in_tps: float = 0.0
    out_tps: float = 0.0
    state: str = ""
    error: str = ""
    age_ms: int | None = 0
    acting_since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LagView(Result):
    """A consumer group that is behind in a topic at one broker group: by how many messages, and for
    how long the oldest of them has been there (ms; None if unknown, at least that if not
    `known`). `members` is how many connections it has; 0: it is away."""

    consumer_group: str
    topic: str
    messages: int
    behind_ms: int | None
    known: bool
    members: int


@dataclass(frozen=True, slots=True)
class PopView(Result):
    """A consumer group that pops at one broker group: messages a second over the last minute, and
    those that are neither acknowledged nor revived. `behind_ms` is how late the broker is with what
    it should have revived, of whichever group."""

    consumer_group: str
    popped_tps: float
    acked_tps: float
    in_flight: int
    behind_ms: int


@dataclass(frozen=True, slots=True)
class WaitingView(Result):
    """What waits at the master of a group. `timers` wait for a time, the next of them for
    `next_due_ms` (epoch ms; None: none is known); `backlog` is how many are due within so many
    seconds, each from the one before it on. `halves` are transactions that are open; since the
    master's start `asked` checks were sent, `unasked` found no producer, and `given_up` is how many
    transactions were."""

    timers: int = 0
    next_due_ms: int | None = None
    backlog: dict[str, int] = field(default_factory=dict)
    halves: int = 0
    asked: int = 0
    unasked: int = 0
    given_up: int = 0


@dataclass(frozen=True, slots=True)
class GroupView(Result):
    """One broker group. Without a controller `master_id` is who is master at the name server,
    `epoch` and `set_epoch` are None, and the SyncStateSet is the master's own if it keeps one.

    `age_ms` is how old that is, and with it each broker's `alive` and `in_sync`: 0 if the leader of
    the controllers (without controllers the name server) answered in this sample. `lags` are the
    consumer groups furthest behind, the most messages first, `pops` those that pop, the most in
    flight first, and `waiting` is what waits for a time or an end, as the master tells, or the
    replica that acts for it (of all that RocketMQ's tell the count of timers).
    """

    cluster: str
    broker_name: str
    master_id: int | None
    epoch: int | None
    set_epoch: int | None
    sync_state_set: list[int]
    brokers: list[BrokerView]
    age_ms: int = 0
    lags: list[LagView] = field(default_factory=list)
    pops: list[PopView] = field(default_factory=list)
    waiting: WaitingView = WaitingView()


@dataclass(frozen=True, slots=True)
class Sample(Result):
    """All that was seen at one moment (epoch ms); `errors` is who could not be asked and why."""

    at_ms: int
    controllers: list[ControllerView] = field(default_factory=list)
    groups: list[GroupView] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def nobody_answered(self) -> bool:
        """Whether there is nothing to show."""
        answered = [not each.error for each in self.controllers]
        answered += [not each.error for group in self.groups for each in group.brokers]
        return bool(self.errors) and not any(answered)


@dataclass(frozen=True, slots=True)
class Change(Result):
    """Something that became different: `kind` is leader, election, set, role or answer."""

    at_ms: int
    kind: str
    text: str


def leader_of(controllers: Sequence[ControllerView]) -> ControllerView | None:
    """The controller that leads: the one of the highest term, if several think so."""
    leaders = [each for each in controllers if each.is_leader and not each.error]
    return max(leaders, key=lambda each: each.term or 0, default=None)


def changes(before: Sample, after: Sample) -> list[Change]:
    """What is different in `after`, in the order of its causes."""
    found = [*_of_controllers(before, after)]
    known = {group.broker_name: group for group in before.groups}
    for group in after.groups:
        earlier = known.get(group.broker_name)
        if earlier is None:
            found.append(("answer", f"{group.broker_name}: a new group"))
        else:
            found += _of_group(earlier, group)
    return [Change(after.at_ms, kind, text) for kind, text in found]


def remembered(before: Sample | None, after: Sample) -> Sample:
    """`after`, to be compared with the next sample: a broker that did not give its role has the
    last one it gave, so that an answer which is missing in the midst of an election hides no change
    of roles."""
    if before is None:
        return after
    roles = {
        (group.broker_name, one.broker_id): one.role
        for group in before.groups
        for one in group.brokers
    }
    groups = [
        replace(
            group,
            brokers=[
                one
                if one.role
                else replace(one, role=roles.get((group.broker_name, one.broker_id), ""))
                for one in group.brokers
            ],
        )
        for group in after.groups
    ]
    return replace(after, groups=groups)


def _of_controllers(before: Sample, after: Sample) -> Iterator[tuple[str, str]]:
    was, now = leader_of(before.controllers), leader_of(after.controllers)
    if after.controllers and before.controllers:
        if now is None and was is not None:
            yield "leader", f"controllers: no leader (was {was.id})"
        elif now is not None and (was is None or (was.id, was.term) != (now.id, now.term)):
            term = "" if now.term is None else f" in term {now.term}"
            yield "leader", f"controllers: {now.id} leads{term}{_was(was and was.id)}"
    known = {each.address: each for each in before.controllers}
    for each in after.controllers:
        earlier = known.get(each.address)
        if earlier is not None and earlier.error != each.error:
            yield "answer", f"controller {each.id}: {each.error or 'answers again'}"


def _of_group(before: GroupView, after: GroupView) -> Iterator[tuple[str, str]]:
    name = after.broker_name
    if (before.master_id, before.epoch) != (after.master_id, after.epoch):
        epoch = "" if after.epoch is None else f" in epoch {after.epoch}"
        if after.master_id is None:
            yield "election", f"{name}: no master{epoch}{_was(before.master_id)}"
        else:
            yield "election", f"{name}: {after.master_id} is master{epoch}{_was(before.master_id)}"
    if before.sync_state_set != after.sync_state_set:
        was, now = _set(before.sync_state_set), _set(after.sync_state_set)
        yield "set", f"{name}: SyncStateSet {now} (was {was})"
    known = {broker.broker_id: broker for broker in before.brokers}
    for broker in after.brokers:
        earlier = known.pop(broker.broker_id, None)
        if earlier is None:
            yield "answer", f"{name} {broker.broker_id}: new, at {broker.address}"
        else:
            yield from _of_broker(f"{name} {broker.broker_id}", earlier, broker)
    for number in known:
        yield "answer", f"{name} {number}: gone"


def _of_broker(name: str, before: BrokerView, after: BrokerView) -> Iterator[tuple[str, str]]:
    # Another reason is shown, too: a node that dies while it is asked closes the connection first,
    # and cannot be reached from then on.
    if before.error != after.error:
        yield "answer", f"{name}: {after.error or 'answers again'}"
    if after.role and before.role and after.role != before.role:
        yield "role", f"{name}: now {after.role} (was {before.role})"


def _was(value: object) -> str:
    return "" if value in (None, "") else f" (was {value})"


def _set(members: list[int]) -> str:
    return "{" + ",".join(map(str, members)) + "}"
