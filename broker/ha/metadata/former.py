"""Which offsets and notes of another broker of the group are of a former life of their topic or
group.

Owns the question when a broker knows topics and groups to be deleted (43 with `deletionTimes`), its
answer, and the comparison. A replica that acts for a dead master may not have copied the master's
last deletions: what it commits and gives out then counts messages of the life that has ended. It
must never change a table. Called by the master that is back (acting/pre_online.py), and by the
handler of 43.
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
"""Of a request for offsets (43), and of its answer, which has no offsets then: when topics and
groups were deleted last. RocketMQ passes over the field."""


class Former(NamedTuple):
    """Topics and groups."""

    topics: frozenset[str]
    groups: frozenset[str]

    def has(self, topic: str, group: str) -> bool:
        """Whether what a peer says of that is of a former life."""
        return topic in self.topics or group in self.groups


class FormerLives:
    """What a peer knows of deletions, compared with what this broker knows. Loop thread only."""

    def __init__(self, broker: BrokerContext) -> None:
        """As if the peer knew all."""
        self._broker = broker
        self._topics: Mapping[str, int] | None = None
        self._groups: Mapping[str, int] = {}

    @property
    def is_needed(self) -> bool:
        """Whether any deletion is known here."""
        return any(known_deletions(self._broker).values())

    def learn(self, said: Any) -> None:
        """A peer's answer; a peer that does not say is believed to know all. Raises BadBody."""
        lives = as_object(said).get(LIVES)
        if lives is None:
            return
        members = as_object(lives)
        self._topics = bodies.table(members, DELETED_TIMES, partial(as_int, name=DELETED_TIMES))
        self._groups = read_deleted(members)

    def now(self) -> Former:
        """The topics and groups of whose last deletion the peer does not know."""
        if self._topics is None:
            return Former(frozenset(), frozenset())
        mine = known_deletions(self._broker)
        return Former(
            _missing(mine[DELETED_TIMES], self._topics), _missing(mine[DELETED], self._groups)
        )


def known_deletions(broker: BrokerContext) -> dict[str, dict[str, int]]:
    """The last ones that this broker knows of, for a peer: times in epoch ms, 0 if not known."""
    times = list(broker.store.deletions.times().items())[-MAX_DELETED_TOPICS:]
    return {DELETED_TIMES: dict(times), DELETED: broker.groups.deletion_times()}


def _missing(mine: Mapping[str, int], theirs: Mapping[str, int]) -> frozenset[str]:
    return frozenset(name for name, at_ms in mine.items() if at_ms > theirs.get(name, 0))
