"""The simple consumer: a program receives messages of any queue, and acknowledges each of them.

Owns the public face of both simple consumers, by remoting and by gRPC. It must never send a
request.
"""

from collections.abc import Sequence
from typing import Protocol

from turbopump.net.client.consuming.popper import NOT_RUNNING, Popper, check_invisible
from turbopump.net.client.consuming.subscribing import NO_SUBSCRIPTION, subscription_of
from turbopump.net.client.errors import ClientClosed, ClientError, InvalidArgument
from turbopump.net.client.lifetime import ClientLifetime
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.client.options import ClientOptions
from turbopump.net.client.sending import check_topic
from turbopump.net.client.shared_client import SharedClient, instance_of, refuse_with_endpoints
from turbopump.net.wire.pop_records import MESSAGES_MAX
from turbopump.net.wire.subscription import ALL, SubscriptionData


class PopTransport(Protocol):
    """A member of a group by one protocol: Popper or GrpcConsumer.

    Each method is that of SimpleConsumer with the same name, with its effects, result and errors:
    `start` and `close` join and leave the group, `receive` waits up to `wait_ms` for messages and
    hides them for `invisible_ms`, `ack` acknowledges a message, `change_invisible` hides it for
    `invisible_ms` from now and writes a new receipt into it. SimpleConsumer checks the arguments.
    `subscriptions`, by topic, may change at any time. `is_running`: whether it was started and not
    closed. `now_ms` is the wall clock, in epoch milliseconds.
    """

    subscriptions: dict[str, SubscriptionData]

    @property
    def is_running(self) -> bool: ...

    def now_ms(self) -> int: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def mark_closed(self) -> None: ...

    async def receive(
        self, max_count: int, invisible_ms: int, wait_ms: int
    ) -> list[ReceivedMessage]: ...

    async def ack(self, message: ReceivedMessage) -> None: ...

    async def change_invisible(self, message: ReceivedMessage, invisible_ms: int) -> None: ...


class SimpleConsumer(ClientLifetime):
    """Receives and acknowledges; use as `async with SimpleConsumer("group", [...]) as consumer`.

    Any number of members, and concurrent calls, share the messages of all queues: no member has
    queues of its own. A message that is not acknowledged is delivered again when its hidden time
    ends.

    With `endpoints` the consumer speaks gRPC, to RocketMQ's proxy, Turbopump's proxy or a Turbopump
    broker, and needs no name server. In that case the server decides where a group begins and
    whether it is ordered, hides messages for at least ten seconds, and waits at least five seconds
    for a message.

    Args:
        group: the consumer group.
        namesrv: addresses "host:port", or one text with ";" between; not needed with `client`.
        endpoints: "host:port" where gRPC is served; neither `namesrv` nor `client` goes with it.
        from_first: a new group begins at the first stored message, not at the end of each queue.
        ordered: a queue delivers no further message until all its delivered messages are
            acknowledged or their hidden time has ended.
        client: a client to share with other producers and consumers.
        client_options: intervals and timeouts of an own client; not with `client`.

    Raises InvalidArgument for an invalid group, address or option, and for arguments that do not go
    together; TlsError for TLS files that cannot be used.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = (),
        *,
        endpoints: str = "",
        from_first: bool = False,
        ordered: bool = False,
        client: SharedClient | None = None,
        client_options: ClientOptions | None = None,
    ) -> None:
        self.group = group
        self._transport: PopTransport
        if endpoints:
            refuse_with_endpoints(client, namesrv)
            from turbopump.net.client.grpc.consumer import GrpcConsumer  # loads protobuf

            self._transport = GrpcConsumer(endpoints, group, client_options)
        else:
            instance = instance_of(client, namesrv, client_options)
            self._transport = Popper(instance, group, from_first=from_first, ordered=ordered)

    def subscribe(self, topic: str, expression: str = ALL, *, sql: str | None = None) -> None:
        """Receive messages of a topic: all, only with tags joined by "||", or only if the condition
        `sql` on properties holds. A later call for the same topic replaces the expression; the next
        `receive` uses it. Raises InvalidArgument for an invalid name or expression."""
        check_topic(topic)
        data = subscription_of(topic, expression, sql, self._transport.now_ms())
        self._transport.subscriptions[topic] = data

    async def start(self) -> None:
        """Join the group. Raises ClientError if started already, or if the shared client has a
        consumer of the group; with `endpoints` also BrokerError and RemotingError."""
        await super().start()

    async def close(self) -> None:
        """Leave the group. No other consumer can acknowledge the received messages, so
        unacknowledged messages are delivered again. Closing twice does nothing; a closed consumer
        can be started again."""
        await super().close()

    async def _open(self) -> None:
        """Start the transport."""
        await self._transport.start()

    async def _close_parts(self) -> None:
        """Close the transport."""
        await self._transport.close()

    def _mark_closed(self) -> None:
        """Count as closed, without a request: the loop of `start` was closed."""
        self._transport.mark_closed()

    async def receive(
        self, max_count: int = MESSAGES_MAX, *, invisible_ms: int = 30_000, wait_ms: int = 15_000
    ) -> list[ReceivedMessage]:
        """Return up to `max_count` messages, 32 at most, of a single broker, waiting `wait_ms` for
        the first.

        They are hidden from the rest of the group for `invisible_ms`, 12 hours at most. An empty
        list if no message came in time. Raises InvalidArgument, ClientError without a subscription,
        RouteNotFound at once if no topic is known, ClientClosed, and the last BrokerError or
        RemotingError if no message came because of it.
        """
        transport = self._transport
        if not transport.is_running:
            raise ClientClosed(NOT_RUNNING)
        if not 0 < max_count <= MESSAGES_MAX:
            raise InvalidArgument(f"1 to {MESSAGES_MAX} messages can be received, not {max_count}")
        if not transport.subscriptions:
            raise ClientError(NO_SUBSCRIPTION)
        check_invisible(invisible_ms, 1)
        return await transport.receive(max_count, invisible_ms, wait_ms)

    async def ack(self, message: ReceivedMessage) -> None:
        """Acknowledge a handled message: it is not delivered again, unless its hidden time ended
        before.

        Returns when the broker has answered. Raises BrokerError, RemotingError, RouteNotFound; the
        message may be delivered again then. Raises InvalidArgument for a message that was not
        received by a simple consumer, or by the other protocol; ClientClosed.
        """
        await self._transport.ack(message)

    async def change_invisible(self, message: ReceivedMessage, invisible_ms: int) -> None:
        """Hide the message for `invisible_ms` (0 to 12 hours) from now; then it is delivered again
        unless acknowledged.

        The message gets a new receipt (property POP_CK), which `ack` needs; copies of the message
        do not. Raises InvalidArgument, BrokerError, RemotingError, RouteNotFound, ClientClosed.
        """
        check_invisible(invisible_ms, 0)
        await self._transport.change_invisible(message, invisible_ms)
