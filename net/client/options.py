"""A client's settings: intervals, limits and choices, each with RocketMQ's default.

Owns the option types shared by producer, consumers and admin client, and the check of name server
addresses. It must never hold state.

Tests: tests/unit/net/client/test_public_face.py, tests/unit/net/client/consuming/test_delivery.py
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from turbopump.net.allocation.shares import MachineRooms
from turbopump.net.allocation.strategies import AVG
from turbopump.net.client.credentials import Credentials
from turbopump.net.client.errors import InvalidArgument, check_type
from turbopump.net.transport.options import ClientTlsSettings, RemotingOptions
from turbopump.net.wire import hosts
from turbopump.net.wire.command import Command
from turbopump.net.wire.queues import MessageQueue


def wall_clock_ms() -> int:
    """Milliseconds since 1970 of the system clock."""
    return time.time_ns() // 1_000_000


def steady_clock_ms() -> int:
    """Milliseconds of the monotonic clock since an arbitrary moment; changes of the wall clock do
    not move it."""
    return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Intervals and timeouts of a client instance (client/ClientConfig).

    Args:
        instance_name: last part of the client id; empty for a name unique on this machine.
        timeout_ms: bound of a request that has no other bound.
        route_refresh_ms: interval at which every known route is requested again.
        heartbeat_ms: interval of heartbeats to brokers.
        tls: connect by TLS. True trusts any server, as RocketMQ's clients do; the path of a file
            with certificates trusts the servers that they signed; ClientTlsSettings has further
            settings, such as a certificate of the client's own.
        credentials: name and secret that sign each request; None takes those of the environment
            (Credentials.from_environment), and without them requests are not signed.
        connect_timeout_ms: bound of a connect and its TLS handshake.
        idle_timeout_ms: a connection without traffic in either direction for this time is closed.
        max_in_flight: maximum number of unanswered calls to one server.
        now_ms: the wall clock, epoch milliseconds.
        steady_ms: the clock for waits and leases, milliseconds of the monotonic clock.
    """

    instance_name: str = ""
    timeout_ms: int = 3000
    route_refresh_ms: int = 30_000
    heartbeat_ms: int = 30_000
    tls: bool | str | Path | ClientTlsSettings = False
    credentials: Credentials | None = None
    connect_timeout_ms: int = 3_000
    idle_timeout_ms: int = 120_000
    max_in_flight: int = 65_535
    now_ms: Callable[[], int] = wall_clock_ms
    steady_ms: Callable[[], int] = steady_clock_ms


def remoting_options(
    options: ClientOptions, sign: Callable[[Command], None] | None = None
) -> RemotingOptions:
    """The settings of a client's connections, whose requests `sign` signs; reads no TLS file."""
    tls: ClientTlsSettings | None
    if isinstance(options.tls, ClientTlsSettings):
        tls = options.tls
    elif isinstance(options.tls, bool):
        tls = ClientTlsSettings() if options.tls else None
    else:
        path = str(options.tls)
        tls = ClientTlsSettings(trust_cert_path=path, auth_server=True, test_mode=False)
    return RemotingOptions(
        idle_timeout_ms=options.idle_timeout_ms,
        max_in_flight=options.max_in_flight,
        connect_timeout_ms=options.connect_timeout_ms,
        tls=tls,
        sign=sign,
    )


def addresses_of(namesrv: str | Sequence[str]) -> list[str]:
    """The "host:port" of name servers, separated by ";" in a text; raises InvalidArgument."""
    wanted = "'host:port' or a list of such texts"
    check_type(namesrv, (str, Sequence), "the name server", wanted)
    texts = namesrv.split(";") if isinstance(namesrv, str) else namesrv
    for text in texts:
        check_type(text, str, "the name server", wanted)
    addresses = [text.strip() for text in texts if text.strip()]
    if not addresses:
        raise InvalidArgument("at least one name server address is needed")
    for address in addresses:
        try:
            hosts.split_host_port(address)
        except ValueError as error:
            raise InvalidArgument(f"name server address: {error}") from None
    return addresses


COMPRESS_OVER: Final = 4096
"""Bodies of this number of bytes or more are compressed
(DefaultMQProducer.compressMsgBodyOverHowmuch)."""


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """Settings of a producer (client/producer/DefaultMQProducer).

    Args:
        timeout_ms: bound of a send, all its tries together.
        retries: further tries after the first one failed, on another broker if there is one.
        compress_over: bodies of this number of bytes or more are compressed; 0 for never.
        retries_to_queue: like `retries`, for sends to a fixed queue. It suits callers that send
            the messages of a queue one after the other and accept duplicates.
        try_timeout_ms: bound of each try (sendMsgMaxTimeoutPerRequest): a broker that hangs uses
            up only this part of `timeout_ms`, and the next try goes to another broker; 0 for no
            bound but `timeout_ms`.
    """

    timeout_ms: int = 3000
    retries: int = 2
    compress_over: int = COMPRESS_OVER
    retries_to_queue: int = 0
    try_timeout_ms: int = 0


class MessageModel(Enum):
    """The members of a group that receive a message (protocol/heartbeat/MessageModel)."""

    CLUSTERING = "CLUSTERING"
    """Each message goes to a single member; the broker keeps offsets; failures are retried."""

    BROADCASTING = "BROADCASTING"
    """Every member receives every message; the client keeps offsets; failures are not retried."""


class ConsumeFrom(Enum):
    """The position at which a group without a stored offset begins
    (common/consumer/ConsumeFromWhere).

    A RocketMQ broker lets a new group begin at 0, whatever position it requests, while nothing of
    the queue was deleted yet and its first message is still in memory: messages that arrive in a
    new queue before the consumer sees the queue must not be lost. ConsumerOptions can ask brokers
    to leave this rule out.
    """

    LAST = "CONSUME_FROM_LAST_OFFSET"
    """The end of each queue: only messages that are stored later."""
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    """The oldest stored message of each queue."""
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"
    """The first message stored at `consume_from_ms` of the options, or later."""


class Outcome(Enum):
    """The result of a message handler; None means ACK."""

    ACK = "ACK"
    """The message is consumed."""
    RETRY = "RETRY"
    """The message is delivered again later; after the last retry it becomes a dead letter. In
    broadcast mode it is dropped."""


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """Settings of a push consumer (client/consumer/DefaultMQPushConsumer).

    Args:
        model: cluster or broadcast.
        ordered: one message of a queue at a time, under the broker's queue lock.
        consume_from: start position of a group without offsets.
        consume_from_ms: the time for ConsumeFrom.TIMESTAMP, epoch milliseconds.
        young_from_start: the broker's rule of ConsumeFrom for young queues; without it messages
            that arrive in a new queue before this consumer sees the queue are not consumed.
        concurrency: handlers running at the same time, of different queues or, unless ordered,
            of the same one.
        pull_batch: messages requested by one pull.
        max_reconsume_times: retries before a message becomes a dead letter; -1 is 16, and
            unlimited for an ordered consumer.
        consume_timeout_ms: a message in a handler for longer is sent back for retry.
        suspend_ms: pause of an ordered queue after a failure.
        auto_ack: the iterator acknowledges a message when the next one is requested; otherwise
            the program calls `ack` or `retry`.
        close_timeout_ms: longest time that `close` waits for running handlers.
        rebalance_ms: interval at which the shares are computed again without a notice.
        persist_ms: interval at which offsets are committed.
        strategy: how members share the queues: RocketMQ's AVG, AVG_BY_CIRCLE, CONSISTENT_HASH,
            MACHINE_ROOM, MACHINE_ROOM_NEARBY (optionally followed by `-` and another strategy),
            CONFIG, or STICKY, by which each member keeps the queues that balance allows. All
            members of a group must have the same.
        fixed_queues: this member's queues, for CONFIG.
        machine_rooms: the room of each member, for MACHINE_ROOM and MACHINE_ROOM_NEARBY.
    """

    model: MessageModel = MessageModel.CLUSTERING
    ordered: bool = False
    consume_from: ConsumeFrom = ConsumeFrom.LAST
    consume_from_ms: int = 0
    young_from_start: bool = True
    concurrency: int = 20
    pull_batch: int = 32
    max_reconsume_times: int = -1
    consume_timeout_ms: int = 15 * 60_000
    suspend_ms: int = 1000
    auto_ack: bool = True
    close_timeout_ms: int = 10_000
    rebalance_ms: int = 20_000
    persist_ms: int = 5000
    strategy: str = AVG
    fixed_queues: tuple[MessageQueue, ...] = ()
    machine_rooms: MachineRooms = field(default_factory=MachineRooms)

    @property
    def broadcast(self) -> bool:
        """Whether every member gets every message."""
        return self.model is MessageModel.BROADCASTING

    @property
    def retry_limit(self) -> int:
        """The limit of retries sent to the broker with a message that is sent back: 16 if
        `max_reconsume_times` is negative, as RocketMQ's clients send."""
        return DEFAULT_RETRY_LIMIT if self.max_reconsume_times < 0 else self.max_reconsume_times


DEFAULT_RETRY_LIMIT = 16
"""Retries of a message before %DLQ%, where nothing else is configured."""
