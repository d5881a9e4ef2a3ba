"""The gRPC clients: their settings, and their Peers for the broker's tables.

Owns a Peer for each client id, its settings and its life: Heartbeat, NotifyClientTermination, the
end. It must never write to a stream: telemetry_link.py does.

The first settings create a client. It stays as long as it calls, or has a Telemetry stream; an open
stream counts like heartbeats.

    settings on a stream -> present, with or without a stream -> dropped: termination, settings of
                            another group, 30 s of silence without a stream, or the broker's close
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from turbopump.net.grpc.call import GrpcCall
from turbopump.net.grpc.codes import ClientType, Code
from turbopump.net.messaging.backend import RequestBackend
from turbopump.net.messaging.rpc import Rpc, RpcRefused, check_response, language_of
from turbopump.net.messaging.settings import (
    TOPICS_MAX,
    consumer_of,
    find_group,
    merge_settings,
    topics_of,
)
from turbopump.net.messaging.telemetry_link import TelemetryLink
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer, Timer
from turbopump.net.wire.command import VERSION, Command
from turbopump.net.wire.heartbeat import ConsumerData, HeartbeatData, ProducerData
from turbopump.net.wire.names import kept_size

CLIENTS_SIZE_MAX: Final = 128 << 20
"""Maximum bytes of all clients, as `GrpcClient.size` counts them: enough for over 10,000 clients
with a handful of topics."""
CLIENT_SIZE: Final = 4_000
"""Bytes that count for a client besides its settings and topics."""
SILENCE_MAX_MS: Final = 30_000
"""Time without a call after which a client without a stream is dropped: three heartbeats."""
CLIENTS_PER_STEP: Final = 8
"""Number of heartbeats or ends of clients in a step of a tick."""
BEAT_MS: Final = 30_000
"""Interval at which an open stream counts as a heartbeat."""
_CONSUMERS: Final = frozenset({ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER})
_UNKNOWN: Final = "cannot find client settings for this client"


class NoLink:
    """The link of a client without a stream: it sends requests, and the server cannot send to
    it."""

    def __init__(self, backend: RequestBackend) -> None:
        self._backend = backend

    def send(self, command: Command) -> None:
        """Drop the command, also without an answer later: no stream leads to the client."""

    def close(self) -> None:
        """No-op: no stream is open."""

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the loop after `delay_ms`, unless the returned timer is cancelled
        first."""
        return self._backend.call_later(delay_ms, callback)

    def after_answers(self, callback: Callable[[], None]) -> None:
        """Run `callback` after the current turn of the loop."""
        self._backend.call_soon(callback)


def peer_of(call: GrpcCall, link: TelemetryLink | NoLink) -> Peer:
    """Make a new Peer for the caller, as handlers receive it, with its address, its language and
    this program's version."""
    peer = Peer(call.address, call.packed_host, link)
    peer.language, peer.version = language_of(call), VERSION
    return peer


@dataclass(slots=True)
class GrpcClient:
    """A client id with its state, in the table of GrpcClients. Times are of the monotonic clock."""

    client_id: str
    peer: Peer
    """The Peer under which the broker's tables know the client; its link is `link`."""
    link: TelemetryLink
    """The link of `peer`, with the client's stream."""
    settings: Any
    """The newest message Settings, merged with the server's figures."""
    consumer: ConsumerData | None = None
    """The consumer's entry in heartbeats; None for a producer."""
    topics: dict[str, None] = field(default_factory=dict)
    """The topics that it produces to, in the order in which they were named; each is a producer
    group of remoting. Empty for a consumer."""
    seen_ms: int = 0
    """The newest call, or tick with an open stream."""
    beat_ms: int = 0
    """The newest heartbeat to the broker's tables."""
    size: int = 0
    """Bytes that count for CLIENTS_SIZE_MAX."""

    @property
    def group_name(self) -> str:
        """The client's consumer group, empty for a producer."""
        return "" if self.consumer is None else self.consumer.group_name

    def heartbeat_data(self) -> HeartbeatData:
        """Return the client as the body of a heartbeat by remoting."""
        return HeartbeatData(
            self.client_id,
            [ProducerData(topic) for topic in self.topics],
            [] if self.consumer is None else [self.consumer],
        )


class GrpcClients:
    """All clients by their ids. Loop thread only."""

    def __init__(self, backend: RequestBackend) -> None:
        self._backend = backend
        self._clients: dict[str, GrpcClient] = {}
        self.on_dropped: Callable[[GrpcClient], None] = lambda client: None
        """Called with each client that was removed, whatever the reason, before its Peer is
        lost."""
        self.size = 0
        """Bytes of all clients."""
        self._is_ticking = False

    def __len__(self) -> int:
        return len(self._clients)

    def get(self, client_id: str) -> GrpcClient | None:
        """The client with this id that has settings, else None; counts as a sign of life, which
        postpones its removal."""
        client = self._clients.get(client_id)
        if client is not None:
            client.seen_ms = self._backend.steady_ms()
        return client

    def peer_of_caller(self, rpc: Rpc) -> Peer:
        """The caller's Peer: the registered client's, which counts as a sign of life, or a new Peer
        for a caller without settings."""
        client = self.get(rpc.client_id)
        return client.peer if client is not None else peer_of(rpc.call, NoLink(self._backend))

    def register(
        self, call: GrpcCall, client_id: str, settings: Any, done: Callable[[Command | None], None]
    ) -> GrpcClient:
        """Register a client with the settings from `call`, its stream, and send its heartbeat to
        the backend; `done` receives the response, perhaps before this returns.

        The server's figures are merged into `settings` in place. Settings of another group drop the
        client first. Raises RpcRefused for settings that are not accepted, perhaps after the merge;
        an earlier client of this id then stays.
        """
        backend, now_ms = self._backend, self._backend.now_ms()
        consumer, topics = None, dict[str, None]()
        if settings.WhichOneof("kind") == "publishing":
            topics = dict.fromkeys(topics_of(settings, TOPICS_MAX))
        elif settings.WhichOneof("kind") == "subscription":
            if settings.client_type not in _CONSUMERS:
                raise RpcRefused(Code.UNRECOGNIZED_CLIENT_TYPE, "no such consumer is served")
            consumer = consumer_of(settings, now_ms)
            find_group(backend, consumer.group_name)
        else:
            raise RpcRefused(Code.BAD_REQUEST, "settings of no producer and no consumer")
        merge_settings(backend, settings)
        known = self._clients.get(client_id)
        is_other = known is not None and known.group_name != (
            consumer.group_name if consumer else ""
        )
        topics = {**({} if known is None or is_other else known.topics), **topics}
        subscribed = consumer.subscription_data_set if consumer is not None else ()
        size = CLIENT_SIZE + 3 * settings.ByteSize() + sum(one.size for one in subscribed)
        size = self._checked_size(known, size, topics)
        if known is not None and is_other:
            self.drop_client(known)
            known = None
        client = known or self._add(call, client_id, settings)
        client.link.stream = call
        client.settings, client.consumer = settings, consumer
        self._resize_client(client, size, topics)
        self._send_heartbeat(client, done)
        return client

    def serve_heartbeat(self, rpc: Rpc) -> None:
        """Serve Heartbeat: register the client again with the backend; the call is answered with
        its result. Raises RpcRefused for a client without settings."""
        client = self._registered_client(rpc)
        self._send_heartbeat(
            client, lambda response: rpc.fail_on_error(partial(_answer_if_accepted, rpc, response))
        )

    def serve_termination(self, rpc: Rpc) -> None:
        """Serve NotifyClientTermination: drop the client and answer. Raises RpcRefused for a client
        without settings."""
        self.drop_client(self._registered_client(rpc))
        rpc.answer_call()

    def add_producer_topic(self, client_id: str, topic: str) -> None:
        """Add a topic of transactions to a producer, whose settings may not name it yet, and send
        its heartbeat: brokers can then send it checks of these transactions. No-op for an unknown
        client or a consumer. Raises RpcRefused if a limit is reached."""
        client = self._clients.get(client_id)
        if client is None or client.consumer is not None or topic in client.topics:
            return
        topics = {**client.topics, topic: None}
        size = self._checked_size(client, client.size - kept_size(*client.topics), topics)
        self._resize_client(client, size, topics)
        self._send_heartbeat(client, lambda response: None)

    def stream_ended(self, client: GrpcClient, call: GrpcCall) -> None:
        """Note that the stream `call` has ended; no-op if the client has a newer stream. The client
        stays registered for SILENCE_MAX_MS."""
        if client.link.stream is call:
            client.link.stream = None
            client.seen_ms = self._backend.steady_ms()

    def drop_client(self, client: GrpcClient) -> None:
        """Remove a client from this table and from the broker's tables now, call `on_dropped`, and
        mark its Peer as lost; no-op if it was removed already."""
        if self._clients.get(client.client_id) is not client:
            return
        del self._clients[client.client_id]
        self.size -= client.size
        self._backend.unregister_client(client.client_id, client.group_name, client.peer)
        self.on_dropped(client)
        client.peer.lost()

    def tick(self) -> None:
        """Begin to drop silent clients, and to send heartbeats for clients with an open stream
        every BEAT_MS. In later steps, because thousands may have connected at the same time; no-op
        while the steps of an earlier tick run."""
        if not self._is_ticking:
            self._is_ticking = True
            self._backend.run_steps(b"", self._check_clients())

    def _check_clients(self) -> Steps[None]:
        """Check all clients in steps, and mark the tick as ended."""
        try:
            yield from self._check_all()
        finally:
            self._is_ticking = False  # also if a step failed

    def _check_all(self) -> Steps[None]:
        """Drop silent clients, and send heartbeats for clients with an open stream,
        CLIENTS_PER_STEP in each step."""
        handled = 0
        for client in list(self._clients.values()):
            now_ms = self._backend.steady_ms()
            if client.link.stream is not None:
                client.seen_ms = now_ms
            silent_ms, beaten_ms = now_ms - client.seen_ms, now_ms - client.beat_ms
            if silent_ms > SILENCE_MAX_MS:
                self.drop_client(client)
            elif not silent_ms and beaten_ms > BEAT_MS:
                self._send_heartbeat(client, lambda response: None)
            else:
                continue
            handled += 1
            if handled % CLIENTS_PER_STEP == 0:
                yield

    def _add(self, call: GrpcCall, client_id: str, settings: Any) -> GrpcClient:
        """Make a client with the stream `call`, and add it to the table."""
        link = TelemetryLink(self._backend, lambda: self.drop_client(client))
        link.peer = peer_of(call, link)
        client = GrpcClient(client_id, link.peer, link, settings)
        client.seen_ms = self._backend.steady_ms()
        self._clients[client_id] = client
        return client

    def _checked_size(self, known: GrpcClient | None, size: int, topics: dict[str, None]) -> int:
        """Return the bytes of a client with its topics, which count for CLIENTS_SIZE_MAX;
        `known` is the client whose bytes these replace. Raises RpcRefused if the limit of all
        clients is reached."""
        if len(topics) > TOPICS_MAX:
            raise RpcRefused(Code.BAD_REQUEST, f"one client produces to over {TOPICS_MAX} topics")
        size += kept_size(*topics)
        if self.size + size - (0 if known is None else known.size) > CLIENTS_SIZE_MAX:
            text = f"all clients take over {CLIENTS_SIZE_MAX} bytes"
            raise RpcRefused(Code.TOO_MANY_REQUESTS, text)
        return size

    def _resize_client(self, client: GrpcClient, size: int, topics: dict[str, None]) -> None:
        """Set the bytes that count for a client, and its topics, and update the total."""
        self.size += size - client.size
        client.size, client.topics = size, topics

    def _send_heartbeat(self, client: GrpcClient, done: Callable[[Command | None], None]) -> None:
        """Send the client's heartbeat to the backend; `done` receives the response."""
        client.beat_ms = self._backend.steady_ms()
        self._backend.register_client(client.heartbeat_data(), client.peer, done)

    def _registered_client(self, rpc: Rpc) -> GrpcClient:
        """Return the caller's client; raises RpcRefused for a caller without settings."""
        client = self.get(rpc.client_id)
        if client is None:
            raise RpcRefused(Code.UNRECOGNIZED_CLIENT_TYPE, _UNKNOWN)
        return client


def _answer_if_accepted(rpc: Rpc, response: Command | None) -> None:
    """Answer OK if the backend's response is SUCCESS; else raises RpcRefused."""
    check_response(response)
    rpc.answer_call()
