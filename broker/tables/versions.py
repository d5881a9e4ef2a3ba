"""Whose changes a table of this broker counts: a master's own, or none while it follows one.

Owns the rule by which the DataVersion of topics, groups, offsets and delay progress goes on. It
must never know a table. Changed by broker/ha/metadata/pulling.py at every change of role, asked by
the tables.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final

from turbopump.net.wire.topics import DataVersion

ONLY_HERE = "onlyHere"
"""In topics.json and subscriptionGroup.json of a replica: the names that no master it followed is
known to have had. RocketMQ passes over the member."""
ACTING_STEP: Final = 1 << 16
"""What a replica that acts counts for its first change: more than its master, which died, can have
counted that this replica has not heard of."""


@dataclass(slots=True)
class Versions:
    """The reign that changes belong to; one object for all tables of a broker.

    `epoch` is the master's epoch (RocketMQ: the state machine version), 0 without epochs.
    `following`: the tables are a copy of the master's. What this broker adds meanwhile (a topic of
    its start, a group on first use) does not count: a replica that counts for itself never has its
    master's version again, and would seem to have the newer tables (R22).
    """

    epoch: int = 0
    following: bool = False

    def next(self, version: DataVersion, now_ms: int) -> DataVersion:
        """The version after a change. Of an epoch that was reached nothing goes back."""
        if self.following:
            return replace(version, timestamp=now_ms)
        return version.next(now_ms, max(version.state_version, self.epoch))


def is_older(version: DataVersion, other: DataVersion) -> bool:
    """Whether `version` is of an earlier reign, or of fewer changes in the same one.

    RocketMQ's order (DataVersion.compare) without its last member: times are of two clocks.
    """
    return (version.state_version, version.counter) < (other.state_version, other.counter)


def read_only_here(members: dict[str, Any]) -> frozenset[str]:
    """The names of such a member; what is none is passed over."""
    names = members.get(ONLY_HERE)
    if not isinstance(names, list):
        return frozenset()
    return frozenset(one for one in names if isinstance(one, str))


def write_only_here(names: Collection[str]) -> dict[str, Any]:
    """The member, if there are any."""
    return {ONLY_HERE: sorted(names)} if names else {}
