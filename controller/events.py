"""Events of the controller's log and their encoding.

Owns the body of a log entry: an event of a broker group as RocketMQ's EventSerializer writes it,
and the events that only this implementation has. It must never judge an event: the leader decided.

    0  int16  type, big-endian
    2  JSON of the event

An empty body has no event: a leader's first entry, or that of a read. RocketMQ's types are below
100. A Java controller throws at an unknown type; this one logs it and continues.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from turbopump.engine.types import Buffer
from turbopump.net.wire.bodies import (
    BadBody,
    as_int,
    as_object,
    encode_json,
    load_object,
    read_flag,
    read_int32,
    read_int64,
    read_list,
    read_text,
)

BATCH_TYPE: Final = 100
"""Type of an entry with several events, which are applied together. Ours."""


@dataclass(frozen=True, slots=True)
class AlterSyncStateSet:
    """The group's SyncStateSet becomes `members`, broker ids that include the master's."""

    broker_name: str
    members: frozenset[int]


@dataclass(frozen=True, slots=True)
class ApplyBrokerId:
    """A broker gets its id; its group is created if it does not exist."""

    cluster_name: str
    broker_name: str
    broker_address: str
    check_code: str
    """Random text of the broker by which a repeated request is recognized."""
    broker_id: int


@dataclass(frozen=True, slots=True)
class ElectMaster:
    """The broker `broker_id` becomes the group's master and the only member of its SyncStateSet;
    None: the group has no master.

    `master_epoch` is ours: the new epoch if the next one would not suffice, because a broker of the
    group knows a later one; 0 means the next one. `on_lease` is ours, too: the master serves
    nothing before `BeginMasterTerm`, so brokers that could have been elected instead remain
    electable until then.
    """

    broker_name: str
    broker_id: int | None
    master_epoch: int = 0
    on_lease: bool = False


@dataclass(frozen=True, slots=True)
class BeginMasterTerm:
    """The master of that epoch has reported and gets leases from now. Ours."""

    broker_name: str
    master_epoch: int


@dataclass(frozen=True, slots=True)
class Read:
    """No change: RocketMQ's barrier before a read, which this controller never appends."""


@dataclass(frozen=True, slots=True)
class CleanBrokerData:
    """The brokers with these ids are removed from a group; None: the whole group is."""

    broker_name: str
    broker_ids: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class UpdateBrokerAddress:
    """The address of a registered broker becomes `broker_address`."""

    cluster_name: str
    broker_name: str
    broker_address: str
    broker_id: int


@dataclass(frozen=True, slots=True)
class MarkUnfit:
    """A broker's log is damaged or may lack acknowledged messages. Ours.

    `reason` is state.DAMAGED or state.UNCLEAN.

    The broker is no candidate until its master has added it to the SyncStateSet again.
    """

    broker_name: str
    broker_id: int
    reason: str


Event = (
    AlterSyncStateSet
    | ApplyBrokerId
    | ElectMaster
    | Read
    | CleanBrokerData
    | UpdateBrokerAddress
    | MarkUnfit
    | BeginMasterTerm
)
"""A change of the controllers' tables, as one committed entry's body has it."""


@dataclass(frozen=True, slots=True)
class BadEvent:
    """An entry that this state machine cannot decode; `reason` is one line."""

    reason: str


def encode(events: Sequence[Event]) -> bytes:
    """Encode events that are applied together as an entry's body; no event: an empty body."""
    if not events:
        return b""
    if len(events) == 1:
        return _TYPES[type(events[0])].to_bytes(2, "big") + encode_json(
            _WRITERS[type(events[0])](*events)
        )
    pieces = [{"event": _WRITERS[type(one)](one), "type": _TYPES[type(one)]} for one in events]
    return BATCH_TYPE.to_bytes(2, "big") + encode_json({"events": pieces})


def decode(body: Buffer) -> tuple[Event, ...] | BadEvent:
    """Decode the events of an entry's body; an empty body: (). A body that is malformed or of an
    unknown type gives a BadEvent: never raises, because the log must stay readable."""
    if not len(body):
        return ()
    if len(body) < 2:
        return BadEvent("an entry of 1 byte has no event type")
    kind = int.from_bytes(body[:2], "big")
    try:
        members = load_object(body[2:])
        if kind != BATCH_TYPE:
            return (_event_of_kind(kind, members),)
        return tuple(read_list(members, "events", _decode_event))
    except BadBody as error:
        return BadEvent(f"an event of type {kind} is not readable: {error}")


def _decode_event(value: Any) -> Event:
    """Decode `{"type": ..., "event": {...}}`. Raises BadBody."""
    members = as_object(value)
    return _event_of_kind(read_int64(members, "type", -1), as_object(members.get("event")))


def _event_of_kind(kind: int, members: dict[str, Any]) -> Event:
    """Decode the members of an event of type `kind`. Raises BadBody."""
    reader = _READERS.get(kind)
    if reader is None:
        raise BadBody(f"type {kind} is not known")
    return reader(members)


def _broker_name(members: dict[str, Any]) -> str:
    """The member brokerName. Raises BadBody if it is missing or empty."""
    name = read_text(members, "brokerName")
    if not name:
        raise BadBody("brokerName is missing")
    return name


def _broker_id(members: dict[str, Any], key: str) -> int:
    """The broker id in the member `key`. Raises BadBody if it is missing or negative."""
    found = as_int(members.get(key), key)
    if found < 0:
        raise BadBody(f"{key} is {found}")
    return found


def _broker_ids(members: dict[str, Any], key: str) -> frozenset[int]:
    return frozenset(read_list(members, key, lambda value: _broker_id({key: value}, key)))


def _encode_alter(event: AlterSyncStateSet) -> dict[str, Any]:
    return {"brokerName": event.broker_name, "newSyncStateSet": sorted(event.members)}


def _decode_alter(members: dict[str, Any]) -> Event:
    return AlterSyncStateSet(_broker_name(members), _broker_ids(members, "newSyncStateSet"))


def _encode_apply(event: ApplyBrokerId) -> dict[str, Any]:
    return {
        "brokerAddress": event.broker_address,
        "brokerName": event.broker_name,
        "clusterName": event.cluster_name,
        "newBrokerId": event.broker_id,
        "registerCheckCode": event.check_code,
    }


def _decode_apply(members: dict[str, Any]) -> Event:
    return ApplyBrokerId(
        read_text(members, "clusterName"),
        _broker_name(members),
        read_text(members, "brokerAddress"),
        read_text(members, "registerCheckCode"),
        _broker_id(members, "newBrokerId"),
    )


def _encode_elect(event: ElectMaster) -> dict[str, Any]:
    return {
        "brokerName": event.broker_name,
        "masterEpoch": event.master_epoch or None,
        "newMasterBrokerId": event.broker_id,
        "newMasterElected": event.broker_id is not None,
        "onLease": event.on_lease or None,
    }


def _decode_elect(members: dict[str, Any]) -> Event:
    elected = read_flag(members, "newMasterElected")
    master = _broker_id(members, "newMasterBrokerId") if elected else None
    epoch = read_int32(members, "masterEpoch")
    return ElectMaster(_broker_name(members), master, epoch, read_flag(members, "onLease"))


def _encode_clean(event: CleanBrokerData) -> dict[str, Any]:
    ids = None if event.broker_ids is None else sorted(event.broker_ids)
    return {"brokerIdSetToClean": ids, "brokerName": event.broker_name}


def _decode_clean(members: dict[str, Any]) -> Event:
    # RocketMQ also takes an empty set for the whole group.
    return CleanBrokerData(
        _broker_name(members), _broker_ids(members, "brokerIdSetToClean") or None
    )


def _encode_update(event: UpdateBrokerAddress) -> dict[str, Any]:
    return {
        "brokerAddress": event.broker_address,
        "brokerId": event.broker_id,
        "brokerName": event.broker_name,
        "clusterName": event.cluster_name,
    }


def _decode_update(members: dict[str, Any]) -> Event:
    return UpdateBrokerAddress(
        read_text(members, "clusterName"),
        _broker_name(members),
        read_text(members, "brokerAddress"),
        _broker_id(members, "brokerId"),
    )


def _encode_mark(event: MarkUnfit) -> dict[str, Any]:
    return {"brokerId": event.broker_id, "brokerName": event.broker_name, "reason": event.reason}


def _decode_mark(members: dict[str, Any]) -> Event:
    return MarkUnfit(
        _broker_name(members),
        _broker_id(members, "brokerId"),
        read_text(members, "reason", "unclean"),
    )


def _encode_begin(event: BeginMasterTerm) -> dict[str, Any]:
    return {"brokerName": event.broker_name, "masterEpoch": event.master_epoch}


def _decode_begin(members: dict[str, Any]) -> Event:
    return BeginMasterTerm(_broker_name(members), read_int32(members, "masterEpoch"))


_TYPES: Final[dict[type[Any], int]] = {
    AlterSyncStateSet: 1,
    ApplyBrokerId: 2,
    ElectMaster: 3,
    Read: 4,
    CleanBrokerData: 5,
    UpdateBrokerAddress: 6,
    MarkUnfit: 101,
    BeginMasterTerm: 102,
}
_WRITERS: Final[dict[type[Any], Callable[[Any], dict[str, Any]]]] = {
    AlterSyncStateSet: _encode_alter,
    ApplyBrokerId: _encode_apply,
    ElectMaster: _encode_elect,
    Read: lambda _: {},
    CleanBrokerData: _encode_clean,
    UpdateBrokerAddress: _encode_update,
    MarkUnfit: _encode_mark,
    BeginMasterTerm: _encode_begin,
}
_READERS: Final[dict[int, Callable[[dict[str, Any]], Event]]] = {
    1: _decode_alter,
    2: _decode_apply,
    3: _decode_elect,
    4: lambda _: Read(),
    5: _decode_clean,
    6: _decode_update,
    101: _decode_mark,
    102: _decode_begin,
}
