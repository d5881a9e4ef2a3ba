"""How a client behaves: intervals, limits and choices, each with RocketMQ's default.

Owns the option types shared by producer, consumers and admin client. It must never hold state.
Called by programs and by every shell of net/client.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from turbopump.net.allocation.shares import MachineRooms
from turbopump.net.allocation.strategies import AVG
from turbopump.net.transport.options import ClientTlsSettings, RemotingOptions
from turbopump.net.wire.queues import MessageQueue


def wall_clock_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


def steady_clock_ms() -> int:
    """Milliseconds that go on whatever the wall clock is set to."""
    return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Intervals and timeouts of one client instance (client/ClientConfig).

    Args:
        instance_name: last part of the client id; empty for a name unique on this machine.
        timeout_ms: bound of one request that has no bound of its own.
        route_refresh_ms: how often every known route is asked for again.
        heartbeat_ms: how often brokers get a heartbeat.
        tls: connect by TLS. True trusts any server, as RocketMQ's clients do; the path of a file
            with certificates trusts those that they signed; ClientTlsSettings has the rest, such as
            a certificate of the client's own.
        connect_timeout_ms: bound of a connect and its TLS handshake.
        idle_timeout_ms: a connection without a byte in or out for so long is closed.
        max_in_flight: calls to one server that wait for their answers, at most.
        now_ms: the clock, epoch milliseconds.
        steady_ms: what waits and leases are measured by, milliseconds of the monotonic clock.
    """

    instance_name: str = ""
    timeout_ms: int = 3000
    route_refresh_ms: int = 30_000
    heartbeat_ms: int = 30_000
    tls: bool | str | Path | ClientTlsSettings = False
    connect_timeout_ms: int = 3_000
    idle_timeout_ms: int = 120_000
    max_in_flight: int = 65_535
    now_ms: Callable[[], int] = wall_clock_ms
    steady_ms: Callable[[], int] = steady_clock_ms

    @property
    def remoting(self) -> RemotingOptions:
        """What of it is the connections'."""
        tls: ClientTlsSettings | None
        if isinstance(self.tls, ClientTlsSettings):
            tls = self.tls
        elif isinstance(self.tls, bool):
            tls = ClientTlsSettings() if self.tls else None
        else:
            path = str(self.tls)
            tls = ClientTlsSettings(trust_cert_path=path, auth_server=True, test_mode=False)
        return RemotingOptions(
            idle_timeout_ms=self.idle_timeout_ms,
            max_in_flight=self.max_in_flight,
            connect_timeout_ms=self.connect_timeout_ms,
            tls=tls,
        )


class MessageModel(Enum):
    """Who gets a message (protocol/heartbeat/MessageModel)."""

    CLUSTERING = "CLUSTERING"
    """One member of the group; offsets are kept by the broker, failures are retried."""

    BROADCASTING = "BROADCASTING"
    """Every member; offsets are kept by the client, failures are not retried."""


class ConsumeFrom(Enum):
    """Where a group without a stored offset begins (common/consumer/ConsumeFromWhere).

    A RocketMQ broker lets a new group begin at 0 whatever is asked for, as long as nothing of the
    queue was deleted yet and its first message is still in memory: a queue that was created a
    moment ago must not lose what arrived before the consumer saw it. ConsumerOptions can ask for
    the rule to be left out.
    """

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class Outcome(Enum):
    """What a message handler may return; None means ACK."""

    ACK = "ACK"
    RETRY = "RETRY"


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """How a push consumer works (client/consumer/DefaultMQPushConsumer).

    Args:
        model: cluster or broadcast.
        ordered: one message of a queue at a time, under the broker's queue lock.
        consume_from: where a group without offsets begins.
        consume_from_ms: the time for ConsumeFrom.TIMESTAMP, epoch milliseconds.
        young_from_start: the broker's rule of ConsumeFrom for young queues; without it what came
            into a new queue before this consumer saw the queue is not consumed.
        concurrency: handlers running at the same time, of different queues or, unless ordered,
            of the same one.
        pull_batch: messages asked for by one pull.
        max_reconsume_times: retries before a message becomes a dead letter; -1 is 16, and
            without end for an ordered consumer.
        consume_timeout_ms: a message in a handler for longer is sent back for retry.
        suspend_ms: how long an ordered queue pauses after a failure.
        auto_ack: the iterator acknowledges a message when the next one is asked for; otherwise
            the program calls `ack` or `retry`.
        close_timeout_ms: how long `close` waits for running handlers.
        rebalance_ms: how often the shares are computed anew without a notice.
        persist_ms: how often offsets are committed.
        strategy: how members share the queues: RocketMQ's AVG, AVG_BY_CIRCLE, CONSISTENT_HASH,
            MACHINE_ROOM, MACHINE_ROOM_NEARBY (or that, `-` and another one), CONFIG, or STICKY, by
            which each keeps what balance allows. All members of a group must have the same.
        fixed_queues: those of this member, for CONFIG.
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
        """The limit sent with a retry: RocketMQ sends 16 for -1."""
        return DEFAULT_RETRY_LIMIT if self.max_reconsume_times < 0 else self.max_reconsume_times


DEFAULT_RETRY_LIMIT = 16
"""Retries of a message before %DLQ%, where nothing else is configured."""
