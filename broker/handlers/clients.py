"""Clients of the broker: heartbeats, unregistering, connection lists and change notices.

Owns HEART_BEAT (34), UNREGISTER_CLIENT (35), GET_CONSUMER_LIST_BY_GROUP (38), CHECK_CLIENT_CONFIG
(46), the connection lists (203, 204, 328) and the housekeeping of connections, which node.py runs
every 10 s. It must never keep state: consumers.py and producers.py do.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from turbopump.broker.context import BrokerContext
from turbopump.broker.handlers.json_responses import response_in_steps
from turbopump.broker.tables.consumers import (
    ConsumerConnection,
    TooManyGroups,
    notify_changed,
)
from turbopump.broker.tables.filters import TooManyFilters
from turbopump.broker.tables.producers import ProducerConnection, TooManyProducerGroups
from turbopump.broker.traffic.replies import no_filters
from turbopump.engine.json_steps import Lazy, LazyItems
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.clients import (
    GetConsumerConnectionListRequest,
    GetConsumerListByGroupRequest,
    GetProducerConnectionListRequest,
    UnregisterClientRequest,
)
from turbopump.net.wire.heartbeat import ConsumerData, HeartbeatData
from turbopump.net.wire.names import RETRY_PREFIX
from turbopump.net.wire.sql.compiler import compile_filter
from turbopump.net.wire.sql.words import SqlError
from turbopump.net.wire.subscription import SubscriptionData
from turbopump.net.wire.topics import PERM_READ, PERM_WRITE

HOUSEKEEPING_INTERVAL_MS: Final = 10_000
"""Interval of `remove_expired_clients`, in ms, as in RocketMQ's ClientHousekeepingService."""

MAX_NAME: Final = 255
"""Maximum characters of a client id (else the heartbeat is refused) or a producer group (else it is
skipped); real names stay below 130."""

CONSUMER_WEIGHT: Final = 20
"""Weight of a consumer group in a step of a heartbeat, where a subscription weighs 1: the group's
retry topic may have to be created."""

_UNIT_SUBSCRIPTION = 2  # TopicSysFlag.FLAG_UNIT_SUB, on the retry topic of a unit-mode consumer
_V2 = {"IS_SUPPORT_HEART_BEAT_V2": "true"}


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of this module's request codes to the table, which must not have them
    yet."""
    table.add(RequestCode.HEART_BEAT, partial(_heartbeat, broker))
    table.add(RequestCode.UNREGISTER_CLIENT, partial(_unregister, broker))
    table.add(RequestCode.GET_CONSUMER_LIST_BY_GROUP, partial(_consumer_list, broker))
    table.add(RequestCode.CHECK_CLIENT_CONFIG, partial(_check_client_config, broker))
    table.add(RequestCode.GET_CONSUMER_CONNECTION_LIST, partial(_consumer_connections, broker))
    table.add(RequestCode.GET_PRODUCER_CONNECTION_LIST, partial(_producer_connections, broker))
    table.add(RequestCode.GET_ALL_PRODUCER_INFO, partial(_all_producers, broker))


def remove_expired_clients(broker: BrokerContext) -> None:
    """Close connections whose last heartbeat is older than channelExpiredTimeout, drop expired
    subscriptions of pulls and queue locks, and send the notices; the caller runs it every
    HOUSEKEEPING_INTERVAL_MS."""
    now_ms = broker.steady_ms()
    limit_ms = broker.config.channel_expired_timeout_ms
    expired = broker.consumers.find_expired(now_ms, limit_ms)
    expired += broker.producers.find_expired(now_ms, limit_ms)
    for peer in dict.fromkeys(expired):
        _remove_connection(broker, peer)
        peer.close()
    broker.consumers.forget_compensated(now_ms, broker.config.subscription_expired_timeout_ms)
    broker.locks.remove_expired(now_ms)
    send_notices(broker)


def send_notices(broker: BrokerContext) -> None:
    """Send NOTIFY_CONSUMER_IDS_CHANGED (40) to the members of every group that has changed since
    the last call; with notifyConsumerIdsChangedEnable=false the notices are dropped."""
    notices = broker.consumers.take_notices()
    if broker.config.notify_consumer_ids_changed_enable:
        for peer, group in notices:
            notify_changed(peer, group)


def _heartbeat(broker: BrokerContext, request: Command, peer: Peer, now_ms: int) -> Steps[Command]:
    """Handle 34: register the client's consumer and producer groups, in steps; the notices follow
    the answer."""
    heartbeat = yield from HeartbeatData.decode_in_steps(request.body)
    if not heartbeat.client_id or len(heartbeat.client_id) > MAX_NAME:
        remark = f"clientID must have 1 to {MAX_NAME} characters"
        return new_response(request, ResponseCode.INVALID_PARAMETER, remark)
    _forget_at_close(broker, peer)
    subscriptions_wanted = heartbeat.heartbeat_fingerprint == 0
    fields = {**_V2, "IS_SUB_CHANGE": "true"}
    response = new_response(request, ResponseCode.SUCCESS, fields=fields)
    try:
        weight = 0
        for data in heartbeat.consumer_data_set:
            subscriptions_wanted |= _register_consumer(broker, heartbeat, data, peer, now_ms)
            group = broker.consumers.group(data.group_name)
            if not heartbeat.without_sub and group is not None:
                # The consumer table has already merged the subscriptions of the members.
                chosen = list(group.subscriptions.values())
                yield from broker.filters.register(data.group_name, chosen, now_ms)
            weight += CONSUMER_WEIGHT + len(data.subscription_data_set)
            if weight > bodies.READ:
                weight = 0
                yield
        for number, producer in enumerate(heartbeat.producer_data_set, 1):
            if 0 < len(producer.group_name) <= MAX_NAME:
                broker.producers.register(
                    peer, heartbeat.client_id, producer.group_name, broker.steady_ms()
                )
            if number % bodies.READ == 0:
                yield
    except (TooManyGroups, TooManyProducerGroups, TooManyFilters) as error:
        response = new_response(request, ResponseCode.SYSTEM_ERROR, str(error))
    if response.code == ResponseCode.SUCCESS and not subscriptions_wanted:
        response.fields["IS_SUB_CHANGE"] = "false"
    # A group that is lost before it is saved returns with the next heartbeat, while a client that
    # waits 3 s for a slow disk closes its connection. RocketMQ answers first, too.
    broker.saver.promise_nothing()
    peer.after_answers(partial(send_notices, broker))
    return response


def _register_consumer(
    broker: BrokerContext, heartbeat: HeartbeatData, data: ConsumerData, peer: Peer, now_ms: int
) -> bool:
    """Register a group's entry of a heartbeat; return True if the client should send its
    subscriptions with the next heartbeat. A group that may not exist is skipped silently, as in
    RocketMQ. Unlike RocketMQ, a broker that does not know a group's subscriptions (after a restart)
    asks for them."""
    config = broker.groups.find_or_create(data.group_name, now_ms)
    if config is None:
        return False
    known = broker.consumers.group(data.group_name)
    fingerprint = known.fingerprint if known else None
    topics = [broker.topics.get(one.topic) for one in data.subscription_data_set]
    broker.topics.create_internal(
        RETRY_PREFIX + data.group_name,
        config.retry_queue_nums,
        PERM_READ | PERM_WRITE,
        now_ms,
        order=any(topic is not None and topic.order for topic in topics),
        sys_flag=_UNIT_SUBSCRIPTION if data.unit_mode else 0,
    )
    broker.consumers.register(
        peer,
        heartbeat.client_id,
        data,
        broker.steady_ms(),
        notifies=config.notify_consumer_ids_changed_enable,
        with_subscriptions=not heartbeat.without_sub,
        fingerprint=heartbeat.heartbeat_fingerprint,
    )
    if fingerprint is None:
        return heartbeat.without_sub
    return fingerprint != heartbeat.heartbeat_fingerprint


def _forget_at_close(broker: BrokerContext, peer: Peer) -> None:
    """Have a connection's groups removed when it closes; called with each heartbeat, registers
    once."""
    if "clients" not in peer.context:
        peer.context["clients"] = True
        peer.on_close(lambda: _on_close(broker, peer))


def _on_close(broker: BrokerContext, peer: Peer) -> None:
    """Remove a closed connection from all groups, and notify their members."""
    _remove_connection(broker, peer)
    send_notices(broker)


def _remove_connection(broker: BrokerContext, peer: Peer) -> None:
    """Remove a connection from all groups."""
    broker.consumers.peer_closed(peer)
    broker.producers.peer_closed(peer)


def _unregister(broker: BrokerContext, request: Command, peer: Peer, _now_ms: int) -> Command:
    """Handle 35: remove the connection from a producer group and a consumer group."""
    header = read_header(UnregisterClientRequest, request.fields)
    if header.producer_group:
        broker.producers.unregister(peer, header.producer_group)
    if header.consumer_group:
        broker.consumers.unregister(peer, header.client_id, header.consumer_group)
        send_notices(broker)
    return new_response(request, ResponseCode.SUCCESS)


def _consumer_list(
    broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int
) -> Steps[Command]:
    """Answer 38 with the client ids of the group's members."""
    name = read_header(GetConsumerListByGroupRequest, request.fields).consumer_group
    group = broker.consumers.group(name)
    if group is None:
        remark = f"no consumer for this group, {name}"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    members = [member.client_id for member in group.members.values()]
    return (yield from response_in_steps(request, {"consumerIdList": members}))


def _check_client_config(
    broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int
) -> Command:
    """Handle 46: check the filter expression of a starting consumer."""
    if not request.body:
        return new_response(request, ResponseCode.SUCCESS)
    members = bodies.load_small_object(request.body)
    if members.get("subscriptionData") is None:
        return new_response(request, ResponseCode.SYSTEM_ERROR, "subscriptionData is missing")
    subscription = SubscriptionData.from_json(members["subscriptionData"])
    if subscription.is_tag_type:
        return new_response(request, ResponseCode.SUCCESS)
    if not broker.config.enable_property_filter:
        return new_response(request, ResponseCode.SYSTEM_ERROR, no_filters(subscription))
    try:
        compile_filter(subscription)
    except SqlError as error:
        return new_response(request, ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
    return new_response(request, ResponseCode.SUCCESS)


def _consumer_connections(
    broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int
) -> Steps[Command]:
    """Answer 203 with the group's connections and subscriptions."""
    name = read_header(GetConsumerConnectionListRequest, request.fields).consumer_group
    group = broker.consumers.group(name)
    if group is None:
        remark = f"the consumer group[{name}] not online"
        return new_response(request, ResponseCode.CONSUMER_NOT_ONLINE, remark)
    body = {
        "connectionSet": _encode_connections(group.members),
        "consumeFromWhere": group.consume_from_where,
        "consumeType": group.consume_type,
        "messageModel": group.message_model,
        "subscriptionTable": Lazy(group.subscriptions, SubscriptionData.to_json),
    }
    return (yield from response_in_steps(request, body))


def _producer_connections(
    broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int
) -> Steps[Command]:
    """Answer 204 with the connections of a producer group."""
    name = read_header(GetProducerConnectionListRequest, request.fields).producer_group
    members = broker.producers.producers_of(name)
    if not members:
        remark = f"the producer group[{name}] not exist"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    return (yield from response_in_steps(request, {"connectionSet": _encode_connections(members)}))


def _encode_connections(
    members: Mapping[Peer, ConsumerConnection | ProducerConnection],
) -> LazyItems:
    """The connections in RocketMQ's JSON form, encoded on demand."""
    return LazyItems(members.items(), _encode_connection)


def _encode_connection(one: tuple[Peer, ConsumerConnection | ProducerConnection]) -> dict[str, Any]:
    """A (peer, connection) pair in the JSON form of RocketMQ's Connection."""
    peer, member = one
    return {
        "clientAddr": peer.address,
        "clientId": member.client_id,
        "language": member.language,
        "version": member.version,
    }


def _all_producers(
    broker: BrokerContext, request: Command, _peer: Peer, now_ms: int
) -> Steps[Command]:
    """Answer 328 with all producers by group."""
    ahead_ms = now_ms - broker.steady_ms()

    def encode_producer(one: tuple[Peer, ProducerConnection]) -> dict[str, Any]:
        peer, member = one
        return {
            "clientId": member.client_id,
            "language": member.language,
            "lastUpdateTimestamp": member.last_update_ms + ahead_ms,
            "remoteIP": f"/{peer.address}",
            "version": member.version,
        }

    table = Lazy(
        broker.producers.all_producers(),
        lambda members: LazyItems(members.items(), encode_producer),
    )
    return (yield from response_in_steps(request, {"data": table}))
