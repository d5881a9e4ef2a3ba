"""The name server's request handlers: one function for each request code of remoting.md 8.

Owns codes, remarks and bodies. It must never keep state: routes, key values and configuration are
parts of `NameServer`. `now_ms` is a time of the monotonic clock.

RocketMQ executes some requests even without any field; their null names match no entry of a table,
so the handlers here skip the look-up.
"""

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass

from turbopump.engine.deferred import Deferred
from turbopump.namesrv import registration_limits
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.key_values import KeyValues
from turbopump.namesrv.registrations import BrokerRegistration
from turbopump.namesrv.route_rows import (
    Notice,
    has_unit_subscription,
    has_unit_subscription_only,
    is_unit,
)
from turbopump.namesrv.routes import RouteTable
from turbopump.namesrv.topic_queues import MAX_QUEUE_DATAS, MAX_SIZE
from turbopump.net.config.audit import audit_handlers, keys_of_update, no_state
from turbopump.net.config.idle import is_secret
from turbopump.net.config.updates import get_config, update_config
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import bodies
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import MAX_BODY, Command, new_response
from turbopump.net.wire.header import read_header, read_header_if_any
from turbopump.net.wire.headers import routes as headers
from turbopump.net.wire.java_properties import Property
from turbopump.net.wire.names import ORDER_NAMESPACE, check_lengths
from turbopump.net.wire.registration.register import RegisterBrokerBody, body_crc32
from turbopump.net.wire.route import TopicRouteData
from turbopump.net.wire.topics import DataVersion

logger = logging.getLogger(__name__)

ZONE_MODE = "__ZONE_MODE"
"""Field of a request 105: "true" limits the route to the groups of the zone ZONE_NAME."""
ZONE_NAME = "__ZONE_NAME"
"""Field with the name of a zone: of a client (105) or of a broker that registers (103)."""
FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""End of remarks about missing routes, RocketMQ's."""
NULL = "null"
"""Text in a remark for a name that was not sent, as in Java."""
SEEN = "namesrv.registered"
"""Key of a peer's context, set once the peer's close is watched."""


@dataclass(slots=True)
class NameServer:
    """The parts that the handlers work on.

    `started_ms` is the start by the monotonic clock. `notify` has a notice sent to its target
    brokers, without a wait; `save_config` persists changed properties, and resolves with None when
    they are durable, or with the error. `work` runs the rest of long work step by step, and serves
    other requests between the steps.
    """

    config: NamesrvConfig
    routes: RouteTable
    key_values: KeyValues
    started_ms: int
    notify: Callable[[Notice], None]
    save_config: Callable[[list[Property]], Deferred[OSError | None]]
    probe: Callable[[str, Callable[[int], None]], None] = lambda address, refused: None
    """Begins to connect to an address `host:port`; only if the connection fails otherwise than by a
    timeout, it calls back, once, with the monotonic time in ms."""

    work: Callable[[Steps[None]], None] = bodies.run_to_result

    def on_brokers_changed(self, notices: list[Notice]) -> None:
        """React to brokers that came or went: begin to remove the queues of dropped groups, and
        send these notices if notifyMinBrokerIdChanged is set."""
        if self.routes.has_dropped:
            self.work(self.routes.remove_in_steps())
        if self.config.notify_min_broker_id_changed:
            for notice in notices:
                self.notify(notice)


WIDE = 64
"""Number of broker groups of a topic above which its route is encoded in steps; narrower routes are
requested often and encoded at once."""

Handler = Callable[[NameServer, Command, Peer, int], Command | Deferred[Command] | Steps[Command]]
"""Handler of a request: arguments (name server, request, its connection, monotonic time in ms);
result: the answer, now, later, or after steps."""


def register(table: Dispatcher, server: NameServer) -> None:
    """Add every handler of a name server to the dispatch table, which must have none of their codes
    yet; requests that change the name server are logged."""
    for code, response in _HANDLERS.items():
        table.add(code, functools.partial(response, server))
    config, key_value = server.config, functools.partial(_key_value_state, server)
    audit_handlers(
        table,
        {
            RequestCode.UPDATE_NAMESRV_CONFIG: functools.partial(
                keys_of_update, values=config.values_as_text
            ),
            RequestCode.PUT_KV_CONFIG: key_value,
            RequestCode.DELETE_KV_CONFIG: key_value,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: no_state,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: no_state,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: no_state,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: no_state,
        },
    )


def _key_value_state(server: NameServer, request: Command) -> str:
    """The value of a key for the audit log; "" if it has none, or if the key holds a credential."""
    name = request.fields.get("key", "")
    if is_secret(name):
        return ""
    return server.key_values.get(request.fields.get("namespace", ""), name) or ""


def _query_route(
    server: NameServer, request: Command, peer: Peer, now_ms: int
) -> Command | Steps[Command]:
    """Handle 105.

    The body is strict JSON for every version: all clients can read it, some only this.
    """
    header = read_header_if_any(headers.GetRouteInfoRequest, request.fields)
    config = server.config
    ready_ms = server.started_ms + config.wait_seconds_for_service * 1_000
    if config.need_wait_for_service and now_ms < ready_ms:
        return new_response(request, ResponseCode.SYSTEM_ERROR, "name server not ready")
    zone_wanted = request.fields.get(ZONE_MODE, "").lower() == "true"
    zone = request.fields.get(ZONE_NAME, "").strip() if zone_wanted else ""
    acting_master = config.support_acting_master
    route = (
        server.routes.find_route(header.topic, acting_master=acting_master, zone=zone or None)
        if header
        else None
    )
    if header is None or route is None:
        topic = header.topic if header else NULL
        remark = f"No topic route info in name server for the topic: {topic}{FAQ}"
        return new_response(request, ResponseCode.TOPIC_NOT_EXIST, remark)
    if config.order_message_enable:
        route.order_topic_conf = server.key_values.get(ORDER_NAMESPACE, header.topic)
    if len(route.queue_datas) > WIDE or route.topic_queue_mapping_by_broker:
        return _in_steps(request, route.to_lazy_json())
    return new_response(request, ResponseCode.SUCCESS, body=route.encode())


def _in_steps(request: Command, value: object) -> Steps[Command]:
    """Respond with success and a JSON body; with error 1 if the body does not fit into a frame."""
    body = yield from bodies.dump_in_steps(value, MAX_BODY)
    if body is None:
        remark = f"the answer of over {MAX_BODY} bytes does not fit into one frame"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    return new_response(request, ResponseCode.SUCCESS, body=body)


def _register_broker(
    server: NameServer, request: Command, peer: Peer, now_ms: int
) -> Steps[Command]:
    """Handle 103. The CRC covers the body as sent; 0 means that the broker did not compute it."""
    header = read_header(headers.RegisterBrokerRequest, request.fields)
    data = _body(request)
    if header.body_crc32 and body_crc32(data) != header.body_crc32:
        return new_response(request, ResponseCode.SYSTEM_ERROR, "crc32 not match")
    try:
        body = yield from RegisterBrokerBody.decode_in_steps(
            data, compressed=header.compressed, version=request.version
        )
    except BadBody as error:
        remark = f"Failed to decode RegisterBrokerBody, {error}"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    broker = BrokerRegistration(
        header.cluster_name,
        header.broker_name,
        header.broker_id,
        header.broker_addr,
        body.topics,
        header.ha_server_addr,
        request.fields.get(ZONE_NAME),
        header.heartbeat_timeout_millis,
        header.enable_acting_master,
        body.filter_server_list,
    )
    refused = registration_limits.find_refusal(broker)
    if refused is not None:
        return new_response(request, ResponseCode.SYSTEM_ERROR, refused)
    yield from registration_limits.remove_long_topics(broker)
    deletes = server.config.delete_topic_with_broker_registration
    delete_missing = deletes and not header.changes_only
    request.body = data = b""
    _unregister_on_close(server, peer)
    done = yield from server.routes.register_in_steps(
        broker, peer, now_ms, delete_missing_topics=delete_missing
    )
    if done.refusal is not None:
        return new_response(request, ResponseCode.SYSTEM_ERROR, done.refusal)
    if done.holder is not None:
        server.probe(done.holder, functools.partial(_take_over, server, broker, peer, done.holder))
    server.on_brokers_changed(done.notices)
    reply = headers.RegisterBrokerResponse(done.master_ha_address, done.master_address)
    order_topics = (yield from _order_topics(server)) or b""
    return new_response(request, ResponseCode.SUCCESS, header=reply, body=order_topics)


def _take_over(
    server: NameServer, broker: BrokerRegistration, peer: Peer, holder: str, now_ms: int
) -> None:
    """Unregister the address `holder`, which refuses connections, and register `broker`, which
    claimed its broker id; no-op if the id has another holder by now, or `peer` is closed."""
    if peer.closed or server.routes.member_group(broker.name).get(broker.broker_id) != holder:
        return
    logger.warning(
        "%s of %s refuses connections: %s takes its place", holder, broker.name, broker.address
    )
    server.on_brokers_changed(server.routes.unregister(broker.cluster, broker.name, holder))

    def steps() -> Steps[None]:
        done = yield from server.routes.register_in_steps(broker, peer, now_ms)
        if done.refusal is None:
            _unregister_on_close(server, peer)
            server.on_brokers_changed(done.notices)

    server.work(steps())


def _unregister_on_close(server: NameServer, peer: Peer) -> None:
    """Unregister a peer's brokers when its connection closes, however it closes."""
    if SEEN not in peer.context:
        peer.context[SEEN] = True
        peer.on_close(lambda: server.on_brokers_changed(server.routes.connection_closed(peer)))


def _order_topics(server: NameServer) -> Steps[bytes | None]:
    """Return the key values of ordered topics as a JSON body, for a broker's registration; None if
    there are none or returnOrderTopicConfigToBroker is not set."""
    if not server.config.return_order_topic_config_to_broker:
        return None
    table = server.key_values.values_of_namespace(ORDER_NAMESPACE)
    if table is None:
        return None
    return (yield from bodies.dump_in_steps({"table": dict(table)}, MAX_BODY))


def _unregister_broker(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """Handle 104: unregister a broker."""
    header = read_header_if_any(headers.UnRegisterBrokerRequest, request.fields)
    if header is not None:
        server.on_brokers_changed(
            server.routes.unregister(
                header.cluster_name, header.broker_name, header.broker_addr, header.broker_id
            )
        )
    return new_response(request, ResponseCode.SUCCESS)


def _heartbeat(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """Handle 904: a broker's heartbeat."""
    header = read_header(headers.BrokerHeartbeatRequest, request.fields)
    server.routes.record_heartbeat(header.cluster_name, header.broker_addr, now_ms)
    return new_response(request, ResponseCode.SUCCESS)


def _data_version(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """Handle 322: compare data versions; also counts as a heartbeat."""
    header = read_header(headers.QueryDataVersionRequest, request.fields)
    asked = DataVersion.from_json(bodies.load_small(_body(request)))
    server.routes.record_heartbeat(header.cluster_name, header.broker_addr, now_ms)
    known = server.routes.data_version(header.cluster_name, header.broker_addr)
    reply = headers.QueryDataVersionResponse(known != asked)
    body = b"" if known is None else known.encode()
    return new_response(request, ResponseCode.SUCCESS, header=reply, body=body)


def _member_group(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Steps[Command]:
    """Handle 901: the members of a broker group."""
    header = read_header_if_any(headers.GetBrokerMemberGroupRequest, request.fields)
    members = server.routes.member_group(header.broker_name) if header else {}
    group = {
        "brokerAddrs": {str(key): address for key, address in members.items()},
        "brokerName": header.broker_name if header else None,
        "cluster": header.cluster_name if header else None,
    }
    return _in_steps(request, {"brokerMemberGroup": group})


def _cluster_info(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Steps[Command]:
    """Handle 106: all groups and clusters."""
    return _in_steps(request, server.routes.cluster_info().to_lazy_json())


def _put_key_value(
    server: NameServer, request: Command, peer: Peer, now_ms: int
) -> Command | Deferred[Command]:
    """Handle 100: set a key value."""
    header = read_header(headers.PutKVConfigRequest, request.fields)
    if header.namespace is None or header.key is None:
        return new_response(request, ResponseCode.SYSTEM_ERROR, "namespace or key is null")
    if header.value is None:
        return new_response(request, ResponseCode.SYSTEM_ERROR, "value is null")
    try:
        saved = server.key_values.set_value(header.namespace, header.key, header.value)
    except ValueError as error:
        return _not_saved_answer(request, error)
    return saved.map(functools.partial(_save_answer, request))


def _get_key_value(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """Handle 101: get a key value."""
    header = read_header(headers.GetKVConfigRequest, request.fields)
    value = None
    if header.namespace is not None and header.key is not None:
        value = server.key_values.get(header.namespace, header.key)
    if value is None:
        namespace, key = _shown(header.namespace), _shown(header.key)
        remark = f"No config item, Namespace: {namespace} Key: {key}"
        return new_response(request, ResponseCode.QUERY_NOT_FOUND, remark)
    return new_response(request, ResponseCode.SUCCESS, header=headers.GetKVConfigResponse(value))


def _delete_key_value(
    server: NameServer, request: Command, peer: Peer, now_ms: int
) -> Command | Deferred[Command]:
    """Handle 102: delete a key value; a missing key is a success, too."""
    header = read_header(headers.DeleteKVConfigRequest, request.fields)
    if header.namespace is None or header.key is None:
        return new_response(request, ResponseCode.SUCCESS)
    try:
        saved = server.key_values.delete(header.namespace, header.key)
    except ValueError as error:
        return _not_saved_answer(request, error)
    return saved.map(functools.partial(_save_answer, request))


def _save_answer(request: Command, error: OSError | None) -> Command:
    """The answer to a change that was saved, or not, with `error`."""
    if error is not None:
        return _not_saved_answer(request, error)
    return new_response(request, ResponseCode.SUCCESS)


def _not_saved_answer(request: Command, error: Exception) -> Command:
    """Log that a change was not saved; the answer with SYSTEM_ERROR."""
    logger.error("change by request code %d was not saved: %s", request.code, error)
    return new_response(request, ResponseCode.SYSTEM_ERROR, f"not saved: {error}")


def _list_key_values(
    server: NameServer, request: Command, peer: Peer, now_ms: int
) -> Command | Steps[Command]:
    """Handle 219: list the key values of a namespace."""
    header = read_header(headers.GetKVListByNamespaceRequest, request.fields)
    name = header.namespace
    table = None if name is None else server.key_values.values_of_namespace(name)
    if table is None:
        remark = f"No config item, Namespace: {_shown(name)}"
        return new_response(request, ResponseCode.QUERY_NOT_FOUND, remark)
    return _in_steps(request, {"table": dict(table)})


def _wipe_write(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Steps[Command]:
    """Handle 205: take the write permission of a broker's topics."""
    header = read_header_if_any(headers.WipeWritePermOfBrokerRequest, request.fields)
    count = 0
    if header is not None:
        count = yield from server.routes.wipe_write_permission(header.broker_name)
    logger.info(
        "%s wipes the write permission of %d topics of %s",
        peer.address,
        count,
        header.broker_name if header else NULL,
    )
    reply = headers.WipeWritePermOfBrokerResponse(count)
    return new_response(request, ResponseCode.SUCCESS, header=reply)


def _add_write(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Steps[Command]:
    """Handle 327: give write permission to a broker's topics."""
    header = read_header_if_any(headers.AddWritePermOfBrokerRequest, request.fields)
    count = 0
    if header is not None:
        count = yield from server.routes.add_write_permission(header.broker_name)
    logger.info(
        "%s gives write permission to %d topics of %s",
        peer.address,
        count,
        header.broker_name if header else NULL,
    )
    reply = headers.AddWritePermOfBrokerResponse(count)
    return new_response(request, ResponseCode.SUCCESS, header=reply)


def _all_topics(
    server: NameServer, request: Command, peer: Peer, now_ms: int
) -> Command | Steps[Command]:
    """Handle 206: list all topics."""
    if not server.config.enable_all_topic_list:
        return new_response(request, ResponseCode.SYSTEM_ERROR, "disable")
    return _in_steps(request, {"topicList": server.routes.topics()})


def _cluster_topics(
    server: NameServer, request: Command, peer: Peer, now_ms: int
) -> Command | Steps[Command]:
    """Handle 224: list the topics of a cluster."""
    header = read_header_if_any(headers.GetTopicsByClusterRequest, request.fields)
    if not server.config.enable_topic_list:
        return new_response(request, ResponseCode.SYSTEM_ERROR, "disable")
    if header is None:
        return _in_steps(request, {"topicList": []})
    return _topic_list(request, server.routes.topics_of_cluster(header.cluster))


def _topics_with_flag(wanted: Callable[[int], bool]) -> Handler:
    """Build the handler of 311, 312 or 313: it lists the topics for whose topicSysFlag `wanted`
    returns True."""

    def answer(
        server: NameServer, request: Command, peer: Peer, now_ms: int
    ) -> Command | Steps[Command]:
        if not server.config.enable_topic_list:
            return new_response(request, ResponseCode.SYSTEM_ERROR, "disable")
        return _topic_list(request, server.routes.topics_with_flag(wanted))

    return answer


def _topic_list(request: Command, topics: Steps[list[str]]) -> Steps[Command]:
    """Answer with the names of topics, when their steps have ended."""
    names = yield from topics
    return (yield from _in_steps(request, {"topicList": names}))


def _system_topics(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Steps[Command]:
    """Handle 304: list system topics; mqadmin queries the broker named here for the others."""
    names, address = server.routes.system_topics()
    return _in_steps(request, {"brokerAddr": address, "topicList": names})


def _delete_topic(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """Handle 216: delete a topic."""
    header = read_header(headers.DeleteTopicFromNamesrvRequest, request.fields)
    if header.topic is not None:
        server.routes.delete_topic(header.topic, header.cluster_name or None)
    return new_response(request, ResponseCode.SUCCESS)


def _register_topic(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """Handle 217: register a topic."""
    header = read_header(headers.RegisterTopicRequest, request.fields)
    if header.topic is None:
        return new_response(request, ResponseCode.SUCCESS)
    wrong = check_lengths(topic=header.topic)
    if wrong is not None:
        return new_response(request, ResponseCode.SYSTEM_ERROR, wrong)
    data = _body(request)
    # RocketMQ, too, registers nothing for a body of `null`.
    route = bodies.load_small(data) if data else None
    if route is not None and not server.routes.add_topic(
        header.topic, TopicRouteData.from_json(route).queue_datas
    ):
        remark = f"{MAX_QUEUE_DATAS} topics, or {MAX_SIZE} bytes of them, are registered"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    return new_response(request, ResponseCode.SUCCESS)


def _update_config(
    server: NameServer, request: Command, peer: Peer, now_ms: int
) -> Command | Deferred[Command]:
    """Handle 318: change properties."""
    return update_config(server.config, request, peer.address, server.save_config)


def _get_config(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """Handle 319: list properties."""
    return get_config(server.config, request)


def _shown(text: str | None) -> str:
    """The text of a field in a remark, as Java prints it."""
    return NULL if text is None else text


def _body(request: Command) -> bytes:
    assert isinstance(request.body, bytes), "a decoded body is bytes"
    return request.body


_HANDLERS: dict[RequestCode, Handler] = {
    RequestCode.PUT_KV_CONFIG: _put_key_value,
    RequestCode.GET_KV_CONFIG: _get_key_value,
    RequestCode.DELETE_KV_CONFIG: _delete_key_value,
    RequestCode.REGISTER_BROKER: _register_broker,
    RequestCode.UNREGISTER_BROKER: _unregister_broker,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _query_route,
    RequestCode.GET_BROKER_CLUSTER_INFO: _cluster_info,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _wipe_write,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _all_topics,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _delete_topic,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: _register_topic,
    RequestCode.GET_KVLIST_BY_NAMESPACE: _list_key_values,
    RequestCode.GET_TOPICS_BY_CLUSTER: _cluster_topics,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _system_topics,
    RequestCode.GET_UNIT_TOPIC_LIST: _topics_with_flag(is_unit),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _topics_with_flag(has_unit_subscription),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _topics_with_flag(has_unit_subscription_only),
    RequestCode.UPDATE_NAMESRV_CONFIG: _update_config,
    RequestCode.GET_NAMESRV_CONFIG: _get_config,
    RequestCode.QUERY_DATA_VERSION: _data_version,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _add_write,
    RequestCode.GET_BROKER_MEMBER_GROUP: _member_group,
    RequestCode.BROKER_HEARTBEAT: _heartbeat,
}
