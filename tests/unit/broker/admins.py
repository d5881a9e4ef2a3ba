"""Clients and operators of a whole broker: peers that answer, every admin handler registered."""

import itertools
from collections.abc import Callable, Generator
from typing import Any

from tests.shortcuts.addresses import pack_host

from turbopump.engine import fastjson
from turbopump.engine.deferred import Deferred
from turbopump.net.transport.peer import Peer, Timer
from turbopump.net.wire.bodies import run_to_result
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import VERSION, Command, new_request, new_response
from turbopump.net.wire.heartbeat import ConsumerData, HeartbeatData, ProducerData
from turbopump.net.wire.subscription import parse_subscription

_ports = itertools.count(40_000)


class _Timer:
    """A timer that only a test fires."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Wire:
    """A peer's link: keeps the commands sent and the callbacks that run after the next response."""

    def __init__(self) -> None:
        self.sent: list[Command] = []
        self.timers: list[_Timer] = []
        self.waiting: list[Callable[[], None]] = []
        self.closed = False
        self.peer: Peer

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def close(self) -> None:
        self.closed = True

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        self.timers.append(_Timer(callback))
        return self.timers[-1]

    def after_answers(self, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)

    def flush(self) -> None:
        """Run the callbacks that wait until the responses are written."""
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()

    def take(self, code: int) -> list[Command]:
        """Remove and return the requests with a code that were sent to the peer."""
        found = [command for command in self.sent if command.code == code]
        self.sent = [command for command in self.sent if command.code != code]
        return found

    def answer(self, request: Command, code: int, body: bytes = b"", **members: Any) -> None:
        """Let the client answer a request the broker sent it."""
        self.peer.answered(new_response(request, code, body=body, **members))

    def time_out(self) -> None:
        """Fire the timers of all pending calls, so that they time out."""
        for timer in self.timers:
            if not timer.cancelled:
                timer.callback()


def connect(version: int = VERSION, language: str = "JAVA") -> Peer:
    """A client that has just connected; `peer.context["wire"]` is its link."""
    address = f"10.0.0.1:{next(_ports)}"
    wire = Wire()
    peer = Peer(address, pack_host(address), wire)
    wire.peer = peer
    peer.version = version
    peer.language = language
    peer.context["wire"] = wire
    return peer


def consumer(group: str, *topics: str, **members: Any) -> ConsumerData:
    """A consumer entry of a heartbeat that subscribes to `topics` (`topic:tags` or `topic`)."""
    version = members.pop("sub_version", 1)
    subscriptions = []
    for topic in topics:
        name, _, tags = topic.partition(":")
        subscriptions.append(parse_subscription(name, tags or "*", sub_version=version))
    return ConsumerData(group, subscription_data_set=subscriptions, **members)


def notified(peer: Peer) -> list[str]:
    """Groups for which a client received a change notification since the last call."""
    taken = peer.context["wire"].take(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    assert all(command.is_oneway for command in taken)
    return [command.fields["consumerGroup"] for command in taken]


class Admin:
    """A broker with every handler, with requests as mqadmin sends them."""

    connect = staticmethod(connect)
    consumer = staticmethod(consumer)
    notified = staticmethod(notified)

    def __init__(self, world: Any) -> None:
        self.world = world
        self.broker = world.broker
        self.tool = connect()
        self.registered: list[list[str]] = []
        world.broker.register_topics = self._register_topics

    def _register_topics(self, names: list[str]) -> Deferred[None]:
        self.registered.append(list(names))
        done: Deferred[None] = Deferred()
        done.resolve(None)
        return done

    @property
    def now_ms(self) -> int:
        return self.world.now_ms

    def ask(
        self,
        code: int,
        body: bytes | dict[str, Any] = b"",
        peer: Peer | None = None,
        **fields: object,
    ) -> Command:
        """Send a request with raw header fields that is answered at once."""
        response = self.begin(code, body, peer, **fields)
        if isinstance(response, Deferred):
            assert response.done, "the answer is still to come"
            response = response.value
        assert isinstance(response, Command)
        assert response.is_response
        return response

    def begin(
        self,
        code: int,
        body: bytes | dict[str, Any] = b"",
        peer: Peer | None = None,
        **fields: object,
    ) -> Command | Deferred[Command | None] | None:
        """Send a request with raw header fields; returns its response or the promise of it."""
        if isinstance(body, dict):
            body = fastjson.dumps(body).encode()
        texts = {
            key: ("true" if value else "false") if isinstance(value, bool) else str(value)
            for key, value in fields.items()
        }
        request = new_request(code, None, body, fields=texts)
        request.opaque = 7
        request.version = (peer or self.tool).version
        response = self.world.table.dispatch(request, peer or self.tool, self.now_ms)
        return run_to_result(response) if isinstance(response, Generator) else response

    def json(self, code: int, body: bytes | dict[str, Any] = b"", **fields: object) -> Any:
        """The body of a successful answer."""
        response = self.ask(code, body, **fields)
        assert response.code == 0, response.remark
        return fastjson.loads(response.body)

    def heartbeat(
        self,
        peer: Peer,
        client_id: str,
        *consumers: ConsumerData,
        producers: tuple[str, ...] = (),
        **members: Any,
    ) -> Command:
        """Send a client's heartbeat, then run the callbacks that follow its response."""
        beat = HeartbeatData(
            client_id, [ProducerData(name) for name in producers], list(consumers), **members
        )
        wire = peer.context["wire"]
        before = len(wire.sent)
        response = self.ask(RequestCode.HEART_BEAT, beat.encode(), peer)
        assert len(wire.sent) == before, "a notice overtook the answer"
        wire.flush()
        return response

    def create_topic(self, name: str, queues: int = 2, **more: object) -> Command:
        """Create a topic: request 17 with the fields that mqadmin sends."""
        fields: dict[str, object] = {
            "topic": name,
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "attributes": "",
            "force": False,
            "defaultTopic": "TBW102",
            "order": False,
            "topicSysFlag": 0,
        }
        return self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, **{**fields, **more})

    def send(
        self, topic: str, body: bytes = b"hello", queue: int = 0, **properties: str
    ) -> Command:
        """Send a message as a Java producer does (V2)."""
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        response = self.ask(
            RequestCode.SEND_MESSAGE_V2,
            body,
            a="WP",
            b=topic,
            c="TBW102",
            d=4,
            e=queue,
            f=0,
            g=self.now_ms,
            h=0,
            i=text,
            j=0,
            k=False,
            m=False,
        )
        assert response.code == 0, response.remark
        return response
