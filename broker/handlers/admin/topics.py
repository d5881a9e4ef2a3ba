"""Requests of operators for topics: create, delete, describe, list, clean up.

Owns UPDATE_AND_CREATE_TOPIC (17) and its list form (18), DELETE_TOPIC_IN_BROKER (215),
GET_TOPIC_STATS_INFO (202), GET_TOPIC_CONFIG (351), GET_ALL_TOPIC_CONFIG (21), the system topic list
(305), the groups of a topic (300) and the three clean-ups (306, 316, 329). It must never change a
topic except through the topic table.
"""

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from turbopump.broker.config.config import MAX_QUEUES_OF_TOPIC
from turbopump.broker.context import BrokerContext
from turbopump.broker.handlers.admin.deleting import deletion_time_ms
from turbopump.broker.handlers.json_responses import (
    MAX_LISTED,
    StepCounter,
    json_response,
    page_of_names,
    queue_key,
    response_in_steps,
    topic_list,
)
from turbopump.broker.tables.table_saver import not_saved
from turbopump.broker.tables.topic_attributes import (
    CLEANUP_POLICY,
    COMPACTION,
    BadAttributes,
    apply_attributes,
    parse_attributes,
)
from turbopump.broker.tables.topics import (
    DELETED_TIMES,
    DELETED_TOPICS,
    MAX_DELETED_TOPICS,
    MAX_TOPICS,
    QUEUE_COUNTS,
)
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.store_paths import is_folder_name
from turbopump.engine.fastjson import RawKeys
from turbopump.engine.json_steps import Lazy
from turbopump.engine.types import QueueOffset, StoreError
from turbopump.net.transport.dispatcher import Dispatcher, Response
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.admin import (
    CreateTopicRequest,
    DeleteTopicRequest,
    GetAllTopicConfigRequest,
    GetAllTopicConfigResponse,
    GetTopicConfigRequest,
    GetTopicStatsInfoRequest,
    QueryTopicConsumeByWhoRequest,
)
from turbopump.net.wire.names import validate_topic_name
from turbopump.net.wire.pop_handles import RetryKind
from turbopump.net.wire.topics import (
    MESSAGE_TYPE,
    MIXED,
    MULTI_TAG,
    PERM_INHERIT,
    PERM_PRIORITY,
    PERM_READ,
    PERM_WRITE,
    SINGLE_TAG,
    DataVersion,
    TopicConfig,
)

GROUPS_PER_STEP: Final = 2_000
"""Group names that one step of a topic's deletion looks up in a table: each takes some 2 us."""

_PRIORITY = "PRIORITY"
_ALL_PERMS = PERM_INHERIT | PERM_WRITE | PERM_READ | PERM_PRIORITY


class _Refused(Exception):
    """A topic configuration that is not allowed."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of this module's request codes to the table, which must not have them
    yet."""
    table.add(RequestCode.UPDATE_AND_CREATE_TOPIC, partial(_create_topic, broker))
    table.add(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, partial(_create_topics, broker))
    table.add(RequestCode.DELETE_TOPIC_IN_BROKER, partial(_delete_topic, broker))
    table.add(RequestCode.GET_TOPIC_STATS_INFO, partial(_topic_stats, broker))
    table.add(RequestCode.GET_TOPIC_CONFIG, partial(_topic_config, broker))
    table.add(RequestCode.GET_ALL_TOPIC_CONFIG, partial(_all_topics, broker, bodies.KeptBody()))
    table.add(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, partial(_system_topics, broker))
    table.add(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, partial(_who_consumes, broker))
    table.add(RequestCode.CLEAN_UNUSED_TOPIC, partial(_clean_unused_topics, broker))
    table.add(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, partial(_delete_expired, broker))
    table.add(RequestCode.DELETE_EXPIRED_COMMITLOG, partial(_delete_expired, broker))


def _create_topic(broker: BrokerContext, request: Command, _peer: Peer, now_ms: int) -> Response:
    """Handle 17: create or change a topic."""
    header = read_header(CreateTopicRequest, request.fields)
    wanted = TopicConfig(
        topic_name=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
        topic_filter_type=header.topic_filter_type,
        topic_sys_flag=header.topic_sys_flag or 0,
        order=bool(header.order),
    )
    try:
        attributes = parse_attributes(header.attributes)
        return _put_topics(broker, request, [_check_topic(broker, wanted, attributes)], now_ms)
    except BadAttributes as error:
        return new_response(request, ResponseCode.SYSTEM_ERROR, str(error))
    except _Refused as refused:
        return new_response(request, refused.code, refused.remark)


def _create_topics(
    broker: BrokerContext, request: Command, _peer: Peer, now_ms: int
) -> Steps[Response]:
    """Handle 18: create or change all topics of a list, or none of them."""
    members = yield from bodies.object_in_steps(request.body)
    listed = yield from bodies.items_in_steps(members, "topicConfigList", TopicConfig.from_json)
    if len(listed) > MAX_LISTED:
        remark = f"{len(listed)} topics in one request, over {MAX_LISTED}"
        return new_response(request, ResponseCode.INVALID_PARAMETER, remark)
    try:
        checked: list[TopicConfig] = []
        for wanted in listed:
            checked.append(_check_topic(broker, wanted, wanted.attributes))
            if len(checked) % bodies.READ == 0:
                yield
        return _put_topics(broker, request, checked, now_ms)
    except BadAttributes as error:
        return new_response(request, ResponseCode.SYSTEM_ERROR, str(error))
    except _Refused as refused:
        return new_response(request, refused.code, refused.remark)


def _put_topics(
    broker: BrokerContext, request: Command, topics: list[TopicConfig], now_ms: int
) -> Response:
    """Store the topics; answered once the name servers have them, so that the next route request
    sees the change."""
    known = broker.topics
    changed = [topic for topic in topics if known.peek_topic(topic.topic_name) != topic]
    if not changed:
        return new_response(request, ResponseCode.SUCCESS)
    new = sum(known.peek_topic(topic.topic_name) is None for topic in changed)
    if len(known) + new > MAX_TOPICS:
        remark = f"a broker holds at most {MAX_TOPICS} topics"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    broker.topics.put_all(changed, now_ms)
    announced = broker.register_topics([topic.topic_name for topic in changed])
    return announced.map(lambda _nothing: new_response(request, ResponseCode.SUCCESS))


def _check_topic(
    broker: BrokerContext, wanted: TopicConfig, attributes: Mapping[str, str]
) -> TopicConfig:
    """Return the topic with its final attributes, if its configuration is allowed. Raises _Refused,
    BadAttributes."""
    name = wanted.topic_name
    wrong = validate_topic_name(name)
    if wrong is not None:
        raise _Refused(ResponseCode.INVALID_PARAMETER, wrong)
    _check_not_system(broker, name)
    for queues in (wanted.read_queue_nums, wanted.write_queue_nums):
        if not 0 <= queues <= MAX_QUEUES_OF_TOPIC:
            remark = f"queue nums of topic {name} must be 0 to {MAX_QUEUES_OF_TOPIC}, not {queues}"
            raise _Refused(ResponseCode.INVALID_PARAMETER, remark)
    if not 0 <= wanted.perm <= _ALL_PERMS:
        remark = f"perm of topic {name} must be 0 to {_ALL_PERMS}, not {wanted.perm}"
        raise _Refused(ResponseCode.INVALID_PARAMETER, remark)
    if wanted.topic_filter_type not in (SINGLE_TAG, MULTI_TAG):
        remark = f"topicFilterType {wanted.topic_filter_type} must be SINGLE_TAG or MULTI_TAG"
        raise _Refused(ResponseCode.INVALID_PARAMETER, remark)
    if attributes.get(f"+{MESSAGE_TYPE}") == MIXED:
        remark = "MIXED message type is not supported."
        raise _Refused(ResponseCode.INVALID_PARAMETER, remark)
    if attributes.get(f"+{CLEANUP_POLICY}") == COMPACTION:
        # Without compaction the newest value of a key would be deleted with its log file.
        remark = f"{CLEANUP_POLICY}={COMPACTION} is not supported, enableCompaction is false."
        raise _Refused(ResponseCode.INVALID_PARAMETER, remark)
    known = broker.topics.get(name)
    had_priorities = known is not None and known.attributes.get(MESSAGE_TYPE) == _PRIORITY
    if attributes.get(f"+{MESSAGE_TYPE}") == _PRIORITY and not had_priorities:
        # Its messages would be delivered in order of arrival, not by priority.
        remark = f"{MESSAGE_TYPE}={_PRIORITY} is not supported: priorities are not served"
        raise _Refused(ResponseCode.INVALID_PARAMETER, remark)
    wanted.attributes = apply_attributes(known.attributes if known else None, attributes)
    return wanted


def _check_not_system(broker: BrokerContext, name: str) -> None:
    """Raise _Refused for a system topic, unless validateSystemTopicWhenUpdateTopic is false."""
    if broker.config.validate_system_topic_when_update_topic and broker.topics.is_system(name):
        remark = f"The topic[{name}] is conflict with system topic."
        raise _Refused(ResponseCode.INVALID_PARAMETER, remark)


def _delete_topic(
    broker: BrokerContext, request: Command, _peer: Peer, now_ms: int
) -> Steps[Response]:
    """Handle 215: delete a topic's configuration, offsets and queues, and the pop retry topics of
    its groups."""
    name = read_header(DeleteTopicRequest, request.fields).topic
    wrong = validate_topic_name(name)
    if wrong is not None and (broker.topics.get(name) is None or not is_folder_name(name)):
        # RocketMQ answers 0 and does nothing. A topic created under older name rules may still be
        # deleted.
        return new_response(request, ResponseCode.INVALID_PARAMETER, wrong)
    try:
        _check_not_system(broker, name)
    except _Refused as refused:
        return new_response(request, refused.code, refused.remark)
    if not broker.role.is_master:
        # mqadmin sends 215 to all brokers of a group. A replica deletes the topic when it reaches
        # the place in the log where the master's was deleted: a later life of the topic may have
        # begun after it.
        return new_response(request, ResponseCode.SUCCESS)
    doomed = [name]
    groups = yield from broker.offsets.groups_in_steps(name)
    for number, group in enumerate(groups, 1):
        for kind in (RetryKind.RETRY_V1, RetryKind.RETRY_V2):
            retry = kind.topic_of(name, group)
            is_there = broker.topics.get(retry) is not None
            if is_there and broker.pop.retry_names.belongs_to_group(kind, name, group):
                doomed.append(retry)
        if number % GROUPS_PER_STEP == 0:
            yield
    return _delete_all(broker, request, doomed, now_ms)


def _delete_all(
    broker: BrokerContext, request: Command, doomed: list[str], now_ms: int
) -> Deferred[Command]:
    """Delete the topics in `doomed` one by one with their queues and offsets; resolves to the
    answer once all are deleted and the table without them is durable."""
    answered: Deferred[Command] = Deferred()
    left = deque(doomed)

    def saved(error: OSError | None) -> None:
        answered.resolve(
            new_response(request, ResponseCode.SUCCESS)
            if error is None
            else not_saved(request, error)
        )

    def deleted(topic: str, deleted_ms: int, error: StoreError | None) -> None:
        if error is None and not broker.role.is_master:
            error = StoreError("this broker became a replica meanwhile")
        if error is not None:
            answered.resolve(new_response(request, ResponseCode.SYSTEM_ERROR, str(error)))
            return
        broker.offsets.remove_topic(topic, deleted_ms)
        broker.pop.forget_topic(topic)
        former = broker.topics.get(topic)
        count = 0 if former is None else former.read_queue_nums
        for group in broker.consumers.online_groups_of(topic):
            broker.offsets.reset_for_next_life(group, topic, count)
        broker.topics.delete(topic, now_ms)
        broker.statistics.forget_topic(topic)
        delete_next()

    def delete_next() -> None:
        if left:
            # Retry topics are popped until they are deleted, so each deletion needs its own, later
            # time.
            time_ms = deletion_time_ms(broker, now_ms)
            topic = left.popleft()
            _delete_queues(broker, topic, time_ms).then(partial(deleted, topic, time_ms))
        else:
            broker.saver.when_saved().then(saved)

    delete_next()
    return answered


def _delete_queues(broker: BrokerContext, topic: str, now_ms: int) -> Deferred[StoreError | None]:
    """Delete the topic's queues; resolves to None, or to the error."""
    gone = broker.store.deletions.delete(topic, now_ms)
    broker.store.statistics.forget_topic(topic)
    # Sends and pulls of the topic now take the handlers, which refuse them.
    broker.topics.on_replace([topic])
    return gone


def _topic_stats(
    broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int
) -> Steps[Command]:
    """Answer 202 with the first and last offset of each queue, and the time of its last message."""
    name = read_header(GetTopicStatsInfoRequest, request.fields).topic
    topic = broker.topics.get(name)
    if topic is None:
        remark = f"topic[{name}] not exist"
        return new_response(request, ResponseCode.TOPIC_NOT_EXIST, remark)
    stats: dict[str, dict[str, int]] = RawKeys()
    pace = StepCounter()
    for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
        key = queue_key(name, broker.config.broker_name, queue_id)
        stats[key] = _queue_stats(broker, name, queue_id)
        if pace.count_and_check():
            yield
    body = {"offsetTable": stats, "topicPutTps": broker.statistics.put_tps(name)}
    return (yield from response_in_steps(request, body))


def _queue_stats(broker: BrokerContext, topic: str, queue_id: int) -> dict[str, int]:
    """The queue's offsets and the time of its last message, in the JSON form of RocketMQ's
    TopicOffset."""
    end = broker.store.max_queue_offset(topic, queue_id)
    updated_ms = 0
    if end > 0:
        updated_ms = broker.store.store_timestamp_ms(topic, queue_id, QueueOffset(end - 1))
    return {
        "lastUpdateTimestamp": updated_ms,
        "maxOffset": end,
        "minOffset": max(broker.store.min_queue_offset(topic, queue_id), 0),
    }


def _topic_config(broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int) -> Command:
    """Answer 351 with a topic's configuration."""
    name = read_header(GetTopicConfigRequest, request.fields).topic
    topic = broker.topics.get(name)
    if topic is None:
        remark = f"No topic in this broker. topic: {name}"
        return new_response(request, ResponseCode.TOPIC_NOT_EXIST, remark)
    return json_response(request, topic.to_json())


def _all_topics(
    broker: BrokerContext, kept: bodies.KeptBody, request: Command, _peer: Peer, _now_ms: int
) -> Steps[Command]:
    """Answer 21 with the whole table, or a page of it; static topics do not exist here."""
    header = read_header(GetAllTopicConfigRequest, request.fields)
    everything = broker.topics.names()
    version = broker.topics.data_version
    names = page_of_names(
        everything, header.topic_seq, header.max_topic_num, header.data_version, version
    )
    # The common answer is cached; a replica's request has fields and gets a longer answer.
    is_common = len(names) == len(everything) and not request.fields
    key = broker.topics.change_marker if is_common else None
    body: dict[str, Any] = {
        "dataVersion": version.to_json(),
        "mappingDataVersion": DataVersion(timestamp=broker.started_ms).to_json(),
        "topicConfigTable": broker.topics.encode_rows(names),
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    if DELETED_TOPICS in request.fields and not header.topic_seq:
        deleted = broker.store.deletions.former_life_ends()
        body[DELETED_TOPICS] = dict(list(deleted.items())[-MAX_DELETED_TOPICS:])
        times = broker.store.deletions.deletion_times()
        body[DELETED_TIMES] = {
            name: times[name] for name in body[DELETED_TOPICS] if times.get(name)
        }
    if QUEUE_COUNTS in request.fields and not header.topic_seq and broker.role.is_master:
        counts = broker.store.idle_counts()
        body[QUEUE_COUNTS] = Lazy(
            counts, lambda queues: {str(queue_id): count for queue_id, count in queues.items()}
        )
    total = GetAllTopicConfigResponse(len(everything))
    response = yield from response_in_steps(request, body, total, kept=kept, key=key)
    broker.saver.promise_nothing()  # the answer does not promise that the table is saved
    return response


def _system_topics(broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int) -> Command:
    """Answer 305 with the names of all system topics."""
    return json_response(request, topic_list(broker.topics.system_topics()))


def _who_consumes(
    broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int
) -> Steps[Command]:
    """Answer 300 with the groups that have offsets in the topic or subscribe to it."""
    topic = read_header(QueryTopicConsumeByWhoRequest, request.fields).topic
    groups = yield from broker.offsets.groups_in_steps(topic)
    online = broker.consumers.online_groups_of(topic)
    if online:
        groups = yield from bodies.sort_in_steps({*groups, *online})
    return (yield from response_in_steps(request, {"groupList": groups}))


def _clean_unused_topics(
    broker: BrokerContext, request: Command, _peer: Peer, now_ms: int
) -> Steps[Response]:
    """Handle 316: delete the queues of topics that have no configuration."""
    unused: deque[str] = deque()
    # On a replica, the log may have topics that its table receives later.
    for number, topic in enumerate(broker.store.topics() if broker.role.is_master else [], 1):
        if broker.topics.get(topic) is None and not broker.topics.is_system(topic):
            unused.append(topic)
        if number % GROUPS_PER_STEP == 0:
            yield
    return _delete_unused_queues(broker, request, unused, now_ms)


def _delete_unused_queues(
    broker: BrokerContext, request: Command, unused: deque[str], now_ms: int
) -> Deferred[Command]:
    """Delete the queues of the `unused` topics one by one; resolves to the answer."""
    answered: Deferred[Command] = Deferred()

    def cleaned(error: StoreError | None) -> None:
        if error is not None:
            answered.resolve(new_response(request, ResponseCode.SYSTEM_ERROR, str(error)))
            return
        while unused:
            topic = unused.popleft()
            # Meanwhile the topic may have been created, or this broker may have become a replica.
            if broker.topics.get(topic) is None and broker.role.is_master:
                _delete_queues(broker, topic, deletion_time_ms(broker, now_ms)).then(cleaned)
                return
        answered.resolve(new_response(request, ResponseCode.SUCCESS))

    cleaned(None)
    return answered


def _delete_expired(
    broker: BrokerContext, request: Command, _peer: Peer, now_ms: int
) -> Deferred[Command]:
    """Handle 306 and 329: delete expired log files, and the queue files that point into them."""

    def reply(found: int | OSError) -> Command:
        if isinstance(found, OSError):
            text = f"the ages of the log's files cannot be read: {found}"
            return new_response(request, ResponseCode.SYSTEM_ERROR, text)
        return new_response(request, ResponseCode.SUCCESS)

    return broker.store.deleting_expired(now_ms).map(reply)
