"""DataVersion rules: a master increments versions, a replica copies its master's.

Owns the rule by which the DataVersion of topics, groups, offsets and delay progress increases. It
must never know a table. broker/ha/metadata/pulling.py changes it at every change of role.

Tests: tests/unit/broker/ha/metadata/test_pulling.py
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final

from turbopump.net.wire.topics import DataVersion

ONLY_HERE = "onlyHere"
"""Member of a replica's topics.json and subscriptionGroup.json: names that no master it followed is
known to have had. RocketMQ ignores the member."""
ACTING_STEP: Final = 1 << 16
"""Increment of the counter for an acting replica's first change: more than its dead master can have
counted without this replica's knowledge."""


@dataclass(slots=True)
class VersionRules:
    """The rules for new DataVersions; a single object for all tables of a broker. `epoch`: the
    master's epoch (RocketMQ: the state machine version), 0 without epochs. `following`: the tables
    are a copy of the master's. Additions of a replica (a topic of its start, a group on first use)
    do not count: a replica that counts by itself never has its master's version again, and would
    seem to have the newer tables (R22)."""

    epoch: int = 0
    following: bool = False

    def next_version(self, version: DataVersion, now_ms: int) -> DataVersion:
        """Return the version after a change of a table at `now_ms` (epoch ms): counter + 1 and the
        higher of both epochs; while `following`, only the time changes."""
        if self.following:
            return replace(version, timestamp=now_ms)
        return version.next_version(now_ms, max(version.state_version, self.epoch))


def is_older(version: DataVersion, other: DataVersion) -> bool:
    """Whether `version` is of a lower epoch, or has the lower counter in the same epoch; False if
    both are equal.

    RocketMQ's order (DataVersion.compare) without its last member: the times come from different
    clocks.
    """
    return (version.state_version, version.counter) < (other.state_version, other.counter)


def read_only_here(members: dict[str, Any]) -> frozenset[str]:
    """Return the names in the member `onlyHere` of a file's object (entries that no master is known
    to have had); empty if it is missing or not a list. Items that are not text are skipped."""
    names = members.get(ONLY_HERE)
    if not isinstance(names, list):
        return frozenset()
    return frozenset(one for one in names if isinstance(one, str))


def write_only_here(names: Collection[str]) -> dict[str, Any]:
    """Return the member `onlyHere` of a file's object with the sorted names, or {} without
    names."""
    return {ONLY_HERE: sorted(names)} if names else {}
