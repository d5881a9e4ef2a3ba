"""A controller's answers to requests: immediate, or when a proposal is applied.

Owns the table of request codes and the decoding of headers. It must never decide about a group
(elections.py and registration.py do, in the order of proposals), nor change one. Loop thread only;
all times are of the monotonic clock.

Tests: tests/unit/controller/test_core.py
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from turbopump.controller import elections, registration, replicas_info
from turbopump.controller.config import ControllerConfig
from turbopump.controller.elections import Decision
from turbopump.controller.liveness import Heartbeats, LivenessAt, key_of
from turbopump.controller.proposals import WAIT_MS, ProposalJob, Proposals, not_leader
from turbopump.controller.quorum import Quorum
from turbopump.controller.replicas_info import Reply
from turbopump.controller.state import GroupTables
from turbopump.engine.deferred import Deferred
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.controller import SyncStateSet, decode_names, encode_peers
from turbopump.net.wire.header import BadHeader, read_header
from turbopump.net.wire.headers import controller as headers
from turbopump.net.wire.headers.routes import BrokerHeartbeatRequest

logger = logging.getLogger(__name__)

LEASE_SHARE: Final = 0.8
"""Lease as a fraction of the heartbeat timeout; the rest covers clock drift and late ticks."""
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
"""Codes of the requests that `ControllerRequests.answer_request` handles."""
NO_TERM: Final = -2
"""Value that replaces the term while this controller does not lead."""


class DecisionState(Protocol):
    """The part of ControllerCore that requests use; ControllerCore describes each member."""

    @property
    def config(self) -> ControllerConfig:
        """The settings, which may change between two requests."""
        ...

    @property
    def quorum(self) -> Quorum:
        """The replicated log."""
        ...

    @property
    def tables(self) -> GroupTables:
        """The groups after the last applied entry; requests only read them."""
        ...

    @property
    def heartbeats(self) -> Heartbeats:
        """The table of heartbeats, which requests change."""
        ...

    @property
    def proposals(self) -> Proposals:
        """The queue of proposals."""
        ...

    @property
    def is_leading(self) -> bool:
        """Whether this controller leads and has applied all earlier entries; it may be deposed."""
        ...

    @property
    def now_ms(self) -> int:
        """Monotonic time of the request in progress."""
        ...

    @property
    def is_undisputed_leader(self) -> bool:
        """Whether this controller leads and cannot have been deposed meanwhile."""
        ...

    def liveness_at(self) -> LivenessAt:
        """Return the liveness of the brokers at `now_ms`."""
        ...

    def recheck_group(self, broker_name: str) -> None:
        """Have the group checked by the next `proposals.pump`; decides nothing itself."""
        ...

    def record_request(self, broker_name: str, broker_id: int, connection: int) -> None:
        """Record a broker's request as a sign of life; see ControllerCore.record_request."""
        ...

    def is_moving(self, broker_name: str) -> bool:
        """Whether the group may be about to get another master, so that no lease may be granted."""
        ...


class ControllerRequests:
    """Answers a controller's requests: at once, or when their proposals are applied."""

    def __init__(self, core: DecisionState) -> None:
        self._core = core
        self._answers: dict[int, Callable[[int, Command], Reply]] = {
            RequestCode.BROKER_HEARTBEAT: self._handle_heartbeat,
            RequestCode.CONTROLLER_GET_METADATA_INFO: self._handle_metadata,
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: self._handle_alter,
            RequestCode.CONTROLLER_ELECT_MASTER: self._handle_elect,
            RequestCode.CONTROLLER_REGISTER_BROKER: self._handle_register,
            RequestCode.CONTROLLER_GET_REPLICA_INFO: self._replica_info,
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: self._sync_state_data,
            RequestCode.CLEAN_BROKER_DATA: self._handle_clean,
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: self._next_id,
            RequestCode.CONTROLLER_APPLY_BROKER_ID: self._apply_id,
        }

    def answer_request(self, connection: int, request: Command) -> Reply:
        """Answer a request; `connection` is the number of its connection.

        The answer is resolved at once, or when its proposal is applied, refused or expired
        (WAIT_MS). Never raises for a request's content: another code than CODES is refused with
        REQUEST_CODE_NOT_SUPPORTED, a malformed header or body with SYSTEM_ERROR.
        """
        handler = self._answers.get(request.code)
        if handler is None:
            text = f" request type {request.code} not supported"
            return Deferred.resolved(
                new_response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text)
            )
        try:
            return handler(connection, request)
        except (BadHeader, BadBody) as error:
            remark = f"{type(error).__name__}: {error}"
            return Deferred.resolved(new_response(request, ResponseCode.SYSTEM_ERROR, remark))

    # Requests that any controller answers

    def _handle_heartbeat(self, connection: int, request: Command) -> Deferred[Command]:
        """Answer a heartbeat (904); a master's first one in its term waits for the quorum."""
        header = read_header(BrokerHeartbeatRequest, request.fields)
        if header.broker_id is None:
            remark = "The broker id of a heartbeat to a controller is missing"
            return Deferred.resolved(
                new_response(request, ResponseCode.CONTROLLER_INVALID_REQUEST, remark)
            )
        name, group = header.broker_name, self._core.tables.groups.get(header.broker_name)
        key = header.cluster_name, name, header.broker_id
        if header.leased and not self._core.tables.has_broker(*key, header.broker_addr):
            self._core.heartbeats.on_unregistered(header, self._core.now_ms)
            if self._core.tables.has_broker(*key):
                # its old id is another broker's now
                return Deferred.resolved(self._heartbeat_answer(request, header))
        is_news = self._core.heartbeats.on_heartbeat(header, connection, self._core.now_ms)
        if is_news is None:
            remark = "too many brokers send heartbeats"
            return Deferred.resolved(new_response(request, ResponseCode.SYSTEM_BUSY, remark))
        is_behind = group is not None and elections.is_behind(group, self._core.liveness_at())
        if (is_news or is_behind) and self._core.is_leading:
            why = header.unfit or ("its disk is slow" if header.slow else "")
            if why and is_news:
                logger.warning(
                    "broker %d of %s must not become master: %s", header.broker_id, name, why
                )
            self._core.recheck_group(name)
            self._core.proposals.propose_next()
        group = self._core.tables.groups.get(name)
        if (
            group is None
            or not group.eligible
            or not group.is_current_master(header.broker_id, header.epoch)
        ):
            return Deferred.resolved(self._heartbeat_answer(request, header))
        epoch = group.master_epoch
        begun = self._propose_decision(
            request, lambda: elections.decide_begin_term(self._core.tables, name, epoch)
        )
        return begun.map(lambda _: self._heartbeat_answer(request, header))

    def _heartbeat_answer(self, request: Command, header: BrokerHeartbeatRequest) -> Command:
        """Make the answer to a heartbeat.

        A lease goes only to a master in its own epoch whose group is not getting another master.
        """
        name, reply = header.broker_name, headers.BrokerHeartbeatResponse()
        group, liveness = self._core.tables.groups.get(name), self._core.liveness_at()
        address = header.broker_addr if header.leased else None
        is_here = self._core.tables.has_broker(
            header.cluster_name, name, header.broker_id or 0, address
        )
        reply.unknown = (self._core.is_undisputed_leader and not is_here) or None
        if self._core.is_undisputed_leader and group is not None and is_here:
            reply.master_broker_id, reply.master_epoch = group.master_id, group.master_epoch
            reply.sync_state_set_epoch = group.set_epoch
            is_master = (
                group.is_current_master(header.broker_id, header.epoch) and not group.eligible
            )
            if (
                is_master
                and not elections.may_have_lost_data(group, liveness)
                and not self._core.is_moving(name)
            ):
                timeout_ms = self._core.heartbeats.timeout_of(key_of(group, header.broker_id or 0))
                reply.lease_ms = int(timeout_ms * LEASE_SHARE)
        return new_response(request, ResponseCode.SUCCESS, header=reply)

    def _handle_metadata(self, connection: int, request: Command) -> Deferred[Command]:
        """Return the quorum (1005); a controller that may be deposed does not claim to lead."""
        peers, leader = dict(self._core.quorum.peers), self._core.quorum.leader_id
        reply = headers.GetMetaDataResponse(
            self._core.config.group,
            self._core.is_undisputed_leader,
            encode_peers(peers),
            leader,
            None if leader is None else peers.get(leader),
            self._core.quorum.term,
        )
        return Deferred.resolved(new_response(request, ResponseCode.SUCCESS, header=reply))

    # Requests that the leader answers

    def _handle_alter(self, connection: int, request: Command) -> Deferred[Command]:
        """Change the SyncStateSet (1001), which is also a sign of life of the master."""
        header = read_header(headers.AlterSyncStateSetRequest, request.fields)
        wanted = SyncStateSet.decode(_request_body(request))
        self._core.record_request(header.broker_name, header.master_broker_id, connection)
        return self._propose_decision(
            request,
            lambda: elections.decide_alter(
                self._core.tables, header, wanted, self._core.liveness_at()
            ),
        )

    def _handle_elect(self, connection: int, request: Command) -> Deferred[Command]:
        """Elect a master (1002)."""
        header = read_header(headers.ElectMasterRequest, request.fields)
        if not header.designate_elect:
            self._core.record_request(header.broker_name, header.broker_id, connection)
        unclean = self._core.config.enable_elect_unclean_master
        return self._propose_decision(
            request,
            lambda: elections.decide_election(
                self._core.tables, header, self._core.liveness_at(), unclean=unclean
            ),
        )

    def _handle_register(self, connection: int, request: Command) -> Deferred[Command]:
        """Register a broker (1003)."""
        header = read_header(headers.RegisterBrokerToControllerRequest, request.fields)
        key = _, name, broker_id = header.cluster_name, header.broker_name, header.broker_id
        self._core.heartbeats.on_life(key, header.broker_address)
        if header.unclean or header.damaged:
            # Until the commit it must not be elected for the reports of its previous life.
            logger.warning("broker %d of %r: its log is damaged or may lack bytes", broker_id, name)
            self._core.heartbeats.discard_reports(key, self._core.now_ms)

        def note_registered(answered: Command) -> Command:
            if answered.code == ResponseCode.SUCCESS:
                self._core.heartbeats.on_registered(key, header)
                self._core.record_request(name, broker_id, connection)
                self._core.proposals.propose_next()
            return answered

        return self._propose_decision(
            request,
            lambda: registration.register(self._core.tables, header, self._core.liveness_at()),
        ).map(note_registered)

    def _handle_clean(self, connection: int, request: Command) -> Deferred[Command]:
        """Remove brokers (1011)."""
        header = read_header(headers.CleanBrokerDataRequest, request.fields)
        return self._propose_decision(
            request,
            lambda: registration.decide_clean(self._core.tables, header, self._core.liveness_at()),
        )

    def _apply_id(self, connection: int, request: Command) -> Deferred[Command]:
        """Give an id to a broker (1013)."""
        header = read_header(headers.ApplyBrokerIdRequest, request.fields)
        return self._propose_decision(
            request, lambda: registration.apply_id(self._core.tables, header)
        )

    def _next_id(self, connection: int, request: Command) -> Deferred[Command]:
        """Return the next id of a group (1012)."""
        header = read_header(headers.GetNextBrokerIdRequest, request.fields)
        return self._read(request, lambda: registration.next_id(self._core.tables, header))

    def _replica_info(self, connection: int, request: Command) -> Deferred[Command]:
        """Return a group's master and SyncStateSet (1004)."""
        header = read_header(headers.GetReplicaInfoRequest, request.fields)
        return self._read(request, lambda: registration.replica_info(self._core.tables, header))

    def _sync_state_data(self, connection: int, request: Command) -> Reply:
        """Return the state of groups (1006)."""
        return replicas_info.in_steps(
            sorted(self._core.tables.groups.keys() & decode_names(_request_body(request))),
            lambda: (
                self._core.tables,
                self._core.liveness_at(),
                self._core.quorum.term if self._core.is_leading else NO_TERM,
            ),
            lambda decision: self._read(request, lambda: decision or not_leader()),
        )

    def _read(self, request: Command, decide: Callable[[], Decision]) -> Deferred[Command]:
        """Answer a request that only reads at once, if this controller surely leads."""
        if self._core.is_leading and self._core.config.is_process_read_event:
            return self._propose_decision(request, decide, must_commit=True)
        if not self._core.is_undisputed_leader:
            return Deferred.resolved(_make_response(request, not_leader()))
        return Deferred.resolved(_make_response(request, decide()))

    def _propose_decision(
        self, request: Command, decide: Callable[[], Decision], *, must_commit: bool = False
    ) -> Deferred[Command]:
        """Queue a decision as a proposal that expires after WAIT_MS; resolves with the answer."""
        decided: Deferred[Decision] = Deferred()
        expires_ms = self._core.now_ms + WAIT_MS
        self._core.proposals.enqueue(ProposalJob(decide, decided.resolve, expires_ms, must_commit))
        return decided.map(partial(_make_response, request))


def _make_response(request: Command, decision: Decision) -> Command:
    return new_response(request, decision.code, decision.remark, decision.header, decision.body)


def _request_body(request: Command) -> bytes:
    assert isinstance(request.body, bytes), "a decoded body is bytes"
    return request.body
