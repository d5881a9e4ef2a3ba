"""Deletions of topics that only the log proves: no table contains them.

Owns the reaction to such a deletion found by the engine (engine/queues/new_lives.py): delete the
queues of the former life, and all state that a deletion removes. It must never delete a topic
without proof, nor a topic whose deletion is already requested: the master's request has the exact
end of the former life. The store calls it, even before the broker leads.

The case: a master deleted the topic, answered, and died before its replicas copied the tables.
Without this, messages of the new life would never be read, though they were acknowledged.
"""

import logging
from functools import partial
from typing import Final

from turbopump.broker.context import BrokerContext
from turbopump.broker.tables.offsets import FILE_NAME as OFFSETS_FILE
from turbopump.engine.queues.new_lives import NewLife
from turbopump.engine.types import StoreError

logger = logging.getLogger(__name__)

AGAIN_MS: Final = 10_000
"""Minimum delay in ms from a failed deletion to the next attempt."""


class UnappliedDeletions:
    """Deletions of topics that only the log proves: deletes the queues and the state of the former
    life. Loop thread only. The constructor registers `begin_deletions` with the store."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._due_ms: dict[str, int] = {}
        self._begun: set[str] = set()
        broker.store.on_unapplied_deletions.append(self.begin_deletions)

    def begin_deletions(self, now_ms: int) -> None:
        """Begin each deletion that the store has found and that is not in progress; `now_ms` is
        epoch ms. Sends to the topic are refused meanwhile. A failure is logged, and tried again at
        the store's first call after AGAIN_MS."""
        steady_ms, deletions = self._broker.steady_ms(), self._broker.store.deletions
        for topic, life in deletions.unapplied_deletions().items():
            is_due = self._due_ms.get(topic, steady_ms) <= steady_ms
            if is_due and topic not in self._begun and not deletions.is_requested(topic):
                self._begin_deletion(topic, life, now_ms)

    def _begin_deletion(self, topic: str, life: NewLife, now_ms: int) -> None:
        """Begin the deletion of a topic's former life. Offsets are removed first and durably: after
        a crash that follows the deletion they would count for the new life, whose messages they
        have not passed."""
        broker = self._broker
        self._begun.add(topic)
        broker.store.deletions.block_sends(topic)
        broker.topics.on_replace([topic])
        groups = {*broker.offsets.groups_of(topic), *broker.consumers.online_groups_of(topic)}
        broker.offsets.remove_topic(topic, now_ms)
        broker.saver.save_changed(OFFSETS_FILE, broker.offsets.take_content)
        broker.saver.when_saved().then(partial(self._delete_queues, topic, life, groups, now_ms))

    def _delete_queues(
        self, topic: str, life: NewLife, groups: set[str], now_ms: int, error: OSError | None
    ) -> None:
        """Delete the queues, because the table without the offsets is durable (no `error`), unless
        the deletion was requested or disproved meanwhile."""
        store = self._broker.store
        if error is not None:
            self._on_deleted(topic, groups, now_ms, StoreError(str(error)))
            return
        if (
            store.deletions.is_requested(topic)
            or store.deletions.unapplied_deletions().get(topic) != life
        ):
            # Meanwhile the master's table has the deletion, or the record that proves it was cut
            # off.
            self._begun.discard(topic)
            store.deletions.unblock_sends(topic)
            return
        try:
            # Earlier pops belong to the former life: their messages are popped again if they still
            # exist.
            latest_ms = life.began_ms - 1
            gone = store.deletions.delete(topic, now_ms, life.at, latest_ms, is_proven=True)
        except StoreError as refused:
            self._on_deleted(topic, groups, now_ms, refused)
            return
        store.statistics.forget_topic(topic)
        gone.then(partial(self._on_deleted, topic, groups, now_ms))

    def _on_deleted(
        self, topic: str, groups: set[str], now_ms: int, error: StoreError | None
    ) -> None:
        """Handle the end of the deletion of the queues: remove the topic's other state, or try
        again later after an error."""
        broker = self._broker
        self._begun.discard(topic)
        if error is not None:
            logger.error("the former life of topic %s is not deleted yet: %s", topic, error)
            self._due_ms[topic] = broker.steady_ms() + AGAIN_MS
            return
        self._due_ms.pop(topic, None)
        broker.offsets.remove_topic(topic, now_ms)
        broker.pop.forget_topic(topic)
        former = broker.topics.get(topic)
        count = 0 if former is None else former.read_queue_nums
        for group in groups:
            broker.offsets.reset_for_next_life(group, topic, count)
        broker.statistics.forget_topic(topic)
        if broker.role.is_master and former is None:
            queues = max(broker.store.queue_ids(topic), default=-1) + 1
            broker.topics.create_from_store(
                lambda: {topic: queues} if queues else {}, now_ms, always=True
            )
        logger.info("the former life of topic %s is deleted", topic)
