"""What holds of transactions whatever happens (I15, F31).

* What consumers can read of a transaction is one message at most, and it was committed by its
  producer.
* An answer counts: a commit that was acknowledged stays readable, a rollback that was is never
  readable, and what was said against it later changes nothing. Under ASYNC_FLUSH a power cut may
  take the last answers back, but only as a whole: then it is asked again.
* A half message that was acknowledged ends: as its producer says, or given up after
  transactionCheckMax checks. None is forgotten.
* A producer is not asked about what it knows to be ended.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from turbopump.broker.context import BrokerContext
from turbopump.broker.scheduled.half_messages import GIVEN_UP_TOPIC
from turbopump.engine.store import Store
from turbopump.engine.types import QueueOffset
from turbopump.pyx.record import Record

COMMITTED, ROLLED_BACK = True, False


@dataclass(eq=False)
class Transaction:
    """One, as its producer knows it."""

    number: int
    body: bytes
    commits: bool
    """How it is to end."""
    is_fickle: bool = False
    """Whether others say the opposite."""
    places: list[tuple[int, int]] = field(default_factory=list)
    """(queue offset, log offset) of its half messages that the producer has heard of."""
    is_safe: bool = False
    """Whether its half message was acknowledged, and cannot be lost."""
    said: set[bool] = field(default_factory=set)
    """What was ever said of it."""
    ended: bool | None = None
    """How it ended, as the broker acknowledged."""
    in_life: int = -1
    """In which life of the broker that was."""


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
        """Its half message is being sent."""
        self.transactions.append(transaction)

    def prepared(self, transaction: Transaction) -> None:
        """Its half message was acknowledged."""
        self.acked += 1
        transaction.is_safe = True

    def says(self, transaction: Transaction, commits: bool) -> bool:
        """Its producer, or another one, says how it ends."""
        transaction.said.add(commits)
        return commits

    def told(self, transaction: Transaction, commits: bool) -> None:
        """That was acknowledged."""
        if transaction.ended is not None:
            assert transaction.ended == commits, f"{transaction} ends twice"
        transaction.ended, transaction.in_life = commits, self.life

    def asked(self, transaction: Transaction, place: tuple[int, int]) -> None:
        """The broker asks its producer about this half message."""
        assert transaction.ended is None, f"asked, but it has ended: {transaction}"
        transaction.places.append(place)

    def ended(self, *, power: bool) -> None:
        """The broker's life is over. What was not synced may be lost with the power."""
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
            assert not count or COMMITTED in transaction.said, f"visible: {transaction}"
            if transaction.ended is not None:
                assert count == transaction.ended, f"{count} messages of {transaction}"
        assert not found, f"messages of none: {found}"

    def settled(self, broker: BrokerContext) -> None:
        """All producers were there and answered for long."""
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
        known = broker.transactions.known
        queue_end = store.max_queue_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0)
        assert known.next_open(known.base) >= queue_end, "some are open for ever"
