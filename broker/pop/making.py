"""Construction of the pop service from its parts, and the calls between them.

The process, the simulator and the tests use the same construction. No request is handled here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random

from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.escape.bridge import Escape
from turbopump.broker.pop.hand_outs import HandOuts, PoppedQueue
from turbopump.broker.pop.joined_acks import JoinedAcks
from turbopump.broker.pop.lives import Lives
from turbopump.broker.pop.notes import PopNotes
from turbopump.broker.pop.notes_drain import NotesDrain
from turbopump.broker.pop.order_info import OrderedBatches
from turbopump.broker.pop.ordered_log import OrderedLog
from turbopump.broker.pop.popping import PopParts, Popping
from turbopump.broker.pop.recovered import PoppedOffsets, recover_offsets
from turbopump.broker.pop.retries import RetryCopies, RetryNames, RetryParts
from turbopump.broker.pop.revive import REVIVE_GROUP, ReviveProgress, ReviveQueue
from turbopump.broker.pop.revive_escape import PopEscape
from turbopump.broker.pop.revive_log import PutRecord, ReviveLog
from turbopump.broker.pop.service import PopService
from turbopump.broker.pop.settled_time import SettledTime
from turbopump.broker.pop.waiters import PopWaiters
from turbopump.broker.tables.groups import GroupTable
from turbopump.broker.tables.offsets import OffsetTable
from turbopump.broker.tables.saving import Saver
from turbopump.broker.tables.topics import TopicTable
from turbopump.broker.traffic.role import Role
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.store import Store
from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.engine.types import NewMessage, PutStatus, QueueOffset
from turbopump.pyx.pops import PopTurns


@dataclass(slots=True, frozen=True, kw_only=True)
class PopGround:
    """The dependencies of pop. `put_record` stores a record that may have to wait for its time,
    `put` stores a message as it is; both resolve once the record is as safe as a send.
    `delivered_ms` returns the time up to which timers were delivered; `pulls` returns whether a
    group is set to pull a topic."""

    config: BrokerConfig
    store: Store
    role: Role
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    files: ConfigFiles
    saver: Saver
    random: Random
    wall_ms: Callable[[], int]
    soon: Callable[[Callable[[], None]], None]
    put_record: PutRecord
    put: Callable[[NewMessage, int], Deferred[PutStatus]]
    pulls: Callable[[str, str], bool]
    store_host: Callable[[], bytes]
    delivered_ms: Callable[[int], int]
    escape: Escape


def make_pop(ground: PopGround) -> PopService:
    """Construct the pop service of a broker and load its tables. Raises ConfigError."""
    config, offsets = ground.config, ground.offsets

    def commit(queue: PoppedQueue, queue_offset: QueueOffset) -> None:
        # An offset that was reset meanwhile stays where it was set.
        if not offsets.has_reset(queue.group, queue.topic, queue.queue_id):
            offsets.commit(queue.group, queue.topic, queue.queue_id, queue_offset, ground.wall_ms())

    deletions = ground.store.deletions
    lives = Lives(deletions.deleted_ms, ground.groups.deleted_ms, deletions.going)
    offsets.forget_former(lives.ended_ms)
    orders, hand_outs = OrderedBatches(ground.files), HandOuts(commit)
    orders.load()
    notes = PopNotes(ground.saver, partial(_name_of, ground))
    notes.load()
    log = ReviveLog(config.broker_cluster_name, ground.put_record)
    log.queue_count = partial(_revive_queues, ground, log.topic)
    ordered_log = OrderedLog(orders, log, config.revive_queue_num, config.broker_name)
    turns = PopTurns(partial(ground.random.randrange, 100))
    names = _retry_names(ground)
    popping = Popping(
        PopParts(
            store=ground.store,
            topics=ground.topics,
            offsets=offsets,
            orders=orders,
            ordered_log=ordered_log,
            hand_outs=hand_outs,
            log=log,
            turns=turns,
            lives=lives,
            broker_name=config.broker_name,
            revive_queues=config.revive_queue_num,
            retry_names=names,
            retry_share=config.pop.retry_probability,
        )
    )
    waiters = PopWaiters(lambda: ground.soon(waiters.sweep))
    copies, progress = _copies(ground, lives, names), _progress(ground, log.topic)
    pop = PopService(
        popping=popping,
        retry_names=names,
        turns=turns,
        waiters=waiters,
        orders=orders,
        ordered_log=ordered_log,
        hand_outs=hand_outs,
        lives=lives,
        log=log,
        acks=JoinedAcks(log, ground.soon, ground.wall_ms),
        queue_of=lambda queue_id: ReviveQueue(
            ground.store, log.topic, queue_id, config.broker_name, copies, log, progress
        ),
        role=ground.role,
        now_ms=ground.wall_ms,
        settled=SettledTime(ground.store, ground.delivered_ms),
        recover=lambda: _recovery(ground, log.topic, orders, ordered_log, notes, lives),
        escaping=_escaping(ground, log.topic, copies, progress, notes),
        notes=notes,
        drain=NotesDrain(notes, log, ground.delivered_ms),
        is_elected=config.replication.is_elected,
    )
    log.notes = lambda: notes if pop.acts else None
    return pop


def _revive_queues(ground: PopGround, topic: str) -> int:
    """Return the number of queues of the revive topic. reviveQueueNum may have been greater before:
    records in the additional queues, and timers for them, remain until they are read."""
    found = ground.topics.peek(topic)
    return max(
        ground.config.revive_queue_num,
        found.read_queue_nums if found is not None else 0,
        max(ground.store.queue_ids(topic), default=-1) + 1,
    )


def _recovery(
    ground: PopGround,
    topic: str,
    orders: OrderedBatches,
    ordered_log: OrderedLog,
    notes: PopNotes,
    lives: Lives,
) -> Iterator[bool]:
    offsets = ground.offsets
    known = PoppedOffsets(
        get=lambda queue: offsets.query(queue.group, queue.topic, queue.queue_id),
        set=lambda queue, at: offsets.commit(
            queue.group, queue.topic, queue.queue_id, at, ground.wall_ms()
        ),
        set_back_ms=lambda queue: offsets.set_back_ms(queue.group, queue.topic, queue.queue_id),
        lives=lives,
        exists=lambda queue: (
            ground.topics.peek(queue.topic) is not None
            and ground.groups.find_used(queue.group, ground.wall_ms()) is not None
        ),
        restore=lambda logged: ordered_log.restore(logged, ground.wall_ms()),
    )
    orders.end_former(lives.is_former)
    orders.outdated(lambda topic, group, queue_id: offsets.query(group, topic, queue_id))
    places = [(TIMER_TOPIC, 0)]
    places += [(topic, queue_id) for queue_id in range(_revive_queues(ground, topic))]
    noted = [note.check_point for note in notes.all() if note.check_point is not None]
    return recover_offsets(ground.store, places, topic, ground.config.broker_name, known, noted)


def _name_of(ground: PopGround) -> str:
    """Return a name unique to this broker and time. It is not random, so that the seeds of the
    simulator stay reproducible."""
    config = ground.config
    return f"{config.store.root} {ground.store_host().hex()} {config.broker_id} {ground.wall_ms()}"


def _retry_names(ground: PopGround) -> RetryNames:
    return RetryNames(
        ground.store,
        ground.topics,
        ground.groups,
        ground.offsets,
        v2=ground.config.pop.enable_retry_topic_v2,
        v1_too=ground.config.pop.retrieve_from_v1,
    )


def _copies(ground: PopGround, lives: Lives, names: RetryNames) -> RetryCopies:
    return RetryCopies(
        RetryParts(
            topics=ground.topics,
            groups=ground.groups,
            offsets=ground.offsets,
            lives=lives,
            put=ground.put,
            pulls=ground.pulls,
            store_host=ground.store_host,
            names=names,
        )
    )


def _progress(ground: PopGround, topic: str) -> ReviveProgress:
    offsets = ground.offsets
    return ReviveProgress(
        get=lambda queue_id: offsets.query(REVIVE_GROUP, topic, queue_id),
        set=lambda queue_id, at, now_ms: offsets.commit(REVIVE_GROUP, topic, queue_id, at, now_ms),
    )


def _escaping(
    ground: PopGround,
    topic: str,
    copies: RetryCopies,
    progress: ReviveProgress,
    notes: PopNotes,
) -> PopEscape:
    role, escape = ground.role, ground.escape
    escape.apart = escaping = PopEscape(
        ground.store,
        escape,
        copies,
        progress,
        notes,
        (topic, partial(_revive_queues, ground, topic)),
        ground.config.broker_name,
        ground.delivered_ms,
        lambda: role.is_acting and not role.is_master and escape.is_on,
    )
    return escaping
