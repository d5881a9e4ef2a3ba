"""Requests of a broker to its controllers, and the state of the group in their answers.

Owns the making of the requests and the reading of answers into `GroupState`; membership.py decides
whether an answer counts. Nothing is sent here. `now_ms` is of the wall clock, in ms since 1970. An
answer is a Command of any code, or a text with the reason why it is missing.

Tests: tests/unit/broker/ha/control/test_membership.py
"""

from dataclasses import dataclass

from turbopump.net.ha.sync_state import Proposal
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.controller import ElectMasterBody, SyncStateSet
from turbopump.net.wire.header import BadHeader, read_header
from turbopump.net.wire.headers.controller import (
    AlterSyncStateSetRequest,
    AlterSyncStateSetResponse,
    ApplyBrokerIdRequest,
    ElectMasterRequest,
    ElectMasterResponse,
    GetNextBrokerIdRequest,
    GetNextBrokerIdResponse,
    GetReplicaInfoRequest,
    GetReplicaInfoResponse,
    NotifyBrokerRoleChangedRequest,
    RegisterBrokerToControllerRequest,
    RegisterBrokerToControllerResponse,
)

JAVA = "JAVA"
"""The language that marks answers of RocketMQ peers, which differ from ours."""

_Header = (
    ElectMasterResponse
    | RegisterBrokerToControllerResponse
    | NotifyBrokerRoleChangedRequest
    | GetReplicaInfoResponse
)


class BadResponse(Exception):
    """A controller refused a request, did not answer it, or its answer is unreadable; the text is
    for the log."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code
        """Code of a refusal; None without an answer, or if it was unreadable."""


@dataclass(slots=True, frozen=True)
class BrokerGroupName:
    """Cluster and broker name, by which controllers know a broker before it has an id."""

    cluster: str
    """brokerClusterName."""
    broker: str
    """brokerName, which all brokers of the group share."""


@dataclass(slots=True, frozen=True)
class GroupState:
    """The master and the SyncStateSet of a group, as reported by a controller."""

    epoch: int
    """Epoch of the master; 0 if the controller named none. A greater epoch is newer."""
    master: int | None = None
    """Broker id of the master; None: the epoch has no master."""
    address: str = ""
    """The master's address for clients, `host:port`; "" without a master."""
    members: frozenset[int] = frozenset()
    """Broker ids of the SyncStateSet, the master's included; empty if not reported."""
    set_epoch: int = 0
    """Epoch of the SyncStateSet; a greater one is newer."""


# Requests


def next_id_request(name: BrokerGroupName) -> Command:
    """Build GET_NEXT_BROKER_ID (1012): it returns an id that is free, without assigning it."""
    header = GetNextBrokerIdRequest(name.cluster, name.broker)
    return new_request(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header)


def apply_id_request(name: BrokerGroupName, broker_id: int, check_code: str) -> Command:
    """Build APPLY_BROKER_ID (1013): it assigns the id to the broker that knows `check_code`."""
    header = ApplyBrokerIdRequest(name.cluster, name.broker, broker_id, check_code)
    return new_request(RequestCode.CONTROLLER_APPLY_BROKER_ID, header)


def register_request(
    name: BrokerGroupName,
    broker_id: int,
    address: str,
    now_ms: int,
    *,
    unclean: bool,
    damaged: bool,
    check_code: str | None = None,
    life: int | None = None,
) -> Command:
    """Build REGISTER_BROKER (1003). `address` is for clients; `unclean`: acknowledged messages may
    be missing; `damaged`: the log or its epochs are; `check_code` proves the id; `life` identifies
    the process."""
    header = RegisterBrokerToControllerRequest(
        name.cluster,
        name.broker,
        broker_id,
        address,
        now_ms,
        unclean or None,
        damaged or None,
        check_code,
        life,
    )
    return new_request(RequestCode.CONTROLLER_REGISTER_BROKER, header)


def elect_request(name: BrokerGroupName, broker_id: int, now_ms: int) -> Command:
    """Build ELECT_MASTER (1002), sent by the broker `broker_id`, which may be elected; another
    member may be, too."""
    header = ElectMasterRequest(name.broker, name.cluster, broker_id, invoke_time=now_ms)
    return new_request(RequestCode.CONTROLLER_ELECT_MASTER, header)


def replica_info_request(name: BrokerGroupName) -> Command:
    """Build GET_REPLICA_INFO (1004): the present master and SyncStateSet."""
    return new_request(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequest(name.broker))


def alter_set_request(
    name: BrokerGroupName, broker_id: int, epoch: int, proposal: Proposal, now_ms: int
) -> Command:
    """Build ALTER_SYNC_STATE_SET (1001): the master `broker_id` of `epoch` proposes a set."""
    fence = proposal.fence or None
    header = AlterSyncStateSetRequest(name.broker, broker_id, epoch, now_ms, fence)
    body = SyncStateSet(proposal.members, proposal.set_epoch).encode()
    return new_request(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, body)


# Answers; all raise BadResponse


def check_response(response: Command | str, *also: int) -> Command:
    """Return the answer if it is a success or has one of the codes `also`; raises BadResponse, with
    the code, for any other answer or none."""
    if isinstance(response, str):
        raise BadResponse(response)
    if response.code != ResponseCode.SUCCESS and response.code not in also:
        raise BadResponse(response.remark or f"refused with code {response.code}", response.code)
    return response


def read_next_id(response: Command | str) -> int:
    """Read the answer to 1012: a free broker id, 1 or more."""
    try:
        header = read_header(GetNextBrokerIdResponse, check_response(response).fields)
    except BadHeader as error:
        raise BadResponse(str(error)) from None
    if header.next_broker_id is None or header.next_broker_id <= 0:
        raise BadResponse(f"{header.next_broker_id} is not a broker id")
    return header.next_broker_id


def read_registered(response: Command | str) -> GroupState | None:
    """Read the answer to 1003: the group's present state; None while it has no master."""
    found = check_response(response)
    group_state = _group_state(RegisterBrokerToControllerResponse, found)
    return group_state if group_state.master is not None else None


def read_elected(response: Command | str) -> GroupState:
    """Read the answer to 1002: the elected master, or the present master if it stays. Raises
    BadResponse if there is no master, too."""
    found = check_response(response, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
    try:
        header = read_header(ElectMasterResponse, found.fields)
        members = ElectMasterBody.decode(found.body).members if found.body else frozenset()
    except (BadHeader, BadBody) as error:
        raise BadResponse(str(error)) from None
    group_state = _state_of(header, SyncStateSet(members, header.sync_state_set_epoch or 0))
    if group_state.master is None:
        raise BadResponse("no master was elected")
    return group_state


def read_replica_info(response: Command | str) -> GroupState:
    """Read the answer to 1004; its `master` is None if the group has no master."""
    return _group_state(GetReplicaInfoResponse, check_response(response))


def read_notice(request: Command) -> GroupState:
    """Read a notice (1008), a request of a controller; its `master` is None if the group has no
    master. Raises BadResponse."""
    return _group_state(NotifyBrokerRoleChangedRequest, request)


def read_altered(response: Command | str) -> SyncStateSet:
    """Read the answer to 1001: the set in force, with its epoch."""
    found = check_response(response)
    try:
        header = read_header(AlterSyncStateSetResponse, found.fields)
        members = SyncStateSet.decode(found.body)
    except (BadHeader, BadBody) as error:
        raise BadResponse(str(error)) from None
    return SyncStateSet(members.members, max(members.set_epoch, header.new_sync_state_set_epoch))


def _group_state(kind: type[_Header], command: Command) -> GroupState:
    """Read a state from the header (of class `kind`) and the body of a controller's command. Raises
    BadAnswer."""
    try:
        header = read_header(kind, command.fields)
        members = SyncStateSet.decode(command.body) if command.body else SyncStateSet()
    except (BadHeader, BadBody) as error:
        raise BadResponse(str(error)) from None
    return _state_of(header, members)


def _state_of(header: _Header, members: SyncStateSet) -> GroupState:
    """Make the state from a header and a SyncStateSet. A master without an address counts as no
    master: replicas could not connect to it."""
    epoch = header.master_epoch or 0
    master = header.master_broker_id
    if master is None or master <= 0 or not header.master_address:
        return GroupState(epoch, members=members.members, set_epoch=members.set_epoch)
    return GroupState(
        epoch, master, header.master_address, members.members | {master}, members.set_epoch
    )
