"""The consumer groups of this broker: subscriptionGroup.json, automatic creation, read bans.

Owns the group table, the table of forbidden (group, topic) pairs and their DataVersion; every
change goes to the saver, which holds the answer to the request until the change is on disk. It must
never know which clients are connected: that is consumers.py. `now_ms` is epoch ms, and becomes the
time of the table's next version.

Tests: tests/unit/broker/tables/test_tables.py
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.tables.data_versions import (
    ONLY_HERE,
    VersionRules,
    read_only_here,
    write_only_here,
)
from turbopump.broker.tables.table_saver import TableSaver
from turbopump.engine import fastjson
from turbopump.engine.disk import config_changes
from turbopump.engine.disk.json_table import Content, JsonTable
from turbopump.net.wire.bodies import BadBody, as_int, as_object, read_table
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.java_properties import ConfigError
from turbopump.net.wire.names import TOOLS_GROUP, TRANSACTION_GROUP, validate_group_name
from turbopump.net.wire.topics import DataVersion

FILE_NAME = "subscriptionGroup.json"
"""Name of the table's file in the config folder."""
TABLE, BANS = "subscriptionGroupTable", "forbiddenTable"
"""Members of the file: group name to configuration, and group name to topic to mask."""
DELETED = "deletedGroupTable"
"""Turbopump's own member: group to the time in epoch ms when it was last deleted with its offsets.
Earlier check points and handles belong to a former life of the group."""
MAX_DELETED = 10_000
"""Maximum deleted groups whose deletion times are stored, the latest: some 500 KB."""
MAX_APPENDED = 1_000
"""Maximum groups of a change that is appended beside the file; for more, the whole file is
written."""
MAX_GROUPS = 80_000
"""Maximum groups, for `find_or_create` and the handlers; `put` does not check it."""
MAX_SIZE = 40 << 20
"""Maximum bytes of all groups in subscriptionGroup.json, for `find_or_create`, the handlers and
replicas; `put` does not check it. With the bans, deletions and names that are only here the file
stays below the 64 MiB that are read at the next start. 80,000 groups with the defaults fit with
names of 50 characters."""
MAX_BEAN = 4_096
"""Maximum bytes of a group in JSON, including members that are unknown here; RocketMQ's has some
400."""
MAX_BANS = 20_000
"""Maximum forbidden (group, topic) pairs, for the handler of 353; `set_forbidden` does not check
it. They take some 12 MB with the longest names."""
FORBIDDEN_READ = 1 << 2
"""Bit of a mask of `GroupTable.forbidden_mask`: the group must not read the topic (RocketMQ:
PermName.INDEX_PERM_READ)."""
_SYSTEM_PREFIX = "CID_RMQ_SYS_"
SYSTEM_GROUPS = frozenset(
    {
        TOOLS_GROUP,
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        TRANSACTION_GROUP,
    }
)
"""Names of RocketMQ's own groups, which `GroupTable.load` creates."""
_SEPARATOR = len(",\n\t\t")
_SETTINGS = attrgetter(
    *(
        one.name
        for one in fields(SubscriptionGroupConfig)
        if one.compare and one.name != "group_name"
    )
)
_DEFAULTS = _SETTINGS(SubscriptionGroupConfig(group_name=""))
_DEFAULT_SIZE = len(SubscriptionGroupConfig(group_name="").row()) + _SEPARATOR
_Groups = dict[str, SubscriptionGroupConfig]
_Forbidden = dict[str, dict[str, int]]
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class GroupTable:
    """Table of the consumer groups by name, with their configurations and read bans, saved in
    subscriptionGroup.json. Loop thread only. A configuration in the table is never changed, only
    replaced: the saver writes on another thread. Each change has the file written soon."""

    def __init__(
        self, config: BrokerConfig, saver: TableSaver, on_change: Callable[[list[str]], None]
    ) -> None:
        """`on_change` is called after a change with the names of groups that were replaced or
        deleted, or whose bans have changed; not with new groups."""
        self._on_change = on_change
        self._config = config
        self._saver = saver
        self._groups: JsonTable[SubscriptionGroupConfig] = JsonTable()
        self._forbidden: _Forbidden = {}
        self.only_here: frozenset[str] = frozenset()
        """Groups of a replica that no master is known to have had: a master that lacks them has not
        deleted them."""
        self.data_version = DataVersion()
        """Version of groups and bans; assign it through the methods only."""
        self.versions = VersionRules()
        """Rules for new versions; replication (broker/ha/metadata) replaces it by an object that
        all tables share."""
        self._changes = 0
        self._deleted: set[str] = set()
        self._deleted_ms: dict[str, int] = {}
        self.size = 0
        """Bytes of all groups in the file."""

    def load(self, now_ms: int) -> None:
        """Read subscriptionGroup.json, if it exists, and add missing system groups (store.md 22),
        which has the file written. Raises ConfigError for malformed content, StoreError if the file
        cannot be read."""
        saved = self._saver.load(FILE_NAME, self._content)
        if saved is not None:
            try:
                self._read(as_object(saved))
            except BadBody as error:
                raise ConfigError(f"{FILE_NAME} is damaged: {error}") from None
        missing = [name for name in sorted(SYSTEM_GROUPS) if name not in self._groups]
        if missing:
            made = {name: SubscriptionGroupConfig(group_name=name) for name in missing}
            # Not counted, as in RocketMQ: a new broker's table is older than a table in use.
            self._change_groups(replace(self.data_version, timestamp=now_ms), made)

    def find_or_create(self, name: str, now_ms: int) -> SubscriptionGroupConfig | None:
        """Return the group's configuration; a missing group is created with the defaults if the
        configuration allows it. None means the answer is SUBSCRIPTION_GROUP_NOT_EXIST (26):
        creation is off, the name is illegal, or the table holds MAX_GROUPS or MAX_SIZE (RocketMQ:
        findSubscriptionGroupConfig)."""
        known = self._groups.get(name)
        if known is not None:
            return known
        allowed = self._config.auto_create_subscription_group or name.startswith(_SYSTEM_PREFIX)
        full = len(self._groups) >= MAX_GROUPS
        if not allowed or full or validate_group_name(name) is not None:
            return None
        created = SubscriptionGroupConfig(group_name=name)
        if self.size_with([created]) > MAX_SIZE:
            return None
        self.put(created, now_ms)
        return created

    def find_used(self, name: str, now_ms: int) -> SubscriptionGroupConfig | None:
        """Return the configuration of a group that has consumed according to the log: a crash or a
        change of master may have lost the group, so it is created again with the defaults if the
        configuration allows it. None if it is not created, or was deleted since this start and not
        created again."""
        return None if name in self._deleted else self.find_or_create(name, now_ms)

    def latest_deletion_ms(self) -> int:
        """Time of the last deletion of any group with its offsets, in epoch ms; 0 if there was no
        deletion."""
        return max(self._deleted_ms.values(), default=0)

    def deleted_ms(self, name: str) -> int:
        """Time of this group's last deletion with its offsets, in epoch ms; 0 if there was none, or
        if MAX_DELETED later deletions displaced it."""
        return self._deleted_ms.get(name, 0)

    def deletion_times(self) -> dict[str, int]:
        """Group name to the time of its last deletion with its offsets, in epoch ms; a copy."""
        return dict(self._deleted_ms)

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        """The group's configuration, or None; never creates a group."""
        return self._groups.get(name)

    def all_groups(self) -> dict[str, SubscriptionGroupConfig]:
        """Group name to configuration, unordered; a copy of the table, not of the
        configurations."""
        return self._groups.rows()

    def names(self) -> list[str]:
        """Names of all groups, sorted."""
        return self._groups.names()

    def encode_body(self, names: list[str]) -> dict[str, Any]:
        """The body of the answer to 201: the content of subscriptionGroup.json with only these
        groups, which must exist, in this order."""
        return {**self._members(), TABLE: self._groups.body(names)}

    @property
    def change_marker(self) -> object:
        """A value that is unequal to all earlier ones after a group, a ban or the version has
        changed."""
        return self._groups.changes, self._changes, self.data_version

    def __len__(self) -> int:
        return len(self._groups)

    def size_with(self, configs: Iterable[SubscriptionGroupConfig]) -> int:
        """Bytes of all groups in the file if these were put; of those with one name the last
        counts."""
        changed = {one.group_name: one for one in configs}
        size = self.size
        for name, one in changed.items():
            before = self._groups.get(name)
            if before != one:
                size += group_size(one) - (0 if before is None else group_size(before))
        return size

    def put(self, config: SubscriptionGroupConfig, now_ms: int) -> None:
        """Create or replace a group without any check, with a new version; an equal configuration
        changes nothing."""
        self.put_all([config], now_ms)

    def put_all(self, configs: list[SubscriptionGroupConfig], now_ms: int) -> None:
        """Create or replace groups, with a single new version. If no configuration differs, nothing
        changes, and the current answer only waits until earlier changes are durable."""
        changed = {
            one.group_name: one for one in configs if self._groups.get(one.group_name) != one
        }
        if changed:
            changed_members: dict[str, Any] = {}
            made = {name for name in changed if name not in self._groups}
            if self.versions.following and made:
                self.only_here |= made
                changed_members = write_only_here(self.only_here)
            self._change_groups(
                self.versions.next_version(self.data_version, now_ms),
                changed,
                changed_members=changed_members,
            )
        else:
            self._saver.wait_for_others()  # a heartbeat may have created the group a moment ago

    def adopt_tables(
        self,
        groups: _Groups,
        forbidden: _Forbidden,
        version: DataVersion,
        only_here: frozenset[str] = frozenset(),
        deleted: Mapping[str, int] = _NOTHING,
    ) -> None:
        """Replace the table by `groups`, `forbidden` bans and `version`, merged from a followed
        master's. `only_here`: names in `groups` that no master is known to have had. `deleted`:
        group to the time of its deletion with its offsets at the master, in epoch ms; a later time
        than here is stored."""
        later = {name: at for name, at in deleted.items() if at > self.deleted_ms(name)}
        put = {name: one for name, one in groups.items() if self._groups.get(name) != one}
        gone = [name for name in self._groups.rows() if name not in groups]
        mine = (self._forbidden, self.data_version, self.only_here)
        if put or gone or later or (forbidden, version, only_here) != mine:
            changed_members: dict[str, Any] = {}
            if only_here != self.only_here:
                changed_members[ONLY_HERE] = sorted(only_here) or None
            banned = {
                name: forbidden.get(name)
                for name in forbidden.keys() | self._forbidden.keys()
                if forbidden.get(name) != self._forbidden.get(name)
            }
            self.only_here = only_here
            self._change_groups(version, put, gone, banned, changed_members, later)

    def delete(self, name: str, now_ms: int, *, with_offsets: bool = False) -> bool:
        """Remove a group with its bans; return whether the group existed. `with_offsets`: the
        caller deletes its offsets, too, so `now_ms` is stored as deletion time, even of a missing
        group: messages popped before it do not count for a later group of its name."""
        deleted = {name: max(now_ms, self.deleted_ms(name))} if with_offsets else {}
        if name not in self._groups and name not in self._forbidden and not deleted:
            return False
        known = name in self._groups
        version = self.versions.next_version(self.data_version, now_ms)
        banned = {name: None} if name in self._forbidden else {}
        self._change_groups(version, {}, [name] if known else [], banned, deleted=deleted)
        return known

    def all_forbidden(self) -> _Forbidden:
        """Return the bans: group to topic to mask of forbidden operations; the outer table is a
        copy, the inner tables must not be changed."""
        return dict(self._forbidden)

    def bump_version(self, now_ms: int) -> None:
        """Give the same groups a new version, because this broker's term begins; as master, forget
        `only_here`."""
        changed_members: dict[str, Any] = {}
        if not self.versions.following and self.only_here:
            # as master, no group is the replica's own
            self.only_here, changed_members = frozenset(), {ONLY_HERE: None}
        self._change_groups(
            self.versions.next_version(self.data_version, now_ms), changed_members=changed_members
        )

    def forbidden_mask(self, group: str, topic: str) -> int:
        """The mask of operations that the group must not do with the topic, 0 without a ban; the
        only bit in use is FORBIDDEN_READ."""
        return self._forbidden.get(group, {}).get(topic, 0)

    def set_forbidden(self, group: str, topic: str, mask: int, now_ms: int) -> None:
        """Set the mask of operations that the group must not do with the topic, existing or not;
        the only bit in use is FORBIDDEN_READ, and 0 lifts the ban. The same mask changes nothing.
        MAX_BANS is not checked."""
        if self.forbidden_mask(group, topic) == mask:
            return
        masks = {key: one for key, one in self._forbidden.get(group, {}).items() if key != topic}
        if mask:
            masks[topic] = mask
        version = self.versions.next_version(self.data_version, now_ms)
        self._change_groups(version, banned={group: masks or None})

    def is_system(self, name: str) -> bool:
        """Whether the name is in SYSTEM_GROUPS or begins with CID_RMQ_SYS_
        (MixAll.isSysConsumerGroup); existing or not."""
        return name in SYSTEM_GROUPS or name.startswith(_SYSTEM_PREFIX)

    def to_json(self) -> dict[str, Any]:
        """Convert to the whole object of subscriptionGroup.json."""
        groups = self._groups.rows()
        return {**self._members(), TABLE: {name: one.to_json() for name, one in groups.items()}}

    def _members(self) -> dict[str, Any]:
        """The members of the file besides the groups."""
        return {
            **write_only_here(self.only_here),
            "dataVersion": self.data_version.to_json(),
            BANS: {group: dict(masks) for group, masks in self._forbidden.items()},
            **({DELETED: dict(self._deleted_ms)} if self._deleted_ms else {}),
        }

    def _content(self) -> Content:
        """The whole content of the file."""
        return self._groups.snapshot(TABLE, self._members())

    def _read(self, saved: dict[str, Any]) -> None:
        """Set the table to the object in the file. Raises BadBody."""
        self.data_version = DataVersion.from_json(saved.get("dataVersion"))
        groups, self._forbidden = read_groups(saved)
        self._groups.replace(groups)
        self.size = sum(map(group_size, groups.values()))
        self._deleted_ms = read_deleted(saved)
        self.only_here = read_only_here(saved)

    def _change_groups(
        self,
        version: DataVersion,
        put: Mapping[str, SubscriptionGroupConfig] = _NOTHING,
        gone: Sequence[str] = (),
        banned: Mapping[str, dict[str, int] | None] = _NOTHING,
        changed_members: Mapping[str, Any] = _NOTHING,
        deleted: Mapping[str, int] = _NOTHING,
    ) -> None:
        """Put groups, remove the groups in `gone`, set bans (None: lift all of the group's), then
        have the changes saved; `changed_members` holds the other changed members of the file.
        `deleted`: times of deletions to remember, in epoch ms."""
        self._changes += 1
        groups = self._groups
        replaced = [name for name in put if name in groups] + [*gone, *banned]
        self.size = self.size_with(put.values())
        groups.put_all(put)
        self._deleted.difference_update(put)
        for name in gone:
            removed = groups.get(name)
            assert removed is not None, "the caller removes groups of the table"
            self.size -= group_size(removed)
            groups.remove(name)
            if len(self._deleted) < MAX_GROUPS:
                self._deleted.add(name)
        for name, masks in banned.items():
            if masks is None:
                self._forbidden.pop(name, None)
            else:
                self._forbidden[name] = masks
        for name, at_ms in deleted.items():
            self._deleted_ms.pop(name, None)
            self._deleted_ms[name] = at_ms
        while len(self._deleted_ms) > MAX_DELETED:
            del self._deleted_ms[next(iter(self._deleted_ms))]
        self.data_version = version
        self._save(put.values(), gone, banned, changed_members, deleted)
        if replaced:
            self._on_change(replaced)

    def _save(
        self,
        put: Collection[SubscriptionGroupConfig],
        gone: Sequence[str],
        banned: Mapping[str, dict[str, int] | None],
        changed_members: Mapping[str, Any],
        deleted: Mapping[str, int],
    ) -> None:
        """Have the changes appended to the file, or the whole file written if they are many."""
        if len(put) + len(banned) + len(deleted) > MAX_APPENDED:
            self._saver.save_changed(FILE_NAME, self._content)
            return
        rows = [fastjson.strip_layout(one.row()) for one in put]
        bans = [
            fastjson.strip_layout(fastjson.encode_member(name, masks, 2))
            for name, masks in banned.items()
            if masks is not None
        ]
        change = config_changes.encode_change(
            {"dataVersion": self.data_version.to_json(), **changed_members},
            {
                TABLE: rows,
                BANS: bans,
                DELETED: [
                    fastjson.strip_layout(fastjson.encode_member(*one, 2))
                    for one in deleted.items()
                ],
            },
            {TABLE: gone, BANS: [name for name, masks in banned.items() if masks is None]},
        )
        self._saver.save_changed(FILE_NAME, self._content, change)


def group_size(config: SubscriptionGroupConfig) -> int:
    """Bytes of a group in the file. The first call for a configuration that differs from the
    defaults encodes it, some 10 us."""
    name = config.group_name
    is_plain = name.isascii() and name.isprintable() and '"' not in name and "\\" not in name
    if is_plain and _SETTINGS(config) == _DEFAULTS:
        return _DEFAULT_SIZE + 2 * len(name)
    return len(config.row()) + _SEPARATOR


def read_groups(members: dict[str, Any]) -> tuple[_Groups, _Forbidden]:
    """Return (configurations by group name, masks by group name and topic) of
    subscriptionGroup.json's object, which is also the body of 201; empty if members are missing.
    Raises BadBody."""
    groups = read_table(members, TABLE, SubscriptionGroupConfig.from_json)
    return groups, read_bans(members)


def read_deleted(members: dict[str, Any]) -> dict[str, int]:
    """Return, by group name, the time of its last deletion in epoch ms, from
    subscriptionGroup.json's object, the last MAX_DELETED entries; {} in RocketMQ's. Raises
    BadBody."""
    found = read_table(members, DELETED, partial(as_int, name=DELETED))
    return dict(list(found.items())[-MAX_DELETED:])


def read_bans(members: dict[str, Any]) -> _Forbidden:
    """Return the bans in subscriptionGroup.json's object: group name to topic to mask; {} without
    bans. Raises BadBody."""
    return {
        group: {topic: as_int(mask, topic) for topic, mask in masks.items()}
        for group, masks in read_table(members, BANS, as_object).items()
    }
