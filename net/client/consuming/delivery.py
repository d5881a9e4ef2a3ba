"""Hands pulled messages to handlers and settles them by the handlers' results.

Owns the running handlers and the rules of success, retry and suspension. It must never pull or
choose queues.
"""

import asyncio
import inspect
import logging
from concurrent.futures import Executor
from contextvars import copy_context
from typing import Final

from turbopump.net.client.consuming.membership import (
    ConsumerMembership,
    Handler,
    Running,
    RunningHandler,
)
from turbopump.net.client.consuming.process_queue import ProcessQueue
from turbopump.net.client.consuming.ready_queues import ReadyQueues
from turbopump.net.client.errors import InvalidArgument, check_type
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.client.options import Outcome
from turbopump.net.client.tasks import TaskSet, is_being_cancelled

logger = logging.getLogger(__name__)

TURN: Final = 64
"""Messages a worker handles before it yields to the loop: some handlers never await anything."""

RESEND_FAILED_MS: Final = 5000
"""Milliseconds for which a queue pauses whose failed message could not be sent back
(ConsumeMessageConcurrentlyService.submitConsumeRequestLater)."""

OVERDUE_DELAY_LEVEL: Final = 3
"""Delay level of a message whose handler took too long (ProcessQueue.cleanExpiredMsg): 10 s."""


def check_handler(handler: object) -> None:
    """Raises InvalidArgument unless the value can be called."""
    if not callable(handler):
        raise InvalidArgument(f"a handler is a function, not {type(handler).__name__}")


def on_the_loop(handler: Handler, threads: Executor) -> RunningHandler:
    """Wrap a program's handler as a coroutine function that returns RETRY if the handler does, else
    ACK, and raises its exceptions. A plain function runs in `threads`, with the caller's context
    variables."""
    called = type(handler).__call__
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called):

        async def wait(message: ReceivedMessage) -> object:
            result = handler(message)
            assert inspect.isawaitable(result)
            return await result

    else:

        async def wait(message: ReceivedMessage) -> object:
            def call() -> tuple[object, Exception | None]:
                try:
                    return handler(message), None
                except Exception as error:  # a future cannot carry StopIteration
                    return None, error

            loop = asyncio.get_running_loop()
            result, error = await loop.run_in_executor(threads, copy_context().run, call)
            if error is not None:
                raise error
            return await result if inspect.isawaitable(result) else result

    async def run(message: ReceivedMessage) -> Outcome:
        return Outcome.RETRY if await wait(message) is Outcome.RETRY else Outcome.ACK

    return run


class Delivery:
    """Hands out messages: to the handler if there is one, up to `concurrency` at a time as tasks of
    `tasks`, else to the caller of `receive`. Loop thread only."""

    def __init__(self, membership: ConsumerMembership, tasks: TaskSet) -> None:
        self._membership = membership
        self._tasks = tasks
        self._ready = ReadyQueues()
        self._handler: RunningHandler | None = None
        self._stopped = False
        self._workers = 0
        self._settling: set[int] = set()
        self._arrived = asyncio.Event()

    def start(self, handler: RunningHandler | None) -> None:
        """Set the handler and begin to run it for waiting messages; None leaves them to `receive`.
        A later call replaces the handler; running handlers go on."""
        self._handler = handler
        self._start_handlers()

    def on_message_ready(self, process: ProcessQueue) -> None:
        """Note that the queue may have a message to hand out: start handlers, wake `receive`."""
        self._ready.add_queue(process)
        self._arrived.set()
        self._start_handlers()

    def stop(self) -> None:
        """Hand out no further message; running handlers go on, and `receive` returns None."""
        self._stopped = True
        self._arrived.set()

    async def receive(self) -> ReceivedMessage | None:
        """Wait for the next message and take it, for iterators: the caller settles it. None once
        stopped.

        Raises BrokerError if brokers refuse all queues of a topic for a reason that waiting does
        not change.
        """
        while not self._stopped:
            item = self._take_message()
            if item is not None:
                return item[1]
            refusal = self._membership.take_refusal()
            if refusal is not None:
                raise refusal
            self._arrived.clear()
            await self._arrived.wait()
        return None

    async def settle_message(
        self, message: ReceivedMessage, outcome: Outcome, delay_level: int
    ) -> bool:
        """Settle a handled message; False if it is no longer in flight (settled, or lost to a
        rebalance) or being settled.

        ACK counts in memory; offsets are committed later. A failed message is sent back to the
        broker with `delay_level` (0: the broker chooses, -1: a dead letter) and delivered again
        later; if no broker accepts it, its queue pauses for RESEND_FAILED_MS. In an ordered queue
        it stays first and the queue pauses for suspend_ms; in broadcast mode it is dropped. Raises
        InvalidArgument for another object than a message.
        """
        check_type(message, ReceivedMessage, "the message", "a received message")
        running = self._membership.queue_of_message(message)
        if running is None or id(message) in self._settling:
            return False
        self._settling.add(id(message))
        try:
            await self._apply_outcome(running, message, outcome, delay_level)
        finally:
            self._settling.discard(id(message))
        running.on_message_settled()
        if running.process.ordered:
            self.on_message_ready(running.process)
        return True

    async def _apply_outcome(
        self, running: Running, message: ReceivedMessage, outcome: Outcome, delay_level: int
    ) -> None:
        """Apply the outcome of a message that is in flight in `running`."""
        process, options = running.process, self._membership.options
        now_ms = self._membership.instance.now_ms()
        if outcome is Outcome.ACK or options.broadcast:
            if outcome is not Outcome.ACK:
                logger.warning("message %s failed and is not retried", message.message_id)
            process.ack(message, now_ms)
        elif options.ordered:
            await self._retry_in_place(process, message)
        elif await self._membership.retries.send_back(message, delay_level):
            process.ack(message, self._membership.instance.now_ms())
        else:
            self._put_back_after(process, message, RESEND_FAILED_MS)

    async def send_back_overdue(self) -> None:
        """Send back messages that are in a handler for longer than consume_timeout_ms; the handler
        goes on, and its result is ignored. Does nothing in ordered and broadcast mode."""
        options = self._membership.options
        if options.ordered or options.broadcast:
            return
        now_ms = self._membership.instance.steady_ms()
        for running in list(self._membership.running.values()):
            for message in running.process.overdue_messages(now_ms, options.consume_timeout_ms):
                logger.warning("message %s is overdue and sent back", message.message_id)
                await self.settle_message(message, Outcome.RETRY, OVERDUE_DELAY_LEVEL)

    def _take_message(self) -> tuple[ProcessQueue, ReceivedMessage] | None:
        """Take (queue, message) that is ready to be handled; None without one."""
        return (
            None
            if self._stopped
            else self._ready.take_message(self._membership.instance.steady_ms())
        )

    def _start_handlers(self) -> None:
        """Start handlers for ready messages, up to `concurrency` at a time."""
        limit = self._membership.options.concurrency
        while self._handler is not None and self._workers < limit:
            item = self._take_message()
            if item is None:
                return
            self._workers += 1
            self._tasks.spawn(self._handle_in_turn(self._handler, *item), "message handler")

    async def _handle_in_turn(
        self, handler: RunningHandler, process: ProcessQueue, first: ReceivedMessage
    ) -> None:
        """Handle a message, then further ready messages, until none is ready."""
        item: tuple[ProcessQueue, ReceivedMessage] | None = (process, first)
        handled = 0
        try:
            while item is not None:
                await self._run_handler(handler, *item)
                handled += 1
                if handled % TURN == 0:
                    await asyncio.sleep(0)
                item = self._take_message()
        finally:
            self._workers -= 1

    async def _run_handler(
        self, handler: RunningHandler, process: ProcessQueue, message: ReceivedMessage
    ) -> None:
        """Run the handler on a message and settle it by the result."""
        now_ms = self._membership.instance.steady_ms
        begin_ms = now_ms()
        try:
            outcome = await handler(message)
        except (Exception, asyncio.CancelledError):
            if is_being_cancelled():
                raise
            logger.exception("the handler failed on message %s", message.message_id)
            outcome = Outcome.RETRY
        took_ms = now_ms() - begin_ms
        self._membership.rates.count_handled(
            message.topic, outcome is Outcome.ACK, took_ms, now_ms()
        )
        if not await self.settle_message(message, outcome, 0) and process.dropped:
            process.on_handler_ended(message)

    async def _retry_in_place(self, process: ProcessQueue, message: ReceivedMessage) -> None:
        """Hand out an ordered message again after a pause; at the
        limit it becomes a dead letter."""
        options = self._membership.options
        limit = options.max_reconsume_times
        if 0 <= limit <= message.reconsume_times:
            if await self._membership.retries.send_to_dead_letters(message):
                process.ack(message, self._membership.instance.now_ms())
                return
        else:
            message.reconsume_times += 1
        self._put_back_after(process, message, options.suspend_ms)

    def _put_back_after(
        self, process: ProcessQueue, message: ReceivedMessage, pause_ms: int
    ) -> None:
        """Make the message wait again, and hand out the queue's messages after `pause_ms`."""
        process.put_back(message, self._membership.instance.steady_ms() + pause_ms)

        async def resume_queue() -> None:
            while (rest_ms := process.suspended_for_ms(self._membership.instance.steady_ms())) > 0:
                await asyncio.sleep(rest_ms / 1000)
            self.on_message_ready(process)

        self._tasks.spawn(resume_queue(), "resume queue")
