"""Replication status of every broker, even without replication. Nothing is changed here."""

from turbopump.broker.context import BrokerContext
from turbopump.broker.replication import FollowerStatus, LeaderStatus, ReplicationStatus
from turbopump.engine.types import LogOffset


def ha_status(broker: BrokerContext) -> ReplicationStatus:
    """Return the replication status now; without replication: a master without replicas, or a
    replica without a master, both without epochs."""
    if broker.ha is not None:
        return broker.ha.status()
    end = LogOffset(broker.store.max_log_offset)
    confirm = LogOffset(broker.store.dispatched_log_offset)
    if broker.role.is_master:
        return ReplicationStatus(end, confirm, leader=LeaderStatus())
    return ReplicationStatus(end, confirm, follower=FollowerStatus())
