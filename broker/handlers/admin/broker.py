"""Requests of operators for the broker's figures and its configuration.

Owns GET_BROKER_RUNTIME_INFO (28), UPDATE_BROKER_CONFIG (25), GET_BROKER_CONFIG (26) and
VIEW_BROKER_STATS_DATA (315). It must never give a running broker a value that parts of it would not
notice.
"""

from functools import partial

from turbopump.broker.context import BrokerContext
from turbopump.broker.handlers.json_responses import json_response
from turbopump.broker.introspection.runtime_info import runtime_table
from turbopump.broker.tables.statistics import ALL, BROKER_GET_NUMS, BROKER_PUT_NUMS
from turbopump.engine.deferred import Deferred
from turbopump.net.config.updates import LISTED_MAX, parse_update
from turbopump.net.transport.dispatcher import Dispatcher, Response
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.admin import GetBrokerConfigResponse, ViewBrokerStatsDataRequest
from turbopump.net.wire.java_properties import (
    PropertiesError,
    format_properties,
)
from turbopump.net.wire.names import AUTO_CREATE_TOPIC
from turbopump.net.wire.topics import PERM_INHERIT, PERM_READ, PERM_WRITE, DataVersion


class ConfigRequests:
    """Handlers of the two configuration requests of a broker (25 and 26), and the version that
    counts the configuration's updates since the start. `now_ms` is epoch ms."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._version = DataVersion(timestamp=broker.started_ms)

    def query_config(self, request: Command, _peer: Peer, _now_ms: int) -> Command:
        """Answer 26: all keys in `key=value` lines, except credentials; the version of the
        configuration is in the header as JSON."""
        header = GetBrokerConfigResponse(bodies.encode_json(self._version.to_json()).decode())
        body = format_properties(self._broker.config.values_as_text()).encode()
        return new_response(request, ResponseCode.SUCCESS, header=header, body=body)

    def update_config(self, request: Command, _peer: Peer, now_ms: int) -> Response:
        """Handle 25: either all keys take effect at once and are saved, or none, and the answer
        names the invalid keys. Keys that are accepted but have no effect are listed in the remark.
        RocketMQ answers 0 to a request without a body.

        The answer to a change waits until it is saved, or its write has failed (a success with a
        remark), and name servers have a changed brokerPermission.
        """
        broker = self._broker
        assert not isinstance(request.body, list), "a decoded body is bytes"
        if not request.body:
            return new_response(request, ResponseCode.SUCCESS)
        try:
            properties = parse_update(request.body)
        except PropertiesError as error:
            return new_response(request, ResponseCode.SYSTEM_ERROR, str(error))
        config = broker.config
        if any(config.is_black_listed(item.key) for item in properties):
            remark = "Can not update config in black list."
            return new_response(request, ResponseCode.NO_PERMISSION, remark)
        if not properties:
            return new_response(request, ResponseCode.SYSTEM_ERROR, "no key=value was sent")
        shown = config.values_as_text()
        # Unchanged values are dropped: tools may send back everything that 26 returned.
        properties = [
            item
            for item in properties
            if config.accepts_change(item.key) or item.value != shown.get(item.key)
        ]
        refused = [why for item in properties if (why := config.refusal_reason(item))]
        if refused:
            return new_response(request, ResponseCode.SYSTEM_ERROR, "; ".join(refused[:LISTED_MAX]))
        permission = config.broker_permission
        try:
            notes = config.update_keys(properties)
        except PropertiesError as error:
            return new_response(request, ResponseCode.SYSTEM_ERROR, str(error))
        self._version = self._version.next_version(now_ms)
        if not config.path:
            notes.append("in force until this broker stops: it has no configuration file")
        registered = Deferred.resolved(None)
        if config.broker_permission != permission:
            # The broker registers this permission for each of its topics with the name servers.
            broker.topics.bump_version(now_ms)
            registered = broker.register_topics([])
        self._add_default_topic(now_ms)
        answered = Deferred[Command]()

        def answer_saved(error: OSError | None) -> None:
            lost = [] if error is None else [f"in force, but lost at a restart: {error}"]
            remark = "; ".join(notes + lost) or None
            response = new_response(request, ResponseCode.SUCCESS, remark)
            registered.then(lambda _nothing: answered.resolve(response))

        broker.save_config(properties).then(answer_saved)
        return answered

    def _add_default_topic(self, now_ms: int) -> None:
        """Create the template topic of automatic creation, which is missing if that was off at the
        start."""
        config = self._broker.config
        if config.auto_create_topic_enable:
            perm = PERM_READ | PERM_WRITE | PERM_INHERIT
            self._broker.topics.create_internal(
                AUTO_CREATE_TOPIC, config.default_topic_queue_nums, perm, now_ms
            )


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of this module's request codes to the table, which must not have them
    yet."""
    requests = ConfigRequests(broker)
    table.add(RequestCode.UPDATE_BROKER_CONFIG, requests.update_config)
    table.add(RequestCode.GET_BROKER_CONFIG, requests.query_config)
    table.add(RequestCode.GET_BROKER_RUNTIME_INFO, partial(_runtime_info, broker))
    table.add(RequestCode.VIEW_BROKER_STATS_DATA, partial(_stats_data, broker))


def _runtime_info(broker: BrokerContext, request: Command, _peer: Peer, now_ms: int) -> Command:
    """Answer 28 with the table of runtime facts."""
    return json_response(request, {"table": runtime_table(broker, now_ms)})


def _stats_data(broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int) -> Command:
    """Answer 315 with sums and rates of the last minute, hour and day."""
    header = read_header(ViewBrokerStatsDataRequest, request.fields)
    name, key = header.stats_name, header.stats_key
    of_broker = name in (BROKER_PUT_NUMS, BROKER_GET_NUMS)
    if of_broker and key == broker.config.broker_cluster_name:
        found = broker.statistics.find_windows(name, ALL)
    else:
        found = broker.statistics.find_windows(name, key)
    if found is None:
        remark = f"The stats <{name}> <{key}> not exist"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    minute, hour, day = found
    body = {
        "statsDay": day.to_json(),
        "statsHour": hour.to_json(),
        "statsMinute": minute.to_json(),
    }
    return json_response(request, body)
