"""The keys of replication: choice of the master, number of copies per message, and the HA protocol.

Owns their declarations (RocketMQ: MessageStoreConfig, BrokerConfig), and the checks for
contradicting values. It must never decide anything about a message.

Tests: tests/unit/broker/config/test_config.py, tests/unit/broker/ha/test_default_ha_leader.py
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from turbopump.broker.config.kinds import ADDRESS, CONTROLLERS
from turbopump.engine.keys import (
    ANY,
    BOOLEAN,
    COUNT,
    HOST,
    INT32_MAX,
    OURS,
    PORT,
    TEXT,
    enum_kind,
    integer_kind,
    key,
    keys_of,
)
from turbopump.net.ha.default_ha import GAP_NOT_IN_SYNC
from turbopump.net.ha.frames import (
    BODY_MAX,
    HEARTBEAT_INTERVAL_MS,
    HOUSEKEEPING_INTERVAL_MS,
    TRANSFER_BATCH_SIZE,
)
from turbopump.net.ha.sync_state import NOT_CAUGHT_UP_MS, SENDS_WAIT_MS

NO_ID_YET: Final = -1
"""Value of brokerId before a controller has assigned an id; RocketMQ's own examples of controller
mode have it."""


REPLICAS_MAX: Final = 32
"""Maximum copies, the master's included, that a message may need; a group has three or five."""
COPIES: Final = integer_kind(1, REPLICAS_MAX)
"""Kind of a number of copies of a message, 1 to REPLICAS_MAX."""
PERIOD: Final = integer_kind(10, INT32_MAX)
"""Kind of an interval or timeout in ms, at least 10."""
OF_MACHINE: Final = "an address of the machine"
"""Text for a default of RocketMQ that this broker does not have."""


class BrokerRole(Enum):
    """Values of RocketMQ's brokerRole, which controllers override (`is_elected`)."""

    ASYNC_MASTER = "ASYNC_MASTER"
    """A master whose sends wait for no replica."""
    SYNC_MASTER = "SYNC_MASTER"
    """A master whose sends wait for inSyncReplicas copies."""
    SLAVE = "SLAVE"
    """A replica of a configured master."""


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """All settings of replication, as BrokerConfig.replication.

    In a group with a SyncStateSet, all its members must have a message (in RocketMQ they need not),
    unless the file sets allAckInSyncStateSet.
    """

    broker_role: BrokerRole = key(
        "brokerRole",
        enum_kind(BrokerRole),
        BrokerRole.ASYNC_MASTER,
        "Master or replica, and whether sends wait for replicas; ignored if controllers"
        " elect the master.",
    )
    broker_ip2: str = key(
        "brokerIP2",
        HOST,
        "",
        "The host at which replicas find this broker; empty: brokerIP1.",
        rocketmq=OF_MACHINE,
    )
    ha_listen_port: int = key(
        "haListenPort",
        PORT,
        0,
        "Port for replicas; 0: listenPort + 1, and an ASYNC_MASTER serves no replicas.",
        rocketmq="10912",
    )
    ha_master_address: str = key(
        "haMasterAddress",
        ADDRESS,
        "",
        "Address of a replica's master; empty: the address that a name server returns.",
        shows_empty=False,
    )
    ha_send_heartbeat_interval_ms: int = key(
        "haSendHeartbeatInterval",
        COUNT,
        HEARTBEAT_INTERVAL_MS,
        "Milliseconds of silence after which a heartbeat is sent over a replication connection.",
        live=True,
    )
    ha_housekeeping_interval_ms: int = key(
        "haHousekeepingInterval",
        COUNT,
        HOUSEKEEPING_INTERVAL_MS,
        "Milliseconds of silence after which a replication connection is closed.",
        live=True,
    )
    ha_transfer_batch_size: int = key(
        "haTransferBatchSize",
        integer_kind(1, BODY_MAX),
        TRANSFER_BATCH_SIZE,
        "Maximum bytes of the log in one frame to a replica.",
        live=True,
        rocketmq="32768",
    )
    ha_max_gap_not_in_sync: int = key(
        "haMaxGapNotInSync",
        COUNT,
        GAP_NOT_IN_SYNC,
        "Maximum bytes that a replica of a SYNC_MASTER may lack and still count as in sync.",
        live=True,
    )
    ha_max_time_slave_not_catchup_ms: int = key(
        "haMaxTimeSlaveNotCatchup",
        COUNT,
        NOT_CAUGHT_UP_MS,
        "Milliseconds that a replica may lack bytes of the log before it leaves the SyncStateSet.",
        live=True,
    )
    ha_max_time_sends_wait_ms: int = key(
        "haMaxTimeSendsWait",
        ANY,
        SENDS_WAIT_MS,
        "Milliseconds that sends may wait for one member of the SyncStateSet before it"
        " leaves; 0: only haMaxTimeSlaveNotCatchup counts.",
        live=True,
        rocketmq=OURS,
    )
    slave_timeout_ms: int = key(
        "slaveTimeout",
        COUNT,
        3_000,
        "Milliseconds that a send waits for replicas.",
        live=True,
    )
    in_sync_replicas: int = key(
        "inSyncReplicas",
        COPIES,
        1,
        "Copies, the master's included, that a send waits for where allAckInSyncStateSet is false.",
        live=True,
    )
    min_in_sync_replicas: int = key(
        "minInSyncReplicas",
        COPIES,
        1,
        "Minimum members of the SyncStateSet; with fewer members sends are refused.",
        live=True,
    )
    all_ack_in_sync_state_set: bool | None = key(
        "allAckInSyncStateSet",
        BOOLEAN,
        None,
        "Whether every member of the SyncStateSet must have a message before it is"
        " acknowledged; unset: true for groups that have such a set.",
        rocketmq="false",
        in_force="all_ack",
    )
    sync_from_last_file: bool = key(
        "syncFromLastFile",
        BOOLEAN,
        False,
        "Whether an empty replica copies only the master's last log file.",
    )
    async_learner: bool = key(
        "asyncLearner",
        BOOLEAN,
        False,
        "Whether this replica copies the log but never joins the SyncStateSet.",
    )
    ha_flow_control_enable: bool = key(
        "haFlowControlEnable",
        BOOLEAN,
        False,
        "Limit the bytes per second to each replica by maxHaTransferByteInSecond.",
        live=True,
    )
    max_ha_transfer_byte_in_second: int = key(
        "maxHaTransferByteInSecond",
        integer_kind(1, 2**62),
        100 << 20,
        "Maximum bytes of the log per second to one replica, with haFlowControlEnable.",
        live=True,
    )
    ha_group_file: str = key(
        "haGroupFile",
        TEXT,
        "",
        "File that names the master of the group, for a change of master without controllers.",
        rocketmq=OURS,
        shows_empty=False,
    )
    enable_controller_mode: bool = key(
        "enableControllerMode", BOOLEAN, False, "Whether controllers elect the master."
    )
    controller_addr: tuple[str, ...] = key(
        "controllerAddr", CONTROLLERS, (), "Addresses of the controllers."
    )
    store_path_broker_identity: str = key(
        "storePathBrokerIdentity",
        TEXT,
        "",
        "File of the id that the controllers assigned; empty: brokerIdentity in the store's"
        " folder.",
        shows_empty=False,
    )
    controller_heart_beat_timeout_ms: int = key(
        "controllerHeartBeatTimeoutMills",
        integer_kind(100, INT32_MAX),
        9_000,
        "Milliseconds without a heartbeat after which controllers consider this broker dead;"
        " a master's lease is derived from it.",
        rocketmq="10000",
    )
    broker_heartbeat_interval_ms: int = key(
        "brokerHeartbeatInterval",
        PERIOD,
        1_000,
        "Milliseconds between two heartbeats to the controllers, at most a third of their"
        " timeout. With enableSlaveActingMaster: to the name servers, too.",
    )
    sync_broker_metadata_period_ms: int = key(
        "syncBrokerMetadataPeriod",
        PERIOD,
        5_000,
        "Milliseconds between two requests to the controllers for the current master.",
    )
    sync_controller_metadata_period_ms: int = key(
        "syncControllerMetadataPeriod",
        PERIOD,
        10_000,
        "Milliseconds between two requests for the leading controller.",
    )
    broker_election_priority: int = key(
        "brokerElectionPriority",
        ANY,
        INT32_MAX,
        "Priority in elections; the broker with the lowest number is preferred.",
    )
    check_sync_state_set_period_ms: int = key(
        "checkSyncStateSetPeriod",
        ANY,
        0,
        "Milliseconds between two checks for members to remove from the SyncStateSet; 0:"
        " each tick.",
        live=True,
        rocketmq="5000",
    )

    def by_attribute(self) -> dict[str, Any]:
        """The values of all keys by attribute name of this class; a new dict, to be passed on as
        keyword arguments to options that have these keys and others."""
        return {attribute: getattr(self, attribute) for attribute in keys_of(ReplicationConfig)}

    enable_slave_acting_master: bool = key(
        "enableSlaveActingMaster",
        BOOLEAN,
        False,
        "Whether the replica with the lowest id serves consumers while the group has no"
        " master (with controllers: while none can be elected). All brokers of a group must"
        " have the same value.",
    )
    enable_remote_escape: bool = key(
        "enableRemoteEscape",
        BOOLEAN,
        False,
        "With enableSlaveActingMaster: whether an acting replica sends due messages to"
        " masters of other groups: delayed messages, timers, half messages, and popped"
        " messages without acknowledgement; false: they wait for its master.",
    )
    total_replicas: int = key(
        "totalReplicas",
        COPIES,
        1,
        "With enableSlaveActingMaster: number of brokers of the group. A starting master"
        " stops waiting for others once name servers know this number.",
    )
    skip_pre_online: bool = key(
        "skipPreOnline",
        BOOLEAN,
        False,
        "With enableSlaveActingMaster: whether a starting master serves at once, without"
        " first fetching newer offsets and progress from its replicas.",
    )
    sync_broker_member_group_period_ms: int = key(
        "syncBrokerMemberGroupPeriod",
        PERIOD,
        1_000,
        "With enableSlaveActingMaster: milliseconds between two requests to the name servers"
        " for the members of the group.",
    )
    broker_not_active_timeout_ms: int = key(
        "brokerNotActiveTimeoutMillis",
        integer_kind(100, 300_000),
        10_000,
        "With enableSlaveActingMaster: milliseconds without a heartbeat after which name"
        " servers consider this broker dead.",
    )
    send_heartbeat_timeout_ms: int = key(
        "sendHeartbeatTimeoutMillis",
        PERIOD,
        1_000,
        "With enableSlaveActingMaster: milliseconds that a heartbeat to a name server may take.",
    )

    lock_in_strict_mode: bool = key(
        "lockInStrictMode",
        BOOLEAN,
        False,
        "With enableSlaveActingMaster: whether each queue lock of an ordered consumer needs"
        " a majority of totalReplicas; false: the broker that receives the request grants it"
        " alone.",
    )

    @property
    def waits_to_lead(self) -> bool:
        """Whether a starting master must first contact its replicas (RIP-32: pre-online): with
        enableSlaveActingMaster, without skipPreOnline, if the master is fixed."""
        acts = self.enable_slave_acting_master and not self.skip_pre_online
        return acts and not self.is_slave and not self.has_elections

    @property
    def is_elected(self) -> bool:
        """Whether controllers elect the master (enableControllerMode); brokerRole and brokerId have
        no meaning then."""
        return self.enable_controller_mode

    @property
    def is_slave(self) -> bool:
        """Whether the configuration makes the broker a replica; False if controllers elect the
        master."""
        return self.broker_role is BrokerRole.SLAVE and not self.is_elected

    @property
    def has_elections(self) -> bool:
        """Whether the master may change at run time (AutoSwitch HA: haGroupFile or controllers)
        instead of being fixed by brokerRole."""
        return bool(self.ha_group_file) or self.is_elected

    @property
    def all_ack(self) -> bool:
        """Whether every member of the SyncStateSet must have a message before it is acknowledged:
        allAckInSyncStateSet, or by default `has_elections`."""
        asked = self.all_ack_in_sync_state_set
        return self.has_elections if asked is None else asked

    @property
    def needs_replication(self) -> bool:
        """Whether the broker needs a port or connection for replication: every broker but an
        ASYNC_MASTER with a fixed role, without haListenPort and without enableSlaveActingMaster,
        whose readers see its messages at once."""
        if self.broker_role is not BrokerRole.ASYNC_MASTER or self.has_elections:
            return True
        if self.enable_slave_acting_master:
            return True
        return self.ha_listen_port > 0

    @property
    def sends_wait_for_replicas(self) -> bool:
        """Whether sends wait for replicas while this broker is the master: SYNC_MASTER, or
        `has_elections`."""
        return self.has_elections or self.broker_role is BrokerRole.SYNC_MASTER

    def find_contradiction(self, broker_id: int) -> str | None:
        """The first contradiction between these settings and `broker_id` (brokerId), as a sentence
        for the operator; None without a contradiction."""
        role = self.broker_role.value
        if self.enable_slave_acting_master:
            wrong = self._contradiction_of_acting()
            if wrong is not None:
                return wrong
        elif self.enable_remote_escape:
            return (
                "enableRemoteEscape=true: only replicas that act send, and without"
                " enableSlaveActingMaster=true none acts"
            )
        if self.is_elected:
            return self._contradiction_of_elected()
        if broker_id == NO_ID_YET:
            return "brokerId=-1: only a controller gives ids (enableControllerMode=true)"
        if self.has_elections:
            return (
                None
                if broker_id
                else "haGroupFile: brokerId must be this broker's id in that file, 1 or more"
            )
        if self.is_slave and broker_id == 0:
            return "brokerRole=SLAVE: a replica's brokerId must be 1 or more, 0 is the master's"
        if not self.is_slave and broker_id != 0:
            return (
                f"brokerId={broker_id}: the id of a master (brokerRole={role}) is 0,"
                " brokerRole=SLAVE makes a replica"
            )
        if not self.is_slave and self.all_ack_in_sync_state_set:
            return (
                "allAckInSyncStateSet=true: this master has no SyncStateSet; set"
                " inSyncReplicas, the number of copies that its sends wait for"
            )
        if not self.is_slave and self.min_in_sync_replicas > 1:
            return (
                f"minInSyncReplicas={self.min_in_sync_replicas}: this master has no"
                " SyncStateSet; set inSyncReplicas, the number of copies that its sends wait"
                " for"
            )
        return None

    def _contradiction_of_acting(self) -> str | None:
        """The first contradiction of enableSlaveActingMaster with other keys, as a sentence; None
        without one."""
        if self.ha_group_file and not self.is_elected:
            return (
                "enableSlaveActingMaster=true: no replica acts for a master that haGroupFile"
                " names; remove one of the two keys"
            )
        if self.broker_heartbeat_interval_ms * 3 > self.broker_not_active_timeout_ms:
            return (
                f"brokerHeartbeatInterval={self.broker_heartbeat_interval_ms}: three must fit into"
                f" brokerNotActiveTimeoutMillis={self.broker_not_active_timeout_ms}"
            )
        return None

    def _contradiction_of_elected(self) -> str | None:
        """The first contradiction of enableControllerMode with other keys, as a sentence; None
        without one."""
        if self.ha_group_file:
            return "enableControllerMode=true: controllers elect the master; remove haGroupFile"
        if not self.controller_addr:
            return "enableControllerMode=true: controllerAddr must name the controllers"
        if self.broker_heartbeat_interval_ms * 3 > self.controller_heart_beat_timeout_ms:
            return (
                f"brokerHeartbeatInterval={self.broker_heartbeat_interval_ms}: a lease needs three"
                f" within controllerHeartBeatTimeoutMills={self.controller_heart_beat_timeout_ms}"
            )
        return None

    def list_warnings(self) -> list[str]:
        """Warnings for the operator, a sentence each, about settings that are allowed but probably
        unintended; [] without any."""
        if self.lock_in_strict_mode and not self.enable_slave_acting_master:
            return [
                "lockInStrictMode=true does nothing without enableSlaveActingMaster=true: this"
                " broker gives locks alone"
            ]
        if self.lock_in_strict_mode and self.total_replicas == 1:
            return ["lockInStrictMode=true does nothing with totalReplicas=1"]
        if not self.sends_wait_for_replicas and not self.is_slave and self.in_sync_replicas > 1:
            return [
                f"inSyncReplicas={self.in_sync_replicas}: sends wait for replicas only with"
                " brokerRole=SYNC_MASTER"
            ]
        return []
