"""Construction of the pop service from its parts, and the calls between them.

The process, the simulator and the tests use the same construction. No request is handled here.

Tests: tests/unit/broker/handlers/pop/test_pops.py
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random

from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.escape.bridge import Escape
from turbopump.broker.pop.ack_batcher import AckBatcher
from turbopump.broker.pop.ack_watermark import AckWatermark
from turbopump.broker.pop.acting_journal import ActingJournal
from turbopump.broker.pop.acting_journal_replay import ActingJournalReplay
from turbopump.broker.pop.changes import ChangedHandles
from turbopump.broker.pop.in_flight import InFlight
from turbopump.broker.pop.lives import Lives
from turbopump.broker.pop.offset_recovery import PoppedOffsets, recover_offsets
from turbopump.broker.pop.order_info import OrderedBatches
from turbopump.broker.pop.order_journal import OrderJournal
from turbopump.broker.pop.outstanding import OutstandingPops, PoppedQueue
from turbopump.broker.pop.popping import Popping
from turbopump.broker.pop.retries import RetryCopies, RetryNames
from turbopump.broker.pop.revive import REVIVE_GROUP, ReviveProgress, ReviveQueue
from turbopump.broker.pop.revive_escape import PopEscape
from turbopump.broker.pop.revive_log import ReviveLog, revive_topic
from turbopump.broker.pop.service import PopService
from turbopump.broker.pop.waiters import PopWaiters
from turbopump.broker.tables.groups import GroupTable
from turbopump.broker.tables.offsets import OffsetTable
from turbopump.broker.tables.table_saver import TableSaver
from turbopump.broker.tables.topics import TopicTable
from turbopump.broker.traffic.fast_path import FastPath
from turbopump.broker.traffic.put_message import MessageWriter
from turbopump.broker.traffic.role import Role
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.store import Store
from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.engine.types import QueueOffset
from turbopump.pyx.pops import PopTurns


@dataclass(slots=True, frozen=True, kw_only=True)
class PopDeps:
    """The dependencies of pop. `writer` stores records and revived messages. `wall_ms` returns
    epoch ms; `call_soon` runs a callback on the loop after the present turn. `delivered_ms(now_ms)`
    returns the time up to which timers were delivered; `pulls(topic, group)` returns whether the
    group is set to pull the topic; `store_host` returns the encoded address stamped on records."""

    config: BrokerConfig
    store: Store
    role: Role
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    files: ConfigFiles
    saver: TableSaver
    random: Random
    wall_ms: Callable[[], int]
    call_soon: Callable[[Callable[[], None]], None]
    writer: MessageWriter
    fast: FastPath
    pulls: Callable[[str, str], bool]
    store_host: Callable[[], bytes]
    delivered_ms: Callable[[int], int]
    escape: Escape


def make_pop(deps: PopDeps) -> PopService:
    """Construct the pop service of a broker and load its tables; it does nothing before its first
    `step`. Effects: sets `deps.escape.apart`, and removes group offsets of former lives. Raises
    ConfigError if a file is damaged."""
    config, offsets, acks = deps.config, deps.offsets, deps.fast.acks

    def commit(queue: PoppedQueue, queue_offset: QueueOffset) -> None:
        # An offset that was reset meanwhile stays where it was set.
        if not offsets.has_reset(queue.group, queue.topic, queue.queue_id):
            offsets.commit(queue.group, queue.topic, queue.queue_id, queue_offset, deps.wall_ms())

    deletions = deps.store.deletions
    lives = Lives(deletions.deleted_ms, deps.groups.deleted_ms, deletions.in_progress)
    offsets.forget_former(lives.ended_ms)
    orders, outstanding = OrderedBatches(deps.files), OutstandingPops(commit)
    orders.load()
    notes = ActingJournal(
        deps.saver, deps.role, partial(_name_of, deps), is_elected=config.replication.is_elected
    )
    notes.load()
    topic = revive_topic(config.broker_cluster_name)
    log = ReviveLog(topic, partial(_revive_queues, deps, topic), deps.writer, notes)
    order_journal = OrderJournal(orders, log, config.revive_queue_num, config.broker_name)
    turns = PopTurns(partial(deps.random.randrange, 100))
    names = _retry_names(deps)
    popping = Popping(
        deps.store,
        deps.topics,
        offsets,
        orders,
        order_journal,
        outstanding,
        log,
        turns,
        lives,
        names,
        broker_name=config.broker_name,
        revive_queues=config.revive_queue_num,
        retry_share=config.pop.retry_probability,
    )
    waiters = PopWaiters(lambda: deps.call_soon(waiters.wake_waiters), deps.fast.watch_pops)
    copies, progress = _retry_copies(deps, lives, names), _revive_progress(deps, log.topic)
    return PopService(
        popping=popping,
        retry_names=names,
        turns=turns,
        waiters=waiters,
        orders=orders,
        order_journal=order_journal,
        outstanding=outstanding,
        in_flight=InFlight(acks.tell),
        changes=ChangedHandles(
            lambda key, offset, by: acks.mark_changed(
                key.queue_id, key.start, key.pop_time_ms, offset, by
            )
        ),
        lives=lives,
        log=log,
        acks=AckBatcher(log, deps.call_soon, deps.wall_ms),
        queue_of=lambda queue_id: ReviveQueue(
            deps.store, log.topic, queue_id, config.broker_name, copies, log, progress
        ),
        role=deps.role,
        now_ms=deps.wall_ms,
        settled=AckWatermark(deps.store, deps.delivered_ms),
        recover=lambda: _begin_recovery(deps, log.topic, orders, order_journal, notes, lives),
        escaping=_pop_escape(deps, log.topic, copies, progress, notes),
        notes=notes,
        drain=ActingJournalReplay(notes, log, deps.delivered_ms),
    )


def _revive_queues(deps: PopDeps, topic: str) -> int:
    """Return the number of queues of the revive topic. reviveQueueNum may have been greater before:
    records in the additional queues, and timers for them, remain until they are read."""
    found = deps.topics.peek_topic(topic)
    return max(
        deps.config.revive_queue_num,
        found.read_queue_nums if found is not None else 0,
        max(deps.store.queue_ids(topic), default=-1) + 1,
    )


def _begin_recovery(
    deps: PopDeps,
    topic: str,
    orders: OrderedBatches,
    order_journal: OrderJournal,
    notes: ActingJournal,
    lives: Lives,
) -> Iterator[bool]:
    """Begin the recovery of offsets and ordered batches, in steps: see recover_offsets."""
    offsets = deps.offsets
    known = PoppedOffsets(
        get=lambda queue: offsets.query(queue.group, queue.topic, queue.queue_id),
        set=lambda queue, at: offsets.commit(
            queue.group, queue.topic, queue.queue_id, at, deps.wall_ms()
        ),
        set_back_ms=lambda queue: offsets.last_reset_ms(queue.group, queue.topic, queue.queue_id),
        lives=lives,
        exists=lambda queue: (
            deps.topics.peek_topic(queue.topic) is not None
            and deps.groups.find_used(queue.group, deps.wall_ms()) is not None
        ),
        restore=lambda logged: order_journal.restore_batch(logged, deps.wall_ms()),
    )
    orders.end_former(lives.is_former)
    orders.remove_outdated(lambda topic, group, queue_id: offsets.query(group, topic, queue_id))
    places = [(TIMER_TOPIC, 0)]
    places += [(topic, queue_id) for queue_id in range(_revive_queues(deps, topic))]
    noted = [note.check_point for note in notes.all_notes() if note.check_point is not None]
    return recover_offsets(deps.store, places, topic, deps.config.broker_name, known, noted)


def _name_of(deps: PopDeps) -> str:
    """Return a name unique to this broker and time. It is not random, so that the seeds of the
    simulator stay reproducible."""
    config = deps.config
    return f"{config.store.root} {deps.store_host().hex()} {config.broker_id} {deps.wall_ms()}"


def _retry_names(deps: PopDeps) -> RetryNames:
    """Make the RetryNames by the configuration."""
    return RetryNames(
        deps.store,
        deps.topics,
        deps.groups,
        deps.offsets,
        v2=deps.config.pop.enable_retry_topic_v2,
        v1_too=deps.config.pop.retrieve_from_v1,
    )


def _retry_copies(deps: PopDeps, lives: Lives, names: RetryNames) -> RetryCopies:
    """Make the writer of revived messages."""
    return RetryCopies(
        deps.topics,
        deps.groups,
        deps.offsets,
        lives,
        deps.writer,
        deps.pulls,
        deps.store_host,
        names,
    )


def _revive_progress(deps: PopDeps, topic: str) -> ReviveProgress:
    """Make the progress of revival: offsets of the revive group."""
    offsets = deps.offsets
    return ReviveProgress(
        get=lambda queue_id: offsets.query(REVIVE_GROUP, topic, queue_id),
        set=lambda queue_id, at, now_ms: offsets.commit(REVIVE_GROUP, topic, queue_id, at, now_ms),
    )


def _pop_escape(
    deps: PopDeps,
    topic: str,
    copies: RetryCopies,
    progress: ReviveProgress,
    notes: ActingJournal,
) -> PopEscape:
    """Make the PopEscape, which receives the due timers of the revive topic on an acting
    replica."""
    role, escape = deps.role, deps.escape
    escape.special_timers = escaping = PopEscape(
        deps.store,
        escape,
        copies,
        progress,
        notes,
        (topic, partial(_revive_queues, deps, topic)),
        deps.config.broker_name,
        deps.delivered_ms,
        lambda: role.is_acting and not role.is_master and escape.is_enabled,
    )
    return escaping
