"""The table of rights: which resources and actions each request code needs.

Owns the needs of every request of a broker. It must
never decide whether a user has them, nor change anything.

A code without an entry is for super users alone. A field that names a resource must be there, and a
request that reads a record needs the record's own topic, and not the topic in its fields.

Tests: tests/unit/broker/handlers/test_guarding.py
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Protocol

from turbopump.broker.auth.policies import Action, Need, ResourceType
from turbopump.net.wire.bodies import as_object, read_list, read_text
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.message_id import decode_message_id
from turbopump.net.wire.names import RETRY_PREFIX
from turbopump.net.wire.pop_handles import RetryKind, original_topic

Actions = frozenset[Action]
"""Actions of a need, of which one must be allowed."""

PUB: Final = frozenset({Action.PUB})
SUB: Final = frozenset({Action.SUB})
GET: Final = frozenset({Action.GET})
CREATE: Final = frozenset({Action.CREATE})
UPDATE: Final = frozenset({Action.UPDATE})
DELETE: Final = frozenset({Action.DELETE})
SUB_OR_GET: Final = SUB | GET
SUB_OR_UPDATE: Final = SUB | UPDATE
CHANGE: Final = CREATE | UPDATE


class NoRight(Exception):
    """A request whose needs cannot be known: a field is missing or malformed."""


class RequestFacts(Protocol):
    """The state of the broker, on which the needs of a request depend besides its fields."""

    @property
    def cluster(self) -> str:
        """Name of the broker's cluster."""

    def has_topic(self, name: str) -> bool:
        """Whether the topic exists."""
        ...

    def has_group(self, name: str) -> bool:
        """Whether the group exists."""
        ...

    def owns_retry_topic(self, group: str, topic: str) -> bool:
        """Whether `%RETRY%group_topic` is that group's retry topic for that topic: another pair of
        names may have the same one."""
        ...

    def topic_at(self, log_offset: int) -> str | None:
        """The topic of the record at a log offset, of a half message that of its commit; None
        without a record."""
        ...


Right = Callable[[Command, RequestFacts], Iterable[Need]]
"""Returns the needs of a request by its fields; all must be allowed. Raises NoRight."""
Members = dict[str, Any]
"""The members of a JSON body."""
BodyRight = Callable[[Members, RequestFacts], Iterable[Need]]
"""Returns the needs of a request by its body; all must be allowed. Raises NoRight or BadBody."""


def _topic(name: str, actions: Actions) -> Need:
    """The need of a topic."""
    return Need(ResourceType.TOPIC, name, actions)


def _group(name: str, actions: Actions) -> Need:
    """The need of a group."""
    return Need(ResourceType.GROUP, name, actions)


def _field(request: Command, name: str) -> str:
    """Return a field that is not blank. Raises NoRight."""
    value = request.fields.get(name, "")
    if not value.strip():
        raise NoRight(f"the field {name} is missing")
    return value


def needs_of_topic(
    topic: str,
    actions: Actions,
    facts: RequestFacts,
    group: str = "",
    of_group: Actions | None = None,
) -> list[Need]:
    """Return the needs of a topic that a request names beside `group`, for which the caller adds a
    need.

    A retry topic needs its group, by `of_group` (None: `actions`); the own group's retry topic of
    pops needs the topic that was popped.
    """
    if not topic.startswith(RETRY_PREFIX):
        return [_topic(topic, actions)]
    owner = topic.removeprefix(RETRY_PREFIX)
    if group and owner == group:
        return []
    if group and (popped := original_topic(group, topic)) != topic:
        is_v2 = topic == RetryKind.RETRY_V2.topic_of(popped, group)
        if is_v2 or facts.owns_retry_topic(group, popped):
            return [_topic(popped, actions)]
    # A name of a group has no plus sign.
    return [_group(owner.partition("+")[0], of_group or actions)]


def _pair(
    request: Command,
    facts: RequestFacts,
    actions: Actions,
    *,
    topic: str = "topic",
    group: str = "consumerGroup",
) -> list[Need]:
    """The needs of a request with a topic and a group, in the fields of these names."""
    name = _field(request, group)
    needed = needs_of_topic(_field(request, topic), actions, facts, name)
    return [_group(name, actions), *needed]


def _topic_right(actions: Actions) -> Right:
    """The right that needs the topic in the field `topic`; a retry topic needs its group."""
    return lambda request, facts: needs_of_topic(_field(request, "topic"), actions, facts)


def _group_right(actions: Actions, name: str) -> Right:
    """The right that needs the group in field `name`."""
    return lambda request, _facts: [_group(_field(request, name), actions)]


def _pair_right(actions: Actions, topic: str = "topic", group: str = "consumerGroup") -> Right:
    """The right that needs the topic and the group in these fields."""
    return partial(_pair, actions=actions, topic=topic, group=group)


def _cluster(actions: Actions) -> Right:
    """The right that needs the broker's own cluster, whatever name the request has."""
    return lambda _request, facts: [Need(ResourceType.CLUSTER, facts.cluster, actions)]


def _send(name: str, request: Command, facts: RequestFacts) -> list[Need]:
    """A send to the topic in field `name`: a consumer sends to its own retry topic."""
    return needs_of_topic(_field(request, name), PUB, facts, of_group=SUB)


def _end_transaction(request: Command, facts: RequestFacts) -> list[Need]:
    """END_TRANSACTION: the topic of the half message; the request's own field counts only where no
    record is, and then nothing ends."""
    topic = facts.topic_at(_number(request, "commitLogOffset"))
    return needs_of_topic(topic or _field(request, "topic"), PUB, facts)


def _resume_check(request: Command, facts: RequestFacts) -> list[Need]:
    """RESUME_CHECK_HALF_MESSAGE: the topic of the half message."""
    topic = _topic_of_id(request, facts)
    return needs_of_topic(topic or _field(request, "topic"), UPDATE, facts)


def _send_back(request: Command, facts: RequestFacts) -> list[Need]:
    """CONSUMER_SEND_MSG_BACK: the group, and the topic of the record that is copied."""
    group = _field(request, "group")
    topic = facts.topic_at(_number(request, "offset"))
    found = [] if topic is None else needs_of_topic(topic, SUB, facts, group)
    return [_group(group, SUB), *found]


def _view_message(request: Command, facts: RequestFacts) -> list[Need]:
    """VIEW_MESSAGE_BY_ID: the topic of the record."""
    topic = facts.topic_at(_number(request, "offset"))
    return needs_of_topic(topic or _field(request, "topic"), GET, facts)


def _consume_directly(request: Command, facts: RequestFacts) -> list[Need]:
    """CONSUME_MESSAGE_DIRECTLY: the group, and the topic of the record that it receives."""
    group = _field(request, "consumerGroup")
    topic = _topic_of_id(request, facts) or _field(request, "topic")
    return [_group(group, SUB), *needs_of_topic(topic, SUB, facts, group)]


def _number(request: Command, name: str) -> int:
    """Return a field that is a log offset. Raises NoRight."""
    value = _field(request, name)
    try:
        # Longer than any offset: int() of a long text takes long.
        return int(value) if len(value) <= 20 else -1
    except ValueError:
        raise NoRight(f"the field {name} is no number") from None


def _topic_of_id(request: Command, facts: RequestFacts) -> str | None:
    """The topic of the record that the field `msgId` names; None without a record."""
    try:
        _host, at = decode_message_id(_field(request, "msgId"))
    except ValueError:
        return None
    return facts.topic_at(at)


def _heartbeat(members: Members, facts: RequestFacts) -> Iterable[Need]:
    """HEART_BEAT: each consumer group and each topic of its subscriptions; producers need
    nothing."""
    for consumer in read_list(members, "consumerDataSet", as_object):
        group = _member(consumer, "groupName")
        yield _group(group, SUB)
        for subscription in read_list(consumer, "subscriptionDataSet", as_object):
            yield from needs_of_topic(_member(subscription, "topic"), SUB, facts, group)


def _unregister(request: Command, _facts: RequestFacts) -> list[Need]:
    """UNREGISTER_CLIENT: the consumer group, if it has one."""
    group = request.fields.get("consumerGroup", "")
    return [_group(group, SUB)] if group.strip() else []


def _locks(members: Members, facts: RequestFacts) -> Iterable[Need]:
    """LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: the group, and the topic of each queue."""
    group = _member(members, "consumerGroup")
    yield _group(group, SUB)
    for queue in read_list(members, "mqSet", as_object):
        yield from needs_of_topic(_member(queue, "topic"), SUB, facts, group)


def _batch_ack(members: Members, facts: RequestFacts) -> Iterable[Need]:
    """BATCH_ACK_MESSAGE: group and topic of each entry."""
    for entry in read_list(members, "acks", as_object):
        group = _member(entry, "c")
        yield _group(group, SUB)
        yield from needs_of_topic(_member(entry, "t"), SUB, facts, group)


def _query_assignment(members: Members, facts: RequestFacts) -> Iterable[Need]:
    """QUERY_ASSIGNMENT: the topic and the group."""
    group = _member(members, "consumerGroup")
    yield _group(group, SUB)
    yield from needs_of_topic(_member(members, "topic"), SUB, facts, group)


def _check_client_config(members: Members, facts: RequestFacts) -> Iterable[Need]:
    """CHECK_CLIENT_CONFIG: the group, and the topic of the subscription."""
    group = _member(members, "group")
    yield _group(group, SUB)
    subscription = as_object(members.get("subscriptionData"))
    yield from needs_of_topic(_member(subscription, "topic"), SUB, facts, group)


def _request_mode(members: Members, _facts: RequestFacts) -> list[Need]:
    """SET_MESSAGE_REQUEST_MODE: the group."""
    return [_group(_member(members, "consumerGroup"), UPDATE)]


def _create_topic(request: Command, facts: RequestFacts) -> list[Need]:
    """UPDATE_AND_CREATE_TOPIC: the topic."""
    topic = _field(request, "topic")
    return [_topic(topic, CHANGE if facts.has_topic(topic) else CREATE)]


def _create_topics(members: Members, facts: RequestFacts) -> Iterable[Need]:
    """UPDATE_AND_CREATE_TOPIC_LIST: each topic of the body."""
    for row in read_list(members, "topicConfigList", as_object):
        topic = _member(row, "topicName")
        yield _topic(topic, CHANGE if facts.has_topic(topic) else CREATE)


def _put_group(members: Members, facts: RequestFacts) -> list[Need]:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: the group of the body."""
    group = _member(members, "groupName")
    return [_group(group, CHANGE if facts.has_group(group) else CREATE)]


def _put_groups(members: Members, facts: RequestFacts) -> Iterable[Need]:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: each group of the body."""
    for row in read_list(members, "groupConfigList", as_object):
        yield from _put_group(row, facts)


def _consume_stats(request: Command, facts: RequestFacts) -> Iterable[Need]:
    """GET_CONSUME_STATS: the group, and each topic that is named; without one the answer has the
    group's own topics."""
    group = _field(request, "consumerGroup")
    yield _group(group, GET)
    named = [request.fields.get("topic", ""), *request.fields.get("topicList", "").split(";")]
    for topic in dict.fromkeys(name for name in named if name.strip()):
        yield from needs_of_topic(topic, GET, facts, group)


def _correction_offset(request: Command, facts: RequestFacts) -> Iterable[Need]:
    """QUERY_CORRECTION_OFFSET: the topic and all groups that are named."""
    yield from needs_of_topic(_field(request, "topic"), GET, facts)
    named = [_field(request, "compareGroup"), *request.fields.get("filterGroups", "").split(",")]
    for group in dict.fromkeys(name for name in named if name.strip()):
        yield _group(group, GET)


def _clone_offsets(request: Command, facts: RequestFacts) -> list[Need]:
    """CLONE_GROUP_OFFSET: the group that is read, the group that is changed, and the topic."""
    target = _field(request, "destGroup")
    needed = needs_of_topic(_field(request, "topic"), UPDATE, facts, target)
    return [_group(_field(request, "srcGroup"), GET), _group(target, UPDATE), *needed]


def _consume_queue(request: Command, facts: RequestFacts) -> list[Need]:
    """QUERY_CONSUME_QUEUE: the topic, and the group, if there is one."""
    group = request.fields.get("consumerGroup", "")
    needed = needs_of_topic(_field(request, "topic"), GET, facts, group)
    return [*([_group(group, GET)] if group else []), *needed]


def _member(members: Members, name: str) -> str:
    """Return a text of a body that is not blank. Raises NoRight, BadBody."""
    value = read_text(members, name)
    if not value.strip():
        raise NoRight(f"{name} is missing")
    return value


_READ_CLUSTER: Final = (
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_TIMER_CHECK_POINT,
    RequestCode.GET_TIMER_METRICS,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_PRODUCER_CONNECTION_LIST,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    RequestCode.VIEW_BROKER_STATS_DATA,
    RequestCode.GET_BROKER_CONSUME_STATS,
    RequestCode.GET_ALL_PRODUCER_INFO,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    RequestCode.GET_BROKER_HA_STATUS,
    RequestCode.GET_BROKER_EPOCH_CACHE,
    RequestCode.AUTH_GET_USER,
    RequestCode.AUTH_LIST_USER,
    RequestCode.AUTH_GET_ACL,
    RequestCode.AUTH_LIST_ACL,
)
_CHANGE_CLUSTER: Final = (
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.DELETE_EXPIRED_COMMITLOG,
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
    RequestCode.EXCHANGE_BROKER_HA_INFO,
    RequestCode.RESET_MASTER_FLUSH_OFFSET,
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
)

RIGHTS: Final[dict[int, Right]] = {
    **dict.fromkeys(_READ_CLUSTER, _cluster(GET)),
    **dict.fromkeys(_CHANGE_CLUSTER, _cluster(UPDATE)),
    RequestCode.SEND_MESSAGE: partial(_send, "topic"),
    RequestCode.SEND_MESSAGE_V2: partial(_send, "b"),
    RequestCode.SEND_BATCH_MESSAGE: partial(_send, "b"),
    RequestCode.SEND_REPLY_MESSAGE: partial(_send, "topic"),
    RequestCode.SEND_REPLY_MESSAGE_V2: partial(_send, "b"),
    RequestCode.RECALL_MESSAGE: _topic_right(PUB),
    RequestCode.END_TRANSACTION: _end_transaction,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: _resume_check,
    RequestCode.CONSUMER_SEND_MSG_BACK: _send_back,
    RequestCode.PULL_MESSAGE: _pair_right(SUB),
    RequestCode.LITE_PULL_MESSAGE: _pair_right(SUB),
    RequestCode.QUERY_MESSAGE: _topic_right(SUB_OR_GET),
    RequestCode.VIEW_MESSAGE_BY_ID: _view_message,
    RequestCode.UNREGISTER_CLIENT: _unregister,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _group_right(SUB_OR_GET, "consumerGroup"),
    RequestCode.QUERY_CONSUMER_OFFSET: _pair_right(SUB_OR_GET),
    RequestCode.UPDATE_CONSUMER_OFFSET: _pair_right(SUB_OR_UPDATE),
    RequestCode.POP_MESSAGE: _pair_right(SUB),
    RequestCode.ACK_MESSAGE: _pair_right(SUB),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _pair_right(SUB),
    RequestCode.PEEK_MESSAGE: _pair_right(SUB),
    RequestCode.NOTIFICATION: _pair_right(SUB),
    RequestCode.POLLING_INFO: _pair_right(GET),
    RequestCode.UPDATE_AND_CREATE_TOPIC: _create_topic,
    RequestCode.DELETE_TOPIC_IN_BROKER: _topic_right(DELETE),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _topic_right(GET),
    RequestCode.GET_MAX_OFFSET: _topic_right(GET),
    RequestCode.GET_MIN_OFFSET: _topic_right(GET),
    RequestCode.GET_EARLIEST_MSG_STORETIME: _topic_right(GET),
    RequestCode.GET_TOPIC_STATS_INFO: _topic_right(GET),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _topic_right(GET),
    RequestCode.GET_TOPIC_CONFIG: _topic_right(GET),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _group_right(DELETE, "groupName"),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _group_right(GET, "group"),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _group_right(GET, "consumerGroup"),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _group_right(GET, "consumerGroup"),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _group_right(GET, "group"),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _pair_right(GET, group="group"),
    RequestCode.QUERY_CONSUME_TIME_SPAN: _pair_right(GET, group="group"),
    RequestCode.QUERY_CONSUME_QUEUE: _consume_queue,
    RequestCode.QUERY_CORRECTION_OFFSET: _correction_offset,
    RequestCode.GET_CONSUME_STATS: _consume_stats,
    RequestCode.CLONE_GROUP_OFFSET: _clone_offsets,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: _pair_right(UPDATE, group="group"),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _pair_right(UPDATE, group="group"),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _pair_right(GET, group="group"),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _consume_directly,
}
"""The needs of request codes by their fields. A code that is in neither table is for super users
alone."""

BODY_RIGHTS: Final[dict[int, BodyRight]] = {
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.CHECK_CLIENT_CONFIG: _check_client_config,
    RequestCode.BATCH_ACK_MESSAGE: _batch_ack,
    RequestCode.QUERY_ASSIGNMENT: _query_assignment,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _request_mode,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _create_topics,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _put_group,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _put_groups,
}
"""The needs of request codes by their bodies, which are JSON objects."""
