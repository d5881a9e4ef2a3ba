"""What a broker asks its controllers, and what their answers say of the group.

Owns the making of the requests and the reading of answers into `Word`. It must never decide whether
a word counts: membership.py does. Called by enrolment.py, alterations.py, membership.py and the
handler of 1008.
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
"""The language by which a RocketMQ peer's answers differ from ours."""

_Header = (
    ElectMasterResponse
    | RegisterBrokerToControllerResponse
    | NotifyBrokerRoleChangedRequest
    | GetReplicaInfoResponse
)


class BadAnswer(Exception):
    """An answer that says no, or nothing; the text is for the log."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code
        """What was answered; None if nothing was."""


@dataclass(slots=True, frozen=True)
class Name:
    """The broker as controllers know it before it has an id."""

    cluster: str
    broker: str


@dataclass(slots=True, frozen=True)
class Word:
    """Who is master, and who must have a message, as a controller says it."""

    epoch: int
    master: int | None = None
    """None: there is none in that epoch."""
    address: str = ""
    members: frozenset[int] = frozenset()
    set_epoch: int = 0


# Requests


def next_id(name: Name) -> Command:
    """1012."""
    header = GetNextBrokerIdRequest(name.cluster, name.broker)
    return new_request(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header)


def apply_id(name: Name, broker_id: int, check_code: str) -> Command:
    """1013."""
    header = ApplyBrokerIdRequest(name.cluster, name.broker, broker_id, check_code)
    return new_request(RequestCode.CONTROLLER_APPLY_BROKER_ID, header)


def register(
    name: Name,
    broker_id: int,
    address: str,
    now_ms: int,
    *,
    unclean: bool,
    damaged: bool,
    check_code: str | None = None,
    life: int | None = None,
) -> Command:
    """1003."""
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


def elect(name: Name, broker_id: int, now_ms: int) -> Command:
    """1002, by the broker itself."""
    header = ElectMasterRequest(name.broker, name.cluster, broker_id, invoke_time=now_ms)
    return new_request(RequestCode.CONTROLLER_ELECT_MASTER, header)


def replica_info(name: Name) -> Command:
    """1004."""
    return new_request(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequest(name.broker))


def alter(name: Name, broker_id: int, epoch: int, proposal: Proposal, now_ms: int) -> Command:
    """1001."""
    fence = proposal.fence or None
    header = AlterSyncStateSetRequest(name.broker, broker_id, epoch, now_ms, fence)
    body = SyncStateSet(proposal.members, proposal.set_epoch).encode()
    return new_request(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, body)


# Answers; all raise BadAnswer


def checked(answer: Command | str, *also: int) -> Command:
    """The answer, if it is a success or of a code that says as much."""
    if isinstance(answer, str):
        raise BadAnswer(answer)
    if answer.code != ResponseCode.SUCCESS and answer.code not in also:
        raise BadAnswer(answer.remark or f"refused with code {answer.code}", answer.code)
    return answer


def read_next_id(answer: Command | str) -> int:
    """Of 1012."""
    try:
        header = read_header(GetNextBrokerIdResponse, checked(answer).fields)
    except BadHeader as error:
        raise BadAnswer(str(error)) from None
    if header.next_broker_id is None or header.next_broker_id <= 0:
        raise BadAnswer(f"{header.next_broker_id} is no broker id")
    return header.next_broker_id


def read_registered(answer: Command | str) -> Word | None:
    """Of 1003; None while no master lives."""
    found = checked(answer)
    word = _word(RegisterBrokerToControllerResponse, found)
    return word if word.master is not None else None


def read_elected(answer: Command | str) -> Word:
    """Of 1002: the one elected, or the one that stays."""
    found = checked(answer, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
    try:
        header = read_header(ElectMasterResponse, found.fields)
        members = ElectMasterBody.decode(found.body).members if found.body else frozenset()
    except (BadHeader, BadBody) as error:
        raise BadAnswer(str(error)) from None
    word = _made(header, SyncStateSet(members, header.sync_state_set_epoch or 0))
    if word.master is None:
        raise BadAnswer("no master was elected")
    return word


def read_replica_info(answer: Command | str) -> Word:
    """Of 1004."""
    return _word(GetReplicaInfoResponse, checked(answer))


def read_notice(request: Command) -> Word:
    """1008 itself."""
    return _word(NotifyBrokerRoleChangedRequest, request)


def read_altered(answer: Command | str) -> SyncStateSet:
    """Of 1001: the set in force."""
    found = checked(answer)
    try:
        header = read_header(AlterSyncStateSetResponse, found.fields)
        members = SyncStateSet.decode(found.body)
    except (BadHeader, BadBody) as error:
        raise BadAnswer(str(error)) from None
    return SyncStateSet(members.members, max(members.set_epoch, header.new_sync_state_set_epoch))


def _word(kind: type[_Header], command: Command) -> Word:
    try:
        header = read_header(kind, command.fields)
        members = SyncStateSet.decode(command.body) if command.body else SyncStateSet()
    except (BadHeader, BadBody) as error:
        raise BadAnswer(str(error)) from None
    return _made(header, members)


def _made(header: _Header, members: SyncStateSet) -> Word:
    """A master without an address is none: no replica could follow it."""
    epoch = header.master_epoch or 0
    master = header.master_broker_id
    if master is None or master <= 0 or not header.master_address:
        return Word(epoch, members=members.members, set_epoch=members.set_epoch)
    return Word(epoch, master, header.master_address, members.members | {master}, members.set_epoch)
