"""The shared state of a consumer's parts: its identity, subscriptions and running queues.

Owns the subscriptions, the running queues and their totals. It must never start or stop anything.

Tests: tests/unit/net/client/consuming/test_balancer.py
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from turbopump.engine.types import QueueOffset
from turbopump.net.client.client_instance import ClientInstance
from turbopump.net.client.consuming.leader_assignment import LeaderAssignment
from turbopump.net.client.consuming.offsets import OffsetStore, QueueOffsets
from turbopump.net.client.consuming.process_queue import FlowLimits, ProcessQueue, Totals
from turbopump.net.client.consuming.pulling import Puller
from turbopump.net.client.consuming.rates import TopicRates
from turbopump.net.client.consuming.retry import Retries
from turbopump.net.client.errors import BrokerError
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.client.options import ConsumerOptions, Outcome
from turbopump.net.wire.names import RETRY_PREFIX
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.subscription import SubscriptionData

Handler = Callable[[ReceivedMessage], Awaitable[Outcome | None] | Outcome | None]
"""A message handler, `async def` or plain `def`: returning None or Outcome.ACK acknowledges,
raising or Outcome.RETRY has the message delivered again later."""

RunningHandler = Callable[[ReceivedMessage], Awaitable[Outcome]]
"""A handler as a coroutine function that always returns an Outcome."""


class Running(Protocol):
    """A queue that is being consumed: its state and the signal that there is room again.

    `process` holds its messages and is replaced when the position moves; `positioned`: its start
    offset is known; `committed`: the last offset read or committed; `refusal`: the broker's refusal
    of its pulls, if waiting does not change it.
    """

    process: ProcessQueue
    positioned: bool
    committed: QueueOffset | None
    refusal: BrokerError | None

    def on_message_settled(self) -> None:
        """Wake the queue's pull loop, and a wait for its handlers, because a message of the
        queue was acknowledged, put back or dropped; returns at once."""


@dataclass(slots=True)
class ConsumerMembership:
    """The shared state of a push consumer. `subscriptions` is by topic; `running` has the queues
    being consumed, also while they are given up."""

    instance: ClientInstance
    group: str
    options: ConsumerOptions
    limits: FlowLimits
    offsets: OffsetStore
    puller: Puller
    queue_offsets: QueueOffsets
    retries: Retries
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    running: dict[MessageQueue, Running] = field(default_factory=dict)
    led: dict[str, LeaderAssignment] = field(default_factory=dict)
    """The shares that each topic's leader decided last, by topic; used with strategy STICKY."""
    totals: Totals = field(default_factory=Totals)
    rates: TopicRates = field(default_factory=TopicRates)

    @property
    def retry_topic(self) -> str:
        """The topic from which the group's failed messages are delivered again."""
        return f"{RETRY_PREFIX}{self.group}"

    @property
    def locks_queues(self) -> bool:
        """Whether queues are consumed under a broker's lock: ordered, and divided among members."""
        return self.options.ordered and not self.options.broadcast

    def queue_of_message(self, message: ReceivedMessage) -> Running | None:
        """The running queue in which this very message object is in flight; None if it was settled,
        or its queue was given up."""
        running = self.running.get(message.queue)
        return running if running is not None and running.process.is_in_flight(message) else None

    def take_refusal(self) -> BrokerError | None:
        """Return and reset the refusal of a topic whose queues the broker refuses, all of them and
        for a reason that waiting does not change; None if there is no such topic. A later refusal
        is returned again."""
        by_topic: dict[str, list[Running]] = {}
        for queue, running in self.running.items():
            by_topic.setdefault(queue.topic, []).append(running)
        for of_topic in by_topic.values():
            refusals = [running.refusal for running in of_topic]
            if all(refusals):
                for running in of_topic:
                    running.refusal = None
                return refusals[0]
        return None

    async def commit_offsets(self, *, confirmed: bool) -> None:
        """Commit the offsets of running queues that changed since the last call; `confirmed` waits
        for the store's acknowledgement, also of earlier commits. Failures are logged; this method
        does not commit such an offset again until it changes."""
        changed: dict[MessageQueue, QueueOffset] = {}
        for queue, running in self.running.items():
            if running.positioned and running.committed != running.process.commit_queue_offset:
                running.committed = changed[queue] = running.process.commit_queue_offset
        if changed or confirmed:
            await self.offsets.commit(changed, confirmed=confirmed)
