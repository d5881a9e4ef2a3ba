"""The producer of transactions: messages that consumers see once a local transaction has ended.

Owns the order half message, local transaction, end, and the answers to brokers that check how a
transaction ended. It must never guess: an unknown end is left to the broker's next check.

    send_in_transaction: half message -> execute(message, id) -> commit or roll back
    a broker that did not receive the end checks (39) -> check(message) -> commit or roll back
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final

from turbopump.net.client.errors import BrokerError, ClientError, InvalidArgument, check_type
from turbopump.net.client.lifetime import ClientLifetime
from turbopump.net.client.messages import Message, ReceivedMessage, SendResult, SendStatus
from turbopump.net.client.options import ClientOptions, ProducerOptions
from turbopump.net.client.receiving import received_alone
from turbopump.net.client.remoting_producer import RemotingProducer
from turbopump.net.client.sending import check_message
from turbopump.net.client.shared_client import SharedClient, instance_of
from turbopump.net.client.tasks import TaskSet, is_being_cancelled
from turbopump.net.transport.errors import RemotingError
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import properties as names
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.transactions import (
    CheckTransactionStateRequest,
    EndTransactionRequest,
)
from turbopump.net.wire.message import (
    TRANSACTION_COMMIT,
    TRANSACTION_ROLLBACK,
    MessageView,
)
from turbopump.net.wire.message_id import decode_message_id

logger = logging.getLogger(__name__)

MAX_CHECKS: Final = 2_000
"""Maximum number of running and waiting checks (TransactionMQProducer.checkRequestHoldMax); a check
beyond it is dropped, and the broker repeats it."""
CONCURRENT_CHECKS: Final = 20
"""Maximum number of `check` calls that run at the same time in one producer."""


class TransactionEnd(Enum):
    """The end of a local transaction (client/producer/LocalTransactionState)."""

    COMMIT = TRANSACTION_COMMIT
    """Consumers receive the message."""
    ROLL_BACK = TRANSACTION_ROLLBACK
    """No consumer ever receives the message."""
    UNKNOWN = 0
    """The transaction has not ended, or its end is not known: the broker asks later."""


Execute = Callable[[Message, str], Awaitable[TransactionEnd]]
"""The local transaction: (message, message id) -> its end."""
Check = Callable[[ReceivedMessage], Awaitable[TransactionEnd]]
"""The end of a message's local transaction, which another process may have run."""


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """The result of `send_in_transaction`.

    `sent` is the result of the half message, `end` the end of the local transaction (ROLL_BACK if
    `execute` was not called). `is_told`: whether the broker has acknowledged the end; otherwise,
    and always for UNKNOWN, it sends a check.
    """

    sent: SendResult
    end: TransactionEnd
    is_told: bool


class TransactionProducer(ClientLifetime):
    """Sends messages in transactions; use as `async with TransactionProducer("group", namesrv,
    check=check) as producer`. All producers of a group must be able to answer `check` for any
    message of the group, and a shared client has at most one TransactionProducer of a group.

    Args:
        group: the producer group, to which brokers send checks.
        namesrv: addresses "host:port", or one text with ";" between; not needed with `client`.
        check: returns the end of a message's local transaction.
        options: timeout, tries, compression.
        client: a client to share with other producers and consumers.
        client_options: intervals and timeouts of an own client; not with `client`.
        immunity_s: seconds after a message's birth in which brokers do not check
            (CHECK_IMMUNITY_TIME_IN_SECONDS); 0 for the broker's transactionTimeOut.

    `check` runs on the loop, at most CONCURRENT_CHECKS at a time; if it raises, the error is logged
    and the broker checks again. Raises InvalidArgument for an invalid argument, TlsError for TLS
    files that cannot be used.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = (),
        *,
        check: Check,
        options: ProducerOptions | None = None,
        client: SharedClient | None = None,
        client_options: ClientOptions | None = None,
        immunity_s: int = 0,
    ) -> None:
        self.group = group
        self._instance = instance_of(client, namesrv, client_options)
        self._options = options or ProducerOptions()
        check_type(self._options, ProducerOptions, "options", "a turbopump.ProducerOptions")
        self._producer = RemotingProducer(
            group, self._instance, self._options, checker=self._on_check
        )
        if not callable(check):
            raise InvalidArgument(f"check is a function, not {type(check).__name__}")
        self._check = self._as_call(check)
        self._half = {names.TRAN_MSG: "true", names.PGROUP: group}
        if immunity_s:
            self._half[names.CHECK_IMMUNITY_TIME] = str(immunity_s)
        self._known: set[str] = set()
        """Addresses of the brokers that received a heartbeat with the group."""
        self._checks = TaskSet()
        self._turns = asyncio.Semaphore(CONCURRENT_CHECKS)

    async def start(self) -> None:
        """Make the producer ready to send and to answer checks; the first send opens connections.
        Raises ClientError if started already, or if the shared client has a TransactionProducer of
        the group."""
        await super().start()

    async def close(self) -> None:
        """Leave the brokers and close the connections, unless others share the client; running
        checks are cancelled, except a `check` that calls `close`, which does not wait either.
        Closing twice does nothing; a closed producer can be started again. Brokers send the checks
        of unfinished transactions to other producers of the group."""
        await super().close()

    async def _open(self) -> None:
        """Start the producer of half messages."""
        self._known.clear()  # the brokers forgot the group with the last close
        self._turns = asyncio.Semaphore(CONCURRENT_CHECKS)  # of the loop that runs now
        await self._producer.start()

    async def _close_parts(self) -> None:
        """Close the producer of half messages, and cancel the running checks."""
        try:
            await self._producer.close()
        finally:
            await self._checks.cancel(self._leavers)

    def _mark_closed(self) -> None:
        """Count as closed, without a request: the loop of `start` was closed."""
        self._producer.mark_closed()
        self._checks = TaskSet()

    async def send_in_transaction(
        self, message: Message, execute: Execute, *, timeout_ms: int = 0
    ) -> TransactionResult:
        """Store a message that no consumer receives yet, run the local transaction, and end it.

        If the message was stored less safely than requested, it is rolled back and `execute` is not
        called, as in RocketMQ. An exception of `execute` is raised again; the end is unknown then,
        and the broker checks. If the end cannot be sent, no error is raised: see `is_told`.
        `timeout_ms` bounds the half message; 0 for the option's value. Raises as `Producer.send`
        does if the half message was not stored, and InvalidArgument for a `delay_level`.
        """
        sent = await self._send_half(message, timeout_ms)
        end = TransactionEnd.ROLL_BACK
        if sent.status is SendStatus.SEND_OK:
            end = await execute(message, sent.message_id)
        return TransactionResult(sent, end, await self._send_end(sent, end))

    @asynccontextmanager
    async def transaction(
        self, message: Message, *, timeout_ms: int = 0
    ) -> AsyncIterator[SendResult]:
        """Use as `async with producer.transaction(message): ...`: the block is the local
        transaction, and its value the result of the half message. The message is committed after
        the block, or rolled back if the block raises an Exception, which is raised again.

        If the block is cancelled, or the end cannot be sent, the broker checks. Raises ClientError
        if the half message was stored less safely than requested, else as `send_in_transaction`.
        """
        sent = await self._send_half(message, timeout_ms)
        if sent.status is not SendStatus.SEND_OK:
            await self._send_end(sent, TransactionEnd.ROLL_BACK)
            raise ClientError(f"the half message is not safe: {sent.status.value}")
        try:
            yield sent
        except Exception:
            await self._send_end(sent, TransactionEnd.ROLL_BACK)
            raise
        await self._send_end(sent, TransactionEnd.COMMIT)

    async def _send_half(self, message: Message, timeout_ms: int) -> SendResult:
        """Store the half message; a broker that is new to the group receives a heartbeat. Raises
        InvalidArgument for a delay level."""
        check_message(message)
        if message.delay_level:
            raise InvalidArgument("a message of a transaction cannot be delayed")
        sent = await self._producer.send(message, None, timeout_ms, self._half)
        address = self._instance.brokers.master_address(sent.queue.broker_name)
        if address is not None and address not in self._known:
            self._known.add(address)
            await self._instance.heartbeat([address])  # else the broker learns of the group in 30 s
        return sent

    async def _send_end(self, sent: SendResult, end: TransactionEnd) -> bool:
        """Send the end of a transaction; returns whether the broker acknowledged it. A failure
        is logged: the broker sends a check."""
        if end is TransactionEnd.UNKNOWN:
            return False
        try:
            log_offset = decode_message_id(sent.offset_message_id)[1]
        except ValueError as error:
            logger.warning("the end of transaction %s was not sent: %s", sent.message_id, error)
            return False
        header = EndTransactionRequest(
            producer_group=self.group,
            tran_state_table_offset=sent.queue_offset,
            commit_log_offset=log_offset,
            commit_or_rollback=end.value,
            msg_id=sent.message_id,
            from_transaction_check=False,
            transaction_id=sent.message_id,
            topic=sent.queue.topic,
            broker_name=sent.queue.broker_name,
        )
        address = self._instance.brokers.master_address(sent.queue.broker_name)
        try:
            if address is None:
                raise ClientError(f"broker {sent.queue.broker_name} has no master for the moment")
            await self._instance.ask(
                address,
                RequestCode.END_TRANSACTION,
                header,
                timeout_ms=self._options.timeout_ms,
            )
        except (BrokerError, ClientError, RemotingError) as error:
            logger.warning(
                "the end of transaction %s was not acknowledged: %s", sent.message_id, error
            )
            return False
        return True

    # Checks of transactions by brokers.

    def _on_check(self, request: Command, view: MessageView, peer: Peer) -> None:
        """Begin to answer a broker's check of the message `view`; beyond MAX_CHECKS the check is
        dropped."""
        asked = read_header(CheckTransactionStateRequest, request.fields)
        message = received_alone(view, asked.broker_name or "")
        if len(self._checks) >= MAX_CHECKS:
            logger.warning(
                "a check of transaction %s is dropped: %d checks wait",
                message.message_id,
                len(self._checks),
            )
            return
        self._checks.spawn(
            self._check_and_answer(asked, message, peer), "the check of a transaction"
        )

    async def _check_and_answer(
        self, asked: CheckTransactionStateRequest, message: ReceivedMessage, peer: Peer
    ) -> None:
        """Run the program's `check`, and send the end of the transaction to the broker `peer`;
        nothing for UNKNOWN."""
        try:
            async with self._turns:
                end = await self._check(message)
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            # a task that the program waited for was cancelled, not this task
            logger.error(
                "the check of transaction %s raised CancelledError: the broker checks again",
                message.message_id,
            )
            return
        if end is TransactionEnd.UNKNOWN:
            return
        header = EndTransactionRequest(
            producer_group=self.group,
            tran_state_table_offset=asked.tran_state_table_offset,
            commit_log_offset=asked.commit_log_offset,
            commit_or_rollback=end.value,
            msg_id=asked.msg_id or message.message_id,
            from_transaction_check=True,
            transaction_id=asked.transaction_id,
            topic=message.topic,
            broker_name=asked.broker_name,
        )
        request = new_request(RequestCode.END_TRANSACTION, header, oneway=True)
        self._instance.notify_peer(peer, request)
