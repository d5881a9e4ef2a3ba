"""The port RequestBackend for a broker: requests of gRPC clients are executed by the broker's own
handlers.

Owns the way from a call to a remoting handler and back. It must never know a message of gRPC.

Tests: tests/unit/broker/grpc/test_native_receives.py, tests/unit/broker/grpc/test_native_sends.py
"""

import hashlib
from collections.abc import Callable, Generator, Mapping, Sequence

from turbopump.broker.context import BrokerContext
from turbopump.broker.traffic.replies import SEE_FAQ
from turbopump.engine.types import LogOffset
from turbopump.net.grpc.codes import Code
from turbopump.net.messaging.backend import (
    ANY_QUEUE,
    Done,
    NoReadSizeLimit,
    PoppedMessages,
    PopRequest,
    logged_steps,
)
from turbopump.net.messaging.message_conversion import queue_of_group
from turbopump.net.messaging.rpc import RpcRefused
from turbopump.net.transport.dispatcher import Dispatcher, Response
from turbopump.net.transport.fair_scheduler import FairScheduler, Steps
from turbopump.net.transport.peer import Peer, Timer
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request, new_response
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.headers.clients import UnregisterClientRequest
from turbopump.net.wire.heartbeat import HeartbeatData
from turbopump.net.wire.message_id import encode_message_id
from turbopump.net.wire.topics import TopicConfig
from turbopump.pyx.grpc_pops import GrpcPops


class BrokerRequestBackend:
    """Executes the requests of gRPC clients with the broker's own handlers, in this process
    (RequestBackend of net/messaging); serves only the broker's own topics and groups. Loop thread
    only."""

    def __init__(
        self,
        broker: BrokerContext,
        table: Dispatcher,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        call_later: Callable[[int, Callable[[], None]], Timer],
        now_ms: Callable[[], int],
    ) -> None:
        """`table` has the handlers of remoting; `call_soon` runs work after the current turn of the
        loop, `call_later` after a number of ms; `now_ms` returns epoch ms of the wall clock."""
        self._broker = broker
        self._table = table
        self._call_soon = call_soon
        self._call_later = call_later
        self._now_ms = now_ms
        self._turns = FairScheduler(call_soon, NoReadSizeLimit())
        self._pops = GrpcPops(_md5)

    @property
    def body_max(self) -> int:
        """Maximum bytes of a message's body (maxMessageSize)."""
        return self._broker.config.store.max_message_size

    def now_ms(self) -> int:
        """Epoch ms of the wall clock."""
        return self._now_ms()

    def steady_ms(self) -> int:
        """Ms of the monotonic clock, which deadlines use."""
        return self._broker.steady_ms()

    def call_soon(self, work: Callable[[], None]) -> object:
        """Run `work` after the current turn of the loop; the result has no meaning."""
        return self._call_soon(work)

    def call_later(self, delay_ms: int, work: Callable[[], None]) -> Timer:
        """Run `work` after `delay_ms`, unless the returned Timer is cancelled."""
        return self._call_later(delay_ms, work)

    def run_steps(self, host: bytes, steps: Steps[None]) -> None:
        """Begin to run steps of some milliseconds each, over turns of the loop; all steps of a
        `host` (packed address) run one after another. An exception of a step is logged and ends the
        steps."""
        self._turns.run_steps(host, logged_steps(steps))

    def resolve_names(
        self,
        _topics: Sequence[str],
        _groups: Sequence[str],
        then: Callable[[], None],
        _size: int = 0,
    ) -> None:
        """Call `then` before this returns: a broker needs no look-ups for its own topics and
        groups."""
        then()

    def topics_of(self, name: str) -> Mapping[str, TopicConfig]:
        """Return {this broker's name: configuration of topic `name`}. Raises RpcRefused if this
        broker is not the master or the topic does not exist."""
        role = self._broker.role
        if not (role.is_master and role.is_known):
            raise RpcRefused(Code.HA_NOT_AVAILABLE, "this broker is a replica: ask its master")
        topic = self._broker.topics.get(name)
        if topic is None:
            text = f"No topic route info in name server for the topic: {name}{SEE_FAQ}"
            raise RpcRefused(Code.TOPIC_NOT_FOUND, text)
        return {self._broker.config.broker_name: topic}

    def group_config(self, name: str) -> SubscriptionGroupConfig | None:
        """Return the configuration of group `name`; a missing group is created now if
        autoCreateSubscriptionGroup allows it, or its name begins with CID_RMQ_SYS_. None if it is
        missing and not created, also because its name is illegal or the table is full."""
        return self._broker.groups.find_or_create(name, self.now_ms())

    def is_system(self, topic: str) -> bool:
        """Whether `topic` is the name of a topic that the broker itself uses."""
        return self._broker.topics.is_system(topic)

    def executes_for(self, broker_name: str) -> bool:
        """Whether `broker_name` is this broker's name."""
        return broker_name == self._broker.config.broker_name

    def choose_queue(self, topic: str, message_group: str | None) -> tuple[str, int]:
        """Return (this broker's name, queue id) for a send: the same queue for equal message
        groups, while the number of queues stays; without a message group ANY_QUEUE, so that the
        send handler chooses the queue. Raises RpcRefused if the topic has no writable queue or does
        not exist, or on a replica."""
        ((name, config),) = self.topics_of(topic).items()
        if not config.is_writable or config.write_queue_nums <= 0:
            raise RpcRefused(Code.FORBIDDEN, "no writable queue")
        if message_group is None:
            return name, ANY_QUEUE
        return name, queue_of_group(message_group, config.write_queue_nums)

    def choose_receiver(self, _topic: str) -> str:
        """Return the name of the broker that serves receives of the topic: this broker's, whichever
        the topic."""
        return self._broker.config.broker_name

    def execute_request(
        self, _broker_name: str, request: Command, peer: Peer, done: Done, _wait_ms: int = 0
    ) -> None:
        """Have a request served by the handlers of remoting as if `peer` had sent it; `done` gets
        the response, or None without a response, perhaps before this returns. `_wait_ms` is
        ignored.

        For SEND_MESSAGE_V2 without a queue id the request's field is changed to the chosen queue.
        """
        if request.code == RequestCode.SEND_MESSAGE_V2:
            sent = self._send_natively(request, peer)
            if sent is not None:
                done(sent)
                return
        response = self._table.dispatch(request, peer, self.now_ms())
        if isinstance(response, Generator):
            self._turns.run_steps(peer.host, response).then(lambda found: _pass_answer(found, done))
        else:
            _pass_answer(response, done)

    def _send_natively(self, request: Command, peer: Peer) -> Command | None:
        """The answer to a send that the fast lane has stored, None if the handler has to serve it.
        Both ways store the same bytes and give the same answer."""
        broker, fields, body = self._broker, request.fields, request.body
        topic = broker.topics.get(fields["b"])
        if topic is None or not isinstance(body, bytes):
            return None
        queue_id = int(fields["e"])
        if queue_id < 0:
            # The handler uses the queue drawn here if the lane refuses.
            queue_id = broker.random.randrange(max(topic.write_queue_nums, 1))
            fields["e"] = str(queue_id)
        placed = broker.fast.lane.put_send(
            fields["b"].encode(),
            queue_id,
            fields["i"].encode(),
            body,
            int(fields["g"]),
            peer.host,
        )
        if placed is None:
            return None
        queue_offset, log_offset, unique_key, handle = placed
        found = {
            "msgId": encode_message_id(broker.store_host, LogOffset(log_offset)),
            "queueOffset": str(queue_offset),
            "transactionId": unique_key.decode(),
        }
        if handle:
            found["recallHandle"] = handle.decode()
        return new_response(request, ResponseCode.SUCCESS, fields=found)

    def pop_available(self, request: PopRequest) -> PoppedMessages | None:
        """Pop available messages natively, without a wait; None: nothing was popped, and the caller
        has to send a pop request, whose handler enables later native pops."""
        fast, subscription = self._broker.fast, request.subscription
        by_tags = subscription.is_tag_type and not subscription.class_filter_mode
        found = self._pops.take(
            fast.lane,
            request.group.group_name.encode(),
            request.topic.encode(),
            request.count,
            request.invisible_ms,
            expression=subscription.sub_string.encode(),
            expression_type=subscription.expression_type.encode(),
            tags=tuple(tag.encode() for tag in subscription.tags_set) if by_tags else (),
            attempts_max=request.attempts_max,
            with_rows=request.with_rows,
        )
        if found is None:
            return None
        framed, pop_time_ms, revive_queue_id, rows = found
        return PoppedMessages(framed, pop_time_ms, revive_queue_id, rows or ())

    def register_client(self, data: HeartbeatData, peer: Peer, done: Done) -> None:
        """Send the client's heartbeat to the handler of HEART_BEAT, as clients of remoting do;
        `done` gets the response."""
        self.execute_request(
            "", new_request(RequestCode.HEART_BEAT, body=data.encode()), peer, done
        )

    def unregister_client(self, client_id: str, group: str, peer: Peer) -> None:
        """Remove the client from the consumer group now; without a group nothing happens, because a
        producer is removed when its Peer closes."""
        if group:
            header = UnregisterClientRequest(client_id, consumer_group=group)
            request = new_request(RequestCode.UNREGISTER_CLIENT, header)
            self.execute_request("", request, peer, lambda response: None)


def _pass_answer(response: Response, done: Done) -> None:
    """Call `done` with a handler's answer, now or once it is there."""
    if response is None or isinstance(response, Command):
        done(response)
    else:
        response.then(done)


def _md5(body: bytes) -> bytes:
    return hashlib.md5(body, usedforsecurity=False).digest()
