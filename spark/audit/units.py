"""Compares the records of a log file with the units of their consume queues.

Owns the fields of a unit that must agree with its record (place, size, tags code), and the count of
records whose unit cannot be judged. It must never look at a record that the walk of `scan` did not
find whole. `logs` adds up the counts of a store's files.

A missing unit is a violation if the queue has units before and after it, or if the queue ends
before it in a store that was shut down cleanly. If the queue has no file that reaches back to the
record, retention may have removed the file, or an operator may have removed it to have it rebuilt.
That cannot be decided, and is always reported.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from turbopump.engine.queues.dispatcher import parse_properties
from turbopump.engine.types import SCHEDULE_TOPIC
from turbopump.pyx import record as kernel
from turbopump.pyx.index import java_hash
from turbopump.pyx.region import Region
from turbopump.spark.audit.queue_files import Queue, QueueFiles, Unit
from turbopump.spark.audit.verdicts import Finding, Tally

Found = Callable[[str, str, int | None], None]
"""Receives (sentence, file, position) of a violation of the record under examination."""


@dataclass(slots=True)
class NotCompared:
    """Records whose units cannot be judged, by reason; small for any file."""

    absent: Counter[Queue] = field(default_factory=Counter)
    """Records that are older than the queue's first file, by queue."""
    unmade: int = 0
    """Records without a unit in a store without a clean shutdown: its next start writes them."""
    batches: int = 0
    """Records of topics with inner batches, whose units have another form."""

    def merge(self, other: "NotCompared") -> None:
        """Add the counts of another file to this object."""
        self.absent += other.absent
        self.unmade += other.unmade
        self.batches += other.batches

    def record_reasons(self, store: str, places: Tally) -> None:
        """Record in `places`, for each reason that occurred in the store, why records were not
        compared, with their number."""
        if self.absent:
            count = sum(self.absent.values())
            (topic, queue_id), most = max(self.absent.items(), key=lambda one: (one[1], one[0]))
            places.count("records without a queue unit", count)
            places.cannot_check(
                f"{store}: {count:,} records of {len(self.absent):,} queues lie before all that "
                f"their consume queues have, or these have no file ({topic} queue {queue_id}: "
                f"{most:,}); the files went with age or were removed"
            )
        if self.unmade:
            places.count("records without a queue unit", self.unmade)
            places.cannot_check(
                f"{store}: {self.unmade:,} records have no consume queue unit; it was not stopped "
                "in order, and its next start makes them"
            )
        if self.batches:
            places.cannot_check(
                f"{store}: {self.batches:,} inner batches: units of batch queues are not compared"
            )


@dataclass(slots=True)
class UnitCheck:
    """Checks the queue units of a file's records."""

    store: str
    """Name of the store in findings."""
    base: int
    """Log offset at which the file begins."""
    confirm: int | None
    """The store's confirmed end; None: the whole log is confirmed."""
    is_stopped: bool
    """Whether it was shut down cleanly, so that confirmed records must have units."""
    region: Region
    """The mapped file."""
    queues: QueueFiles
    places: Tally
    """Receives violations and counts."""
    not_compared: NotCompared = field(default_factory=NotCompared)

    def compare_record(self, row: list[int], topic: str) -> None:
        """Compare one record (a row with columns of pyx.record) of this topic with its unit, and
        record the result in `places` or `not_compared`. Raises OSError."""
        queue_id, number = row[kernel.QUEUE_ID], row[kernel.QUEUE_OFFSET]
        log_offset = self.base + row[kernel.POSITION]
        size = row[kernel.SIZE]
        unit = self.queues.read_unit(topic, queue_id, number)
        if unit is None and not self.queues.begins_before(topic, queue_id, number):
            self.not_compared.absent[topic, queue_id] += 1
            return
        self.places.count("queue units compared")
        if unit is None or unit.size == 0:
            if self.confirm is not None and log_offset + size > self.confirm:
                return  # dispatch waits until the record is confirmed
            if not self.is_stopped:
                self.not_compared.unmade += 1
                return
            what = "the consume queue has no unit of it"
        elif (unit.log_offset, unit.size) != (log_offset, size):
            what = f"its consume queue unit points to {unit.log_offset}, size {unit.size}"
        else:
            what = self._tags_differ(row, topic, unit)
        if what:
            self.places.add_finding(
                Finding(
                    what,
                    self.store,
                    unit.file if unit else self.queues.queue_folder(topic, queue_id),
                    unit.position if unit else None,
                    log_offset,
                    topic,
                    queue_id,
                    number,
                )
            )

    def _tags_differ(self, row: list[int], topic: str, unit: Unit) -> str:
        """Return how the unit's tags code differs from the record's tags, as text; "" if it does
        not."""
        text = self.region.read(row[kernel.PROPERTIES_AT], row[kernel.PROPERTIES_SIZE])
        plain = b"TAGS" not in text and topic != SCHEDULE_TOPIC
        if plain and not unit.tags_code:
            return ""
        code = self.queues.tags_code(topic, row[kernel.QUEUE_ID], unit)
        if code is None:
            return f"its consume queue unit names an extension, {unit.tags_code}, that is not there"
        properties = parse_properties(text)
        if topic == SCHEDULE_TOPIC and properties.get(b"DELAY"):
            # The delivery time: levels are the broker's configuration, so only the store time
            # bounds it.
            if code >= row[kernel.STORE_TIMESTAMP_MS]:
                return ""
            return f"its consume queue unit delivers it at {code}, before it was stored"
        tags = properties.get(b"TAGS", b"")
        wanted = java_hash(tags) if tags else 0
        if code == wanted:
            return ""
        shown = tags.decode(errors="replace")[:64]
        return f"its consume queue unit has tags code {code}, its tags {shown!r} have {wanted}"
