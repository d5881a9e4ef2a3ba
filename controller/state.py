"""The replicated tables: each group's brokers, master and SyncStateSet.

Owns the tables, the effect of each event on them, and their snapshot. It must never read a time, a
heartbeat or a setting: events carry results, and the same events give the same tables and the same
bytes on every controller. The leader reads the tables to decide the next events.

    masterEpoch       increases with each master, and when a group loses its master
    syncStateSetEpoch increases with each SyncStateSet, and when a member became unfit
    next_id           never decreases: an id names one broker for ever (K4)

A group whose brokers were all removed keeps its numbers. If they started again, brokers
would refuse the lower epochs, and an old broker would come back under another's id (RocketMQ starts
again: both happen).
"""

import json
from dataclasses import dataclass, field
from typing import Any, Final

from turbopump.controller import events
from turbopump.controller.events import Event
from turbopump.engine.fastjson import text_size

GROUPS_MAX: Final = 10_000
"""Registered broker groups, at most: ten times RocketMQ's largest known clusters."""
REPLICAS_MAX: Final = 100
"""Ids of a group, without removed ones, at most; replicated groups have 2 to 5."""
RETIRED_MAX: Final = 1_000
"""Removed groups whose numbers are kept, at most; the oldest is dropped first."""
NAME_MAX: Final = 255
"""Characters of a name or an address, at most."""
SIZE_MAX: Final = 9 << 20
"""Bytes of all groups in a snapshot, beyond which no request may add a broker or lengthen an
address: with the removed groups and one more entry, a snapshot stays below the limit of messages
between members (raft/options.py, SNAPSHOT_MAX)."""
WRITTEN_AT_ONCE: Final = 16
"""Groups encoded with each event, so that all are encoded before the next snapshot."""
GROUP_SIZE: Final = 220
"""Bytes of a group in a snapshot, at most, without its texts and replicas."""
REPLICA_SIZE: Final = 48
"""Bytes of a replica in a snapshot, at most, without its texts: its id stands in two lists."""
SNAPSHOT_VERSION: Final = 1
"""Value of `version` in a snapshot; any other is refused."""
UNCLEAN: Final = "unclean"
"""RegisteredReplica.unfit of a broker whose log may lack acknowledged messages."""
DAMAGED: Final = "damaged"
"""RegisteredReplica.unfit of a broker whose log is damaged: it never becomes master."""


@dataclass(slots=True)
class RegisteredReplica:
    """A registered broker: address, check code, and why it is unfit."""

    address: str
    """`host:port` of its last registration."""
    check_code: str
    """Random text of the broker by which a repeated request for an id is recognized."""
    unfit: str = ""
    """Reason why the broker must not become master (UNCLEAN, DAMAGED); "": it may."""


@dataclass(slots=True)
class ForgottenGroup:
    """The numbers that remain of a removed group; the defaults are a new group's."""

    next_id: int = 1
    """Id of the next new broker."""
    master_epoch: int = 0
    set_epoch: int = 0
    """Epoch of the SyncStateSet."""


@dataclass(slots=True)
class Group:
    """A broker group (RocketMQ: BrokerReplicaInfo and SyncStateInfo)."""

    cluster_name: str
    broker_name: str
    next_id: int = 1
    """Id of the next new broker."""
    replicas: dict[int, RegisteredReplica] = field(default_factory=dict)
    """All registered brokers by id, dead or alive."""
    master_id: int | None = None
    """Id of the master, which may be dead; None: the group has no master."""
    master_epoch: int = 0
    members: frozenset[int] = frozenset()
    """Broker ids of the SyncStateSet."""
    set_epoch: int = 0
    """Epoch of the SyncStateSet."""
    had_master: bool = False
    """Whether the group ever had a master: before the first one, any broker may become it."""
    eligible: frozenset[int] = frozenset()
    """Brokers besides the members that have all acknowledged messages (KIP-966: Eligible Leader
    Replicas): the members and eligible brokers at the master's election, until its term begins."""

    @property
    def size(self) -> int:
        """Upper bound of this group's bytes in a snapshot: its texts count as JSON has them, and
        each number as 19 digits."""
        texts = [self.cluster_name, self.broker_name]
        for replica in self.replicas.values():
            texts += (replica.address, replica.check_code, replica.unfit)
        written = sum(map(text_size, texts))
        return GROUP_SIZE + REPLICA_SIZE * len(self.replicas) + written

    @property
    def candidates(self) -> frozenset[int]:
        """Ids of the members and eligible brokers: each has all acknowledged messages, except that
        an unfit broker, which is included, may have lost some."""
        return self.members | self.eligible

    def is_current_master(self, broker_id: int | None, epoch: int | None) -> bool:
        """Whether `broker_id` is the master, and `epoch` is the present masterEpoch."""
        return self.master_id is not None and (broker_id, epoch) == (
            self.master_id,
            self.master_epoch,
        )

    @property
    def master_address(self) -> str | None:
        """`host:port` of the master; None without a master."""
        return None if self.master_id is None else self.replicas[self.master_id].address

    @property
    def addresses(self) -> dict[int, str]:
        """`host:port` of each registered broker by id."""
        return {broker_id: replica.address for broker_id, replica in self.replicas.items()}

    def is_unfit(self, broker_id: int) -> bool:
        """Whether that broker must not become master. Raises KeyError for an unknown id."""
        return self.replicas[broker_id].unfit != ""

    @property
    def unfit_members(self) -> frozenset[int]:
        """Ids of members whose acknowledgements sends wait for, but that must not become master."""
        return frozenset(member for member in self.members if self.is_unfit(member))

    def with_events(self, *happened: Event) -> "Group":
        """Return a copy of the group after these events, in order; this object is not changed.

        The events must not remove the whole group.
        """
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
            self.had_master,
            self.eligible,
        )
        for event in happened:
            copy.apply_event(event)
        return copy

    def apply_event(self, event: Event) -> None:
        """Apply an event of this group to this object. An event that does not fit, for example with
        an unknown id, has no effect."""
        match event:
            case events.AlterSyncStateSet(members=members):
                self._set_members(members)
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
                self._set_master(broker_id, event)
            case events.CleanBrokerData(broker_ids=ids) if ids is not None:
                self._remove_brokers(ids)
            case events.UpdateBrokerAddress(broker_id=broker_id) if broker_id in self.replicas:
                self.replicas[broker_id].address = event.broker_address
            case events.MarkUnfit(broker_id=broker_id) if broker_id in self.replicas:
                # A request of the master that was decided before this event must not count after
                # it.
                self.replicas[broker_id].unfit = event.reason
                self.set_epoch += 1
            case events.BeginMasterTerm(master_epoch=epoch) if epoch == self.master_epoch:
                self.eligible = frozenset()
            case _:
                pass

    def _set_members(self, members: frozenset[int]) -> None:
        """Set the SyncStateSet to those of `members` that are registered; no effect
        without the master."""
        known = members & self.replicas.keys()
        if self.master_id is None or self.master_id in known:
            self.members, self.eligible = known, self.eligible - known
            self.set_epoch += 1
            for member in known:
                self.replicas[member].unfit = ""

    def _set_master(self, broker_id: int, event: events.ElectMaster) -> None:
        """Make a registered broker the master, in a new epoch, and the only member of the
        SyncStateSet."""
        self.master_id = broker_id
        self.master_epoch = max(self.master_epoch + 1, event.master_epoch)
        others = self.candidates - {broker_id}
        self.eligible = others if event.on_lease else frozenset()
        self.members = frozenset({broker_id})
        self.set_epoch += 1
        self.had_master = True
        self.replicas[broker_id].unfit = ""

    def _remove_brokers(self, ids: frozenset[int]) -> None:
        """Remove brokers; without its master the group gets a new masterEpoch."""
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
    """All groups by broker name; RocketMQ's requests name no cluster, so neither does the key."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        """Groups by broker name; only `apply_event` changes them."""
        self.retired: dict[str, ForgottenGroup] = {}
        """Removed groups by broker name, the oldest removal first."""
        self._texts: dict[str, bytes] = {}
        """Encoded groups, so that a snapshot needs no long encoding on the loop."""
        self._changed: dict[str, None] = {}
        """Groups without a current encoding, the oldest change first."""
        self._sizes: dict[str, int] = {}
        """`Group.size` by broker name."""
        self.size = 0
        """Upper bound of the bytes of all existing groups in a snapshot; only `apply_event` changes
        it."""

    def apply_event(self, event: Event) -> None:
        """Apply a committed event. An event of an unknown group has no effect, except
        ApplyBrokerId, which creates it. Never raises, whatever the log contains."""
        if isinstance(event, events.Read):
            return
        group = self.groups.get(event.broker_name)
        if isinstance(event, events.ApplyBrokerId) and group is None:
            group = self._create_group(event.cluster_name, event.broker_name)
        if group is None:
            return
        group.apply_event(event)
        self._changed[group.broker_name] = None
        everything = isinstance(event, events.CleanBrokerData) and event.broker_ids is None
        if everything or not group.replicas:
            self._remove_group(group)
        self._count_group_bytes(group.broker_name)
        for _ in range(min(WRITTEN_AT_ONCE, len(self._changed))):
            self._encode_group(next(iter(self._changed)))

    def has_broker(
        self, cluster_name: str, broker_name: str, broker_id: int, address: str | None = None
    ) -> bool:
        """Whether that broker is registered, and at `address` unless that is None."""
        group = self.groups.get(broker_name)
        if group is None or group.cluster_name != cluster_name:
            return False
        replica = group.replicas.get(broker_id)
        return replica is not None and address in (None, replica.address)

    def numbers_for_new_group(self, broker_name: str) -> ForgottenGroup:
        """Return the numbers (next id and epochs) with which a group of this name would be created:
        the last ones of the removed group, or a new group's. Call it only for a name without a
        group."""
        return self.retired.get(broker_name) or ForgottenGroup()

    def snapshot(self) -> bytes:
        """Encode the tables as JSON for `restore`; equal tables give equal bytes."""
        for name in list(self._changed):
            self._encode_group(name)
        retired = [
            [name, one.next_id, one.master_epoch, one.set_epoch]
            for name, one in self.retired.items()
        ]
        groups = b",".join(map(self._texts.__getitem__, sorted(self._texts)))
        return b'{"groups":[%b],"retired":%b,"version":%d}' % (
            groups,
            _encode_json(retired),
            SNAPSHOT_VERSION,
        )

    @classmethod
    def restore(cls, snapshot: bytes) -> "GroupTables":
        """Decode the tables of a `snapshot`. Raises ValueError if it is malformed."""
        tables = cls()
        try:
            whole = json.loads(snapshot)
            if whole["version"] != SNAPSHOT_VERSION:
                raise ValueError(f"version {whole['version']} is not known")
            for members in whole["groups"]:
                group = _group_from(members)
                tables.groups[group.broker_name] = group
                tables._changed[group.broker_name] = None
                tables._count_group_bytes(group.broker_name)
            for name, next_id, master_epoch, set_epoch in whole["retired"]:
                tables.retired[str(name)] = ForgottenGroup(
                    int(next_id), int(master_epoch), int(set_epoch)
                )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"the snapshot of the groups is not readable: {error!r}") from None
        return tables

    def _count_group_bytes(self, name: str) -> None:
        """Count the bytes of a group again, or no longer count a removed group."""
        group = self.groups.get(name)
        self.size -= self._sizes.pop(name, 0)
        if group is not None:
            self._sizes[name] = group.size
            self.size += self._sizes[name]

    def _encode_group(self, name: str) -> None:
        """Encode a group, or drop the encoding of a removed one."""
        del self._changed[name]
        group = self.groups.get(name)
        if group is None:
            self._texts.pop(name, None)
        else:
            self._texts[name] = _encode_json(_group_members(group))

    def _create_group(self, cluster_name: str, broker_name: str) -> Group:
        """Create a group, with the numbers of a removed group of its name."""
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

    def _remove_group(self, group: Group) -> None:
        """Remove a group, and keep its next id and epochs for a group of the same name."""
        del self.groups[group.broker_name]
        self.retired[group.broker_name] = ForgottenGroup(
            group.next_id, group.master_epoch, group.set_epoch
        )
        if len(self.retired) > RETIRED_MAX:
            del self.retired[next(iter(self.retired))]


def _encode_json(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def _group_members(group: Group) -> dict[str, Any]:
    """The JSON members of a group, for a snapshot."""
    return {
        "broker": group.broker_name,
        "cluster": group.cluster_name,
        "eligible": sorted(group.eligible),
        "master": group.master_id,
        "masterEpoch": group.master_epoch,
        "members": sorted(group.members),
        "nextId": group.next_id,
        "reigned": group.had_master,
        "replicas": [
            [key, one.address, one.check_code, one.unfit]
            for key, one in sorted(group.replicas.items())
        ],
        "setEpoch": group.set_epoch,
    }


def _group_from(members: dict[str, Any]) -> Group:
    """Decode the group of `_group_members`. Raises ValueError if it is inconsistent."""
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
        raise ValueError(f"group {group.broker_name} has members that are not registered")
    return group
