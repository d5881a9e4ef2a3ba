"""Requests of operators for the progress of groups: lags, time spans, resets, copies.

Owns GET_CONSUME_STATS (208), GET_BROKER_CONSUME_STATS (317), QUERY_CONSUME_TIME_SPAN (303),
QUERY_CORRECTION_OFFSET (308), CLONE_GROUP_OFFSET (314), INVOKE_BROKER_TO_RESET_OFFSET (222) and the
tables a replica copies (43, 45). It must never move a group's offsets without a request.
"""

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any, Final

from turbopump.broker.context import BrokerContext
from turbopump.broker.ha.metadata.former import LIVES, known_deletions
from turbopump.broker.handlers.client_relay import push_reset
from turbopump.broker.handlers.json_responses import (
    StepCounter,
    json_response,
    queue_key,
    queue_map_in_steps,
    response_in_steps,
    too_long,
)
from turbopump.broker.pop.acting_journal import POP_NOTES, RETURN_NUMBER, TAKES_NOTES
from turbopump.broker.tables.consumer_lag import waited_ms, waiting_since
from turbopump.engine import fastjson
from turbopump.engine.disk.json_table import Content
from turbopump.engine.fastjson import RawKeys
from turbopump.engine.json_steps import LazyItems
from turbopump.engine.types import Boundary, QueueOffset
from turbopump.net.transport.dispatcher import Dispatcher, Response
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.bodies import as_int
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.admin import (
    CloneGroupOffsetRequest,
    GetBrokerConsumeStatsRequest,
    GetConsumeStatsRequest,
    QueryConsumeTimeSpanRequest,
    QueryCorrectionOffsetRequest,
)
from turbopump.net.wire.headers.clients import ResetOffsetRequest
from turbopump.net.wire.names import validate_group_name
from turbopump.net.wire.queues import MessageQueue

MAX_INLINE_QUEUES: Final = 2_000
"""Maximum queues with offsets whose answer to 43 is written on the loop, each in some 3 us; a
larger answer is written by another thread."""
QUEUES_PER_STEP: Final = 100
"""Queues that one step of a handler looks up in the store: each takes 10 to 100 us."""
OFFSETS_PER_STEP: Final = 1_000
"""Offsets of groups that one step of a handler reads or sets: each takes some 2 us."""
_PROGRESS_MIN: Final = 100
"""Bytes of a queue's progress, without its key."""
_INT64_MAX: Final = 2**63 - 1


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of this module's request codes to the table, which must not have them
    yet."""
    table.add(RequestCode.GET_CONSUME_STATS, partial(_consume_stats, broker))
    table.add(RequestCode.GET_BROKER_CONSUME_STATS, partial(_broker_consume_stats, broker))
    table.add(RequestCode.QUERY_CONSUME_TIME_SPAN, partial(_time_span, broker))
    table.add(RequestCode.QUERY_CORRECTION_OFFSET, partial(_correction_offset, broker))
    table.add(RequestCode.CLONE_GROUP_OFFSET, partial(_clone_offsets, broker))
    table.add(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, partial(_reset_offset, broker))
    table.add(RequestCode.GET_ALL_CONSUMER_OFFSET, partial(_all_offsets, broker))
    table.add(RequestCode.GET_ALL_DELAY_OFFSET, partial(_delay_offsets, broker))


def _consume_stats(
    broker: BrokerContext, request: Command, _peer: Peer, now_ms: int
) -> Steps[Command]:
    """Answer 208; an unknown group gets an empty table, which mqadmin reports as an error.

    `popInflight` is Turbopump's own member, ignored by RocketMQ's tools: the number of messages of
    each topic that are popped and not yet acknowledged. RocketMQ's answer omits them, because the
    offset of a group that pops is already past them.
    """
    header = read_header(GetConsumeStatsRequest, request.fields)
    group = header.consumer_group
    topics: Iterable[str]
    if header.topic and header.topic.strip():
        topics = [header.topic]
    elif header.topic_list:
        topics = [name for name in header.topic_list.split(";") if name]
    else:
        topics = yield from broker.offsets.topics_in_steps(group)
    table: dict[str, dict[str, int]] = RawKeys()
    popped: dict[str, int] = {}
    pace = StepCounter()
    rate = 0.0
    for topic in dict.fromkeys(topics):
        known = broker.topics.get(topic)
        if known is not None and _is_shown(broker, group, topic):
            queues = known.read_queue_nums
            yield from _add_progress(broker, pace, table, group, topic, queues, now_ms)
            if pace.is_too_long:
                return too_long(request)
            rate += broker.statistics.delivered_tps(group, topic)
            held = broker.pop.unacked_pops(topic, group).messages
            if held:
                popped[topic] = held
    body = {"consumeTps": rate, "offsetTable": table}
    if popped:
        body["popInflight"] = popped
    return (yield from response_in_steps(request, body))


def _broker_consume_stats(
    broker: BrokerContext, request: Command, _peer: Peer, now_ms: int
) -> Steps[Command]:
    """Answer 317 with every group of the broker and its progress in each of its topics."""
    only_ordered = read_header(GetBrokerConsumeStatsRequest, request.fields).is_order
    listed: list[dict[str, Any]] = []
    behind = in_flight = 0
    pace = StepCounter()
    topics = yield from broker.offsets.topics_by_group()
    for group in broker.groups.all_groups():
        if pace.count_and_check():
            yield
        of_group: list[dict[str, Any]] = []
        for topic in sorted(topics.get(group, ())):
            if pace.count_and_check():
                yield
            known = broker.topics.get(topic)
            if known is None or (only_ordered and not known.order):
                continue
            if not _is_shown(broker, group, topic):
                continue
            queues: dict[str, dict[str, int]] = RawKeys()
            count = known.write_queue_nums
            yield from _add_progress(broker, pace, queues, group, topic, count, now_ms)
            if pace.is_too_long:
                return too_long(request)
            for queue in queues.values():
                behind += queue["brokerOffset"] - queue["consumerOffset"]
                in_flight += max(queue["pullOffset"] - queue["consumerOffset"], 0)
            of_group.append(
                {
                    "consumeTps": broker.statistics.delivered_tps(group, topic),
                    "offsetTable": queues,
                }
            )
        listed.append({group: of_group})
    body = {
        "brokerAddr": broker.address,
        "consumeStatsList": listed,
        "totalDiff": behind,
        "totalInflightDiff": in_flight,
    }
    return (yield from response_in_steps(request, body))


def _is_shown(broker: BrokerContext, group: str, topic: str) -> bool:
    """Whether the topic is shown in the group's progress: an online group shows only topics that it
    subscribes to."""
    if broker.consumers.subscription_count(group) == 0:
        return True
    return broker.consumers.find_subscription(group, topic) is not None


def _add_progress(
    broker: BrokerContext,
    pace: StepCounter,
    table: dict[str, dict[str, int]],
    group: str,
    topic: str,
    queues: int,
    now_ms: int,
) -> Steps[None]:
    """Add the progress of the group in the topic's queues to `table`, in the JSON form of
    RocketMQ's OffsetWrapper, in steps, until it no longer fits into an answer; unknown values are
    0.

    `delayTime` and `delayTimeKnown` are Turbopump's own members, ignored by RocketMQ's tools: how
    long the next message has waited, in ms, and whether that is its exact wait."""
    store, offsets = broker.store, broker.offsets
    for queue_id in range(queues):
        if pace.count_and_check():
            yield
        consumed = max(offsets.query(group, topic, queue_id), 0)
        stored_ms = 0
        if consumed > 0:
            last = QueueOffset(consumed - 1)
            stored_ms = max(store.store_timestamp_ms(topic, queue_id, last), 0)
        key = queue_key(topic, broker.config.broker_name, queue_id)
        pace.add_size(len(key) + _PROGRESS_MIN)
        if pace.is_too_long:
            return
        since = waiting_since(store, topic, queue_id, consumed)
        table[key] = {
            "brokerOffset": store.max_queue_offset(topic, queue_id),
            "consumerOffset": consumed,
            "delayTime": waited_ms(since, now_ms),
            "delayTimeKnown": since[1],
            "lastTimestamp": stored_ms,
            "pullOffset": max(offsets.query_pull(group, topic, queue_id), 0),
        }


def _time_span(broker: BrokerContext, request: Command, _peer: Peer, now_ms: int) -> Steps[Command]:
    """Answer 303: for each queue, the store times of its first, last and consumed message."""
    header = read_header(QueryConsumeTimeSpanRequest, request.fields)
    topic = broker.topics.get(header.topic)
    if topic is None:
        remark = f"topic[{header.topic}] not exist"
        return new_response(request, ResponseCode.TOPIC_NOT_EXIST, remark)
    queues = LazyItems(
        range(topic.write_queue_nums),
        lambda queue_id: _queue_time_span(broker, header.group, header.topic, queue_id, now_ms),
    )
    return (yield from response_in_steps(request, {"consumeTimeSpanSet": queues}))


def _queue_time_span(
    broker: BrokerContext, group: str, topic: str, queue_id: int, now_ms: int
) -> dict[str, Any]:
    """The store times of a queue's first, last and consumed message, in the JSON form of RocketMQ's
    QueueTimeSpan."""
    store = broker.store
    end = store.max_queue_offset(topic, queue_id)
    consumed = broker.offsets.query(group, topic, queue_id)

    def stored_ms(queue_offset: int) -> int:
        return store.store_timestamp_ms(topic, queue_id, QueueOffset(queue_offset))

    first_ms = stored_ms(store.min_queue_offset(topic, queue_id))
    consumed_ms = stored_ms(consumed - 1) if consumed > 0 else first_ms
    next_ms = stored_ms(max(consumed, 0)) if consumed < end else -1
    last_ms = stored_ms(end - 1) if end > 0 else -1
    return {
        "consumeTimeStamp": consumed_ms,
        "consumeTimeStampStr": _clock_text(consumed_ms),
        "delayTime": max(now_ms - next_ms, 0) if next_ms > 0 else 0,
        "maxTimeStamp": last_ms,
        "maxTimeStampStr": _clock_text(last_ms),
        "messageQueue": MessageQueue(topic, broker.config.broker_name, queue_id).to_json(),
        "minTimeStamp": first_ms,
        "minTimeStampStr": _clock_text(first_ms),
    }


def _clock_text(at_ms: int) -> str:
    """The time (epoch ms) as local time, in the format of RocketMQ's QueueTimeSpan."""
    clock = datetime.fromtimestamp(at_ms // 1000)
    return f"{clock:%Y-%m-%d#%H:%M:%S}:{at_ms % 1000:03d}"


def _correction_offset(
    broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int
) -> Steps[Command]:
    """Answer 308 with the lowest progress of all groups by queue, without queues where the compared
    group has the lowest.

    RocketMQ also deletes the progress of the filtered groups; here they are only left out.
    """
    header = read_header(QueryCorrectionOffsetRequest, request.fields)
    filtered = {name for name in (header.filter_groups or "").split(",") if name}
    lowest: dict[int, int] = {}
    number = 0
    for group in (yield from broker.offsets.groups_in_steps(header.topic)):
        if group in filtered:
            continue
        for queue_id, queue_offset in broker.offsets.queues_of(group, header.topic).items():
            if queue_offset >= broker.store.min_queue_offset(header.topic, queue_id):
                lowest[queue_id] = min(queue_offset, lowest.get(queue_id, _INT64_MAX))
            number += 1
            if number % OFFSETS_PER_STEP == 0:
                yield
    compared = broker.offsets.queues_of(header.compare_group, header.topic)
    for number, (queue_id, queue_offset) in enumerate(compared.items(), 1):
        if lowest.get(queue_id, _INT64_MAX) > queue_offset:
            lowest[queue_id] = _INT64_MAX
        if number % OFFSETS_PER_STEP == 0:
            yield
    # Keys are quoted: the fastjson2 of mqadmin 5.5.0 refuses bare numbers, and every version reads
    # text.
    return (yield from response_in_steps(request, {"correctionOffsets": lowest}))


def _clone_offsets(
    broker: BrokerContext, request: Command, _peer: Peer, now_ms: int
) -> Steps[Command]:
    """Handle 314: copy a group's offsets to another group, in one topic or in all topics of the
    source."""
    header = read_header(CloneGroupOffsetRequest, request.fields)
    source = header.src_group
    if not source and not header.dest_group:
        return new_response(request, ResponseCode.SUCCESS)  # as RocketMQ without names
    wrong = validate_group_name(header.dest_group)
    if wrong is not None:  # RocketMQ accepts any name
        return new_response(request, ResponseCode.INVALID_PARAMETER, wrong)
    if header.topic:
        topics = [header.topic]
    else:
        topics = yield from broker.offsets.topics_in_steps(source)
    for number, topic in enumerate(topics, 1):
        if number % OFFSETS_PER_STEP == 0:
            yield
        if broker.topics.get(topic) is None:
            continue
        if header.offline or _is_shown(broker, source, topic):
            for _ in broker.offsets.clone_offsets(source, header.dest_group, topic, now_ms):
                yield
    return new_response(request, ResponseCode.SUCCESS)


def _reset_offset(
    broker: BrokerContext, request: Command, _peer: Peer, now_ms: int
) -> Steps[Command]:
    """Handle 222: each queue's next pull gets the new offset, and held pulls are answered with it
    at once. With useServerSideResetOffset=false the online clients are notified instead (220)."""
    header = read_header(ResetOffsetRequest, request.fields)
    topic = broker.topics.get(header.topic)
    if topic is None:
        remark = f"Topic {header.topic} does not exist"
        return new_response(request, ResponseCode.TOPIC_NOT_EXIST, remark)
    if broker.groups.get(header.group) is None:
        remark = f"Group {header.group} does not exist"
        return new_response(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    if not broker.config.use_server_side_reset_offset:
        queues = topic.write_queue_nums
        return (yield from _reset_by_clients(broker, request, header, queues, now_ms))
    asked = range(topic.read_queue_nums)
    if header.queue_id >= 0:
        if header.queue_id not in asked:
            remark = f"queue {header.queue_id} is not one of {len(asked)} of topic {header.topic}"
            return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
        asked = range(header.queue_id, header.queue_id + 1)
    targets: dict[int, QueueOffset] = {}
    for queue_id in asked:
        targets[queue_id] = _offset_at(broker, header.topic, queue_id, header.timestamp, now_ms)
        if len(targets) % QUEUES_PER_STEP == 0:
            yield
    if header.queue_id >= 0 and header.offset is not None and header.offset != -1:
        first = broker.store.min_queue_offset(header.topic, header.queue_id)
        end = broker.store.max_queue_offset(header.topic, header.queue_id)
        if not first <= header.offset <= end + 1:
            remark = f"Target offset {header.offset} not in consume queue range [{first}-{end}]"
            return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
        targets[header.queue_id] = QueueOffset(header.offset)
    if not targets:
        return new_response(request, ResponseCode.SYSTEM_ERROR, "No queues to reset.")
    for number, (queue_id, target) in enumerate(targets.items(), 1):
        broker.offsets.set_reset(header.group, header.topic, queue_id, target, now_ms)
        broker.held_pulls.attempt_all(header.topic, queue_id)
        if number % QUEUES_PER_STEP == 0:
            yield
            if broker.topics.get(header.topic) is not topic:
                remark = f"Topic {header.topic} was changed meanwhile"
                return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    table = yield from queue_map_in_steps(header.topic, broker.config.broker_name, targets)
    return (yield from response_in_steps(request, {"offsetTable": table}))


def _reset_by_clients(
    broker: BrokerContext, request: Command, header: ResetOffsetRequest, queues: int, now_ms: int
) -> Steps[Command]:
    """Handle 222 with useServerSideResetOffset=false: compute the queues' new offsets and notify
    the online clients (220)."""
    targets: dict[MessageQueue, QueueOffset] = {}
    for queue_id in range(queues):
        consumed = broker.offsets.query(header.group, header.topic, queue_id)
        if consumed < 0:
            remark = f"THe consumer group <{header.group}> not exist"
            return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
        target = _offset_at(broker, header.topic, queue_id, header.timestamp, now_ms)
        queue = MessageQueue(header.topic, broker.config.broker_name, queue_id)
        targets[queue] = target if header.is_force else min(target, consumed)
        if len(targets) % QUEUES_PER_STEP == 0:
            yield
    return (yield from push_reset(broker, request, header, targets))


def _offset_at(
    broker: BrokerContext, topic: str, queue_id: int, timestamp_ms: int, now_ms: int
) -> QueueOffset:
    """Return the queue offset of the first message stored at or after `timestamp_ms` (epoch ms); a
    negative time means the end of the queue."""
    if timestamp_ms < 0:
        return broker.store.max_queue_offset(topic, queue_id)
    return broker.store.search_time_until_now(topic, queue_id, timestamp_ms, Boundary.LOWER, now_ms)


def _all_offsets(
    broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int
) -> Steps[Response]:
    """Answer 43 with the content of consumerOffset.json, for a replica.

    A Turbopump broker may instead ask for the notes of pops that were served by an acting replica,
    after a given number (`popNotes`), or for the times of deletions (`deletionTimes`). It may also
    ask whether this master accepts such notes.
    """
    if LIVES in request.fields:
        return json_response(request, {LIVES: known_deletions(broker)})
    after = request.fields.get(POP_NOTES)
    if after is not None:
        number = as_int(request.fields.get(RETURN_NUMBER, "0"), RETURN_NUMBER)
        page = broker.pop.notes.notes_after(as_int(after, POP_NOTES), number)
        return json_response(request, {POP_NOTES: page})
    replication = broker.config.replication
    takes = replication.waits_to_lead or (
        replication.is_elected and replication.enable_slave_acting_master
    )
    fields = {TAKES_NOTES: "true"} if takes and TAKES_NOTES in request.fields else None
    if broker.offsets.queue_count <= MAX_INLINE_QUEUES:
        return _with_content(request, broker.offsets.take_content(), fields)
    content = yield from broker.offsets.take_in_steps()

    def answered(response: Command | OSError) -> Command:
        if isinstance(response, Command):
            return response
        return new_response(request, ResponseCode.SYSTEM_ERROR, str(response))

    return broker.saver.run_on_disk_thread(lambda: _with_content(request, content, fields)).map(
        answered
    )


def _with_content(
    request: Command, content: Content, fields: dict[str, str] | None = None
) -> Command:
    """Build a successful answer with the content of a configuration file as its body."""
    body = b"".join([fastjson.strip_layout(piece) for piece in content()])
    return new_response(request, ResponseCode.SUCCESS, body=body, fields=fields)


def _delay_offsets(broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int) -> Command:
    """Answer 45 with the content of delayOffset.json for a replica, its integer keys quoted.

    RocketMQ sends its current progress; a replica that adopts it without having the last deliveries
    in its log never makes them. Turbopump sends only progress whose deliveries the replica can
    have.
    """
    body = {
        "dataVersion": broker.delay.durable.data_version.to_json(),
        "offsetTable": broker.delay.safe_progress(),
    }
    return json_response(request, body)
