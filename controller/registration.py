"""Decisions of the leader on the ids, registration, lookup and removal of brokers.

Owns the rules of getNextBrokerId, applyBrokerId, registerBroker, cleanBrokerData and of the two
requests that only read (RocketMQ: ReplicasInfoManager). It must never change a table.

An id here belongs to one broker for ever, and RocketMQ is laxer: an id that was given is not given
again, even after its broker was removed; a name belongs to one cluster; a clean that names ids
removes those and no others.
"""

from turbopump.controller.elections import (
    Decision,
    Liveness,
    choose_master,
    election_event,
    is_behind,
    is_unsure,
    unregistered_remark,
)
from turbopump.controller.events import (
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    Event,
    MarkUnfit,
    UpdateBrokerAddress,
)
from turbopump.controller.state import (
    DAMAGED,
    GROUPS_MAX,
    NAME_MAX,
    REPLICAS_MAX,
    SIZE_MAX,
    UNCLEAN,
    Group,
    GroupTables,
)
from turbopump.engine.fastjson import text_size
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.controller import (
    BrokerReplicasInfo,
    ReplicaIdentity,
    ReplicasInfo,
    SyncStateSet,
)
from turbopump.net.wire.headers import controller as headers


def next_id(tables: GroupTables, header: headers.GetNextBrokerIdRequest) -> Decision:
    """Decide on a request for the id that the group's next broker must apply for (1012).

    The id is only read, not reserved: two brokers may get the same one, and `apply_id` gives it to
    one of them.
    """
    cluster, name = header.cluster_name, header.broker_name
    reply = headers.GetNextBrokerIdResponse(cluster, name)
    refusal = _name_refusal(tables, cluster, name)
    if refusal is not None:
        return Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, refusal, reply)
    reply.next_broker_id = _next_id_of(tables, name)
    return Decision(header=reply)


def apply_id(tables: GroupTables, header: headers.ApplyBrokerIdRequest) -> Decision:
    """Decide on a broker's request for an id (1013): only the id of `next_id` is given.

    An id that the same check code has already is granted again without an event, because the
    broker's answer was lost. Refused with CONTROLLER_BROKER_ID_INVALID if another id is next, and
    with CONTROLLER_INVALID_REQUEST for bad names and full tables.
    """
    cluster, name, broker_id = header.cluster_name, header.broker_name, header.applied_broker_id
    reply = headers.ApplyBrokerIdResponse(cluster, name)
    code = header.register_check_code
    refusal = _name_refusal(tables, cluster, name)
    if refusal is None and not is_name(code):
        refusal = "the register check code is empty or too long"
    group = tables.groups.get(name)
    if refusal is None and group is None and len(tables.groups) >= GROUPS_MAX:
        refusal = f"{GROUPS_MAX} broker-sets are registered"
    if refusal is None and tables.size > SIZE_MAX:
        refusal = _full_text()
    if refusal is not None:
        return Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, refusal, reply)
    known = None if group is None else group.replicas.get(broker_id)
    if known is not None and known.check_code == code:
        return Decision(header=reply)
    if broker_id != _next_id_of(tables, name) or (
        group is not None and len(group.replicas) >= REPLICAS_MAX
    ):
        return Decision(
            ResponseCode.CONTROLLER_BROKER_ID_INVALID,
            f"Fail to apply brokerId: {broker_id} in broker-set: {name}",
            reply,
        )
    address = code.partition(";")[0]
    return Decision(header=reply, events=(ApplyBrokerId(cluster, name, address, code, broker_id),))


def register(
    tables: GroupTables, header: headers.RegisterBrokerToControllerRequest, liveness: Liveness
) -> Decision:
    """Decide on the registration of a broker's new process with its id and address (1003).

    The answer's header names the master only if it is alive or is this broker; the body is the
    SyncStateSet. An unknown group, id or check code is refused with
    CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, and SYSTEM_BUSY asks the broker to repeat the request.
    CONTROLLER_INVALID_REQUEST refuses a bad address, and in full tables a longer one.

    A master's term ended with its previous process, noticed or not. It gets another term with a
    new epoch, because two terms must not share one; or another broker becomes master if this one
    is no candidate. (RocketMQ's continues in the old epoch.)
    """
    name, broker_id = header.broker_name, header.broker_id
    reply = headers.RegisterBrokerToControllerResponse(header.cluster_name, name)
    group = tables.groups.get(name)
    if group is None or group.cluster_name != header.cluster_name:
        remark = unregistered_remark(name)
        return Decision(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, remark, reply)
    if broker_id not in group.replicas:
        remark = unregistered_remark(name, broker_id)
        return Decision(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, remark, reply)
    refusal = _address_refusal(tables, group.replicas[broker_id].address, header.broker_address)
    if refusal is not None:
        return Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, refusal, reply)
    if header.register_check_code not in (None, group.replicas[broker_id].check_code):
        # All controllers lost their data: the id was given again, to another broker.
        remark = unregistered_remark(name, broker_id)
        return Decision(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, remark, reply)
    if group.master_id == broker_id and is_unsure(group, liveness, but=broker_id):
        remark = "the controllers wait a moment for brokers that may know of a later reign"
        return Decision(ResponseCode.SYSTEM_BUSY, remark, reply)
    happened: list[Event] = []
    if group.replicas[broker_id].address != header.broker_address:
        happened.append(
            UpdateBrokerAddress(group.cluster_name, name, header.broker_address, broker_id)
        )
    if group.had_master and (header.unclean or header.damaged):
        reason = DAMAGED if header.damaged else UNCLEAN
        # In another life it is recorded again, because a change of the set that the master
        # requested before must no longer count.
        is_known = group.replicas[broker_id].unfit == reason and group.master_id != broker_id
        if not (is_known and liveness.is_marked(group, broker_id, header.life)):
            happened += _unfit_events(group, broker_id, reason, liveness)
    elif group.replicas[broker_id].unfit == DAMAGED:
        # Repaired: its log may be the best one left, but may lack messages that it acknowledged.
        happened.append(MarkUnfit(name, broker_id, UNCLEAN))
    elif group.master_id == broker_id and not is_behind(group, liveness):
        happened.append(election_event(group, broker_id, liveness))
    after = group.with_events(*happened)
    master = None if is_behind(after, liveness) else after.master_id
    if master is not None and (master == broker_id or liveness.may_be_alive(after, master)):
        reply.master_broker_id, reply.master_address = after.master_id, after.master_address
        reply.master_epoch, reply.sync_state_set_epoch = after.master_epoch, after.set_epoch
    body = SyncStateSet(after.members, after.set_epoch).encode()
    return Decision(header=reply, body=body, events=tuple(happened))


def _unfit_events(group: Group, broker_id: int, reason: str, liveness: Liveness) -> list[Event]:
    """Return the events that mark a broker which may lack acknowledged messages.

    A master is replaced in the same entry: no reader must see it as unfit and master.
    """
    mark = MarkUnfit(group.broker_name, broker_id, reason)
    if group.master_id != broker_id:
        return [mark]
    after = group.with_events(mark)
    winner = choose_master(after, liveness)
    if winner is None:
        return [mark, ElectMaster(group.broker_name, None)]
    return [mark, election_event(after, winner, liveness)]


def make_notice(group: Group) -> Command:
    """Make the request, without an answer, that notifies a broker of its group's master, both
    epochs and SyncStateSet (1008); the master's id and address are None without a master."""
    header = headers.NotifyBrokerRoleChangedRequest(
        group.master_address, group.master_epoch, group.set_epoch, group.master_id
    )
    body = SyncStateSet(group.members, group.set_epoch).encode()
    return new_request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header, body, oneway=True)


def replica_info(tables: GroupTables, header: headers.GetReplicaInfoRequest) -> Decision:
    """Decide on a read of a group's master (header) and SyncStateSet (body) (1004).

    The master's id and address are None without a master, dead or not is not checked. An unknown
    group is CONTROLLER_BROKER_METADATA_NOT_EXIST.
    """
    group = tables.groups.get(header.broker_name)
    if group is None:
        remark = "Broker metadata is not existed"
        reply = headers.GetReplicaInfoResponse()
        return Decision(ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, remark, reply)
    reply = headers.GetReplicaInfoResponse(
        group.master_id, group.master_address, group.master_epoch
    )
    return Decision(header=reply, body=SyncStateSet(group.members, group.set_epoch).encode())


def sync_state_data(tables: GroupTables, names: list[str], liveness: Liveness) -> Decision:
    """Make the answer with the state of the groups of these broker names (1006).

    The body is a BrokerReplicasInfo; unknown names are left out of it. A replica counts as alive in
    it if a heartbeat came within its timeout.
    """
    groups = {name: tables.groups[name] for name in names if name in tables.groups}
    info = {name: _replicas_info(group, liveness) for name, group in groups.items()}
    return Decision(body=BrokerReplicasInfo(info).encode())


def _replicas_info(group: Group, liveness: Liveness) -> ReplicasInfo:
    """The state of a group for the response 1006: master, members and other replicas."""
    replicas = [
        ReplicaIdentity(
            group.broker_name, broker_id, one.address, liveness.is_active(group, broker_id)
        )
        for broker_id, one in sorted(group.replicas.items())
    ]
    return ReplicasInfo(
        group.master_id,
        group.master_address,
        group.master_epoch,
        group.set_epoch,
        tuple(one for one in replicas if one.broker_id in group.members),
        tuple(one for one in replicas if one.broker_id not in group.members),
    )


def decide_clean(
    tables: GroupTables, header: headers.CleanBrokerDataRequest, liveness: Liveness
) -> Decision:
    """Decide on an administrator's request to remove lost brokers of a group (1011).

    `broker_controller_ids_to_clean` is broker ids separated by ";", unknown ones are skipped; empty
    means the whole group. Living brokers, and a whole group with a master, are only removed with
    `is_clean_living_broker`; a refusal is CONTROLLER_INVALID_CLEAN_BROKER_METADATA.
    """
    name, living = header.broker_name, header.is_clean_living_broker
    group = tables.groups.get(name)
    if group is None or (header.cluster_name and header.cluster_name != group.cluster_name):
        return _clean_refused(f"Broker {name} is not existed,clean broker data failure.")
    text = (header.broker_controller_ids_to_clean or "").strip()
    if not text:
        anybody = any(liveness.may_be_alive(group, broker_id) for broker_id in group.replicas)
        if not living and (anybody or group.master_id is not None):
            return _clean_refused(f"Broker {name} is still alive, clean up failure")
        return Decision(events=(CleanBrokerData(name),))
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        return _clean_refused(
            f"Please set the option <brokerControllerIdsToClean> according to the format: {text!r}"
        )
    ids = frozenset(int(part) for part in parts) & group.replicas.keys()
    alive = [broker_id for broker_id in sorted(ids) if liveness.may_be_alive(group, broker_id)]
    if alive and not living:
        return _clean_refused(f"Broker [{name},  {alive[0]}] is still alive, clean up failure")
    return Decision(events=(CleanBrokerData(name, ids),) if ids else ())


def _clean_refused(remark: str) -> Decision:
    return Decision(ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, remark)


def _next_id_of(tables: GroupTables, name: str) -> int:
    """The id for the next broker of a group, which may not exist or be removed."""
    group = tables.groups.get(name)
    return tables.numbers_for_new_group(name).next_id if group is None else group.next_id


def is_name(text: str) -> bool:
    """Whether a text fits the tables and is printable, so that a snapshot has it unchanged."""
    return 0 < len(text) <= NAME_MAX and text.isprintable()


def _full_text() -> str:
    """The text of a refusal because the tables are full."""
    return f"all registrations together exceed {SIZE_MAX} bytes"


def _address_refusal(tables: GroupTables, known: str, address: str) -> str | None:
    """Return why a broker's address must not become `address`; None if it may. Full tables take an
    address that is not longer than the known one, so that registered brokers can restart."""
    if not is_name(address):
        return "the broker's address is empty or too long"
    if tables.size > SIZE_MAX and text_size(address) > text_size(known):
        return _full_text()
    return None


def _name_refusal(tables: GroupTables, cluster: str, name: str) -> str | None:
    """Return why a broker's names of cluster and group are refused; None if they are valid and the
    group, if it exists, is of that cluster."""
    for text in (cluster, name):
        if not is_name(text) or "#" in text:
            # RocketMQ's brokers keep both and the id in one line, separated by that sign.
            return f"{text[:NAME_MAX]!r} is no name: empty, too long, unprintable, or with a #"
    group = tables.groups.get(name)
    if group is not None and group.cluster_name != cluster:
        return f"broker-set {name} belongs to cluster {group.cluster_name}"
    return None
