"""Removing a topic's queues; its records stay in the log (store.md 20).

Owns the order of a deletion, and the way a replica repeats an earlier deletion of its master. It
must never decide that a topic is deleted.

A disk thread does the durable steps, in turn with the removals of retention:

1. The checkpoint stops counting the topic's queues, and the deletion is recorded. After a crash
from this step on, recovery removes the remaining files.

2. Some queues are forgotten on the loop, then their files are removed; this repeats until no queue
is left.

    waiting --turn--> recording --recorded--> removing, step by step --> done, or failed

Meanwhile a put to the topic is refused, so the log gets no record of it. A broker that becomes a
replica meanwhile may receive such records from its master; their dispatch waits until the last file
is removed.
"""

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.store_paths import topic_folder
from turbopump.engine.lifecycle.parts import StoreParts
from turbopump.engine.lifecycle.retention import Retention
from turbopump.engine.log.commit_log import NOT_MASTER
from turbopump.engine.log.record_boundary import whole_before
from turbopump.engine.queues.new_lives import NewLife
from turbopump.engine.types import LogOffset, StoreError

QUEUES_PER_STEP: Final = 100
"""Number of queues forgotten in one step: each takes some 30 us, more if its files are mapped."""
_ALL: Final = 1 << 31


@dataclass(slots=True)
class _Deletion:
    """A requested deletion. Records of the topic at `log_end` or later are not affected."""

    topic: str
    now_ms: int
    log_end: LogOffset
    is_past: bool
    """Whether it was requested as of an earlier end of the log."""
    deleted_ms: int = 0
    """Time of the topic's first deletion, in epoch ms: on a replica, of the master's deletion."""
    kept: dict[str, int] | None = None
    result: Deferred[StoreError | None] = field(default_factory=Deferred)


class TopicDeletions:
    """The deletions of a store, one after the other. Loop thread only; a disk thread does the
    work."""

    def __init__(self, parts: StoreParts, retention: Retention) -> None:
        self._parts = parts
        self._retention = retention
        self._waiting: deque[_Deletion] = deque()
        self._current: _Deletion | None = None
        self.in_progress: set[str] = set()
        """Topics that are about to be deleted, are being deleted, or whose deletion failed: the
        store refuses messages to them. Read only; `block_sends` and `delete` change it."""

    def former_life_ends(self) -> dict[str, int]:
        """Topic to the log offset of the log's end at its last deletion, the latest deletion
        last. Records before belong to earlier lives of the topic."""
        return self._parts.queues.deleted_topics.former_life_ends()

    def deletion_times(self) -> dict[str, int]:
        """Topic to the `deleted_ms` of its last deletion; a topic with an unknown time has 0 or no
        entry."""
        return self._parts.queues.deleted_topics.deletion_times()

    def latest_ms(self) -> int:
        """The latest time of all deletions, in epoch ms; 0: no time is known."""
        return self._parts.queues.deleted_topics.latest_ms

    def deleted_ms(self, topic: str) -> int:
        """Time of the topic's last deletion, in epoch ms; 0: never, or unknown. A record, note or
        receipt handle of a pop before this time names queue offsets of an earlier life."""
        return self._parts.queues.deleted_topics.deleted_ms(topic)

    def is_proven(self, topic: str) -> bool:
        """Whether only the log proves the topic's last deletion: then `deleted_ms` is the latest
        possible time of the deletion."""
        return self._parts.queues.deleted_topics.is_proven(topic)

    def delete(
        self,
        topic: str,
        now_ms: int,
        at: int | None = None,
        deleted_ms: int | None = None,
        *,
        is_proven: bool = False,
    ) -> Deferred[StoreError | None]:
        """Begin to remove a topic's queues, on disk threads; the topic takes no message from this
        call until the end. Resolves with None when the removal is durable, or with the error: then
        call it again, because the topic still takes no message. Raises StoreError for a name that
        no folder can have, and if no record begins at `at`. `now_ms`: epoch ms.

        `at`: delete the queues as of this log offset, an earlier end of the log; None: now. Later
        records belong to the topic's next life. Their queue units, which were skipped because the
        earlier queue was in their way, are made again. If the log was cut before `at`, nothing is
        done, with the result None. `deleted_ms`: time of the master's deletion, in epoch ms; None:
        `now_ms`. `is_proven`: only the log proves the deletion, and `deleted_ms` is its latest
        possible time.
        """
        parts = self._parts
        topic_folder(parts.queues.folder, topic)  # before any queue is forgotten or any step begun
        log = parts.log
        log_end = log.end if at is None else LogOffset(max(at, log.min))
        proven = parts.dispatcher.new_lives.as_dict().get(topic) if at is not None else None
        if log_end < parts.dispatcher.position and (proven is None or proven.at != log_end):
            start = LogOffset(max(log.min, log.segments.start_of(log_end)))
            if whole_before(log, start, log_end)[0] != log_end:
                raise StoreError(f"{topic} cannot be deleted at {log_end}: no record begins there")
        for one in (*self._waiting, *([self._current] if self._current else [])):
            if at is not None and one.is_past and (one.topic, one.log_end) == (topic, log_end):
                return one.result  # each answer of a replica's master repeats the deletion
        time_ms = now_ms if deleted_ms is None else deleted_ms
        one = _Deletion(topic, now_ms, log_end, at is not None, -time_ms if is_proven else time_ms)
        self.in_progress.add(topic)
        self._waiting.append(one)
        self._begin_next()
        return one.result

    def unapplied_deletions(self) -> dict[str, NewLife]:
        """Topic to its new life, for each deletion that records of the log prove and that this
        store has not carried out: the caller has to call `delete` with the new life's `at`."""
        return self._parts.dispatcher.new_lives.as_dict()

    def is_requested(self, topic: str) -> bool:
        """Whether a deletion of the topic was requested with `delete` and has not ended."""
        current = self._current
        return any(one.topic == topic for one in (current, *self._waiting) if one is not None)

    def block_sends(self, topic: str) -> None:
        """Let the topic take no message until its deletion ends, or `unblock_sends`; the caller is
        about to call `delete`. Kept in memory only."""
        self.in_progress.add(topic)

    def unblock_sends(self, topic: str) -> None:
        """Undo `block_sends`: the topic takes messages again, unless a deletion of it waits or is
        under way."""
        if not self.is_requested(topic):
            self.in_progress.discard(topic)

    def delete_now(self, topic: str, at: int | None, now_ms: int) -> None:
        """Delete a topic as `delete` does, and wait for the disk: for tools. An error with which
        `delete` resolves is raised, too. Raises StoreError."""
        result = self.delete(topic, now_ms, at)
        self._retention.wait_for_removals()
        if result.value is not None:
            raise result.value

    def _begin_next(self) -> None:
        """Begin the next waiting deletion, unless a deletion is under way."""
        if self._current is None and self._waiting:
            self._current = one = self._waiting.popleft()
            self._parts.checkpointer.suspend_rounds(partial(self._begin_recording, one))

    def _begin_recording(self, one: _Deletion) -> None:
        """Begin to record the deletion durably on a disk thread. Ends it at once if the log was cut
        before its `log_end`, or a later deletion is on record."""
        parts = self._parts
        log, deleted = parts.log, parts.queues.deleted_topics
        # Cut away, or followed by another deletion since.
        if one.is_past and (
            one.log_end > log.end or one.log_end < deleted.former_life_end(one.topic)
        ):
            self._end_deletion(one, None, is_whole=True)
            return
        if not one.is_past:
            one.log_end = log.end
        log_min = log.min
        uncount = parts.checkpointer.mark_uncounted_work(one.log_end if one.is_past else None)

        def write_deletion() -> None:
            uncount()
            one.kept = deleted.write(one.topic, one.log_end, log_min, one.deleted_ms)

        self._retention.turn.submit(lambda: write_deletion, partial(self._on_recorded, one))

    def _on_recorded(self, one: _Deletion, error: OSError | None) -> None:
        """The deletion is on record, or failed with `error`: begin the removal of its
        queues, or end it."""
        queues = self._parts.queues
        if error is not None:
            self._end_deletion(one, error, is_whole=True)
            return
        queues.deleted_topics.enter_deletion(one.topic, one.log_end, one.kept, one.deleted_ms)
        queues.removing.add(one.topic)
        self._remove_next_queues(one)

    def _remove_next_queues(self, one: _Deletion) -> None:
        """Forget up to QUEUES_PER_STEP queues of the topic, and begin to remove their
        files on a disk thread."""
        parts, topic = self._parts, one.topic
        queues, files = parts.queues, parts.files
        forgotten = queues.forget_topic(topic, QUEUES_PER_STEP)
        for queue in forgotten:
            parts.checkpointer.dirty.unmark_queue(queue.slot)
        folders = [queue.segments.folder for queue in forgotten]
        is_last = not queues.of_topic(topic)
        if is_last:
            folders = _forget_other_queues(parts, topic)
            self._retention.drop_pending_removals([f"{folder}/" for folder in folders])

        def remove_folders() -> None:
            for folder in folders:
                files.remove_folder(folder)
            if is_last:
                # If the log is cut, its new records have the offsets of the earlier life's records.
                files.sync_all([], [queues.folder])

        self._retention.turn.submit(
            lambda: remove_folders, partial(self._on_queues_removed, one, is_last)
        )

    def _on_queues_removed(self, one: _Deletion, is_last: bool, error: OSError | None) -> None:
        """A step of the removal has ended: begin the next step, or end the deletion after the last
        one or an error."""
        if error is None and not is_last:
            self._remove_next_queues(one)
            return
        self._parts.queues.removing.discard(one.topic)
        if error is None:
            self._parts.queues.forget_topic(one.topic, _ALL)
            self._parts.dispatcher.new_lives.forget_topic(one.topic)
            _dispatch_from(self._parts, one.log_end, one.now_ms)
        self._end_deletion(one, error, is_whole=error is None)

    def _end_deletion(self, one: _Deletion, error: OSError | None, *, is_whole: bool) -> None:
        """Resolve the deletion's result and begin the next deletion; with `is_whole` the topic
        takes messages again, unless another deletion of it waits."""
        self._current = None
        if is_whole and all(other.topic != one.topic for other in self._waiting):
            self.in_progress.discard(one.topic)
        self._parts.checkpointer.resume_rounds()
        self._begin_next()
        one.result.resolve(None if error is None else _removal_error(one.topic, error))


def _forget_other_queues(parts: StoreParts, topic: str) -> list[str]:
    """Forget the topic's batch queues and queue extensions. Returns the folders of all
    its queue files."""
    folders = [topic_folder(parts.queues.folder, topic), parts.batches.forget_topic(topic)]
    if parts.extensions is not None:
        folders.append(parts.extensions.forget_topic(topic))
    return folders


def _dispatch_from(parts: StoreParts, log_end: LogOffset, now_ms: int) -> None:
    """Dispatch the records from `log_end` on again, at which a deleted topic's next life begins:
    only its queues lack units."""
    dispatcher = parts.dispatcher
    position = dispatcher.position
    if log_end < position:
        # A record is never dispatched twice: other queues and the index have all their units.
        dispatcher.start(log_end, position)
        dispatcher.run(position, now_ms)
    if not parts.log.tail.refusals & NOT_MASTER:
        # The next appends count on behind its records that cannot be dispatched yet.
        dispatcher.advance_next_offsets(parts.log.end)


def _removal_error(topic: str, error: OSError) -> StoreError:
    return StoreError(f"the queues of {topic} cannot be removed: {error}")
