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
"""Receives the response to a request, or None without a response."""


@dataclass(slots=True, frozen=True)
class Take:
    """A receive from any queue: topic, group, filter, number of messages, and the time for which
    they are hidden from others. `with_rows` asks for the rows of Given, too."""

    topic: str
    group: SubscriptionGroupConfig
    subscription: SubscriptionData
    count: int
    invisible_ms: int
    with_rows: bool

    @property
    def attempts_max(self) -> int:
        """Deliveries before a message becomes a dead letter; at least one, because retryMaxTimes
        may be negative."""
        return max(0, min(self.group.retry_max_times, ATTEMPTS_MAX - 1)) + 1


@dataclass(slots=True, frozen=True)
class Given:
    """Popped messages, as framed ReceiveMessageResponses. Each of `rows` has a message's id, the
    queue offset of its check point, its queue, its queue offset and its log offset."""

    framed: bytes
    pop_time_ms: int
    revive_queue_id: int
    rows: Sequence[tuple[bytes, int, int, int, int]]


class RequestBackend(Protocol):
    """The executor of requests, the clock and the loop. Loop thread only."""

    @property
    def body_max(self) -> int:
        """Maximum bytes of a message's body."""

    def now_ms(self) -> int:
        """Epoch milliseconds of the wall clock."""

    def steady_ms(self) -> int:
        """Milliseconds of the loop's clock, which deadlines of calls use."""

    def call_soon(self, work: Callable[[], None]) -> object:
        """Have `work` called after the current turn of the loop."""

    def call_later(self, delay_ms: int, work: Callable[[], None]) -> Timer:
        """Have `work` called after `delay_ms`."""

    def work(self, host: bytes, steps: Steps[None]) -> None:
        """Execute steps of a few milliseconds each; the steps of a host run one after the other."""

    def resolve_names(
        self,
        topics: Sequence[str],
        groups: Sequence[str],
        then: Callable[[], None],
        size: int = 0,
    ) -> None:
        """Call `then`, now or later, when `topics_of` and `group` can answer for these names. It is
        always called, even if a name cannot be resolved. `size` is the bytes that wait with it."""

    def topics_of(self, name: str) -> Mapping[str, TopicConfig]:
        """The configurations of a topic by broker name, at least one; raises RpcRefused."""

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        """A consumer group, which is created if groups are created automatically; None: it does not
        exist. Raises RpcRefused if its existence is not known."""

    def is_system(self, topic: str) -> bool:
        """Whether a topic is a system topic of brokers."""

    def serves(self, broker_name: str) -> bool:
        """Whether requests for a broker can be executed."""

    def choose(self, topic: str, message_group: str | None) -> tuple[str, int]:
        """(broker name, queue id) for a message; a message group always has the same queue. Raises
        RpcRefused if no queue is writable."""

    def choose_readable(self, topic: str) -> str:
        """A broker to receive messages from, for a client that names none."""

    def ask(
        self, broker_name: str, request: Command, peer: Peer, done: Done, wait_ms: int = 0
    ) -> None:
        """Have a request executed as if `peer` had sent it, by a broker that is served; `done`
        receives the response, perhaps before this returns. `wait_ms`: longest time that the request
        may wait for messages."""

    def take(self, take: Take) -> Given | None:
        """Pop the available messages, if the backend can do so without an object for each; None:
        nothing was done, and the caller has to send a pop request."""

    def beat(self, data: HeartbeatData, peer: Peer, done: Done) -> None:
        """Register a client's heartbeat: it becomes, or stays, a member of its groups."""

    def leave(self, client_id: str, group: str, peer: Peer) -> None:
        """Unregister a client; `group` is its consumer group, or empty."""


class NoReadBuffers:
    """A stand-in for the buffers that FairScheduler shortens while it is busy: without buffers."""

    def shorten(self) -> None:
        """No-op: there is no buffer to shorten."""

    def lengthen(self) -> None:
        """No-op: there is no buffer to lengthen."""


def logged_steps(steps: Steps[None]) -> Steps[None]:
    """Run steps and log a failure, so that it does not stop the steps of others."""
    try:
        yield from steps
    except Exception:
        logger.exception("work for clients of gRPC failed")
