"""Transactions: the open half messages, and their ends.

Owns the outcomes of half messages, the op messages that record them for the next master, and the
progress in both topics (offsets of CID_RMQ_SYS_TRANS). It must never show a half message, nor write
without the role, nor publish a progress ahead of the records that the disk and the replicas have.

    not master --> reading op messages --all read--> ready
         ^                 |                           |
         '---------- role changed --------------------'

The log alone defines a transaction: half messages, committed messages, op messages. A new master
reads the op messages, and looks in the index for ends that a crash left without one (`known_from`):
the committed message is before its op message in the log, so a crash between them leaves a half
message that seems open and is committed. It is found by its unique key, and never committed again
(F31, I15).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from turbopump.broker.scheduled.half_messages import (
    is_committed,
    op_message,
    read_op,
    same_body,
    target_of,
    unique_key,
)
from turbopump.broker.scheduled.transaction_outcomes import TransactionOutcome, TransactionOutcomes
from turbopump.broker.tables.offsets import OffsetTable
from turbopump.broker.traffic.role import Put, Role
from turbopump.engine.store import Store
from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.engine.types import LogOffset, PutStatus, QueueOffset
from turbopump.net.wire import properties as names
from turbopump.net.wire.names import (
    GIVEN_UP_TOPIC,
    HALF_QUEUE_ID,
    HALF_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    TRANSACTION_GROUP,
)
from turbopump.net.wire.properties import decode_properties
from turbopump.pyx.record import Record, decode
from turbopump.pyx.region import Region

logger = logging.getLogger(__name__)

OPS_PER_STEP: Final = 128
"""Maximum number of op messages read in one step at the start of a term: some 2 ms."""
MAX_WAITING: Final = 1_000
"""Maximum number of requests that wait until op messages are read, or until a half message can be
read."""
MAX_PENDING: Final = 20_000
"""Maximum number of half messages that wait for an op message while none can be written (RocketMQ:
the capacity of its queue)."""
OPS_APART_MS: Final = 10
"""Minimum interval in ms between op messages while fewer than OPS_AT_ONCE half messages are
pending: an op message costs as much as several ends."""
OPS_AT_ONCE: Final = 256
"""Number of pending half messages at which an op message is written before OPS_APART_MS has
passed."""
_FINAL = (TransactionOutcome.COMMITTED, TransactionOutcome.ROLLED_BACK, TransactionOutcome.GIVEN_UP)
_HITS: Final = 32
_TIMERS = (names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS)
_FOREVER_MS = 2**62


@dataclass(frozen=True, slots=True)
class Half:
    """A half message, its offsets in HALF_TOPIC and in the log, and its decoded properties."""

    queue_offset: QueueOffset
    log_offset: LogOffset
    record: Record
    properties: dict[str, str]


class Transactions:
    """The open half messages of a broker and the outcomes of transactions, with the op messages
    that record them. Loop thread only; times are epoch ms. `call_soon` runs work at the end of the
    loop's turn, `host` returns the packed address in op messages, `op_size` the maximum of bytes of
    their bodies (transactionOpMsgMaxSize). `serve_ends` gets the outcomes that the native path may
    end; None: it may end nothing."""

    def __init__(
        self,
        store: Store,
        role: Role,
        offsets: OffsetTable,
        call_soon: Callable[[Callable[[], None]], None],
        wall_ms: Callable[[], int],
        host: Callable[[], bytes],
        op_size: Callable[[], int],
        on_delivered: Callable[[str], None],
        serve_ends: Callable[[TransactionOutcomes | None], None],
    ) -> None:
        self._store, self._role, self._offsets = store, role, offsets
        self._call_soon, self._wall_ms, self._host, self._op_size = (
            call_soon,
            wall_ms,
            host,
            op_size,
        )
        self.known_from = LogOffset(0)
        """End of the log when this term began: half messages before it may have been ended by a
        broker whose op message is lost."""
        self.outcomes: TransactionOutcomes | None = None
        """The outcomes of this term; None until it has begun."""
        self.is_ready = False
        """Whether all op messages of earlier terms are read."""
        self._read_to = QueueOffset(0)
        self._written_ms = 0
        """When op messages were last written."""
        self._renewed: dict[QueueOffset, QueueOffset] = {}
        self._waiting: list[tuple[LogOffset, Callable[[], None]]] = []
        self._late: dict[str, LogOffset] = {}
        """Unique keys of committed messages that the index may not have yet, with the ends of their
        records."""
        self._candidate: tuple[QueueOffset, LogOffset] | None = None
        self.on_delivered = on_delivered
        """Called with a topic that got a committed message."""
        self._serve_ends = serve_ends
        role.on_change.append(self.role_changed)

    def role_changed(self) -> None:
        """Drop all state, and call the callbacks of `when_readable`: the log may be cut, and
        another broker decides about pending transactions."""
        self.outcomes, self.is_ready = None, False
        self._serve_ends(None)
        self._renewed, self._late, self._candidate = {}, {}, None
        waiting, self._waiting = self._waiting, []
        for _, callback in waiting:
            callback()

    def step(self, now_ms: int) -> bool:
        """On a master: read op messages at the start of a term, then write op messages and publish
        the progress. Returns whether to call again at once; False on a replica."""
        if not self._role.is_master:
            return False
        if self.outcomes is None:
            self._begin_term()
        if not self.is_ready:
            return self._read_ops()
        self._call_waiting()
        self.current_outcomes.notified = False  # a call at the end of a turn may have been lost
        self.write_ops(now_ms)
        self._publish_progress(now_ms)
        return False

    # Queries of requests

    def offset_to_await(self, at: LogOffset) -> LogOffset | None:
        """Return the log offset to pass to `when_readable` before the half message at log offset
        `at` can be judged, -1 while op messages are not read; None: it can be judged now."""
        store = self._store
        if not self.is_ready:
            return LogOffset(-1)
        return at if store.dispatched_log_offset <= at < store.max_log_offset else None

    def when_readable(self, at: LogOffset, callback: Callable[[], None]) -> bool:
        """Call `callback` later, once, when op messages are read and the record at log offset `at`
        can be read, or when the role changes: the caller calls `awaited` again. Returns False,
        without a later call, if MAX_WAITING requests wait."""
        if len(self._waiting) >= MAX_WAITING:
            return False
        self._waiting.append((at, callback))
        return True

    def read_outcomes(self) -> bool:
        """Read the outcomes of half messages on an acting replica, as a new master does, without
        writing; return whether to call again at once."""
        if self.outcomes is None:
            self._begin_term()
        return not self.is_ready and self._read_ops()

    def half_at(self, queue_offset: QueueOffset, topic: str = HALF_TOPIC) -> Half | None:
        """Return the half message at that queue offset of HALF_TOPIC, or the given-up one of
        `topic`; None if it is not there or cannot be read."""
        units = self._store.units(topic, HALF_QUEUE_ID, queue_offset, 1)
        if not units or units[0].queue_offset != queue_offset:
            return None
        record = self._store.record_of(units[0])
        if record is None:
            return None
        log_offset, properties = units[0].log_offset, decode_properties(record.properties)
        return Half(queue_offset, log_offset, record, properties)

    def find_outcome(
        self, half: Half, *, asks_index: bool = False
    ) -> tuple[TransactionOutcome, Half] | None:
        """Return (outcome of the transaction, its half message that counts): for an open one the
        newest, which a producer may not know. None: that half message cannot be read yet, so try
        again later. Half messages found to be committed are ended here.

        `asks_index`: look for other half messages even if nothing indicates any. A send that
        arrived twice makes two (F32). Requires `is_ready`.
        """
        known = self.current_outcomes.get(half.queue_offset)
        if known in _FINAL:
            return known, half
        if (
            known is TransactionOutcome.OPEN
            and not self._may_be_ended_before(half)
            and not asks_index
        ):
            return known, half
        if self._has_committed_message(half):
            self._end_open([half, *self.halves_of(half)], TransactionOutcome.COMMITTED)
            return TransactionOutcome.COMMITTED, half
        halves = self.halves_of(half)
        for each in halves:
            known = self.current_outcomes.get(each.queue_offset)
            if known in _FINAL:
                return known, each
        newest = self._newest_half([half, *halves])
        if newest is None:
            return None
        known = self.current_outcomes.get(newest.queue_offset)
        is_open = known is TransactionOutcome.OPEN
        if known not in (TransactionOutcome.DONE, None) and not (
            is_open and self._may_be_ended_before(newest)
        ):
            return known, newest
        # Its last record may be that it was given up. Else, if op messages name it, it ended.
        last = max(half.log_offset, newest.log_offset)
        if any(at >= last for at, _ in self._records_of(GIVEN_UP_TOPIC, half)):
            return TransactionOutcome.GIVEN_UP, newest
        return (TransactionOutcome.OPEN, newest) if is_open else (TransactionOutcome.DONE, half)

    def _may_be_ended_before(self, half: Half) -> bool:
        """Whether an earlier term may have ended the half message's transaction, and the op message
        is lost."""
        return half.log_offset < self.known_from

    def end_all(self, half: Half, outcome: TransactionOutcome, end: LogOffset) -> None:
        """Record the outcome of a whole transaction after a record that ends at log offset `end`
        was appended: of its newest half message, and of older ones that a crash left open, or that
        are not remembered. Op messages for them are written soon."""
        is_known = self.current_outcomes.get(half.queue_offset) is not None
        if is_known:
            self.record_end(half.queue_offset, outcome)  # also for a half message that was given up
            if not self._may_be_ended_before(half):
                return
        self._end_open(self.halves_of(half), outcome)
        if outcome is TransactionOutcome.COMMITTED and unique_key(half.properties):
            self._late[unique_key(half.properties)] = end

    @property
    def open_count(self) -> int:
        """Number of open half messages; 0 if unknown, as on a broker that is not the master."""
        if not self.is_ready:
            return 0
        return self.current_outcomes.open_count(
            self._store.next_queue_offset(HALF_TOPIC, HALF_QUEUE_ID)
        )

    @property
    def current_outcomes(self) -> TransactionOutcomes:
        """The outcomes of this term. Asserts that the term has begun (`outcomes` is set)."""
        assert self.outcomes is not None, "asked before op messages were read"
        return self.outcomes

    # Writes

    def record_end(self, queue_offset: QueueOffset, outcome: TransactionOutcome) -> None:
        """Record the outcome of the half message at `queue_offset`; an op message for it is written
        soon. The caller has appended the record that makes the outcome true."""
        self.current_outcomes.end(queue_offset, outcome)

    def note_renewed(self, old: QueueOffset, new: QueueOffset) -> None:
        """Record that the half message at queue offset `old` was stored again at `new`; it counts
        as DONE."""
        self._renewed[old] = new
        self.record_end(old, TransactionOutcome.DONE)

    @property
    def is_full(self) -> bool:
        """Whether MAX_PENDING ended half messages wait for op messages or the index, so that no
        transaction may be ended now."""
        return self.current_outcomes.is_full or len(self._late) >= MAX_PENDING

    def write_ops(self, now_ms: int) -> Put | None:
        """Append the pending op messages now. Return the last append, for `Role.when_safe`; None if
        nothing was pending or an append failed: the rest is tried again at the next step."""
        put, known = None, self.outcomes
        while known is not None and known.waiting:
            permit = self._role.admit_append()
            if isinstance(permit, PutStatus):
                return None
            body, count, newest = known.op_body(self._op_size())
            appended = self._store.append(op_message(body, now_ms, self._host()), now_ms)
            if appended.status is not PutStatus.PUT_OK:
                return None
            known.written(count)
            known.note_op(appended.queue_offset, QueueOffset(newest))
            put = Put(appended, permit)
            self._written_ms = now_ms
        return put

    def _schedule_ops(self) -> None:
        """Have op messages written at the end of the turn."""
        self._call_soon(self._write_due)

    def _write_due(self) -> None:
        """Write op messages at the end of a turn, unless some were written a moment ago: then one
        op message names the ends of several turns, at a tick soon after."""
        known = self.outcomes
        if known is None:
            return
        known.notified = False
        now_ms = self._wall_ms()
        if known.waiting >= OPS_AT_ONCE or not 0 <= now_ms - self._written_ms < OPS_APART_MS:
            self.write_ops(now_ms)

    # A term, from its beginning to its end

    def _begin_term(self) -> None:
        """Begin a term: set the outcomes from the published progress."""
        store = self._store
        self.known_from = store.max_log_offset
        base = self._published_progress(HALF_TOPIC)
        self._read_to = op_base = self._published_progress(OP_TOPIC)
        self.outcomes = TransactionOutcomes(
            base, op_base, self.known_from, MAX_PENDING, self._schedule_ops
        )

    def _published_progress(self, topic: str) -> QueueOffset:
        """Return the published progress in the topic, which the previous master wrote, limited to
        this log (R12)."""
        store = self._store
        at = self._offsets.query(TRANSACTION_GROUP, topic, HALF_QUEUE_ID)
        low = store.min_queue_offset(topic, HALF_QUEUE_ID)
        return QueueOffset(min(max(at, low), store.next_queue_offset(topic, HALF_QUEUE_ID)))

    def _read_ops(self) -> bool:
        """Read some op messages of earlier terms; return whether there are more."""
        store, known = self._store, self.current_outcomes
        if store.dispatched_log_offset < self.known_from:
            return False  # replicas must have these records first
        end = store.next_queue_offset(HALF_TOPIC, HALF_QUEUE_ID)
        units = store.units(OP_TOPIC, HALF_QUEUE_ID, self._read_to, OPS_PER_STEP)
        for unit in units:
            record = store.record_of(unit)
            named = [] if record is None else [at for at in read_op(record) if at < end]
            for at in named:
                if known.get(at) is TransactionOutcome.OPEN:
                    known.set_mark(at, TransactionOutcome.DONE)
            newest = max(named, default=QueueOffset(known.base))
            known.note_op(unit.queue_offset, newest)
            self._read_to = QueueOffset(unit.queue_offset + 1)
        if units:
            return True
        if self._read_to < store.max_queue_offset(OP_TOPIC, HALF_QUEUE_ID):
            self._read_to = QueueOffset(self._read_to + 1)  # a unit that cannot be read
            return True
        self.is_ready = True
        self._serve_ends(known)
        self._call_waiting()
        return False

    def _call_waiting(self) -> None:
        """Call the callbacks whose record can be read now."""
        waiting, self._waiting = self._waiting, []
        dispatched = self._store.dispatched_log_offset
        for log_offset, callback in waiting:
            if log_offset < dispatched:
                callback()
            else:
                self._waiting.append((log_offset, callback))
        self._late = {key: end for key, end in self._late.items() if end > dispatched}

    def _publish_progress(self, now_ms: int) -> None:
        """Publish the progress, once all records before it are safe and readable."""
        store = self._store
        if self._candidate is None:
            end = store.next_queue_offset(HALF_TOPIC, HALF_QUEUE_ID)
            base = min(self.current_outcomes.next_open(self.current_outcomes.base), end)
            self._candidate = QueueOffset(base), store.max_log_offset
        base, log_end = self._candidate
        safe = min(store.flushed_log_offset, store.confirm_log_offset, self._role.safe_end())
        if min(safe, store.dispatched_log_offset) < log_end:
            return
        self._candidate = None
        self.current_outcomes.forget_before(base)
        self._renewed = {old: new for old, new in self._renewed.items() if old >= base}
        for topic, at in ((HALF_TOPIC, base), (OP_TOPIC, self.current_outcomes.op_base)):
            if self._offsets.query(TRANSACTION_GROUP, topic, HALF_QUEUE_ID) != at:
                self._offsets.commit(TRANSACTION_GROUP, topic, HALF_QUEUE_ID, at, now_ms)

    # Queries of the index

    def _has_committed_message(self, half: Half) -> bool:
        """Whether the committed message of the transaction is in the log."""
        if unique_key(half.properties) in self._late:
            return True
        where = target_of(half.properties)
        if where is None:
            return False
        topics = [where[0]]
        if names.DELAY in half.properties:
            topics.append(SCHEDULE_TOPIC)
        if any(name in half.properties for name in _TIMERS):
            topics.append(TIMER_TOPIC)
        return any(
            is_committed(record.sys_flag)
            for topic in topics
            for _, record in self._records_of(topic, half)
        )

    def halves_of(self, half: Half) -> list[Half]:
        """Return the half messages of the transaction found in the index, oldest first; the newest
        may be missing there."""
        return [
            Half(
                QueueOffset(record.queue_offset),
                log_offset,
                record,
                decode_properties(record.properties),
            )
            for log_offset, record in self._records_of(HALF_TOPIC, half)
        ]

    def _newest_half(self, halves: list[Half]) -> Half | None:
        """Return the newest half message of a transaction, which the index may lack; None if it
        cannot be read yet."""
        newest = max(halves, key=lambda half: half.queue_offset)
        at = newest.queue_offset
        while at in self._renewed:
            at = self._renewed[at]
        return newest if at == newest.queue_offset else self.half_at(at)

    def _records_of(self, topic: str, half: Half) -> list[tuple[LogOffset, Record]]:
        """Return (log offset, record) of the records of `topic` that belong to the transaction,
        oldest first."""
        key, found = unique_key(half.properties), list[tuple[LogOffset, Record]]()
        if not key:
            return found
        for view in self._store.query(topic, key, _HITS, 0, _FOREVER_MS).slices:
            record = decode(Region(view), 0, len(view))
            mine = record.topic == topic.encode() and same_body(half.record, record)
            if mine and unique_key(decode_properties(record.properties)) == key:
                found.append((LogOffset(record.physical_offset), record))
        return found

    def _end_open(self, halves: list[Half], outcome: TransactionOutcome) -> None:
        """Record the outcome for the open ones among these half messages."""
        for each in halves:
            if self.current_outcomes.get(each.queue_offset) is TransactionOutcome.OPEN:
                self.record_end(each.queue_offset, outcome)
