"""Configurations of subscription groups, on the wire and in subscriptionGroup.json.

Owns RocketMQ's SubscriptionGroupConfig; unknown members are kept. It must never decide whether a
group may exist.

Tests: tests/wire/test_golden_bodies.py, tests/unit/broker/tables/test_tables.py
"""

from dataclasses import dataclass, field
from typing import Any

from turbopump.engine import fastjson
from turbopump.engine.types import Buffer
from turbopump.net.wire.bodies import (
    as_object,
    as_text,
    encode_json,
    load_object,
    read_flag,
    read_int32,
    read_int64,
    read_table,
    read_text,
)

_KNOWN = frozenset(
    {
        "attributes",
        "brokerId",
        "consumeBroadcastEnable",
        "consumeEnable",
        "consumeFromMinEnable",
        "consumeMessageOrderly",
        "consumeTimeoutMinute",
        "groupName",
        "groupRetryPolicy",
        "groupSysFlag",
        "notifyConsumerIdsChangedEnable",
        "retryMaxTimes",
        "retryQueueNums",
        "whichBrokerWhenConsumeSlowly",
    }
)


def _default_policy() -> dict[str, Any]:
    """Return RocketMQ's default GroupRetryPolicy."""
    return {"type": "CUSTOMIZED"}


@dataclass(slots=True)
class SubscriptionGroupConfig:
    """A consumer group of a broker, with RocketMQ's defaults. The members are RocketMQ's, in snake
    case; `extra` holds JSON members unknown here."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: dict[str, Any] = field(default_factory=_default_policy)
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: dict[str, str] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    _row: bytes = field(default=b"", init=False, repr=False, compare=False)

    @classmethod
    def from_json(cls, value: Any) -> "SubscriptionGroupConfig":
        """Decode the JSON bean; missing members get RocketMQ's defaults. Raises BadBody."""
        members = as_object(value)
        policy = members.get("groupRetryPolicy")
        return cls(
            group_name=read_text(members, "groupName"),
            consume_enable=read_flag(members, "consumeEnable", True),
            consume_from_min_enable=read_flag(members, "consumeFromMinEnable", True),
            consume_broadcast_enable=read_flag(members, "consumeBroadcastEnable", True),
            consume_message_orderly=read_flag(members, "consumeMessageOrderly"),
            retry_queue_nums=read_int32(members, "retryQueueNums", 1),
            retry_max_times=read_int32(members, "retryMaxTimes", 16),
            group_retry_policy=_default_policy() if policy is None else as_object(policy),
            broker_id=read_int64(members, "brokerId"),
            which_broker_when_consume_slowly=read_int64(members, "whichBrokerWhenConsumeSlowly", 1),
            notify_consumer_ids_changed_enable=read_flag(
                members, "notifyConsumerIdsChangedEnable", True
            ),
            group_sys_flag=read_int32(members, "groupSysFlag"),
            consume_timeout_minute=read_int32(members, "consumeTimeoutMinute", 15),
            attributes=read_table(members, "attributes", as_text),
            extra={key: member for key, member in members.items() if key not in _KNOWN},
        )

    @classmethod
    def decode(cls, body: Buffer) -> "SubscriptionGroupConfig":
        """Decode a body with a single configuration; raises BadBody."""
        return cls.from_json(load_object(body))

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON-ready dict with RocketMQ's member names."""
        return {
            **self.extra,
            "attributes": dict(self.attributes),
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "consumeMessageOrderly": self.consume_message_orderly,
            "consumeTimeoutMinute": self.consume_timeout_minute,
            "groupName": self.group_name,
            "groupRetryPolicy": self.group_retry_policy,
            "groupSysFlag": self.group_sys_flag,
            "notifyConsumerIdsChangedEnable": self.notify_consumer_ids_changed_enable,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queue_nums,
            "whichBrokerWhenConsumeSlowly": self.which_broker_when_consume_slowly,
        }

    def row(self) -> bytes:
        """Return the line of this group in subscriptionGroup.json; it is encoded once, so the
        configuration must not change after the first call. Any thread may call this."""
        if not self._row:
            self._row = fastjson.encode_member(self.group_name, self.to_json(), 2)
        return self._row

    def encode(self) -> bytes:
        """Encode `to_json` as a compact JSON body in UTF-8, at once."""
        return encode_json(self.to_json())
