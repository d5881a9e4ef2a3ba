"""The push consumer over pop: messages of any queue are popped and handed to a handler.

Owns the pop loops (each for a broker and a topic), the running handlers, and the renewal of
messages with slow handlers. It must never divide queues among members.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from turbopump.net.client import backoff
from turbopump.net.client.consuming.delivery import check_handler, on_the_loop
from turbopump.net.client.consuming.membership import Handler, RunningHandler
from turbopump.net.client.consuming.popper import Popper, PopPlace, check_invisible
from turbopump.net.client.consuming.queue_runner import FAILURES
from turbopump.net.client.consuming.subscribing import (
    NO_SUBSCRIPTION,
    MissingTopics,
    subscription_of,
)
from turbopump.net.client.errors import ClientError, InvalidArgument, RouteNotFound, check_type
from turbopump.net.client.lifetime import ClientLifetime
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.client.options import ClientOptions, Outcome
from turbopump.net.client.sending import check_topic
from turbopump.net.client.shared_client import SharedClient, instance_of
from turbopump.net.client.tasks import TaskSet, is_being_cancelled
from turbopump.net.wire.pop_records import MESSAGES_MAX
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.subscription import ALL

logger = logging.getLogger(__name__)

POLL_MS: Final = 15_000
"""Longest time in milliseconds for which a broker without messages holds a pop
(DefaultMQPushConsumerImpl)."""
PLACES_MS: Final = 1_000
"""Interval in milliseconds at which the brokers of all topics are looked up."""
SETTLE_TRIES: Final = 2
"""Tries to acknowledge or hide a message before its redelivery is accepted."""
RETRY_MS: Final = tuple(
    1000 * seconds
    for seconds in (
        *(10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600),
        *(1200, 1800, 3600, 7200),
    )
)
"""Milliseconds for which a refused message stays hidden, by number of earlier deliveries; the last
repeats (ConsumeMessagePopConcurrentlyService)."""


@dataclass(frozen=True, slots=True)
class PopOptions:
    """Settings of a push consumer over pop (DefaultMQPushConsumer).

    Args:
        concurrency: handlers running at the same time; as many messages again may wait for them,
            and one message of each broker and topic.
        batch: messages requested by one pop, 32 at most.
        invisible_ms: time for which popped messages are hidden from the group; renewed while a
            handler runs.
        consume_timeout_ms: time in a handler after which the hidden time is not renewed.
        retry_ms: times for which a refused message stays hidden, by number of earlier deliveries;
            the last repeats; unused with `ordered`.
        ordered: messages of a queue one after the other; the queue waits for a failed message.
        suspend_ms: time for which an ordered queue waits after a failure.
        close_timeout_ms: longest time that `close` waits for running handlers.
    """

    concurrency: int = 20
    batch: int = MESSAGES_MAX
    invisible_ms: int = 60_000
    consume_timeout_ms: int = 15 * 60_000
    retry_ms: tuple[int, ...] = RETRY_MS
    ordered: bool = False
    suspend_ms: int = 1_000
    close_timeout_ms: int = 10_000


class PopConsumer(ClientLifetime):
    """Hands popped messages to a handler; use as `async with PopConsumer("group", [...]) as
    consumer`.

    A message is acknowledged when the handler returns. If the handler refuses it, by an exception
    or by Outcome.RETRY, it is delivered again to any member, after the time in `options.retry_ms`
    for its number of deliveries (10 s at first), or after `suspend_ms` if `ordered`.

    Args:
        group: the consumer group.
        namesrv: addresses "host:port", or one text with ";" between; not needed with `client`.
        options: concurrency, times, order.
        from_first: a new group begins at the first stored message, not at the end of each queue.
        client: a client to share with other producers and consumers.
        client_options: intervals and timeouts of an own client; not with `client`.

    Raises InvalidArgument for an invalid argument or option, and TlsError for TLS files that cannot
    be used.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = (),
        *,
        options: PopOptions | None = None,
        from_first: bool = False,
        client: SharedClient | None = None,
        client_options: ClientOptions | None = None,
    ) -> None:
        given = options or PopOptions()
        check_type(given, PopOptions, "options", "a turbopump.PopOptions")
        check_invisible(given.invisible_ms, 1)
        if given.concurrency < 1 or not 0 < given.batch <= MESSAGES_MAX or not given.retry_ms:
            raise InvalidArgument(f"nothing can be popped with {given}")
        self.group = group
        self._instance = instance_of(client, namesrv, client_options)
        self._popper = Popper(self._instance, group, from_first=from_first, ordered=given.ordered)
        self._options = given
        self._threads = ThreadPoolExecutor(given.concurrency, group)
        self._handler: RunningHandler | None = None
        self._pops, self._handling = TaskSet(), TaskSet()
        self._slots = asyncio.Semaphore(given.concurrency)
        self._loops: dict[PopPlace, asyncio.Task[None]] = {}
        self._requested: Counter[PopPlace] = Counter()
        self._has_room = asyncio.Event()
        self._closed = False
        self._missing = MissingTopics(group)

    def subscribe(self, topic: str, expression: str = ALL, *, sql: str | None = None) -> None:
        """Receive messages of a topic: all, only with tags joined by "||", or only if the condition
        `sql` on properties holds. A later call for the same topic replaces the expression from the
        next pop. Raises InvalidArgument for an invalid name or expression."""
        check_topic(topic)
        data = subscription_of(topic, expression, sql, self._instance.now_ms())
        self._popper.subscriptions[topic] = data

    def on_message(self, handler: Handler) -> Handler:
        """Have every message handled by `handler` and return it; usable as a decorator, before
        `start`. A later handler replaces an earlier one.

        An `async def` handler runs on the loop, a plain `def` in a thread. Raises InvalidArgument
        for a handler that cannot be called.
        """
        check_handler(handler)
        self._handler = self._as_call(on_the_loop(handler, self._threads))
        return handler

    async def start(self) -> None:
        """Join the group and begin to pop in the background. Raises ClientError without a handler
        or a subscription, if started already, or once closed, also by a start that joined the
        group and then failed or was cancelled."""
        await super().start()

    async def _open(self) -> None:
        """Join the group and begin to pop. Raises ClientError without a handler or a
        subscription."""
        if self._closed:
            raise ClientError("a consumer over pop starts once")
        if self._handler is None:
            raise ClientError("a consumer over pop needs a handler: on_message")
        if not self._popper.subscriptions:
            raise ClientError(NO_SUBSCRIPTION)
        await self._popper.start()
        self._pops.spawn(self._follow_places(), "brokers to pop from")

    async def close(self) -> None:
        """Stop popping, wait for running handlers (up to close_timeout_ms, then they are
        cancelled), and leave the group; messages whose handler has not begun are delivered again,
        to other members. A handler that calls it does not wait; the closing waits for the handler.
        Closing twice does nothing."""
        await super().close()

    async def _close_parts(self) -> None:
        """Leave the group, after up to close_timeout_ms for running handlers."""
        await self._leave_group(self._options.close_timeout_ms)

    def _mark_closed(self) -> None:
        """Count as closed, without a request: the loop of `start` was closed."""
        self._closed = True
        self._pops, self._handling = TaskSet(), TaskSet()
        self._requested.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._popper.mark_closed()

    async def _undo_open(self) -> None:
        """Leave the group, without a wait for running handlers."""
        if self._popper.is_running:
            await self._leave_group(0)

    async def _leave_group(self, timeout_ms: int) -> None:
        """Stop popping and leave the group, after up to `timeout_ms` for running handlers."""
        self._closed = True
        await self._pops.cancel()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self._requested.total():
                    self._has_room.clear()
                    await self._has_room.wait()
        except TimeoutError:
            logger.info("%d messages have no outcome and are delivered again", len(self._handling))
        await self._handling.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self._popper.close()

    async def _follow_places(self) -> None:
        """Keep a pop loop running for each broker of each topic, as routes change."""
        loops = self._loops
        while True:
            try:
                places = set(await self._popper.find_places())
            except RouteNotFound:
                places = set(loops)
            except FAILURES as error:
                logger.info("no broker to pop from: %s", error)
                places = set(loops)
            self._warn_of_missing({place.topic for place in places})
            for place in places - set(loops):
                loops[place] = self._pops.spawn(self._pop_from(place), f"pop {place}")
            for place in set(loops) - places:
                loops.pop(place).cancel()
            await asyncio.sleep(PLACES_MS / 1000)

    def _warn_of_missing(self, found: Collection[str]) -> None:
        """Log subscribed topics that are not among `found`, the topics with a route."""
        for topic in self._popper.subscriptions:
            if topic in found:
                self._missing.note_found(topic)
            else:
                self._missing.warn_missing(topic, self._instance.steady_ms())

    async def _pop_from(self, place: PopPlace) -> None:
        """Pop from a place until cancelled, while there is room for messages."""
        options, failures = self._options, 0
        while True:
            while (asked := min(options.batch, self._room_at(place))) <= 0:
                self._has_room.clear()
                await self._has_room.wait()
            self._requested[place] += asked
            found: list[ReceivedMessage] = []
            try:
                found = await self._popper.pop_messages(place, asked, options.invisible_ms, POLL_MS)
                failures = 0
            except FAILURES as error:
                failures += 1
                logger.info("popping %s failed: %s", place, error)
                await self._popper.refresh()
                await asyncio.sleep(backoff.wait_ms(error, failures) / 1000)
            finally:
                self._free_room(place, asked - len(found))
            self._start_handlers(place, found)

    def _room_at(self, place: PopPlace) -> int:
        """The number of messages that may still be requested from a place.

        Each broker of a topic has an equal part of the limit, at least one message: a request to an
        empty broker must not use up the room of the others.
        """
        part = max(1, 2 * self._options.concurrency // max(1, len(self._loops)))
        return part - self._requested[place]

    def _start_handlers(self, place: PopPlace, found: Sequence[ReceivedMessage]) -> None:
        """Start handlers for popped messages; ordered messages of a queue share one."""
        until_ms = self._instance.steady_ms() + self._options.invisible_ms
        if not self._options.ordered:
            for message in found:
                self._handling.spawn(
                    self._settle_each(place, [message], until_ms), "message handler"
                )
            return
        queues: dict[MessageQueue, list[ReceivedMessage]] = {}
        for message in found:
            queues.setdefault(message.queue, []).append(message)
        for messages in queues.values():
            self._handling.spawn(self._settle_each(place, messages, until_ms), "message handler")

    async def _settle_each(
        self, place: PopPlace, messages: Sequence[ReceivedMessage], until_ms: int
    ) -> None:
        """Handle messages in order; the first failure ends it, and the rest is delivered again."""
        left = list(messages)
        try:
            while left:
                is_handled = await self._is_handled(left[0], until_ms)
                if is_handled is None:
                    return
                if not is_handled:
                    await self._hide_for_retry(left)
                    return
                await self._ack_or_hide(left.pop(0), None)
                self._free_room(place, 1)
        finally:
            self._free_room(place, len(left))

    async def _is_handled(self, message: ReceivedMessage, until_ms: int) -> bool | None:
        """Run the handler; True if it accepts the message, False if it refuses it. None: the
        consumer was closed first. A message that waited so that less than half of its hidden
        time is left is renewed first; if that fails, another member may have it, and the handler
        does not run."""
        assert self._handler is not None
        async with self._slots:
            if self._closed:
                return None
            half_ms = self._options.invisible_ms // 2
            if self._instance.steady_ms() > until_ms - half_ms and not await self._ack_or_hide(
                message, self._options.invisible_ms
            ):
                return False
            running = asyncio.ensure_future(self._handler(message))
            end_ms = self._instance.steady_ms() + self._options.consume_timeout_ms
            try:
                while not (await asyncio.wait({running}, timeout=half_ms / 1000))[0]:
                    if self._instance.steady_ms() < end_ms:
                        await self._ack_or_hide(message, self._options.invisible_ms)
                return running.result() is Outcome.ACK
            except (Exception, asyncio.CancelledError):
                if is_being_cancelled():
                    raise
                logger.exception("the handler failed on message %s", message.message_id)
                return False
            finally:
                running.cancel()

    async def _hide_for_retry(self, left: Sequence[ReceivedMessage]) -> None:
        """Hide refused messages until their next delivery."""
        for message in left:
            retry_ms = self._options.retry_ms
            times = max(0, min(message.reconsume_times, len(retry_ms) - 1))
            after_ms = self._options.suspend_ms if self._options.ordered else retry_ms[times]
            await self._ack_or_hide(message, after_ms)

    async def _ack_or_hide(self, message: ReceivedMessage, again_ms: int | None) -> bool:
        """Acknowledge the message (`again_ms` None), or hide it for `again_ms`. False if no broker
        accepted that: the message is delivered again when its hidden time ends."""
        for _ in range(SETTLE_TRIES):
            try:
                if again_ms is None:
                    await self._popper.ack(message)
                else:
                    check_invisible(again_ms, 0)
                    await self._popper.change_invisible(message, again_ms)
                return True
            except FAILURES as error:
                failure = error
        logger.warning("message %s is delivered again: %s", message.message_id, failure)
        return False

    def _free_room(self, place: PopPlace, count: int) -> None:
        """Count `count` fewer messages as requested or held from a place, and let pops continue."""
        self._requested[place] -= count
        self._has_room.set()
