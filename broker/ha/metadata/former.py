"""Offsets and notes of another broker that belong to a former life of their topic or group.

Before taking over offsets, a broker that knows deleted topics and groups asks its peer for the
deletions known there (43 with `deletionTimes`) and compares them. A replica that acted for a dead
master may not have copied the master's last deletions: its commits and hand-outs then refer to
messages of the life that has ended. No table is changed here.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from turbopump.broker.context import BrokerContext
from turbopump.broker.tables.groups import DELETED, read_deleted
from turbopump.broker.tables.topics import DELETED_TIMES, MAX_DELETED_TOPICS
from turbopump.net.wire import bodies
from turbopump.net.wire.bodies import as_int, as_object

LIVES: Final = "deletionTimes"
"""Name of a field of a request for offsets (43), and of a member of its answer, which then has no
offsets: the times of the last deletions of topics and groups. RocketMQ ignores the field."""


class FormerNames(NamedTuple):
    """Names of topics and groups whose last deletion a peer does not know, so that the peer's
    entries for them belong to a former life."""

    topics: frozenset[str]
    """Names of topics."""
    groups: frozenset[str]
    """Names of consumer groups."""

    def contains(self, topic: str, group: str) -> bool:
        """Whether a peer's entry for that topic and group belongs to a former life."""
        return topic in self.topics or group in self.groups


class FormerLives:
    """Deletions of topics and groups that a peer knows, compared with this broker's: finds the
    peer's entries from before a deletion (of a former life of that name). Loop thread only."""

    def __init__(self, broker: BrokerContext) -> None:
        """Begin as if the peer knew all deletions."""
        self._broker = broker
        self._topics: Mapping[str, int] | None = None
        self._groups: Mapping[str, int] = {}

    @property
    def is_needed(self) -> bool:
        """Whether this broker knows any deletion: otherwise the peer need not be asked."""
        return any(known_deletions(self._broker).values())

    def read_response(self, response: Any) -> None:
        """Read the JSON body of a peer's answer to 43; a peer that omits the member LIVES counts as
        knowing all deletions. Raises BadBody."""
        lives = as_object(response).get(LIVES)
        if lives is None:
            return
        members = as_object(lives)
        self._topics = bodies.read_table(
            members, DELETED_TIMES, partial(as_int, name=DELETED_TIMES)
        )
        self._groups = read_deleted(members)

    def names_unknown_to_peer(self) -> FormerNames:
        """Return the topics and groups whose last deletion, as known here at this moment, the peer
        did not know when it answered; empty before `read_response`."""
        if self._topics is None:
            return FormerNames(frozenset(), frozenset())
        mine = known_deletions(self._broker)
        return FormerNames(
            _deleted_later(mine[DELETED_TIMES], self._topics),
            _deleted_later(mine[DELETED], self._groups),
        )


def known_deletions(broker: BrokerContext) -> dict[str, dict[str, int]]:
    """Return the last deletions that this broker knows, for a peer: under DELETED_TIMES by topic,
    under DELETED by group, each with its time in ms since 1970, 0 if unknown."""
    times = list(broker.store.deletions.deletion_times().items())[-MAX_DELETED_TOPICS:]
    return {DELETED_TIMES: dict(times), DELETED: broker.groups.deletion_times()}


def _deleted_later(mine: Mapping[str, int], theirs: Mapping[str, int]) -> frozenset[str]:
    """Return the names whose time of deletion is later in `mine` than in `theirs`, or missing
    there."""
    return frozenset(name for name, at_ms in mine.items() if at_ms > theirs.get(name, 0))
