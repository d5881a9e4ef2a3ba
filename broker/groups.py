"""The consumer groups of this broker: subscriptionGroup.json, automatic creation, read bans.

Owns the group table, the table of forbidden (group, topic) pairs and their DataVersion; every
change is on disk before the caller can answer for it. It must never know who is connected: that is
consumers.py. Called by the handlers and node.py.
"""

import re
from typing import Any

from turbopump.broker.config import BrokerConfig
from turbopump.engine.config_files import ConfigFiles
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.topics import DataVersion

FILE_NAME = "subscriptionGroup.json"
MAX_GROUP_LENGTH = 120  # %RETRY%group must fit a topic of 127 characters
MAX_GROUPS = 100_000
"""Automatic creation stops here: each creation rewrites subscriptionGroup.json."""
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
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")


class GroupTable:
    """Group name to configuration, kept in subscriptionGroup.json. Loop thread only."""

    def __init__(self, config: BrokerConfig, files: ConfigFiles) -> None:
        self._config = config
        self._files = files
        self._groups: dict[str, SubscriptionGroupConfig] = {}
        self._forbidden: dict[str, dict[str, int]] = {}
        self.data_version = DataVersion()

    def load(self, now_ms: int) -> None:
        """Read subscriptionGroup.json and add the system groups (store.md 22)."""
        saved = self._files.load(FILE_NAME)
        if isinstance(saved, dict):
            self.data_version = DataVersion.from_json(saved.get("dataVersion") or {})
            for name, member in (saved.get("subscriptionGroupTable") or {}).items():
                full = {"groupName": name, **member}
                self._groups[name] = SubscriptionGroupConfig.from_json(full)
            for group, masks in (saved.get("forbiddenTable") or {}).items():
                self._forbidden[group] = {topic: int(mask) for topic, mask in masks.items()}
        missing = sorted(SYSTEM_GROUPS - self._groups.keys())
        for name in missing:
            self._groups[name] = SubscriptionGroupConfig(group_name=name)
        if missing:
            self._save(now_ms)

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
        """Create or replace a group: version bumped and on disk."""
        self.put_all([config], now_ms)

    def put_all(self, configs: list[SubscriptionGroupConfig], now_ms: int) -> None:
        """As `put` for several, with one write and one new version. No change, no new version."""
        changed = [one for one in configs if self._groups.get(one.group_name) != one]
        for config in changed:
            self._groups[config.group_name] = config
        if changed:
            self._save(now_ms)

    def delete(self, name: str, now_ms: int) -> bool:
        """Forget a group and its bans; False if it was not there."""
        known = self._groups.pop(name, None) is not None
        banned = self._forbidden.pop(name, None) is not None
        if known or banned:
            self._save(now_ms)
        return known

    def forbidden(self, group: str, topic: str) -> int:
        """The mask of what the group may not do with the topic; one bit is used: FORBIDDEN_READ."""
        return self._forbidden.get(group, {}).get(topic, 0)

    def set_forbidden(self, group: str, topic: str, mask: int, now_ms: int) -> None:
        """Set the mask; 0 lifts the ban."""
        if self.forbidden(group, topic) == mask:
            return
        masks = self._forbidden.setdefault(group, {})
        if mask:
            masks[topic] = mask
        else:
            masks.pop(topic, None)
        if not masks:
            del self._forbidden[group]
        self._save(now_ms)

    def is_system(self, name: str) -> bool:
        """Whether the group belongs to RocketMQ's own tools (MixAll.isSysConsumerGroup)."""
        return name in SYSTEM_GROUPS or name.startswith(_SYSTEM_PREFIX)

    def to_json(self) -> dict[str, Any]:
        """The content of subscriptionGroup.json."""
        return {
            "dataVersion": self.data_version.to_json(),
            "forbiddenTable": {group: dict(masks) for group, masks in self._forbidden.items()},
            "subscriptionGroupTable": {name: one.to_json() for name, one in self._groups.items()},
        }

    def _save(self, now_ms: int) -> None:
        self.data_version.bump(now_ms)
        self._files.save(FILE_NAME, self.to_json())


def validate_group_name(name: str) -> str | None:
    """What is wrong with a group's name, in RocketMQ's words; None if nothing."""
    if not name.strip():
        return "The specified group is blank."
    if _LEGAL.fullmatch(name) is None:
        return "The specified group contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(name) > MAX_GROUP_LENGTH:
        return f"The specified group is longer than group max length {MAX_GROUP_LENGTH}."
    return None
