"""A queue of a topic on a broker, as a JSON bean and as the key of a map.

Owns RocketMQ's MessageQueue. It must never know a broker's address.

Tests: tests/unit/net/wire/test_bodies.py
"""

from typing import Any, NamedTuple

from turbopump.engine import fastjson
from turbopump.net.wire.bodies import BadBody, as_object, read_int32, read_text


class MessageQueue(NamedTuple):
    """A queue (`queue_id` from 0) of a broker group, ordered by topic, broker name, queue id:
    RocketMQ's clients sort like this before they allocate.

    It is a tuple because groups have thousands in sets and tables, and tuples are hashed and
    compared natively.
    """

    topic: str
    broker_name: str
    queue_id: int

    @classmethod
    def from_json(cls, value: Any) -> "MessageQueue":
        """Convert a parsed JSON object with RocketMQ's member names; null and missing members are
        empty, 0 or the default. Raises BadBody for another shape."""
        members = as_object(value)
        return cls(
            read_text(members, "topic"),
            read_text(members, "brokerName"),
            read_int32(members, "queueId"),
        )

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON-ready dict with RocketMQ's member names."""
        return {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}

    @classmethod
    def from_key(cls, key: str) -> "MessageQueue":
        """Decode a bean key, the JSON text that fastjson.loads returns for it; raises BadBody."""
        try:
            return cls.from_json(fastjson.loads(key))
        except ValueError as error:
            raise BadBody(f"a key is no message queue: {error}") from None

    def bean_key(self) -> str:
        """The compact JSON text of the bean, for use as a key of fastjson.RawKeys, which writes it
        unquoted: `{{"brokerName":...}:value}`."""
        return fastjson.dumps(self.to_json())
