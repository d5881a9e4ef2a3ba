"""Consumer groups as an operator sees them: create, delete, describe, forbid, what they subscribe.

Owns UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200) and its list form (225), DELETE_SUBSCRIPTIONGROUP
(207), the group configurations (201, 352), UPDATE_AND_GET_GROUP_FORBIDDEN (353) and the topics and
subscriptions of a group (343, 345). It must never know a group's progress: that is
admin_offsets.py. Called by the dispatcher.
"""

from functools import partial

from turbopump.broker.context import BrokerContext
from turbopump.broker.groups import FORBIDDEN_READ, MAX_GROUPS, validate_group_name
from turbopump.broker.handlers.shapes import answer_json, page, topic_list
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, response
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.admin import (
    DeleteSubscriptionGroupRequest,
    GetAllSubscriptionGroupRequest,
    GetAllSubscriptionGroupResponse,
    GetSubscriptionGroupConfigRequest,
    QuerySubscriptionByConsumerRequest,
    QueryTopicsByConsumerRequest,
    UpdateGroupForbiddenRequest,
)


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of this family."""
    table.add(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, partial(_put_group, broker))
    table.add(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, partial(_put_groups, broker))
    table.add(RequestCode.DELETE_SUBSCRIPTIONGROUP, partial(_delete_group, broker))
    table.add(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, partial(_all_groups, broker))
    table.add(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, partial(_group_config, broker))
    table.add(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, partial(_forbidden, broker))
    table.add(RequestCode.QUERY_TOPICS_BY_CONSUMER, partial(_topics_of_group, broker))
    table.add(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, partial(_subscription, broker))


def _put_group(broker: BrokerContext, request: Command, _peer: Peer, now_ms: int) -> Command:
    wanted = SubscriptionGroupConfig.from_json(bodies.load(request.body))
    return _put_all(broker, request, [wanted], now_ms)


def _put_groups(broker: BrokerContext, request: Command, _peer: Peer, now_ms: int) -> Command:
    """225: all or none."""
    members = bodies.load_object(request.body)
    wanted = bodies.items(members, "groupConfigList", SubscriptionGroupConfig.from_json)
    return _put_all(broker, request, wanted, now_ms)


def _put_all(
    broker: BrokerContext, request: Command, groups: list[SubscriptionGroupConfig], now_ms: int
) -> Command:
    known = broker.groups.all()
    for group in groups:
        wrong = validate_group_name(group.group_name)
        if wrong is not None:
            return response(request, ResponseCode.INVALID_PARAMETER, wrong)
        before = known.get(group.group_name)
        if group.attributes and (before is None or before.attributes != group.attributes):
            # RocketMQ's attributes of groups belong to priority and light topics, which are not
            # here: accepting one would promise what nobody does.
            remark = f"unsupported key: {min(group.attributes)}"
            return response(request, ResponseCode.SYSTEM_ERROR, remark)
    new = {group.group_name for group in groups} - known.keys()
    if len(known) + len(new) > MAX_GROUPS:
        remark = f"a broker holds at most {MAX_GROUPS} groups"
        return response(request, ResponseCode.SYSTEM_ERROR, remark)
    broker.groups.put_all(groups, now_ms)
    return response(request, ResponseCode.SUCCESS)


def _delete_group(broker: BrokerContext, request: Command, _peer: Peer, now_ms: int) -> Command:
    header = read_header(DeleteSubscriptionGroupRequest, request.fields)
    broker.groups.delete(header.group_name, now_ms)
    broker.statistics.forget_group(header.group_name)
    if header.clean_offset:
        broker.offsets.remove_group(header.group_name)
    return response(request, ResponseCode.SUCCESS)


def _all_groups(broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int) -> Command:
    """201: the whole of subscriptionGroup.json, or a page of its groups."""
    header = read_header(GetAllSubscriptionGroupRequest, request.fields)
    table = broker.groups.all()
    version = broker.groups.data_version
    names = page(table, header.group_seq, header.max_group_num, header.data_version, version)
    body = {
        **broker.groups.to_json(),
        "subscriptionGroupTable": {name: table[name].to_json() for name in names},
    }
    return answer_json(request, body, GetAllSubscriptionGroupResponse(len(table)))


def _group_config(broker: BrokerContext, request: Command, _peer: Peer, now_ms: int) -> Command:
    """352: asking creates the group where automatic creation is on (observed of 5.5.0)."""
    name = read_header(GetSubscriptionGroupConfigRequest, request.fields).group
    group = broker.groups.find(name, now_ms)
    if group is None:
        remark = f"No group in this broker. group: {name}"
        return response(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    return answer_json(request, group.to_json())


def _forbidden(broker: BrokerContext, request: Command, _peer: Peer, now_ms: int) -> Command:
    """353: forbid or allow a group to read a topic, and say how it stands."""
    header = read_header(UpdateGroupForbiddenRequest, request.fields)
    mask = broker.groups.forbidden(header.group, header.topic)
    if header.readable is not None:
        mask = mask & ~FORBIDDEN_READ if header.readable else mask | FORBIDDEN_READ
        broker.groups.set_forbidden(header.group, header.topic, mask, now_ms)
    body = {
        "group": header.group,
        "readable": not mask & FORBIDDEN_READ,
        "topic": header.topic,
    }
    return answer_json(request, body)


def _topics_of_group(
    broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int
) -> Command:
    group = read_header(QueryTopicsByConsumerRequest, request.fields).group
    return answer_json(request, topic_list(broker.offsets.topics_of(group), broker.address))


def _subscription(broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int) -> Command:
    header = read_header(QuerySubscriptionByConsumerRequest, request.fields)
    subscription = broker.consumers.find_subscription(header.group, header.topic)
    body = {
        "group": header.group,
        "subscriptionData": subscription.to_json() if subscription else None,
        "topic": header.topic,
    }
    return answer_json(request, body)
