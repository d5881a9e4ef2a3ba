"""Half messages on an acting replica: they move to other masters, which check and end them.

Owns the half messages on their way, the place of each moved one, and the progress. It must never
write to this broker's log (I11), nor count a half message as moved that no other master has (I15).

    open here -> on its way -> moved: its end is forwarded to the master that has it
             '-> rolled back by its producer: not moved

It moves as a half message, not in its committed form: so it is ended in one place, and never
visible unless its producer commits it there. The progress is the offset of CID_RMQ_SYS_TRANS, as on
a master: all half messages before it have moved or ended.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from turbopump.broker.escape.bridge import Arrival, Escape
from turbopump.broker.escape.retry_window import QueueWindow
from turbopump.broker.scheduled.half_messages import moved, unique_key
from turbopump.broker.scheduled.transaction_outcomes import TransactionOutcome
from turbopump.broker.scheduled.transactions import Half, Transactions
from turbopump.broker.tables.offsets import OffsetTable
from turbopump.broker.traffic.role import Role
from turbopump.engine.deferred import Deferred
from turbopump.engine.store import Store
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.header import BadHeader, read_header
from turbopump.net.wire.headers.send import SendMessageResponse
from turbopump.net.wire.headers.transactions import EndTransactionRequest
from turbopump.net.wire.message import TRANSACTION_ROLLBACK
from turbopump.net.wire.message_id import decode_message_id
from turbopump.net.wire.names import HALF_QUEUE_ID, HALF_TOPIC, TRANSACTION_GROUP, kept_size

logger = logging.getLogger(__name__)

WINDOW: Final = 1_024
"""Maximum number of half messages after the progress that may have moved."""
AGAIN_PER_STEP: Final = 32
"""Maximum number of half messages that one step sends again after a failure."""
READ_PER_STEP: Final = 64
"""Maximum number of half messages that one step examines: some require a look in the index."""
MOVED_SIZE_MAX: Final = 16 << 20
"""Maximum size of remembered places in memory, in bytes, some 20,000 half messages; for others, the
master that has the half message asks the producer."""
MOVED_SIZE: Final = 500
"""Assumed size of a place in memory, in bytes, besides its texts."""
WAITING_MAX: Final = 1_000
"""Maximum number of requests that wait until their half message has moved."""


class _Place(NamedTuple):
    """The master that has a half message now, and the request that ends it there."""

    address: str
    request: EndTransactionRequest

    @property
    def size(self) -> int:
        """Size in memory, in bytes."""
        request = self.request
        texts = request.producer_group, request.msg_id or "", request.transaction_id or ""
        return MOVED_SIZE + kept_size(self.address, *texts)


class HalfEscape:
    """See the module. Loop thread only; times are epoch ms."""

    def __init__(
        self,
        transactions: Transactions,
        store: Store,
        role: Role,
        offsets: OffsetTable,
        escape: Escape,
    ) -> None:
        self._transactions, self._store, self._role = transactions, store, role
        self._offsets, self._escape = offsets, escape
        self._acts = False
        self._window: QueueWindow[Arrival] | None = None
        self._places: dict[QueueOffset, _Place] = {}
        self._places_size = 0
        self._waiting: dict[QueueOffset, list[Callable[[], None]]] = {}
        self._waiting_count = 0

    @property
    def is_on(self) -> bool:
        """Whether this replica acts for its master and may send messages (enableRemoteEscape), so
        that half messages move."""
        return self._role.is_acting and not self._role.is_master and self._escape.is_on

    def stop(self) -> None:
        """Stop acting and forget the places; answers to messages on their way are ignored, and
        waiting requests to end transactions are answered. No effect if it does not act."""
        if self._acts:
            if self._window is not None:
                self._window.stop()
            self._acts, self._window = False, None
            self._places.clear()
            self._places_size = 0
            self._wake(list(self._waiting))
            self._transactions.role_changed()

    def step(self, now_ms: int) -> bool:
        """Send open half messages, the first ones after the outcomes are read; call it only while
        `is_on`. Returns whether to call again at once."""
        transactions = self._transactions
        if not self._acts:
            self._acts = True
            transactions.role_changed()
        if self._window is None and transactions.outcomes is not None and transactions.is_ready:
            first = QueueOffset(transactions.current_outcomes.base)
            self._window = QueueWindow(self._escape, self._send, self._arrived, first, WINDOW)
        if self._window is None:
            return transactions.read()
        self._window.retry(AGAIN_PER_STEP)
        more = self._begin(self._window)
        self._advance(self._window, now_ms)
        return more

    def _begin(self, window: QueueWindow[Arrival]) -> bool:
        end = self._store.max_queue_offset(HALF_TOPIC, HALF_QUEUE_ID)
        for _ in range(READ_PER_STEP):
            number = window.next
            if number >= end or not window.has_room:
                return False
            if self._transactions.current_outcomes.get(number) is not TransactionOutcome.OPEN:
                window.skip_to(number + 1)
            elif not self._look_at(window, number):
                return False
        return True

    def _look_at(self, window: QueueWindow[Arrival], number: QueueOffset) -> bool:
        """Send an open half message, or pass an ended one; False if its state is not known yet."""
        half = self._transactions.half_at(number)
        found = None if half is None else self._transactions.outcome(half, asks_index=True)
        if half is not None and found is None:
            return False
        if found is None or (found[0], found[1].queue_offset) == (TransactionOutcome.OPEN, number):
            window.start_next()
        else:
            window.skip_to(number + 1)
            self._gone(number)
        return True

    def _send(self, number: QueueOffset, failures: int) -> Deferred[Arrival | None] | None:
        half = self._transactions.half_at(number)
        message = None if half is None else moved(half.record, half.properties)
        if half is None or message is None:
            reason = "cannot be read" if half is None else "names no topic and queue"
            logger.error("half message %d %s: dropped", number, reason)
            self._gone(number)
            return None
        key = unique_key(half.properties)
        sent = self._escape.send(message, failures, key=key, is_half=True)
        sent.then(partial(self._answered, self._window, number))
        return sent

    def _answered(
        self, window: QueueWindow[Arrival] | None, number: QueueOffset, arrival: Arrival | None
    ) -> None:
        if arrival is None and self._window is window:  # else of an earlier time of acting
            self._wake([number])

    def _arrived(self, number: QueueOffset, arrival: Arrival) -> None:
        place = _place_of(arrival)
        if place is not None:
            self._keep(number, place)
        self._gone(number)

    def _keep(self, number: QueueOffset, place: _Place) -> None:
        self._places[number] = place
        self._places_size += place.size
        while self._places_size > MOVED_SIZE_MAX:
            oldest = next(iter(self._places))
            self._places_size -= self._places.pop(oldest).size

    def _gone(self, number: QueueOffset) -> None:
        """Mark a half message as moved or ended."""
        self._transactions.current_outcomes.set_mark(number, TransactionOutcome.DONE)
        self._wake([number])

    def _wake(self, numbers: list[QueueOffset]) -> None:
        for number in numbers:
            waiting = self._waiting.pop(number, [])
            self._waiting_count -= len(waiting)
            for go_on in waiting:
                go_on()

    def _advance(self, window: QueueWindow[Arrival], now_ms: int) -> None:
        at = window.completed_to
        if at > self._offsets.query(TRANSACTION_GROUP, HALF_TOPIC, HALF_QUEUE_ID):
            self._offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, HALF_QUEUE_ID, at, now_ms)

    # Producers that end a transaction

    def end(self, half: Half, how: int) -> Deferred[Command | str]:
        """Forward the end of a transaction to the master that has its half message, once it has
        moved; `how` is TRANSACTION_COMMIT or TRANSACTION_ROLLBACK. Resolves to that master's
        answer, to the reason why there is no answer, or to "" after a rollback done here. The
        producer may try again after a reason."""
        ended: Deferred[Command | str] = Deferred()
        window = self._window
        numbers = {half.queue_offset, *(each.queue_offset for each in self._known(half))}
        if window is None or max(numbers) >= window.next:
            ended.resolve("the outcomes of transactions are not read yet")
            return ended
        place = next((self._places[one] for one in numbers if one in self._places), None)
        if place is not None:
            header = replace(place.request, commit_or_rollback=how)
            return self._escape.ask(place.address, new_request(RequestCode.END_TRANSACTION, header))
        known = self._transactions.current_outcomes
        number = max(
            (one for one in numbers if known.get(one) is TransactionOutcome.OPEN), default=None
        )
        if number is None:
            ended.resolve("the transaction has ended, or another master has it and will check it")
        elif how == TRANSACTION_ROLLBACK and not window.is_out(number):
            window.complete(number)
            self._gone(number)
            ended.resolve("")
        elif self._waiting_count >= WAITING_MAX:
            ended.resolve("too many requests to end transactions are pending")
        else:
            self._waiting_count += 1
            go_on = partial(self._pass_on, number, half, how, ended)
            self._waiting.setdefault(number, []).append(go_on)
            if not window.is_out(number):
                window.send(number)
        return ended

    def _known(self, half: Half) -> list[Half]:
        """Return all half messages of the transaction: a producer may not know the newest."""
        return self._transactions.halves(half) if self._transactions.is_ready else []

    def _pass_on(
        self, number: QueueOffset, half: Half, how: int, ended: Deferred[Command | str]
    ) -> None:
        if number in self._places:
            self.end(half, how).then(ended.resolve)
        else:
            ended.resolve("no other master has the half message yet")


def _place_of(arrival: Arrival) -> _Place | None:
    """Read where the half message is stored; None if the answer does not contain it."""
    try:
        header = read_header(SendMessageResponse, arrival.response.fields)
        _, log_offset = decode_message_id(header.msg_id)
    except (BadHeader, ValueError):
        return None
    request = EndTransactionRequest(
        producer_group=arrival.group,
        tran_state_table_offset=header.queue_offset,
        commit_log_offset=log_offset,
        commit_or_rollback=0,
        msg_id=arrival.key,
        transaction_id=header.transaction_id,
    )
    return _Place(arrival.address, request)
