"""Rules for entries that clients of the log (DLedgerClient) append.

Owns that judgement. It must never change a table. It is applied in the order of proposals.

RocketMQ's controller accepts any bytes; an event that its state machine does not know, or a read,
stops it in apply, and no request is answered afterwards. Here each of these is refused with a
reason. A known event is accepted, unless it belongs to an existing group: only the leader's own
decisions may name a master or a SyncStateSet, or two brokers might believe to be the master.

Tests: tests/unit/controller/test_hostile_names.py, tests/integration/controller/test_nodes.py
"""

from turbopump.controller import events, registration
from turbopump.controller.elections import Decision
from turbopump.controller.events import ApplyBrokerId, BadEvent, Event
from turbopump.controller.state import GroupTables
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.headers.controller import ApplyBrokerIdRequest

ROCKETMQ_TYPES_MAX = 99
"""Greatest event type of RocketMQ; higher types are ours, and only controllers append them."""

VALUES_MAX = 10_000
"""Commas and brackets of an entry, at most, counted before parsing: an event of a group with 100
replicas has a few hundred, and 10,000 are parsed in some milliseconds."""


def judge_entry(tables: GroupTables, body: bytes) -> Decision:
    """Decide whether a client's entry with this body may be appended: SUCCESS without events, or a
    refusal with its reason as remark."""
    if sum(map(body.count, (b",", b"[", b"{"))) > VALUES_MAX:
        return _refused(f"an event of over {VALUES_MAX} values")
    happened = events.decode(body)
    if isinstance(happened, BadEvent):
        return _refused(happened.reason)
    kind = int.from_bytes(body[:2], "big")
    if kind > ROCKETMQ_TYPES_MAX:
        return _refused(f"an event of type {kind} is only made by a controller")
    for event in happened:
        refusal = _refusal_of(tables, event, kind)
        if refusal is not None:
            return refusal
    return Decision()


def _refusal_of(tables: GroupTables, event: Event, kind: int) -> Decision | None:
    """The refusal of an event of type `kind`; None if it may be appended."""
    if isinstance(event, events.Read):
        return _refused(f"an event of type {kind} is a read, which cannot be appended")
    if isinstance(event, ApplyBrokerId):
        if event.broker_address and not registration.is_name(event.broker_address):
            return _refused("the broker's address is too long or unprintable")
        header = ApplyBrokerIdRequest(
            event.cluster_name, event.broker_name, event.broker_id, event.check_code
        )
        decision = registration.apply_id(tables, header)
        return None if decision.code is ResponseCode.SUCCESS else decision
    if event.broker_name in tables.groups:
        return _refused(
            f"an event of type {kind} of the broker-set {event.broker_name} is only made by a "
            "request to the controller"
        )
    return None


def _refused(reason: str) -> Decision:
    return Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, reason)
