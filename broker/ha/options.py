"""The settings of replication, under RocketMQ's names and, but for the size of a frame, with its
defaults.

Owns `HaOptions` and what the machines and drivers get of it. It must never read a file. Filled by
the broker's configuration.
"""

from dataclasses import dataclass
from enum import Enum

from turbopump.broker.ha.leader import LeaderOptions
from turbopump.net.ha.acks import AckRules, Mode
from turbopump.net.ha.frames import TRANSFER_BATCH_SIZE
from turbopump.net.ha.plain import GAP_NOT_IN_SYNC, PlainOptions
from turbopump.net.ha.primary import PrimaryOptions
from turbopump.net.ha.replica import ReplicaOptions
from turbopump.net.ha.sync_state import SyncOptions


class HaRole(Enum):
    """brokerRole: of default HA for good, of AutoSwitch HA only what it is shown as."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(slots=True, frozen=True)
class HaOptions:
    """Fields are RocketMQ's keys (milliseconds say so); `auto_switch` is enableControllerMode, or
    that there is a group file; `own_id` is the broker's id in a group that switches, from 1 on."""

    role: HaRole = HaRole.ASYNC_MASTER
    auto_switch: bool = False
    own_id: int = 1
    group_file: str = ""
    """haGroupFile: see `group`."""
    bind_address: str = "0.0.0.0"
    ha_listen_port: int = 10912
    ha_master_address: str = ""
    sync_flush: bool = False
    """flushDiskType: bytes count once they are durable, on either side."""
    ha_send_heartbeat_interval_ms: int = 5000
    ha_housekeeping_interval_ms: int = 20_000
    ha_transfer_batch_size: int = TRANSFER_BATCH_SIZE
    ha_max_gap_not_in_sync: int = GAP_NOT_IN_SYNC
    ha_flow_control_enable: bool = False
    max_ha_transfer_byte_in_second: int = 100 << 20
    ha_max_time_slave_not_catchup_ms: int = 15_000
    ha_max_time_sends_wait_ms: int = 3_000
    slave_timeout_ms: int = 3000
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    all_ack_in_sync_state_set: bool = False
    sync_from_last_file: bool = False
    async_learner: bool = False
    check_sync_state_set_period_ms: int = 0

    @property
    def rules(self) -> AckRules:
        """Of sends."""
        return AckRules(
            Mode.CONTROLLER if self.auto_switch else Mode.PLAIN,
            self.in_sync_replicas,
            self.min_in_sync_replicas,
            self.all_ack_in_sync_state_set,
        )

    @property
    def leader(self) -> LeaderOptions:
        """Of a master's connections."""
        limit = self.max_ha_transfer_byte_in_second if self.ha_flow_control_enable else None
        primary = PrimaryOptions(
            self.ha_transfer_batch_size,
            self.ha_send_heartbeat_interval_ms,
            self.ha_housekeeping_interval_ms,
        )
        return LeaderOptions(primary, limit, self.sync_flush)

    @property
    def sync(self) -> SyncOptions:
        """Of a master's SyncStateSet."""
        return SyncOptions(
            self.own_id,
            self.ha_max_time_slave_not_catchup_ms,
            self.all_ack_in_sync_state_set,
            fixed=bool(self.group_file),
            check_period_ms=self.check_sync_state_set_period_ms,
            max_time_sends_wait_ms=self.ha_max_time_sends_wait_ms,
            min_in_sync_replicas=self.min_in_sync_replicas,
        )

    @property
    def replica(self) -> ReplicaOptions:
        """Of a replica that switches. Where not every member has what is acknowledged confirmOffset
        promises nothing, and a new master may lack some of it."""
        return ReplicaOptions(
            self.own_id,
            self.sync_from_last_file,
            self.async_learner,
            self.ha_send_heartbeat_interval_ms,
            self.ha_housekeeping_interval_ms,
            ack_durable=self.sync_flush,
            cut_confirmed=not self.all_ack_in_sync_state_set,
        )

    @property
    def plain(self) -> PlainOptions:
        """Of a replica of default HA."""
        return PlainOptions(
            self.ha_send_heartbeat_interval_ms, self.ha_housekeeping_interval_ms, self.sync_flush
        )
