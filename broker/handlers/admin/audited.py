"""Requests that change a broker and are logged, each with the state before and after it.

Owns the list of these codes and the text form of their states. It must never change anything.
"""

from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Final

from turbopump.broker.context import BrokerContext
from turbopump.net.config.audit import State, keys_of_update, no_state
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command

NAMES_MAX: Final = 10
"""Maximum topics or groups of a request's list whose states are logged."""
QUEUES_MAX: Final = 32
"""Maximum queues of a topic whose offsets are logged."""


def audited_states(broker: BrokerContext) -> Mapping[RequestCode, State]:
    """Return the audited request codes, each with a function that returns, for a request of the
    code, the state that it changes as text for the log: the topic or group as JSON, offsets as
    `queue:offset ...`, or nothing. It is called before and after the handler
    (net/config/audit.py)."""
    topic, group = partial(_topic_state, broker), partial(_group_state, broker)
    offsets = partial(_offsets_state, broker)
    return {
        RequestCode.UPDATE_BROKER_CONFIG: partial(
            keys_of_update, values=broker.config.values_as_text
        ),
        RequestCode.UPDATE_AND_CREATE_TOPIC: topic,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: partial(_topic_list_state, broker),
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: topic,
        RequestCode.DELETE_TOPIC_IN_BROKER: topic,
        RequestCode.CLEAN_UNUSED_TOPIC: no_state,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: no_state,
        RequestCode.DELETE_EXPIRED_COMMITLOG: no_state,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: group,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: partial(_group_list_state, broker),
        RequestCode.DELETE_SUBSCRIPTIONGROUP: group,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: no_state,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: offsets,
        RequestCode.CLONE_GROUP_OFFSET: partial(_clone_target_state, broker),
        RequestCode.SET_MESSAGE_REQUEST_MODE: no_state,
        RequestCode.RESET_MASTER_FLUSH_OFFSET: no_state,
        RequestCode.RESUME_CHECK_HALF_MESSAGE: no_state,
        RequestCode.AUTH_CREATE_USER: no_state,
        RequestCode.AUTH_UPDATE_USER: no_state,
        RequestCode.AUTH_DELETE_USER: no_state,
        RequestCode.AUTH_CREATE_ACL: no_state,
        RequestCode.AUTH_UPDATE_ACL: no_state,
        RequestCode.AUTH_DELETE_ACL: no_state,
    }


def _topic_state(broker: BrokerContext, request: Command) -> str:
    """The configuration of the request's topic as JSON."""
    return _topic_text(broker, request.fields.get("topic", ""))


def _topic_text(broker: BrokerContext, name: str) -> str:
    """The configuration of topic `name` as JSON, or "no topic"."""
    found = broker.topics.peek_topic(name)
    return "no topic" if found is None else bodies.encode_json(found.to_json()).decode()


def _group_state(broker: BrokerContext, request: Command) -> str:
    """The configuration of the request's group as JSON."""
    name = request.fields.get("groupName") or next(
        iter(_names_in_body(request, "", "groupName")), ""
    )
    return _group_text(broker, name)


def _group_text(broker: BrokerContext, name: str) -> str:
    """The configuration of group `name` as JSON, or "no group"."""
    found = broker.groups.get(name)
    return "no group" if found is None else bodies.encode_json(found.to_json()).decode()


def _topic_list_state(broker: BrokerContext, request: Command) -> str:
    """The configurations of the first topics in the request's list."""
    names = _names_in_body(request, "topicConfigList", "topicName")
    return "; ".join(f"{name}: {_topic_text(broker, name)}" for name in names)


def _group_list_state(broker: BrokerContext, request: Command) -> str:
    """The configurations of the first groups in the request's list."""
    names = _names_in_body(request, "groupConfigList", "groupName")
    return "; ".join(f"{name}: {_group_text(broker, name)}" for name in names)


def _names_in_body(request: Command, table: str, key: str) -> list[str]:
    """The first NAMES_MAX values of `key` in the list `table` of the request's JSON body (no
    `table`: in the body itself); [] for a large or malformed body."""
    if not isinstance(request.body, bytes | bytearray | memoryview):
        return []
    if not request.body or len(request.body) > bodies.SMALL_MAX:
        return []
    try:
        members = bodies.load_object(request.body)
    except bodies.BadBody:
        return []
    rows = members.get(table) if table else [members]
    if not isinstance(rows, list):
        return []
    found = [row.get(key) for row in rows[:NAMES_MAX] if isinstance(row, dict)]
    return [name for name in found if isinstance(name, str)]


def _offsets_state(broker: BrokerContext, request: Command) -> str:
    """The offsets of the request's group in its topic."""
    topic, group = request.fields.get("topic", ""), request.fields.get("group", "")
    return _offsets_text(broker, group, topic)


def _clone_target_state(broker: BrokerContext, request: Command) -> str:
    """The target group's offsets in the request's topic. Empty for a request without a topic:
    finding a group's topics takes a pass over all offsets, which is done in steps."""
    group, topic = request.fields.get("destGroup", ""), request.fields.get("topic", "")
    return f"{topic}: {_offsets_text(broker, group, topic)}" if topic else ""


def _offsets_text(broker: BrokerContext, group: str, topic: str) -> str:
    """The group's offset of each queue of the topic, as `queue:offset ...`."""
    found = broker.topics.peek_topic(topic)
    count = 0 if found is None else found.read_queue_nums
    queues = islice(range(count), QUEUES_MAX)
    return " ".join(f"{each}:{broker.offsets.query(group, topic, each)}" for each in queues)
