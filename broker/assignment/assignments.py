"""Answers to members of a group that ask for their queues, and the broker that decides them.

Owns the path of a query: the topic's route, the broker that coordinates the group, forwarding to
that broker, and the answer if it is this one (RocketMQ: QueryAssignmentProcessor). It opens no
connection and reads no clock: it is given functions for both.

    one view     the coordinator is the broker with the smallest name and id on the topic's route;
                 other brokers forward queries, with their copy of the last assignment
    one owner    handover.py: a queue goes to another member when its former one was notified
    two modes    BROKER: as above. CLIENT: the result that each member would compute itself, from
                 the members known here; a coordinator's mode is that of all brokers
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from turbopump.broker.assignment.coordinator import (
    Computed,
    CoordinatedTopic,
    CoordinatedTopics,
    RunOnThread,
    compute_shares,
)
from turbopump.broker.assignment.history import AssignmentHistory
from turbopump.broker.assignment.routes import GroupCoordinator, KnownRoute, TopicRoutes
from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.tables.assignment_store import AssignmentStore, StoredAssignment
from turbopump.broker.tables.consumers import ConsumerGroup, ConsumerTable, notify_changed
from turbopump.broker.tables.request_modes import BY_CLIENT, POP, PULL, GroupMode, RequestModes
from turbopump.engine.deferred import Deferred
from turbopump.net.allocation.pop_shares import pop_share
from turbopump.net.allocation.shares import AllocationError, Shares, sharing_of
from turbopump.net.allocation.strategies import AVG, CONFIG, STICKY, is_strategy
from turbopump.net.transport.calls import Call
from turbopump.net.wire.bodies import BadBody, as_object, encode_json, load_object
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.names import RETRY_PREFIX
from turbopump.net.wire.queues import MessageQueue

A = TypeVar("A")
B = TypeVar("B")

FORWARD_TIMEOUT_MS: Final = 800
"""Time-out in ms of a forwarded query: a Java client waits 1 s for its first answer."""
UNUSED_MS: Final = 600_000
"""Time in ms without a query after which an assignment is removed from memory; its copy on disk
stays."""
CACHED_RESPONSES_MAX: Final = 1_000
"""Maximum number of cached assignments in mode CLIENT, each of a topic to a group."""
KEPT_MAX: Final = 64 << 10
"""Maximum size in bytes of an answer with a stored assignment; a larger one is sent without it."""
TRUSTED_GENERATION: Final = 2**53
"""Maximum generation that another broker may name: it only counts assignments."""

FORWARDED, GENERATION = "forwardedBy", "keptGeneration"
"""Fields of a forwarded query: the forwarding broker, and the generation of its copy."""
WANTS_KEPT, HAS_KEPT = "wantsKept", "hasKept"
"""Fields of the answer to a forwarded query, "true" if set: the coordinator wants the copy, or its
body contains a newer one."""
KEPT: Final = "kept"
"""Member of the body of a forwarded query or its answer: the stored assignment, as of
StoredAssignment.to_json."""


@dataclass(frozen=True, slots=True)
class AssignmentQuery:
    """A member's query (400). `strategy` is the name that the member asks for, "" for AVG; the
    configuration may name another. `body` is that of its request. `forwarded_by` is the name of the
    broker that forwarded it, "" for the member's own; `kept` and `generation` describe that
    broker's copy of the assignment, None and -1 without a copy."""

    group: str
    topic: str
    client_id: str
    strategy: str
    is_broadcast: bool
    body: bytes
    forwarded_by: str = ""
    generation: int = -1
    kept: StoredAssignment | None = None


@dataclass(frozen=True, slots=True)
class AssignmentResponse:
    """The answer to a query, to be sent as it is; `fields` are the fields of its header. `code`
    differs from SUCCESS only for a broker that forwarded the query to a broker that is not the
    coordinator; `remark` is the reason why the body has no queues."""

    body: bytes
    fields: dict[str, str] = field(default_factory=dict)
    code: int = ResponseCode.SUCCESS
    remark: str | None = None


def encode_assignment(queues: Sequence[MessageQueue] | None, mode: str) -> bytes:
    """Encode the body of an answer to 400, with queues in the given order, all of `mode` (PULL or
    POP); None: the member keeps its queues (protocol/body/QueryAssignmentResponseBody)."""
    if queues is None:
        return b"{}"
    beans = [{"messageQueue": queue.to_json(), "mode": mode} for queue in queues]
    return encode_json({"messageQueueAssignments": beans})


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentDeps:
    """The dependencies of Assignments. `call` sends requests to other nodes, `coordinator` returns
    this broker in the form of a coordinator, `steady_ms` returns ms of the monotonic clock and
    `wall_ms` epoch ms, `run_on_disk_thread` runs work on a disk thread, `call_soon` on the loop
    after its turn."""

    config: BrokerConfig
    consumers: ConsumerTable
    modes: RequestModes
    kept: AssignmentStore
    routes: TopicRoutes
    call: Call
    coordinator: Callable[[], GroupCoordinator]
    steady_ms: Callable[[], int]
    wall_ms: Callable[[], int]
    run_on_disk_thread: RunOnThread
    call_soon: Callable[[Callable[[], None]], None]


class Assignments:
    """Answers members of consumer groups that ask for their queues (QUERY_ASSIGNMENT, 400): as the
    coordinator of the group, or by forwarding the query to the coordinator. Notifies members of
    changes. Loop thread only. Sets `on_change` of the routes."""

    def __init__(self, deps: AssignmentDeps) -> None:
        self.history = AssignmentHistory()
        """Changes of assignments that wait to be written."""
        self.kept = deps.kept
        """The stored assignments of all groups and topics."""
        self._config = deps.config
        self._consumers = deps.consumers
        self._modes = deps.modes
        self._routes = deps.routes
        self._call = deps.call
        self._me = deps.coordinator
        self._call_soon = deps.call_soon
        self._topics = CoordinatedTopics(
            deps.kept,
            self.history,
            deps.steady_ms,
            deps.wall_ms,
            deps.run_on_disk_thread,
            self._schedule_notices,
        )
        self._alike: dict[tuple[str, str], tuple[tuple[int, int, str], Shares]] = {}
        self._notices: dict[str, set[str]] = {}
        self._generations: dict[str, int] = {}
        self._changed: dict[str, None] = {}
        deps.routes.on_change = self._on_route_changed
        self.reconfigure()

    def reconfigure(self) -> None:
        """Apply the configuration object's present values: members of the groups are notified to
        ask again, because all assignments may change."""
        config, topics = self._config, self._topics
        topics.handover_ms = config.rebalance_handover_ms
        topics.writes_history = config.rebalance_history_bytes > 0
        for group in list(self._generations):
            self._consumers.mark_changed(group)

    def answer_query(self, query: AssignmentQuery) -> Deferred[AssignmentResponse]:
        """Resolve, within about a second, to the answer for the member that sent `query`: its
        queues, or a success without queues and with a reason, after which the member keeps its
        queues and asks again. While name servers hang, it may take longer if members ask for over
        32 new topics at once. The answer to a broker that wrongly forwarded the query is
        SYSTEM_ERROR."""
        return _chain_deferred(
            self._routes.get(query.topic), partial(self._answer_with_route, query)
        )

    def group_changed(self, name: str) -> None:
        """Note that members of a group may have come or gone; call it after each change of the
        consumer table. The next `tick` compares the assignments."""
        if name not in self._generations:
            return
        group = self._consumers.group(name)
        generation = group.generation if group is not None else 0
        if generation == self._generations[name]:
            return
        self._generations[name] = generation
        # The members are compared at the next tick, once for all that reconnect in the meantime.
        self._changed[name] = None
        self._topics.group_changed(name)

    def topics_changed(self, names: Sequence[str]) -> None:
        """Note that the number of queues of these topics on this broker has changed, or that they
        were deleted: their routes are requested again soon."""
        self._routes.refresh_changed(names)

    def tick(self) -> None:
        """Do periodic work, every 100 ms: compare changed groups, request due routes, force due
        handovers, and notify members that must ask again."""
        changed, self._changed = self._changed, {}
        for name in changed:
            group = self._consumers.group(name)
            for entry in self._topics.of_group(name):
                self._topics.members_changed(entry, group)
            if group is None:
                self._generations.pop(name, None)
        self._routes.tick()
        self._topics.tick()
        self._send_notices()

    def forget_unused(self) -> None:
        """Remove from memory the assignments without a query for UNUSED_MS; called every minute."""
        self._topics.forget_unused(UNUSED_MS)
        for name in [name for name in self._generations if self._consumers.group(name) is None]:
            del self._generations[name]

    # The path of a query

    def _answer_with_route(
        self, query: AssignmentQuery, route: KnownRoute | None
    ) -> Deferred[AssignmentResponse]:
        """Answer a query once the topic's route is known (None: the topic has no route): here if
        this broker is the group's coordinator, else through the coordinator."""
        mode = self._modes.get(query.topic, query.group)
        if route is None:
            return Deferred.resolved(_no_queues(f"topic {query.topic} has no route"))
        kind = self._receive_mode_of(query.topic, mode)
        if query.is_broadcast or not self._config.server_load_balancer_enable:
            return self._encode_answer(lambda: route.queues, kind, route.size)
        who, me = route.coordinator(), self._me()
        if who is not None and who.address != me.address:
            self._topics.drop_topic(query.group, query.topic)
            if query.forwarded_by:
                return Deferred.resolved(_refuse_forwarded(query, who, me))
            return self._forward_query(query, route, who)
        group = self._consumers.group(query.group)
        if group is None:
            return Deferred.resolved(_no_queues(f"no consumer of {query.group} is connected"))
        if (
            query.generation > self._stored_generation(query)
            and query.generation <= TRUSTED_GENERATION
        ):
            if query.kept is None:
                return Deferred.resolved(AssignmentResponse(b"{}", {WANTS_KEPT: "true"}))
            self._topics.drop_topic(query.group, query.topic)
            self.kept.adopt_rows({query.kept.name: query.kept})
        if self._is_by_client(mode):
            return self._answer_in_client_mode(query, route, group, kind)
        return self._coordinate_topic(query, route, group, mode)

    def _stored_generation(self, query: AssignmentQuery) -> int:
        """The generation of the assignment stored here for the query's group and topic; -1 without
        a stored assignment."""
        kept = self.kept.get(query.group, query.topic)
        return -1 if kept is None else kept.generation

    def _receive_mode_of(self, topic: str, mode: GroupMode) -> str:
        """PULL or POP: the way in which a group with these settings receives the topic; if they do
        not set it, the configuration's default (retry topics: PULL)."""
        if mode.mode:
            return mode.mode
        return PULL if topic.startswith(RETRY_PREFIX) else self._config.default_message_request_mode

    def _is_by_client(self, mode: GroupMode) -> bool:
        """Whether the group's rebalance mode is CLIENT: each member gets the share that it would
        compute itself."""
        return (mode.rebalance or self._config.rebalance_mode) == BY_CLIENT

    # Another broker decides

    def _forward_query(
        self,
        query: AssignmentQuery,
        route: KnownRoute,
        who: GroupCoordinator,
        kept: StoredAssignment | None = None,
    ) -> Deferred[AssignmentResponse]:
        """Forward the query to the coordinator `who`, with the assignment stored here if `kept` is
        given; resolves to the answer for the member."""
        fields = {
            FORWARDED: self._me().broker_name,
            GENERATION: str(self._stored_generation(query)),
        }
        body = query.body
        if kept is not None:
            body = encode_json({**load_object(body), KEPT: kept.to_json()})
        request = new_request(RequestCode.QUERY_ASSIGNMENT, None, body, fields=fields)
        answered = self._call(who.address, request, FORWARD_TIMEOUT_MS)
        return _chain_deferred(
            answered, partial(self._on_forwarded, query, route, who, kept is None)
        )

    def _on_forwarded(
        self,
        query: AssignmentQuery,
        route: KnownRoute,
        who: GroupCoordinator,
        may_repeat: bool,
        response: Command | str,
    ) -> Deferred[AssignmentResponse]:
        """Make the member's answer from the coordinator's answer, or from the text why it is
        missing. `may_repeat`: if the coordinator asks for the assignment stored here, forward the
        query again with it. After a failure a member in mode CLIENT is answered by this broker."""
        if isinstance(response, str) or response.code != ResponseCode.SUCCESS:
            self._routes.refresh_soon(query.topic)
            reason = response if isinstance(response, str) else response.remark
            mode = self._modes.get(query.topic, query.group)
            group = self._consumers.group(query.group)
            if self._is_by_client(mode) and group is not None:
                kind = self._receive_mode_of(query.topic, mode)
                return self._answer_in_client_mode(query, route, group, kind)
            return Deferred.resolved(_no_queues(f"coordinator {who.broker_name}: {reason}", who))
        if response.fields.get(WANTS_KEPT) and may_repeat:
            kept = self.kept.get(query.group, query.topic)
            if kept is not None:
                return self._forward_query(query, route, who, kept)
        body = (
            bytes(response.body) if not isinstance(response.body, list) else b"".join(response.body)
        )
        if response.fields.get(HAS_KEPT):
            try:
                members = load_object(body)
                row = StoredAssignment.from_json(
                    f"{query.topic}@{query.group}", as_object(members.pop(KEPT, {}))
                )
                if row.generation <= TRUSTED_GENERATION:
                    self.kept.adopt_rows({row.name: row})
            except BadBody as error:
                return Deferred.resolved(_no_queues(f"coordinator {who.broker_name}: {error}", who))
            body = encode_json(members)
        return Deferred.resolved(AssignmentResponse(body))

    # This broker decides

    def _coordinate_topic(
        self, query: AssignmentQuery, route: KnownRoute, group: ConsumerGroup, mode: GroupMode
    ) -> Deferred[AssignmentResponse]:
        """Bring the assignment of the query's topic and group up to date, as their coordinator,
        then answer with the member's queues."""
        _, held = self._alike.pop((query.group, query.topic), (None, None))
        chosen = mode.strategy or self._config.rebalance_strategy
        named = query.strategy or AVG
        if not chosen and (not is_strategy(named) or (named == CONFIG and not mode.fixed)):
            return Deferred.resolved(_no_queues(f"unknown strategy {named}"))
        entry = self._topics.get(group, query.topic, held)
        self._generations[query.group] = group.generation
        entry.strategy = chosen or _strategy_of_members(entry, query.client_id, named)
        rooms, pops = self._config.machine_rooms, self._receive_mode_of(query.topic, mode) == POP
        ready = self._topics.bring_up_to_date(entry, group, route, mode, rooms, pops)
        return _chain_deferred(ready, lambda _: self._answer_from(entry, query, mode, pops))

    def _answer_from(
        self, entry: CoordinatedTopic, query: AssignmentQuery, mode: GroupMode, pops: bool
    ) -> Deferred[AssignmentResponse]:
        """Answer with the member's queues of an up-to-date assignment; if it failed or is still
        being computed, with a success without queues. `pops`: members pop, so a member also gets
        the queues of the next members."""
        if entry.error or not self._topics.is_ready(entry):
            return Deferred.resolved(_no_queues(entry.error or "the assignment is being computed"))
        if pops:
            number = mode.pop_share_queue_num
            number = self._config.default_pop_share_queue_num if number is None else number
            shares = entry.handover.shares
            work = partial(pop_share, entry.sharing, shares, query.client_id, number)
            return self._encode_answer(work, POP, len(entry.sharing.queues))
        body = self._topics.answer_member(
            entry, query.client_id, partial(encode_assignment, mode=PULL)
        )
        return body.map(partial(self._add_stored_assignment, entry, query))

    def _encode_answer(
        self, queues: Callable[[], Sequence[MessageQueue]], kind: str, weight: int
    ) -> Deferred[AssignmentResponse]:
        """Encode an answer with the queues that `queues()` returns, all of receive mode `kind`
        (PULL or POP); on another thread if `weight`, a number of queues, is large."""
        body = self._topics.run(lambda: encode_assignment(queues(), kind), weight)
        return body.map(AssignmentResponse)

    def _add_stored_assignment(
        self, entry: CoordinatedTopic, query: AssignmentQuery, body: bytes
    ) -> AssignmentResponse:
        """Make the answer with `body`; for a broker that forwarded the query and whose copy is
        older, add the stored assignment."""
        kept = self.kept.get(query.group, query.topic)
        is_news = bool(query.forwarded_by) and query.generation < entry.generation
        if not is_news or kept is None or len(kept.row()) + len(body) > KEPT_MAX:
            return AssignmentResponse(body)
        members = {**load_object(body), KEPT: kept.to_json()}
        return AssignmentResponse(encode_json(members), {HAS_KEPT: "true"})

    def _answer_in_client_mode(
        self, query: AssignmentQuery, route: KnownRoute, group: ConsumerGroup, kind: str
    ) -> Deferred[AssignmentResponse]:
        """Answer in mode CLIENT: compute the share that the member would compute itself, with this
        broker's list of members."""
        key = query.group, query.topic
        self._topics.drop_topic(*key)
        self._generations[query.group] = group.generation
        strategy = query.strategy or AVG
        if strategy == STICKY:
            return Deferred.resolved(
                _no_queues(
                    "STICKY needs rebalanceMode=BROKER: it starts from the members' former shares"
                )
            )
        basis = group.generation, route.version, strategy
        known, shares = self._alike.get(key, (None, {}))
        if known == basis:
            share = shares.get(query.client_id, [])
            return self._encode_answer(lambda: share, kind, len(share))
        members, rooms = group.client_ids(), self._config.machine_rooms

        def compute_locally() -> Computed:
            return compute_shares(strategy, sharing_of(members, route.queues, rooms=rooms))

        def on_computed(result: Computed) -> Deferred[AssignmentResponse]:
            if isinstance(result, AllocationError):
                return Deferred.resolved(_no_queues(str(result)))
            while len(self._alike) >= CACHED_RESPONSES_MAX:
                del self._alike[next(iter(self._alike))]
            self._alike[key] = basis, result[0]
            share = result[0].get(query.client_id, [])
            return self._encode_answer(lambda: share, kind, len(share))

        return _chain_deferred(
            self._topics.run(compute_locally, len(members) + route.size), on_computed
        )

    # Notices

    def _on_route_changed(self, topic: str) -> None:
        """Have all members notified of each group that this broker coordinates for the topic,
        because the queues in its route have changed."""
        for name in self._generations:
            if any(entry.topic == topic for entry in self._topics.of_group(name)):
                self._schedule_notices(name, None)

    def _schedule_notices(self, name: str, members: Collection[str] | None) -> None:
        """Have the `members` (client ids; None: all) of group `name` notified at the end of the
        loop's turn, so that they ask for their queues again."""
        if members is None:
            group = self._consumers.group(name)
            members = group.client_ids() if group is not None else ()
        if members:
            if not self._notices:
                self._call_soon(self._send_notices)
            self._notices.setdefault(name, set()).update(members)

    def _send_notices(self) -> None:
        """Send NOTIFY_CONSUMER_IDS_CHANGED (40) to the scheduled members; with
        notifyConsumerIdsChangedEnable=false the notices are dropped."""
        notices, self._notices = self._notices, {}
        for name, client_ids in notices.items():
            group = self._consumers.group(name)
            if group is None or not group.notifies:
                continue
            if self._config.notify_consumer_ids_changed_enable:
                for peer, member in group.members.items():
                    if member.client_id in client_ids:
                        notify_changed(peer, name)


def _strategy_of_members(entry: CoordinatedTopic, client_id: str, strategy: str) -> str:
    """Note that member `client_id` asks for `strategy`; return the strategy of the member with the
    smallest id: while members are restarted with another strategy, two of them must not cause
    changes in turn."""
    shares, named = entry.handover.shares, entry.asked_strategies
    if client_id in shares and named.get(client_id) != strategy:
        named[client_id] = strategy
        for member in named.keys() - shares.keys():
            del named[member]
    return named[min(named)] if named else strategy


def _chain_deferred(later: Deferred[A], go_on: Callable[[A], Deferred[B]]) -> Deferred[B]:
    """Call `go_on` with the value of `later` once it is there; resolves to the value of the
    Deferred that `go_on` returns."""
    if later.done:
        return go_on(later.value)
    result: Deferred[B] = Deferred()
    later.then(lambda value: go_on(value).then(result.resolve))
    return result


def _no_queues(why: str, who: GroupCoordinator | None = None) -> AssignmentResponse:
    """Make a success without queues, with the reason `why` and the coordinator `who`: the member
    keeps its queues, and asks again in a second. An error would make a starting Java member compute
    its share itself for ever."""
    return AssignmentResponse(b"{}", _coordinator_fields(who), remark=why)


def _refuse_forwarded(
    query: AssignmentQuery, who: GroupCoordinator, me: GroupCoordinator
) -> AssignmentResponse:
    """Make the SYSTEM_ERROR for a broker that forwarded the query to this broker (`me`), although
    `who` is the coordinator."""
    remark = (
        f"{me.broker_name} does not coordinate {query.group} for {query.topic}:"
        f" {who.broker_name} ({who.broker_id}) at {who.address} does"
    )
    return AssignmentResponse(b"", _coordinator_fields(who), ResponseCode.SYSTEM_ERROR, remark)


def _coordinator_fields(who: GroupCoordinator | None) -> dict[str, str]:
    """Header fields with the coordinator's name, id and address; {} for None."""
    if who is None:
        return {}
    return {
        "coordinatorName": who.broker_name,
        "coordinatorId": str(who.broker_id),
        "coordinatorAddr": who.address,
    }
