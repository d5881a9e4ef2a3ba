"""The controller without its shell: requests, heartbeats and committed entries in, answers out.

Owns the order of things: one proposal is decided on, committed and applied before the next one is
decided on, so that every decision sees all earlier ones. It must never touch a socket, a file or a
clock, nor know how the log is kept (quorum.py). Called by the controller's node, and by the
simulation with the same calls.

    on_request   answers at once (heartbeats, reads) or when the proposal is applied
    on_tick      who is silent for too long; groups without a master; what waits for too long
    on_closed    brokers that used that connection may be dead: their hosts are asked
    on_applied   each committed entry, on every controller, in order
    on_leader    the lead is won or lost

How soon a master is replaced. Its connection closes and its port refuses another one (kill -9): at
once; suspects.py knows the other cases. Its lease may still run then, and that is safe: what it
acknowledges needs every member of the SyncStateSet, the new master is one of them, and it cuts
every connection of before when it begins. It is silent: after its whole heartbeat timeout, counted
from when its last heartbeat ARRIVED here or from when this lead began; its lease is 0.8 of that,
counted from when it was SENT, and a leader that may be deposed grants none. So it has stopped by
itself before another can be elected (R27). A reign's first lease is granted behind an entry that
says so (`BeginReign`): until then nothing is acknowledged in it, and the members of before are
candidates.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from turbopump.controller import elections, events, foreign, registration, replicas_info
from turbopump.controller.elections import Decision
from turbopump.controller.events import BadEvent, ElectMaster, Event
from turbopump.controller.liveness import HEARTBEAT_TIMEOUT_MS, Heartbeats, Key, Live, key_of
from turbopump.controller.quorum import ProposalCommitted, ProposalFailed, Quorum, QuorumEntry
from turbopump.controller.state import Group, GroupTables
from turbopump.controller.suspects import Probed, Suspects, refused
from turbopump.engine.later import Later
from turbopump.engine.types import LONG_AGO_MS
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, response
from turbopump.net.wire.controller import SyncStateSet, decode_names, encode_peers
from turbopump.net.wire.header import BadHeader, read_header
from turbopump.net.wire.headers import controller as headers
from turbopump.net.wire.headers.routes import BrokerHeartbeatRequest

logger = logging.getLogger(__name__)

WAITING_MAX: Final = 1024
"""Proposals that wait for the one under way (RocketMQ's event queue)."""
WAIT_MS: Final = 5_000
"""Of a proposal for its turn (ControllerRequestProcessor.WAIT_TIMEOUT_OUT); brokers wait 3 s."""
LEASE_SHARE: Final = 0.8
"""Of the heartbeat timeout: what is left covers clocks that drift and ticks that come late."""
CODES: Final = frozenset(
    {
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.CONTROLLER_GET_METADATA_INFO,
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        RequestCode.CONTROLLER_ELECT_MASTER,
        RequestCode.CONTROLLER_REGISTER_BROKER,
        RequestCode.CONTROLLER_GET_REPLICA_INFO,
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
        RequestCode.CLEAN_BROKER_DATA,
        RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
    }
)
"""The requests that are answered here."""
NO_TERM: Final = -2
NOT_LEADER: Final = "The controller is not in leader state"


@dataclass(slots=True)
class CoreOptions:
    """What the configuration says to the state machine; may be changed while it runs."""

    group: str = ""
    elect_unclean: bool = False
    """enableElectUncleanMaster"""
    notify_role_changed: bool = True
    """notifyBrokerRoleChanged"""
    process_read_event: bool = False
    """isProcessReadEvent: reads wait for an entry of their own. They need not here: a leader that
    may have been deposed answers none."""
    heartbeat_timeout_ms: int = HEARTBEAT_TIMEOUT_MS
    scan_brokers_ms: int = 500
    """Between two looks at who is silent (scanNotActiveBrokerInterval)."""
    scan_groups_ms: int = 500
    """Between two looks at all groups (scanInactiveMasterInterval); what happens to one is looked
    at when it happens."""


@dataclass(slots=True)
class _Job:
    """A request that waits for its turn, or is under way."""

    decide: Callable[[], Decision]
    done: Callable[[Decision], None]
    deadline_ms: int
    must_commit: bool = False
    body: bytes | None = None
    """Of an entry that another program made."""
    index: int = -1
    """Of the entry, once it is committed."""


@dataclass(slots=True)
class _Flight:
    """The one proposal that is not applied yet; without a job it is a barrier."""

    job: _Job | None = None
    decision: Decision = field(default_factory=Decision)
    index: int | None = None


class ControllerCore:
    """See the module. Loop thread only; all times are of the monotonic clock."""

    def __init__(
        self,
        options: CoreOptions,
        quorum: Quorum,
        notices: Callable[[str, Command], None] = lambda address, command: None,
        probe: Callable[[str], Later[Probed]] = refused,
    ) -> None:
        """`notices` sends a one-way request to a broker's address, `probe` connects to it."""
        self.options = options
        self.quorum = quorum
        self.notices = notices
        self.tables = GroupTables()
        self.heartbeats = Heartbeats(options.heartbeat_timeout_ms, lambda k: self.tables.has(*k))
        self.suspects = Suspects(probe, self.heartbeats.is_apart, self._process_ended)
        self.leading = False
        """Whether this node decides: it leads, and all of before its lead is applied."""
        self.applied = -1
        """Index of the newest entry that is in the tables."""
        self.elections = 0
        """Masters elected while this node led."""
        self._now_ms = LONG_AGO_MS
        self._waiting: deque[_Job] = deque()
        self._attention: dict[str, None] = {}
        self._flight: _Flight | None = None
        self._looked_ms = LONG_AGO_MS
        self._scanned_ms = LONG_AGO_MS
        self._lead_is_new = False
        self._led_term = NO_TERM
        """The last one in which this controller led."""
        self._unsure = False
        self._pumping = False
        self._requests: dict[int, Callable[[int, Command], replicas_info.Reply]] = {
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
            RequestCode.CONTROLLER_GET_METADATA_INFO: self._metadata,
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: self._alter,
            RequestCode.CONTROLLER_ELECT_MASTER: self._elect,
            RequestCode.CONTROLLER_REGISTER_BROKER: self._register,
            RequestCode.CONTROLLER_GET_REPLICA_INFO: self._replica_info,
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: self._sync_state_data,
            RequestCode.CLEAN_BROKER_DATA: self._clean,
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: self._next_id,
            RequestCode.CONTROLLER_APPLY_BROKER_ID: self._apply_id,
        }

    # What happens

    def on_request(self, connection: int, request: Command, now_ms: int) -> replicas_info.Reply:
        """The answer to a request of any of CODES. Never raises for what a request has in it."""
        self._clock(now_ms)
        answer = self._requests.get(request.code)
        if answer is None:
            text = f" request type {request.code} not supported"
            return _now(response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text))
        try:
            return answer(connection, request)
        except (BadHeader, BadBody) as error:
            remark = f"{type(error).__name__}: {error}"
            return _now(response(request, ResponseCode.SYSTEM_ERROR, remark))

    def on_closed(self, connection: int, now_ms: int) -> None:
        """A connection is gone, and maybe the brokers that sent their heartbeats over it: their
        hosts are asked. What never registered has no address, and nothing depends on it."""
        self._clock(now_ms)
        for key in self.heartbeats.on_closed(connection):
            if self.tables.has(*key):
                address = self.tables.groups[key[1]].replicas[key[2]].address
                self.suspects.add(key, address, now_ms)
            else:
                self.heartbeats.ended(key, now_ms)

    def _process_ended(self, key: Key) -> None:
        if self.heartbeats.ended(key, self._now_ms):
            self._died([key], "ended: its connection closed, and its port takes no other")
            self._pump()

    def on_tick(self, now_ms: int) -> None:
        """Every 100 ms or so, whether this node leads or not."""
        self.heartbeats.on_tick(now_ms)
        self._clock(now_ms)
        self.suspects.on_tick(now_ms)
        judged_ms = self.heartbeats.judged_ms
        if judged_ms - self._looked_ms >= self.options.scan_brokers_ms:
            self._looked_ms = judged_ms
            self._died(self.heartbeats.expire(now_ms), "was silent for too long")
        if self.leading and judged_ms - self._scanned_ms >= self.options.scan_groups_ms:
            self._scanned_ms = judged_ms
            self._attention.update(dict.fromkeys(self.tables.groups))
        while self._waiting and self._waiting[0].deadline_ms <= now_ms:
            waited = f"no decision within {WAIT_MS} ms"
            self._waiting.popleft().done(Decision(ResponseCode.SYSTEM_ERROR, waited))
        self._pump()

    def on_leader(self, leads: bool) -> None:
        """The lead is lost, or won and all of before it applied. It counts from the next moment
        that this hears of."""
        refused = list(self._waiting)
        if self._flight is not None and self._flight.job is not None:
            # It may commit all the same; the broker that asked asks again and learns how it stands.
            refused.append(self._flight.job)
        self.leading = self._lead_is_new = leads
        self._flight, self._unsure = None, False
        self._waiting.clear()
        self._attention.clear()
        for job in refused:
            job.done(_not_leader())

    def on_applied(self, entry: QuorumEntry) -> None:
        """A committed entry. Called for each, in order, on every controller."""
        self.applied = entry.index
        happened = events.decode(entry.body)
        if isinstance(happened, BadEvent):
            logger.error("entry %d changes nothing: %s", entry.index, happened.reason)
            happened = ()
        for event in happened:
            self.tables.apply(event)
        if self.leading:
            self._tell(happened)
        self._land()

    # The tables as one piece

    def snapshot(self) -> bytes:
        """The tables as of `applied`."""
        return self.tables.snapshot()

    def restore(self, data: bytes) -> None:
        """The tables of a snapshot; raises ValueError, and changes nothing then."""
        self.tables = GroupTables.restore(data)

    def append(self, body: bytes, now_ms: int) -> Later[int | str]:
        """An entry that another program made (APPEND of DLedger's clients), in its turn: its index,
        or why there is none."""
        self._clock(now_ms)
        told: Later[int | str] = Later()

        def done(decision: Decision) -> None:
            told.resolve(job.index if job.index >= 0 else decision.remark or decision.code.name)

        job = _Job(lambda: foreign.judge(self.tables, body), done, now_ms + WAIT_MS, body=body)
        self._enqueue(job)
        return told

    # Requests that any controller answers

    def _heartbeat(self, connection: int, request: Command) -> Later[Command]:
        """904. What a master asks first in its reign is answered once that is agreed on."""
        header = read_header(BrokerHeartbeatRequest, request.fields)
        if header.broker_id is None:
            remark = "The broker id of a heartbeat to a controller is missing"
            return _now(response(request, ResponseCode.CONTROLLER_INVALID_REQUEST, remark))
        name, group = header.broker_name, self.tables.groups.get(header.broker_name)
        key = header.cluster_name, name, header.broker_id
        if header.leased and not self.tables.has(*key, header.broker_addr):
            self.heartbeats.on_stranger(header, self._now_ms)
            if self.tables.has(*key):
                return _now(self._alive(request, header))  # its old id is another's by now
        is_news = self.heartbeats.on_heartbeat(header, connection, self._now_ms)
        if is_news is None:
            remark = "too many brokers send heartbeats"
            return _now(response(request, ResponseCode.SYSTEM_BUSY, remark))
        is_behind = group is not None and elections.is_behind(group, self._live())
        if (is_news or is_behind) and self.leading:
            if header.unfit and is_news:
                logger.warning("broker %d of %s is not to lead: %s",
                               header.broker_id, name, header.unfit)  # fmt: skip
            self._attention[name] = None
            self._pump()
        group = self.tables.groups.get(name)
        if group is None or not group.eligible or not group.reigns(header.broker_id, header.epoch):
            return _now(self._alive(request, header))
        epoch = group.master_epoch
        begun = self._propose(request, lambda: elections.begin(self.tables, name, epoch))
        return begun.map(lambda _: self._alive(request, header))

    def _alive(self, request: Command, header: BrokerHeartbeatRequest) -> Command:
        """The lease is for a master in its own epoch, whose group is not being given to another
        broker."""
        name, reply = header.broker_name, headers.BrokerHeartbeatResponse()
        group, live = self.tables.groups.get(name), self._live()
        address = header.broker_addr if header.leased else None
        is_here = self.tables.has(header.cluster_name, name, header.broker_id or 0, address)
        reply.unknown = (self._sure and not is_here) or None
        if self._sure and group is not None and is_here:
            reply.master_broker_id, reply.master_epoch = group.master_id, group.master_epoch
            reply.sync_state_set_epoch = group.set_epoch
            reigns = group.reigns(header.broker_id, header.epoch) and not group.eligible
            if reigns and not elections.may_lack(group, live) and not self._is_moving(name):
                timeout_ms = self.heartbeats.timeout_of(key_of(group, header.broker_id or 0))
                reply.lease_ms = int(timeout_ms * LEASE_SHARE)
        return response(request, ResponseCode.SUCCESS, header=reply)

    def _metadata(self, connection: int, request: Command) -> Later[Command]:
        """1005. Who may have been deposed does not say that it leads."""
        peers, leader = dict(self.quorum.peers), self.quorum.leader_id
        reply = headers.GetMetaDataResponse(
            self.options.group, self._sure, encode_peers(peers),
            leader, None if leader is None else peers.get(leader), self.quorum.term,
        )  # fmt: skip
        return _now(response(request, ResponseCode.SUCCESS, header=reply))

    # Requests that the leader answers

    def _alter(self, connection: int, request: Command) -> Later[Command]:
        """1001. Only a living master asks, so its request says that it lives."""
        header = read_header(headers.AlterSyncStateSetRequest, request.fields)
        wanted = SyncStateSet.decode(_body(request))
        self._touch(header.broker_name, header.master_broker_id, connection)
        return self._propose(
            request, lambda: elections.alter(self.tables, header, wanted, self._live())
        )

    def _elect(self, connection: int, request: Command) -> Later[Command]:
        """1002."""
        header = read_header(headers.ElectMasterRequest, request.fields)
        if not header.designate_elect:
            self._touch(header.broker_name, header.broker_id, connection)
        unclean = self.options.elect_unclean
        return self._propose(
            request,
            lambda: elections.elect(self.tables, header, self._live(), unclean=unclean),
        )

    def _register(self, connection: int, request: Command) -> Later[Command]:
        """1003."""
        header = read_header(headers.RegisterBrokerToControllerRequest, request.fields)
        key = _, name, broker_id = header.cluster_name, header.broker_name, header.broker_id
        self.heartbeats.on_life(key, header.broker_address)
        if header.unclean or header.damaged:
            # Until that is committed it must not be elected for what its last life told.
            logger.warning("broker %d of %r: its log is damaged or may lack bytes", broker_id, name)
            self.heartbeats.bury(key, self._now_ms)

        def answer(told: Command) -> Command:
            if told.code == ResponseCode.SUCCESS:
                self.heartbeats.on_registered(key, header)
                self._touch(name, broker_id, connection)
                self._pump()
            return told

        return self._propose(
            request, lambda: registration.register(self.tables, header, self._live())
        ).map(answer)

    def _clean(self, connection: int, request: Command) -> Later[Command]:
        """1011."""
        header = read_header(headers.CleanBrokerDataRequest, request.fields)
        return self._propose(request, lambda: registration.clean(self.tables, header, self._live()))

    def _apply_id(self, connection: int, request: Command) -> Later[Command]:
        """1013."""
        header = read_header(headers.ApplyBrokerIdRequest, request.fields)
        return self._propose(request, lambda: registration.apply_id(self.tables, header))

    def _next_id(self, connection: int, request: Command) -> Later[Command]:
        """1012."""
        header = read_header(headers.GetNextBrokerIdRequest, request.fields)
        return self._read(request, lambda: registration.next_id(self.tables, header))

    def _replica_info(self, connection: int, request: Command) -> Later[Command]:
        """1004."""
        header = read_header(headers.GetReplicaInfoRequest, request.fields)
        return self._read(request, lambda: registration.replica_info(self.tables, header))

    def _sync_state_data(self, connection: int, request: Command) -> replicas_info.Reply:
        """1006."""
        return replicas_info.in_steps(
            sorted(self.tables.groups.keys() & decode_names(_body(request))),
            lambda: (self.tables, self._live(), self.quorum.term if self.leading else NO_TERM),
            lambda told: self._read(request, lambda: told or _not_leader()),
        )

    def _read(self, request: Command, decide: Callable[[], Decision]) -> Later[Command]:
        """What only reads is answered at once, by a leader that surely still is one."""
        if self.leading and self.options.process_read_event:
            return self._propose(request, decide, must_commit=True)
        if not self._sure:
            return _now(_answer(request, _not_leader()))
        return _now(_answer(request, decide()))

    def _propose(
        self, request: Command, decide: Callable[[], Decision], *, must_commit: bool = False
    ) -> Later[Command]:
        told: Later[Command] = Later()

        def done(decision: Decision) -> None:
            told.resolve(_answer(request, decision))

        self._enqueue(_Job(decide, done, self._now_ms + WAIT_MS, must_commit))
        return told

    # One proposal at a time

    @property
    def _sure(self) -> bool:
        return self.leading and self.quorum.has_quorum(self._now_ms)

    def _enqueue(self, job: _Job) -> None:
        if not self.leading:
            job.done(_not_leader())
        elif len(self._waiting) >= WAITING_MAX:
            job.done(Decision(ResponseCode.SYSTEM_BUSY, f"{WAITING_MAX} requests wait"))
        else:
            self._waiting.append(job)
            self._pump()

    def _pump(self) -> None:
        """Decide and propose until a proposal is under way or nothing is left."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._flight is None and self._next():
                pass
        finally:
            self._pumping = False

    def _next(self) -> bool:
        """The next thing to do; whether there was one. Groups without a master come first."""
        if not self.leading or self._lead_is_new:
            return False
        if self._unsure:
            # An entry may still commit that was reported as failed: once one behind it is
            # committed, it either was before that or never will be.
            self._launch(_Flight(), b"")
            return not self._unsure
        if self._attention and self.quorum.has_quorum(self._now_ms):
            name, _ = self._attention.popitem()
            decision = elections.look_after(
                self.tables, name, self._live(), unclean=self.options.elect_unclean
            )
            if decision is not None:
                job = _Job(Decision, lambda told: self._altered(name, told), self._now_ms)
                self._launch(_Flight(job, decision), events.encode(decision.events))
            return True
        if not self._waiting:
            return False
        job = self._waiting.popleft()
        decision = job.decide()
        if job.body is not None and decision.code is ResponseCode.SUCCESS:
            self._launch(_Flight(job, decision), job.body)
        elif decision.events or job.must_commit:
            self._launch(_Flight(job, decision), events.encode(decision.events))
        else:
            job.done(decision)
        return True

    def _launch(self, flight: _Flight, body: bytes) -> None:
        self._flight = flight
        self.quorum.append(body).then(lambda end: self._ended(flight, end))

    def _ended(self, flight: _Flight, end: ProposalCommitted | ProposalFailed) -> None:
        """How a proposal ended; of a lead that is over it is of no interest any more."""
        if self._flight is not flight:
            return
        if isinstance(end, ProposalCommitted):
            flight.index = end.index
            self._land()
            return
        self._flight, self._unsure = None, True
        if flight.job is not None:
            flight.job.done(
                Decision(ResponseCode.SYSTEM_ERROR, end.reason)
                if self.quorum.is_leader
                else _not_leader()
            )

    def _land(self) -> None:
        """The proposal under way is done once it is committed and applied."""
        flight = self._flight
        if flight is None or flight.index is None or flight.index > self.applied:
            return
        self._flight, self._unsure = None, False
        if flight.job is not None:
            flight.job.index = flight.index
            flight.job.done(flight.decision)
        self._pump()

    def _clock(self, now_ms: int) -> None:
        """It is that time now, and if the lead is new, it begins now."""
        self._now_ms = now_ms
        if self._lead_is_new:
            self._lead_is_new = False
            if not self.quorum.is_leader or self.quorum.term != self._led_term + 1:
                self.heartbeats.lead(now_ms)  # else no other led in between, nor granted a lease
            self._led_term = self.quorum.term if self.quorum.is_leader else NO_TERM
            self._lead()

    def _lead(self) -> None:
        """All of before is applied. The last leader may not have notified a master it elected."""
        logger.info("this controller leads; %d broker groups", len(self.tables.groups))
        for name, group in self.tables.groups.items():
            self._attention[name] = None
            if group.master_id is not None:
                self._notify(group)

    # Brokers

    def _live(self) -> Live:
        return Live(self.heartbeats, self._now_ms)

    def _touch(self, broker_name: str, broker_id: int, connection: int) -> None:
        group = self.tables.groups.get(broker_name)
        if group is None or broker_id not in group.replicas:
            return
        if self.heartbeats.touch(key_of(group, broker_id), connection, self._now_ms):
            self._attention[broker_name] = None

    def _died(self, dead: list[Key], how: str) -> None:
        for _, broker_name, broker_id in dead[:50]:  # names may be made up, 50,000 at once
            logger.warning("broker %d of %s %s", broker_id, broker_name, how)
        if self.leading:
            self._attention.update((key[1], None) for key in dead)

    def _is_moving(self, broker_name: str) -> bool:
        """Whether that group may be about to have another master. Who is only to be looked at, as
        all are from time to time, is not: a reign's first lease would wait for its next try."""
        if self._unsure:
            return True
        if broker_name in self._attention:
            unclean, live = self.options.elect_unclean, self._live()
            if elections.look_after(self.tables, broker_name, live, unclean=unclean) is not None:
                return True
        flight = self._flight
        return flight is not None and any(
            isinstance(event, ElectMaster) and event.broker_name == broker_name
            for event in flight.decision.events
        )

    def _tell(self, happened: tuple[Event, ...]) -> None:
        """1008 to who lives of a group that has a new master or lost a member: so soon that
        none has to poll. A Java broker takes only what has a later masterEpoch."""
        for event in happened:
            if not isinstance(event, ElectMaster | events.MarkUnfit):
                continue
            group = self.tables.groups.get(event.broker_name)
            if group is None:
                continue
            if group.master_id is None:
                logger.error("%s has no master any more, epoch %d",
                             group.broker_name, group.master_epoch)  # fmt: skip
                continue
            if isinstance(event, ElectMaster):
                self.elections += 1
                master = group.master_epoch, group.master_id, group.master_address
                logger.warning("master of %s in epoch %d: %d (%s)", group.broker_name, *master)
            self._notify(group)

    def _altered(self, broker_name: str, decision: Decision) -> None:
        """A master that did not ask for its set has to hear of it."""
        group = self.tables.groups.get(broker_name)
        altered = any(isinstance(event, events.AlterSyncStateSet) for event in decision.events)
        if altered and group is not None and group.master_id is not None:
            self._notify(group)

    def _notify(self, group: Group) -> None:
        if not self.options.notify_role_changed:
            return
        live = self._live()
        for broker_id, replica in group.replicas.items():
            if live.heard(group, broker_id):
                self.notices(replica.address, registration.notice(group))


def _answer(request: Command, decision: Decision) -> Command:
    return response(request, decision.code, decision.remark, decision.header, decision.body)


def _not_leader() -> Decision:
    return Decision(ResponseCode.CONTROLLER_NOT_LEADER, NOT_LEADER)


def _now(answer: Command) -> Later[Command]:
    told: Later[Command] = Later()
    told.resolve(answer)
    return told


def _body(request: Command) -> bytes:
    assert isinstance(request.body, bytes), "a decoded body is bytes"
    return request.body
