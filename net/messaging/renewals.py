"""The renewal of receipts: a push consumer's message stays hidden until the consumer settles it.

Owns the renewed receipts, their times, and their newest handles (RocketMQ:
DefaultReceiptHandleManager). It must never answer a client.

A client keeps the handle that it received first. While a renewal is in progress, the message is not
settled: a client's request for it waits for the new handle.

    add -> renewed when its time ends soon -> settled by the client, given up (too old, too many
           failures, expired), or made visible again because the client was dropped

Tests: tests/unit/net/messaging/test_receiving.py
"""

import heapq
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from turbopump.net.grpc.codes import Code
from turbopump.net.messaging.backend import RequestBackend
from turbopump.net.messaging.clients import GrpcClient, NoLink
from turbopump.net.messaging.receipts import HeldReceipt, Receipt, ReceiptSettling
from turbopump.net.messaging.rpc import RpcRefused
from turbopump.net.messaging.settings import retry_delay_ms
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.names import kept_size

logger = logging.getLogger(__name__)

AHEAD_MS: Final = 10_000
"""A receipt is renewed at the first tick at which its remaining time is below this
(renewAheadTimeMillis)."""
STEPS_MS: Final = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
"""Invisible times of the first, second, ... renewal of a receipt; the last one repeats
(RenewStrategyPolicy)."""
TOTAL_MAX_MS: Final = 3 * 3_600_000
"""Time after its delivery for which a message is renewed (renewMaxTimeMillis); then it is delivered
again after its group's retry delay."""
FAILURES_MAX: Final = 3
"""Number of consecutive failed renewals after which a receipt is tried once more, then given up."""
RENEWED_SIZE_MAX: Final = 64 << 20
"""Maximum bytes of all renewed receipts, about 80,000 receipts; further messages are not renewed
and are delivered again when their time ends."""
RENEWED_SIZE: Final = 500
"""Bytes of a receipt besides its texts."""
BACK_MS: Final = 1_000
"""Time after which a dropped client's messages are delivered again."""
OF_STEP: Final = 16
"""Number of requests in a step of a tick."""


@dataclass(slots=True, eq=False)
class _Renewed:
    """A receipt that is renewed. `first` is the handle that the client has, `since_ms` the time
    of its delivery, `size` the bytes that it counts, `count` the renewals so far, `failures` the
    failed renewals in a row."""

    client_id: str
    message_id: str
    first: str
    """The handle that the client has."""
    receipt: Receipt
    since_ms: int
    size: int
    count: int = 0
    failures: int = 0
    is_settled: bool = False
    waiting: list[Callable[[], None]] | None = None
    """Requests that wait for the renewal in progress; None if no renewal is in progress."""


@dataclass(slots=True)
class _OfClient:
    """The renewed receipts of a client, by (message id, first handle)."""

    entries: dict[tuple[str, str], _Renewed] = field(default_factory=dict)


class Renewals:
    """All receipts that are renewed. Loop thread only; times are epoch milliseconds of the
    backend."""

    def __init__(self, backend: RequestBackend, settling: ReceiptSettling) -> None:
        self._backend = backend
        self._settling = settling
        self._peer = Peer("127.0.0.1:0", b"\x7f\0\0\1\0\0\0\0", NoLink(backend))
        self._clients: dict[str, _OfClient] = {}
        self._due: list[tuple[int, int, _Renewed]] = []
        self._numbered = 0
        self.count = self._size = 0
        """Number of renewed receipts of all clients."""

    def begin_renewing(self, client_id: str, message_id: str, receipt: Receipt) -> None:
        """Begin to renew a message that was delivered to a push consumer now. No-op if it is
        renewed already or RENEWED_SIZE_MAX is reached."""
        first = receipt.text
        size = RENEWED_SIZE + kept_size(message_id, first, first)
        if self._size + size > RENEWED_SIZE_MAX:
            return
        one = _Renewed(client_id, message_id, first, receipt, self._backend.now_ms(), size)
        entries = self._clients.setdefault(client_id, _OfClient()).entries
        if (message_id, first) in entries:
            return
        entries[message_id, first] = one
        self.count += 1
        self._size += size
        self._schedule_next(one)

    def is_renewed(self, client_id: str) -> bool:
        """Whether any receipt of the client with this id is renewed."""
        return client_id in self._clients

    def newest_receipt(
        self,
        client_id: str,
        message_id: str,
        receipt: Receipt,
        found: Callable[[HeldReceipt], None],
    ) -> None:
        """Pass the newest form of `receipt`, which the client received first, to `found`: now, or
        after a renewal in progress. A receipt that is not renewed is passed unchanged. The
        HeldReceipt's `settled` ends the renewal."""
        of_client = self._clients.get(client_id)
        one = of_client and of_client.entries.get((message_id, receipt.text))
        if not one:
            found(HeldReceipt(receipt, lambda: None))
            return
        renewed = one

        def hand_out() -> None:
            found(HeldReceipt(renewed.receipt, lambda: self._stop_renewing(renewed)))

        if renewed.waiting is None:
            hand_out()
        else:
            renewed.waiting.append(hand_out)

    def client_dropped(self, client: GrpcClient) -> None:
        """Stop renewing a dropped client's messages, and in later steps make them visible to other
        clients after BACK_MS."""
        of_client = self._clients.pop(client.client_id, None)
        if of_client is None:
            return
        left = list(of_client.entries.values())
        self.count -= len(left)
        for one in left:
            one.is_settled = True
            self._size -= one.size
        self._backend.run_steps(self._peer.host, self._make_visible([one.receipt for one in left]))

    def tick(self) -> None:
        """Begin to renew the receipts whose time ends within AHEAD_MS, in later steps; to be called
        every TICK_MS."""
        limit_ms, due = self._backend.now_ms() + AHEAD_MS, []
        while self._due and self._due[0][0] < limit_ms:
            one = heapq.heappop(self._due)[2]
            if not one.is_settled:
                due.append(one)
        if due:
            self._backend.run_steps(self._peer.host, self._renew_all(due))

    def _renew_all(self, due: list[_Renewed]) -> Steps[None]:
        """Renew the due receipts, OF_STEP in each step."""
        for number, one in enumerate(due, 1):
            if not one.is_settled:
                self._send_renewal(one)
            if number % OF_STEP == 0:
                yield

    def _send_renewal(self, one: _Renewed) -> None:
        """Send the renewal of a receipt, or stop renewing if its time has ended or it is too
        old."""
        now_ms = self._backend.now_ms()
        if one.receipt.until_ms <= now_ms:
            self._stop_renewing(one)  # too late: another consumer may have it
            return
        if now_ms - one.since_ms > TOTAL_MAX_MS:
            self._stop_if_too_old(one)
            return
        one.waiting = []

        def renewed(code: Code, _text: str, receipt: Receipt) -> None:
            waiting, one.waiting = one.waiting, None
            if code is Code.OK:
                one.receipt, one.failures = receipt, 0
                one.count += 1
            else:
                one.failures += 1
            for work in waiting or ():
                work()
            if one.is_settled:
                return
            if code is Code.INVALID_RECEIPT_HANDLE or one.failures > FAILURES_MAX:
                self._stop_renewing(one)
            else:
                self._schedule_next(one)

        step_ms = STEPS_MS[min(one.count, len(STEPS_MS) - 1)]
        self._settling.hide_message(one.receipt, step_ms, self._peer, renewed, suspend=True)

    def _stop_if_too_old(self, one: _Renewed) -> None:
        """Stop renewing a receipt that is too old; the message is delivered again after the
        group's retry delay."""
        try:
            group = self._backend.group_config(one.receipt.group)
        except RpcRefused:
            group = None  # its configuration is not known
        delay_ms = BACK_MS if group is None else retry_delay_ms(group, 1)
        self._stop_renewing(one)
        self._settling.hide_message(one.receipt, delay_ms, self._peer, _ignore_result)

    def _make_visible(self, receipts: list[Receipt]) -> Steps[None]:
        """Hide each message for only BACK_MS more, in steps."""
        now_ms = self._backend.now_ms()
        for number, receipt in enumerate(receipts, 1):
            if receipt.until_ms > now_ms:
                self._settling.hide_message(receipt, BACK_MS, self._peer, _ignore_result)
            if number % OF_STEP == 0:
                yield

    def _schedule_next(self, one: _Renewed) -> None:
        """Schedule the next renewal of a receipt by the end of its hidden time."""
        self._numbered += 1
        heapq.heappush(self._due, (one.receipt.until_ms, self._numbered, one))
        if len(self._due) > 2 * self.count + 1_024:
            self._due = [entry for entry in self._due if not entry[2].is_settled]
            heapq.heapify(self._due)

    def _stop_renewing(self, one: _Renewed) -> None:
        """Stop renewing a receipt; no-op if that was done already."""
        if one.is_settled:
            return
        one.is_settled = True
        entries = self._clients[one.client_id].entries
        del entries[one.message_id, one.first]
        self.count -= 1
        self._size -= one.size
        if not entries:
            del self._clients[one.client_id]


def _ignore_result(_code: Code, _text: str, _receipt: Receipt) -> None:
    """No-op: if it failed, the message is delivered again when its time ends."""
