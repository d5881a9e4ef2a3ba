"""The pull loop of a queue of a push consumer.

Owns the position in the queue, the pauses (flow control, failures, missing lock) and the reaction
to every answer of a pull. It must never handle a message or choose which queues run.

Tests: tests/unit/net/client/consuming/test_pulling.py,
    tests/unit/net/client/consuming/test_delivery.py
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeGuard

from turbopump.engine.compression import CompressionMissing
from turbopump.engine.types import QueueOffset
from turbopump.net.client import backoff
from turbopump.net.client.consuming.membership import ConsumerMembership
from turbopump.net.client.consuming.offsets import broker_address
from turbopump.net.client.consuming.process_queue import ProcessQueue, pause_reason
from turbopump.net.client.consuming.pulling import Pulled, PullStatus
from turbopump.net.client.errors import BrokerError, ClientError
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.transport.errors import RemotingError
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.message import BodyChanged
from turbopump.net.wire.queues import MessageQueue

logger = logging.getLogger(__name__)

LOG_EVERY: Final = 10
"""Log the first of consecutive failed pulls of a queue, then every tenth: a broker may be
down for long."""

REFUSALS: Final = frozenset(
    {
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.NO_PERMISSION,
    }
)
"""Answers to a pull that repeat until an operator or the program changes something."""

FAILURES = (ClientError, RemotingError, ValueError, CompressionMissing)
"""Exceptions of a pull: an error answer, no answer, an answer that cannot be read."""


class QueueRunner:
    """Pulls a queue until its owner cancels `task`.

    `positioned` is set once the start offset is known; until then nothing may be committed.
    `process` is replaced when the position is set or moved. `committed` is the last offset read or
    committed, None before. `lock_until_ms` is of the monotonic clock. `arrived(process)` is called
    when messages arrived, the lock was renewed, or `refusal` was set.
    """

    def __init__(
        self,
        membership: ConsumerMembership,
        queue: MessageQueue,
        arrived: Callable[[ProcessQueue], None],
    ) -> None:
        self.queue = queue
        self.process = self._new_process(membership, queue, QueueOffset(0))
        self.positioned = False
        self.committed: QueueOffset | None = None
        self.refusal: BrokerError | None = None
        """The broker's refusal of the queue, if waiting does not change it."""
        self.task: asyncio.Task[None] | None = None
        self.lock_until_ms = 0
        self._membership = membership
        self._arrived = arrived
        self._set_aside_upto = -1
        self._changed = -1
        self._signal = asyncio.Event()
        self._ready = asyncio.Event()

    def on_message_settled(self) -> None:
        """Signal that a message was acknowledged, put back or dropped: a pull that waits for room
        and `wait_until_drained` check again. Returns at once."""
        self._signal.set()

    def set_locked(self, until_ms: int) -> None:
        """Note that the broker granted or renewed the queue's lock until `until_ms` (monotonic
        clock), and call `arrived`."""
        self.process.last_lock_ms = self._membership.instance.now_ms()
        self.lock_until_ms = self.process.lock_until_ms = until_ms
        self._arrived(self.process)

    async def wait_until_ready(self) -> None:
        """Wait until the start offset is known, without a limit."""
        await self._ready.wait()

    async def wait_until_drained(self) -> None:
        """Wait until no message of the queue is in flight, without a limit."""
        while self.process.in_flight:
            self._signal.clear()
            await self._signal.wait()

    async def run(self, start: QueueOffset | None = None) -> None:
        """Pull until cancelled, from `start`, else from the committed offset, else from the start
        position of the options; failures are logged and retried."""
        await self._find_start(start)
        failures = 0
        while True:
            await self._wait_for_room()
            try:
                pulled = await self._pull_once()
                for message, error in pulled.unreadable:
                    await self._skip_unreadable(message, error)
            except FAILURES as error:
                failures += 1
                await self._recover_from(error, failures)
                continue
            failures, self.refusal = 0, None
            if pulled.status is PullStatus.MOVED:
                await self._move_to(pulled.next_queue_offset)
            else:
                self.process.add_messages(pulled.messages, pulled.next_queue_offset)
                if pulled.messages:
                    self._arrived(self.process)

    async def _find_start(self, start: QueueOffset | None) -> None:
        """Set the start offset: `start`, else the committed offset, else the start position of
        the options."""
        options, failures = self._membership.options, 0
        while start is None:
            try:
                start = self.committed = await self._membership.offsets.read(self.queue)
                if start is None:
                    start = await self._membership.queue_offsets.start(
                        self.queue, options.consume_from, options.consume_from_ms
                    )
            except FAILURES as error:
                failures += 1
                await self._recover_from(error, failures)
        self._begin_at(start)
        self._ready.set()

    def _begin_at(self, queue_offset: QueueOffset) -> None:
        """Continue at a queue offset with a new, empty process queue."""
        self.process = self._new_process(self._membership, self.queue, queue_offset)
        self.process.lock_until_ms = self.lock_until_ms
        self._set_aside_upto = self._changed = -1
        self.positioned = True

    @staticmethod
    def _new_process(
        membership: ConsumerMembership, queue: MessageQueue, queue_offset: QueueOffset
    ) -> ProcessQueue:
        """Return an empty process queue that begins at a queue offset."""
        ordered = membership.locks_queues
        return ProcessQueue(queue, queue_offset, membership.totals, ordered=ordered)

    async def _wait_for_room(self) -> None:
        """Wait until the limits of held messages allow a pull."""
        while (reason := pause_reason(self.process, self._membership.limits)) is not None:
            logger.debug("pulling %s pauses: %s", self.queue, reason)
            self._signal.clear()
            await self._signal.wait()

    async def _pull_once(self) -> Pulled:
        """Pull once from the present position."""
        membership, process = self._membership, self.process
        subscription = membership.subscriptions.get(self.queue.topic)
        if subscription is None:
            raise ClientError(f"{self.queue.topic} is no longer subscribed")
        commit = None if membership.options.broadcast else process.commit_queue_offset
        begin_ms = membership.instance.steady_ms()
        process.last_pull_ms = membership.instance.now_ms()
        pulled = await membership.puller.pull_once(
            self.queue,
            process.next_queue_offset,
            subscription,
            max_count=membership.options.pull_batch,
            commit=commit or None,
        )
        if pulled.messages:
            end_ms = membership.instance.steady_ms()
            took_ms = end_ms - begin_ms
            membership.rates.count_pulled(self.queue.topic, len(pulled.messages), took_ms, end_ms)
        return pulled

    async def _skip_unreadable(self, message: ReceivedMessage, error: Exception) -> None:
        """Skip a message whose body cannot be read: it must not block later messages.

        The message is sent back to the broker if that is possible: another member may be able to
        read it, and in the end it becomes a dead letter. Raises FAILURES if it has to be pulled
        again.
        """
        if message.queue_offset <= self._set_aside_upto:
            return  # this pull was repeated because of another message
        changed = isinstance(error, BodyChanged)
        if changed and self._changed != message.queue_offset:
            self._changed = message.queue_offset
            raise error  # it may have changed during transfer: read it again, once
        options = self._membership.options
        # A message with another CRC is not sent back: the broker would store the damaged body as
        # valid.
        returns = not (changed or options.ordered or options.broadcast)
        returned = returns and await self._membership.retries.send_back_unread(message)
        logger.error(
            "message %s (%s, offset %d) cannot be read and is %s: %s",
            message.message_id,
            self.queue,
            message.queue_offset,
            "sent back" if returned else "skipped",
            error,
        )
        self._set_aside_upto = message.queue_offset

    async def _move_to(self, queue_offset: QueueOffset) -> None:
        """Continue at the broker's offset; messages in flight belong to the old position.

        An ordered queue first waits for its handler, so that two handlers never run at once.
        """
        logger.warning(
            "%s moves from offset %d to %d",
            self.queue,
            self.process.next_queue_offset,
            queue_offset,
        )
        if self.process.ordered:
            self.process.forget_waiting()
            await self.wait_until_drained()
        self.process.stop_consuming()
        self._begin_at(queue_offset)
        self.committed = queue_offset
        await self._membership.offsets.commit({self.queue: queue_offset}, confirmed=True)

    async def _recover_from(self, error: Exception, failures: int) -> None:
        """Log a failed pull, repair its cause if possible, and wait before the next try."""
        if failures % LOG_EVERY == 1:
            logger.warning("pulling %s failed: %s", self.queue, error)
        if _is_refusal(error):
            self.refusal = error
            self._arrived(self.process)
        instance = self._membership.instance
        try:
            if backoff.needs_heartbeat(error):
                await instance.heartbeat([broker_address(instance, self.queue)])
            elif not isinstance(error, BrokerError):
                await instance.refresh(self.queue.topic)
        except FAILURES as second:
            logger.debug("recovery of %s failed: %s", self.queue, second)
        await asyncio.sleep(backoff.wait_ms(error, failures) / 1000)


def _is_refusal(error: Exception) -> TypeGuard[BrokerError]:
    """Whether the error is a broker's refusal that waiting does not change. RocketMQ answers
    SYSTEM_ERROR if it has no SQL filters (PullMessageProcessor)."""
    if not isinstance(error, BrokerError):
        return False
    no_filters = error.code == ResponseCode.SYSTEM_ERROR and "filter message" in error.remark
    return no_filters or error.code in REFUSALS
