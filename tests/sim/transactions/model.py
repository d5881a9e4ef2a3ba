"""Invariants of transactions (I15, F31).

* Consumers can read at most one message of a transaction, and only if its producer committed it.
* Responses count: an acknowledged commit stays readable, an acknowledged rollback is never
  readable, and later contradicting requests change nothing. Under ASYNC_FLUSH a power cut may
  undo the last ones, but only as a whole: then the producer is checked again.
* An acknowledged half message ends: as its producer decides, or given up after
  transactionCheckMax checks. None is forgotten.
* A producer is not checked for a transaction whose end was acknowledged.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from turbopump.broker.context import BrokerContext
from turbopump.engine.store import Store
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.names import GIVEN_UP_TOPIC
from turbopump.pyx.record import Record

COMMITTED, ROLLED_BACK = True, False


@dataclass(eq=False)
class Transaction:
    """A transaction, as its producer knows it."""

    number: int
    body: bytes
    commits: bool
    """The producer's decision."""
    is_fickle: bool = False
    """Whether other producers send the opposite decision."""
    places: list[tuple[int, int]] = field(default_factory=list)
    """(queue offset, log offset) of its half messages that the producer knows of."""
    is_safe: bool = False
    """Whether its half message was acknowledged, and cannot be lost."""
    decisions: set[bool] = field(default_factory=set)
    """Decisions that were ever sent."""
    ended: bool | None = None
    """Decision that the broker acknowledged."""
    in_life: int = -1
    """Number of the broker's life at that acknowledgement."""


def visible(store: Store) -> Iterator[tuple[int, Record | None]]:
    """(queue id, record) of all that consumers can read."""
    for queue_id in store.queue_ids("T"):
        for unit in store.units("T", queue_id, QueueOffset(0), 100_000):
            yield queue_id, store.record(unit.log_offset)


class Model:
    """All transactions of a seed."""

    def __init__(self, is_sync: bool) -> None:
        self.is_sync = is_sync
        self.transactions: list[Transaction] = []
        self.acked = self.life = 0
        self._shown: set[tuple[int, int]] = set()

    def tried(self, transaction: Transaction) -> None:
        """Note that a half message is being sent."""
        self.transactions.append(transaction)

    def prepared(self, transaction: Transaction) -> None:
        """Note that a half message was acknowledged."""
        self.acked += 1
        transaction.is_safe = True

    def decides(self, transaction: Transaction, commits: bool) -> bool:
        """Note a decision that its producer, or another producer, sends."""
        transaction.decisions.add(commits)
        return commits

    def ended_by(self, transaction: Transaction, commits: bool) -> None:
        """Note the acknowledgement of a decision."""
        if transaction.ended is not None:
            assert transaction.ended == commits, f"{transaction} ends twice"
        transaction.ended, transaction.in_life = commits, self.life

    def asked(self, transaction: Transaction, place: tuple[int, int]) -> None:
        """The broker asks its producer about this half message."""
        assert transaction.ended is None, f"asked, but it has ended: {transaction}"
        transaction.places.append(place)

    def ended(self, *, power: bool) -> None:
        """Note the end of the broker's life; a power cut may lose unsynced records."""
        if power and not self.is_sync:
            for transaction in self.transactions:
                transaction.is_safe = False
                transaction.ended = None
        self.life += 1

    def look(self, store: Store, queues: int) -> None:
        """Judge the messages that consumers can read now, where the topic has `queues` queues."""
        found: dict[bytes, int] = {}
        shown: set[tuple[int, int]] = set()
        for queue_id, record in visible(store):
            assert record is not None, f"a message of queue {queue_id} cannot be read"
            assert record.sys_flag & 0xC == 0x8, "a half message is visible"
            place = queue_id, record.log_offset
            # Messages stay in a queue that the topic has lost.
            assert place in self._shown or queue_id < queues, f"no pull reads {record.body!r}"
            shown.add(place)
            found[record.body] = found.get(record.body, 0) + 1
        self._shown = shown
        for transaction in self.transactions:
            count = found.pop(transaction.body, 0)
            assert count <= 1, f"committed {count} times: {transaction}"
            assert not count or COMMITTED in transaction.decisions, f"visible: {transaction}"
            if transaction.ended is not None:
                assert count == transaction.ended, f"{count} messages of {transaction}"
        assert not found, f"messages of none: {found}"

    def settled(self, broker: BrokerContext) -> None:
        """Check the end of a seed, after producers answered all checks for long."""
        store = broker.store
        given_up = {
            record.body
            for unit in store.units(GIVEN_UP_TOPIC, 0, QueueOffset(0), 100_000)
            if (record := store.record(unit.log_offset)) is not None
        }
        shown = {record.body for _, record in visible(store) if record is not None}
        for transaction in self.transactions:
            if transaction.is_safe and transaction.commits and not transaction.is_fickle:
                ends = transaction.body in shown or transaction.body in given_up
                assert ends, f"lost: {transaction}"
        known = broker.transactions.current_outcomes
        queue_end = store.max_queue_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0)
        assert known.next_open(known.base) >= queue_end, "some are open for ever"
