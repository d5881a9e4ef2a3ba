"""The part of a Producer with `endpoints`: sends by gRPC.

Owns the tries after failures and the topics in the client's settings. It must never choose a queue:
the server does.

Tests: tests/integration/grpc/test_messaging.py
"""

import asyncio
import itertools
import logging
import os
import random
import socket
from collections.abc import Sequence
from typing import Any, Final

from turbopump.net.client import backoff
from turbopump.net.client.errors import BrokerError, InvalidArgument
from turbopump.net.client.grpc.conversion import encode_message
from turbopump.net.client.grpc.session import EndpointSession
from turbopump.net.client.messages import Message, SendResult, SendStatus
from turbopump.net.client.options import ClientOptions, ProducerOptions
from turbopump.net.client.selection import Choose
from turbopump.net.client.sending import check_batch
from turbopump.net.grpc.codes import ClientType, Code
from turbopump.net.grpc.messages import message_class
from turbopump.net.transport.errors import CallTimeout, ConnectError, RemotingError
from turbopump.net.wire.message_id import UniqueIds, decode_handle
from turbopump.net.wire.queues import MessageQueue

logger = logging.getLogger(__name__)

TOPICS_MAX: Final = 1_000
"""Maximum number of topics in the client's settings; later topics are left out."""
_STATUS: Final = {
    Code.OK: SendStatus.SEND_OK,
    Code.MASTER_PERSISTENCE_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    Code.SLAVE_PERSISTENCE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    Code.HA_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}
_SENT: Final = frozenset({*_STATUS, Code.MULTIPLE_RESULTS})
_AGAIN: Final = frozenset(
    {Code.TOO_MANY_REQUESTS, Code.INTERNAL_ERROR, Code.INTERNAL_SERVER_ERROR, Code.PROXY_TIMEOUT}
)
"""After these codes a message is sent again, so its topic may have it twice."""


class GrpcProducer:
    """Sends to the server `host:port`; of the options `timeout_ms` and `retries` count.

    Requests raise BrokerError for the server's refusal, RemotingError without an answer,
    ClientClosed unless started. `timeout_ms` 0 is the option's value.
    """

    def __init__(
        self, address: str, client_options: ClientOptions | None, options: ProducerOptions
    ) -> None:
        self._session = EndpointSession(address, client_options, self._make_settings)
        self._session.client_type = ClientType.PRODUCER
        self._timeout_ms = options.timeout_ms
        self._retries = options.retries
        self._topics: dict[str, None] = {}
        self._host = socket.gethostname()
        self._ids = UniqueIds(
            random.SystemRandom().randbytes(4), os.getpid(), id(self) >> 4, self._now_ms
        )

    async def start(self) -> None:
        """Connect and wait until the server accepted the settings. Raises ClientError if started
        already, BrokerError, RemotingError."""
        await self._session.start()

    async def close(self) -> None:
        """Send the client's termination and close the connection. Closing twice does nothing."""
        await self._session.close()

    def mark_closed(self) -> None:
        """Count as closed, without a request: the loop of `start` was closed."""
        self._session.mark_closed()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Raises InvalidArgument always: the server alone knows the queues."""
        raise InvalidArgument("not by gRPC: the server alone knows the queues")

    async def send_oneway(self, message: Message, queue: MessageQueue | None) -> str:
        """Raises InvalidArgument always: every message is answered."""
        raise InvalidArgument("not by gRPC: every message is answered")

    async def send(
        self, message: Message, target: MessageQueue | Choose | None, timeout_ms: int
    ) -> SendResult:
        """Send a message and wait until it is stored; raises InvalidArgument unless `target` is
        None, because the server chooses the queue. A message with a sharding key is tried once."""
        _refuse_queue(target)
        return (await self._send([message], timeout_ms))[0]

    async def _send(self, messages: Sequence[Message], timeout_ms: int) -> list[SendResult]:
        """Send messages of the same topic and return their results; raises the first failure of a
        message. Messages of a message group are tried once, so that their order stays."""
        session = self._session
        deadline_ms = session.options.steady_ms() + (timeout_ms or self._timeout_ms)
        ids = [self._ids.next_id() for _ in messages]
        now_ms = self._now_ms()
        made = [
            encode_message(one, message_id, now_ms, self._host)
            for one, message_id in zip(messages, ids, strict=True)
        ]
        topic = messages[0].topic
        self._add_topic(topic)
        tries = 1 if any(one.sharding_key for one in messages) else 1 + self._retries
        for failures in itertools.count(1):
            try:
                left_ms = deadline_ms - session.options.steady_ms()
                if left_ms <= 0:
                    raise CallTimeout("the message was not stored in time")
                return self._read_results(
                    topic, ids, await self._call_send({"messages": made}, left_ms)
                )
            except (BrokerError, RemotingError) as error:
                is_again = isinstance(error, RemotingError) or error.code in _AGAIN
                # A server that could not be reached received nothing: only the time decides.
                tries -= not isinstance(error, ConnectError)
                pause_ms = backoff.send_wait_ms(failures)
                late = session.options.steady_ms() + pause_ms >= deadline_ms
                if not is_again or tries == 0 or late:
                    raise
                logger.info("try %d of a message of %s failed: %s", failures, topic, error)
                await asyncio.sleep(pause_ms / 1_000)
        raise AssertionError("it ends by a result or an error")

    async def send_batch(
        self, messages: Sequence[Message], queue: MessageQueue | None, timeout_ms: int
    ) -> SendResult:
        """Send a batch and return the result of its first message, with the ids of all messages
        comma-joined. The server stores each message separately: after an error some may be stored.

        Raises InvalidArgument unless `queue` is None, or for messages that form no batch.
        """
        _refuse_queue(queue)
        check_batch(messages)
        found = await self._send(messages, timeout_ms)
        first = found[0]
        ids = ",".join(one.message_id for one in found)
        return SendResult(first.status, ids, "", first.queue, first.queue_offset)

    async def recall(self, handle: str, timeout_ms: int) -> str:
        """Cancel a timer that is not due yet and return its message id; one try. Raises
        InvalidArgument for a malformed handle."""
        try:
            topic = decode_handle(handle).topic
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
        asked = {"topic": {"name": topic}, "recall_handle": handle}
        response = await self._session.call_successfully(
            "RecallMessage", asked, timeout_ms or self._timeout_ms
        )
        return str(response.message_id)

    async def _call_send(self, request: dict[str, Any], left_ms: int) -> Any:
        """Call SendMessage within `left_ms`; statuses about durability count as successes."""
        return await self._session.call_successfully("SendMessage", request, left_ms, fine=_SENT)

    def _read_results(self, topic: str, ids: list[str], response: Any) -> list[SendResult]:
        """Return the result of each message, in the order of `ids`. Raises BrokerError for the
        first message that was not stored."""
        entries = list(response.entries)
        if len(entries) == 1 and len(ids) > 1:
            entries *= len(ids)  # RocketMQ's proxy returns one entry for all
        found = []
        for message_id, entry in zip(ids, entries, strict=True):
            status = _STATUS.get(entry.status.code)
            if status is None:
                raise BrokerError(entry.status.code, entry.status.message, self._session.address)
            queue = MessageQueue(topic, "", -1)
            handle = entry.recall_handle
            found.append(SendResult(status, message_id, "", queue, entry.offset, handle))
        return found

    def _add_topic(self, topic: str) -> None:
        """Add the topic to the client's settings, once; a server without the topic in the settings
        accepts the message all the same."""
        if topic not in self._topics and len(self._topics) < TOPICS_MAX:
            self._topics[topic] = None
            self._session.send_settings_soon()

    def _make_settings(self) -> Any:
        """Return the message Settings with the topics sent to."""
        return message_class("Settings")(
            client_type=ClientType.PRODUCER,
            publishing={"topics": [{"name": topic} for topic in self._topics]},
        )

    def _now_ms(self) -> int:
        return self._session.options.now_ms()


def _refuse_queue(target: object) -> None:
    """Raises InvalidArgument unless `target` is None: the server chooses the queue."""
    if target is not None:
        raise InvalidArgument("not by gRPC: a sharding key is what fixes the queue")
