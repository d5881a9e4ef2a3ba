"""The body of a heartbeat: a client's id, its producer groups and its consumer groups.

Owns RocketMQ's HeartbeatData, ProducerData and ConsumerData. It must never keep state.

Tests: tests/wire/test_golden_bodies.py, tests/unit/net/wire/test_subscription.py
"""

from dataclasses import dataclass, field
from typing import Any, Final

from turbopump.engine.types import Buffer
from turbopump.net.wire.bodies import (
    READ,
    BadBody,
    Steps,
    as_object,
    encode_json,
    items_in_steps,
    load_object,
    object_in_steps,
    read_flag,
    read_int32,
    read_list,
    read_text,
)
from turbopump.net.wire.names import name_member
from turbopump.net.wire.subscription import SubscriptionData

SUBSCRIPTIONS_MAX: Final = 4_096
"""Maximum number of topics of a group of a client."""

CLUSTERING: Final = "CLUSTERING"
"""Message model: each message goes to a single member of the group."""
BROADCASTING: Final = "BROADCASTING"
"""Message model: every member receives every message."""
CONSUME_ACTIVELY: Final = "CONSUME_ACTIVELY"
"""Type of a consumer that pulls as the program asks (lite pull)."""
CONSUME_PASSIVELY: Final = "CONSUME_PASSIVELY"
"""Type of a push consumer, which pulls by itself."""
CONSUME_POP: Final = "CONSUME_POP"
"""Type of a consumer that pops."""
CONSUME_FROM_LAST_OFFSET: Final = "CONSUME_FROM_LAST_OFFSET"
"""Start of a group without an offset: the end of each queue."""
CONSUME_FROM_FIRST_OFFSET: Final = "CONSUME_FROM_FIRST_OFFSET"
"""Start of a group without an offset: the first stored message of each queue."""
CONSUME_FROM_TIMESTAMP: Final = "CONSUME_FROM_TIMESTAMP"
"""Start of a group without an offset: a time that the client knows."""


@dataclass(slots=True)
class ProducerData:
    """A producer group of a client."""

    group_name: str

    @classmethod
    def from_json(cls, value: Any) -> "ProducerData":
        """Convert a parsed JSON object with RocketMQ's member names; null and missing members are
        empty, 0 or the default. Raises BadBody for another shape."""
        return cls(read_text(as_object(value), "groupName"))

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON-ready dict with RocketMQ's member names."""
        return {"groupName": self.group_name}


@dataclass(slots=True)
class ConsumerData:
    """A consumer group of a client with its subscriptions. `consume_type`, `message_model` and
    `consume_from_where` are the constants above, or a peer's own text."""

    group_name: str
    consume_type: str = CONSUME_PASSIVELY
    message_model: str = CLUSTERING
    consume_from_where: str = CONSUME_FROM_LAST_OFFSET
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False

    @classmethod
    def from_json(cls, value: Any) -> "ConsumerData":
        """Convert a parsed JSON object with RocketMQ's member names; null and missing members are
        empty, 0 or the default. Raises BadBody for another shape."""
        members = as_object(value)
        return cls(
            group_name=read_text(members, "groupName"),
            consume_type=name_member(members, "consumeType", CONSUME_PASSIVELY),
            message_model=name_member(members, "messageModel", CLUSTERING),
            consume_from_where=name_member(members, "consumeFromWhere", CONSUME_FROM_LAST_OFFSET),
            subscription_data_set=read_list(
                members, "subscriptionDataSet", SubscriptionData.from_json
            ),
            unit_mode=read_flag(members, "unitMode"),
        )

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON-ready dict with RocketMQ's member names."""
        return {
            "consumeFromWhere": self.consume_from_where,
            "consumeType": self.consume_type,
            "groupName": self.group_name,
            "messageModel": self.message_model,
            "subscriptionDataSet": [data.to_json() for data in self.subscription_data_set],
            "unitMode": self.unit_mode,
        }


@dataclass(slots=True)
class HeartbeatData:
    """A heartbeat. With `without_sub` the subscription sets are left out on purpose (V2): the sets
    of the heartbeat with the same `heartbeat_fingerprint` hold."""

    client_id: str
    producer_data_set: list[ProducerData] = field(default_factory=list)
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: int = 0
    without_sub: bool = False

    @classmethod
    def decode(cls, body: Buffer) -> "HeartbeatData":
        """Decode the body of HEART_BEAT; raises BadBody."""
        return cls.from_json(load_object(body))

    @classmethod
    def decode_in_steps(cls, body: Buffer | list[memoryview]) -> Steps["HeartbeatData"]:
        """Decode like `decode`, in steps; raises BadBody, also for a group with more than
        SUBSCRIPTIONS_MAX subscriptions."""
        members = yield from object_in_steps(body)
        consumers: list[ConsumerData] = []
        weight = 0
        for one in read_list(members, "consumerDataSet", as_object):
            subscriptions = one.get("subscriptionDataSet")
            count = len(subscriptions) if isinstance(subscriptions, list) else 0
            if count > SUBSCRIPTIONS_MAX:
                raise BadBody(f"a group has {count} subscriptions, over {SUBSCRIPTIONS_MAX}")
            consumers.append(ConsumerData.from_json(one))
            weight += 1 + count
            if weight > READ:
                weight = 0
                yield
        producers = yield from items_in_steps(members, "producerDataSet", ProducerData.from_json)
        found = cls.from_json({**members, "consumerDataSet": None, "producerDataSet": None})
        found.consumer_data_set, found.producer_data_set = consumers, producers
        return found

    @classmethod
    def from_json(cls, value: Any) -> "HeartbeatData":
        """Decode the JSON bean; `isWithoutSub` is read like `withoutSub`. Raises BadBody."""
        members = as_object(value)
        return cls(
            client_id=read_text(members, "clientID"),
            producer_data_set=read_list(members, "producerDataSet", ProducerData.from_json),
            consumer_data_set=read_list(members, "consumerDataSet", ConsumerData.from_json),
            heartbeat_fingerprint=read_int32(members, "heartbeatFingerprint"),
            without_sub=read_flag(members, "withoutSub") or read_flag(members, "isWithoutSub"),
        )

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON-ready dict with RocketMQ's member names."""
        return {
            "clientID": self.client_id,
            "consumerDataSet": [data.to_json() for data in self.consumer_data_set],
            "heartbeatFingerprint": self.heartbeat_fingerprint,
            "producerDataSet": [data.to_json() for data in self.producer_data_set],
            "withoutSub": self.without_sub,
        }

    def encode(self) -> bytes:
        """Encode `to_json` as a compact JSON body in UTF-8, at once."""
        return encode_json(self.to_json())
