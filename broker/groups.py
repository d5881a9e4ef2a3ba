"""The consumer groups of this broker: subscriptionGroup.json, automatic creation, read bans.

Owns the group table, the table of forbidden (group, topic) pairs and their DataVersion; every
change goes to the saver, which keeps back the answer to who asked for it until it is on disk. It
must never know who is connected: that is consumers.py. Called by the handlers and node.py.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from turbopump.broker.config import BrokerConfig, ConfigError
from turbopump.broker.saving import Saver
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
        self.data_version = DataVersion()

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
        self.put_all([SubscriptionGroupConfig(group_name=name) for name in missing], now_ms)

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
            self._replace({**self._groups, **changed}, self._forbidden, now_ms)

    def delete(self, name: str, now_ms: int) -> bool:
        """Forget a group and its bans; False if it was not there."""
        if name not in self._groups and name not in self._forbidden:
            return False
        known = name in self._groups
        groups = {key: one for key, one in self._groups.items() if key != name}
        banned = {key: masks for key, masks in self._forbidden.items() if key != name}
        self._replace(groups, banned, now_ms)
        return known

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
        self._replace(self._groups, banned, now_ms)

    def is_system(self, name: str) -> bool:
        """Whether the group belongs to RocketMQ's own tools (MixAll.isSysConsumerGroup)."""
        return name in SYSTEM_GROUPS or name.startswith(_SYSTEM_PREFIX)

    def to_json(self) -> dict[str, Any]:
        """The content of subscriptionGroup.json."""
        return _to_json(self._groups, self._forbidden, self.data_version)

    def _read(self, saved: dict[str, Any]) -> None:
        self.data_version = DataVersion.from_json(saved.get("dataVersion"))
        self._groups = table(saved, "subscriptionGroupTable", SubscriptionGroupConfig.from_json)
        for group, masks in table(saved, "forbiddenTable", as_object).items():
            self._forbidden[group] = {topic: as_int(mask, topic) for topic, mask in masks.items()}

    def _replace(self, groups: _Groups, forbidden: _Forbidden, now_ms: int) -> None:
        version = self.data_version.next(now_ms)
        self._groups, self._forbidden, self.data_version = groups, forbidden, version
        self._saver.changed(FILE_NAME, partial(_to_json, groups, forbidden, version))
        self.on_change()


def _to_json(groups: _Groups, forbidden: _Forbidden, version: DataVersion) -> dict[str, Any]:
    return {
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
