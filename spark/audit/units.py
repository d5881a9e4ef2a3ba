"""The records of one log file held against the units of their consume queues.

Owns what a unit has to say of its record (place, size, tags code), and the count of records that
have no unit and of which nothing can be said. It must never look at a record that the walk of
`scan` did not find whole. Called by `scan`; `logs` adds the counts of a store's files up.

A record without a unit breaks a promise where the queue has units before and behind it, or where
the queue ends before it, in a store that was stopped in order. Where a queue has no file at all, or
none that reaches back to the record, the file may have gone with age, or was removed to be made
anew: that cannot be decided, and is never passed over in silence.
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
"""(what, file, position): a violation of the record that is looked at."""


@dataclass(slots=True)
class NotCompared:
    """Records whose units cannot be judged, by why that is; small for any file."""

    absent: Counter[Queue] = field(default_factory=Counter)
    """The queue has no file that reaches back to the record."""
    unmade: int = 0
    """The unit is missing, and the store was not stopped in order: its next start makes it."""
    batches: int = 0
    """Of topics of inner batches, whose units have another form."""

    def add(self, other: "NotCompared") -> None:
        """Those of another file."""
        self.absent += other.absent
        self.unmade += other.unmade
        self.batches += other.batches

    def tell(self, store: str, places: Tally) -> None:
        """One reason for each kind, with its number."""
        if self.absent:
            count = sum(self.absent.values())
            (topic, queue_id), most = max(self.absent.items(), key=lambda one: (one[1], one[0]))
            places.count("records without a queue unit", count)
            places.cannot_tell(
                f"{store}: {count:,} records of {len(self.absent):,} queues lie before all that "
                f"their consume queues have, or these have no file ({topic} queue {queue_id}: "
                f"{most:,}); the files went with age or were removed"
            )
        if self.unmade:
            places.count("records without a queue unit", self.unmade)
            places.cannot_tell(
                f"{store}: {self.unmade:,} records have no consume queue unit; it was not stopped "
                "in order, and its next start makes them"
            )
        if self.batches:
            places.cannot_tell(
                f"{store}: {self.batches:,} inner batches: units of batch queues are not compared"
            )


@dataclass(slots=True)
class UnitCheck:
    """The units of one file's records."""

    store: str
    base: int
    confirm: int | None
    is_stopped: bool
    region: Region
    queues: QueueFiles
    places: Tally
    not_compared: NotCompared = field(default_factory=NotCompared)

    def compare(self, row: list[int], topic: str) -> None:
        """One record (columns of pyx.record) and its unit. Raises OSError."""
        queue_id, number = row[kernel.QUEUE_ID], row[kernel.QUEUE_OFFSET]
        log_offset = self.base + row[kernel.POSITION]
        size = row[kernel.SIZE]
        unit = self.queues.unit(topic, queue_id, number)
        if unit is None and not self.queues.reaches(topic, queue_id, number):
            self.not_compared.absent[topic, queue_id] += 1
            return
        self.places.count("queue units compared")
        if unit is None or unit.size == 0:
            if self.confirm is not None and log_offset + size > self.confirm:
                return  # not dispatched before it is confirmed
            if not self.is_stopped:
                self.not_compared.unmade += 1
                return
            what = "the consume queue has no unit of it"
        elif (unit.log_offset, unit.size) != (log_offset, size):
            what = f"its consume queue unit points to {unit.log_offset}, size {unit.size}"
        else:
            what = self._tags_differ(row, topic, unit)
        if what:
            self.places.found(
                Finding(
                    what,
                    self.store,
                    unit.file if unit else self.queues.folder(topic, queue_id),
                    unit.position if unit else None,
                    log_offset,
                    topic,
                    queue_id,
                    number,
                )
            )

    def _tags_differ(self, row: list[int], topic: str, unit: Unit) -> str:
        """Why the unit's tags code is not that of the record; "" where it is."""
        text = self.region.read(row[kernel.PROPERTIES_AT], row[kernel.PROPERTIES_SIZE])
        plain = b"TAGS" not in text and topic != SCHEDULE_TOPIC
        if plain and not unit.tags_code:
            return ""
        code = self.queues.tags_code(topic, row[kernel.QUEUE_ID], unit)
        if code is None:
            return f"its consume queue unit names an extension, {unit.tags_code}, that is not there"
        properties = parse_properties(text)
        if topic == SCHEDULE_TOPIC and properties.get(b"DELAY"):
            # The delivery time: the levels are the broker's configuration, the store time is not.
            if code >= row[kernel.STORE_TIMESTAMP_MS]:
                return ""
            return f"its consume queue unit delivers it at {code}, before it was stored"
        tags = properties.get(b"TAGS", b"")
        wanted = java_hash(tags) if tags else 0
        if code == wanted:
            return ""
        shown = tags.decode(errors="replace")[:64]
        return f"its consume queue unit has tags code {code}, its tags {shown!r} have {wanted}"
