"""The producer: sends messages to the queues of their topics.

Owns the public face of both producers, by remoting and by gRPC. It must never send a request.
"""

from collections.abc import Sequence
from typing import Protocol

from turbopump.net.client.errors import check_type
from turbopump.net.client.lifetime import ClientLifetime
from turbopump.net.client.messages import Message, SendResult
from turbopump.net.client.options import ClientOptions, ProducerOptions
from turbopump.net.client.remoting_producer import RemotingProducer
from turbopump.net.client.selection import Choose
from turbopump.net.client.shared_client import SharedClient, instance_of, refuse_with_endpoints
from turbopump.net.wire.queues import MessageQueue


class ProducerTransport(Protocol):
    """A producer by one protocol: RemotingProducer or GrpcProducer.

    Each method is that of Producer with the same name, with its effects, result and errors:
    `start` and `close` join and leave, `mark_closed` counts as closed without a request, `queues`
    returns the queues that can be sent to, `send` and `send_batch` wait until the messages are
    stored, `send_oneway` returns the message id without an answer, `recall` cancels a timer and
    returns its message id. `target` is the `queue` or the `choose` of `Producer.send`; `timeout_ms`
    0 is the option's value. A request that the protocol does not have raises InvalidArgument.
    """

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def mark_closed(self) -> None: ...

    async def queues(self, topic: str) -> list[MessageQueue]: ...

    async def send(
        self, message: Message, target: MessageQueue | Choose | None, timeout_ms: int
    ) -> SendResult: ...

    async def send_batch(
        self, messages: Sequence[Message], queue: MessageQueue | None, timeout_ms: int
    ) -> SendResult: ...

    async def send_oneway(self, message: Message, queue: MessageQueue | None) -> str: ...

    async def recall(self, handle: str, timeout_ms: int) -> str: ...


class Producer(ClientLifetime):
    """Sends messages; use as `async with Producer("group", ["127.0.0.1:9876"]) as producer`.

    With `endpoints` the producer speaks gRPC, to RocketMQ's proxy, Turbopump's proxy or a Turbopump
    broker, and needs no name server: `Producer(endpoints="127.0.0.1:8081")`. Topics must exist and
    have the type of the messages; servers choose the queues, and results do not name them.

    Args:
        group: the producer group, which brokers list; needed without `endpoints`, unused with it.
        namesrv: addresses "host:port", or one text with ";" between; not needed with `client`.
        endpoints: "host:port" where gRPC is served; neither `namesrv` nor `client` goes with it.
        options: timeout, tries, compression.
        client: a client to share with other producers and consumers.
        client_options: intervals and timeouts of an own client; not with `client`.
        seed: makes the queue at which a topic's round begins repeatable.

    Raises InvalidArgument for an invalid group, address or option, and for arguments that do not go
    together; TlsError for TLS files that cannot be used.
    """

    def __init__(
        self,
        group: str = "",
        namesrv: str | Sequence[str] = (),
        *,
        endpoints: str = "",
        options: ProducerOptions | None = None,
        client: SharedClient | None = None,
        client_options: ClientOptions | None = None,
        seed: int | None = None,
    ) -> None:
        self.group = group
        options = options or ProducerOptions()
        check_type(options, ProducerOptions, "options", "a turbopump.ProducerOptions")
        self._transport: ProducerTransport
        if endpoints:
            refuse_with_endpoints(client, namesrv)
            from turbopump.net.client.grpc.producer import GrpcProducer  # loads protobuf

            self._transport = GrpcProducer(endpoints, client_options, options)
        else:
            instance = instance_of(client, namesrv, client_options)
            self._transport = RemotingProducer(group, instance, options, seed)

    async def start(self) -> None:
        """Make the producer ready; raises ClientError if it is started already.

        Connections to brokers are opened by the first send. With `endpoints` the server is
        connected to now, which also raises BrokerError and RemotingError.
        """
        await super().start()

    async def close(self) -> None:
        """Leave the brokers and close the connections, unless others share the client. Closing
        twice does nothing; a closed producer can be started again."""
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

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be sent to now, sorted by broker name and queue id.

        Raises RouteNotFound without a route, NoWritableQueue without a master that accepts
        messages, RemotingError if no name server answers, and InvalidArgument with `endpoints`.
        """
        return await self._transport.queues(topic)

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        choose: Choose | None = None,
        timeout_ms: int = 0,
    ) -> SendResult:
        """Send one message and wait until it is stored; `status` of the result may be less than
        SEND_OK.

        By default the topic's queues are taken in turn, and after a failure another broker is
        tried. With `queue`, `choose` or a sharding key in the message the queue is fixed and there
        is one try (unless `retries_to_queue`), so that the order of its messages is not changed.

        Args:
            message: the message to send.
            queue: the queue to send to; it overrules `choose` and the sharding key.
            choose: chooses the queue, for ordered messages; it overrules the sharding key.
            timeout_ms: bound of all tries; 0 for the option's value.

        Raises InvalidArgument for an invalid message, RouteNotFound without a route, BrokerError
        for the broker's refusal, ClientClosed unless started, and RemotingError without an answer:
        in that case the message may have been stored.
        """
        check_type(message, Message, "the message", "a turbopump.Message")
        return await self._transport.send(message, queue or choose, timeout_ms)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int = 0,
    ) -> SendResult:
        """Send messages of the same topic as one batch: all of them are stored, in one queue, or no
        message.

        Without `queue` the topic's queues take turns, also for messages with a sharding key. The
        result's `message_id` is the messages' ids, comma-joined; its queue offset is the first
        message's. Raises as `send` does, and InvalidArgument for messages that may not form a batch
        (a delay, different topics, more than 4096 messages or 4 MiB together).
        """
        return await self._transport.send_batch(messages, queue, timeout_ms)

    async def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> str:
        """Write the request once, without an answer, and return the message id. The message may be
        lost.

        Raises as `send` does if the request could not be written; InvalidArgument with `endpoints`.
        """
        return await self._transport.send_oneway(message, queue)

    async def recall(self, handle: str, *, timeout_ms: int = 0) -> str:
        """Cancel the delivery of a timer that is not due yet, by the `recall_handle` of its result;
        returns its message id. The broker must have recallMessageEnable.

        Raises InvalidArgument for a malformed handle, BrokerError for the broker's refusal (also
        when the timer is due by then), RemotingError without an answer.
        """
        return await self._transport.recall(handle, timeout_ms)
