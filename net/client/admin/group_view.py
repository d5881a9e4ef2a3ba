"""A broker group at one moment, and its differences from the last sample: facts for `top`.

Owns the shapes and the comparison. It must never ask a node or look at a clock.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from turbopump.net.client.admin.results import Result

MASTER: Final = "master"
"""Role of a broker that accepts messages."""
SLAVE: Final = "slave"
"""Role of a replica of a master."""
ACTING: Final = "acting"
"""Role of a slave that serves consumers while its master is gone."""


@dataclass(frozen=True, slots=True)
class ControllerView(Result):
    """A controller; `error` is the reason if it did not answer, and the other fields are the last
    known.

    `leader_id` is the id of the leader that it knows, or empty. `term` is None if the controller
    does not report it (RocketMQ's do not). `age_ms` is the time since its last answer: 0 in this
    sample, None never.
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
    """A broker of a group; fields that it did not report are None, or empty.

    `broker_id` is the controller's id if there is a controller, else the name server's. `role` is
    the broker's own view, `state` the state of its replication. `alive` and `in_sync` come from the
    controller. `log_end` and `confirm` are log offsets: the end of its log, and of the part that
    counts as replicated. `lag` is the number of bytes of the master's log that a replica lacks,
    `lag_ms` the time since it had all. Rates are messages a second over the last 10 s. `error` is
    the reason if it did not answer. `age_ms` is the time since the broker's last answer: 0 in this
    sample, None never. `acting_since_ms` (epoch ms) is the time at which it began to act for its
    master.
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
    """A consumer group's lag in a topic of a broker group: the number of messages, and the age of
    the oldest (ms; None if unknown, a lower bound if not `known`). `members` is the number of
    connections: 0 if the consumer group is offline."""

    consumer_group: str
    topic: str
    messages: int
    behind_ms: int | None
    known: bool
    members: int


@dataclass(frozen=True, slots=True)
class PopView(Result):
    """Pop figures of a consumer group at a broker group: messages a second over the last minute,
    and the number of messages that are neither acknowledged nor revived. `behind_ms` is the delay
    of the broker's revivals, over all groups."""

    consumer_group: str
    popped_tps: float
    acked_tps: float
    in_flight: int
    behind_ms: int


@dataclass(frozen=True, slots=True)
class WaitingView(Result):
    """Timers and transactions that wait at the master of a group.

    The next of `timers` is due at `next_due_ms` (epoch ms; None: not known). `backlog` maps a span,
    such as "60 s", to the number of timers due within it but not within a shorter span. `halves`
    are open transactions; since the master's start it sent `asked` checks, found no producer for
    `unasked`, and gave up `given_up` transactions.
    """

    timers: int = 0
    next_due_ms: int | None = None
    backlog: dict[str, int] = field(default_factory=dict)
    halves: int = 0
    asked: int = 0
    unasked: int = 0
    given_up: int = 0


@dataclass(frozen=True, slots=True)
class GroupView(Result):
    """A broker group; `brokers` are sorted by id, `sync_state_set` has sorted broker ids.

    `master_id` is None without a master. Without a controller it is the name server's master,
    `epoch` and `set_epoch` are None, and the SyncStateSet is the master's own if it keeps one.

    `age_ms` is the age of these facts, and of each broker's `alive` and `in_sync`: 0 if the leader
    of the controllers (without controllers the name server) answered in this sample. `lags` are the
    consumer groups with the largest lags, sorted by messages, `pops` the groups that pop, sorted by
    messages in flight. `waiting` comes from the master or the replica that acts for it; RocketMQ's
    brokers report only the number of timers.
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
    """All facts of the moment `at_ms` (epoch ms), controllers sorted by id, groups by name;
    `errors` lists the nodes that did not answer, with reasons."""

    at_ms: int
    controllers: list[ControllerView] = field(default_factory=list)
    groups: list[GroupView] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def nobody_answered(self) -> bool:
        """Whether `errors` is not empty and no controller or broker answered, so that there is
        nothing to show."""
        answered = [not each.error for each in self.controllers]
        answered += [not each.error for group in self.groups for each in group.brokers]
        return bool(self.errors) and not any(answered)


@dataclass(frozen=True, slots=True)
class Change(Result):
    """A difference between samples, seen at `at_ms` (epoch ms); `text` is an English sentence.

    `kind`: leader (of the controllers), election (master or epoch of a group), set (SyncStateSet),
    role (of a broker), answer (a node appeared, vanished, or its error changed).
    """

    at_ms: int
    kind: str
    text: str


def leader_of(controllers: Sequence[ControllerView]) -> ControllerView | None:
    """The leading controller among those without an error: the highest term wins if several claim
    to lead; None if no controller leads."""
    leaders = [each for each in controllers if each.is_leader and not each.error]
    return max(leaders, key=lambda each: each.term or 0, default=None)


def find_changes(before: Sample, after: Sample) -> list[Change]:
    """The differences of `after` from `before`: of the controllers, then of each group (master,
    SyncStateSet, brokers). A group that vanished is no difference."""
    found = [*_controller_changes(before, after)]
    known = {group.broker_name: group for group in before.groups}
    for group in after.groups:
        earlier = known.get(group.broker_name)
        if earlier is None:
            found.append(("answer", f"{group.broker_name}: a new group"))
        else:
            found += _group_changes(earlier, group)
    return [Change(after.at_ms, kind, text) for kind, text in found]


def with_known_roles(before: Sample | None, after: Sample) -> Sample:
    """`after`, prepared for the comparison with the next sample: a broker without a role gets its
    last known role, so that a missing answer during an election hides no change of roles. `before`
    is the earlier sample, itself prepared; None at first. Neither sample is changed."""
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


def _controller_changes(before: Sample, after: Sample) -> Iterator[tuple[str, str]]:
    """Yield (`kind`, `text`) of a Change for each difference of the controllers."""
    was, now = leader_of(before.controllers), leader_of(after.controllers)
    if after.controllers and before.controllers:
        if now is None and was is not None:
            yield "leader", f"controllers: no leader (was {was.id})"
        elif now is not None and (was is None or (was.id, was.term) != (now.id, now.term)):
            term = "" if now.term is None else f" in term {now.term}"
            yield "leader", f"controllers: {now.id} leads{term}{_was_text(was and was.id)}"
    known = {each.address: each for each in before.controllers}
    for each in after.controllers:
        earlier = known.get(each.address)
        if earlier is not None and earlier.error != each.error:
            yield "answer", f"controller {each.id}: {each.error or 'answers again'}"


def _group_changes(before: GroupView, after: GroupView) -> Iterator[tuple[str, str]]:
    """Yield (`kind`, `text`) of a Change for each difference of a group."""
    name = after.broker_name
    if (before.master_id, before.epoch) != (after.master_id, after.epoch):
        epoch = "" if after.epoch is None else f" in epoch {after.epoch}"
        if after.master_id is None:
            yield "election", f"{name}: no master{epoch}{_was_text(before.master_id)}"
        else:
            yield (
                "election",
                f"{name}: {after.master_id} is master{epoch}{_was_text(before.master_id)}",
            )
    if before.sync_state_set != after.sync_state_set:
        was, now = _set_text(before.sync_state_set), _set_text(after.sync_state_set)
        yield "set", f"{name}: SyncStateSet {now} (was {was})"
    known = {broker.broker_id: broker for broker in before.brokers}
    for broker in after.brokers:
        earlier = known.pop(broker.broker_id, None)
        if earlier is None:
            yield "answer", f"{name} {broker.broker_id}: new, at {broker.address}"
        else:
            yield from _broker_changes(f"{name} {broker.broker_id}", earlier, broker)
    for number in known:
        yield "answer", f"{name} {number}: gone"


def _broker_changes(name: str, before: BrokerView, after: BrokerView) -> Iterator[tuple[str, str]]:
    """Yield (`kind`, `text`) of a Change for each difference of a broker; `name` begins the
    texts."""
    # A new error text is a change, too: a node that dies during a request first closes the
    # connection, and cannot be reached in later samples.
    if before.error != after.error:
        yield "answer", f"{name}: {after.error or 'answers again'}"
    if after.role and before.role and after.role != before.role:
        yield "role", f"{name}: now {after.role} (was {before.role})"


def _was_text(value: object) -> str:
    """Return ` (was VALUE)`, or "" without a value."""
    return "" if value in (None, "") else f" (was {value})"


def _set_text(members: list[int]) -> str:
    """Return broker ids as `{1,2,3}`."""
    return "{" + ",".join(map(str, members)) + "}"
