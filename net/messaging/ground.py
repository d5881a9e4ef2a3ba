"""What the clients' service stands on: the port between it and what executes its requests.

Owns the shape of that port, and what both sides of it have in common. It must never know who
executes: the handlers of the broker it runs in (`broker/grpc/ground.py`), or brokers that a proxy
asks (`src/turbopump/proxy/ground.py`). Used by everything in this folder.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from turbopump.net.transport.peer import Peer, Timer
from turbopump.net.transport.turns import Steps
from turbopump.net.wire.command import Command
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.heartbeat import HeartbeatData
from turbopump.net.wire.subscription import SubscriptionData
from turbopump.net.wire.topics import TopicConfig

logger = logging.getLogger(__name__)

TICK_MS: Final = 5_000
"""Between two looks at clients and handles (RocketMQ renews handles at this pace)."""
ANY_QUEUE: Final = -1
"""A queue is chosen by the broker."""

ATTEMPTS_MAX: Final = (1 << 31) - 1
"""Deliveries of a message are counted in records as an int32."""

Done = Callable[[Command | None], None]
"""Gets the answer to a request, None where there is none."""


@dataclass(slots=True, frozen=True)
class Take:
    """A receive of any queue: whose it is, how many messages it gets, for how long they are hidden
    from others, and whether what is to be known of each is asked for."""

    topic: str
    group: SubscriptionGroupConfig
    subscription: SubscriptionData
    count: int
    invisible_ms: int
    with_rows: bool

    @property
    def attempts_max(self) -> int:
        """Deliveries of a message before it is a dead letter; at least one, because retryMaxTimes
        may be negative."""
        return max(0, min(self.group.retry_max_times, ATTEMPTS_MAX - 1)) + 1


@dataclass(slots=True, frozen=True)
class Given:
    """What was popped, as framed ReceiveMessageResponses. `rows` have of each message its id, the
    queue offset of its check point, its queue, its queue offset and its log offset."""

    framed: bytes
    pop_time_ms: int
    revive_queue_id: int
    rows: Sequence[tuple[bytes, int, int, int, int]]


class GrpcGround(Protocol):
    """What executes requests, the clock and the loop. Loop thread only."""

    @property
    def body_max(self) -> int:
        """Bytes of a message's body."""

    def now_ms(self) -> int:
        """The wall clock."""

    def steady_ms(self) -> int:
        """The loop's clock, which deadlines of calls are of."""

    def soon(self, work: Callable[[], None]) -> object:
        """Have work done behind the turn of the loop that is under way."""

    def call_later(self, delay_ms: int, work: Callable[[], None]) -> Timer:
        """Have work done after so many ms."""

    def work(self, host: bytes, steps: Steps[None]) -> None:
        """Go through steps, each some milliseconds; those of one host follow one another."""

    def know(
        self,
        topics: Sequence[str],
        groups: Sequence[str],
        then: Callable[[], None],
        size: int = 0,
    ) -> None:
        """Call `then`, now or later, when `topics_of` and `group` can say what there is of these
        names. It is called in any case. `size`: bytes that are kept for it meanwhile."""

    def topics_of(self, name: str) -> Mapping[str, TopicConfig]:
        """A topic by the names of the brokers that serve it, at least one; raises RpcRefused."""

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        """A consumer group, made where groups make themselves; None: there is none. Raises
        RpcRefused where that is not known."""

    def is_system(self, topic: str) -> bool:
        """Whether a topic is the brokers' own."""

    def serves(self, broker_name: str) -> bool:
        """Whether requests for a broker can be executed."""

    def choose(self, topic: str, message_group: str | None) -> tuple[str, int]:
        """The broker and the queue that a message is sent to; those of one message group have one
        queue. Raises RpcRefused where none is writable."""

    def choose_readable(self, topic: str) -> str:
        """A broker to receive messages from, for a client that does not say which."""

    def ask(
        self, broker_name: str, request: Command, peer: Peer, done: Done, wait_ms: int = 0
    ) -> None:
        """Have a request executed as if `peer` had sent it, by a broker that is served; `done` gets
        the answer, perhaps before this returns. `wait_ms`: so long the request may wait for
        messages."""

    def take(self, take: Take) -> Given | None:
        """Messages that are there now, if the ground can give them without an object for each;
        None: they are to be asked for, and nothing was done."""

    def beat(self, data: HeartbeatData, peer: Peer, done: Done) -> None:
        """A client lives: it is, or stays, a member of its groups."""

    def leave(self, client_id: str, group: str, peer: Peer) -> None:
        """A client is gone; `group` is what it consumed for, or empty."""


class NoRooms:
    """For Turns: reads are as long as they are."""

    def shorten(self) -> None:
        """Nothing to shorten."""

    def lengthen(self) -> None:
        """Nothing to lengthen."""


def without_failing(steps: Steps[None]) -> Steps[None]:
    """What fails is over, and not in the way of others."""
    try:
        yield from steps
    except Exception:
        logger.exception("work for clients of gRPC failed")
