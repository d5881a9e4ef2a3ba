"""A queue of a topic on a broker, as a JSON bean and as the key of a map.

Owns RocketMQ's MessageQueue. It must never know where the broker is. Called by clients, and by the
handlers whose bodies speak of queues.
"""

from typing import Any, NamedTuple

from turbopump.engine import fastjson
from turbopump.net.wire.bodies import BadBody, as_object, int32, text


class MessageQueue(NamedTuple):
    """Ordered by topic, broker name, queue id, as RocketMQ's clients sort before they allocate. A
    tuple, for groups have thousands in sets and tables: it is hashed and compared natively."""

    topic: str
    broker_name: str
    queue_id: int

    @classmethod
    def from_json(cls, value: Any) -> "MessageQueue":
        """From a bean; raises BadBody."""
        members = as_object(value)
        return cls(text(members, "topic"), text(members, "brokerName"), int32(members, "queueId"))

    def to_json(self) -> dict[str, Any]:
        """The bean."""
        return {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}

    @classmethod
    def from_key(cls, key: str) -> "MessageQueue":
        """From the JSON text of the bean, as fastjson.loads leaves a bean key; raises BadBody."""
        try:
            return cls.from_json(fastjson.loads(key))
        except ValueError as error:
            raise BadBody(f"a key is no message queue: {error}") from None

    def bean_key(self) -> str:
        """The text to use as a key of fastjson.RawKeys: `{{"brokerName":...}:value}`."""
        return fastjson.dumps(self.to_json())
