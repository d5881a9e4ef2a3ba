"""The port between the clients' service and the backend that executes its requests.

Owns the shape of that port, and the types that both sides share. It must never know the backend:
the handlers of the broker in this process (`broker/grpc/backend.py`), or brokers that a proxy asks
(`src/turbopump/proxy/backend.py`).

Tests: tests/unit/net/messaging/test_sending.py
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer, Timer
from turbopump.net.wire.command import Command
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.heartbeat import HeartbeatData
from turbopump.net.wire.subscription import SubscriptionData
from turbopump.net.wire.topics import TopicConfig

logger = logging.getLogger(__name__)

TICK_MS: Final = 5_000
"""Interval of ticks for clients and receipts (RocketMQ renews handles at this pace)."""
ANY_QUEUE: Final = -1
"""Queue id that lets the broker choose the queue."""

ATTEMPTS_MAX: Final = (1 << 31) - 1
"""Maximum number of deliveries: records count them as an int32."""

Done = Callable[[Command | None], None]
"""Receives the response to a request, of any code; None: no response arrived."""


@dataclass(slots=True, frozen=True)
class PopRequest:
    """A receive from any queue of a topic by a consumer group, without a wait for messages."""

    topic: str
    group: SubscriptionGroupConfig
    """The group's configuration."""
    subscription: SubscriptionData
    """The filter."""
    count: int
    """Maximum number of messages, at least 1."""
    invisible_ms: int
    """Time for which the messages are hidden from other consumers."""
    with_rows: bool
    """Whether the result needs `PoppedMessages.rows`."""

    @property
    def attempts_max(self) -> int:
        """Deliveries before a message becomes a dead letter; at least one, because retryMaxTimes
        may be negative."""
        return max(0, min(self.group.retry_max_times, ATTEMPTS_MAX - 1)) + 1


@dataclass(slots=True, frozen=True)
class PoppedMessages:
    """Messages that `RequestBackend.pop_available` popped, encoded."""

    framed: bytes
    """ReceiveMessageResponses, one for each message, framed and joined."""
    pop_time_ms: int
    """Epoch milliseconds of the pop, part of each message's handle."""
    revive_queue_id: int
    """The revive queue of the pop, part of each message's handle."""
    rows: Sequence[tuple[bytes, int, int, int, int]]
    """Message id, queue offset of the check point, queue id, queue offset and log offset of each
    message, in the order of `framed`. Empty unless `PopRequest.with_rows`."""


class RequestBackend(Protocol):
    """The executor of requests, the clocks and the loop. Loop thread only."""

    @property
    def body_max(self) -> int:
        """Maximum bytes of a message's body."""

    def now_ms(self) -> int:
        """Epoch milliseconds of the wall clock."""

    def steady_ms(self) -> int:
        """Milliseconds of the loop's monotonic clock, which deadlines of calls use."""

    def call_soon(self, work: Callable[[], None]) -> object:
        """Run `work` after the current turn of the loop; the result has no meaning."""

    def call_later(self, delay_ms: int, work: Callable[[], None]) -> Timer:
        """Run `work` on the loop after `delay_ms`, unless the returned timer is cancelled first."""

    def run_steps(self, host: bytes, steps: Steps[None]) -> None:
        """Run `steps`, of a few milliseconds each, in later turns of the loop; an exception is
        logged. The works of a host, a packed address, run in the order of these calls."""

    def resolve_names(
        self,
        topics: Sequence[str],
        groups: Sequence[str],
        then: Callable[[], None],
        size: int = 0,
    ) -> None:
        """Call `then` once, now or later, when `topics_of` and `group` can answer for these topics
        and groups, also if a name cannot be resolved: they then raise RpcRefused, and `group`
        returns None for a group that does not exist. `size` is the bytes that wait with it."""

    def topics_of(self, name: str) -> Mapping[str, TopicConfig]:
        """The configurations of a topic by broker name, at least one. Raises RpcRefused: the topic
        does not exist, or no master that has it is known."""

    def group_config(self, name: str) -> SubscriptionGroupConfig | None:
        """The configuration of a consumer group, which is created now if groups are created
        automatically; None: it does not exist. Raises RpcRefused if its existence is not known."""

    def is_system(self, topic: str) -> bool:
        """Whether a topic is a system topic of brokers, which clients must not use."""

    def executes_for(self, broker_name: str) -> bool:
        """Whether requests for the broker of this name can be executed here."""

    def choose_queue(self, topic: str, message_group: str | None) -> tuple[str, int]:
        """(broker name, queue id) for a message to `topic`; the id may be ANY_QUEUE without a
        message group, and is always the same for a message group while the queues stay. Raises
        RpcRefused if the topic does not exist or no queue is writable."""

    def choose_receiver(self, topic: str) -> str:
        """The name of a broker to receive messages of `topic` from, for a client that names none.
        Raises RpcRefused if no broker with the topic is known."""

    def execute_request(
        self, broker_name: str, request: Command, peer: Peer, done: Done, wait_ms: int = 0
    ) -> None:
        """Have `request` executed as if `peer` had sent it, by a broker for which `executes_for` is
        True; `done` receives the response once, perhaps before this returns. `wait_ms`: longest
        time that the request may wait for messages. Handlers may change `request`."""

    def pop_available(self, request: PopRequest) -> PoppedMessages | None:
        """Pop the available messages, if the backend can do so without an object for each; None:
        nothing was popped, and the caller has to send a pop request."""

    def register_client(self, data: HeartbeatData, peer: Peer, done: Done) -> None:
        """Register a client's heartbeat: it becomes, or stays, a member of its groups. `done`
        receives the response once, perhaps before this returns."""

    def unregister_client(self, client_id: str, group: str, peer: Peer) -> None:
        """Begin to unregister a client from its consumer group `group`; empty: it is a producer. No
        result is reported."""


class NoReadSizeLimit:
    """A stand-in for the limit of read sizes that FairScheduler sets while it is busy: no limit."""

    def shorten(self) -> None:
        """No-op: reads are not limited."""

    def lengthen(self) -> None:
        """No-op: reads are not limited."""


def logged_steps(steps: Steps[None]) -> Steps[None]:
    """Same steps, ended by the first exception, which is logged, so that it does not stop the steps
    of others."""
    try:
        yield from steps
    except Exception:
        logger.exception("work for clients of gRPC failed")
