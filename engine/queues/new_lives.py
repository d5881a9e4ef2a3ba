"""Topics whose new life begins in the log, while no table contains their deletion.

Owns the proofs that dispatch finds. A deletion is not in the log: a master answers it, the topic is
made again and gets messages, and the master may die before its replicas have copied the tables. The
queues still contain the units of the former life, but the records of the new life count from 0. It
must never delete a topic: a deletion that is applied here makes the units of the new life again.

    former  | A0 | A1 | A2 |  deletion  | A0 | A1 | ...
                           ^ at           ^ seen: queue offset 0 after a queue's last record

Only queue offset 0 proves a new life. RocketMQ's stores may contain other queue offsets twice;
dispatch skips those records.
"""

from typing import NamedTuple

from turbopump.engine.types import LogOffset

LIVES_MAX = 100_000
"""Topics whose deletion waits to be applied; as many as are on record in deletedTopics.json."""


class NewLife(NamedTuple):
    """A lower bound of the end of a topic's former life, and a record of the new life."""

    at: LogOffset
    """End of the queue's last record. The deletion is at this offset or later, perhaps far later,
    so that other queues keep some messages of the former life until they count from 0, too. The end
    of those queues would be a wrong bound: their records may belong to the new life, or a queue may
    have grown under a master in between that did not have the deletion."""
    seen: LogOffset
    """Log offset of the record that proves the new life."""
    began_ms: int
    """Store time of the record at `seen`, in epoch ms: later than the deletion."""


class NewLives:
    """New lives by topic, found since the topic's last deletion. Loop thread only."""

    def __init__(self) -> None:
        self.is_news = False
        """Whether a new life was found since this was last set to False."""
        self._found: dict[str, NewLife] = {}

    def __bool__(self) -> bool:
        """Whether a topic waits for its deletion."""
        return bool(self._found)

    def __contains__(self, topic: str) -> bool:
        """Whether a new life of the topic waits for its deletion."""
        return topic in self._found

    def as_dict(self) -> dict[str, NewLife]:
        """A copy of the new lives by topic, of all topics whose deletion is not applied yet."""
        return dict(self._found)

    def first_seen(self, position: LogOffset) -> LogOffset:
        """The least log offset of a record that proves a new life, which a recovery has to dispatch
        again; `position` if that is less, or if no new life is known."""
        return min([position, *(life.seen for life in self._found.values())])

    def add(self, topic: str, life: NewLife) -> None:
        """Add a topic's new life and set `is_news`; a no-op for a topic that has one, and at
        LIVES_MAX topics. The first proof counts until the topic's deletion is applied: after it the
        queues contain units of both lives."""
        if topic not in self._found and len(self._found) < LIVES_MAX:
            self._found[topic] = life
            self.is_news = True

    def forget_topic(self, topic: str) -> None:
        """Remove a topic, known or not, whose deletion was applied; the caller dispatches the
        records of its new life again."""
        self._found.pop(topic, None)

    def forget_proofs_from(self, log_end: LogOffset) -> None:
        """Forget new lives whose proof, a record of the log, lies at or after `log_end`: it is
        gone, or is dispatched again."""
        self._found = {name: life for name, life in self._found.items() if life.seen < log_end}
