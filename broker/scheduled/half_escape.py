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
from turbopump.broker.scheduled.half_messages import half_for_other_master, unique_key
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


class _MovedHalf(NamedTuple):
    """The master that has a moved half message now, and the request that ends the transaction
    there."""

    address: str
    request: EndTransactionRequest

    @property
    def size(self) -> int:
        """Size of this entry in memory, in bytes."""
        request = self.request
        texts = request.producer_group, request.msg_id or "", request.transaction_id or ""
        return MOVED_SIZE + kept_size(self.address, *texts)


class HalfEscape:
    """Half messages on a replica that acts for its master: sends them to other masters, and
    forwards the ends of their transactions there. Loop thread only; times are epoch ms."""

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
        self._places: dict[QueueOffset, _MovedHalf] = {}
        self._places_size = 0
        self._waiting: dict[QueueOffset, list[Callable[[], None]]] = {}
        self._waiting_count = 0

    @property
    def is_enabled(self) -> bool:
        """Whether this replica acts for its master and may send messages (enableRemoteEscape), so
        that half messages move."""
        return self._role.is_acting and not self._role.is_master and self._escape.is_enabled

    def stop(self) -> None:
        """End the work of an acting replica and forget where half messages are; answers to messages
        on their way are ignored, and waiting requests to end transactions are answered. No-op if
        this replica does not act."""
        if self._acts:
            if self._window is not None:
                self._window.clear()
            self._acts, self._window = False, None
            self._places.clear()
            self._places_size = 0
            self._continue_requests(list(self._waiting))
            self._transactions.role_changed()

    def step(self, now_ms: int) -> bool:
        """Send open half messages; before the first ones the outcomes are read. Call it only while
        `is_enabled`. Returns whether to call again at once."""
        transactions = self._transactions
        if not self._acts:
            self._acts = True
            transactions.role_changed()
        if self._window is None and transactions.outcomes is not None and transactions.is_ready:
            first = QueueOffset(transactions.current_outcomes.base)
            self._window = QueueWindow(self._escape, self._send, self._on_arrival, first, WINDOW)
        if self._window is None:
            return transactions.read_outcomes()
        self._window.resend_failed(AGAIN_PER_STEP)
        more = self._send_next(self._window)
        self._commit_progress(self._window, now_ms)
        return more

    def _send_next(self, window: QueueWindow[Arrival]) -> bool:
        """Send the next open half messages; return whether there may be more."""
        end = self._store.max_queue_offset(HALF_TOPIC, HALF_QUEUE_ID)
        for _ in range(READ_PER_STEP):
            number = window.next
            if number >= end or not window.has_room:
                return False
            if self._transactions.current_outcomes.get(number) is not TransactionOutcome.OPEN:
                window.skip_to(number + 1)
            elif not self._send_if_open(window, number):
                return False
        return True

    def _send_if_open(self, window: QueueWindow[Arrival], number: QueueOffset) -> bool:
        """Send the half message at queue offset `number` if it is open, skip it if its transaction
        has ended; False if that is not known yet, else True."""
        half = self._transactions.half_at(number)
        found = None if half is None else self._transactions.find_outcome(half, asks_index=True)
        if half is not None and found is None:
            return False
        if found is None or (found[0], found[1].queue_offset) == (TransactionOutcome.OPEN, number):
            window.start_next()
        else:
            window.skip_to(number + 1)
            self._mark_done(number)
        return True

    def _send(self, number: QueueOffset, failures: int) -> Deferred[Arrival | None] | None:
        """Send the half message at queue offset `number`; None if it can never be sent. Resolves to
        its arrival, None after a failure."""
        half = self._transactions.half_at(number)
        message = None if half is None else half_for_other_master(half.record, half.properties)
        if half is None or message is None:
            reason = "cannot be read" if half is None else "names no topic and queue"
            logger.error("half message %d %s: dropped", number, reason)
            self._mark_done(number)
            return None
        key = unique_key(half.properties)
        sent = self._escape.send(message, failures, key=key, is_half=True)
        sent.then(partial(self._on_sent, self._window, number))
        return sent

    def _on_sent(
        self, window: QueueWindow[Arrival] | None, number: QueueOffset, arrival: Arrival | None
    ) -> None:
        """After a failed send, answer the requests that wait for this half message."""
        if arrival is None and self._window is window:  # else of an earlier time of acting
            self._continue_requests([number])

    def _on_arrival(self, number: QueueOffset, arrival: Arrival) -> None:
        """Note the master that a half message has moved to."""
        place = _read_place(arrival)
        if place is not None:
            self._remember_place(number, place)
        self._mark_done(number)

    def _remember_place(self, number: QueueOffset, place: _MovedHalf) -> None:
        """Remember where a half message is; the oldest are forgotten beyond MOVED_SIZE_MAX."""
        self._places[number] = place
        self._places_size += place.size
        while self._places_size > MOVED_SIZE_MAX:
            oldest = next(iter(self._places))
            self._places_size -= self._places.pop(oldest).size

    def _mark_done(self, number: QueueOffset) -> None:
        """Mark a half message as moved or ended, and continue the requests that wait for it."""
        self._transactions.current_outcomes.set_mark(number, TransactionOutcome.DONE)
        self._continue_requests([number])

    def _continue_requests(self, numbers: list[QueueOffset]) -> None:
        """Continue the requests that wait for these half messages."""
        for number in numbers:
            waiting = self._waiting.pop(number, [])
            self._waiting_count -= len(waiting)
            for go_on in waiting:
                go_on()

    def _commit_progress(self, window: QueueWindow[Arrival], now_ms: int) -> None:
        """Commit the offset before which all half messages have moved or ended."""
        at = window.completed_to
        if at > self._offsets.query(TRANSACTION_GROUP, HALF_TOPIC, HALF_QUEUE_ID):
            self._offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, HALF_QUEUE_ID, at, now_ms)

    # Producers that end a transaction

    def forward_end(self, half: Half, how: int) -> Deferred[Command | str]:
        """Forward the end of a transaction to the master that has its half message, once it has
        moved; `how` is TRANSACTION_COMMIT or TRANSACTION_ROLLBACK. Resolves to that master's
        answer, to the reason why there is no answer, or to "" after a rollback done here. The
        producer may try again after a reason."""
        ended: Deferred[Command | str] = Deferred()
        window = self._window
        numbers = {half.queue_offset, *(each.queue_offset for each in self._halves_of(half))}
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
        elif how == TRANSACTION_ROLLBACK and not window.is_unanswered(number):
            window.remove_item(number)
            self._mark_done(number)
            ended.resolve("")
        elif self._waiting_count >= WAITING_MAX:
            ended.resolve("too many requests to end transactions are pending")
        else:
            self._waiting_count += 1
            go_on = partial(self._forward_end, number, half, how, ended)
            self._waiting.setdefault(number, []).append(go_on)
            if not window.is_unanswered(number):
                window.send(number)
        return ended

    def _halves_of(self, half: Half) -> list[Half]:
        """Return all half messages of the transaction that are found here: a producer may not know
        the newest."""
        return self._transactions.halves_of(half) if self._transactions.is_ready else []

    def _forward_end(
        self, number: QueueOffset, half: Half, how: int, ended: Deferred[Command | str]
    ) -> None:
        """Forward the end of a transaction if its half message has moved, else resolve `ended` with
        the reason why not."""
        if number in self._places:
            self.forward_end(half, how).then(ended.resolve)
        else:
            ended.resolve("no other master has the half message yet")


def _read_place(arrival: Arrival) -> _MovedHalf | None:
    """Read from the answer to a send where the half message is stored; None if the answer does not
    contain it."""
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
    return _MovedHalf(arrival.address, request)
