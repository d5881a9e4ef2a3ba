"""Headers of requests to controllers, and from controllers to brokers.

Owns the fields of RocketMQ's header classes of the same names (remoting/protocol/header/controller)
and the members that only Turbopump has, marked as ours. It must never hold behaviour. The request
of a heartbeat (904) is `headers.routes.BrokerHeartbeatRequest`, because name servers read it, too.

Broker ids are assigned by the controller and never 0; times are epoch ms; -1 stands for "none" as
in RocketMQ. Members that a Java peer ignores are only written if they have a value.

Tests: tests/wire/test_golden_controller.py
"""

from dataclasses import dataclass

from turbopump.net.wire.header import Int32, Int64


@dataclass(slots=True)
class AlterSyncStateSetRequest:
    """Request 1001 (AlterSyncStateSetRequestHeader); the body is the wanted SyncStateSet with the
    epoch of the current set.

    `fence` is ours: the wanted set may equal the current one; its epoch is then raised, so that
    earlier requests no longer have an effect. A Java controller refuses that with 2013.
    """

    broker_name: str
    master_broker_id: Int64
    master_epoch: Int32
    invoke_time: Int64 | None = None
    fence: bool | None = None


@dataclass(slots=True)
class AlterSyncStateSetResponse:
    """Response to 1001; the body is the current set, and the field its epoch, 0 in a refusal."""

    new_sync_state_set_epoch: Int32 = 0


@dataclass(slots=True)
class ElectMasterRequest:
    """Request 1002 (ElectMasterRequestHeader).

    A broker sends its own id, an administrator `designate_elect` and the id of the wanted master,
    the controller itself -1.
    """

    broker_name: str
    cluster_name: str = ""
    broker_id: Int64 = -1
    designate_elect: bool = False
    invoke_time: Int64 | None = None


@dataclass(slots=True)
class ElectMasterResponse:
    """Response to 1002; the body is an ElectMasterBody. Without a master no field is set."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


@dataclass(slots=True)
class RegisterBrokerToControllerRequest:
    """Request 1003 (RegisterBrokerToControllerRequestHeader).

    Four fields are ours; a Java controller ignores them. `unclean`: the broker's last stop may have
    lost bytes that it had acknowledged. `damaged`: its store is damaged. `registerCheckCode` is the
    code with which the broker got its id (1013), because the id may belong to another broker by
    now. `life`: a number that is unique for each opening of the broker's store.
    """

    cluster_name: str
    broker_name: str
    broker_id: Int64
    broker_address: str
    invoke_time: Int64 | None = None
    unclean: bool | None = None
    damaged: bool | None = None
    register_check_code: str | None = None
    life: Int64 | None = None


@dataclass(slots=True)
class RegisterBrokerToControllerResponse:
    """Response to 1003; the body is a SyncStateSet. The last four are absent while no master
    lives."""

    cluster_name: str
    broker_name: str
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


@dataclass(slots=True)
class GetReplicaInfoRequest:
    """Request 1004 (GetReplicaInfoRequestHeader): the master and SyncStateSet of a group."""

    broker_name: str


@dataclass(slots=True)
class GetReplicaInfoResponse:
    """Response to 1004; the body is a SyncStateSet. Without a master its id and address are
    absent."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None


@dataclass(slots=True)
class GetMetaDataResponse:
    """Response to 1005 (GetMetaDataResponseHeader).

    `peers` is `n0:host:port;n1:host:port;`; the leader's id and address are absent or empty while
    none is known; `is_leader` is of the answering controller; `term` is ours.
    """

    group: str
    is_leader: bool
    peers: str
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    term: Int64 | None = None


@dataclass(slots=True)
class NotifyBrokerRoleChangedRequest:
    """Request 1008, one-way from the controller to brokers; the body is a SyncStateSet."""

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None


@dataclass(slots=True)
class CleanBrokerDataRequest:
    """Request 1011 (CleanControllerBrokerDataRequestHeader); the ids are `1;2;3`, without ids it is
    for all of them."""

    broker_name: str
    cluster_name: str | None = None
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Int64 | None = None


@dataclass(slots=True)
class GetNextBrokerIdRequest:
    """Request 1012 (GetNextBrokerIdRequestHeader): the next free broker id of a group; it is not
    reserved."""

    cluster_name: str
    broker_name: str


@dataclass(slots=True)
class GetNextBrokerIdResponse:
    """Response to 1012: the next free broker id."""

    cluster_name: str
    broker_name: str
    next_broker_id: Int64 | None = None


@dataclass(slots=True)
class ApplyBrokerIdRequest:
    """Request 1013 (ApplyBrokerIdRequestHeader); the check code is `address;epoch ms` and
    identifies the applicant if the request is sent again."""

    cluster_name: str
    broker_name: str
    applied_broker_id: Int64
    register_check_code: str


@dataclass(slots=True)
class ApplyBrokerIdResponse:
    """Response to 1013: the id is assigned."""

    cluster_name: str
    broker_name: str


@dataclass(slots=True)
class BrokerHeartbeatResponse:
    """Response to 904 from a Turbopump controller; a Java controller's response has no members.

    `lease_ms`: time after SENDING the heartbeat in which the broker may serve as master; only the
    leading controller grants it, and only while no other controller can lead. `unknown`: the
    leading controller has no broker of that name and id. The other members are the state of the
    broker's group, so that a broker whose role changed need not wait for its next poll.
    """

    lease_ms: Int64 | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    unknown: bool | None = None
