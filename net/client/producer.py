"""The producer: sends messages to the queues of their topics.

Owns the choice of a queue, the tries after failures and the client's message ids. It must never
encode a header; sending.py does.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from turbopump.net.client import backoff
from turbopump.net.client.errors import (
    BrokerError,
    ClientClosed,
    ClientError,
    InvalidArgument,
    NoWritableQueue,
    RouteNotFound,
    expect,
)
from turbopump.net.client.lifetime import ClientLifetime
from turbopump.net.client.messages import Message, SendResult
from turbopump.net.client.options import ClientOptions
from turbopump.net.client.selection import QueueSelector, choose_by_key
from turbopump.net.client.sending import (
    COMPRESS_OVER,
    batch_request,
    check_batch,
    check_group,
    check_message,
    costs_no_try,
    recall_request,
    recall_result,
    send_request,
    send_result,
    worth_another_try,
)
from turbopump.net.client.shared_client import SharedClient, instance_of
from turbopump.net.transport.errors import CallTimeout, RemotingError
from turbopump.net.wire import hosts
from turbopump.net.wire.command import Command
from turbopump.net.wire.message_id import UniqueIds
from turbopump.net.wire.queues import MessageQueue

if TYPE_CHECKING:
    from turbopump.net.client.grpc.producer import GrpcProducer

logger = logging.getLogger(__name__)

Choose = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Chooses one of a topic's queues, which are sorted and not empty."""


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """Settings of a producer (client/producer/DefaultMQProducer).

    Args:
        timeout_ms: bound of a send, all its tries together.
        retries: further tries after the first one failed, on another broker if there is one.
        compress_over: bodies of this size or larger are compressed; 0 for never.
        retries_to_queue: like `retries`, for sends to a fixed queue. It suits callers that send
            the messages of a queue one after the other and accept duplicates.
        try_timeout_ms: bound of each try (sendMsgMaxTimeoutPerRequest): a broker that hangs uses
            up only this part of `timeout_ms`, and the next try goes to another broker; 0 for no
            bound but `timeout_ms`.
    """

    timeout_ms: int = 3000
    retries: int = 2
    compress_over: int = COMPRESS_OVER
    retries_to_queue: int = 0
    try_timeout_ms: int = 0


class Producer(ClientLifetime):
    """Sends messages; use as `async with Producer("group", ["127.0.0.1:9876"]) as producer`.

    With `endpoints` the producer speaks gRPC, to RocketMQ's proxy, Turbopump's proxy or a Turbopump
    broker, and needs no name server: `Producer(endpoints="127.0.0.1:8081")`. Topics must exist and
    have the type of the messages; servers choose the queues, and results do not name them.

    Args:
        group: the producer group, which brokers list; unused by gRPC.
        namesrv: addresses "host:port", or one text with ";" between; not needed with `client`.
        endpoints: "host:port" where gRPC is served.
        options: timeout, tries, compression.
        client: a client to share with other producers and consumers.
        client_options: intervals and timeouts of an own client.
        seed: makes the queue at which a topic's round begins repeatable.
    """

    def __init__(
        self,
        group: str = "",
        namesrv: str | Sequence[str] = (),
        *,
        endpoints: str = "",
        options: ProducerOptions | None = None,
        client: SharedClient | None = None,
        client_options: ClientOptions | None = None,
        seed: int | None = None,
    ) -> None:
        self.group = group
        self._options = options or ProducerOptions()
        expect(self._options, ProducerOptions, "options", "a turbopump.ProducerOptions")
        self._grpc = _grpc(endpoints, client_options, self._options) if endpoints else None
        if not endpoints:
            check_group(group)
        self._instance = instance_of(client, namesrv or endpoints, client_options)
        self._selector = QueueSelector(Random(seed))
        self._ids: UniqueIds | None = None

    async def start(self) -> None:
        """Make the producer ready; connections to brokers are made when first used."""
        if self._grpc is not None:
            await self._grpc.start()
            return
        if self._ids is not None:
            raise ClientError("the producer is started already")
        await self._instance.add_producer(self.group)
        packed = hosts.pack_ip(self._instance.ip, 0)[:-4]
        constant = id(self) >> 4
        self._ids = UniqueIds(packed, os.getpid(), constant, self._instance.now_ms)

    async def close(self) -> None:
        """Leave the brokers and close the connections. Closing twice does nothing."""
        if self._grpc is not None:
            await self._grpc.close()
        if self._ids is not None:
            self._ids = None
            await self._instance.remove_producer(self.group)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be sent to, sorted; raises RouteNotFound."""
        self._refuse_grpc("the server alone knows the queues")
        return list(await self._publish_queues(topic))

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        choose: Choose | None = None,
        timeout_ms: int = 0,
    ) -> SendResult:
        """Send one message and wait until it is stored.

        By default the topic's queues are taken in turn, and after a failure another broker is
        tried. With `queue`, `choose` or a sharding key in the message the queue is fixed and there
        is one try (unless `retries_to_queue`), so that the order of its messages is not changed.

        Args:
            message: the message to send.
            queue: the queue to send to.
            choose: chooses the queue, for ordered messages.
            timeout_ms: bound of all tries; 0 for the option's value.

        Raises InvalidArgument for an invalid message, RouteNotFound without a route, BrokerError
        for the broker's refusal, and RemotingError without an answer: in that case the message may
        have been stored.
        """
        expect(message, Message, "the message", "a turbopump.Message")
        if self._grpc is not None:
            if queue is not None or choose is not None:
                self._refuse_grpc("a sharding key is what fixes the queue")
            return (await self._grpc.send([message], timeout_ms))[0]
        check_message(message)
        unique_id = self._next_id()
        if choose is None and message.sharding_key:
            choose = partial(choose_by_key, key=message.sharding_key)

        def request(target: MessageQueue) -> Command:
            return self._request(message, target, unique_id)

        target = queue or choose
        return await self._send(message.topic, target, request, unique_id, timeout_ms)

    async def send_half(
        self, message: Message, half: Mapping[str, str], *, timeout_ms: int = 0
    ) -> SendResult:
        """Send the first half of a transaction: as `send`, with the properties `half`, by which no
        consumer receives the message (transactions.py)."""
        self._refuse_grpc("transactions are not supported")
        unique_id = self._next_id()
        choose = partial(choose_by_key, key=message.sharding_key) if message.sharding_key else None

        def request(target: MessageQueue) -> Command:
            return self._request(message, target, unique_id, half=half)

        return await self._send(message.topic, choose, request, unique_id, timeout_ms)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int = 0,
    ) -> SendResult:
        """Send messages of the same topic as one batch: all of them are stored, in one queue, or no
        message.

        The result's ids are comma-joined; its queue offset is the first message's. Raises as `send`
        does, and InvalidArgument for messages that may not form a batch (a delay, different topics,
        more than 4 MiB together).
        """
        if self._grpc is not None:
            if queue is not None:
                self._refuse_grpc("a sharding key is what fixes the queue")
            return await self._grpc.send_batch(messages, timeout_ms)
        check_batch(messages)
        ids = [self._next_id() for _ in messages]
        batch_id = self._next_id()

        def request(target: MessageQueue) -> Command:
            now_ms = self._instance.now_ms()
            return batch_request(messages, target, self.group, ids, batch_id, now_ms)

        return await self._send(messages[0].topic, queue, request, ",".join(ids), timeout_ms)

    async def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> str:
        """Send without waiting for an answer; returns the message id. The message may be lost.

        Raises as `send` does if the request could not be written.
        """
        self._refuse_grpc("every message is answered")
        check_message(message)
        unique_id = self._next_id()
        queues = await self._publish_queues(message.topic)
        if queue is None and message.sharding_key:
            queue = choose_by_key(queues, message.sharding_key)
        target = queue or self._selector.choose(queues, (), self._instance.steady_ms())
        request = self._request(message, target, unique_id, oneway=True)
        await self._instance.notify(await self._master(target), request)
        return unique_id

    async def recall(self, handle: str, *, timeout_ms: int = 0) -> str:
        """Recall a timer that is not due yet, by the `recall_handle` of its result; returns its
        message id. The broker must have recallMessageEnable.

        Raises InvalidArgument for a malformed handle, BrokerError for the broker's refusal (also
        when the timer is due by then), RemotingError without an answer.
        """
        if self._grpc is not None:
            return await self._grpc.recall(handle, timeout_ms)
        request, queue = recall_request(handle, self.group)
        await self._publish_queues(queue.topic)
        address = await self._master(queue)
        wait_ms = timeout_ms or self._options.timeout_ms
        return recall_result(await self._instance.call(address, request, wait_ms), address)

    def _refuse_grpc(self, why: str) -> None:
        if self._grpc is not None:
            raise InvalidArgument(f"not by gRPC: {why}")

    def _request(
        self,
        message: Message,
        queue: MessageQueue,
        unique_id: str,
        *,
        oneway: bool = False,
        half: Mapping[str, str] | None = None,
    ) -> Command:
        return send_request(
            message,
            queue,
            self.group,
            unique_id,
            self._instance.now_ms(),
            compress_over=self._options.compress_over,
            oneway=oneway,
            half=half,
        )

    async def _send(
        self,
        topic: str,
        target: MessageQueue | Choose | None,
        request: Callable[[MessageQueue], Command],
        message_id: str,
        timeout_ms: int,
    ) -> SendResult:
        """Try until the message is stored, the tries or the time are used up, or no try can help.

        A broker that cannot be reached received nothing, so such a try does not count: in a
        failover only the time decides. The same holds for a broker that may not serve for the
        moment (its lease ended, or another broker is the master), unless the queue is fixed: an
        earlier try may be in that broker's log. A queue that was chosen stays the same for all
        tries.
        """
        deadline_ms = self._instance.steady_ms() + (timeout_ms or self._options.timeout_ms)
        options = self._options
        tries = 1 + (options.retries if target is None else options.retries_to_queue)
        fixed = target if isinstance(target, MessageQueue) else None
        tried: set[str] = set()
        failures = 0
        while True:
            try:
                async with _deadline(deadline_ms - self._instance.steady_ms()):
                    if fixed is None and callable(target):
                        fixed = target(await self._publish_queues(topic))
                    queue = fixed or await self._choose(topic, tried)
                    return await self._try(queue, request(queue), message_id, deadline_ms, tried)
            except (BrokerError, RemotingError, NoWritableQueue) as error:
                failures += 1
                tries -= not costs_no_try(error, target is not None)
                if tries == 0 or not worth_another_try(error):
                    raise
                logger.info("try %d of a message of %s failed: %s", failures, topic, error)
                pause_ms = await self._pause_ms(topic, tried, failures, target is not None)
                if self._instance.steady_ms() + pause_ms >= deadline_ms:
                    raise
                await asyncio.sleep(pause_ms / 1000)

    async def _choose(self, topic: str, tried: set[str]) -> MessageQueue:
        queues = await self._publish_queues(topic)
        return self._selector.choose(queues, tried, self._instance.steady_ms())

    async def _try(
        self,
        queue: MessageQueue,
        request: Command,
        message_id: str,
        deadline_ms: int,
        tried: set[str],
    ) -> SendResult:
        tried.add(queue.broker_name)
        try:
            address = await self._master(queue)
            left_ms = max(1, deadline_ms - self._instance.steady_ms())
            wait_ms = min(left_ms, self._options.try_timeout_ms or left_ms)
            response = await self._instance.call(address, request, wait_ms)
            result = send_result(response, queue, message_id, address)
        except (BrokerError, RemotingError):
            self._selector.failed(queue.broker_name, self._instance.steady_ms())
            raise
        self._selector.succeeded(queue.broker_name)
        return result

    async def _pause_ms(self, topic: str, tried: set[str], failures: int, is_fixed: bool) -> int:
        """Request the route again; return 0 if it has a broker that may be tried and was not."""
        try:
            route = await self._instance.refresh(topic, for_sending=True)
        except (ClientError, RemotingError) as second:
            logger.info("the route of %s was not refreshed: %s", topic, second)
            route = None
        names = {queue.broker_name for queue in route.publish} if route is not None else set()
        return 0 if names - tried and not is_fixed else backoff.send_wait_ms(failures)

    async def _publish_queues(self, topic: str) -> Sequence[MessageQueue]:
        route = await self._instance.route(topic, for_sending=True)
        if route is not None and not route.publish:
            route = await self._instance.refresh(topic, for_sending=True)
        if route is None:
            raise RouteNotFound(f"no name server knows topic {topic}, nor may it be created")
        if not route.publish:
            raise NoWritableQueue(f"no queue of {topic} can be written for the moment")
        return route.publish

    async def _master(self, queue: MessageQueue) -> str:
        address = self._instance.brokers.master(queue.broker_name)
        if address is None:
            await self._publish_queues(queue.topic)
            address = self._instance.brokers.master(queue.broker_name)
        if address is None:
            raise NoWritableQueue(f"broker {queue.broker_name} has no master for the moment")
        return address

    def _next_id(self) -> str:
        if self._ids is None:
            raise ClientClosed("the producer is not started, or is closed")
        return self._ids.next()


def _grpc(
    endpoints: str, client_options: ClientOptions | None, options: ProducerOptions
) -> "GrpcProducer":
    from turbopump.net.client.grpc.producer import GrpcProducer  # loads protobuf

    return GrpcProducer(endpoints, client_options, options.timeout_ms, options.retries)


@asynccontextmanager
async def _deadline(left_ms: int) -> AsyncIterator[None]:
    """Raise CallTimeout at the deadline: requests to name servers have their own timeouts."""
    try:
        async with asyncio.timeout(max(1, left_ms) / 1000):
            yield
    except CallTimeout:  # the timeout of a call, not the deadline
        raise
    except TimeoutError:
        raise CallTimeout("the message was not stored in time") from None
