"""Bugs of transactions, to be planted one at a time: the suite must find each."""

from tests.sim.planting import Patch, Plant
from turbopump.broker.handlers import transactions as handlers
from turbopump.broker.scheduled import transaction_checks, transaction_outcomes
from turbopump.broker.scheduled import transactions as scheduled
from turbopump.broker.scheduled.half_messages import (
    committed_flag,
    renewed_half,
    target_of,
)
from turbopump.broker.scheduled.transaction_checks import TransactionChecks
from turbopump.broker.scheduled.transaction_outcomes import TransactionOutcome, TransactionOutcomes
from turbopump.broker.scheduled.transactions import Transactions
from turbopump.broker.tables.topics import TopicTable
from turbopump.broker.traffic.role import Put
from turbopump.engine.types import Appended, PutStatus, QueueOffset
from turbopump.net.wire.names import HALF_QUEUE_ID, HALF_TOPIC


def half_messages_are_dispatched_by_recovery(patch: Patch) -> None:
    """A start shows open half messages where they are to go."""
    lead = Transactions._begin_term

    def shows(self: Transactions) -> None:
        lead(self)
        store = self._store
        for number in range(
            self.current_outcomes.base, store.max_queue_offset(HALF_TOPIC, HALF_QUEUE_ID)
        ):
            half = self.half_at(QueueOffset(number))
            if half is not None:
                topic, queue_id = target_of(half.properties)
                message = renewed_half(half.record, half.properties)
                message.topic, message.queue_id = topic, queue_id
                message.sys_flag = committed_flag(message.sys_flag)
                store.append(message, self._wall_ms())

    patch.setattr(Transactions, "_begin_term", shows)


def commits_are_checked(patch: Patch) -> None:
    """A committed half message whose op message a crash lost counts as open (as in RocketMQ)."""
    patch.setattr(Transactions, "_has_committed_message", lambda self, half: False)


def progress_is_ahead_of_the_disk(patch: Patch) -> None:
    """Offsets are saved before the records they depend on are durable."""

    class Ahead:
        def __init__(self, store: object) -> None:
            self._store = store

        def __getattr__(self, name: str) -> object:
            safe = name in ("flushed_log_offset", "confirm_log_offset", "dispatched_log_offset")
            return getattr(self._store, "max_log_offset" if safe else name)

    publish = Transactions._publish_progress

    def ahead(self: Transactions, now_ms: int) -> None:
        real, self._store = self._store, Ahead(self._store)
        try:
            publish(self, now_ms)
        finally:
            self._store = real

    patch.setattr(Transactions, "_publish_progress", ahead)


def op_message_before_the_commit(patch: Patch) -> None:
    """The op message, which ends a half message, is written before the committed message itself."""
    commit = handlers._commit_half

    def late(broker: object, request: object, half: object, now_ms: int) -> object:
        at = QueueOffset(half.record.queue_offset)
        broker.transactions.record_end(at, TransactionOutcome.COMMITTED)
        broker.transactions.write_ops(now_ms)
        return commit(broker, request, half, now_ms)

    patch.setattr(handlers, "_commit_half", late)


def ends_are_forgotten(patch: Patch) -> None:
    """Each request to commit stores the message (as in RocketMQ)."""
    get = TransactionOutcomes.get

    def forgets(self: TransactionOutcomes, at: QueueOffset) -> TransactionOutcome | None:
        found = get(self, at)
        return TransactionOutcome.OPEN if found is not None else None

    patch.setattr(transaction_outcomes.TransactionOutcomes, "get", forgets)


def renewed_messages_are_other_transactions(patch: Patch) -> None:
    """The first decision of a slow producer ends the half message that it knows, not its renewed
    copy.
    """

    def outcome(
        self: Transactions, half: object, *, asks_index: bool = False
    ) -> tuple[TransactionOutcome, object]:
        return TransactionOutcome.OPEN, half

    patch.setattr(scheduled.Transactions, "find_outcome", outcome)


def ids_are_not_compared(patch: Patch) -> None:
    """An end is believed for whatever lies at its offsets (as in RocketMQ)."""
    patch.setattr(handlers, "_matches_ids", lambda header, half: True)


def repeated_answers_come_too_soon(patch: Patch) -> None:
    """The second one is acknowledged before the first one is safe."""
    when_safe = handlers._answer_when_safe

    def soon(broker: object, request: object, written: Put) -> object:
        if written.appended.log_offsets:
            return when_safe(broker, request, written)
        return handlers.new_response(request, handlers.ResponseCode.SUCCESS)

    patch.setattr(handlers, "_answer_when_safe", soon)


def renewal_is_lost(patch: Patch) -> None:
    """A half message counts as renewed although it could not be written, or is not yet."""

    def renew(self: TransactionChecks, half: object, properties: object, now_ms: int) -> Appended:
        self._transactions.record_end(half.queue_offset, TransactionOutcome.DONE)
        return Appended(PutStatus.PUT_OK, half.queue_offset, [half.log_offset])

    patch.setattr(transaction_checks.TransactionChecks, "_store_again", renew)


def commits_go_to_queues_that_are_gone(patch: Patch) -> None:
    """A half message is committed to the queue it was for (as in RocketMQ)."""
    patch.setattr(TopicTable, "queue_of", lambda self, name, queue_id: queue_id)


BUGS: list[Plant] = [
    half_messages_are_dispatched_by_recovery, commits_are_checked, progress_is_ahead_of_the_disk,
    op_message_before_the_commit, ends_are_forgotten, renewed_messages_are_other_transactions,
    ids_are_not_compared, repeated_answers_come_too_soon, renewal_is_lost,
    commits_go_to_queues_that_are_gone,
]  # fmt: skip
