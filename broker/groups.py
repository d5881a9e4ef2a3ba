"""The consumer groups of this broker: subscriptionGroup.json, automatic creation, read bans.

Owns the group table, the table of forbidden (group, topic) pairs and their DataVersion; every
change goes to the saver, which keeps back the answer to who asked for it until it is on disk. It
must never know who is connected: that is consumers.py. Called by the handlers and node.py.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from turbopump.broker.config import BrokerConfig, ConfigError
from turbopump.broker.saving import Saver
from turbopump.broker.versions import Versions, read_only_here, write_only_here
from turbopump.net.wire.bodies import BadBody, as_int, as_object, table
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.topics import DataVersion

FILE_NAME = "subscriptionGroup.json"
MAX_GROUP_LENGTH = 120  # %RETRY%group must fit a topic of 127 characters
MAX_GROUPS = 80_000
"""Creation stops here: creations rewrite subscriptionGroup.json, and with names of any length it
stays below the 64 MiB that are read at the next start."""
FORBIDDEN_READ = 1 << 2  # bit of PermName.INDEX_PERM_READ in the forbidden mask
_SYSTEM_PREFIX = "CID_RMQ_SYS_"
SYSTEM_GROUPS = frozenset(
    {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_RMQ_SYS_TRANS",
    }
)
_Groups = dict[str, SubscriptionGroupConfig]
_Forbidden = dict[str, dict[str, int]]
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")


class GroupTable:
    """Group name to configuration, kept in subscriptionGroup.json. Loop thread only.

    What is in the tables is never changed, only replaced: the saver writes on another thread.
    """

    def __init__(self, config: BrokerConfig, saver: Saver) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Told that groups or bans have changed."""
        self._config = config
        self._saver = saver
        self._groups: _Groups = {}
        self._forbidden: _Forbidden = {}
        self.only_here: frozenset[str] = frozenset()
        """Groups of a replica that no master is known to have had: where one lacks them it has not
        deleted them."""
        self.data_version = DataVersion()
        self.versions = Versions()

    def load(self, now_ms: int) -> None:
        """Read subscriptionGroup.json and add the system groups (store.md 22).

        Raises ConfigError.
        """
        saved = self._saver.load(FILE_NAME)
        if saved is not None:
            try:
                self._read(as_object(saved))
            except BadBody as error:
                raise ConfigError(f"{FILE_NAME} is damaged: {error}") from None
        missing = sorted(SYSTEM_GROUPS - self._groups.keys())
        if missing:
            made = {name: SubscriptionGroupConfig(group_name=name) for name in missing}
            # Not counted, as in RocketMQ: a new broker's table is older than one that was used.
            version = replace(self.data_version, timestamp=now_ms)
            self._replace({**self._groups, **made}, self._forbidden, version)

    def find(self, name: str, now_ms: int) -> SubscriptionGroupConfig | None:
        """The group, created on first use where the configuration allows it.

        None means the answer is SUBSCRIPTION_GROUP_NOT_EXIST (26): creation is off, the name is
        illegal, or MAX_GROUPS are there (RocketMQ: findSubscriptionGroupConfig).
        """
        known = self._groups.get(name)
        if known is not None:
            return known
        allowed = self._config.auto_create_subscription_group or name.startswith(_SYSTEM_PREFIX)
        full = len(self._groups) >= MAX_GROUPS
        if not allowed or full or validate_group_name(name) is not None:
            return None
        created = SubscriptionGroupConfig(group_name=name)
        self.put(created, now_ms)
        return created

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        """The group, or None; never creates."""
        return self._groups.get(name)

    def all(self) -> dict[str, SubscriptionGroupConfig]:
        """Every group; a copy of the table, not of the configurations."""
        return dict(self._groups)

    def put(self, config: SubscriptionGroupConfig, now_ms: int) -> None:
        """Create or replace a group: version bumped, saved."""
        self.put_all([config], now_ms)

    def put_all(self, configs: list[SubscriptionGroupConfig], now_ms: int) -> None:
        """As `put` for several, with one new version. No change, no new version."""
        changed = {
            one.group_name: one for one in configs if self._groups.get(one.group_name) != one
        }
        if changed:
            if self.versions.following:
                self.only_here |= changed.keys() - self._groups.keys()
            self._change({**self._groups, **changed}, self._forbidden, now_ms)
        else:
            self._saver.rely()  # a heartbeat may have made it a moment ago

    def adopt(
        self,
        groups: _Groups,
        forbidden: _Forbidden,
        version: DataVersion,
        only_here: frozenset[str] = frozenset(),
    ) -> None:
        """Have exactly these groups and bans, of this version: those of the master that is
        followed, and those it was never known to have."""
        mine = (self._groups, self._forbidden, self.data_version, self.only_here)
        if (groups, forbidden, version, only_here) != mine:
            self.only_here = only_here
            self._replace(groups, forbidden, version)

    def delete(self, name: str, now_ms: int) -> bool:
        """Forget a group and its bans; False if it was not there."""
        if name not in self._groups and name not in self._forbidden:
            return False
        known = name in self._groups
        groups = {key: one for key, one in self._groups.items() if key != name}
        banned = {key: masks for key, masks in self._forbidden.items() if key != name}
        self._change(groups, banned, now_ms)
        return known

    def all_forbidden(self) -> _Forbidden:
        """Group to topic to mask; a copy of the outer table."""
        return dict(self._forbidden)

    def bump_version(self, now_ms: int) -> None:
        """A new version of the same groups: from here on they are of another reign."""
        if not self.versions.following:
            self.only_here = frozenset()  # the master has what there is
        self._change(self._groups, self._forbidden, now_ms)

    def forbidden(self, group: str, topic: str) -> int:
        """The mask of what the group may not do with the topic; one bit is used: FORBIDDEN_READ."""
        return self._forbidden.get(group, {}).get(topic, 0)

    def set_forbidden(self, group: str, topic: str, mask: int, now_ms: int) -> None:
        """Set the mask; 0 lifts the ban."""
        if self.forbidden(group, topic) == mask:
            return
        masks = {key: one for key, one in self._forbidden.get(group, {}).items() if key != topic}
        if mask:
            masks[topic] = mask
        banned = {key: one for key, one in self._forbidden.items() if key != group}
        if masks:
            banned[group] = masks
        self._change(self._groups, banned, now_ms)

    def is_system(self, name: str) -> bool:
        """Whether the group belongs to RocketMQ's own tools (MixAll.isSysConsumerGroup)."""
        return name in SYSTEM_GROUPS or name.startswith(_SYSTEM_PREFIX)

    def to_json(self) -> dict[str, Any]:
        """The content of subscriptionGroup.json."""
        return _to_json(self._groups, self._forbidden, self.data_version, self.only_here)

    def _read(self, saved: dict[str, Any]) -> None:
        self.data_version = DataVersion.from_json(saved.get("dataVersion"))
        self._groups, self._forbidden = read_groups(saved)
        self.only_here = read_only_here(saved)

    def _change(self, groups: _Groups, forbidden: _Forbidden, now_ms: int) -> None:
        self._replace(groups, forbidden, self.versions.next(self.data_version, now_ms))

    def _replace(self, groups: _Groups, forbidden: _Forbidden, version: DataVersion) -> None:
        self._groups, self._forbidden, self.data_version = groups, forbidden, version
        content = partial(_to_json, groups, forbidden, version, self.only_here)
        self._saver.changed(FILE_NAME, content)
        self.on_change()


def read_groups(members: dict[str, Any]) -> tuple[_Groups, _Forbidden]:
    """Groups and bans of subscriptionGroup.json, which is also the body of 201. Raises BadBody."""
    groups = table(members, "subscriptionGroupTable", SubscriptionGroupConfig.from_json)
    return groups, read_bans(members)


def read_bans(members: dict[str, Any]) -> _Forbidden:
    """The bans of the same. Raises BadBody."""
    return {
        group: {topic: as_int(mask, topic) for topic, mask in masks.items()}
        for group, masks in table(members, "forbiddenTable", as_object).items()
    }


def _to_json(
    groups: _Groups, forbidden: _Forbidden, version: DataVersion, only_here: frozenset[str]
) -> dict[str, Any]:
    return {
        **write_only_here(only_here),
        "dataVersion": version.to_json(),
        "forbiddenTable": {group: dict(masks) for group, masks in forbidden.items()},
        "subscriptionGroupTable": {name: one.to_json() for name, one in groups.items()},
    }


def validate_group_name(name: str) -> str | None:
    """What is wrong with a group's name, in RocketMQ's words (TopicValidator); None if nothing."""
    if not name.strip():
        return "The specified group is blank."
    if _LEGAL.fullmatch(name) is None:
        return (
            f"The specified group: {name}, contains illegal characters,"
            " allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    if len(name) > MAX_GROUP_LENGTH:
        return f"The specified group: {name}, is longer than group max length: {MAX_GROUP_LENGTH}"
    return None
