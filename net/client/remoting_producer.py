"""A producer by remoting: RocketMQ's own protocol, with routes from name servers.

Owns the choice of a queue, the tries after failures and the client's message ids. It must never
encode a header; sending.py does.

Tests: tests/unit/net/client/test_producer.py
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from random import Random

from turbopump.net.client import backoff
from turbopump.net.client.client_instance import Checker, ClientInstance
from turbopump.net.client.errors import (
    BrokerError,
    ClientClosed,
    ClientError,
    NoWritableQueue,
    RouteNotFound,
)
from turbopump.net.client.messages import Message, SendResult
from turbopump.net.client.options import ProducerOptions
from turbopump.net.client.selection import Choose, QueueSelector, choose_by_key
from turbopump.net.client.sending import (
    batch_request,
    check_batch,
    check_group,
    check_message,
    is_retryable,
    is_uncounted_failure,
    recall_request,
    recall_result,
    send_request,
    send_result,
)
from turbopump.net.transport.errors import CallTimeout, RemotingError
from turbopump.net.wire import hosts
from turbopump.net.wire.command import Command
from turbopump.net.wire.message_id import UniqueIds
from turbopump.net.wire.queues import MessageQueue

logger = logging.getLogger(__name__)


class RemotingProducer:
    """A member of a producer group; `seed` makes the queue at which a topic's round begins
    repeatable, and `checker` answers the checks of the group's transactions. Raises InvalidArgument
    for an invalid group name.

    Sends raise ClientClosed unless started, and the errors that `producer.Producer` names.
    """

    def __init__(
        self,
        group: str,
        instance: ClientInstance,
        options: ProducerOptions,
        seed: int | None = None,
        checker: Checker | None = None,
    ) -> None:
        check_group(group)
        self._group = group
        self._instance = instance
        self._options = options
        self._checker = checker
        self._selector = QueueSelector(Random(seed))
        self._ids: UniqueIds | None = None

    async def start(self) -> None:
        """Have the client's next heartbeats list the group; the first send opens connections to
        brokers. Raises ClientError if started already, for a second checker of the group, and if
        this machine's own address cannot be used."""
        if self._ids is not None:
            raise ClientError("the producer is started already")
        await self._instance.add_producer(self._group, self._checker)
        try:
            packed = hosts.pack_ip(self._instance.ip, 0)[:-4]
        except ValueError:
            await self._instance.remove_producer(self._group, self._checker)
            raise ClientError(f"{self._instance.ip!r} is no IP address of this machine") from None
        constant = id(self) >> 4
        self._ids = UniqueIds(packed, os.getpid(), constant, self._instance.now_ms)

    async def close(self) -> None:
        """Leave the group at all known brokers (1 s at most) and release the client, which closes
        with its last user. Closing twice does nothing."""
        if self._ids is not None:
            self._ids = None
            await self._instance.remove_producer(self._group, self._checker)

    def mark_closed(self) -> None:
        """Count as closed, without a request: the loop of `start` was closed."""
        self._ids = None

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that can be sent to, sorted by broker name and queue id. Raises RouteNotFound,
        NoWritableQueue, RemotingError."""
        return list(await self._publish_queues(topic))

    async def send(
        self,
        message: Message,
        target: MessageQueue | Choose | None,
        timeout_ms: int,
        half: Mapping[str, str] | None = None,
    ) -> SendResult:
        """Send a message to `target`, a queue or a choice, and wait until it is stored; None takes
        the queues in turn, unless the message has a sharding key.

        `timeout_ms` bounds all tries; 0 for the option's value. With the properties `half` no
        consumer receives the message: it is the first half of a transaction (transactions.py).
        """
        check_message(message)
        unique_id = self._next_id()
        if target is None and message.sharding_key:
            target = partial(choose_by_key, key=message.sharding_key)

        def request(queue: MessageQueue) -> Command:
            return self._make_request(message, queue, unique_id, half=half)

        return await self._send(message.topic, target, request, unique_id, timeout_ms)

    async def send_batch(
        self, messages: Sequence[Message], queue: MessageQueue | None, timeout_ms: int
    ) -> SendResult:
        """Send messages of the same topic as one batch to `queue`, or to the topic's queue whose
        turn it is; all messages are stored, or no message."""
        check_batch(messages)
        ids = [self._next_id() for _ in messages]
        batch_id = self._next_id()

        def request(target: MessageQueue) -> Command:
            now_ms = self._instance.now_ms()
            return batch_request(messages, target, self._group, ids, batch_id, now_ms)

        return await self._send(messages[0].topic, queue, request, ",".join(ids), timeout_ms)

    async def send_oneway(self, message: Message, queue: MessageQueue | None) -> str:
        """Write the request to `queue`, or the queue of the sharding key, or the queue whose turn
        it is; return the message id without waiting for an answer. There is one try."""
        check_message(message)
        unique_id = self._next_id()
        queues = await self._publish_queues(message.topic)
        if queue is None and message.sharding_key:
            queue = choose_by_key(queues, message.sharding_key)
        target = queue or self._selector.choose_queue(queues, (), self._instance.steady_ms())
        request = self._make_request(message, target, unique_id, oneway=True)
        await self._instance.notify(await self._master_address(target), request)
        return unique_id

    async def recall(self, handle: str, timeout_ms: int) -> str:
        """Cancel a timer at the broker that its handle names, and return its message id; there is
        one try, of `timeout_ms` (0: the option's value)."""
        request, queue = recall_request(handle, self._group)
        await self._publish_queues(queue.topic)
        address = await self._master_address(queue)
        wait_ms = timeout_ms or self._options.timeout_ms
        return recall_result(await self._instance.call(address, request, wait_ms), address)

    def _make_request(
        self,
        message: Message,
        queue: MessageQueue,
        unique_id: str,
        *,
        oneway: bool = False,
        half: Mapping[str, str] | None = None,
    ) -> Command:
        """Build the request of a message for `queue`."""
        return send_request(
            message,
            queue,
            self._group,
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
                async with _limit_time(deadline_ms - self._instance.steady_ms()):
                    if fixed is None and callable(target):
                        fixed = target(await self._publish_queues(topic))
                    queue = fixed or await self._next_queue(topic, tried)
                    return await self._send_once(
                        queue, request(queue), message_id, deadline_ms, tried
                    )
            except (BrokerError, RemotingError, NoWritableQueue) as error:
                failures += 1
                tries -= not is_uncounted_failure(error, target is not None)
                if tries == 0 or not is_retryable(error):
                    raise
                logger.info("try %d of a message of %s failed: %s", failures, topic, error)
                pause_ms = await self._pause_ms(topic, tried, failures, target is not None)
                if self._instance.steady_ms() + pause_ms >= deadline_ms:
                    raise
                await asyncio.sleep(pause_ms / 1000)

    async def _next_queue(self, topic: str, tried: set[str]) -> MessageQueue:
        """Return the queue whose turn it is; `tried` are the names of brokers at which this send
        failed."""
        queues = await self._publish_queues(topic)
        return self._selector.choose_queue(queues, tried, self._instance.steady_ms())

    async def _send_once(
        self,
        queue: MessageQueue,
        request: Command,
        message_id: str,
        deadline_ms: int,
        tried: set[str],
    ) -> SendResult:
        """Send a request once, to the queue's master, until `deadline_ms` (monotonic clock) at
        most, and add the broker to `tried`. Raises BrokerError, RemotingError, NoWritableQueue."""
        tried.add(queue.broker_name)
        try:
            address = await self._master_address(queue)
            left_ms = max(1, deadline_ms - self._instance.steady_ms())
            wait_ms = min(left_ms, self._options.try_timeout_ms or left_ms)
            response = await self._instance.call(address, request, wait_ms)
            result = send_result(response, queue, message_id, address)
        except (BrokerError, RemotingError):
            self._selector.note_failure(queue.broker_name, self._instance.steady_ms())
            raise
        self._selector.note_success(queue.broker_name)
        return result

    async def _pause_ms(self, topic: str, tried: set[str], failures: int, is_fixed: bool) -> int:
        """Request the route again, and return the wait before the next try, in ms; 0 if the
        route has a broker that may be tried and was not."""
        try:
            route = await self._instance.refresh(topic, for_sending=True)
        except (ClientError, RemotingError) as second:
            logger.info("the route of %s was not refreshed: %s", topic, second)
            route = None
        names = {queue.broker_name for queue in route.publish} if route is not None else set()
        return 0 if names - tried and not is_fixed else backoff.send_wait_ms(failures)

    async def _publish_queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the queues of a topic that can be sent to. Raises RouteNotFound,
        NoWritableQueue, RemotingError."""
        route = await self._instance.route(topic, for_sending=True)
        if route is not None and not route.publish:
            route = await self._instance.refresh(topic, for_sending=True)
        if route is None:
            raise RouteNotFound(f"no name server knows topic {topic}, nor may it be created")
        if not route.publish:
            raise NoWritableQueue(f"no queue of {topic} can be written for the moment")
        return route.publish

    async def _master_address(self, queue: MessageQueue) -> str:
        """Return the address of the queue's master. Raises NoWritableQueue."""
        address = self._instance.brokers.master_address(queue.broker_name)
        if address is None:
            await self._publish_queues(queue.topic)
            address = self._instance.brokers.master_address(queue.broker_name)
        if address is None:
            raise NoWritableQueue(f"broker {queue.broker_name} has no master for the moment")
        return address

    def _next_id(self) -> str:
        """Return a new message id; raises ClientClosed unless started."""
        if self._ids is None:
            raise ClientClosed("the producer is not started, or is closed")
        return self._ids.next_id()


@asynccontextmanager
async def _limit_time(left_ms: int) -> AsyncIterator[None]:
    """Raise CallTimeout if the block takes longer than `left_ms`: requests to name servers have
    their own timeouts."""
    try:
        async with asyncio.timeout(max(1, left_ms) / 1000):
            yield
    except CallTimeout:  # the timeout of a call, not the deadline
        raise
    except TimeoutError:
        raise CallTimeout("the message was not stored in time") from None
