"""A leader's decision about the shares of a topic, as group members exchange it.

Owns the bean in the answer to 307. It must never ask a node.

Tests: tests/unit/net/client/consuming/test_leader_assignor.py
"""

from dataclasses import dataclass
from typing import Any

from turbopump.net.allocation.shares import Shares
from turbopump.net.wire.bodies import BadBody, as_object, as_text, read_int64, read_list, read_table
from turbopump.net.wire.queues import MessageQueue


@dataclass(frozen=True, slots=True)
class LeaderAssignment:
    """A leader's decision about a topic; a higher generation is newer. `members` are the client ids
    that share the queues, sorted as they are allocated; `shares` maps client id to queues."""

    generation: int
    members: tuple[str, ...]
    shares: Shares

    @classmethod
    def from_json(cls, topic: str, value: Any) -> "LeaderAssignment":
        """Parse the bean of `to_json`, about `topic`; raises BadBody."""
        bean = as_object(value)
        owners = read_table(bean, "owners", lambda names: read_list({"": names}, "", as_text))
        shares = {
            member: [_parse_queue(topic, name) for name in names]
            for member, names in owners.items()
        }
        members = tuple(read_list(bean, "members", as_text))
        return cls(read_int64(bean, "generation"), members, shares)

    def to_json(self) -> dict[str, Any]:
        """Encode as JSON-ready `generation`, `members`, and `owners`: member to texts
        "broker:queue id"."""
        owners = {
            member: [f"{queue.broker_name}:{queue.queue_id}" for queue in share]
            for member, share in self.shares.items()
        }
        return {"generation": self.generation, "members": list(self.members), "owners": owners}


def _parse_queue(topic: str, name: str) -> MessageQueue:
    """Parse "broker:queue id"; raises BadBody."""
    broker, _, queue_id = name.rpartition(":")
    if not broker or not queue_id.isdecimal() or len(queue_id) > 9:
        raise BadBody(f"{name[:100]} is no broker:queue")
    return MessageQueue(topic, broker, int(queue_id))
