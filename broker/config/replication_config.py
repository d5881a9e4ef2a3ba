"""The keys of replication: who is master, how many copies a message needs, and the HA protocol.

Owns RocketMQ's names and defaults (MessageStoreConfig), what a value may be, and which of them
contradict each other. It must never decide anything about a message. Called by config.py; read by
role.py and broker/ha.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from turbopump.net.ha.frames import BODY_MAX, TRANSFER_BATCH_SIZE

NO_ID_YET: Final = -1
"""brokerId in RocketMQ's own examples of controller mode, where it means nothing."""


class BrokerRole(Enum):
    """RocketMQ's brokerRole."""

    ASYNC_MASTER = "ASYNC_MASTER"
    """Its sends wait for no replica."""
    SYNC_MASTER = "SYNC_MASTER"
    """Its sends wait for as many as inSyncReplicas says."""
    SLAVE = "SLAVE"


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """All that shapes replication. Defaults are RocketMQ's, but for haTransferBatchSize,
    controllerHeartBeatTimeoutMills and checkSyncStateSetPeriod (0: as often as the broker looks).

    `ha_listen_port` 0 is the port behind listenPort; `ha_master_address` "" is what the name server
    says. `all_ack_in_sync_state_set` None: where there is a SyncStateSet all of it must have
    a message (RocketMQ: need not). `ha_group_file` is ours: a group that switches by a file; so is
    `ha_max_time_sends_wait_ms`: so long sends may wait for one member of the SyncStateSet, 0: no
    time of its own.
    """

    broker_role: BrokerRole = BrokerRole.ASYNC_MASTER
    broker_ip2: str = ""
    ha_listen_port: int = 0
    ha_master_address: str = ""
    ha_send_heartbeat_interval_ms: int = 5_000
    ha_housekeeping_interval_ms: int = 20_000
    ha_transfer_batch_size: int = TRANSFER_BATCH_SIZE
    ha_max_gap_not_in_sync: int = 268_435_456
    ha_max_time_slave_not_catchup_ms: int = 15_000
    ha_max_time_sends_wait_ms: int = 3_000
    slave_timeout_ms: int = 3_000
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    all_ack_in_sync_state_set: bool | None = None
    sync_from_last_file: bool = False
    async_learner: bool = False
    ha_flow_control_enable: bool = False
    max_ha_transfer_byte_in_second: int = 100 << 20
    ha_group_file: str = ""
    enable_controller_mode: bool = False
    controller_addr: tuple[str, ...] = ()
    store_path_broker_identity: str = ""
    controller_heart_beat_timeout_ms: int = 9_000
    broker_heartbeat_interval_ms: int = 1_000
    sync_broker_metadata_period_ms: int = 5_000
    sync_controller_metadata_period_ms: int = 10_000
    broker_election_priority: int = 2**31 - 1
    check_sync_state_set_period_ms: int = 0

    @property
    def is_elected(self) -> bool:
        """Whether controllers elect the master: brokerRole and brokerId say nothing then."""
        return self.enable_controller_mode

    @property
    def is_slave(self) -> bool:
        """Whether the broker starts as a replica."""
        return self.broker_role is BrokerRole.SLAVE and not self.is_elected

    @property
    def switches(self) -> bool:
        """Whether the master is not the one of the configuration, but changes: AutoSwitch HA."""
        return bool(self.ha_group_file) or self.is_elected

    @property
    def all_ack(self) -> bool:
        """Whether every member of the SyncStateSet must have a message."""
        asked = self.all_ack_in_sync_state_set
        return self.switches if asked is None else asked

    @property
    def replicates(self) -> bool:
        """Whether the broker is one of several, or serves replicas. An ASYNC_MASTER does if it has
        a haListenPort; without one it needs no port, and readers see its messages at once."""
        if self.broker_role is not BrokerRole.ASYNC_MASTER or self.switches:
            return True
        return self.ha_listen_port > 0

    @property
    def waits(self) -> bool:
        """Whether sends wait for replicas while this broker is the master."""
        return self.switches or self.broker_role is BrokerRole.SYNC_MASTER

    def contradiction(self, broker_id: int) -> str | None:
        """What cannot be meant, as one sentence for the operator; None if all is well."""
        role = self.broker_role.value
        if self.is_elected:
            return self._contradiction_of_elected()
        if broker_id == NO_ID_YET:
            return "brokerId=-1: only a controller gives ids (enableControllerMode=true)"
        if self.switches:
            return None if broker_id else "haGroupFile: brokerId is the one in the group, 1 or more"
        if self.is_slave and broker_id == 0:
            return "brokerRole=SLAVE: a replica's brokerId must be 1 or more, 0 is the master's"
        if not self.is_slave and broker_id != 0:
            return (
                f"brokerId={broker_id}: the id of a master (brokerRole={role}) is 0,"
                " brokerRole=SLAVE makes a replica"
            )
        if not self.is_slave and self.all_ack_in_sync_state_set:
            return (
                "allAckInSyncStateSet=true: without a SyncStateSet there is no all,"
                " inSyncReplicas says how many copies a plain master waits for"
            )
        if not self.is_slave and self.min_in_sync_replicas > 1:
            return (
                f"minInSyncReplicas={self.min_in_sync_replicas}: without a SyncStateSet nothing"
                " counts it, inSyncReplicas says how many copies a plain master waits for"
            )
        return None

    def _contradiction_of_elected(self) -> str | None:
        if self.ha_group_file:
            return "enableControllerMode=true: controllers say who is master, not a haGroupFile"
        if not self.controller_addr:
            return "enableControllerMode=true: controllerAddr says where the controllers are"
        if self.broker_heartbeat_interval_ms * 3 > self.controller_heart_beat_timeout_ms:
            return (
                f"brokerHeartbeatInterval={self.broker_heartbeat_interval_ms}: a lease needs three"
                f" within controllerHeartBeatTimeoutMills={self.controller_heart_beat_timeout_ms}"
            )
        return None

    def remarks(self) -> list[str]:
        """What is allowed and hardly meant: warnings for the operator."""
        if not self.waits and not self.is_slave and self.in_sync_replicas > 1:
            return [
                f"inSyncReplicas={self.in_sync_replicas}: sends wait for replicas only with"
                " brokerRole=SYNC_MASTER"
            ]
        return []


PROPERTY_FIELDS: Mapping[str, str] = {
    "brokerRole": "broker_role",
    "brokerIP2": "broker_ip2",
    "haListenPort": "ha_listen_port",
    "haMasterAddress": "ha_master_address",
    "haSendHeartbeatInterval": "ha_send_heartbeat_interval_ms",
    "haHousekeepingInterval": "ha_housekeeping_interval_ms",
    "haTransferBatchSize": "ha_transfer_batch_size",
    "haMaxGapNotInSync": "ha_max_gap_not_in_sync",
    "haMaxTimeSlaveNotCatchup": "ha_max_time_slave_not_catchup_ms",
    "haMaxTimeSendsWait": "ha_max_time_sends_wait_ms",
    "slaveTimeout": "slave_timeout_ms",
    "inSyncReplicas": "in_sync_replicas",
    "minInSyncReplicas": "min_in_sync_replicas",
    "allAckInSyncStateSet": "all_ack_in_sync_state_set",
    "syncFromLastFile": "sync_from_last_file",
    "asyncLearner": "async_learner",
    "haFlowControlEnable": "ha_flow_control_enable",
    "maxHaTransferByteInSecond": "max_ha_transfer_byte_in_second",
    "haGroupFile": "ha_group_file",
    "enableControllerMode": "enable_controller_mode",
    "controllerAddr": "controller_addr",
    "storePathBrokerIdentity": "store_path_broker_identity",
    "controllerHeartBeatTimeoutMills": "controller_heart_beat_timeout_ms",
    "brokerHeartbeatInterval": "broker_heartbeat_interval_ms",
    "syncBrokerMetadataPeriod": "sync_broker_metadata_period_ms",
    "syncControllerMetadataPeriod": "sync_controller_metadata_period_ms",
    "brokerElectionPriority": "broker_election_priority",
    "checkSyncStateSetPeriod": "check_sync_state_set_period_ms",
}
"""RocketMQ key -> field of ReplicationConfig; haGroupFile and haMaxTimeSendsWait are ours."""

LIVE_KEYS: Final = frozenset(
    {
        "checkSyncStateSetPeriod",
        "haFlowControlEnable",
        "haHousekeepingInterval",
        "haMaxGapNotInSync",
        "haMaxTimeSendsWait",
        "haMaxTimeSlaveNotCatchup",
        "haSendHeartbeatInterval",
        "haTransferBatchSize",
        "inSyncReplicas",
        "maxHaTransferByteInSecond",
        "minInSyncReplicas",
        "slaveTimeout",
    }
)
"""Keys that may change while a broker runs."""

REPLICAS_MAX: Final = 32
"""Copies a message may be asked to have; a group has three or five."""
_INT32_MAX = 2**31 - 1
RANGES: Mapping[str, tuple[int, int]] = {
    "ha_listen_port": (0, 65_535),
    "ha_send_heartbeat_interval_ms": (1, _INT32_MAX),
    "ha_housekeeping_interval_ms": (1, _INT32_MAX),
    "ha_transfer_batch_size": (1, BODY_MAX),
    "ha_max_gap_not_in_sync": (1, _INT32_MAX),
    "ha_max_time_slave_not_catchup_ms": (1, _INT32_MAX),
    "ha_max_time_sends_wait_ms": (0, _INT32_MAX),
    "slave_timeout_ms": (1, _INT32_MAX),
    "max_ha_transfer_byte_in_second": (1, 2**62),
    "in_sync_replicas": (1, REPLICAS_MAX),
    "min_in_sync_replicas": (1, REPLICAS_MAX),
    "controller_heart_beat_timeout_ms": (100, _INT32_MAX),
    "broker_heartbeat_interval_ms": (10, _INT32_MAX),
    "sync_broker_metadata_period_ms": (10, _INT32_MAX),
    "sync_controller_metadata_period_ms": (10, _INT32_MAX),
    "broker_election_priority": (0, _INT32_MAX),
    "check_sync_state_set_period_ms": (0, _INT32_MAX),
}
"""What a number may be, both ends included."""
