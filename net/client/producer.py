"""The producer: sends messages to the queues of their topics.

Owns the public face of both producers, by remoting and by gRPC. It must never send a request.
"""

from collections.abc import Sequence
from typing import Protocol

from turbopump.net.client.errors import expect
from turbopump.net.client.lifetime import ClientLifetime
from turbopump.net.client.messages import Message, SendResult
from turbopump.net.client.options import ClientOptions, ProducerOptions
from turbopump.net.client.remoting_producer import RemotingProducer
from turbopump.net.client.selection import Choose
from turbopump.net.client.shared_client import SharedClient, instance_of
from turbopump.net.wire.queues import MessageQueue


class ProducerTransport(Protocol):
    """A producer by one protocol: RemotingProducer or GrpcProducer.

    Arguments, results and errors are those of Producer. A request that the protocol does not have
    raises InvalidArgument.
    """

    async def start(self) -> None: ...

    async def close(self) -> None: ...

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
        group: the producer group, which brokers list; unused by gRPC.
        namesrv: addresses "host:port", or one text with ";" between; not needed with `client`.
        endpoints: "host:port" where gRPC is served.
        options: timeout, tries, compression.
        client: a client to share with other producers and consumers.
        client_options: intervals and timeouts of an own client.
        seed: makes the queue at which a topic's round begins repeatable.
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
        expect(options, ProducerOptions, "options", "a turbopump.ProducerOptions")
        self._transport: ProducerTransport
        if endpoints:
            from turbopump.net.client.grpc.producer import GrpcProducer  # loads protobuf

            self._transport = GrpcProducer(endpoints, client_options, options)
        else:
            instance = instance_of(client, namesrv, client_options)
            self._transport = RemotingProducer(group, instance, options, seed)

    async def start(self) -> None:
        """Make the producer ready; connections to brokers are made when first used."""
        await self._transport.start()

    async def close(self) -> None:
        """Leave the brokers and close the connections. Closing twice does nothing."""
        await self._transport.close()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be sent to, sorted; raises RouteNotFound."""
        return await self._transport.queues(topic)

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        choose: Choose | None = None,
        timeout_ms: int = 0,
    ) -> SendResult:
        """Send one message and wait until it is stored.

        By default the topic's queues are taken in turn, and after a failure another broker is
        tried. With `queue`, `choose` or a sharding key in the message the queue is fixed and there
        is one try (unless `retries_to_queue`), so that the order of its messages is not changed.

        Args:
            message: the message to send.
            queue: the queue to send to.
            choose: chooses the queue, for ordered messages.
            timeout_ms: bound of all tries; 0 for the option's value.

        Raises InvalidArgument for an invalid message, RouteNotFound without a route, BrokerError
        for the broker's refusal, and RemotingError without an answer: in that case the message may
        have been stored.
        """
        expect(message, Message, "the message", "a turbopump.Message")
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

        The result's ids are comma-joined; its queue offset is the first message's. Raises as `send`
        does, and InvalidArgument for messages that may not form a batch (a delay, different topics,
        more than 4 MiB together).
        """
        return await self._transport.send_batch(messages, queue, timeout_ms)

    async def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> str:
        """Send without waiting for an answer; returns the message id. The message may be lost.

        Raises as `send` does if the request could not be written.
        """
        return await self._transport.send_oneway(message, queue)

    async def recall(self, handle: str, *, timeout_ms: int = 0) -> str:
        """Recall a timer that is not due yet, by the `recall_handle` of its result; returns its
        message id. The broker must have recallMessageEnable.

        Raises InvalidArgument for a malformed handle, BrokerError for the broker's refusal (also
        when the timer is due by then), RemotingError without an answer.
        """
        return await self._transport.recall(handle, timeout_ms)
