"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE (10, 310, 320): from a request to a record.

Owns the order of checks and the answers of RocketMQ's SendMessageProcessor. It must never write a
file or know when a message is safe: it waits for `Role.when_safe`.
"""

import re
from collections.abc import Generator
from datetime import datetime
from typing import Final

from turbopump.broker.context import BrokerContext
from turbopump.broker.handlers.pop.records import why_no_record
from turbopump.broker.handlers.send_refusals import (
    SendRefused,
    illegal_message,
    no_light_queues,
    no_revive_record,
    refused_timer,
)
from turbopump.broker.tables.topic_attributes import CLEANUP_POLICY, COMPACTION
from turbopump.broker.tables.topics import NOT_ALLOWED_SEND_TOPICS
from turbopump.broker.traffic.fast_path import MAX_WAITING
from turbopump.broker.traffic.put_message import (
    INNER_BATCH_FLAGS,
    MULTI_TAGS_FLAG,
    TRANSACTION_BITS,
    Draft,
    Refusal,
    delay_level,
    is_prepared,
    waits_for_store,
    wants_light_queues,
)
from turbopump.broker.traffic.replies import REJECTED, SEE_FAQ, failure_reply
from turbopump.broker.traffic.role import Put
from turbopump.broker.traffic.room import SENT_MAX, leaves_room
from turbopump.broker.traffic.timer_requests import TimerRefusal, is_timer
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import Appended, Buffer, NewMessage, PutStatus
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import properties as names
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.headers.send import (
    MAX_RECONSUME_SINCE,
    SendMessageRequest,
    SendMessageResponse,
    read_send,
)
from turbopump.net.wire.message import decode_batch
from turbopump.net.wire.message_id import RecallHandle, encode_message_ids
from turbopump.net.wire.names import DLQ_PREFIX, MAX_TOPIC_LENGTH, RETRY_PREFIX, validate_topic_name
from turbopump.net.wire.pop_handles import original_topic
from turbopump.net.wire.properties import decode_properties, encode_properties
from turbopump.net.wire.topics import MULTI_TAG, PERM_INHERIT, PERM_READ, PERM_WRITE, TopicConfig
from turbopump.pyx.record import count_batch

_UNIT, _UNIT_SUB = 1, 2  # bits of topicSysFlag (TopicSysFlag)
_STORED = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}


ELEMENTS_PER_STEP: Final = 2_000
"""Elements of a batch whose properties one step reads: each takes some 2 us."""

_SPECIAL = tuple(
    text.encode()
    for text in (names.INNER_MULTI_DISPATCH, f"{names.DELAY}\x01", "TIMER_DEL", "TRAN_MSG\x01")
)
"""Property names of delayed, timer and half messages and of light queues. A batch without these
texts has no such element."""
_SLOT_MS = re.compile(r"[0-9]{1,18}", re.ASCII)
_Sent = Command | Deferred[Command | None]


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add a SendHandler for the three send codes to the table, which must not have them yet."""
    send = SendHandler(broker)
    for code in (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
    ):
        table.add(code, send)


class SendHandler:
    """Handler of the send codes; one instance per broker. While `max_waiting` sends wait for the
    disk or for replicas, further sends are refused (SYSTEM_BUSY)."""

    def __init__(self, broker: BrokerContext, max_waiting: int = MAX_WAITING) -> None:
        self._broker = broker
        self._max_waiting = max_waiting

    def __call__(
        self, request: Command, peer: Peer, now_ms: int, *, elements_checked: bool = False
    ) -> _Sent | Steps[_Sent]:
        """Store a message or batch and answer: at once if it is refused or its sender does not
        wait, else when its record is as safe as flushDiskType and the replicas demand. `now_ms` is
        epoch ms.

        `elements_checked`: the elements of a batch were already checked for properties that batches
        do not support; without it the result may be steps, which do that check.
        """
        role = self._broker.role
        if not role.is_master:
            return self._make_response(request, ResponseCode.SYSTEM_BUSY, REJECTED)
        if not role.has_lease():
            return self._make_response(request, *failure_reply(PutStatus.SERVICE_NOT_AVAILABLE))
        header = read_send(request.code, request.fields)
        try:
            self._check_service(request, now_ms)
            topic = topic_for_send(self._broker, header, peer, now_ms)
            self._broker.fast.allow_send(topic)
            if header.batch and not elements_checked and _may_be_special(_body_of(request)):
                _count_elements(self._broker, request)
                return self._check_elements(request, header.topic, peer, now_ms)
            if header.batch:
                return self._send_batch(request, header, topic, peer, now_ms)
            return self._send(request, header, topic, peer, now_ms)
        except SendRefused as refused:
            return self._make_response(request, refused.code, refused.remark)

    def _check_service(self, request: Command, now_ms: int) -> None:
        """Raise SendRefused while too many sends wait, for a message without a body, or before the
        broker accepts sends."""
        if self._broker.store.pending.count >= self._max_waiting:
            raise SendRefused(
                ResponseCode.SYSTEM_BUSY,
                "[OVERLOAD]system busy, start flow control for a while",
            )
        if not request.body:
            raise SendRefused(ResponseCode.SYSTEM_ERROR, "the message has no body")
        begin_ms = self._broker.config.start_accept_send_request_timestamp_ms
        if now_ms < begin_ms:
            until = datetime.fromtimestamp(begin_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
            raise SendRefused(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {until}")

    def _send(
        self,
        request: Command,
        header: SendMessageRequest,
        topic: TopicConfig,
        peer: Peer,
        now_ms: int,
    ) -> Command | Deferred[Command | None]:
        """Store a single message, and return its answer. Raises SendRefused."""
        broker = self._broker
        properties = decode_properties(header.properties or "")
        properties.pop(names.POP_CK, None)
        if header.topic == broker.pop.log.topic:
            _check_record(header.topic, properties, _body_of(request))
        queue_id = self._queue_id(header, topic)
        draft = Draft(
            topic=header.topic,
            queue_id=queue_id,
            body=_body_of(request),
            properties=properties,
            flag=header.flag,
            # Bits of a client cannot make a committed or half message: that takes END_TRANSACTION.
            sys_flag=header.sys_flag & ~TRANSACTION_BITS,
            born_timestamp_ms=header.born_timestamp,
            born_host=peer.host,
            reconsume_times=header.reconsume_times or 0,
        )
        if header.topic.startswith(RETRY_PREFIX):
            topic = self._redirect_retry(request, header, draft, topic, now_ms)
        if topic.topic_filter_type == MULTI_TAG:
            draft.sys_flag |= MULTI_TAGS_FLAG
        is_half = self._is_half(draft)
        self._add_own_properties(properties)
        unique_key = properties.get(names.UNIQ_KEY) or broker.unique_ids.next_id()
        properties[names.UNIQ_KEY] = unique_key
        self._check_recall(properties)
        if is_half:
            outcome = broker.writer.put_half(draft, now_ms)
        else:  # a retry already has the properties of retries
            is_first = not draft.topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
            outcome = broker.writer.put(draft, now_ms, is_sent=is_first)
        if isinstance(outcome, TimerRefusal):
            raise refused_timer(broker, outcome)
        if isinstance(outcome, Refusal):
            raise no_light_queues()
        if is_half and outcome.appended.status is PutStatus.PUT_OK:
            broker.half_counts.count_prepared(draft.topic, now_ms)
        waits = waits_for_store(properties)
        handle = _recall_handle(broker, properties)
        return self._answer_put(
            request, outcome, queue_id, unique_key, now_ms, waits=waits, handle=handle
        )

    def _send_batch(
        self,
        request: Command,
        header: SendMessageRequest,
        topic: TopicConfig,
        peer: Peer,
        now_ms: int,
    ) -> Command | Deferred[Command | None]:
        """Store all messages of a batch, and return its answer. Raises SendRefused."""
        properties = decode_properties(header.properties or "")
        if len(header.topic) > MAX_TOPIC_LENGTH:
            raise SendRefused(
                ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(header.topic)}"
            )
        if header.topic.startswith(RETRY_PREFIX):
            raise SendRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"batch request does not support retry group {header.topic}",
            )
        if header.topic == self._broker.pop.log.topic:
            raise no_revive_record(header.topic, "it is a batch")
        if header.sys_flag & (TRANSACTION_BITS | INNER_BATCH_FLAGS) or _is_deferred_message(
            properties
        ):
            raise illegal_message(self._broker)
        if wants_light_queues(header.topic, properties):
            raise no_light_queues()
        admitted = self._broker.role.admit_append()
        # before the elements are counted (CommitLog.asyncPutMessages)
        if isinstance(admitted, PutStatus):
            return self._reply_failure(request, Appended(admitted))
        count = _count_elements(self._broker, request)
        multi_tags = MULTI_TAGS_FLAG if topic.topic_filter_type == MULTI_TAG else 0
        message = NewMessage(
            topic=header.topic,
            queue_id=self._queue_id(header, topic),
            body=_body_of(request),
            flag=header.flag,
            sys_flag=header.sys_flag | multi_tags,
            born_timestamp_ms=header.born_timestamp,
            born_host=peer.host,
            store_host=self._broker.store_host,
            reconsume_times=header.reconsume_times or 0,
        )
        unique_key = properties.get(names.UNIQ_KEY)
        batch_key = unique_key if self._broker.topics.is_batch(header.topic) else None
        if batch_key is None:
            outcome = self._broker.writer.append(message, now_ms, batch=True)
        else:
            self._fill_inner_batch(message, properties, count)
            if not leaves_room(properties, len(message.properties)):
                raise illegal_message(self._broker)
            outcome = self._broker.writer.append(message, now_ms)
        return self._answer_put(
            request, outcome, message.queue_id, unique_key, now_ms, batch_key=batch_key
        )

    def _fill_inner_batch(
        self, message: NewMessage, properties: dict[str, str], count: int
    ) -> None:
        """Prepare `message` to hold the whole batch in one record, for a topic with
        queue.type=BatchCQ (messages.md 8.2)."""
        self._add_own_properties(properties)
        properties[names.INNER_NUM] = str(count)
        message.properties = encode_properties(properties)
        message.sys_flag |= INNER_BATCH_FLAGS

    def _check_elements(
        self, request: Command, topic: str, peer: Peer, now_ms: int
    ) -> Steps[_Sent]:
        """Check the elements of a batch in steps, then send it: refuse a batch with an element that
        is delayed, a timer or a half message, or that asks for light queues."""
        for number, (_flag, _body, encoded) in enumerate(decode_batch(_body_of(request)), 1):
            properties, refused = decode_properties(encoded), None
            if wants_light_queues(topic, properties):
                refused = no_light_queues()
            elif _is_deferred_message(properties) or not leaves_room(properties, len(encoded)):
                refused = illegal_message(self._broker)
            if refused is not None:
                return self._make_response(request, refused.code, refused.remark)
            if number % ELEMENTS_PER_STEP == 0:
                yield
        # Other requests were served between the steps: the role, the lease or the topic may have
        # changed.
        sent = self(request, peer, now_ms, elements_checked=True)
        assert not isinstance(sent, Generator), "all elements were checked"
        return sent

    def _add_own_properties(self, properties: dict[str, str]) -> None:
        """Add region, trace switch and cluster to the properties, as each broker does."""
        config = self._broker.config
        properties[names.MSG_REGION] = config.region_id
        properties[names.TRACE_ON] = _bool_text(config.trace_on)
        properties[names.CLUSTER] = config.broker_cluster_name

    def _queue_id(self, header: SendMessageRequest, topic: TopicConfig) -> int:
        """Return the queue id in the header, or a random one if it is negative."""
        if header.queue_id >= 0:
            return header.queue_id
        return self._broker.random.randrange(max(topic.write_queue_nums, 1))

    def _redirect_retry(
        self,
        request: Command,
        header: SendMessageRequest,
        draft: Draft,
        topic: TopicConfig,
        now_ms: int,
    ) -> TopicConfig:
        """Move a message that a consumer returns to its retry topic to the dead letter topic if its
        retries are used up; return the topic to which it goes. Raises SendRefused."""
        broker = self._broker
        popped = self._retry_of_pops(draft, now_ms)
        if popped is not None:
            return popped
        name = header.topic.removeprefix(RETRY_PREFIX)
        if _is_pop_retry_name(broker, name):
            return topic  # popped at a master that is gone: its consumers limit the retries
        group = broker.groups.find_or_create(name, now_ms)
        if group is None:
            raise SendRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {name} {SEE_FAQ}",
            )
        limit = group.retry_max_times
        if request.version >= MAX_RECONSUME_SINCE and header.max_reconsume_times is not None:
            limit = header.max_reconsume_times
        # A group that holds queue locks consumes in order: another delivery would break the order.
        ordered = broker.locks.is_group_locked(name, broker.steady_ms())
        if draft.reconsume_times <= limit and not ordered:
            return topic
        draft.topic, draft.queue_id = DLQ_PREFIX + name, 0
        draft.properties[names.DELAY] = "-1"
        dead_letters = broker.topics.create_internal(draft.topic, 1, PERM_READ | PERM_WRITE, now_ms)
        if dead_letters is None:
            raise SendRefused(ResponseCode.SYSTEM_ERROR, f"topic[{draft.topic}] not exist")
        return dead_letters

    def _retry_of_pops(self, draft: Draft, now_ms: int) -> TopicConfig | None:
        """Return the pop retry topic for a message that was popped at a master that is gone and
        that names its group, and move the draft there; None for other messages. The draft's retry
        topic may have the name of another group's here."""
        broker, group = self._broker, draft.properties.get(names.ORIGIN_GROUP, "")
        topic = original_topic(group, draft.topic)
        is_one = (
            bool(group) and topic != draft.topic and broker.topics.peek_topic(topic) is not None
        )
        if not is_one or broker.groups.find_or_create(group, now_ms) is None:
            return None
        retries = broker.pop.retry_names.ensure_topic(topic, group, now_ms)
        if retries is None:
            raise SendRefused(ResponseCode.SYSTEM_ERROR, f"topic[{draft.topic}] not exist")
        if retries.topic_name != draft.topic:
            draft.topic, draft.queue_id = retries.topic_name, 0
        return retries

    def _check_recall(self, properties: dict[str, str]) -> None:
        """Refuse a timer that recalls another timer where 370 is refused. Raises SendRefused."""
        is_recall = names.TIMER_DEL_UNIQKEY in properties and is_timer(properties)
        if is_recall and not self._broker.config.recall_message_enable:
            raise SendRefused(
                ResponseCode.NO_PERMISSION, "recall failed, recallMessageEnable is false"
            )

    def _is_half(self, draft: Draft) -> bool:
        """Whether this is the half message of a transaction; raises SendRefused."""
        if not is_prepared(draft.properties):
            return False
        # A retry of a client before 4.6.1 still has the TRAN_MSG property of the original message.
        delayed = (delay_level(draft.properties) or 0) > 0
        if draft.reconsume_times > 0 and (delayed or draft.topic.startswith(DLQ_PREFIX)):
            return False
        if self._broker.config.reject_transaction_message:
            raise SendRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker.config.broker_ip1}] sending transaction message is"
                " forbidden",
            )
        return True

    def _answer_put(
        self,
        request: Command,
        outcome: Put,
        queue_id: int,
        unique_key: str | None,
        now_ms: int,
        *,
        waits: bool = True,
        batch_key: str | None = None,
        handle: str | None = None,
    ) -> Command | Deferred[Command | None]:
        """Answer a put: at once if it failed or its sender does not wait (`waits`), else when the
        message is safe."""
        appended = outcome.appended
        if appended.status is not PutStatus.PUT_OK:
            return self._reply_failure(request, appended)
        ids = encode_message_ids(self._broker.store_host, appended.log_offsets)
        header = SendMessageResponse(
            ids, queue_id, appended.queue_offset, unique_key, batch_key, handle
        )
        if not waits:
            return self._make_response(request, ResponseCode.SUCCESS, header=header)
        safe = self._broker.role.when_safe(*outcome)
        if safe.done and safe.value in _STORED:
            return self._make_response(request, _STORED[safe.value], header=header)
        if safe.done:
            return self._reply_failure(request, Appended(safe.value))
        own_fields = (
            self._own_fields()
        )  # read now, so that the answer agrees with the stored record

        def reply(status: PutStatus) -> Command | None:
            if status in _STORED:
                return new_response(request, _STORED[status], None, header, fields=own_fields)
            return self._reply_failure(request, Appended(status))

        return safe.map(reply)

    def _reply_failure(self, request: Command, appended: Appended) -> Command:
        """Build the answer for a message that was not stored."""
        status = appended.status
        if status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
            illegal = illegal_message(self._broker)
            return self._make_response(request, illegal.code, illegal.remark)
        code, remark = failure_reply(status, appended.reason)
        return self._make_response(request, code, remark)

    def _make_response(
        self,
        request: Command,
        code: ResponseCode,
        remark: str | None = None,
        header: SendMessageResponse | None = None,
    ) -> Command:
        """Build an answer with the fields that every answer to a send has."""
        return new_response(request, code, remark, header, fields=self._own_fields())

    def _own_fields(self) -> dict[str, str]:
        """Region and trace switch, which clients read from every answer without checking for
        them."""
        config = self._broker.config
        return {names.MSG_REGION: config.region_id, names.TRACE_ON: _bool_text(config.trace_on)}


def _is_pop_retry_name(broker: BrokerContext, name: str) -> bool:
    """Whether `name`, a retry topic's name without its prefix, is "<group>_<topic>" as for pops
    (KeyBuilder.buildPopRetryTopicV1). A group with the whole name has precedence."""
    if broker.groups.get(name) is not None:
        return False
    ends = [at for at, letter in enumerate(name) if letter == "_"]
    return any(
        broker.groups.get(name[:at]) is not None
        and broker.topics.peek_topic(name[at + 1 :]) is not None
        for at in ends
    )


def topic_for_send(
    broker: BrokerContext, header: SendMessageRequest, peer: Peer, now_ms: int
) -> TopicConfig:
    """Return the topic of a send, created now if its default topic or its retry prefix allows it;
    raises SendRefused (remoting.md 9.2) for a bad name, a missing, system or compacted topic, or a
    queue id beyond its queues. `perm` is not checked; `peer` is named in the refusal."""
    name = header.topic
    known = broker.topics.get(name)
    if not broker.config.is_writable and known is not None and known.order:
        raise SendRefused(
            ResponseCode.NO_PERMISSION,
            f"the broker[{broker.config.broker_ip1}] sending message is forbidden",
        )
    problem = validate_topic_name(name)
    if problem is not None:
        raise SendRefused(ResponseCode.INVALID_PARAMETER, problem)
    if name in NOT_ALLOWED_SEND_TOPICS:
        raise SendRefused(
            ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden."
        )
    if known is not None and known.attributes.get(CLEANUP_POLICY) == COMPACTION:
        # A compacted topic of another broker: its last values would be deleted with their log
        # files.
        remark = f"{CLEANUP_POLICY}={COMPACTION} of topic[{name}] is not supported"
        raise SendRefused(ResponseCode.NO_PERMISSION, f"{remark}, enableCompaction is false")
    topic = known or _create_topic(broker, header, now_ms)
    if topic is None:
        raise SendRefused(
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic[{name}] not exist, apply first please!{SEE_FAQ}",
        )
    if header.queue_id >= max(topic.write_queue_nums, topic.read_queue_nums):
        raise SendRefused(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{header.queue_id}] is illegal, {_topic_text(topic)}"
            f" Producer: {peer.address}",
        )
    return topic


def _create_topic(
    broker: BrokerContext, header: SendMessageRequest, now_ms: int
) -> TopicConfig | None:
    """Create the topic of a send from its default topic, or a retry topic with one queue; None if
    neither is allowed."""
    retries = header.topic.startswith(RETRY_PREFIX)
    sys_flag = (_UNIT_SUB if retries else _UNIT) if header.unit_mode else 0
    created = broker.topics.create_from_default(
        header.topic, header.default_topic, header.default_topic_queue_nums, sys_flag, now_ms
    )
    if created is None and retries:
        return broker.topics.create_internal(
            header.topic, 1, PERM_READ | PERM_WRITE, now_ms, sys_flag=sys_flag
        )
    return created


def _topic_text(topic: TopicConfig) -> str:
    """The topic as RocketMQ prints it in remarks (TopicConfig.toString)."""
    bits = ((PERM_READ, "R"), (PERM_WRITE, "W"), (PERM_INHERIT, "X"))
    perm = "".join(letter if topic.perm & bit else "-" for bit, letter in bits)
    attributes = ", ".join(f"{key}={value}" for key, value in topic.attributes.items())
    return (
        f"TopicConfig [topicName={topic.topic_name}, readQueueNums={topic.read_queue_nums},"
        f" writeQueueNums={topic.write_queue_nums}, perm={perm},"
        f" topicFilterType={topic.topic_filter_type}, topicSysFlag={topic.topic_sys_flag},"
        f" order={_bool_text(topic.order)}, attributes={{{attributes}}}]"
    )


def _check_record(topic: str, properties: dict[str, str], body: Buffer) -> None:
    """Refuse a message to the revive topic that is no record of RocketMQ's; raises SendRefused."""
    why = why_no_record(properties, body)
    if why is not None:
        raise no_revive_record(topic, why)


def _count_elements(broker: BrokerContext, request: Command) -> int:
    """Count a batch's elements without making objects of them; raises SendRefused for a malformed
    batch or one with too many elements."""
    try:
        return count_batch(_body_of(request))[0]
    except ValueError:
        raise illegal_message(broker) from None


def _may_be_special(batch: Buffer) -> bool:
    """Whether the properties of a batch's elements have to be checked one by one."""
    text = bytes(batch)
    return len(text) > SENT_MAX or any(name in text for name in _SPECIAL)


def _is_deferred_message(properties: dict[str, str]) -> bool:
    """Whether a message with these properties is delayed, a timer or a half message, which batches
    do not support."""
    return delay_level(properties) != 0 or is_timer(properties) or is_prepared(properties)


def _recall_handle(broker: BrokerContext, properties: dict[str, str]) -> str | None:
    """The handle for recalling a timer (SendMessageProcessor.attachRecallHandle), None for other
    messages. Its time is 1 ms after the begin of the timer's slot."""
    out, topic = properties.get(names.TIMER_OUT_MS), properties.get(names.REAL_TOPIC)
    if out is None or topic is None or not _SLOT_MS.fullmatch(out):
        return None
    if topic.startswith(RETRY_PREFIX):
        return None
    key = properties[names.UNIQ_KEY]
    return RecallHandle(topic, broker.config.broker_name, str(int(out) + 1), key).encode()


def _body_of(request: Command) -> Buffer:
    """The body of a decoded request, which is one buffer."""
    assert not isinstance(request.body, list), "a decoded body is one buffer"
    return request.body


def _bool_text(value: bool) -> str:
    """ "true" or "false"."""
    return "true" if value else "false"
