"""Next queue offsets of queues whose messages are all older than this copy of the log.

Owns a small file of our own beside RocketMQ's config files. It must never cover a queue that has a
message in the log, because such a queue counts for itself.

A copy that is fetched from a master begins where the master's log then begins. The copy has no
trace of a queue without a message after that, and a broker that became master with it would count
the queue from 0 again: offsets would be given twice (I9), and consumers would be beyond its end. So
the copy is durably marked as lacking these counts, before its first byte, until a master has sent
them. RocketMQ has no such mechanism.

Tests: tests/unit/broker/ha/metadata/test_pulling_counts.py
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.disk_steps import Steps
from turbopump.engine.disk.files import Files
from turbopump.engine.disk.store_paths import is_folder_name
from turbopump.engine.queues.consume_queue import ConsumeQueues
from turbopump.engine.queues.dispatcher import LogDispatcher
from turbopump.engine.types import LogOffset, StoreError

FILE_NAME = "queueCounts.json"
"""Name of the file in the store's folder `config`."""
COUNTS_MAX = 1_000_000
"""Maximum number of queues in the file: some 30 MB. No broker has that number of idle queues."""

Counts = dict[str, dict[int, int]]
"""Topic to queue id to the queue offset of the next message."""


class QueueCounts:
    """Next queue offsets that a master sent, a lower bound for each queue; saved in FILE_NAME.
    `wanted`: this copy still lacks the counts of a master."""

    def __init__(self, files: Files, root: str) -> None:
        """Read the file below `root`, the store's folder; no counts without a file. Raises
        StoreError if it is damaged and has no copy."""
        self._files = ConfigFiles(files, f"{root}/config")
        self._counts: Counts = {}
        self._log_end = 0
        self.unknown = False
        """Whether the current master does not know the counts; set by the caller, and cleared by
        `forget_steps` and `replace_steps`."""
        value = self._files.load(FILE_NAME)
        if value is None:
            self.wanted = False
            return
        try:
            self._counts = read_counts(value["counts"])
            self._log_end = int(value["logEnd"])
            self.wanted = bool(value["wanted"])
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"{FILE_NAME} has values that are not counts: {error}") from None

    def forget_steps(self, *, wanted: bool) -> Steps:
        """Steps that drop all counts and save the empty table durably, because the log begins
        again. `wanted`: a master is to send counts. Nothing is written if nothing would change. The
        steps raise OSError; the counts in memory change only after the save."""
        if self.wanted != wanted or self._counts:
            yield from self._save_steps({}, 0, wanted)

    def replace_steps(self, counts: Counts, log_end: int) -> Steps:
        """Steps that save `counts` of a master, sent while this log ended at `log_end`, durably,
        then replace all counts by them and clear `wanted`. The steps raise OSError."""
        yield from self._save_steps(counts, log_end, False)

    def kept_counts(self, deleted: dict[str, int]) -> Iterator[tuple[str, int, int]]:
        """(topic, queue id, next queue offset) of each kept count, in no order. `deleted` is topic
        to the log's end at its deletion: topics deleted after the counts were sent are left out,
        because their queues begin at 0."""
        for topic, queues in self._counts.items():
            if deleted.get(topic, -1) < self._log_end:
                for queue_id, count in queues.items():
                    yield topic, queue_id, count

    def idle_offsets(self, queues: ConsumeQueues, log_min: LogOffset) -> Counts:
        """The counts to send to a replica: the next queue offset of each queue whose messages are
        all before `log_min`, so that the log no longer shows it. Also of queues known only from the
        kept counts."""
        found: Counts = {}
        for topic, queue_id, count in self.kept_counts(queues.deleted_topics.former_life_ends()):
            queue = queues.find(topic, queue_id)
            if queue is None or queues.max_offset(queue) < count:
                found.setdefault(topic, {})[queue_id] = count
        for queue in queues:
            count = queues.max_offset(queue)
            if count > 0 and queues.table.max_log_offset(queue.slot) <= log_min:
                found.setdefault(queue.topic, {})[queue.queue_id] = count
        return found

    def set_next_offsets(
        self, queues: ConsumeQueues, dispatcher: LogDispatcher, log_end: LogOffset, log_min: int
    ) -> None:
        """Set the next queue offset of each plain queue for a new master: the greatest of the
        offset after its last unit, the offset after its last record before `log_end`, and the kept
        count. Queues with a kept count that do not exist are added; nothing is saved."""
        table = queues.table
        for one in queues:
            table.set_next_offset(one.slot, 0 if one.emptied else queues.max_offset(one))
        dispatcher.advance_next_offsets(log_end)
        for one in list(queues):
            if one.emptied and table.next_offset(one.slot) == 0:
                queues.settle_next_offset(one, log_min)
        for topic, queue_id, count in self.kept_counts(queues.deleted_topics.former_life_ends()):
            if dispatcher.is_batch(topic):
                continue
            queue = queues.find(topic, queue_id)
            if queue is None:
                queue = queues.add(topic, queue_id, dispatcher.is_plain(topic))
            if queues.table.next_offset(queue.slot) < count:
                queues.table.set_next_offset(queue.slot, count)

    def _save_steps(self, counts: Counts, log_end: int, wanted: bool) -> Steps:
        """Steps that save counts and then take them into memory."""
        text = {
            topic: {str(one): n for one, n in by_queue.items()}
            for topic, by_queue in counts.items()
        }
        value = {"counts": text, "logEnd": log_end, "wanted": wanted}
        yield partial(self._files.save, FILE_NAME, value)
        self._counts, self._log_end, self.wanted = counts, log_end, wanted
        self.unknown = False


def read_counts(value: Any) -> Counts:
    """Check decoded JSON {topic: {queue id as text: count}} and return it as counts without numbers
    below 1. Raises ValueError, TypeError or AttributeError for any other value, names that a store
    cannot have, and more than COUNTS_MAX queues."""
    counts: Counts = {}
    left = COUNTS_MAX
    for topic, queues in value.items():
        by_queue = {int(queue_id): int(count) for queue_id, count in queues.items()}
        left -= len(by_queue)
        if left < 0:
            raise ValueError(f"more than {COUNTS_MAX} queues")
        if not is_folder_name(topic) or not all(0 <= n < 1 << 31 for n in by_queue):
            raise ValueError(f"invalid queues of topic {topic[:80]!r}")
        counts[topic] = {queue_id: count for queue_id, count in by_queue.items() if count > 0}
    return counts
