"""The broker itself as an operator sees it: its figures and its configuration.

Owns GET_BROKER_RUNTIME_INFO (28), UPDATE_BROKER_CONFIG (25), GET_BROKER_CONFIG (26) and
VIEW_BROKER_STATS_DATA (315). It must never let a running broker take a value that parts of it
would not notice. Called by the dispatcher.
"""

from functools import partial
from typing import Final

from turbopump.broker.context import BrokerContext
from turbopump.broker.handlers.shapes import answer_json
from turbopump.broker.known_keys import NO_EFFECT_KEYS, REFUSED_KEYS, WEAKER_PROMISE_KEYS
from turbopump.broker.runtime_info import runtime_table
from turbopump.broker.statistics import ALL, BROKER_GET_NUMS, BROKER_PUT_NUMS
from turbopump.broker.topics import AUTO_CREATE_TOPIC
from turbopump.engine.config import PROPERTY_FIELDS
from turbopump.net.transport.dispatcher import Answer, Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.admin import GetBrokerConfigResponse, ViewBrokerStatsDataRequest
from turbopump.net.wire.java_properties import (
    PropertiesError,
    Property,
    format_properties,
    parse_properties,
)
from turbopump.net.wire.topics import PERM_INHERIT, PERM_READ, PERM_WRITE, DataVersion

ALWAYS_BLACK_LISTED: Final = frozenset({"configBlackList", "brokerConfigPath"})

LIVE_KEYS: Final = frozenset(
    {
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "brokerFastFailureEnable",
        "brokerPermission",
        "channelExpiredTimeout",
        "flushConsumerOffsetInterval",
        "flushDelayOffsetInterval",
        "litePullMessageEnable",
        "longPollingEnable",
        "notifyConsumerIdsChangedEnable",
        "offsetCheckInSlave",
        "regionId",
        "registerBrokerTimeoutMills",
        "registerNameServerPeriod",
        "rejectTransactionMessage",
        "shortPollingTimeMills",
        "slaveReadEnable",
        "startAcceptSendRequestTimeStamp",
        "subscriptionExpiredTimeout",
        "traceOn",
        "useServerSideResetOffset",
        "validateSystemTopicWhenUpdateTopic",
    }
)
"""Keys whose value is read each time it is used, so that a change is whole at once."""


class ConfigRequests:
    """The two configuration requests of one broker, with the version they count."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._version = DataVersion(timestamp=broker.started_ms)

    def get(self, request: Command, _peer: Peer, _now_ms: int) -> Command:
        """26: `key=value` lines; the version of the configuration is in the header."""
        header = GetBrokerConfigResponse(bodies.dump(self._version.to_json()).decode())
        body = format_properties(self._broker.config.values()).encode()
        return response(request, ResponseCode.SUCCESS, header=header, body=body)

    def update(self, request: Command, _peer: Peer, now_ms: int) -> Answer:
        """25: all keys are taken over and saved, or none is and the answer names the bad one.

        What is taken over but does nothing yet is said in the remark.
        """
        broker = self._broker
        assert not isinstance(request.body, list), "a decoded body is bytes"
        try:
            properties = parse_properties(str(request.body, "utf-8", "replace"))
        except PropertiesError as error:
            return response(request, ResponseCode.SYSTEM_ERROR, str(error))
        black_list = ALWAYS_BLACK_LISTED | self._configured_black_list()
        if any(item.key in black_list for item in properties):
            remark = "Can not update config in black list."
            return response(request, ResponseCode.NO_PERMISSION, remark)
        if not properties:
            return response(request, ResponseCode.SYSTEM_ERROR, "no key=value was sent")
        notes: list[str] = []
        for item in properties:
            refused, note = self._judge(item)
            if refused:
                return response(request, ResponseCode.SYSTEM_ERROR, refused)
            if note:
                notes.append(note)
        permission = broker.config.broker_permission
        try:
            broker.config.update(properties)
        except PropertiesError as error:
            return response(request, ResponseCode.SYSTEM_ERROR, str(error))
        self._version = self._version.next(now_ms)
        try:
            broker.save_config()
        except OSError as error:
            notes.append(f"taken over, but lost at a restart: {error}")
        self._add_default_topic(now_ms)
        answer = response(request, ResponseCode.SUCCESS, "; ".join(notes) or None)
        if broker.config.broker_permission == permission:
            return answer
        # Every topic's permission is told to the name servers through the broker's own.
        broker.topics.bump_version(now_ms)
        return broker.register_topics([]).map(lambda _nothing: answer)

    def _configured_black_list(self) -> frozenset[str]:
        listed = self._broker.config.others.get("configBlackList", "")
        return frozenset(key.strip() for key in listed.split(";") if key.strip())

    def _judge(self, item: Property) -> tuple[str, str]:
        """(why the key cannot be set, "") or ("", what to tell of one that can)."""
        key = item.key
        if key in LIVE_KEYS:
            return "", ""
        if key in PROPERTY_FIELDS and not key.startswith("storePath"):
            if self._broker.config.path:
                return "", f"{key} is taken over at the next start"
            return f"{key} needs a restart, and this broker has no file to keep it in", ""
        promise = REFUSED_KEYS.get(key) or WEAKER_PROMISE_KEYS.get(key)
        if promise is not None:
            harmless = item.value.strip() in promise
            return ("", "") if harmless else (f"{key}={item.value} is not supported", "")
        if key in NO_EFFECT_KEYS:
            return "", f"{key} has no effect in this broker"
        if key in self._broker.config.values() or key.startswith("tls."):
            return f"{key} cannot change while the broker runs: set it in its file and restart", ""
        return f"unknown key {key}", ""

    def _add_default_topic(self, now_ms: int) -> None:
        """Automatic creation that was off at start lacks the topic others are made from."""
        config = self._broker.config
        if config.auto_create_topic_enable:
            perm = PERM_READ | PERM_WRITE | PERM_INHERIT
            self._broker.topics.create_internal(
                AUTO_CREATE_TOPIC, config.default_topic_queue_nums, perm, now_ms
            )


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of this family."""
    requests = ConfigRequests(broker)
    table.add(RequestCode.UPDATE_BROKER_CONFIG, requests.update)
    table.add(RequestCode.GET_BROKER_CONFIG, requests.get)
    table.add(RequestCode.GET_BROKER_RUNTIME_INFO, partial(_runtime_info, broker))
    table.add(RequestCode.VIEW_BROKER_STATS_DATA, partial(_stats_data, broker))


def _runtime_info(broker: BrokerContext, request: Command, _peer: Peer, now_ms: int) -> Command:
    return answer_json(request, {"table": runtime_table(broker, now_ms)})


def _stats_data(broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int) -> Command:
    """315: sums and rates of the last minute, hour and day."""
    header = read_header(ViewBrokerStatsDataRequest, request.fields)
    name, key = header.stats_name, header.stats_key
    of_broker = name in (BROKER_PUT_NUMS, BROKER_GET_NUMS)
    if of_broker and key == broker.config.broker_cluster_name:
        found = broker.statistics.find(name, ALL)
    else:
        found = broker.statistics.find(name, key)
    if found is None:
        remark = f"The stats <{name}> <{key}> not exist"
        return response(request, ResponseCode.SYSTEM_ERROR, remark)
    minute, hour, day = found
    body = {
        "statsDay": day.to_json(),
        "statsHour": hour.to_json(),
        "statsMinute": minute.to_json(),
    }
    return answer_json(request, body)
