"""The object that request handlers get: it ties the broker's parts together.

Owns no state itself. It must never grow logic: that belongs to the parts. Made by assembly.py,
given to every handler family's `register(table, broker)`.

Tests: tests/unit/broker/handlers/admin/test_broker.py
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from turbopump.broker.assignment.assignments import Assignments
from turbopump.broker.auth.audit_log import AuditLog
from turbopump.broker.auth.sealing import Sealer
from turbopump.broker.auth.table import AuthTable
from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.escape.bridge import Escape
from turbopump.broker.pop.service import PopService
from turbopump.broker.replication import ActingReplicas, GroupMembership, Replication
from turbopump.broker.scheduled.delay import DelayedMessages
from turbopump.broker.scheduled.timers import Timers
from turbopump.broker.scheduled.transaction_checks import TransactionChecks
from turbopump.broker.scheduled.transactions import Transactions
from turbopump.broker.scheduled.waiting import WaitingMessages
from turbopump.broker.tables.consumer_lag import ConsumerLags
from turbopump.broker.tables.consumers import ConsumerTable
from turbopump.broker.tables.filters import FilterTable
from turbopump.broker.tables.groups import GroupTable
from turbopump.broker.tables.half_counts import HalfCounts
from turbopump.broker.tables.locks import QueueLocks
from turbopump.broker.tables.long_polling import HeldPulls
from turbopump.broker.tables.offsets import OffsetTable
from turbopump.broker.tables.producers import ProducerTable
from turbopump.broker.tables.request_modes import RequestModes
from turbopump.broker.tables.statistics import BrokerStatistics
from turbopump.broker.tables.table_saver import TableSaver
from turbopump.broker.tables.topics import TopicTable
from turbopump.broker.traffic.fast_path import FastPath
from turbopump.broker.traffic.put_message import MessageWriter
from turbopump.broker.traffic.role import Role
from turbopump.engine.deferred import Deferred
from turbopump.engine.store import Store
from turbopump.net.wire.java_properties import Property
from turbopump.net.wire.message_id import UniqueIds
from turbopump.pyx.io_threads import IoThreads


@dataclass(slots=True)
class BrokerContext:
    """The parts of a running broker.

    `store_host` is the packed brokerIP1:listenPort every record is stamped with, `address` the same
    as text: both are set once the port is open, before a request is read. `register_topics` begins
    to register these topics, and resolves when every reachable name server has them (or was given
    up on). `save_config` applies changed properties at once and writes them to the configuration's
    file, if any; it resolves to None when they are durable, or to the OSError.

    `steady_ms` returns ms of the monotonic clock, for leases, waits and heartbeats: setting the
    wall clock forward an hour must not close every client, nor setting it back hold a lock for an
    hour. `started_ms` is epoch ms. `ha` is None without replication, `membership` without
    controllers, `acting` if no replica acts for its master; `ha_address` is the address `host:port`
    for replicas, "" before it is known. `users` and `audit_log` are None unless
    authenticationEnabled; `users_sealer` encrypts copies of users for replicas, None: no copies.
    `io_threads` is None while no threads read and write clients' connections. `shutting_down` is
    set when a stop begins. `assignments`, `lags`, `pop` and `waiting` are set by assembly.py, which
    has their dependencies.
    """

    config: BrokerConfig
    store: Store
    role: Role
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    consumers: ConsumerTable
    producers: ProducerTable
    locks: QueueLocks
    held_pulls: HeldPulls
    delay: DelayedMessages
    transactions: Transactions
    transaction_checks: TransactionChecks
    half_counts: HalfCounts
    timers: Timers
    request_modes: RequestModes
    filters: FilterTable
    saver: TableSaver
    statistics: BrokerStatistics
    fast: FastPath
    writer: MessageWriter
    random: random.Random
    unique_ids: UniqueIds
    escape: Escape
    started_ms: int
    register_topics: Callable[[Sequence[str]], Deferred[None]]
    save_config: Callable[[Sequence[Property]], Deferred[OSError | None]]
    steady_ms: Callable[[], int]
    address: str = ""
    store_host: bytes = b""
    shutting_down: bool = False
    ha: Replication | None = None
    ha_address: str = ""
    membership: GroupMembership | None = None
    acting: ActingReplicas | None = None
    users: AuthTable | None = None
    audit_log: AuditLog | None = None
    users_sealer: Sealer | None = None
    io_threads: IoThreads | None = None
    assignments: Assignments = field(init=False)
    lags: ConsumerLags = field(init=False)
    pop: PopService = field(init=False)
    waiting: WaitingMessages = field(init=False)
