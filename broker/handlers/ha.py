"""Replication requests of operators, peers and controllers.

Owns GET_BROKER_HA_STATUS (907), RESET_MASTER_FLUSH_OFFSET (908), GET_BROKER_EPOCH_CACHE (1007),
NOTIFY_MIN_BROKER_ID_CHANGE (905), EXCHANGE_BROKER_HA_INFO (906) and NOTIFY_BROKER_ROLE_CHANGED
(1008). It must never decide which broker replicates from which: the membership and broker/ha/acting
do.
"""

from functools import partial
from typing import Any, Final

from turbopump.broker.context import BrokerContext
from turbopump.broker.ha.control.controller_protocol import JAVA, BadResponse, read_notice
from turbopump.broker.handlers.json_responses import json_response
from turbopump.broker.introspection.replication import ha_status
from turbopump.broker.replication import (
    FollowerStatus,
    LeaderStatus,
    ReplicaStatus,
    ReplicationStatus,
)
from turbopump.engine.log.epochs import LOG_OFFSET_MAX
from turbopump.engine.types import LogOffset
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.admin import ResetMasterFlushOffsetRequest
from turbopump.net.wire.headers.routes import ExchangeHaInfo

NO_EPOCHS: Final = "this request only for controllerMode"
"""Remark of the refusal of 1007 and 1008, RocketMQ's. Turbopump has epochs without a controller,
too, in a group with a fixed set of members."""


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of this module's request codes to the table, which must not have them
    yet."""
    table.add(RequestCode.GET_BROKER_HA_STATUS, partial(_ha_status, broker))
    table.add(RequestCode.RESET_MASTER_FLUSH_OFFSET, partial(_reset_master_flush_offset, broker))
    table.add(RequestCode.GET_BROKER_EPOCH_CACHE, partial(_epoch_cache, broker))
    table.add(RequestCode.EXCHANGE_BROKER_HA_INFO, partial(_exchange_ha_info, broker))
    table.add(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, partial(_notify_role_changed, broker))
    table.add(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, partial(_notify_min_id, broker))


def _ha_status(broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int) -> Command:
    """Answer 907 with RocketMQ's HARuntimeInfo."""
    status = ha_status(broker)
    is_master = status.follower is None
    leader = status.leader or LeaderStatus()
    body = {
        "haClientRuntimeInfo": _client_status(status),
        "haConnectionInfo": [_connection_status(each, status.log_end) for each in leader.replicas],
        "inSyncSlaveNums": leader.in_sync_replicas if is_master else 0,
        "master": is_master,
        "masterCommitLogMaxOffset": status.log_end if is_master else 0,
    }
    return json_response(request, body)


def _connection_status(replica: ReplicaStatus, log_end: LogOffset) -> dict[str, Any]:
    """A replica's connection in the JSON form of RocketMQ's HAConnectionRuntimeInfo."""
    return {
        "addr": replica.address,
        "diff": log_end - replica.acked,
        "inSync": replica.in_sync,
        "slaveAckOffset": replica.acked,
        "transferFromWhere": replica.next_log_offset,
        "transferredByteInSecond": replica.bytes_per_second,
    }


def _client_status(status: ReplicationStatus) -> dict[str, Any]:
    """A replica's connection to its master in the JSON form of RocketMQ's HAClientRuntimeInfo; a
    master has the same members, all zero."""
    follower = status.follower or FollowerStatus()
    return {
        "lastReadTimestamp": follower.last_read_ms,
        "lastWriteTimestamp": follower.last_write_ms,
        "masterAddr": follower.master_address or None,
        "masterFlushOffset": follower.master_flushed,
        "maxOffset": status.log_end if status.follower is not None else 0,
        "transferredByteInSecond": follower.bytes_per_second,
    }


def _reset_master_flush_offset(
    broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int
) -> Command:
    """Handle 908: set a replica's master_flushed; a master answers success and changes nothing."""
    if broker.ha is not None and broker.ha.status().follower is not None:
        header = read_header(ResetMasterFlushOffsetRequest, request.fields)
        if header.master_flush_offset is not None:
            broker.ha.set_master_flushed(LogOffset(header.master_flush_offset))
    return new_response(request, ResponseCode.SUCCESS)


def _epoch_cache(broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int) -> Command:
    """Answer 1007 with RocketMQ's EpochEntryCache; the last epoch is still open, so its end is
    Java's largest long."""
    status = ha_status(broker)
    epochs = status.epochs
    if epochs is None:
        return new_response(request, ResponseCode.SYSTEM_ERROR, NO_EPOCHS)
    entries = [
        {
            "endOffset": epochs.end_of(number, LOG_OFFSET_MAX),
            "epoch": entry.epoch,
            "startOffset": entry.start,
        }
        for number, entry in enumerate(epochs)
    ]
    config = broker.config
    body = {
        "brokerId": broker.role.broker_id,
        "brokerName": config.broker_name,
        "clusterName": config.broker_cluster_name,
        "epochList": entries,
        "maxOffset": status.log_end,
    }
    return json_response(request, body)


def _exchange_ha_info(
    broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int
) -> Command:
    """Handle 906: a master announces the address that its log is copied from. A replica accepts it
    from its own master only (RocketMQ: from any peer).

    RocketMQ's masterFlushOffset is the end of a master's log at its start; the answer here is the
    current end, which a future replica does not exceed.
    """
    header = read_header(ExchangeHaInfo, request.fields)
    info = ExchangeHaInfo()
    if header.master_ha_address is not None:
        if broker.acting is not None:
            refused = broker.acting.on_master_returning(
                header.master_address or "", header.master_ha_address, header.return_number
            )
            if refused is not None:
                return new_response(request, ResponseCode.SYSTEM_ERROR, refused)
        if broker.membership is not None and header.master_address is not None:
            fenced = request.language != JAVA
            finder = broker.membership.master_finder
            finder.master_reported(header.master_address, header.master_ha_address, fenced)
    elif header.is_online:
        if broker.acting is not None and header.return_number is not None:
            broker.acting.master_serves(header.return_number)
    elif broker.ha is not None and broker.role.term is not None:
        end = LogOffset(broker.store.max_log_offset)
        info = ExchangeHaInfo(broker.ha_address, end, broker.address)
    return new_response(request, ResponseCode.SUCCESS, header=info)


def _notify_min_id(broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int) -> Command:
    """Handle 905, a one-way notice of a name server. Its content is not used, because any peer can
    send it: this broker asks the name servers itself."""
    if broker.acting is not None:
        broker.acting.on_min_broker_id_changed()
    return new_response(request, ResponseCode.SUCCESS)


def _notify_role_changed(
    broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int
) -> Command:
    """Handle 1008 of a controller (one-way from RocketMQ's). A notice without fields and body
    changes nothing."""
    if not request.fields and not request.body:
        return new_response(request, ResponseCode.SUCCESS)
    if broker.membership is None:
        return new_response(request, ResponseCode.SYSTEM_ERROR, NO_EPOCHS)
    try:
        broker.membership.on_notice(read_notice(request))
    except BadResponse as error:
        return new_response(request, ResponseCode.SYSTEM_ERROR, str(error))
    return new_response(request, ResponseCode.SUCCESS)
