"""ACK_MESSAGE, BATCH_ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME: outcomes of popped messages.

Owns the answers of RocketMQ's AckMessageProcessor and ChangeInvisibleTimeProcessor. It must never
answer before the outcome is stored safely: RocketMQ answers an acknowledgement with success even if
its record was not stored.
"""

import base64
import binascii
from typing import Any, Final

from turbopump.broker.context import BrokerContext
from turbopump.broker.handlers.pop.checks import (
    PopRefused,
    check_group_name,
    check_pops,
    check_queue,
    handle_of,
)
from turbopump.broker.pop.changes import TimeChange
from turbopump.broker.pop.order_info import AckOutcome
from turbopump.broker.pop.outstanding import PoppedQueue
from turbopump.engine.deferred import Deferred, gather
from turbopump.engine.types import PutStatus, QueueOffset
from turbopump.net.transport.dispatcher import Dispatcher, Response
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.bodies import BadBody, as_object, object_in_steps, read_int64, read_text
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
)
from turbopump.net.wire.pop_handles import PopHandle, RetryKind
from turbopump.net.wire.pop_records import (
    MESSAGES_MAX,
    Acknowledgement,
    CheckPoint,
    CheckPointKey,
    acked_offsets,
)

ACKS_PER_STEP: Final = 32
"""Entries of a batch acknowledgement that are stored in one step."""
INVISIBLE_MAX_MS: Final = 12 * 3_600_000 + 60_000
"""Maximum new invisible time of a message, in ms; the clients' limit is 12 hours."""
OTHER_POP: Final = "the messages were popped again meanwhile, or never by this handle's pop"
"""Remark of a refusal: the handle is not of the last pop of its ordered queue."""
LATE: Final = "the invisible time of the message has passed: it is delivered again"
"""Remark of a refusal: the handle's invisible time has passed."""
REPLACED: Final = (
    "the handle is no longer valid: a change of the invisible time returned a new handle"
)
"""Remark of a refusal: the message has a newer handle."""
SOON_MS: Final = 1_000
"""Bound of `_distinct_pop_time_ms`, in ms: how far after the change a handle's pop time may lie and
still be increased by 1 ms. It limits how often a message's time can be changed in the millisecond
of its pop."""


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME and BATCH_ACK_MESSAGE to the
    table, which must not have them yet."""

    def ack(request: Command, peer: Peer, now_ms: int) -> Response:
        header = read_header(AckMessageRequest, request.fields)
        try:
            handle = _check_handle(broker, header, peer, now_ms)
            if not handle.is_ordered and _change_of(broker, header, handle) is not None:
                raise PopRefused(ResponseCode.MESSAGE_ILLEGAL, REPLACED)
        except PopRefused as refused:
            return new_response(request, refused.code, refused.remark)
        _count_acked(broker, header.consumer_group, header.topic, handle, 1)
        if handle.is_ordered:
            return _ack_ordered(broker, request, header, handle, now_ms)
        if broker.groups.get(header.consumer_group) is not None:
            ended_ms = broker.pop.lives.ended_ms(header.topic, header.consumer_group)
            broker.fast.allow_ack(header.consumer_group, header.topic, ended_ms)
        written = broker.pop.acks.add(
            _check_point_key(header, handle),
            QueueOffset(header.offset),
            handle.invisible_ms,
            handle.revive_queue_id,
        )
        return written.map(lambda status: _answer_status(request, status))

    def handle_change(request: Command, peer: Peer, now_ms: int) -> Response:
        header = read_header(ChangeInvisibleTimeRequest, request.fields)
        try:
            handle = _check_handle(broker, header, peer, now_ms)
            if not 0 <= header.invisible_time <= INVISIBLE_MAX_MS:
                raise PopRefused(
                    ResponseCode.INVALID_PARAMETER,
                    f"invisibleTime {header.invisible_time} is not from 0 to {INVISIBLE_MAX_MS} ms",
                )
        except PopRefused as refused:
            return new_response(request, refused.code, refused.remark)
        if handle.is_ordered:
            _count_changed(broker, header, handle, now_ms)
            return _hide_ordered(broker, request, header, handle, now_ms)
        known = _change_of(broker, header, handle)
        if known is not None and known.invisible_ms != header.invisible_time:
            return new_response(request, ResponseCode.MESSAGE_ILLEGAL, REPLACED)
        if known is not None:
            return _answer_change(request, known, handle.revive_queue_id)
        _count_changed(broker, header, handle, now_ms)
        return _change_time(broker, request, header, handle, now_ms)

    def handle_batch(request: Command, peer: Peer, now_ms: int) -> Steps[Response]:
        return (yield from _ack_batch(broker, request, peer, now_ms))

    table.add(RequestCode.ACK_MESSAGE, ack)
    table.add(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, handle_change)
    table.add(RequestCode.BATCH_ACK_MESSAGE, handle_batch)


def _check_handle(
    broker: BrokerContext,
    header: AckMessageRequest | ChangeInvisibleTimeRequest,
    peer: Peer,
    now_ms: int,
) -> PopHandle:
    """Return the handle in the request, of a message that exists and is still hidden; raises
    PopRefused."""
    check_pops(broker)
    check_group_name(header.consumer_group)
    handle = handle_of(header.extra_info, broker)
    check_pops(broker, in_order=handle.is_ordered)
    check_queue(broker, header.topic, header.queue_id, peer)
    low = broker.store.min_queue_offset(header.topic, header.queue_id)
    high = broker.store.max_queue_offset(header.topic, header.queue_id)
    if not low <= header.offset < high:
        raise PopRefused(
            ResponseCode.NO_MESSAGE,
            f"offset is illegal, key:{header.topic}@{header.queue_id}, commit:{header.offset},"
            f" store:{low}~{high}",
        )
    if _has_become_visible(handle, now_ms):
        raise PopRefused(ResponseCode.MESSAGE_ILLEGAL, LATE)
    if broker.pop.lives.is_former(header.topic, header.consumer_group, handle.pop_time_ms):
        raise PopRefused(
            ResponseCode.NO_MESSAGE,
            f"topic[{header.topic}] or group[{header.consumer_group}] was deleted since the message"
            " was popped",
        )
    return handle


def _has_become_visible(handle: PopHandle, now_ms: int) -> bool:
    """Whether the message's invisible time has ended, so that it is redelivered whatever the handle
    is used for. A message of an ordered pop is redelivered only by the next pop."""
    return not handle.is_ordered and handle.pop_time_ms + handle.invisible_ms <= now_ms


def _change_of(
    broker: BrokerContext,
    header: AckMessageRequest | ChangeInvisibleTimeRequest,
    handle: PopHandle,
) -> TimeChange | None:
    """Return the change of the message's time that was made with this handle; None if there was
    none."""
    return broker.pop.changes.get(_check_point_key(header, handle), QueueOffset(header.offset))


def _count_acked(
    broker: BrokerContext, group: str, topic: str, handle: PopHandle, messages: int
) -> None:
    """Count messages of a handle as acknowledged, in the statistics and the counts of messages in
    flight."""
    broker.statistics.count_acked(group, topic, messages)
    broker.pop.in_flight.count_acked(
        group, topic, handle.pop_time_ms + handle.invisible_ms, messages
    )


def _count_changed(
    broker: BrokerContext, header: ChangeInvisibleTimeRequest, handle: PopHandle, now_ms: int
) -> None:
    """Count a message as hidden until its new time, in the counts of messages in flight; an unknown
    group is not counted."""
    group, topic = header.consumer_group, header.topic
    if broker.groups.get(group) is None:
        return
    until_ms = handle.pop_time_ms + handle.invisible_ms
    broker.pop.in_flight.count_acked(group, topic, until_ms, 1)
    queue = PoppedQueue(topic, group, header.queue_id)
    until_ms, offset = now_ms + header.invisible_time, QueueOffset(header.offset)
    broker.pop.in_flight.count_popped(queue, offset, until_ms, 1, now_ms)


def _check_point_key(
    header: AckMessageRequest | ChangeInvisibleTimeRequest, handle: PopHandle
) -> CheckPointKey:
    """The key of the handle's check point."""
    return CheckPointKey(
        header.topic,
        header.consumer_group,
        header.queue_id,
        handle.start,
        handle.pop_time_ms,
        handle.broker_name,
    )


def _ack_ordered(
    broker: BrokerContext,
    request: Command,
    header: AckMessageRequest,
    handle: PopHandle,
    now_ms: int,
) -> Response:
    """Acknowledge a message of an ordered pop; answered once the queue's batch is recorded in the
    log."""
    queue = PoppedQueue(header.topic, header.consumer_group, header.queue_id)
    outcome = _apply_ordered_ack(
        broker, queue, QueueOffset(header.offset), handle.pop_time_ms, now_ms
    )
    if outcome is AckOutcome.UNKNOWN:
        return new_response(
            request, ResponseCode.MESSAGE_ILLEGAL, "the offset was not in the last pop"
        )
    if outcome is AckOutcome.IGNORED:
        return new_response(request, ResponseCode.MESSAGE_ILLEGAL, OTHER_POP)
    written = broker.pop.order_journal.write(queue, now_ms)
    return written.map(lambda status: _answer_status(request, status))


def _apply_ordered_ack(
    broker: BrokerContext, queue: PoppedQueue, offset: QueueOffset, pop_time_ms: int, now_ms: int
) -> AckOutcome | None:
    """Acknowledge a message of an ordered pop in the tables, and commit the group's offset; None if
    the acknowledgement is valid. It is safe once the batch is recorded in the log."""
    topic, group, queue_id = queue
    committed = broker.offsets.query(group, topic, queue_id)
    if offset < committed:
        return None
    after = broker.pop.orders.ack(*queue, offset, pop_time_ms)
    if isinstance(after, AckOutcome):
        return after
    if not broker.offsets.has_reset(group, topic, queue_id):
        broker.offsets.commit(group, topic, queue_id, after, now_ms)
    if not broker.pop.orders.blocked_until_ms(*queue, None, now_ms):
        broker.pop.waiters.on_arrival(topic, queue_id)
    return None


def _hide_ordered(
    broker: BrokerContext,
    request: Command,
    header: ChangeInvisibleTimeRequest,
    handle: PopHandle,
    now_ms: int,
) -> Response:
    """Change the time of a message of an ordered pop; answered once the queue's batch is recorded
    in the log."""
    queue = PoppedQueue(header.topic, header.consumer_group, header.queue_id)
    until_ms, offset = now_ms + header.invisible_time, QueueOffset(header.offset)
    is_one = broker.pop.orders.hide_message(*queue, offset, handle.pop_time_ms, until_ms)
    if not is_one:
        return new_response(request, ResponseCode.MESSAGE_ILLEGAL, OTHER_POP)
    broker.pop.wake_at(queue.topic, queue.queue_id, until_ms)
    found = ChangeInvisibleTimeResponse(
        handle.pop_time_ms, until_ms - handle.pop_time_ms, handle.revive_queue_id
    )
    done = new_response(request, ResponseCode.SUCCESS, header=found)
    written = broker.pop.order_journal.write(queue, now_ms)
    return written.map(
        lambda status: done if status is PutStatus.PUT_OK else _answer_status(request, status)
    )


def _change_time(
    broker: BrokerContext,
    request: Command,
    header: ChangeInvisibleTimeRequest,
    handle: PopHandle,
    now_ms: int,
) -> Deferred[Command | None]:
    """Change a message's time: store a new check point for the message, then acknowledge its old
    check point."""
    offset = QueueOffset(header.offset)
    log, queue_id = broker.pop.log, handle.revive_queue_id
    old = Acknowledgement(_check_point_key(header, handle), (offset,))
    time_ms = broker.pop.lives.pop_time_ms(header.topic, header.consumer_group, now_ms)
    pop_time_ms = _distinct_pop_time_ms(handle, offset, time_ms)
    key = old.key._replace(start=offset, pop_time_ms=pop_time_ms)
    new = CheckPoint(key, header.invisible_time, (0,), is_suspended=header.suspend)
    stored = log.add_check_point(new, queue_id, now_ms)
    if stored.done and stored.value is not PutStatus.PUT_OK:
        return stored.map(lambda status: _answer_status(request, status))
    # The acknowledgement follows the check point in the log at once: a crash cannot separate them,
    # so the message is delivered once.
    acked, written = log.add_ack(old, handle.invisible_ms, queue_id, now_ms), Deferred[PutStatus]()
    stored.then(
        lambda status: (
            acked.then(written.resolve) if status is PutStatus.PUT_OK else written.resolve(status)
        )
    )
    until_ms = handle.pop_time_ms + handle.invisible_ms
    change = TimeChange(pop_time_ms, header.invisible_time, written, until_ms)
    broker.pop.changes.add(old.key, offset, change, now_ms)
    return _answer_change(request, change, queue_id)


def _answer_change(
    request: Command, change: TimeChange, revive_queue_id: int
) -> Deferred[Command | None]:
    """Resolves to the answer to a changed time, once the change is safe or has failed."""

    def answer(status: PutStatus) -> Command:
        if status is not PutStatus.PUT_OK:
            return _answer_status(request, status)
        found = ChangeInvisibleTimeResponse(
            change.pop_time_ms, change.invisible_ms, revive_queue_id
        )
        return new_response(request, ResponseCode.SUCCESS, header=found)

    return change.written.map(answer)


def _distinct_pop_time_ms(handle: PopHandle, offset: QueueOffset, now_ms: int) -> int:
    """Return the pop time of the new check point, in ms. It differs from that of an old check point
    that begins with the same message, whose acknowledgement would otherwise count for the new one,
    too. RocketMQ uses the current time."""
    is_soon = now_ms <= handle.pop_time_ms < now_ms + SOON_MS
    return handle.pop_time_ms + 1 if is_soon and handle.start == offset else now_ms


def _ack_batch(broker: BrokerContext, request: Command, peer: Peer, now_ms: int) -> Steps[Response]:
    """Handle BATCH_ACK_MESSAGE in steps; answered once all acknowledgements are stored safely."""
    try:
        check_pops(broker)
    except PopRefused as refused:
        return new_response(request, refused.code, refused.remark)
    members = yield from object_in_steps(request.body)
    entries = members.get("acks")
    if not isinstance(entries, list) or not entries:
        return new_response(request, ResponseCode.NO_MESSAGE, "no acknowledgements")
    broker_name = read_text(members, "brokerName")
    pending: list[Deferred[PutStatus]] = []
    for at, entry in enumerate(entries):
        if at % ACKS_PER_STEP == ACKS_PER_STEP - 1:
            yield
        written = _ack_entry(broker, as_object(entry), broker_name, peer, now_ms)
        if written is not None:
            pending.append(written)
    return _answer_when_stored(request, pending)


def _ack_entry(
    broker: BrokerContext, entry: dict[str, Any], broker_name: str, peer: Peer, now_ms: int
) -> Deferred[PutStatus] | None:
    """Store the acknowledgements of a check point; resolves with their status, None for a queue
    that does not exist, as in RocketMQ, or for an invalid group name. Raises BadBody."""
    try:
        kind = RetryKind(read_text(entry, "r", RetryKind.NORMAL.value))
    except ValueError:
        raise BadBody("r is not 0, 1 or 2") from None
    group = read_text(entry, "c")
    topic = kind.topic_of(read_text(entry, "t"), group)
    parts = [read_int64(entry, name) for name in ("so", "pt", "it", "rq")]
    handle = " ".join(map(str, parts))
    queue_id = read_int64(entry, "q")
    try:
        check_group_name(group)
        given = handle_of(f"{handle} {kind.value} {broker_name} {queue_id}", broker)
        check_queue(broker, topic, queue_id, peer)
    except PopRefused:
        return None
    if broker.pop.lives.is_former(topic, group, given.pop_time_ms):
        return None  # the former life's messages are deleted
    if given.is_ordered and broker.pop.is_acting:
        return Deferred.resolved(PutStatus.SERVICE_NOT_AVAILABLE)
    if _has_become_visible(given, now_ms):
        return Deferred.resolved(PutStatus.MESSAGE_ILLEGAL)
    offsets = _acked_offsets_of(entry, given.start)
    _count_acked(broker, group, topic, given, len(offsets))
    key = CheckPointKey(topic, group, queue_id, given.start, given.pop_time_ms, given.broker_name)
    if given.is_ordered:
        queue = PoppedQueue(topic, group, queue_id)
        moved = [_apply_ordered_ack(broker, queue, at, given.pop_time_ms, now_ms) for at in offsets]
        return broker.pop.order_journal.write(queue, now_ms) if None in moved else None
    if not offsets:
        return None
    replaced = [at for at in offsets if broker.pop.changes.get(key, at) is not None]
    left = tuple(at for at in offsets if at not in replaced)
    if left:
        ack = Acknowledgement(key, left, is_batch=True)
        written = broker.pop.log.add_ack(ack, given.invisible_ms, given.revive_queue_id, now_ms)
    return Deferred.resolved(PutStatus.MESSAGE_ILLEGAL) if replaced else written


def _acked_offsets_of(entry: dict[str, Any], start: QueueOffset) -> list[QueueOffset]:
    """Return the queue offsets in the entry's bit set, counted from `start`. Raises BadBody."""
    try:
        bits = base64.b64decode(read_text(entry, "b"), validate=True)
    except (binascii.Error, ValueError):
        raise BadBody("b is not base64") from None
    if len(bits) > 8 * MESSAGES_MAX:
        raise BadBody(f"acknowledgements have {len(bits)} bytes")
    return list(acked_offsets(start, bits))


def _answer_when_stored(request: Command, pending: list[Deferred[PutStatus]]) -> Response:
    """Resolves to the answer when all writes have ended: an error if one failed."""

    def answer(statuses: list[PutStatus]) -> Command:
        failed = [one for one in statuses if one is not PutStatus.PUT_OK]
        return _answer_status(request, failed[-1] if failed else PutStatus.PUT_OK)

    return gather(pending).map(answer)


def _answer_status(request: Command, status: PutStatus) -> Command:
    """The answer for the status of a write: success, or SYSTEM_ERROR with the status."""
    if status is PutStatus.PUT_OK:
        return new_response(request, ResponseCode.SUCCESS)
    return new_response(request, ResponseCode.SYSTEM_ERROR, status.value)
