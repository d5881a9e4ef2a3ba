"""Options of the machines and drivers of replication, from the broker's configuration.

Tests: tests/unit/broker/ha/test_service.py
"""

from dataclasses import dataclass

from turbopump.broker.config.replication_config import ReplicationConfig
from turbopump.broker.ha.leader import LeaderOptions
from turbopump.net.ha.acks import AckRules, Mode
from turbopump.net.ha.default_ha import DefaultHaOptions
from turbopump.net.ha.primary import PrimaryOptions
from turbopump.net.ha.replica import ReplicaOptions
from turbopump.net.ha.sync_state import SyncOptions


@dataclass(slots=True, frozen=True, kw_only=True)
class HaOptions(ReplicationConfig):
    """The keys of replication, and the other options that replication needs. Its properties compute
    the options of each part from the keys, a new value at each call."""

    own_id: int = 1
    """The broker's id in a group that switches, from 1."""
    bind_address: str = "0.0.0.0"
    """Local address on which the HA port listens."""
    sync_flush: bool = False
    """Whether flushDiskType is SYNC_FLUSH: bytes count once they are durable, on either side."""

    @property
    def ack_rules(self) -> AckRules:
        """Rules for the number of copies that a send needs. Sends of an ASYNC_MASTER of default HA
        wait for no replica."""
        return AckRules(
            Mode.CONTROLLER if self.has_elections else Mode.PLAIN,
            self.in_sync_replicas if self.sends_wait_for_replicas else 1,
            self.min_in_sync_replicas,
            self.all_ack,
        )

    @property
    def leader_options(self) -> LeaderOptions:
        """The options of a master's connections; without haFlowControlEnable they have no byte
        quota."""
        limit = self.max_ha_transfer_byte_in_second if self.ha_flow_control_enable else None
        primary = PrimaryOptions(
            self.ha_transfer_batch_size,
            self.ha_send_heartbeat_interval_ms,
            self.ha_housekeeping_interval_ms,
        )
        return LeaderOptions(primary, limit, self.sync_flush, self.slave_timeout_ms)

    @property
    def sync(self) -> SyncOptions:
        """The options of a master's SyncStateSet; the set is fixed if haGroupFile names it."""
        return SyncOptions(
            self.own_id,
            self.ha_max_time_slave_not_catchup_ms,
            self.all_ack,
            fixed=bool(self.ha_group_file),
            check_period_ms=self.check_sync_state_set_period_ms,
            max_time_sends_wait_ms=self.ha_max_time_sends_wait_ms,
            min_in_sync_replicas=self.min_in_sync_replicas,
        )

    @property
    def replica_options(self) -> ReplicaOptions:
        """The options of a replica of AutoSwitch HA. Without allAckInSyncStateSet confirmOffset
        guarantees nothing and a new master may lack messages, so confirmed bytes may be cut."""
        return ReplicaOptions(
            self.own_id,
            self.sync_from_last_file,
            self.async_learner,
            self.ha_send_heartbeat_interval_ms,
            self.ha_housekeeping_interval_ms,
            ack_durable=self.sync_flush,
            cut_confirmed=not self.all_ack,
        )

    @property
    def default_ha_replica(self) -> DefaultHaOptions:
        """The options of a replica of default HA."""
        return DefaultHaOptions(
            self.ha_send_heartbeat_interval_ms, self.ha_housekeeping_interval_ms, self.sync_flush
        )
