"""What a name server answers: one function for each request code of remoting.md 8.

Owns codes, remarks and bodies. It must never keep state: routes, key values and configuration are
the parts of `NameServer`. Built by node.py, called through the transport's dispatcher.
"""

import copy
import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass

from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.key_values import ORDER_TOPIC_CONFIG, KeyValues
from turbopump.namesrv.routes import (
    MAX_QUEUE_DATAS,
    Notice,
    Registration,
    RouteTable,
    has_unit_subscription,
    has_unit_subscription_only,
    is_unit,
)
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import bodies
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers import routes as headers
from turbopump.net.wire.java_properties import (
    PropertiesError,
    format_properties,
    parse_properties,
)
from turbopump.net.wire.register import RegisterBrokerBody, body_crc32
from turbopump.net.wire.route import TopicRouteData
from turbopump.net.wire.topics import DataVersion

log = logging.getLogger(__name__)

ZONE_MODE = "__ZONE_MODE"
ZONE_NAME = "__ZONE_NAME"
FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
SEEN = "namesrv.registered"  # key of a peer's context: its close is being watched


@dataclass(slots=True)
class NameServer:
    """The parts that the handlers work on.

    `notify` sends a notice to the brokers it names; `save_config` persists a configuration's values
    and raises OSError.
    """

    config: NamesrvConfig
    routes: RouteTable
    key_values: KeyValues
    started_ms: int
    notify: Callable[[Notice], None]
    save_config: Callable[[NamesrvConfig], None]

    def tell(self, notices: list[Notice]) -> None:
        """Send notices, where the operator wants them sent."""
        if self.config.notify_min_broker_id_changed:
            for notice in notices:
                self.notify(notice)


Answer = Callable[[NameServer, Command, Peer, int], Command]


def register(table: Dispatcher, server: NameServer) -> None:
    """Put every handler of a name server into the dispatch table."""
    for code, answer in _ANSWERS.items():
        table.add(code, functools.partial(answer, server))


def _route(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """105. The body is strict JSON for every version: all clients read it, some nothing else."""
    header = read_header(headers.GetRouteInfoRequest, request.fields)
    config = server.config
    ready_ms = server.started_ms + config.wait_seconds_for_service * 1_000
    if config.need_wait_for_service and now_ms < ready_ms:
        return response(request, ResponseCode.SYSTEM_ERROR, "name server not ready")
    zone_wanted = request.fields.get(ZONE_MODE, "").lower() == "true"
    zone = request.fields.get(ZONE_NAME, "").strip() if zone_wanted else ""
    route = server.routes.route(
        header.topic, acting_master=config.support_acting_master, zone=zone or None
    )
    if route is None:
        remark = f"No topic route info in name server for the topic: {header.topic}{FAQ}"
        return response(request, ResponseCode.TOPIC_NOT_EXIST, remark)
    if config.order_message_enable:
        route.order_topic_conf = server.key_values.get(ORDER_TOPIC_CONFIG, header.topic)
    return response(request, ResponseCode.SUCCESS, body=route.encode())


def _register_broker(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """103. The CRC covers the body as sent; 0 means that the broker did not compute it."""
    header = read_header(headers.RegisterBrokerRequest, request.fields)
    data = _body(request)
    if header.body_crc32 and body_crc32(data) != header.body_crc32:
        return response(request, ResponseCode.SYSTEM_ERROR, "crc32 not match")
    try:
        body = RegisterBrokerBody.decode(
            data, compressed=header.compressed, version=request.version
        )
    except BadBody as error:
        remark = f"Failed to decode RegisterBrokerBody, {error}"
        return response(request, ResponseCode.SYSTEM_ERROR, remark)
    broker = Registration(
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
    delete_missing = server.config.delete_topic_with_broker_registration
    done = server.routes.register(broker, peer, now_ms, delete_missing_topics=delete_missing)
    if done.refusal is not None:
        return response(request, ResponseCode.SYSTEM_ERROR, done.refusal)
    _watch(server, peer)
    server.tell(done.notices)
    reply = headers.RegisterBrokerResponse(done.master_ha_address, done.master_address)
    return response(request, ResponseCode.SUCCESS, header=reply, body=_order_topics(server))


def _watch(server: NameServer, peer: Peer) -> None:
    """A broker's closed connection is its end, however it closed."""
    if SEEN not in peer.context:
        peer.context[SEEN] = True
        peer.on_close(lambda: server.tell(server.routes.connection_closed(peer)))


def _order_topics(server: NameServer) -> bytes:
    if not server.config.return_order_topic_config_to_broker:
        return b""
    table = server.key_values.namespace(ORDER_TOPIC_CONFIG)
    return b"" if table is None else bodies.dump({"table": table})


def _unregister_broker(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """104."""
    header = read_header(headers.UnRegisterBrokerRequest, request.fields)
    server.tell(
        server.routes.unregister(header.cluster_name, header.broker_name, header.broker_addr)
    )
    return response(request, ResponseCode.SUCCESS)


def _heartbeat(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """904."""
    header = read_header(headers.BrokerHeartbeatRequest, request.fields)
    server.routes.touch(header.cluster_name, header.broker_addr, now_ms)
    return response(request, ResponseCode.SUCCESS)


def _data_version(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """322: a sign of life too."""
    header = read_header(headers.QueryDataVersionRequest, request.fields)
    asked = DataVersion.decode(_body(request))
    server.routes.touch(header.cluster_name, header.broker_addr, now_ms)
    known = server.routes.data_version(header.cluster_name, header.broker_addr)
    reply = headers.QueryDataVersionResponse(known != asked)
    body = b"" if known is None else known.encode()
    return response(request, ResponseCode.SUCCESS, header=reply, body=body)


def _member_group(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """901."""
    header = read_header(headers.GetBrokerMemberGroupRequest, request.fields)
    members = server.routes.member_group(header.broker_name)
    group = {
        "brokerAddrs": {str(key): address for key, address in members.items()},
        "brokerName": header.broker_name,
        "cluster": header.cluster_name,
    }
    return response(request, ResponseCode.SUCCESS, body=bodies.dump({"brokerMemberGroup": group}))


def _cluster_info(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """106."""
    return response(request, ResponseCode.SUCCESS, body=server.routes.cluster_info().encode())


def _put_key_value(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """100."""
    header = read_header(headers.PutKVConfigRequest, request.fields)
    if header.namespace is None or header.key is None:
        return response(request, ResponseCode.SYSTEM_ERROR, "namespace or key is null")
    if header.value is None:
        return response(request, ResponseCode.SYSTEM_ERROR, "value is null")
    try:
        server.key_values.put(header.namespace, header.key, header.value)
    except (OSError, ValueError) as error:
        return _not_saved(request, error)
    return response(request, ResponseCode.SUCCESS)


def _get_key_value(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """101."""
    header = read_header(headers.GetKVConfigRequest, request.fields)
    value = server.key_values.get(header.namespace, header.key)
    if value is None:
        remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
        return response(request, ResponseCode.QUERY_NOT_FOUND, remark)
    return response(request, ResponseCode.SUCCESS, header=headers.GetKVConfigResponse(value))


def _delete_key_value(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """102: success also where nothing was."""
    header = read_header(headers.DeleteKVConfigRequest, request.fields)
    try:
        server.key_values.delete(header.namespace, header.key)
    except OSError as error:
        return _not_saved(request, error)
    return response(request, ResponseCode.SUCCESS)


def _not_saved(request: Command, error: Exception) -> Command:
    log.error("the change asked for by code %d is not saved: %s", request.code, error)
    return response(request, ResponseCode.SYSTEM_ERROR, f"not saved: {error}")


def _list_key_values(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """219."""
    header = read_header(headers.GetKVListByNamespaceRequest, request.fields)
    table = server.key_values.namespace(header.namespace)
    if table is None:
        remark = f"No config item, Namespace: {header.namespace}"
        return response(request, ResponseCode.QUERY_NOT_FOUND, remark)
    return response(request, ResponseCode.SUCCESS, body=bodies.dump({"table": table}))


def _wipe_write(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """205."""
    header = read_header(headers.WipeWritePermOfBrokerRequest, request.fields)
    count = server.routes.wipe_write_permission(header.broker_name)
    log.info("%s wipes the write permission of %d topics of %s",
             peer.address, count, header.broker_name)  # fmt: skip
    reply = headers.WipeWritePermOfBrokerResponse(count)
    return response(request, ResponseCode.SUCCESS, header=reply)


def _add_write(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """327."""
    header = read_header(headers.AddWritePermOfBrokerRequest, request.fields)
    count = server.routes.add_write_permission(header.broker_name)
    log.info("%s gives write permission to %d topics of %s",
             peer.address, count, header.broker_name)  # fmt: skip
    reply = headers.AddWritePermOfBrokerResponse(count)
    return response(request, ResponseCode.SUCCESS, header=reply)


def _all_topics(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """206."""
    return _topics(request, server.config.enable_all_topic_list, server.routes.topics)


def _cluster_topics(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """224."""
    header = read_header(headers.GetTopicsByClusterRequest, request.fields)
    return _topics(
        request,
        server.config.enable_topic_list,
        lambda: server.routes.topics_of_cluster(header.cluster),
    )


def _flagged(wanted: Callable[[int], bool]) -> Answer:
    """311, 312, 313: topics by their topicSysFlag."""

    def answer(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
        return _topics(
            request,
            server.config.enable_topic_list,
            lambda: server.routes.topics_with_flag(wanted),
        )

    return answer


def _topics(request: Command, enabled: bool, topics: Callable[[], list[str]]) -> Command:
    if not enabled:
        return response(request, ResponseCode.SYSTEM_ERROR, "disable")
    return response(request, ResponseCode.SUCCESS, body=bodies.dump({"topicList": topics()}))


def _system_topics(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """304: mqadmin asks the broker named here for the rest."""
    names, address = server.routes.system_topics()
    body = bodies.dump({"brokerAddr": address, "topicList": names})
    return response(request, ResponseCode.SUCCESS, body=body)


def _delete_topic(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """216."""
    header = read_header(headers.DeleteTopicFromNamesrvRequest, request.fields)
    server.routes.delete_topic(header.topic, header.cluster_name or None)
    return response(request, ResponseCode.SUCCESS)


def _register_topic(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """217."""
    header = read_header(headers.RegisterTopicRequest, request.fields)
    data = _body(request)
    if data and not server.routes.add_topic(
        header.topic, TopicRouteData.decode(data).queue_datas
    ):
        remark = f"{MAX_QUEUE_DATAS} topics are registered"
        return response(request, ResponseCode.SYSTEM_ERROR, remark)
    return response(request, ResponseCode.SUCCESS)


def _update_config(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """318: checked and saved on a copy first, so that a refused change changes nothing."""
    try:
        properties = parse_properties(_body(request).decode("utf-8", "replace"))
        if any(item.key in server.config.black_list for item in properties):
            remark = "Can not update config in black list."
            return response(request, ResponseCode.NO_PERMISSION, remark)
        changed = copy.deepcopy(server.config)
        for warning in changed.update(properties):
            log.warning("configuration from %s: %s", peer.address, warning)
        server.save_config(changed)
    except PropertiesError as error:
        return response(request, ResponseCode.SYSTEM_ERROR, str(error))
    except OSError as error:
        return _not_saved(request, error)
    server.config.update(properties)
    log.info("configuration changed by %s", peer.address)
    return response(request, ResponseCode.SUCCESS)


def _get_config(server: NameServer, request: Command, peer: Peer, now_ms: int) -> Command:
    """319."""
    body = format_properties(server.config.values()).encode()
    return response(request, ResponseCode.SUCCESS, body=body)


def _body(request: Command) -> bytes:
    assert isinstance(request.body, bytes), "a decoded body is bytes"
    return request.body


_ANSWERS: dict[RequestCode, Answer] = {
    RequestCode.PUT_KV_CONFIG: _put_key_value,
    RequestCode.GET_KV_CONFIG: _get_key_value,
    RequestCode.DELETE_KV_CONFIG: _delete_key_value,
    RequestCode.REGISTER_BROKER: _register_broker,
    RequestCode.UNREGISTER_BROKER: _unregister_broker,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _route,
    RequestCode.GET_BROKER_CLUSTER_INFO: _cluster_info,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _wipe_write,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _all_topics,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _delete_topic,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: _register_topic,
    RequestCode.GET_KVLIST_BY_NAMESPACE: _list_key_values,
    RequestCode.GET_TOPICS_BY_CLUSTER: _cluster_topics,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _system_topics,
    RequestCode.GET_UNIT_TOPIC_LIST: _flagged(is_unit),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _flagged(has_unit_subscription),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _flagged(has_unit_subscription_only),
    RequestCode.UPDATE_NAMESRV_CONFIG: _update_config,
    RequestCode.GET_NAMESRV_CONFIG: _get_config,
    RequestCode.QUERY_DATA_VERSION: _data_version,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _add_write,
    RequestCode.GET_BROKER_MEMBER_GROUP: _member_group,
    RequestCode.BROKER_HEARTBEAT: _heartbeat,
}
