"""PULL_MESSAGE and LITE_PULL_MESSAGE (11, 361): answer with stored records, or hold the pull (long
poll).

Owns the order of checks and the answers of RocketMQ's PullMessageProcessor. It must never copy a
record or block: `holds` keeps a pull without messages and attempts it again when its queue has
grown.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from turbopump.broker.context import BrokerContext
from turbopump.broker.tables.groups import FORBIDDEN_READ
from turbopump.broker.tables.long_polling import MAX_SUSPEND_MS, HeldPull, NativePull
from turbopump.broker.traffic.replies import SEE_FAQ, no_filters
from turbopump.engine.deferred import Deferred
from turbopump.engine.queues.lookup import Wanted
from turbopump.engine.types import QueueOffset, ReadResult, ReadStatus
from turbopump.net.transport.dispatcher import Dispatcher, one_line
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request, new_response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.pull import (
    COMMIT_OFFSET_FLAG,
    SUBSCRIPTION_FLAG,
    SUSPEND_FLAG,
    PullMessageRequest,
    PullMessageResponse,
)
from turbopump.net.wire.heartbeat import BROADCASTING
from turbopump.net.wire.names import kept_size
from turbopump.net.wire.route import MASTER_ID
from turbopump.net.wire.sql.compiler import compile_filter
from turbopump.net.wire.sql.words import SqlError
from turbopump.net.wire.subscription import SubscriptionData, parse_subscription
from turbopump.pyx.filter import Filter
from turbopump.pyx.held import FINISH, HOLD

logger = logging.getLogger(__name__)

CHARACTERS_OF_ATTEMPT = 16
"""Characters of a filter expression that are parsed in the time of an ordinary attempt, for
`HeldPull.weight`."""

_OFFSET_RESET = "OFFSET_RESET"  # the only GetMessageStatus that no read of the store returns
_NOT_FOUND = {ReadStatus.OFFSET_FOUND_NULL, ReadStatus.OFFSET_OVERFLOW_ONE}
_RETRY = {ReadStatus.NO_MATCHED_MESSAGE, ReadStatus.MESSAGE_WAS_REMOVING}
_EMPTY = {ReadStatus.NO_MESSAGE_IN_QUEUE, ReadStatus.NO_MATCHED_LOGIC_QUEUE}

_WATCHED = "pull holds"  # key of Peer.context

# PullMessageResponseHeader.forbiddenType (ForbiddenType).
_BY_BROKER, _BY_GROUP, _BY_TOPIC, _BY_BROADCAST, _BY_SUBSCRIPTION = 1, 2, 3, 4, 5


class PullRefused(Exception):
    """A pull is answered with an error, `code`, `remark` and the field forbiddenType (None:
    without), before anything is read."""

    def __init__(self, code: ResponseCode, remark: str, forbidden_type: int | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.forbidden_type = forbidden_type


@dataclass(frozen=True, slots=True)
class _CheckedPull:
    """Result of a pull's checks: the filter to read with, and numbers for the answer."""

    wanted: Wanted
    topic_sys_flag: int
    group_sys_flag: int
    sub_version: int
    near_id: int
    far_id: int


class LateAnswers(Protocol):
    """A connection of a held pull."""

    peer: Peer

    def answer_late(self, opaque: int, response: Command | None) -> None:
        """Write an answer whose request was counted as unanswered."""


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of PULL_MESSAGE and LITE_PULL_MESSAGE to the table, which must not have them
    yet."""

    def handle_pull(
        request: Command, peer: Peer, now_ms: int
    ) -> Command | Deferred[Command | None]:
        header = read_header(PullMessageRequest, request.fields)
        return _Pull(broker, request, header, peer).answer_or_hold(now_ms)

    table.add(RequestCode.PULL_MESSAGE, handle_pull)
    table.add(RequestCode.LITE_PULL_MESSAGE, handle_pull)


def resume_native_pull(
    broker: BrokerContext,
    wall_ms: Callable[[], int],
    connection: LateAnswers,
    fields: tuple[Any, ...],
) -> None:
    """Continue a pull that native code held and leaves to the handler: hold it, attempt it, or
    answer it. `fields` are of a NativePull, `wall_ms` returns epoch ms."""
    held = NativePull(*fields)
    request = new_request(RequestCode.PULL_MESSAGE)
    request.opaque = held.opaque
    header = PullMessageRequest(
        held.group.decode(),
        held.topic.decode(),
        held.queue_id,
        held.queue_offset,
        held.max_msg_nums,
        held.sys_flag,
        commit_offset=-1,
        suspend_timeout_millis=0,
        sub_version=held.sub_version,
        subscription=None if held.subscription is None else held.subscription.decode(),
        expression_type=None if held.expression_type is None else held.expression_type.decode(),
    )
    pull = _Pull(broker, request, header, connection.peer)
    pull.when_answered(partial(connection.answer_late, held.opaque))
    hold = pull.hold_again(wall_ms(), held.deadline_ms)
    broker.held_pulls.hold_native(hold)
    _drop_at_close(broker, connection.peer)
    if held.how != HOLD:
        broker.held_pulls.attempt_pull(hold, final=held.how == FINISH)


class _Pull:
    """A pull request, from its arrival to its answer, through any number of attempts."""

    __slots__ = ("_answer", "_broker", "_header", "_now_ms", "_peer", "_request", "_steady_ms")

    def __init__(
        self, broker: BrokerContext, request: Command, header: PullMessageRequest, peer: Peer
    ) -> None:
        self._broker = broker
        self._request = request
        self._header = header
        self._peer = peer
        self._now_ms = self._steady_ms = 0
        self._answer: Deferred[Command | None] = Deferred()

    def answer_or_hold(self, now_ms: int) -> Command | Deferred[Command | None]:
        """Answer at once, or hold the pull until its queue grows or its time expires."""
        header = self._header
        self._now_ms = now_ms
        try:
            allowed = self._check_request()
        except PullRefused as refused:
            return self._make_refusal(refused)
        role = self._broker.role
        takes = role.may_change_offsets and (role.is_master or role.is_acting)
        commits = takes and header.sys_flag & COMMIT_OFFSET_FLAG
        if commits and header.commit_offset >= 0:
            self._broker.offsets.commit_consumed(
                header.consumer_group,
                header.topic,
                header.queue_id,
                QueueOffset(header.commit_offset),
                now_ms,
            )
        response = self._answer_reset(allowed) or self._read(
            QueueOffset(header.queue_offset), allowed
        )
        if response.code == ResponseCode.SUCCESS:
            self._allow_native(allowed, now_ms)
        wait_ms = self._wait_ms()
        if response.code != ResponseCode.PULL_NOT_FOUND or wait_ms <= 0:
            return response
        self._steady_ms = self._broker.steady_ms()
        hold = HeldPull(
            topic=header.topic,
            queue_id=header.queue_id,
            queue_offset=QueueOffset(header.queue_offset),
            deadline_ms=self._steady_ms + wait_ms,
            owner=self._peer,
            attempt=self._attempt_held,
            size=self._drop_unneeded(),
            weight=self._attempt_cost(allowed.wanted),
        )
        if not self._broker.held_pulls.add(hold):
            return response
        _drop_at_close(self._broker, self._peer)
        return self._answer

    def hold_again(self, now_ms: int, deadline_ms: int) -> HeldPull:
        """Continue a pull that native code held: from the header's queue offset, until
        `deadline_ms` (monotonic clock). `now_ms` is epoch ms."""
        header, broker = self._header, self._broker
        self._now_ms, self._steady_ms = now_ms, broker.steady_ms()
        known = broker.filters.get(header.topic, header.consumer_group)
        return HeldPull(
            topic=header.topic,
            queue_id=header.queue_id,
            queue_offset=QueueOffset(header.queue_offset),
            deadline_ms=deadline_ms,
            owner=self._peer,
            attempt=self._attempt_held,
            size=kept_size(header.subscription or "", header.expression_type or ""),
            weight=1 if known is None else self._attempt_cost(known.filter),
        )

    def when_answered(self, callback: Callable[[Command | None], None]) -> None:
        """Call `callback` with the answer to a held pull."""
        self._answer.then(callback)

    def _allow_native(self, allowed: _CheckedPull, now_ms: int) -> None:
        """Let native code serve later pulls like this, which found messages. `now_ms` is epoch
        ms."""
        flags = (allowed.topic_sys_flag, allowed.group_sys_flag)
        readers = (allowed.near_id, allowed.far_id)
        self._broker.fast.allow_pull(
            self._header, allowed.wanted, allowed.sub_version, flags, readers, now_ms
        )

    def _drop_unneeded(self) -> int:
        """Drop the parts of the request that later attempts do not need; returns the bytes of its
        remaining texts."""
        broker, header = self._broker, self._header
        header.broker_name = None
        topic, group = broker.topics.get(header.topic), broker.groups.get(header.consumer_group)
        assert topic is not None and group is not None, "a held pull has passed its checks"
        # Use the tables' strings, so that the peer's copies can be freed.
        header.topic, header.consumer_group = topic.topic_name, group.group_name
        if not header.sys_flag & SUBSCRIPTION_FLAG:
            header.subscription = header.expression_type = None
        return kept_size(header.subscription or "", header.expression_type or "")

    def _attempt_cost(self, wanted: Wanted) -> int:
        """Cost of an attempt of this pull, in ordinary attempts; an expression in the request may
        have to be parsed again."""
        if not isinstance(wanted, Filter):
            return 1
        carried = self._header.subscription or ""  # dropped by `_drop_unneeded` without the flag
        return wanted.weight + len(carried) // CHARACTERS_OF_ATTEMPT

    def _wait_ms(self) -> int:
        """Time in ms for which the pull may be held if there is no message; 0: not at all."""
        if not self._header.sys_flag & SUSPEND_FLAG or self._broker.shutting_down:
            return 0
        config = self._broker.config
        if not config.long_polling_enable:
            return config.short_polling_time_ms
        return min(self._header.suspend_timeout_millis, MAX_SUSPEND_MS)

    def _attempt_held(self, hold: HeldPull, final: bool) -> bool:
        """Read again for a held pull: all checks are repeated, no offset is committed. Return
        whether the pull is answered; it must be if `final`."""
        try:
            response = self._read_again(hold, final)
        except PullRefused as refused:
            response = self._make_refusal(refused)
        except Exception as error:
            # No dispatcher catches this exception, and without an answer the client would wait for
            # its own timeout.
            logger.exception("a held pull of %s failed", self._peer.address)
            response = new_response(self._request, ResponseCode.SYSTEM_ERROR, one_line(error))
        if response is None:
            return False
        self._answer.resolve(response)
        return True

    def _read_again(self, hold: HeldPull, final: bool) -> Command | None:
        """The answer to a held pull, None to keep holding it."""
        allowed = self._check_request()
        response = self._answer_reset(allowed)
        if response is not None:
            return response
        result = self._read_result(hold.queue_offset, allowed)
        filtered = result.status is ReadStatus.NO_MATCHED_MESSAGE
        if filtered and not final and result.next_queue_offset >= result.max_queue_offset:
            # No message matched this filter: continue from here instead of answering the client.
            hold.queue_offset = result.next_queue_offset
            return None
        response = self._make_answer(result, hold.queue_offset, allowed)
        if response.code == ResponseCode.SUCCESS:
            self._allow_native(allowed, self._now_ms + self._broker.steady_ms() - self._steady_ms)
        return None if response.code == ResponseCode.PULL_NOT_FOUND and not final else response

    def _answer_reset(self, allowed: _CheckedPull) -> Command | None:
        """Take the pending reset of the pull's queue, and return the answer PULL_OFFSET_MOVED with
        its offset; None without a reset, or with useServerSideResetOffset=false."""
        header, broker = self._header, self._broker
        target = broker.offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        if target is None or not broker.config.use_server_side_reset_offset:
            return None
        low = broker.store.min_queue_offset(header.topic, header.queue_id)
        high = broker.store.max_queue_offset(header.topic, header.queue_id)
        return self._with_flags(
            allowed,
            ResponseCode.PULL_OFFSET_MOVED,
            _OFFSET_RESET,
            PullMessageResponse(0, target, low, high),
        )

    def _read(self, queue_offset: QueueOffset, allowed: _CheckedPull) -> Command:
        """Read from `queue_offset` on, and return the answer."""
        return self._make_answer(self._read_result(queue_offset, allowed), queue_offset, allowed)

    def _read_result(self, queue_offset: QueueOffset, allowed: _CheckedPull) -> ReadResult:
        """Read from `queue_offset` on, and note the end as the group's last pull."""
        header = self._header
        result = self._broker.store.read(
            header.topic,
            header.queue_id,
            queue_offset,
            max(header.max_msg_nums, 1),
            allowed.wanted,
        )
        self._broker.offsets.commit_pull(
            header.consumer_group, header.topic, header.queue_id, result.next_queue_offset
        )
        self._broker.fast.discard_native_pull(header.consumer_group, header.topic, header.queue_id)
        return result

    def _make_answer(
        self, result: ReadResult, queue_offset: QueueOffset, allowed: _CheckedPull
    ) -> Command:
        """Make the answer for the result of a read from `queue_offset` on (remoting.md 10.4)."""
        status = result.status
        if status is ReadStatus.FOUND:
            code = ResponseCode.SUCCESS
            name, topic = self._header.consumer_group, self._header.topic
            self._broker.statistics.count_delivered(name, topic, result.count, result.size)
        elif status in _RETRY:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
        elif status in _NOT_FOUND or (status in _EMPTY and queue_offset == 0):
            code = ResponseCode.PULL_NOT_FOUND
        else:
            code = ResponseCode.PULL_OFFSET_MOVED
        is_far = self._is_far(result)
        header = PullMessageResponse(
            allowed.far_id if is_far else allowed.near_id,
            result.next_queue_offset,
            result.min_queue_offset,
            result.max_queue_offset,
        )
        if not self._broker.config.slave_read_enable:
            header.suggest_which_broker_id = MASTER_ID
        # Without a lease another broker may be master, and have the messages of this offset.
        if not (self._broker.role.is_master and self._broker.role.has_lease()):
            code = self._for_a_replica(code, header, queue_offset, is_far)
        if status is ReadStatus.NO_MATCHED_LOGIC_QUEUE:
            status = ReadStatus.NO_MESSAGE_IN_QUEUE  # RocketMQ creates a queue that is pulled
        return self._with_flags(allowed, code, status.value, header, result.slices)

    def _is_far(self, result: ReadResult) -> bool:
        """Whether the reader lags far enough that its messages are probably not in memory."""
        broker, header, last = self._broker, self._header, result.next_queue_offset - 1
        if result.status is not ReadStatus.FOUND or not broker.config.slave_read_enable:
            return False
        units = broker.store.units(header.topic, header.queue_id, last, 1)
        return bool(units) and not broker.store.in_memory(units[0].log_offset)

    def _for_a_replica(
        self,
        code: ResponseCode,
        header: PullMessageResponse,
        queue_offset: QueueOffset,
        is_far: bool,
    ) -> ResponseCode:
        """Adapt the answer of a replica: redirect readers to the master while it lives, unless they
        lag far, and correct no offset, because the replica's own log may be incomplete
        (offsetCheckInSlave).

        Without a master, a reader whose offset does not exist here waits as at the end of a queue;
        RocketMQ makes it ask again at once, repeatedly.
        """
        broker, is_master_there = self._broker, self._broker.role.has_master()
        moved = code == ResponseCode.PULL_OFFSET_MOVED and not broker.config.offset_check_in_slave
        if moved and (is_master_there or header.next_begin_offset < queue_offset):
            header.next_begin_offset = queue_offset
            code = ResponseCode.PULL_NOT_FOUND
        if is_master_there and not is_far:
            header.suggest_which_broker_id = MASTER_ID
            if code != ResponseCode.SUCCESS:
                return ResponseCode.PULL_RETRY_IMMEDIATELY
        return code

    def _with_flags(
        self,
        allowed: _CheckedPull,
        code: ResponseCode,
        remark: str,
        header: PullMessageResponse,
        body: list[memoryview] | None = None,
    ) -> Command:
        """Make the answer with the system flags of topic and group."""
        header.topic_sys_flag = allowed.topic_sys_flag
        header.group_sys_flag = allowed.group_sys_flag
        return new_response(self._request, code, remark, header, body or b"")

    def _make_refusal(self, refused: PullRefused) -> Command:
        """Make the answer of a refusal."""
        fields = (
            {} if refused.forbidden_type is None else {"forbiddenType": str(refused.forbidden_type)}
        )
        return new_response(self._request, refused.code, refused.remark, fields=fields)

    def _check_request(self) -> _CheckedPull:
        """Run the checks of remoting.md 10.3 in their order; raises PullRefused."""
        broker, header = self._broker, self._header
        self._check_broker()
        name, topic_name = header.consumer_group, header.topic
        group = broker.groups.find_or_create(name, self._now_ms)
        if group is None:
            raise PullRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{name}] does not exist, {SEE_FAQ}",
            )
        if not group.consume_enable:
            raise PullRefused(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}", _BY_GROUP
            )
        topic = broker.topics.get(topic_name)
        if topic is None:
            raise PullRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic_name}] not exist, apply first please! {SEE_FAQ}",
            )
        if not topic.is_readable:
            raise PullRefused(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic_name}] pulling message is forbidden",
                _BY_TOPIC,
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise PullRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{topic_name}]"
                f" topicConfig.readQueueNums:[{topic.read_queue_nums}]"
                f" consumer:[/{self._peer.address}]",
            )
        if header.sys_flag & SUBSCRIPTION_FLAG:
            subscription = self._carried_subscription()
        else:
            subscription = self._known_subscription(group.consume_broadcast_enable)
        return _CheckedPull(
            self._filter_of(subscription),
            topic.topic_sys_flag,
            group.group_sys_flag,
            subscription.sub_version,
            group.broker_id,
            group.which_broker_when_consume_slowly,
        )

    def _check_broker(self) -> None:
        """Raise PullRefused if the broker's configuration or unknown role forbids pulls."""
        config = self._broker.config
        if not config.is_readable or not self._broker.role.is_known:
            raise PullRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] pulling message is forbidden",
                _BY_BROKER,
            )
        lite = self._request.code == RequestCode.LITE_PULL_MESSAGE
        if lite and not config.lite_pull_message_enable:
            raise PullRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] for lite pull consumer is forbidden",
                _BY_BROKER,
            )

    def _carried_subscription(self) -> SubscriptionData:
        """Return the subscription in the pull itself; it stays visible to administrators for a
        while. Raises PullRefused."""
        header = self._header
        try:
            subscription = parse_subscription(
                header.topic, header.subscription, header.expression_type, header.sub_version
            )
        except ValueError:
            raise PullRefused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                "parse the consumer's subscription failed",
            ) from None
        if subscription.is_tag_type:  # a refused expression is not kept
            self._remember_subscription(subscription)
        return subscription

    def _remember_subscription(self, subscription: SubscriptionData) -> None:
        """Remember the pull's subscription for administrators who list subscriptions."""
        broker, header = self._broker, self._header
        group, topic = header.consumer_group, header.topic
        broker.consumers.remember_subscription(group, topic, subscription, broker.steady_ms())

    def _filter_of(self, subscription: SubscriptionData) -> Wanted:
        """Return the filter of the subscription: tag codes, a compiled property filter, or None for
        all messages. Raises PullRefused."""
        broker, header = self._broker, self._header
        if subscription.is_tag_type:
            return subscription.filter_codes
        if not broker.config.enable_property_filter:
            raise PullRefused(ResponseCode.SYSTEM_ERROR, no_filters(subscription))
        if subscription.class_filter_mode:
            return None
        if header.sys_flag & SUBSCRIPTION_FLAG:
            return self._carried_filter(subscription)
        known = broker.filters.get(header.topic, header.consumer_group)
        if known is None:
            raise PullRefused(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        if known.client_version < header.sub_version:
            raise PullRefused(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                "the consumer's consumer filter data not latest",
            )
        return known.filter

    def _carried_filter(self, subscription: SubscriptionData) -> Filter:
        """Compile the property filter of the subscription in the pull. Raises PullRefused."""
        try:
            compiled = compile_filter(subscription)
        except SqlError as error:
            # RocketMQ reads without a filter then, and delivers messages that the filter excludes.
            raise PullRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        self._remember_subscription(subscription)
        return compiled

    def _known_subscription(self, broadcast_enabled: bool) -> SubscriptionData:
        """Return the group's subscription of the topic from its heartbeats, after the checks of the
        group. Raises PullRefused."""
        broker, header = self._broker, self._header
        name, topic = header.consumer_group, header.topic
        group = broker.consumers.group(name)
        if group is None:
            raise PullRefused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist{SEE_FAQ}",
            )
        if not broadcast_enabled and group.message_model == BROADCASTING:
            raise PullRefused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{name}] can not consume by broadcast way",
                _BY_BROADCAST,
            )
        if broker.groups.forbidden_mask(name, topic) & FORBIDDEN_READ:
            raise PullRefused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{name}] is forbidden for topic[{topic}]",
                _BY_SUBSCRIPTION,
            )
        subscription = group.subscriptions.get(topic)
        if subscription is None:
            raise PullRefused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist{SEE_FAQ}",
            )
        if subscription.sub_version < header.sub_version:
            raise PullRefused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        return subscription


def _drop_at_close(broker: BrokerContext, peer: Peer) -> None:
    """Have the held pulls of a connection dropped when it closes; registers once per connection."""
    if not peer.context.get(_WATCHED):
        peer.context[_WATCHED] = True
        peer.on_close(partial(broker.held_pulls.drop_pulls, peer))
