"""Keeps the running queues of a push consumer equal to its share.

Owns the rebalance: asking for the group's members, computing the share, starting and stopping pull
loops, holding the locks of an ordered consumer. It must never handle messages.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from turbopump.engine.types import QueueOffset
from turbopump.net.client.consuming.leader_assignor import LeaderAssignor
from turbopump.net.client.consuming.locks import LIVE_MS, RENEW_AGAIN_MS, RENEW_MS, MemberLocks
from turbopump.net.client.consuming.membership import ConsumerMembership
from turbopump.net.client.consuming.process_queue import ProcessQueue
from turbopump.net.client.consuming.queue_runner import QueueRunner
from turbopump.net.client.consuming.subscribing import MissingTopics
from turbopump.net.client.errors import BrokerError, ClientError
from turbopump.net.client.rebalance import queue_changes
from turbopump.net.client.routes import TopicRoute
from turbopump.net.client.tasks import TaskSet
from turbopump.net.transport.errors import RemotingError
from turbopump.net.wire.bodies import as_text, load_object, read_list
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.headers.clients import GetConsumerListByGroupRequest
from turbopump.net.wire.queues import MessageQueue

logger = logging.getLogger(__name__)

UNBALANCED_FIRST_MS: Final = 100
"""First wait in milliseconds before the next try when a topic has no route, a broker did not answer
or another member holds a lock; it doubles. It is short because a new group's retry topic, for
example, appears a moment after the first heartbeat."""

UNBALANCED_MS: Final = 1000
"""Longest wait in milliseconds while the rebalance stays incomplete
(RebalanceService.minInterval)."""

LOG_EVERY: Final = 30
"""Log the first of consecutive failed rebalances, then every 30th: a broker may be down
for long."""

RELEASE_MAX_MS: Final = 60_000
"""Longest wait in milliseconds for the handler of a queue that is given up; after it the queue is
unlocked anyway, because the broker's lease ends then."""


class Balancer:
    """The periodic rebalance of a push consumer. Pull loops are started in `tasks`; `arrived` is
    called on the loop with a queue that may have a message to hand out."""

    def __init__(
        self,
        membership: ConsumerMembership,
        tasks: TaskSet,
        arrived: Callable[[ProcessQueue], None],
    ) -> None:
        self._membership = membership
        self._tasks = tasks
        self._arrived = arrived
        self._locks = MemberLocks(membership.instance, membership.group)
        self._shares = LeaderAssignor(membership)
        self._missing = MissingTopics(membership.group)
        self._wanted = asyncio.Event()
        self._runners: dict[MessageQueue, QueueRunner] = {}
        self._releasing: set[MessageQueue] = set()
        self._failures = 0

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues being consumed, sorted by topic, broker name and queue id, without queues that
        are being given up."""
        return sorted(queue for queue in self._runners if queue not in self._releasing)

    def rebalance_soon(self) -> None:
        """Have `run` rebalance without waiting for the next interval; returns at once."""
        self._wanted.set()

    async def run(self) -> None:
        """Rebalance until cancelled: immediately at first, then every `rebalance_ms` or after
        `rebalance_soon`, and sooner while a rebalance is incomplete."""
        unbalanced_ms = UNBALANCED_FIRST_MS
        while True:
            self._wanted.clear()
            if await self.rebalance_topics():
                wait_ms, unbalanced_ms = self._membership.options.rebalance_ms, UNBALANCED_FIRST_MS
            else:
                wait_ms, unbalanced_ms = unbalanced_ms, min(2 * unbalanced_ms, UNBALANCED_MS)
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    async def rebalance_topics(self) -> bool:
        """Compute the shares of all subscribed topics, start the queues gained, and give up the
        others in the background; failures are logged.

        False if a topic has no route, a server did not answer, or a queue is still locked or being
        given up: another try should follow soon.
        """
        topics = list(self._membership.subscriptions)
        balanced = True
        for topic in topics:
            try:
                balanced &= await self._rebalance_topic(topic)
            except (ClientError, RemotingError, ValueError) as error:
                self._failures += 1
                if self._failures % LOG_EVERY == 1:
                    logger.warning("topic %s cannot be rebalanced yet: %s", topic, error)
                balanced = False
        if balanced:
            self._failures = 0
        removed = [queue for queue in self.queues if queue.topic not in topics]
        for queue in removed:
            self._release_queue(queue)
        return balanced

    async def renew_locks_forever(self) -> None:
        """Renew the locks until cancelled: immediately, then every RENEW_MS, or RENEW_AGAIN_MS
        after a broker did not answer."""
        while True:
            renewed = await self.renew_locks()
            await asyncio.sleep((RENEW_MS if renewed else RENEW_AGAIN_MS) / 1000)

    async def renew_locks(self) -> bool:
        """Renew the locks of all queues and wait for the answers; False if a broker did not answer.

        A queue whose lock went to another member is given up, and a rebalance follows.
        """
        queues = self.queues
        asked_ms = self._membership.instance.steady_ms()
        granted, refused = await self._locks.lock_queues(queues)
        for queue in granted:
            runner = self._runners.get(queue)
            if runner is not None:
                runner.set_locked(asked_ms + LIVE_MS)
        for queue in refused & set(self.queues):
            logger.warning("the lock of %s went to another member", queue)
            self._release_queue(queue)
        if refused:
            self.rebalance_soon()
        return len(granted) + len(refused) == len(queues)

    async def wait_until_ready(self, timeout_ms: int) -> None:
        """Wait until the start offset of every queue is known; after `timeout_ms` log a warning and
        return."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await asyncio.gather(
                    *(runner.wait_until_ready() for runner in self._runners.values())
                )
        except TimeoutError:
            logger.warning("the start offset of some queues is not known yet")

    def restart_queue(self, queue: MessageQueue, queue_offset: QueueOffset) -> None:
        """Give up a queue, commit `queue_offset` and take the queue again from there, all in the
        background (RESET_CONSUMER_CLIENT_OFFSET). A queue that is not consumed is ignored."""
        if queue in self._runners and queue not in self._releasing:
            self._release_queue(queue, move_to=queue_offset)

    async def close(self, timeout_ms: int) -> None:
        """Stop pulling, wait up to `timeout_ms` for messages in flight, commit the offsets, unlock,
        and forget the queues; the brokers' answers are awaited, failures are logged."""
        for runner in self._runners.values():
            runner.process.forget_waiting()
            if runner.task is not None:
                runner.task.cancel()
        busy = [runner for runner in self._runners.values() if runner.process.in_flight]
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await asyncio.gather(*(runner.wait_until_drained() for runner in busy))
        except TimeoutError:
            logger.info(
                "%d queues have messages without an outcome, which are delivered again", len(busy)
            )
        await self._membership.commit_offsets(confirmed=True)
        if self._membership.locks_queues:
            await self._locks.unlock_queues(self._runners)
        for runner in self._runners.values():
            runner.process.stop_consuming()
        self._runners.clear()
        self._membership.running.clear()

    async def _rebalance_topic(self, topic: str) -> bool:
        """Rebalance a topic; False if another try should follow soon."""
        instance = self._membership.instance
        route = await instance.route(topic)
        if route is not None and not route.subscribe:
            route = await instance.refresh(topic)
        if route is None or not route.subscribe:
            if topic != self._membership.retry_topic:
                self._missing.warn_missing(topic, instance.steady_ms())
            return False
        self._missing.note_found(topic)
        held = [queue for queue in self.queues if queue.topic == topic]
        wanted: Collection[MessageQueue] = route.subscribe
        if not self._membership.options.broadcast:
            members = await self._members(route)
            if instance.client_id not in members:
                # A restarted broker does not know this consumer: send a heartbeat, then ask again.
                await instance.heartbeat()
                members = await self._members(route)
            share = await self._shares.share_of_member(topic, members, route)
            if share is None:
                return False
            wanted = share
            if instance.client_id not in members:
                logger.warning("no broker of %s lists this consumer", topic)
                self._release_unwanted(held, wanted)
                return False
        return await self._change_locked(held, wanted)

    async def _members(self, route: TopicRoute) -> list[str]:
        """Return the client ids of the group, from the first broker of the route that answers."""
        failure: Exception | None = None
        header = GetConsumerListByGroupRequest(self._membership.group)
        for name in sorted(route.brokers):
            reader = self._membership.instance.brokers.address_to_read(name)
            if reader is None:
                continue
            try:
                response = await self._membership.instance.ask(
                    reader[1], RequestCode.GET_CONSUMER_LIST_BY_GROUP, header
                )
            except BrokerError as error:
                if error.code == ResponseCode.SYSTEM_ERROR:
                    return []
                failure = error
            except RemotingError as error:
                failure = error
            else:
                assert isinstance(response.body, bytes)
                return read_list(load_object(response.body), "consumerIdList", as_text)
        raise failure or ClientError(f"no broker of {route.topic} is known")

    async def _change_locked(
        self, held: Collection[MessageQueue], wanted: Collection[MessageQueue]
    ) -> bool:
        """Take and give up queues; an ordered consumer takes only queues that it can lock.
        Returns False if a queue could not be taken yet."""
        new = self._release_unwanted(held, wanted)
        free = [queue for queue in new if queue not in self._releasing]
        if not self._membership.locks_queues:
            for queue in free:
                self._start_queue(queue)
            return len(free) == len(new)
        asked_ms = self._membership.instance.steady_ms()
        granted, _ = await self._locks.lock_queues(free)
        for queue in sorted(granted):
            self._start_queue(queue).set_locked(asked_ms + LIVE_MS)
        return len(granted) == len(new)

    def _release_unwanted(
        self, held: Collection[MessageQueue], wanted: Collection[MessageQueue]
    ) -> list[MessageQueue]:
        """Give up the held queues that are not wanted; returns the queues to take."""
        removed, new = queue_changes(held, wanted)
        for queue in removed:
            self._release_queue(queue)
        return new

    def _start_queue(self, queue: MessageQueue, start: QueueOffset | None = None) -> QueueRunner:
        """Begin to pull a queue, from `start` or the position that the runner finds."""
        logger.info("group %s consumes %s", self._membership.group, queue)
        runner = QueueRunner(self._membership, queue, self._arrived)
        self._runners[queue] = runner
        self._membership.running[queue] = runner
        runner.task = self._tasks.spawn(runner.run(start), f"pull {queue}")
        return runner

    def _release_queue(self, queue: MessageQueue, move_to: QueueOffset | None = None) -> None:
        """Stop consuming a queue; after its handler has ended, commit `move_to`, or else the
        acknowledged offset, and unlock."""
        runner = self._runners[queue]
        self._releasing.add(queue)
        if runner.task is not None:
            runner.task.cancel()
        if runner.process.ordered:
            runner.process.forget_waiting()
        self._tasks.spawn(self._release_after_handler(runner, move_to), f"release {queue}")

    async def _release_after_handler(
        self, runner: QueueRunner, move_to: QueueOffset | None
    ) -> None:
        """Wait for the queue's handler, commit its offset and unlock it."""
        queue = runner.queue
        logger.info("group %s gives up %s", self._membership.group, queue)
        try:
            if runner.process.ordered:
                try:
                    async with asyncio.timeout(RELEASE_MAX_MS / 1000):
                        await runner.wait_until_drained()
                except TimeoutError:
                    logger.warning("the handler of %s still runs", queue)
            offset = runner.process.commit_queue_offset if move_to is None else move_to
            runner.process.stop_consuming()
            if runner.positioned or move_to is not None:
                await self._membership.offsets.commit({queue: offset}, confirmed=True)
            if runner.process.ordered and move_to is None:
                await self._locks.unlock_queues([queue])
        finally:
            self._membership.puller.forget_queue(queue)
            self._releasing.discard(queue)
            if self._runners.get(queue) is runner:
                del self._runners[queue]
                self._membership.running.pop(queue, None)
            self.rebalance_soon()
