"""Bodies of the requests to controllers: the master and the in-sync replicas of a group.

Owns RocketMQ's SyncStateSet, ElectMasterResponseBody and BrokerReplicasInfo as values. It must
never interpret them.

Keys that are numbers are written quoted: fastjson2 2.0.59, which the `mqadmin` of RocketMQ 5.5.0
uses, refuses them unquoted. Both forms are read.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from turbopump.engine.json_steps import JsonBounds
from turbopump.engine.types import Buffer
from turbopump.net.wire.bodies import (
    LONG,
    BadBody,
    as_int,
    as_object,
    as_text,
    encode_json,
    load,
    load_object,
    optional_text,
    read_flag,
    read_int32,
    read_int64,
    read_list,
    read_table,
    read_text,
)

NAMES = JsonBounds(LONG.size, 8, 20_000)
"""Bounds of a list of broker names: as many as there are groups; it is parsed at once."""

Body = Buffer | list[memoryview]
"""The bytes of a body, whole or as slices in order."""


@dataclass(frozen=True, slots=True)
class SyncStateSet:
    """The broker ids of the replicas eligible as master, the current master included, and the set's
    epoch, which rises with each change."""

    members: frozenset[int] = frozenset()
    set_epoch: int = 0

    @classmethod
    def decode(cls, body: Body) -> "SyncStateSet":
        """Decode the body of 1001, 1003, 1004 and 1008; raises BadBody."""
        members = load_object(body)
        return cls(_read_ids(members), read_int32(members, "syncStateSetEpoch"))

    def encode(self) -> bytes:
        """Encode the JSON body, ids sorted."""
        return encode_json(
            {"syncStateSet": sorted(self.members), "syncStateSetEpoch": self.set_epoch}
        )


@dataclass(frozen=True, slots=True)
class MemberGroup:
    """The brokers of a group (RocketMQ: BrokerMemberGroup); `addresses` maps the controller's
    broker id to "host:port"."""

    cluster_name: str
    broker_name: str
    addresses: dict[int, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Any) -> "MemberGroup":
        """Convert a parsed JSON object with RocketMQ's member names; null and missing members are
        empty, 0 or the default. Raises BadBody for another shape."""
        members = as_object(value)
        addresses = read_table(members, "brokerAddrs", as_text)
        return cls(
            read_text(members, "cluster"),
            read_text(members, "brokerName"),
            {as_int(key, "brokerAddrs"): address for key, address in addresses.items()},
        )

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON-ready dict with RocketMQ's member names."""
        return {
            "brokerAddrs": {str(key): self.addresses[key] for key in sorted(self.addresses)},
            "brokerName": self.broker_name,
            "cluster": self.cluster_name,
        }


@dataclass(frozen=True, slots=True)
class ElectMasterBody:
    """Body of a response to 1002: the broker ids of the SyncStateSet, and the group, None if the
    old master stayed."""

    members: frozenset[int] = frozenset()
    group: MemberGroup | None = None

    @classmethod
    def decode(cls, body: Body) -> "ElectMasterBody":
        """Decode the JSON body of a response to 1002; raises BadBody."""
        members = load_object(body)
        group = members.get("brokerMemberGroup")
        return cls(_read_ids(members), None if group is None else MemberGroup.from_json(group))

    def encode(self) -> bytes:
        """Encode the body of the response to 1002."""
        group = None if self.group is None else self.group.to_json()
        return encode_json({"brokerMemberGroup": group, "syncStateSet": sorted(self.members)})


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    """A broker in its controller's metadata; `broker_address` is "host:port", `alive`: the
    controller receives its heartbeats."""

    broker_name: str
    broker_id: int
    broker_address: str
    alive: bool = False

    @classmethod
    def from_json(cls, value: Any) -> "ReplicaIdentity":
        """Convert a parsed JSON object with RocketMQ's member names; null and missing members are
        empty, 0 or the default. Raises BadBody for another shape."""
        members = as_object(value)
        return cls(
            read_text(members, "brokerName"),
            read_int64(members, "brokerId"),
            read_text(members, "brokerAddress"),
            read_flag(members, "alive"),
        )

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON-ready dict with RocketMQ's member names."""
        return {
            "alive": self.alive,
            "brokerAddress": self.broker_address,
            "brokerId": self.broker_id,
            "brokerName": self.broker_name,
        }


@dataclass(frozen=True, slots=True)
class ReplicasInfo:
    """State of a group (RocketMQ: BrokerReplicasInfo.ReplicasInfo); without a master its id and
    address are None. `in_sync` are the members of the SyncStateSet, `set_epoch` is the set's."""

    master_broker_id: int | None
    master_address: str | None
    master_epoch: int
    set_epoch: int
    in_sync: tuple[ReplicaIdentity, ...] = ()
    not_in_sync: tuple[ReplicaIdentity, ...] = ()

    @classmethod
    def from_json(cls, value: Any) -> "ReplicasInfo":
        """Convert a parsed JSON object with RocketMQ's member names; null and missing members are
        empty, 0 or the default. Raises BadBody for another shape."""
        members = as_object(value)
        master = members.get("masterBrokerId")
        return cls(
            None if master is None else as_int(master, "masterBrokerId"),
            optional_text(members, "masterAddress"),
            read_int32(members, "masterEpoch"),
            read_int32(members, "syncStateSetEpoch"),
            tuple(read_list(members, "inSyncReplicas", ReplicaIdentity.from_json)),
            tuple(read_list(members, "notInSyncReplicas", ReplicaIdentity.from_json)),
        )

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON-ready dict with RocketMQ's member names."""
        return {
            "inSyncReplicas": [replica.to_json() for replica in self.in_sync],
            "masterAddress": self.master_address,
            "masterBrokerId": self.master_broker_id,
            "masterEpoch": self.master_epoch,
            "notInSyncReplicas": [replica.to_json() for replica in self.not_in_sync],
            "syncStateSetEpoch": self.set_epoch,
        }


@dataclass(frozen=True, slots=True)
class BrokerReplicasInfo:
    """Body of a response to 1006: groups by broker name."""

    groups: dict[str, ReplicasInfo] = field(default_factory=dict)

    @classmethod
    def decode(cls, body: Body) -> "BrokerReplicasInfo":
        """Decode the JSON body of a response to 1006; raises BadBody."""
        return cls(read_table(load_object(body), "replicasInfoTable", ReplicasInfo.from_json))

    def encode(self) -> bytes:
        """Encode the body of the response to 1006."""
        groups = {name: group.to_json() for name, group in self.groups.items()}
        return encode_json({"replicasInfoTable": groups})


def join_replicas_info(bodies: Iterable[bytes]) -> bytes:
    """Join several encoded bodies of 1006 (BrokerReplicasInfo.encode) with different groups to a
    single body, without decoding them."""
    begin, end = BrokerReplicasInfo().encode()[:-2], b"}}"
    groups = (body[len(begin) : -len(end)] for body in bodies)
    return begin + b",".join(filter(None, groups)) + end


def encode_names(names: Iterable[str]) -> bytes:
    """Encode the body of a request 1006: a JSON list of broker names, in their order."""
    return encode_json(list(names))


def decode_names(body: Body) -> list[str]:
    """Decode the broker names of a request 1006; raises BadBody, also beyond NAMES."""
    return read_list({"names": load(body, NAMES)}, "names", as_text)


def encode_peers(peers: dict[str, str]) -> str:
    """Encode `peers` of 1005, a map of controller id to "host:port": `id:host:port;` for each."""
    return "".join(f"{name}:{address};" for name, address in peers.items())


def decode_peers(peers: str) -> dict[str, str]:
    """Decode `peers` of 1005 to a map of controller id to "host:port"; entries without an address
    are left out."""
    pairs = (one.partition(":") for one in peers.split(";"))
    return {name: address for name, _, address in pairs if address}


def _read_ids(members: dict[str, Any]) -> frozenset[int]:
    """Read the broker ids of the member syncStateSet; raises BadBody."""
    return frozenset(read_list(members, "syncStateSet", _read_id))


def _read_id(value: Any) -> int:
    """Read a broker id of a SyncStateSet; raises BadBody for a negative number."""
    found = as_int(value, "syncStateSet")
    if found < 0:
        raise BadBody(f"syncStateSet has {found} for a broker id")
    return found
