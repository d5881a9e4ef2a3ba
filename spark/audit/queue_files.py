"""Reads the consume queues of a store at rest, unit by unit.

Owns which queue files are mapped while a log file is scanned, and the rule that no unit may follow
the last message of a queue. It must never change or create a file.

Tests: tests/unit/spark/audit/test_units.py
"""

from collections import OrderedDict
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

from turbopump.engine.disk.files import MappedFile
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.disk.segments import is_file_name
from turbopump.engine.queues.queue_ext import is_address, position_of, unit_in
from turbopump.engine.queues.queue_files import BLANK_SIZE
from turbopump.pyx.queue import UNIT_SIZE, get_unit
from turbopump.spark.audit.replicas import extension_folder, queue_folder
from turbopump.spark.audit.verdicts import Finding, Tally

MAPPED_MAX = 256
"""Mapped queue files, at most; the least recently used one is closed."""
FOLDERS_MAX = 100_000
"""Queues whose file list is remembered, at most."""


Queue = tuple[str, int]
"""(topic, queue id)."""


class Unit(NamedTuple):
    """A unit of a consume queue, and its place in a queue file."""

    log_offset: int
    """Log offset of the record that it points to."""
    size: int
    """Bytes of that record; 0: the unit was never written."""
    tags_code: int
    """Hash of the tags, a delivery time, or the address of an extension."""
    file: str
    """Path of the queue file."""
    position: int
    """Position of the unit in the file, in bytes."""


class QueueFiles:
    """All consume queues of a store, as a context manager that closes the files. The list of a
    queue's files is read once."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._folder = queue_folder(root)
        self._files = RealFiles()
        self._lists: dict[tuple[str, int], list[tuple[int, int, str]]] = {}
        self._mapped: OrderedDict[str, MappedFile] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for mapped in self._mapped.values():
            mapped.close()
        self._mapped.clear()

    def read_unit(self, topic: str, queue_id: int, queue_offset: int) -> Unit | None:
        """Return the unit at a queue offset, written or not.

        None if no file of the queue covers it: it never existed, or retention removed the file.
        Raises OSError.
        """
        at = queue_offset * UNIT_SIZE
        for base, size, path in self._files_of(topic, queue_id):
            if base <= at <= base + size - UNIT_SIZE:
                log_offset, length, code = get_unit(self._mapped_file(path).region, at - base)
                if length == BLANK_SIZE and log_offset == 0:
                    length = 0
                return Unit(log_offset, length, code, path, at - base)
        return None

    def begins_before(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether the first file of the queue begins at or before the queue offset; False without a
        file."""
        files = self._files_of(topic, queue_id)
        return bool(files) and files[0][0] <= queue_offset * UNIT_SIZE

    def queue_folder(self, topic: str, queue_id: int) -> str:
        """Return the path of the folder of a queue's files, which need not exist."""
        return f"{self._folder}/{topic}/{queue_id}"

    def tags_code(self, topic: str, queue_id: int, unit: Unit) -> int | None:
        """Return the tags code of a unit, or of the extension that it refers to.

        None if the extension is missing or malformed. Raises OSError.
        """
        if not is_address(unit.tags_code):
            return unit.tags_code
        at = position_of(unit.tags_code)
        folder = f"{extension_folder(self._root)}/{topic}/{queue_id}"
        for name, size in self._files.list_files(folder):
            if is_file_name(name) and int(name) <= at < int(name) + size:
                found = unit_in(self._mapped_file(f"{folder}/{name}").region, at - int(name), size)
                return None if found is None else found.tags_code
        return None

    def _files_of(self, topic: str, queue_id: int) -> list[tuple[int, int, str]]:
        """Return (base, size, path) of each file of a queue, in order; base and size are in
        bytes."""
        found = self._lists.get((topic, queue_id))
        if found is None:
            if len(self._lists) >= FOLDERS_MAX:
                self._lists.clear()
            folder = self.queue_folder(topic, queue_id)
            found = self._lists[topic, queue_id] = (
                [
                    (int(name), size, f"{folder}/{name}")
                    for name, size in self._files.list_files(folder)
                    if is_file_name(name) and size
                ]
                if "/" not in topic and "\0" not in topic
                else []
            )
        return found

    def _mapped_file(self, path: str) -> MappedFile:
        """Return a file, mapped read-only; at most MAPPED_MAX files stay mapped."""
        mapped = self._mapped.get(path)
        if mapped is None:
            while len(self._mapped) >= MAPPED_MAX:
                self._mapped.popitem(last=False)[1].close()
            mapped = self._mapped[path] = self._files.open(path, readonly=True)
        else:
            self._mapped.move_to_end(path)
        return mapped

    def all_queues(self) -> list[Queue]:
        """Return (topic, queue id) of all queues that have a folder, in the order of the
        folders' listing."""
        folder = self._folder
        return [
            (topic, int(name))
            for topic in self._files.list_folder(folder)
            for name in self._files.list_folder(f"{folder}/{topic}")
            if name.isascii() and name.isdigit()
        ]

    def first_unit(self, topic: str, queue_id: int) -> Unit | None:
        """Return the first written unit of a queue; None if its first file has none."""
        for base, size, _path in self._files_of(topic, queue_id)[:1]:
            for at in range(base, base + size - UNIT_SIZE + 1, UNIT_SIZE):
                unit = self.read_unit(topic, queue_id, at // UNIT_SIZE)
                if unit is not None and unit.size:
                    return unit
        return None


@dataclass(slots=True, frozen=True)
class EndTask:
    """A store to check for queue units after the last messages."""

    store: str
    """Name of the store in findings."""
    root: str
    """Path of the store."""
    log_min: int
    """First log offset of the log; units that point below it are ignored."""
    is_stopped: bool
    """Whether it was shut down cleanly: only then is such a unit a violation."""
    ends: dict[Queue, int]
    """Queue offset after the last message in the log, by queue."""


def check_ends(task: EndTask) -> Tally:
    """Return a tally "queue-offsets" with a finding for each queue that has a unit after its last
    message in the log. Raises OSError."""
    places = Tally("queue-offsets")
    with QueueFiles(task.root) as queues:
        for topic, queue_id in queues.all_queues():
            end = task.ends.get((topic, queue_id))
            if end is None:
                unit = queues.first_unit(topic, queue_id)
            else:
                unit = queues.read_unit(topic, queue_id, end)
            if unit is None or unit.size == 0 or unit.log_offset < task.log_min:
                continue
            what = f"its consume queue points to {unit.log_offset}, where the log has no message"
            if task.is_stopped:
                places.add_finding(
                    Finding(
                        f"{what} of it",
                        task.store,
                        unit.file,
                        unit.position,
                        unit.log_offset,
                        topic,
                        queue_id,
                        end,
                    )
                )
            else:
                places.cannot_check(
                    f"{task.store}: {topic} queue {queue_id}: {what}; it was not stopped in order, "
                    "and may be open"
                )
    return places
