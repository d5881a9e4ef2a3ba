"""The check pass: producers are asked about half messages that are still open.

Owns when a half message is checked, renewed and given up (TransactionalMessageServiceImpl), and the
request to its producer (39). A check never ends a transaction: the answer is a separate request.

    open --immunity or timeout passed--> renewed (checks + 1), producer asked --> open
      '--check limit or age reached--> given up

A checked half message is stored again with its number of checks increased, and the request names
the new record: so the old part of the queue can be forgotten. A message in its immunity stays where
it is, unless too many ended messages after it are kept because of it. RocketMQ only moves its
offset past the old record; here an op message marks the old record as finished, so that a crash in
between does not duplicate it.

Tests: tests/unit/broker/scheduled/test_transactions.py
"""

import logging
from collections.abc import Callable
from typing import Final

from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.scheduled.half_escape import HalfEscape
from turbopump.broker.scheduled.half_messages import (
    as_committed,
    check_times,
    given_up_message,
    immunity_ms,
    renewed_half,
    target_of,
    unique_key,
)
from turbopump.broker.scheduled.transaction_outcomes import TransactionOutcome
from turbopump.broker.scheduled.transactions import Half, Transactions
from turbopump.broker.tables.producers import ProducerTable
from turbopump.broker.tables.topics import TopicTable
from turbopump.broker.traffic.role import Role
from turbopump.engine.store import Store
from turbopump.engine.types import Appended, LogOffset, PutStatus, QueueOffset
from turbopump.net.wire import properties as names
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.headers.transactions import CheckTransactionStateRequest
from turbopump.net.wire.message_id import encode_message_id
from turbopump.net.wire.names import GIVEN_UP_TOPIC, HALF_QUEUE_ID, HALF_TOPIC
from turbopump.net.wire.topics import PERM_READ, PERM_WRITE

logger = logging.getLogger(__name__)

STEP_MS: Final = 5
"""Time in ms after which a step examines no further half message."""
HALVES_PER_STEP: Final = 256
"""Maximum number of half messages that one step examines; a check takes up to 1 ms."""
BYTES_PER_STEP: Final = 1 << 20
"""Bytes of bodies after which a step ends; they are stored again and sent to producers."""
HELD_BACK_MAX: Final = 10_000
"""Maximum number of ended half messages, in addition to the number of open ones, that open messages
in their immunity keep in memory. Beyond it the open messages are stored again at the end of the
queue."""
_HOUR_MS = 3_600_000
_NEVER_TAKEN = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)


class TransactionChecks:
    """The check pass over open half messages: asks their producers about the outcome, renews or
    gives up half messages. Loop thread only. `steady_ms` is the monotonic clock, for the interval
    between passes; `wall_ms` returns epoch ms, for the duration of a step."""

    def __init__(
        self,
        transactions: Transactions,
        store: Store,
        role: Role,
        topics: TopicTable,
        producers: ProducerTable,
        config: BrokerConfig,
        steady_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        escape: HalfEscape,
    ) -> None:
        self._transactions, self._store, self._role = transactions, store, role
        self._topics, self._producers, self._config = topics, producers, config
        self._steady_ms, self._wall_ms = steady_ms, wall_ms
        self.escape = escape
        """Moves half messages to other masters while this replica acts."""
        self._due_ms: int | None = None
        self._at: QueueOffset | None = None
        """The next half message of the current pass."""
        self._end = QueueOffset(0)
        self._compacts = False
        """Whether the pass stores messages in their immunity again, see HELD_BACK_MAX."""
        self.asked = 0
        """Number of checks sent to producers since the start."""
        self.unasked = 0
        """Number of checks for which no producer of the group was connected."""
        self.given_up = 0
        """Number of half messages given up since the start."""
        self.lost = 0
        """Number of half messages that were removed with their files while they were open, since
        the start."""
        role.on_change.append(self._on_role_changed)

    def step(self, now_ms: int) -> bool:
        """Advance transactions and the check pass, or begin a pass if the interval has passed; on
        an acting replica move half messages. `now_ms` is epoch ms. Returns whether to call again at
        once."""
        if self.escape.is_enabled:
            return self.escape.step(now_ms)
        self.escape.stop()
        more = self._transactions.step(now_ms)
        if not self._role.is_master or not self._transactions.is_ready:
            return more
        if self._at is None and not self._begin_if_due():
            return False
        self._examine_halves(now_ms)
        self._transactions.write_ops(now_ms)
        if self._at is not None and self._at >= self._end:
            self._at = None
        return self._at is not None

    def _examine_halves(self, now_ms: int) -> None:
        """Examine the next half messages of the pass."""
        left, began_ms = BYTES_PER_STEP, self._wall_ms()
        for _ in range(HALVES_PER_STEP):
            at = self._at = QueueOffset(
                self._transactions.current_outcomes.next_open(self._at or 0)
            )
            is_long = abs(self._wall_ms() - began_ms) >= STEP_MS  # the clock may be set meanwhile
            if at >= self._end or left <= 0 or is_long:
                return
            half = self._transactions.half_at(at)
            if half is None:
                self._count_unreadable(at)
                self._transactions.record_end(at, TransactionOutcome.DONE)
                continue
            refused = isinstance(self._role.admit_append(), PutStatus)
            if refused or not self._check_half(half, now_ms):
                self._at = None  # it is too young, or writes are refused: the next pass tries again
                return
            self._at = QueueOffset(at + 1)
            left -= len(half.record.body)

    def _count_unreadable(self, at: QueueOffset) -> None:
        """Count an unreadable half message as lost if retention removed it, else log it."""
        if at < self._store.min_queue_offset(HALF_TOPIC, HALF_QUEUE_ID):
            self.lost += 1  # waiting.py reports all losses in one line
        else:
            logger.error("half message %d cannot be read: dropped", at)

    def _begin_if_due(self) -> bool:
        """Begin a pass if one is due; return whether it was. Half messages stored after its
        beginning are left to the next pass."""
        steady_ms, interval_ms = self._steady_ms(), self._config.transaction_check_interval_ms
        # A shortened interval takes effect at once.
        due_ms = min(self._due_ms or steady_ms + interval_ms, steady_ms + interval_ms)
        self._due_ms = due_ms
        if steady_ms < due_ms:
            return False
        self._due_ms = steady_ms + interval_ms
        known = self._transactions.current_outcomes
        self._at = QueueOffset(known.next_open(known.base))
        self._end = self._store.max_queue_offset(HALF_TOPIC, HALF_QUEUE_ID)
        kept, open_ones = self._end - self._at, known.open_count(self._end)
        self._compacts = kept - open_ones > open_ones + HELD_BACK_MAX
        return True

    def _on_role_changed(self) -> None:
        """End the pass, because the role changed."""
        self._at = self._due_ms = None

    def _check_half(self, half: Half, now_ms: int) -> bool:
        """Check, renew, give up or end a half message, as it needs; False to end the pass for now,
        else True."""
        transactions, properties = self._transactions, half.properties
        age_ms, times = now_ms - half.record.born_timestamp_ms, check_times(properties)
        limit_ms = immunity_ms(properties)
        is_immune = limit_ms is not None and 0 <= age_ms <= limit_ms
        if limit_ms is None and 0 <= age_ms <= self._config.transaction_time_out_ms:
            return False
        if is_immune and not self._compacts and age_ms <= self._reserved_ms():
            return True  # it stays where it is
        found = transactions.find_outcome(half, asks_index=True)
        if found is None:
            return False
        outcome, newest = found
        if outcome is not TransactionOutcome.OPEN or newest.queue_offset != half.queue_offset:
            if transactions.current_outcomes.get(half.queue_offset) is TransactionOutcome.OPEN:
                transactions.record_end(half.queue_offset, TransactionOutcome.DONE)
            return True  # an earlier term ended it, or its half message arrived twice
        if target_of(properties) is None:
            logger.error("half message %d names no topic and queue: given up", half.queue_offset)
            return self._move_to_given_up(half, now_ms)
        if times >= self._config.transaction_check_max or age_ms > self._reserved_ms():
            return self._move_to_given_up(half, now_ms)
        if is_immune:
            original = {names.TRAN_PREPARED_QUEUE_OFFSET: str(half.queue_offset)}
            return self._store_again(half, {**original, **properties}, now_ms) is not None
        checked = {**properties, names.TRANSACTION_CHECK_TIMES: str(times + 1)}
        appended = self._store_again(half, checked, now_ms)
        if appended is not None and appended.status is PutStatus.PUT_OK:
            self._ask_producer(half, appended, checked)
        return appended is not None

    def _reserved_ms(self) -> int:
        """Age in ms beyond which the log files of a message are removed (fileReservedTime)."""
        return self._config.store.file_reserved_time_hours * _HOUR_MS

    def _store_again(self, half: Half, properties: dict[str, str], now_ms: int) -> Appended | None:
        """Store a half message again with other properties, or give it up if they do not fit; None
        to try again later."""
        appended = self._store.append(renewed_half(half.record, properties), now_ms)
        if appended.status in _NEVER_TAKEN:
            return appended if self._move_to_given_up(half, now_ms) else None
        if appended.status is not PutStatus.PUT_OK:
            return None
        self._transactions.note_renewed(half.queue_offset, appended.queue_offset)
        return appended

    def _move_to_given_up(self, half: Half, now_ms: int) -> bool:
        """Move a half message to the topic of given-up ones; False to try again later, else
        True."""
        perm = PERM_READ | PERM_WRITE
        if self._topics.create_internal(GIVEN_UP_TOPIC, 1, perm, now_ms) is None:
            return False
        status = self._store.append(given_up_message(half.record, half.properties), now_ms).status
        if status in _NEVER_TAKEN:
            # The store's limits were lowered since.
            logger.error("half message %d: %s, dropped", half.queue_offset, status.value)
            self._transactions.record_end(half.queue_offset, TransactionOutcome.DONE)
            return True
        if status is not PutStatus.PUT_OK:
            return False
        self._transactions.record_end(half.queue_offset, TransactionOutcome.GIVEN_UP)
        self.given_up += 1
        return True

    def _ask_producer(self, half: Half, appended: Appended, properties: dict[str, str]) -> None:
        """Ask a producer of the half message's group about the outcome (39), if one is
        connected."""
        peer = self._producers.next_connection(
            properties.get(names.PGROUP, ""), half.record.born_host
        )
        if peer is None:
            self.unasked += 1
            return
        record, log_offset = half.record, LogOffset(appended.log_offsets[0])
        body = as_committed(record, log_offset, appended.queue_offset, properties)
        header = CheckTransactionStateRequest(
            tran_state_table_offset=appended.queue_offset,
            commit_log_offset=log_offset,
            msg_id=unique_key(properties),
            transaction_id=unique_key(properties),
            offset_msg_id=encode_message_id(record.store_host, log_offset),
            topic=HALF_TOPIC,
            broker_name=self._config.broker_name,
        )
        peer.notify(new_request(RequestCode.CHECK_TRANSACTION_STATE, header, body, oneway=True))
        self.asked += 1
