"""Topics whose new life begins in the log, while no table contains their deletion.

Owns the proofs that dispatch finds. A deletion is not in the log: a master answers it, the topic is
made again and gets messages, and the master may die before its replicas have copied the tables. The
queues of the former life are then in the way of the new one's records, which count from 0 again. It
must never delete a topic: a deletion that is applied here makes the units of the new life again.

    former  | A0 | A1 | A2 |  deletion  | A0 | A1 | ...
                           ^ at           ^ seen: queue offset 0 behind a queue's last record

Only queue offset 0 proves it. RocketMQ's stores may hold other offsets twice; those records are
passed over.
"""

from typing import NamedTuple

from turbopump.engine.types import LogOffset

LIVES_MAX = 100_000
"""Topics whose deletion waits to be applied; as many as are on record in deletedTopics.json."""


class NewLife(NamedTuple):
    """Where the former life of a topic ends at least, and a record of the new one."""

    at: LogOffset
    """End of the queue's last record. The deletion is behind it: perhaps far behind, so that other
    queues keep some messages of the former life, until they count from 0 again themselves. To take
    the end of those queues would be wrong: they may be of the new life, or one may have gone on
    where a master that knew nothing of the deletion led in between."""
    seen: LogOffset
    """The record that proves it."""
    began_ms: int
    """Store time of that record, in epoch ms: later than the deletion."""


class NewLives:
    """Topic to what was found since its last deletion. Loop thread only."""

    def __init__(self) -> None:
        self.is_news = False
        """Whether one was found since this was last taken back."""
        self._found: dict[str, NewLife] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def __contains__(self, topic: str) -> bool:
        return topic in self._found

    def all(self) -> dict[str, NewLife]:
        """Every topic that waits for its deletion."""
        return dict(self._found)

    def first_seen(self, position: LogOffset) -> LogOffset:
        """The first proof before `position`, which a recovery has to find again; or `position`."""
        return min([position, *(life.seen for life in self._found.values())])

    def find(self, topic: str, life: NewLife) -> None:
        """A record proves it. What was found first holds until the topic's deletion is applied:
        queues of both lives are mixed behind it."""
        if topic not in self._found and len(self._found) < LIVES_MAX:
            self._found[topic] = life
            self.is_news = True

    def forget(self, topic: str) -> None:
        """The topic was deleted; what was dispatched since is dispatched again."""
        self._found.pop(topic, None)

    def cut(self, log_end: LogOffset) -> None:
        """Records from there on are gone, or are dispatched again."""
        self._found = {name: life for name, life in self._found.items() if life.seen < log_end}
