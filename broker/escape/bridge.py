"""The bridge that sends messages of a replica acting for its master (RIP-32: escape bridge).

Owns the choice of the master for a message, the form of the message, and the limit of pending ones.
It must never write to this broker's log (I11), nor report an arrival before the other master has
confirmed it. Its users are delay levels, timers, half messages and popped messages of an acting
replica.

    message -> a master of another group that has the topic -> SEND_MESSAGE_V2 -> its answer

A master in the same process comes first, and gets the same request without a connection (RIP-31).

If no master took a message, the caller sends it again, so it arrives once or more (I14).
`failure_reason` has the reason while sending fails.

Tests: tests/unit/broker/scheduled/test_level_escape.py,
    tests/unit/broker/container/test_local_master.py
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol
from zlib import crc32

from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.escape.topic_masters import Master, Neighbour, TopicMasters, local_master_of
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import NewMessage
from turbopump.net.transport.calls import Call
from turbopump.net.wire import properties as names
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.send import SendMessageRequestV2
from turbopump.net.wire.names import RETRY_PREFIX
from turbopump.net.wire.properties import decode_properties, encode_properties

logger = logging.getLogger(__name__)

MESSAGES_MAX: Final = 512
"""Maximum number of pending messages of all kinds, and of pending requests of `ask`."""
BYTES_MAX: Final = 16 << 20
"""Maximum size of the bodies of pending messages, in bytes."""
TIMEOUT_MS: Final = 3_000
"""Time-out in ms of a message or another request (RocketMQ: 3 s)."""
WEAK_STORE_FROM_TRY: Final = 3
"""Number of the try from which a stored message counts as arrived, although less safe than its
master requires: otherwise it would be sent, and delivered, for ever."""
AVOID_MS: Final = 2_000
"""Time in ms in which a master that refused a message, or did not answer, gets none while there are
others."""
TOLD_MAX: Final = 16
"""Maximum number of masters shown to operators with their counts."""
REASON_MAX: Final = 200
"""Maximum length of `Escape.failure_reason`, in characters."""

_NOT_AGAIN: Final = (
    names.DELAY,
    names.TIMER_DELAY_SEC,
    names.TIMER_DELAY_MS,
    names.TIMER_DELIVER_MS,
    names.WAIT,
    names.TRAN_MSG,
    names.CRC32,
)
"""Properties that would make the other master hold the message back again, or answer early."""
_OWN_FLAGS: Final = 0x1 | 0x2
"""Bits of the system flag that are sent: compression and tags. The other broker sets the rest."""
_STORED: Final = frozenset(
    {
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)


class Arrival(NamedTuple):
    """Arrival of a message: the address `host:port` of the master that has it, the producer group
    and the key used, and that master's answer to the send."""

    address: str
    group: str
    key: str
    response: Command


class SpecialTimerReceiver(Protocol):
    """Receiver of due timers that an acting replica does not send as they are: check points and
    acknowledgements of pops (broker/pop/revive_escape.py)."""

    @property
    def has_room(self) -> bool:
        """Whether `take_timer_message` may be called now: the receiver has room for another
        timer."""

    def handles_topic(self, topic: str) -> bool:
        """Whether due timers for the topic are passed to `take_timer_message` instead of being
        sent."""

    def take_timer_message(self, message: NewMessage, left: Callable[[], None]) -> None:
        """Take the message of a due timer. `left` is called, possibly before this returns, once the
        timer need not be delivered again, or never if acting stops."""


@dataclass(slots=True)
class EscapedCount:
    """Messages that the master of another group took from this replica since the start: their
    number, and the epoch ms of the last."""

    messages: int = 0
    last_ms: int = 0


class Escape:
    """Sends messages of a replica that acts for its master to masters of other groups (RocketMQ:
    EscapeBridge). Loop thread only; every result is a Deferred, nothing blocks."""

    def __init__(
        self,
        config: BrokerConfig,
        call: Call,
        steady_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        neighbours: Callable[[], Sequence[Neighbour]] = tuple,
        run_soon: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """`neighbours` returns the masters of the same process; for `run_soon` see
        NameServerQueries."""
        self._config = config
        self._remote, self._neighbours = call, neighbours
        self.steady_ms = steady_ms
        """Returns ms of the monotonic clock."""
        self._wall_ms = wall_ms
        self._masters = TopicMasters(
            call, lambda: config.namesrv_addr, config.broker_name, steady_ms, run_soon
        )
        self._turn = 0
        self._avoided: dict[str, int] = {}
        self._messages = self._bytes = self._questions = 0
        self.sent_by_master: dict[str, EscapedCount] = {}
        """Messages taken by other masters since the start, by the name of the master's group; at
        most TOLD_MAX groups."""
        self.special_timers: SpecialTimerReceiver | None = None
        """Receives timers that are not sent as they are; None: there are no such timers. Set by
        PopService's assembly."""
        self.failure_reason = ""
        """Reason why the last message could not be sent; "" once a message has arrived after it."""

    @property
    def is_enabled(self) -> bool:
        """Whether an acting replica may send due messages to other masters (enableRemoteEscape)."""
        return self._config.replication.enable_remote_escape

    @property
    def has_room(self) -> bool:
        """Whether another message may be sent now; `send` itself does not check it."""
        return self._messages < MESSAGES_MAX and self._bytes < BYTES_MAX

    def send(
        self,
        message: NewMessage,
        failures: int = 0,
        *,
        key: str = "",
        due_ms: int | None = None,
        is_half: bool = False,
        home: str = "",
    ) -> Deferred[Arrival | None]:
        """Send a message to a master of another group that has the topic. Resolves to its arrival,
        or to None if no master took it within TIMEOUT_MS: the caller sends it again later, with
        `failures` + 1.

        Messages with the same `key` go to the same master; `due_ms` (epoch ms): when consumers get
        it, None: at once; `is_half`: not before its producer ends the transaction; `home`: the
        topic that the master must have, if not the message's own.
        """
        home = home or message.topic
        master = self._choose_master(home, key)
        if master is None:
            return Deferred.resolved(None)
        sent: Deferred[Arrival | None] = Deferred()
        properties = (
            _half_properties(message) if is_half else _undelayed_properties(message, due_ms)
        )
        request = _send_request(message, properties, master, self._producer_group)
        size = len(request.body)
        self._messages, self._bytes = self._messages + 1, self._bytes + size
        group = properties.get(names.PGROUP) or self._producer_group
        arrival = partial(Arrival, master.address, group, key)
        answered = partial(self._on_response, home, master, arrival, size, failures, sent)
        self._send_request(master.address, request, TIMEOUT_MS).then(answered)
        return sent

    def ask(self, address: str, request: Command) -> Deferred[Command | str]:
        """Send a request that is no message to the master at `address`. Resolves to the answer,
        whatever its code, or to the reason why it is missing, at once if MESSAGES_MAX requests are
        pending."""
        if self._questions >= MESSAGES_MAX:
            return Deferred.resolved("too many requests to other masters are pending")
        asked: Deferred[Command | str] = Deferred()
        self._questions += 1

        def answered(response: Command | str) -> None:
            self._questions -= 1
            asked.resolve(response)

        self._send_request(address, request, TIMEOUT_MS).then(answered)
        return asked

    def _send_request(
        self, address: str, request: Command, timeout_ms: int
    ) -> Deferred[Command | str]:
        """Pass a request to the master at `address`: without a connection if it is in this process.
        Resolves to the answer or the reason why it is missing."""
        for one in self._neighbours():
            if one.address == address:
                return one.ask(request, timeout_ms)
        return self._remote(address, request, timeout_ms)

    @property
    def _producer_group(self) -> str:
        """The producer group of messages that name none (RocketMQ: getInnerProducerGroupName)."""
        return f"InnerProducerGroup_{self._config.broker_name}_{self._config.broker_id}"

    def _choose_master(self, topic: str, key: str) -> Master | None:
        """Choose the master for a message of the topic: without a key in rotation, with a key
        always the same one while it exists. A master of this process is preferred; messages without
        a key go to others while it is avoided. None, with the reason noted, if no master is
        known."""
        now_ms = self.steady_ms()
        beside = local_master_of(self._neighbours(), topic, self._config.broker_name)
        if beside is not None and (key or self._avoided.get(beside.address, now_ms) <= now_ms):
            return beside
        masters = self._masters.for_topic(topic)
        if not masters and beside is not None:
            return beside
        if not masters:
            unknown = (
                "no name server has returned a route yet"
                if masters is None
                else "no living master is known"
            )
            self._note_failure(f"{unknown} for topic {topic} outside this group")
            return None
        if key:
            return max(masters, key=lambda one: crc32(f"{one.name}\n{key}".encode()))
        well = [one for one in masters if self._avoided.get(one.address, now_ms) <= now_ms]
        self._turn += 1
        some = well or masters
        return some[self._turn % len(some)]

    def _on_response(
        self,
        topic: str,
        master: Master,
        arrival: Callable[[Command], Arrival],
        size: int,
        failures: int,
        sent: Deferred[Arrival | None],
        response: Command | str,
    ) -> None:
        """Handle the answer to a sent message, or the reason without one: resolve `sent` with the
        arrival, or with None after a failure, which makes the master avoided for a while."""
        self._messages, self._bytes = self._messages - 1, self._bytes - size
        if isinstance(response, str):
            reason = response
        elif response.code == ResponseCode.SUCCESS or (
            response.code in _STORED and failures + 1 >= WEAK_STORE_FROM_TRY
        ):
            self._count_sent(master.name)
            sent.resolve(arrival(response))
            return
        else:
            reason = f"code {response.code} {response.remark or ''}"
        self._avoid_master(topic, master, reason)
        sent.resolve(None)

    def _count_sent(self, name: str) -> None:
        """Count a message that the master's group `name` took; sending works again."""
        self.failure_reason = ""
        if name not in self.sent_by_master and len(self.sent_by_master) >= TOLD_MAX:
            del self.sent_by_master[
                min(self.sent_by_master, key=lambda one: self.sent_by_master[one].last_ms)
            ]
        escaped = self.sent_by_master.setdefault(name, EscapedCount())
        escaped.messages, escaped.last_ms = escaped.messages + 1, self._wall_ms()

    def _avoid_master(self, topic: str, master: Master, remark: str) -> None:
        """Avoid a master that did not take a message for AVOID_MS, and request the topic's route
        again."""
        now_ms = self.steady_ms()
        for address in [one for one, until_ms in self._avoided.items() if until_ms <= now_ms]:
            del self._avoided[address]
        self._avoided[master.address] = now_ms + AVOID_MS
        self._masters.refresh_soon(topic)
        self._note_failure(f"{master.name} at {master.address}, for topic {topic}: {remark}")

    def _note_failure(self, reason: str) -> None:
        """Set `failure_reason`, logged at the first failure."""
        reason = reason[:REASON_MAX]
        if not self.failure_reason:
            logger.warning(
                "due messages of this replica wait, no other master can take them: %s", reason
            )
        self.failure_reason = reason


def _undelayed_properties(message: NewMessage, due_ms: int | None) -> dict[str, str]:
    """Return the message's properties for the send: without its delays, or with the delivery time
    `due_ms` (epoch ms)."""
    properties = decode_properties(message.properties)
    for name in _NOT_AGAIN:
        properties.pop(name, None)
    if due_ms is not None:
        properties.pop(names.TIMER_OUT_MS, None)
        properties[names.TIMER_DELIVER_MS] = str(due_ms)
    return properties


def _half_properties(message: NewMessage) -> dict[str, str]:
    """Return the message's properties for the send as a half message: its delay stays, and counts
    once it is committed."""
    properties = decode_properties(message.properties)
    for name in (names.WAIT, names.CRC32):
        properties.pop(name, None)
    return properties | {names.TRAN_MSG: "true"}


def _send_request(
    message: NewMessage, properties: dict[str, str], master: Master, group: str
) -> Command:
    """Build the SEND_MESSAGE_V2 request for `master`, as a producer of `group` does. The message
    keeps its queue id, modulo the master's number of queues."""
    is_retry = message.topic.startswith(RETRY_PREFIX)
    header = SendMessageRequestV2(
        producer_group=properties.get(names.PGROUP) or group,
        topic=message.topic,
        default_topic="",
        default_topic_queue_nums=0,
        queue_id=message.queue_id % master.queue_count,
        sys_flag=message.sys_flag & _OWN_FLAGS,
        born_timestamp=message.born_timestamp_ms,
        flag=message.flag,
        properties=encode_properties(properties).decode(errors="replace"),
        reconsume_times=message.reconsume_times,
        # For a retry topic: the message must not become a dead letter at the other master.
        max_reconsume_times=message.reconsume_times if is_retry else None,
    )
    return new_request(RequestCode.SEND_MESSAGE_V2, header, bytes(message.body))
