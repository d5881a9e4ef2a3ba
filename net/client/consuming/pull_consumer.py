"""The pull consumer: a program assigns queues, polls, and commits when it likes.

Owns the read-ahead of the assigned queues and the positions in them. It must never divide queues
among members or retry messages: the caller decides.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from turbopump.engine.types import QueueOffset
from turbopump.net.client import backoff
from turbopump.net.client.consuming.offsets import BrokerOffsets, QueueOffsets
from turbopump.net.client.consuming.pulling import Puller, PullStatus
from turbopump.net.client.consuming.queue_runner import FAILURES
from turbopump.net.client.consuming.subscribing import subscription_of
from turbopump.net.client.errors import (
    BrokerError,
    ClientClosed,
    ClientError,
    RouteNotFound,
    check_type,
)
from turbopump.net.client.group_member import GroupMember, make_refuser
from turbopump.net.client.lifetime import ClientLifetime
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.client.options import ClientOptions, ConsumeFrom
from turbopump.net.client.sending import check_group
from turbopump.net.client.shared_client import SharedClient, instance_of
from turbopump.net.client.tasks import TaskSet
from turbopump.net.wire.heartbeat import CONSUME_ACTIVELY
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.subscription import ALL, SubscriptionData

logger = logging.getLogger(__name__)

SUSPEND_MS: Final = 20_000
"""Longest time in milliseconds that a broker holds a pull
(DefaultLitePullConsumer.brokerSuspendMaxTimeMillis)."""


@dataclass(frozen=True, slots=True)
class PullOptions:
    """Settings of a pull consumer (client/consumer/DefaultLitePullConsumer).

    Args:
        consume_from: start of a queue without a committed offset.
        consume_from_ms: the time for ConsumeFrom.TIMESTAMP, epoch milliseconds.
        pull_batch: messages requested by one pull, and returned by one poll.
        buffer_messages: messages of each queue read ahead; one pull may go beyond.
        buffer_bytes: bytes of each queue read ahead; one pull may go beyond.
    """

    consume_from: ConsumeFrom = ConsumeFrom.LAST
    consume_from_ms: int = 0
    pull_batch: int = 32
    buffer_messages: int = 1000
    buffer_bytes: int = 16 * 1024 * 1024


class _ReadAhead:
    """Read-ahead of an assigned queue: the messages not yet returned, and the task that reads."""

    __slots__ = ("error", "messages", "next_fetch", "position", "room", "size", "task")

    def __init__(self) -> None:
        self.messages: deque[ReceivedMessage] = deque()
        self.size = 0
        self.next_fetch = QueueOffset(0)
        self.position: QueueOffset | None = None
        self.error: BrokerError | None = None
        self.room = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def take_message(self) -> ReceivedMessage:
        """Remove and return the next message, and advance the position."""
        message = self.messages.popleft()
        self.size -= len(message.body)
        self.position = QueueOffset(message.queue_offset + 1)
        if not self.messages:
            self.position = self.next_fetch
        self.room.set()
        return message


class PullConsumer(ClientLifetime):
    """Reads assigned queues; use as `async with PullConsumer("group", [...]) as consumer`. Methods
    but `position` and the seeks raise ClientClosed unless started.

    Args:
        group: the consumer group whose offsets are read and committed.
        namesrv: addresses "host:port", or one text with ";" between; not needed with `client`.
        options: start position and limits of reading ahead.
        client: a client to share with other producers and consumers.
        client_options: intervals and timeouts of an own client; not with `client`.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = (),
        *,
        options: PullOptions | None = None,
        client: SharedClient | None = None,
        client_options: ClientOptions | None = None,
    ) -> None:
        check_group(group)
        self.group = group
        self._options = options or PullOptions()
        check_type(self._options, PullOptions, "options", "a turbopump.PullOptions")
        self._instance = instance_of(client, namesrv, client_options)
        self._offsets = BrokerOffsets(self._instance, group)
        self._queue_offsets = QueueOffsets(self._instance)
        self._puller = Puller(self._instance, group, lite=True)
        self._tasks = TaskSet()
        self._assigned: dict[MessageQueue, _ReadAhead] = {}
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._member = GroupMember(
            group,
            self._subscriptions,
            CONSUME_ACTIVELY,
            make_refuser("pull"),
            consume_from=self._options.consume_from,
        )
        self._arrived, self._assigning = asyncio.Event(), asyncio.Lock()
        self._running = False

    async def start(self) -> None:
        """Join the group, for heartbeats; nothing is read before `assign`. Raises ClientError if
        started already, or if the shared client has a consumer of the group."""
        await super().start()

    async def _open(self) -> None:
        """Join the group."""
        await self._instance.add_member(self._member)
        # Each belongs to the loop in which it is waited for.
        self._arrived, self._assigning = asyncio.Event(), asyncio.Lock()
        self._running = True

    async def close(self) -> None:
        """Stop reading, end waiting polls, and leave the group; commits nothing, and forgets the
        assignment. Closing twice does nothing; a closed consumer can be started again."""
        await super().close()

    async def _close_parts(self) -> None:
        """Drop the assignment, wake waiting polls, and leave the group; no-op if it was not
        joined."""
        if self._running:
            self._running = False
            self._subscriptions.clear()
            self._assigned.clear()  # from this moment a seek begins no task
            self._arrived.set()
            await self._tasks.cancel()
            await self._instance.remove_member(self._member)

    def _mark_closed(self) -> None:
        """Count as closed, without a request: the loop of `start` was closed."""
        self._running = False
        self._subscriptions.clear()
        self._assigned.clear()
        self._tasks = TaskSet()

    @property
    def assigned(self) -> list[MessageQueue]:
        """The assigned queues, sorted by topic, broker name and queue id."""
        return sorted(self._assigned)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be read, sorted by broker name and queue id; raises
        RouteNotFound for an unknown topic, RemotingError if no name server answers."""
        route = await self._instance.route(topic)
        if route is None:
            raise RouteNotFound(f"no name server knows topic {topic}")
        return list(route.subscribe)

    async def assign(
        self, queues: Collection[MessageQueue], expression: str = ALL, *, sql: str | None = None
    ) -> None:
        """Read these queues and no others, ahead and in the background. Queues that were assigned
        before keep their position and the messages read ahead; a new queue begins at the group's
        committed offset, else at the start position of the options.

        `expression` is "*" or tags joined by "||"; `sql` instead of it a condition on properties in
        RocketMQ's SQL92; it replaces the topics' earlier expression for messages not yet read
        ahead. Raises InvalidArgument for an invalid expression, RouteNotFound for an unknown topic,
        RemotingError; `poll` raises BrokerError if a broker refuses the condition. Calls at the
        same time take effect one after the other.
        """
        self._check_running()
        for queue in queues:
            check_type(queue, MessageQueue, "an assigned queue", "a turbopump.MessageQueue")
        async with self._assigning:
            await self._change_assignment(queues, expression, sql)

    async def _change_assignment(
        self, queues: Collection[MessageQueue], expression: str, sql: str | None
    ) -> None:
        """Change the assignment as `assign` does; calls must not overlap."""
        now_ms = self._instance.now_ms()
        topics = {queue.topic for queue in queues}
        wanted = {topic: subscription_of(topic, expression, sql, now_ms) for topic in topics}
        for topic in wanted:
            await self.queues(topic)
        self._check_running()
        self._subscriptions.update(wanted)
        for queue in [queue for queue in self._assigned if queue not in queues]:
            self._stop_reading(queue)
            del self._assigned[queue]
            self._puller.forget_queue(queue)
        for topic in set(self._subscriptions) - topics:
            del self._subscriptions[topic]
        await self._instance.heartbeat()
        self._check_running()  # a task that begins after `close` would never end
        for queue in queues:
            if queue not in self._assigned:
                self._assigned[queue] = _ReadAhead()
                self._start_reading(queue, None)

    async def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Discard the messages read ahead of an assigned queue and continue reading it at a queue
        offset; commits nothing. Raises ClientError if the queue is not assigned."""
        self._read_ahead_of(queue)
        self._stop_reading(queue)
        self._assigned[queue] = _ReadAhead()
        self._start_reading(queue, QueueOffset(queue_offset))

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """`seek` to the oldest stored message; also raises BrokerError, RemotingError."""
        await self.seek(queue, await self._queue_offsets.query_earliest(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """`seek` to the present end of the queue: only later messages are read. Also raises
        BrokerError, RemotingError."""
        await self.seek(queue, await self._queue_offsets.query_latest(queue))

    async def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """`seek` to the first message stored at a time (epoch milliseconds) or later. Also raises
        BrokerError, RemotingError."""
        await self.seek(queue, await self._queue_offsets.at_time(queue, timestamp_ms))

    async def poll(self, timeout_ms: int = 1000, max_count: int = 0) -> list[ReceivedMessage]:
        """Return up to `max_count` messages read ahead (0: pull_batch), waiting up to `timeout_ms`
        for the first, and advance the positions; messages of a queue are in its order, queues take
        turns. Commits nothing.

        An empty list if no message came, or the consumer was closed. Raises ClientError if no queue
        is assigned, BrokerError if no message came in time and a broker refuses the pulls.
        """
        self._check_running()
        if not self._assigned:
            raise ClientError("no queue is assigned: call assign first")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self._running and not any(ahead.messages for ahead in self._read_aheads()):
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            for ahead in self._read_aheads():
                if ahead.error is not None:
                    raise ahead.error from None
        return self._take_messages(max_count or self._options.pull_batch)

    def position(self, queue: MessageQueue) -> QueueOffset | None:
        """The offset of the next message that `poll` returns of an assigned queue; None until the
        start offset is known. Raises ClientError if the queue is not assigned."""
        return self._read_ahead_of(queue).position

    async def committed(self, queue: MessageQueue) -> QueueOffset | None:
        """Query the group's committed offset of a queue at its broker; None if the group has none.
        For a young queue a broker may answer 0 instead (see ConsumeFrom). Raises RouteNotFound,
        BrokerError, RemotingError."""
        self._check_running()
        await self.queues(queue.topic)
        return await self._offsets.read(queue)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit queue offsets, each the offset of the next message to consume, and wait for the
        brokers' answers; by default the known positions of all assigned queues. Later polls are not
        affected.

        Raises BrokerError, RemotingError, RouteNotFound; earlier offsets of the mapping are
        committed then.
        """
        self._check_running()
        if offsets is None:
            offsets = {
                queue: ahead.position
                for queue, ahead in self._assigned.items()
                if ahead.position is not None
            }
        for queue, queue_offset in offsets.items():
            await self._offsets.commit_offset(queue, QueueOffset(queue_offset))

    def _read_aheads(self) -> Collection[_ReadAhead]:
        """Return the read-ahead of each assigned queue."""
        return self._assigned.values()

    def _read_ahead_of(self, queue: MessageQueue) -> _ReadAhead:
        """Return the read-ahead of a queue; raises ClientError if it is not assigned."""
        ahead = self._assigned.get(queue)
        if ahead is None:
            raise ClientError(f"{queue} is not assigned")
        return ahead

    def _check_running(self) -> None:
        """Raises ClientClosed unless started."""
        if not self._running:
            raise ClientClosed("the consumer is not started, or is closed")

    def _take_messages(self, max_count: int) -> list[ReceivedMessage]:
        """Messages of the queue that waits longest, then of the others in turn."""
        taken: list[ReceivedMessage] = []
        for queue in list(self._assigned):
            if len(taken) == max_count:
                break  # queues that gave nothing stay in front
            ahead = self._assigned[queue]
            if ahead.messages:
                self._assigned[queue] = self._assigned.pop(queue)
            while ahead.messages and len(taken) < max_count:
                taken.append(ahead.take_message())
        return taken

    def _stop_reading(self, queue: MessageQueue) -> None:
        """Cancel the reading of a queue: from this moment the task changes nothing."""
        task = self._assigned[queue].task
        if task is not None:
            task.cancel()

    def _start_reading(self, queue: MessageQueue, start: QueueOffset | None) -> None:
        """Start the task that reads a queue from `start`, None: from its start position."""
        ahead = self._assigned[queue]
        ahead.task = self._tasks.spawn(self._read(queue, ahead, start), f"read {queue}")

    async def _read(
        self, queue: MessageQueue, ahead: _ReadAhead, start: QueueOffset | None
    ) -> None:
        """Read a queue ahead until cancelled; failures are logged and retried."""
        options, failures = self._options, 0
        while True:
            try:
                if start is None:
                    start = await self._start_of(queue)
                if ahead.position is None:
                    ahead.position = ahead.next_fetch = start
                while (
                    len(ahead.messages) >= options.buffer_messages
                    or ahead.size >= options.buffer_bytes
                ):
                    ahead.room.clear()
                    await ahead.room.wait()
                await self._pull_ahead(queue, ahead)
                failures, ahead.error = 0, None
            except FAILURES as error:
                failures += 1
                logger.info("reading %s failed: %s", queue, error)
                ahead.error = error if isinstance(error, BrokerError) else None
                await asyncio.sleep(backoff.wait_ms(error, failures) / 1000)
                await self._refresh_route(queue.topic)

    async def _start_of(self, queue: MessageQueue) -> QueueOffset:
        """Return the committed offset of a queue, else the start position of the options."""
        committed = await self._offsets.read(queue)
        if committed is not None:
            return committed
        options = self._options
        return await self._queue_offsets.start(queue, options.consume_from, options.consume_from_ms)

    async def _pull_ahead(self, queue: MessageQueue, ahead: _ReadAhead) -> None:
        """Pull once and add the messages to the queue's read-ahead."""
        pulled = await self._puller.pull_once(
            queue,
            ahead.next_fetch,
            self._subscriptions[queue.topic],
            max_count=self._options.pull_batch,
            suspend_ms=SUSPEND_MS,
        )
        if pulled.status is PullStatus.MOVED:
            logger.warning("%s moves to offset %d", queue, pulled.next_queue_offset)
        for message, error in pulled.unreadable:
            logger.error(
                "message %s (%s, offset %d) cannot be read and is skipped: %s",
                message.message_id,
                queue,
                message.queue_offset,
                error,
            )
        ahead.messages.extend(pulled.messages)
        ahead.size += sum(len(message.body) for message in pulled.messages)
        ahead.next_fetch = pulled.next_queue_offset
        if ahead.messages:
            self._arrived.set()
        else:
            ahead.position = ahead.next_fetch

    async def _refresh_route(self, topic: str) -> None:
        """Request the route of a topic again; a failure is logged."""
        try:
            await self._instance.refresh(topic)
        except FAILURES as error:
            logger.info("the route of %s was not refreshed: %s", topic, error)
