"""Construction of a broker from its parts, and the calls between them: the only place for that.

Owns the order in which tables are loaded and the calls between the parts. It must never own a loop,
a socket or a timer, nor know its user: a process (node.py), the simulator's machines or a test's
world describe themselves in `BrokerRuntime` and pass an open store.

    config, store, topics, BrokerRuntime -> make_broker -> BrokerContext -> request_table
"""

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from turbopump.broker.assignment.assignments import AssignmentDeps, Assignments
from turbopump.broker.assignment.routes import GroupCoordinator, TopicRoutes
from turbopump.broker.auth import audit_log
from turbopump.broker.auth.audit_log import AuditLog
from turbopump.broker.auth.copies import copy_sealer
from turbopump.broker.auth.setup import make_users
from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.context import BrokerContext
from turbopump.broker.escape.bridge import Escape
from turbopump.broker.escape.topic_masters import Neighbour
from turbopump.broker.handlers import (
    assignment,
    client_relay,
    clients,
    ha,
    locks,
    offsets,
    pull,
    query,
    request_reply,
    send,
    send_back,
    timers,
    transactions,
)
from turbopump.broker.handlers.admin import auth as admin_auth
from turbopump.broker.handlers.admin import broker as admin_broker
from turbopump.broker.handlers.admin import groups as admin_groups
from turbopump.broker.handlers.admin import offsets as admin_offsets
from turbopump.broker.handlers.admin import topics as admin_topics
from turbopump.broker.handlers.admin.audited import audited_states
from turbopump.broker.handlers.guarding import make_guard
from turbopump.broker.handlers.pop import acks, notification, pops
from turbopump.broker.pop.assembly import PopDeps, make_pop
from turbopump.broker.pop.revive import REVIVE_GROUP
from turbopump.broker.scheduled.delay import DelayedMessages
from turbopump.broker.scheduled.half_escape import HalfEscape
from turbopump.broker.scheduled.timers import Timers
from turbopump.broker.scheduled.transaction_checks import TransactionChecks
from turbopump.broker.scheduled.transactions import Transactions
from turbopump.broker.scheduled.waiting import WaitingMessages
from turbopump.broker.tables.assignment_store import AssignmentStore
from turbopump.broker.tables.consumer_lag import ConsumerLags
from turbopump.broker.tables.consumers import ConsumerTable
from turbopump.broker.tables.filters import FilterTable
from turbopump.broker.tables.groups import GroupTable
from turbopump.broker.tables.half_counts import HalfCounts
from turbopump.broker.tables.locks import QueueLocks
from turbopump.broker.tables.long_polling import HeldPulls
from turbopump.broker.tables.offsets import OffsetTable
from turbopump.broker.tables.producers import ProducerTable
from turbopump.broker.tables.request_modes import POP, PULL, RequestModes
from turbopump.broker.tables.statistics import BrokerStatistics
from turbopump.broker.tables.table_saver import TableSaver
from turbopump.broker.tables.topics import TopicTable
from turbopump.broker.traffic.fast_path import FastPath
from turbopump.broker.traffic.put_message import MessageWriter
from turbopump.broker.traffic.role import Role
from turbopump.broker.unapplied_deletions import UnappliedDeletions
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.files import Files
from turbopump.engine.disk.flush import Disk
from turbopump.engine.disk.rotating_jsonl import RotatingJsonl
from turbopump.engine.store import Store
from turbopump.engine.timer.timer_files import SLOTS_TOTAL, TimerFiles
from turbopump.engine.types import QueueOffset
from turbopump.net.config.audit import audit_handlers
from turbopump.net.transport.calls import Call
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.wire.java_properties import Property
from turbopump.net.wire.message_id import UniqueIds
from turbopump.pyx.held import HeldRows

logger = logging.getLogger(__name__)

_FAMILIES = (
    send,
    send_back,
    transactions,
    request_reply,
    pull,
    offsets,
    timers,
    clients,
    assignment,
    locks,
    query,
    client_relay,
    admin_topics,
    admin_groups,
    admin_offsets,
    admin_broker,
    ha,
    pops,
    acks,
    notification,
)


@dataclass(slots=True, frozen=True, kw_only=True)
class BrokerRuntime:
    """Facilities that the process provides to the parts of a broker.

    `wall_ms` returns epoch ms and `steady_ms` ms of the monotonic clock; `native_clock` is the wall
    clock of native code, None: the system's. `call_soon` runs work on the loop's thread after the
    current turn of the loop; it drops the work if another thread uses the store by then. `run_soon`
    never drops work, which must not use the store; None: long answers are read at once. `call`
    asks another node, `neighbours` returns the masters of the same process, `disk` makes and syncs
    the files besides the log. For the others see BrokerContext.
    """

    files: ConfigFiles
    store_files: Files
    disk: Disk
    saver: TableSaver
    random: random.Random
    unique_ids: UniqueIds
    wall_ms: Callable[[], int]
    steady_ms: Callable[[], int]
    call_soon: Callable[[Callable[[], None]], None]
    register_topics: Callable[[Sequence[str]], Deferred[None]]
    save_config: Callable[[Sequence[Property]], Deferred[OSError | None]]
    call: Call
    native_clock: Callable[[], int] | None = None
    timer_slots: int = 2 * SLOTS_TOTAL
    neighbours: Callable[[], Sequence[Neighbour]] = tuple
    run_soon: Callable[[Callable[[], None]], object] | None = None


def make_broker(
    config: BrokerConfig, store: Store, topics: TopicTable, runtime: BrokerRuntime
) -> BrokerContext:
    """Make the parts of a broker and load its tables; the store is open, `topics` are loaded. The
    caller serves and starts periodic work. Raises ConfigError or StoreError for a bad table."""
    files, saver, now_ms = runtime.files, runtime.saver, runtime.wall_ms()
    role = Role(config.replication, config.broker_id, store)
    committed = OffsetTable(files, config.consumer_offset_update_version_step)
    fast = _make_fast_path(config, store, topics, role, committed, runtime)
    groups, modes = GroupTable(config, saver, fast.invalidate_groups), RequestModes(saver)
    escape = _make_escape(config, runtime)
    delivered = partial(_create_delivered_topic, store, topics, runtime.wall_ms)
    delay = DelayedMessages(store, role, files, config, escape, delivered)
    timer_files = TimerFiles(store, runtime.store_files, runtime.disk, runtime.timer_slots)
    timers = Timers(store, role, timer_files, files, config, escape, delivered)
    _add_topics(topics, store, now_ms)
    filters = FilterTable(config, saver, fast.invalidate_group)
    groups.load(now_ms)
    filters.load(now_ms)
    producers, half_counts = ProducerTable(), HalfCounts(files, fast.collect_halves)
    kept = AssignmentStore(saver, now_ms)
    for table in (committed, delay, modes, half_counts, kept, timers):
        table.load()
    _clamp_offsets(role, committed, store, now_ms)

    def host() -> bytes:
        return context.store_host

    ends = Transactions(
        *(store, role, committed, runtime.call_soon, runtime.wall_ms, host),
        *(lambda: config.transaction_op_msg_max_size, delivered, fast.lane.serve_ends),
    )
    holds = _make_held_pulls(fast, runtime)
    context = BrokerContext(
        config=config,
        store=store,
        role=role,
        topics=topics,
        groups=groups,
        offsets=committed,
        consumers=ConsumerTable(),
        producers=producers,
        locks=QueueLocks(),
        held_pulls=holds,
        delay=delay,
        transactions=ends,
        transaction_checks=TransactionChecks(
            *(ends, store, role, topics, producers, config, runtime.steady_ms, runtime.wall_ms),
            HalfEscape(ends, store, role, committed, escape),
        ),
        half_counts=half_counts,
        timers=timers,
        request_modes=modes,
        filters=filters,
        saver=saver,
        statistics=BrokerStatistics(fast.collect_delivered),
        fast=fast,
        writer=MessageWriter(
            *(config, store, role, topics, fast.lane, timers.count_at, runtime.random), host
        ),
        random=runtime.random,
        unique_ids=runtime.unique_ids,
        escape=escape,
        started_ms=now_ms,
        register_topics=runtime.register_topics,
        save_config=runtime.save_config,
        steady_ms=runtime.steady_ms,
    )
    _complete_context(context, kept, runtime)
    return context


def _make_held_pulls(fast: FastPath, runtime: BrokerRuntime) -> HeldPulls:
    """Make the table of held pulls, which attempts pulls of grown queues in the next turn."""
    holds = HeldPulls(
        lambda: runtime.call_soon(holds.attempt_grown), fast.watch_pulls, rows=fast.held_rows
    )
    return holds


def _complete_context(
    context: BrokerContext, kept: AssignmentStore, runtime: BrokerRuntime
) -> None:
    """Set the parts of `context` that need most of the others (assignments, pop, waiting messages,
    lags), then connect the callbacks of all parts."""
    context.assignments = _make_assignments(context, kept, runtime)
    context.pop = make_pop(_pop_deps(context, runtime))
    context.waiting = _waiting_messages(context)
    context.lags = ConsumerLags(
        context.store,
        context.topics,
        context.groups,
        context.offsets,
        context.consumers,
        context.pop.unacked_pops,
    )
    UnappliedDeletions(context)
    if context.config.auth.authentication_enabled:
        _add_users(context, runtime)
    _connect_callbacks(context, runtime.wall_ms)
    if not context.config.replication.needs_replication:
        context.store.notify_new_lives(context.started_ms)  # a replica waits for its role


def _add_users(context: BrokerContext, runtime: BrokerRuntime) -> None:
    """Set the table of users, whose changes answer waiting requests, and the audit log. Raises
    ConfigError, StoreError."""
    config, saver = context.config, context.saver

    def changed() -> None:
        # A request that was admitted before must not receive a message that it may no longer read.
        context.held_pulls.release_all()
        context.pop.waiters.release_all()

    files, now_ms = runtime.store_files, context.started_ms
    context.users = make_users(config.auth, files, saver, now_ms, changed)
    inner = config.auth.inner_credentials
    if inner is not None and config.replication.needs_replication:
        context.users_sealer = copy_sealer(inner.secret)
    elif inner is None and config.replication.needs_replication:
        logger.warning(
            "without innerClientAuthenticationCredentials replicas cannot copy topics, groups,"
            " offsets and users: their requests are refused"
        )
    lines = RotatingJsonl(files, f"{config.store.root}/{audit_log.FOLDER}", audit_log.NAME)
    context.audit_log = AuditLog(lines, saver.run_on_disk_thread)


def _add_topics(topics: TopicTable, store: Store, now_ms: int) -> None:
    """Add to `topics` the topics that every broker has, and topics that have queues in the
    store."""
    topics.add_boot_topics(now_ms)
    topics.create_from_store(
        lambda: {name: max(store.queue_ids(name)) + 1 for name in store.topics()}, now_ms
    )


def _create_delivered_topic(
    store: Store, topics: TopicTable, wall_ms: Callable[[], int], topic: str
) -> None:
    """Create `topic`, to which a waiting message was delivered, if the table lacks it: a new master
    may lack a topic that its predecessor created for waiting messages (R20). A deleted topic stays
    deleted."""
    if topics.peek_topic(topic) is None and topic not in store.deletions.former_life_ends():
        count = max(store.queue_ids(topic), default=-1) + 1
        topics.create_from_store(lambda: {topic: count} if count else {}, wall_ms(), always=True)


def _waiting_messages(context: BrokerContext) -> WaitingMessages:
    """Make the WaitingMessages of the timers, delay levels, half messages and pop check points."""
    check_points = context.pop.log.topic, REVIVE_GROUP
    return WaitingMessages(
        context.store,
        context.offsets,
        context.delay,
        context.timers,
        context.transaction_checks,
        check_points,
    )


def _clamp_offsets(role: Role, committed: OffsetTable, store: Store, now_ms: int) -> None:
    """On a master, set committed offsets that are beyond the end of their queue, which a power cut
    may have shortened, back to that end, and save them. New messages will take the lost places, so
    no offset may stay beyond the end, nor return after another crash (R14). An elected broker does
    this when it begins to lead (broker/ha/metadata/pulling.py)."""
    if not role.is_master:
        return
    found = committed.clamp_to_ends(store.next_queue_offset, now_ms)
    if not found:
        return
    logger.warning("%d consumer offsets were beyond the log's end and were set back to it", found)
    try:
        committed.save()
    except OSError as error:
        logger.warning("the corrected offsets are not saved yet: %s", error)
        committed.save_failed()


def request_table(context: BrokerContext) -> Dispatcher:
    """Make the Dispatcher with the handlers of all request codes of a broker, behind the guard if
    authenticationEnabled. An answer is held until the changes of its request are saved."""
    table = Dispatcher(context.saver.hold_until_saved, make_guard(context))
    for family in _FAMILIES:
        family.register(table, context)
    if context.users is not None and context.audit_log is not None:
        sealer = context.users_sealer
        role = context.role
        admin_auth.register(
            *(table, context.users, context.audit_log, sealer), lambda: role.is_master
        )
    audit_handlers(table, audited_states(context))
    return table


def _make_assignments(
    context: BrokerContext, kept: AssignmentStore, runtime: BrokerRuntime
) -> Assignments:
    """Make the assignments of queues to consumers, with the topic routes that they need."""
    config = context.config

    def own_coordinator() -> GroupCoordinator:
        return GroupCoordinator(config.broker_name, context.role.broker_id, context.address)

    routes = TopicRoutes(
        runtime.call,
        lambda: config.namesrv_addr,
        lambda topic: (context.topics.get(topic), own_coordinator()),
        runtime.steady_ms,
        run_soon=runtime.run_soon,
    )
    return Assignments(
        AssignmentDeps(
            config=config,
            consumers=context.consumers,
            modes=context.request_modes,
            kept=kept,
            routes=routes,
            call=runtime.call,
            coordinator=own_coordinator,
            steady_ms=runtime.steady_ms,
            wall_ms=runtime.wall_ms,
            run_on_disk_thread=context.saver.run_on_disk_thread,
            call_soon=runtime.call_soon,
        )
    )


def _pop_deps(context: BrokerContext, runtime: BrokerRuntime) -> PopDeps:
    """Collect the broker's parts that the pop service needs."""
    return PopDeps(
        config=context.config,
        store=context.store,
        role=context.role,
        topics=context.topics,
        groups=context.groups,
        offsets=context.offsets,
        files=runtime.files,
        saver=runtime.saver,
        random=runtime.random,
        wall_ms=runtime.wall_ms,
        call_soon=runtime.call_soon,
        writer=context.writer,
        fast=context.fast,
        pulls=context.request_modes.is_set_to_pull,
        store_host=lambda: context.store_host,
        delivered_ms=context.timers.delivered_ms,
        escape=context.escape,
    )


def _make_fast_path(
    config: BrokerConfig,
    store: Store,
    topics: TopicTable,
    role: Role,
    committed: OffsetTable,
    runtime: BrokerRuntime,
) -> FastPath:
    """Make the FastPath, which lets native code serve plain sends, pulls, pops and
    acknowledgements."""
    is_due = False

    def commit_soon() -> None:
        # Requests that the same turn of the loop reads from other connections share the commit.
        nonlocal is_due
        if not is_due:
            is_due = True
            runtime.call_soon(commit)

    def commit() -> None:
        nonlocal is_due
        is_due = False
        store.commit()

    def commit_pulled(
        group: bytes, topic: bytes, queue_id: int, queue_offset: int, now_ms: int
    ) -> None:
        committed.commit_consumed(
            group.decode(), topic.decode(), queue_id, QueueOffset(queue_offset), now_ms
        )

    lane = store.make_lane(
        lambda: runtime.call_soon(store.notify_arrivals), runtime.native_clock, commit_soon
    )
    pulls, popped = store.make_pulls(commit_pulled), store.make_pulls(commit_pulled)
    rows = HeldRows(lane, pulls, post=runtime.call_soon, steady_ms=runtime.steady_ms)
    return FastPath(lane, pulls, popped, rows, config, topics, role, committed)


def _is_popped(context: BrokerContext, topic: str, group: str) -> bool:
    """Whether a group pops a topic: its mode is pop, or it has no mode and has messages in
    flight."""
    mode, pop = context.request_modes.get(topic, group).mode, context.pop
    if mode in (POP, PULL):
        return mode == POP
    return pop.in_flight.count_of(group, topic, pop.now_ms()).messages > 0


def _make_escape(config: BrokerConfig, runtime: BrokerRuntime) -> Escape:
    return Escape(
        config,
        runtime.call,
        runtime.steady_ms,
        runtime.wall_ms,
        runtime.neighbours,
        runtime.run_soon,
    )


def _min_queue_offset(store: Store, topic: bytes, queue_id: int) -> int:
    return store.min_queue_offset(topic.decode(), queue_id)


def _count_native_pops(
    context: BrokerContext,
    group: bytes,
    topic: bytes,
    until_ms: int,
    floor: int,
    change: int,
    acked: int,
    queue_id: int,
    first: int,
) -> None:
    """Add native pops and acknowledgements of messages hidden until `until_ms` (epoch ms) to the
    counts of messages in flight, and `acked` acknowledged messages to the statistics; for `floor`
    and `change` see InFlight.apply_native. `first` is the queue offset of the first message popped
    of queue `queue_id`; -1: none was popped."""
    pair = group.decode(), topic.decode()
    if acked:
        context.statistics.count_acked(*pair, acked, acked)
    place = None if queue_id < 0 else (queue_id, QueueOffset(first))
    context.pop.in_flight.apply_native(pair, until_ms, floor, change, place, context.pop.now_ms())


def _offsets_for_native_pops(
    context: BrokerContext,
    group: bytes,
    topic: bytes,
    queues: int,
    retries: list[tuple[bytes, int]],
) -> list[int] | None:
    """Return the next queue offset of each queue for native pops of a group, or None if Python has
    to pop; see Popping.offsets_for_native_pops."""
    names = [(name.decode(), count) for name, count in retries]
    found = context.pop.popping.offsets_for_native_pops(
        group.decode(), topic.decode(), queues, names
    )
    return None if found is None else list(found)


def _connect_native_pops(context: BrokerContext) -> None:
    """Let native code serve pops and acknowledgements, and connect its callbacks to the pop
    service."""
    fast, pop, store = context.fast, context.pop, context.store
    fast.acks.configure(pop.log.topic.encode(), context.config.revive_queue_num)
    fast.acks.begin(partial(_min_queue_offset, store), partial(_count_native_pops, context))
    fast.pops.begin(
        pop.turns,
        partial(_offsets_for_native_pops, context),
        lambda topic, queue_id: pop.waiters.on_arrival(topic.decode(), queue_id),
    )
    fast.lane.serve_pops(fast.pops)
    context.offsets.collect_popped = fast.collect_popped


def _connect_callbacks(context: BrokerContext, wall_ms: Callable[[], int]) -> None:
    """Set the callbacks between the parts: changes of topics, groups and resets discard permissions
    of the native path, and arrivals wake held pulls and waiting pops. `wall_ms` returns epoch
    ms."""
    fast, holds, assignments = context.fast, context.held_pulls, context.assignments
    waiters = context.pop.waiters

    def on_offset_reset(topic: str, queue_id: int) -> None:
        fast.invalidate_readers()
        holds.attempt_all(topic, queue_id)
        waiters.on_arrival(topic, queue_id)

    def on_topics_replaced(names: list[str]) -> None:
        fast.invalidate_topics(names)
        store.forget_targets()
        assignments.topics_changed(names)

    def consumers_changed(group: str) -> None:
        fast.invalidate_group(group)
        if context.consumers.group(group) is None:
            context.filters.unregister(group, wall_ms())
        assignments.group_changed(group)

    def on_arrival(topic: str, queue_id: int, max_queue_offset: QueueOffset) -> None:
        holds.on_arrival(topic, queue_id, max_queue_offset)
        waiters.on_arrival(topic, queue_id)

    def on_topics_made(names: list[str]) -> None:
        fast.on_topics_created(names)
        store.forget_targets()

    store = context.store
    fast.held_rows.hand_over = partial(pull.resume_native_pull, context, wall_ms)
    store.queue_of = context.topics.queue_of
    context.topics.on_made = on_topics_made
    store.on_arrival(on_arrival)
    context.offsets.on_reset = on_offset_reset
    context.offsets.is_popped = partial(_is_popped, context)
    context.offsets.collect = fast.collect_offsets
    _connect_native_pops(context)
    context.topics.on_replace = on_topics_replaced
    context.consumers.on_change = consumers_changed
    if context.store.extensions is not None:
        context.store.extensions.bit_map = context.filters.bit_map
