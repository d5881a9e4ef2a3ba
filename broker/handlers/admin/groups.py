"""Requests of operators for consumer groups: create, delete, describe, forbid, list subscriptions.

Owns UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200) and its list form (225), DELETE_SUBSCRIPTIONGROUP
(207), the group configurations (201, 352), UPDATE_AND_GET_GROUP_FORBIDDEN (353) and the topics and
subscriptions of a group (343, 345). It must never know a group's progress: that is
admin/offsets.py.
"""

from dataclasses import replace
from functools import partial

from turbopump.broker.context import BrokerContext
from turbopump.broker.handlers.admin.deleting import deletion_time_ms
from turbopump.broker.handlers.json_responses import (
    MAX_LISTED,
    json_response,
    page_of_names,
    response_in_steps,
    topic_list,
)
from turbopump.broker.tables.groups import (
    FORBIDDEN_READ,
    MAX_BANS,
    MAX_BEAN,
    MAX_GROUPS,
    MAX_SIZE,
    group_size,
)
from turbopump.broker.tables.topic_attributes import BadAttributes, apply_group_attributes
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
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
from turbopump.net.wire.names import validate_group_name, validate_topic_name


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of this module's request codes to the table, which must not have them
    yet."""
    table.add(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, partial(_put_group, broker))
    table.add(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, partial(_put_groups, broker))
    table.add(RequestCode.DELETE_SUBSCRIPTIONGROUP, partial(_delete_group, broker))
    kept = bodies.KeptBody()
    table.add(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, partial(_all_groups, broker, kept))
    table.add(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, partial(_group_config, broker))
    table.add(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, partial(_update_ban, broker))
    table.add(RequestCode.QUERY_TOPICS_BY_CONSUMER, partial(_topics_of_group, broker))
    table.add(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, partial(_query_subscription, broker))


def _put_group(broker: BrokerContext, request: Command, _peer: Peer, now_ms: int) -> Steps[Command]:
    """Handle 200: create or change a group."""
    if not request.body:
        return new_response(request, ResponseCode.SUCCESS)
    wanted = SubscriptionGroupConfig.from_json(bodies.load_small(request.body))
    return (yield from _put_all(broker, request, [wanted], now_ms))


def _put_groups(
    broker: BrokerContext, request: Command, _peer: Peer, now_ms: int
) -> Steps[Command]:
    """Handle 225: create or change all groups of a list, or none of them."""
    members = yield from bodies.object_in_steps(request.body)
    wanted = yield from bodies.items_in_steps(
        members, "groupConfigList", SubscriptionGroupConfig.from_json
    )
    if len(wanted) > MAX_LISTED:
        remark = f"{len(wanted)} groups in one request, over {MAX_LISTED}"
        return new_response(request, ResponseCode.INVALID_PARAMETER, remark)
    return (yield from _put_all(broker, request, wanted, now_ms))


def _put_all(
    broker: BrokerContext, request: Command, groups: list[SubscriptionGroupConfig], now_ms: int
) -> Steps[Command]:
    """Create or change all these groups, or none if one of them is not allowed, and return the
    answer."""
    known = broker.groups
    changed: list[SubscriptionGroupConfig] = []
    for number, group in enumerate(groups, 1):
        if number % bodies.READ == 0:
            yield
        wrong = validate_group_name(group.group_name)
        if wrong is not None:
            return new_response(request, ResponseCode.INVALID_PARAMETER, wrong)
        if len(group.encode()) > MAX_BEAN:
            remark = f"the configuration of group {group.group_name} has more than {MAX_BEAN} bytes"
            return new_response(request, ResponseCode.INVALID_PARAMETER, remark)
        before = known.get(group.group_name)
        try:
            current = before.attributes if before else None
            attributes = apply_group_attributes(current, group.attributes)
        except BadAttributes as error:
            return new_response(request, ResponseCode.SYSTEM_ERROR, str(error))
        changed.append(replace(group, attributes=attributes))
        group_size(changed[-1])  # encoded here, between steps
    new = {group.group_name for group in groups if known.get(group.group_name) is None}
    if len(known) + len(new) > MAX_GROUPS:
        remark = f"a broker holds at most {MAX_GROUPS} groups"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    if known.size_with(changed) > max(MAX_SIZE, known.size):
        remark = f"the groups of a broker take at most {MAX_SIZE} bytes in its file"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    known.put_all(changed, now_ms)
    return new_response(request, ResponseCode.SUCCESS)


def _delete_group(broker: BrokerContext, request: Command, _peer: Peer, now_ms: int) -> Command:
    """Handle 207: delete a group, with its offsets if the request asks for it."""
    header = read_header(DeleteSubscriptionGroupRequest, request.fields)
    if header.clean_offset:
        now_ms = deletion_time_ms(broker, now_ms)
    broker.groups.delete(header.group_name, now_ms, with_offsets=header.clean_offset)
    broker.statistics.forget_group(header.group_name)
    if header.clean_offset:
        broker.offsets.remove_group(header.group_name, now_ms)
        broker.pop.forget_group(header.group_name)
        # the next acknowledgements go through the handler, which compares handles with the deletion
        # time
        broker.fast.acks.forget_all()
    return new_response(request, ResponseCode.SUCCESS)


def _all_groups(
    broker: BrokerContext, kept: bodies.KeptBody, request: Command, _peer: Peer, _now_ms: int
) -> Steps[Command]:
    """Answer 201 with the whole of subscriptionGroup.json, or a page of its groups."""
    header = read_header(GetAllSubscriptionGroupRequest, request.fields)
    everything = broker.groups.names()
    version = broker.groups.data_version
    names = page_of_names(
        everything, header.group_seq, header.max_group_num, header.data_version, version
    )
    key = broker.groups.change_marker if len(names) == len(everything) else None
    total = GetAllSubscriptionGroupResponse(len(everything))
    body = broker.groups.encode_body(names)
    response = yield from response_in_steps(request, body, total, kept=kept, key=key)
    broker.saver.promise_nothing()  # the answer does not promise that the table is saved
    return response


def _group_config(broker: BrokerContext, request: Command, _peer: Peer, now_ms: int) -> Command:
    """Answer 352; the query creates the group if automatic creation is on (observed with 5.5.0)."""
    name = read_header(GetSubscriptionGroupConfigRequest, request.fields).group
    group = broker.groups.find_or_create(name, now_ms)
    if group is None:
        remark = f"No group in this broker. group: {name}"
        return new_response(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    return json_response(request, group.to_json())


def _update_ban(broker: BrokerContext, request: Command, _peer: Peer, now_ms: int) -> Command:
    """Handle 353: forbid or allow a group to read a topic, and return the resulting state."""
    header = read_header(UpdateGroupForbiddenRequest, request.fields)
    mask = broker.groups.forbidden_mask(header.group, header.topic)
    if header.readable is not None:
        wrong = validate_group_name(header.group) or validate_topic_name(header.topic)
        if wrong is not None:
            return new_response(request, ResponseCode.INVALID_PARAMETER, wrong)
        bans = sum(map(len, broker.groups.all_forbidden().values()))
        if not mask and not header.readable and bans >= MAX_BANS:
            remark = f"a broker holds at most {MAX_BANS} bans"
            return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
        mask = mask & ~FORBIDDEN_READ if header.readable else mask | FORBIDDEN_READ
        broker.groups.set_forbidden(header.group, header.topic, mask, now_ms)
    body = {
        "group": header.group,
        "readable": not mask & FORBIDDEN_READ,
        "topic": header.topic,
    }
    return json_response(request, body)


def _topics_of_group(
    broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int
) -> Steps[Command]:
    """Answer 343 with the topics in which the group has offsets."""
    group = read_header(QueryTopicsByConsumerRequest, request.fields).group
    topics = yield from broker.offsets.topics_in_steps(group)
    return (yield from response_in_steps(request, topic_list(topics, broker.address)))


def _query_subscription(
    broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int
) -> Command:
    """Answer 345 with the group's subscription of a topic; null without one."""
    header = read_header(QuerySubscriptionByConsumerRequest, request.fields)
    subscription = broker.consumers.find_subscription(header.group, header.topic)
    body = {
        "group": header.group,
        "subscriptionData": subscription.to_json() if subscription else None,
        "topic": header.topic,
    }
    return json_response(request, body)
