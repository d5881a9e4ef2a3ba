"""The part of a SimpleConsumer with `endpoints`: receives by gRPC.

Owns the turns of brokers, as routes name them. It must never read ahead.
"""

import logging
from typing import Any, Final

from turbopump.net.client.errors import BrokerError, InvalidArgument, RouteNotFound
from turbopump.net.client.grpc.conversion import decode_message, time_of
from turbopump.net.client.grpc.session import EndpointSession
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.client.options import ClientOptions
from turbopump.net.client.receiving import handle_text
from turbopump.net.client.sending import check_group
from turbopump.net.grpc.codes import (
    AddressScheme,
    ClientType,
    Code,
    FilterType,
    Language,
    Permission,
)
from turbopump.net.grpc.messages import message_class
from turbopump.net.wire import properties as names
from turbopump.net.wire.hosts import split_host_port
from turbopump.net.wire.pop_handles import BadHandle, PopHandle, is_receipt
from turbopump.net.wire.subscription import SubscriptionData

logger = logging.getLogger(__name__)

ROUTE_MS: Final = 30_000
"""Age in milliseconds after which a route is requested again; a failed receive also causes a
request."""
REQUEST_MS: Final = 3_000
"""Time in milliseconds that a receive may take beyond its long poll; also sent in the settings."""
POLL_MIN_MS: Final = 5_000
"""Servers raise a shorter long-polling timeout to this, in milliseconds."""
INVISIBLE_MIN_MS: Final = 10_000
"""Shortest hidden time in milliseconds that `receive` accepts."""
_DOMAIN: Final = AddressScheme.DOMAIN_NAME
_READABLE: Final = frozenset({Permission.READ, Permission.READ_WRITE})


class GrpcConsumer:
    """Receives from the server `host:port`. `subscriptions`, by topic, may change at any time: the
    next `receive` sends them to the server.

    Raises InvalidArgument for an invalid group or address. All calls raise BrokerError for the
    server's refusal, RemotingError without an answer, ClientClosed unless started.
    """

    def __init__(self, address: str, group: str, client_options: ClientOptions | None) -> None:
        check_group(group)
        self.subscriptions: dict[str, SubscriptionData] = {}
        self._session = EndpointSession(address, client_options, self._make_settings)
        self._session.client_type = ClientType.SIMPLE_CONSUMER
        self._group = group
        self._sent_topics: set[str] = set()
        self._routes: dict[str, tuple[int, list[Any]]] = {}
        self._turn = 0

    @property
    def is_running(self) -> bool:
        """Whether the consumer was started and not closed."""
        return self._session.is_running

    def now_ms(self) -> int:
        """Epoch milliseconds of the client's wall clock."""
        return self._session.options.now_ms()

    async def start(self) -> None:
        """Connect and wait until the server accepted the subscriptions. Raises ClientError if
        started already, BrokerError, RemotingError."""
        await self._session.start()

    async def close(self) -> None:
        """Leave the group and close the connection. Closing twice does nothing."""
        await self._session.close()

    def mark_closed(self) -> None:
        """Count as closed, without a request: the loop of `start` was closed."""
        self._session.mark_closed()

    async def receive(
        self, max_count: int, invisible_ms: int, wait_ms: int
    ) -> list[ReceivedMessage]:
        """Receive up to `max_count` messages of a single topic and broker, which waits up to
        `wait_ms` (5 s at least) for the first; successive calls take topics and brokers in turn.

        The messages are hidden from the group for `invisible_ms`; their receipt is the property
        POP_CK. An empty list if none came. Unreadable messages are logged and left out. Raises
        InvalidArgument below INVISIBLE_MIN_MS, RouteNotFound without a readable queue.
        """
        if invisible_ms < INVISIBLE_MIN_MS:
            text = f"invisible_ms is {invisible_ms}; gRPC hides for {INVISIBLE_MIN_MS} at least"
            raise InvalidArgument(text)
        if set(self.subscriptions) != self._sent_topics:
            await self._session.send_settings()
        places = [
            (topic, queue)
            for topic in list(self.subscriptions)
            for queue in await self._query_brokers(topic)
        ]
        if not places:
            raise RouteNotFound(f"no broker of {', '.join(self.subscriptions) or 'no topic'}")
        self._turn += 1
        topic, queue = places[self._turn % len(places)]
        wait_ms = max(wait_ms, POLL_MIN_MS)
        request = {
            "group": {"name": self._group},
            "message_queue": queue,
            "filter_expression": _filter_fields(self.subscriptions[topic]),
            "batch_size": max_count,
            "invisible_duration": time_of(invisible_ms),
            "long_polling_timeout": time_of(wait_ms),
        }
        try:
            found = await self._session.call_streaming(
                "ReceiveMessage", request, wait_ms + REQUEST_MS
            )
            return self._read_messages(found, queue.broker.name)
        except Exception:
            self._routes.pop(topic, None)
            raise

    async def ack(self, message: ReceivedMessage) -> None:
        """Acknowledge the message, by its property POP_CK: the group does not receive it again.
        Raises BrokerError if its receipt is no longer valid, InvalidArgument for a message that was
        not received by gRPC."""
        receipt = _receipt_of(message)
        entry = {
            "message_id": message.message_id,
            "receipt_handle": receipt,
        }
        asked = {**self._name_fields(message), "entries": [entry]}
        fine = frozenset({Code.OK, Code.MULTIPLE_RESULTS})
        response = await self._session.call_successfully("AckMessage", asked, fine=fine)
        for one in response.entries:
            self._session.check_status(one.status)

    async def change_invisible(self, message: ReceivedMessage, invisible_ms: int) -> None:
        """Hide the message for `invisible_ms` from now; a new receipt is written to its property
        POP_CK. Raises as `ack` does."""
        receipt = _receipt_of(message)
        asked = {
            **self._name_fields(message),
            "message_id": message.message_id,
            "receipt_handle": receipt,
            "invisible_duration": time_of(invisible_ms),
        }
        response = await self._session.call_successfully("ChangeInvisibleDuration", asked)
        message.properties[names.POP_CK] = response.receipt_handle

    def _name_fields(self, message: ReceivedMessage) -> dict[str, Any]:
        """Return the request fields that name the group and the message's topic."""
        return {"group": {"name": self._group}, "topic": {"name": message.topic}}

    def _read_messages(self, responses: list[Any], broker_name: str) -> list[ReceivedMessage]:
        """Return the messages in a streamed answer. Raises BrokerError for another status than
        OK and MESSAGE_NOT_FOUND."""
        found = []
        for one in responses:
            kind = one.WhichOneof("kind")
            if kind == "status" and one.status.code not in (Code.OK, Code.MESSAGE_NOT_FOUND):
                raise BrokerError(one.status.code, one.status.message, self._session.address)
            if kind != "message":
                continue
            try:
                found.append(decode_message(one.message, broker_name))
            except ValueError as error:
                # The server delivers it again, and in the end makes it a dead letter.
                named = one.message.system_properties.message_id
                logger.error("message %s cannot be read: %s", named, error)
        return found

    async def _query_brokers(self, topic: str) -> list[Any]:
        """Return the Broker messages of a topic with a readable queue, each once."""
        now_ms = self._session.options.steady_ms()
        at_ms, known = self._routes.get(topic, (0, []))
        if known and now_ms - at_ms < ROUTE_MS:
            return known
        host, port = split_host_port(self._session.address)
        endpoints = {"scheme": _DOMAIN, "addresses": [{"host": host, "port": port}]}
        asked = {"topic": {"name": topic}, "endpoints": endpoints}
        response = await self._session.call_successfully("QueryRoute", asked)
        found: dict[str, Any] = {}
        for queue in response.message_queues:
            if queue.permission in _READABLE:
                found.setdefault(queue.broker.name, queue)
        self._routes[topic] = (now_ms, list(found.values()))
        return self._routes[topic][1]

    def _make_settings(self) -> Any:
        """Return the message Settings with the present subscriptions."""
        self._sent_topics = set(self.subscriptions)
        subscriptions = [
            {"topic": {"name": topic}, "expression": _filter_fields(data)}
            for topic, data in self.subscriptions.items()
        ]
        return message_class("Settings")(
            client_type=ClientType.SIMPLE_CONSUMER,
            request_timeout=time_of(REQUEST_MS),
            subscription={"group": {"name": self._group}, "subscriptions": subscriptions},
            user_agent={"language": Language.PYTHON, "version": "5.1.0"},
        )


def _receipt_of(message: ReceivedMessage) -> str:
    """Return the receipt of a message; raises InvalidArgument for a message received by
    remoting."""
    text = handle_text(message)
    try:
        PopHandle.parse(text)
    except BadHandle:
        return text  # only the server knows the form of its receipts
    if not is_receipt(text):
        raise InvalidArgument(
            "the message was received by remoting, and is acknowledged by remoting alone"
        )
    return text


def _filter_fields(data: SubscriptionData) -> dict[str, Any]:
    """Return the fields of a FilterExpression."""
    kind = FilterType.TAG if data.is_tag_type else FilterType.SQL
    return {"type": kind, "expression": data.sub_string}
