"""What the controllers agreed on: which brokers a group has, who is its master, who is in sync.

Owns the tables, what each event does to them, and their snapshot. It must never ask for a time, a
heartbeat or an opinion: events carry results, and the same events give the same tables and the same
bytes on every controller. Fed by core.py with what is committed; read by elections.py and
registration.py, which decide on the leader what the next events are.

    masterEpoch       one more with each master, and when a group loses its master
    syncStateSetEpoch one more with each SyncStateSet, and when a member became unfit
    next_id           never goes back: an id names one broker for ever (K4)

A group whose brokers were all forgotten leaves its numbers behind. Were they to start again,
brokers would refuse the lower epochs, and an old broker would come back under another's id
(RocketMQ starts again: both happen).
"""

import json
from dataclasses import dataclass, field
from typing import Any, Final

from turbopump.controller import events
from turbopump.controller.events import Event

GROUPS_MAX: Final = 10_000
"""Broker groups of one controller: ten times RocketMQ's largest known clusters."""
REPLICAS_MAX: Final = 100
"""Ids of one group that are not forgotten; replicated groups have 2 to 5."""
RETIRED_MAX: Final = 1_000
"""Forgotten groups whose numbers are kept, the oldest dropped first."""
NAME_MAX: Final = 255
"""Characters of a name or an address."""
SIZE_MAX: Final = 9 << 20
"""Bytes of all groups as a snapshot: with the forgotten ones it stays below what members send
(raft/options.py, SNAPSHOT_MAX)."""
WRITTEN_AT_ONCE: Final = 16
"""Groups whose text is made with an event: all of them before the next snapshot."""
SNAPSHOT_VERSION: Final = 1
UNCLEAN: Final = "unclean"
DAMAGED: Final = "damaged"
"""Why a broker is unfit: its log may lack what it had, or cannot be led at all."""


@dataclass(slots=True)
class RegisteredReplica:
    """A broker that has an id; `unfit` says why it is no candidate ("": it is one)."""

    address: str
    check_code: str
    unfit: str = ""


@dataclass(slots=True)
class ForgottenGroup:
    """What stays of a group that was forgotten."""

    next_id: int = 1
    master_epoch: int = 0
    set_epoch: int = 0


@dataclass(slots=True)
class Group:
    """One broker group (RocketMQ: BrokerReplicaInfo and SyncStateInfo)."""

    cluster_name: str
    broker_name: str
    next_id: int = 1
    replicas: dict[int, RegisteredReplica] = field(default_factory=dict)
    master_id: int | None = None
    master_epoch: int = 0
    members: frozenset[int] = frozenset()
    set_epoch: int = 0
    reigned: bool = False
    """Whether there ever was a master of these brokers: before, any may be the first."""
    eligible: frozenset[int] = frozenset()
    """Who has, beside the members, all that was acknowledged (KIP-966: Eligible Leader Replicas):
    who was a member, or one of these, when the master was elected, while its reign did not begin.
    """

    @property
    def size(self) -> int:
        """Bytes of this group as part of a snapshot, at most."""
        texts = [self.cluster_name, self.broker_name]
        for replica in self.replicas.values():
            texts += (replica.address, replica.check_code)
        written = sum(len(one) if one.isascii() else 4 * len(one) for one in texts)
        return 200 + 64 * len(self.replicas) + written

    @property
    def candidates(self) -> frozenset[int]:
        """Who has all that was acknowledged, as far as it is fit."""
        return self.members | self.eligible

    def reigns(self, broker_id: int | None, epoch: int | None) -> bool:
        """Whether that is the master, in its own epoch."""
        return self.master_id is not None and (broker_id, epoch) == (
            self.master_id,
            self.master_epoch,
        )

    @property
    def master_address(self) -> str | None:
        """Where the master is."""
        return None if self.master_id is None else self.replicas[self.master_id].address

    @property
    def addresses(self) -> dict[int, str]:
        """Addresses by id."""
        return {broker_id: replica.address for broker_id, replica in self.replicas.items()}

    def is_unfit(self, broker_id: int) -> bool:
        """Whether that broker must not become master."""
        return self.replicas[broker_id].unfit != ""

    @property
    def unfit_members(self) -> frozenset[int]:
        """Members that count for sends and not for elections."""
        return frozenset(member for member in self.members if self.is_unfit(member))

    def after(self, *happened: Event) -> "Group":
        """The group as it will be after events that leave it one; this one is not changed."""
        replicas = {
            key: RegisteredReplica(one.address, one.check_code, one.unfit)
            for key, one in self.replicas.items()
        }
        copy = Group(
            self.cluster_name,
            self.broker_name,
            self.next_id,
            replicas,
            self.master_id,
            self.master_epoch,
            self.members,
            self.set_epoch,
            self.reigned,
            self.eligible,
        )
        for event in happened:
            copy.apply(event)
        return copy

    def apply(self, event: Event) -> None:
        """What an event of this group does to it. An event that does not fit does nothing."""
        match event:
            case events.AlterSyncStateSet(members=members):
                self._alter(members)
            case events.ApplyBrokerId(broker_id=broker_id):
                if broker_id not in self.replicas:
                    self.replicas[broker_id] = RegisteredReplica(
                        event.broker_address, event.check_code
                    )
                    self.next_id = max(self.next_id, broker_id + 1)
            case events.ElectMaster(broker_id=None):
                self.master_id = None
                self.master_epoch += 1
            case events.ElectMaster(broker_id=int(broker_id)) if broker_id in self.replicas:
                self._elect(broker_id, event)
            case events.CleanBrokerData(broker_ids=ids) if ids is not None:
                self._forget(ids)
            case events.UpdateBrokerAddress(broker_id=broker_id) if broker_id in self.replicas:
                self.replicas[broker_id].address = event.broker_address
            case events.MarkUnfit(broker_id=broker_id) if broker_id in self.replicas:
                # A request of the master that was decided on before this must not count after it.
                self.replicas[broker_id].unfit = event.reason
                self.set_epoch += 1
            case events.BeginReign(master_epoch=epoch) if epoch == self.master_epoch:
                self.eligible = frozenset()
            case _:
                pass

    def _alter(self, members: frozenset[int]) -> None:
        known = members & self.replicas.keys()
        if self.master_id is None or self.master_id in known:
            self.members, self.eligible = known, self.eligible - known
            self.set_epoch += 1
            for member in known:
                self.replicas[member].unfit = ""

    def _elect(self, broker_id: int, event: events.ElectMaster) -> None:
        self.master_id = broker_id
        self.master_epoch = max(self.master_epoch + 1, event.master_epoch)
        others = self.candidates - {broker_id}
        self.eligible = others if event.on_lease else frozenset()
        self.members = frozenset({broker_id})
        self.set_epoch += 1
        self.reigned = True
        self.replicas[broker_id].unfit = ""

    def _forget(self, ids: frozenset[int]) -> None:
        for broker_id in ids:
            self.replicas.pop(broker_id, None)
        self.eligible -= ids
        if self.members & ids:
            self.members -= ids
            self.set_epoch += 1
        if self.master_id in ids:
            self.master_id = None
            self.master_epoch += 1


class GroupTables:
    """All groups by broker name. RocketMQ's requests name no cluster, so neither does the key."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.retired: dict[str, ForgottenGroup] = {}
        self._texts: dict[str, bytes] = {}
        """Groups as a snapshot has them, so that it is not written in one piece on the loop."""
        self._changed: dict[str, None] = {}
        """Groups whose text is missing, the oldest change first."""

    def apply(self, event: Event) -> None:
        """What a committed event does. Never raises, whatever the log has."""
        if isinstance(event, events.Read):
            return
        group = self.groups.get(event.broker_name)
        if isinstance(event, events.ApplyBrokerId) and group is None:
            group = self._created(event.cluster_name, event.broker_name)
        if group is None:
            return
        group.apply(event)
        self._changed[group.broker_name] = None
        everything = isinstance(event, events.CleanBrokerData) and event.broker_ids is None
        if everything or not group.replicas:
            self._retire(group)
        for _ in range(min(WRITTEN_AT_ONCE, len(self._changed))):
            self._write(next(iter(self._changed)))

    def has(
        self, cluster_name: str, broker_name: str, broker_id: int, address: str | None = None
    ) -> bool:
        """Whether that broker is registered, at that address if one is given."""
        group = self.groups.get(broker_name)
        if group is None or group.cluster_name != cluster_name:
            return False
        replica = group.replicas.get(broker_id)
        return replica is not None and address in (None, replica.address)

    def numbers(self, broker_name: str) -> ForgottenGroup:
        """Where the numbers of a group begin that is not there."""
        return self.retired.get(broker_name) or ForgottenGroup()

    @property
    def size(self) -> int:
        """Bytes of all groups as a snapshot, at most."""
        return sum(group.size for group in self.groups.values())

    def snapshot(self) -> bytes:
        """All of it as bytes: the same tables give the same ones."""
        for name in list(self._changed):
            self._write(name)
        retired = [
            [name, one.next_id, one.master_epoch, one.set_epoch]
            for name, one in self.retired.items()
        ]
        groups = b",".join(map(self._texts.__getitem__, sorted(self._texts)))
        return b'{"groups":[%b],"retired":%b,"version":%d}' % (
            groups,
            _json(retired),
            SNAPSHOT_VERSION,
        )

    @classmethod
    def restore(cls, snapshot: bytes) -> "GroupTables":
        """The tables of a snapshot; raises ValueError if it is none of ours."""
        tables = cls()
        try:
            whole = json.loads(snapshot)
            if whole["version"] != SNAPSHOT_VERSION:
                raise ValueError(f"version {whole['version']} is not known")
            for members in whole["groups"]:
                group = _group_of(members)
                tables.groups[group.broker_name] = group
                tables._changed[group.broker_name] = None
            for name, next_id, master_epoch, set_epoch in whole["retired"]:
                tables.retired[str(name)] = ForgottenGroup(
                    int(next_id), int(master_epoch), int(set_epoch)
                )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"the snapshot of the groups is not readable: {error!r}") from None
        return tables

    def _write(self, name: str) -> None:
        """The text of a group, or that it has none any more."""
        del self._changed[name]
        group = self.groups.get(name)
        if group is None:
            self._texts.pop(name, None)
        else:
            self._texts[name] = _json(_group_members(group))

    def _created(self, cluster_name: str, broker_name: str) -> Group:
        numbers = self.retired.pop(broker_name, None) or ForgottenGroup()
        group = Group(
            cluster_name,
            broker_name,
            numbers.next_id,
            master_epoch=numbers.master_epoch,
            set_epoch=numbers.set_epoch,
        )
        self.groups[broker_name] = group
        return group

    def _retire(self, group: Group) -> None:
        del self.groups[group.broker_name]
        self.retired[group.broker_name] = ForgottenGroup(
            group.next_id, group.master_epoch, group.set_epoch
        )
        if len(self.retired) > RETIRED_MAX:
            del self.retired[next(iter(self.retired))]


def _json(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def _group_members(group: Group) -> dict[str, Any]:
    return {
        "broker": group.broker_name,
        "cluster": group.cluster_name,
        "eligible": sorted(group.eligible),
        "master": group.master_id,
        "masterEpoch": group.master_epoch,
        "members": sorted(group.members),
        "nextId": group.next_id,
        "reigned": group.reigned,
        "replicas": [
            [key, one.address, one.check_code, one.unfit]
            for key, one in sorted(group.replicas.items())
        ],
        "setEpoch": group.set_epoch,
    }


def _group_of(members: dict[str, Any]) -> Group:
    replicas = {
        int(key): RegisteredReplica(str(address), str(code), str(unfit))
        for key, address, code, unfit in members["replicas"]
    }
    master = members["master"]
    group = Group(
        str(members["cluster"]),
        str(members["broker"]),
        int(members["nextId"]),
        replicas,
        None if master is None else int(master),
        int(members["masterEpoch"]),
        frozenset(int(member) for member in members["members"]),
        int(members["setEpoch"]),
        bool(members["reigned"]),
        frozenset(int(one) for one in members.get("eligible", ())),
    )
    if not group.candidates <= replicas.keys() or (
        group.master_id is not None and group.master_id not in replicas
    ):
        raise ValueError(f"group {group.broker_name} has members that it does not know")
    return group
