"""Headers of the requests to controllers and of those that controllers send to brokers.

Owns the fields of RocketMQ's header classes of the same names (remoting/protocol/header/controller)
and the members that only ours have, marked so. It must never hold behaviour. Called by the
controller, the broker's membership and the admin client. The request of a heartbeat (904) is
`headers.routes.BrokerHeartbeatRequest`: name servers read it too.

Broker ids are those that the controller gave, never 0; times are epoch ms; -1 stands for "none" as
in RocketMQ. Members that a Java peer ignores are only written where they say something.
"""

from dataclasses import dataclass

from turbopump.net.wire.header import Int32, Int64


@dataclass(slots=True)
class AlterSyncStateSetRequest:
    """1001, AlterSyncStateSetRequestHeader; the body is a SyncStateSet with the set wanted and the
    epoch of the set in force.

    `fence` is ours: the set wanted may be the one in force, whose epoch is raised then, so that no
    request of before has an effect any more. A Java controller refuses that with 2013.
    """

    broker_name: str
    master_broker_id: Int64
    master_epoch: Int32
    invoke_time: Int64 | None = None
    fence: bool | None = None


@dataclass(slots=True)
class AlterSyncStateSetResponse:
    """1001; the body is the set now in force. 0 in a refusal."""

    new_sync_state_set_epoch: Int32 = 0


@dataclass(slots=True)
class ElectMasterRequest:
    """1002, ElectMasterRequestHeader. A broker asks with its own id, an administrator with
    `designate_elect` and the id that is to be master, the controller itself with -1."""

    broker_name: str
    cluster_name: str = ""
    broker_id: Int64 = -1
    designate_elect: bool = False
    invoke_time: Int64 | None = None


@dataclass(slots=True)
class ElectMasterResponse:
    """1002; the body is an ElectMasterBody. Without a master nothing is set."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


@dataclass(slots=True)
class RegisterBrokerToControllerRequest:
    """1003, RegisterBrokerToControllerRequestHeader.

    Four are ours, which a Java controller ignores. `unclean`, `damaged`: the broker's last stop
    may have cost it bytes that it had acknowledged; its store is damaged. `registerCheckCode` is
    that with which it got its id (1013): the id may be another broker's by now. `life`: a number
    that no other life of the broker has, from one opening of its store to the next.
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
    """1003; the body is a SyncStateSet. The last four are absent while no master lives."""

    cluster_name: str
    broker_name: str
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


@dataclass(slots=True)
class GetReplicaInfoRequest:
    """1004, GetReplicaInfoRequestHeader."""

    broker_name: str


@dataclass(slots=True)
class GetReplicaInfoResponse:
    """1004; the body is a SyncStateSet. Without a master its id and address are absent."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None


@dataclass(slots=True)
class GetMetaDataResponse:
    """1005, GetMetaDataResponseHeader. `peers` is `n0:host:port;n1:host:port;`; `term` is ours."""

    group: str
    is_leader: bool
    peers: str
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    term: Int64 | None = None


@dataclass(slots=True)
class NotifyBrokerRoleChangedRequest:
    """1008, one-way from the controller to brokers; the body is a SyncStateSet."""

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None


@dataclass(slots=True)
class CleanBrokerDataRequest:
    """1011, CleanControllerBrokerDataRequestHeader; the ids are `1;2;3`, none for all of them."""

    broker_name: str
    cluster_name: str | None = None
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Int64 | None = None


@dataclass(slots=True)
class GetNextBrokerIdRequest:
    """1012, GetNextBrokerIdRequestHeader."""

    cluster_name: str
    broker_name: str


@dataclass(slots=True)
class GetNextBrokerIdResponse:
    """1012."""

    cluster_name: str
    broker_name: str
    next_broker_id: Int64 | None = None


@dataclass(slots=True)
class ApplyBrokerIdRequest:
    """1013, ApplyBrokerIdRequestHeader; the check code is `address;epoch ms` and says who applies
    when the request is sent again."""

    cluster_name: str
    broker_name: str
    applied_broker_id: Int64
    register_check_code: str


@dataclass(slots=True)
class ApplyBrokerIdResponse:
    """1013."""

    cluster_name: str
    broker_name: str


@dataclass(slots=True)
class BrokerHeartbeatResponse:
    """904 as a controller of ours answers it; a Java controller's answer has no members.

    `lease_ms`: so long after it SENT the heartbeat the broker may serve as master; only the leading
    controller grants it, and only while no other one can lead. The others are how its group stands,
    so that a broker whose role changed need not wait for its next poll. `unknown`: the leading
    controller has no broker of that name and id.
    """

    lease_ms: Int64 | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    unknown: bool | None = None
