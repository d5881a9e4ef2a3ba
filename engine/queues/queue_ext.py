"""Consume queue extensions: data that does not fit into a 20-byte unit.

Owns the files below `consumequeue_ext` (RocketMQ: store/ConsumeQueueExt). A queue's tags code is
then the address of an extension unit: tags code, store time, filter bitmap. It must never write a
queue unit. Used only with `enableConsumeQueueExt`.

Tests: tests/unit/engine/queues/test_lookup.py
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

from turbopump.engine.disk.disk_steps import Steps, Unsynced, removal_work
from turbopump.engine.disk.files import Files
from turbopump.engine.disk.segments import MappingPool, Segments, clear_tail
from turbopump.engine.disk.store_paths import queue_folder, queue_folders, topic_folder
from turbopump.pyx.region import Region

FOLDER = "consumequeue_ext"
"""Name of the extensions' folder in the store's folder."""
# size, tags code, store time, bitmap length.
_HEAD = struct.Struct(">hqqh")
# The last bytes of a file are kept for its end mark.
_END_RESERVED = 4
_END_MARK = -1
_ADDRESS_BASE = -(1 << 63)
# Tags codes are 32-bit hashes, so any smaller number is an address.
_ADDRESS_MAX = -(1 << 31) - 1


@dataclass(slots=True, frozen=True)
class ExtensionUnit:
    """A unit of a consume queue's extension: tags code, store time and filter bitmap of a
    message."""

    tags_code: int
    """Java's hash of the tags, or a delivery time (LogDispatcher.tags_code)."""
    store_timestamp_ms: int
    """Store time of the message in epoch ms."""
    bitmap: bytes
    """Filter bitmap of the message; may be empty."""


@dataclass(slots=True, eq=False)
class _Extension:
    """The extension files of a queue, and the byte after their last unit."""

    segments: Segments
    end: int = 0
    synced_end: int = 0
    """The byte after the units that a round has synced, or is about to."""
    names_synced: bool = True
    """Whether the names of the files and folders are durable."""


def is_address(tags_code: int) -> bool:
    """Whether a queue unit's tags code is the address of an extension unit, not a code
    (ConsumeQueueExt)."""
    return tags_code <= _ADDRESS_MAX


def position_of(address: int) -> int:
    """The byte at which the unit of an address begins, counted over all extension files of its
    queue together."""
    return address - _ADDRESS_BASE


def unit_in(region: Region, position: int, file_size: int) -> ExtensionUnit | None:
    """The extension unit at byte `position` of an extension file of `file_size` bytes; None if no
    unit lies there."""
    if position + _HEAD.size > file_size:
        return None
    size, tags_code, store_ms, bitmap_size = _HEAD.unpack(region.read(position, _HEAD.size))
    if size != _HEAD.size + bitmap_size or bitmap_size < 0 or position + size > file_size:
        return None
    return ExtensionUnit(tags_code, store_ms, region.read(position + _HEAD.size, bitmap_size))


class QueueExtensions:
    """The extension files of all queues. Loop thread only, except the work that steps yield."""

    def __init__(self, files: Files, root: str, file_size: int, pool: MappingPool) -> None:
        self.files = files
        self.folder = f"{root}/{FOLDER}"
        """Path of the folder of all extensions."""
        self.file_size = file_size
        """Size of an extension file in bytes."""
        self._pool = pool
        self._by_name: dict[tuple[str, int], _Extension] = {}
        self.bit_map: Callable[[str, bytes], bytes] = lambda topic, properties: b""
        """Function of (topic, properties text) that returns the filter bitmap of a message for its
        dispatch; the broker replaces it."""

    def load(self) -> None:
        """Find all files and the ends of their units; files after a hole are removed. Raises
        StoreError for a file of a wrong size; OSError."""
        for topic, queue_id in queue_folders(self.files, self.folder):
            extension = self._get(topic, queue_id)
            for start in extension.segments.load():
                self.files.remove(extension.segments.path(start))
            extension.end = self._find_end(extension)
            extension.synced_end = extension.segments.first

    def queues_with_extension(self) -> list[tuple[str, int]]:
        """(topic, queue id) of each queue that has an extension, in no order."""
        return list(self._by_name)

    def write_unit(
        self, topic: str, queue_id: int, tags_code: int, store_ms: int, bitmap: bytes
    ) -> int | None:
        """Write a unit at the end of the queue's extension, not durable yet; `store_ms` is in epoch
        ms. Returns its address, which the caller writes into the queue unit as tags code; None if
        the unit is too large, and nothing was written. Raises OSError."""
        size = _HEAD.size + len(bitmap)
        if size > min(0x7FFF, self.file_size - _END_RESERVED):
            return None
        extension = self._get(topic, queue_id)
        segments = extension.segments
        start = segments.start_of(extension.end)
        if segments.contains(extension.end) and (
            extension.end + size > start + self.file_size - _END_RESERVED
        ):
            segments.file_region(start).write(extension.end - start, struct.pack(">h", _END_MARK))
            extension.end = start + self.file_size
        start = segments.start_of(extension.end)
        if not segments.contains(extension.end):
            self.files.make_folders(segments.folder)
            extension.names_synced = False
            segments.create(start)
        segments.reserve_blocks(extension.end, size)
        head = _HEAD.pack(size, tags_code, store_ms, len(bitmap))
        segments.file_region(start).write(extension.end - start, head + bitmap)
        address = extension.end + _ADDRESS_BASE
        extension.end += size
        return address

    def get(self, topic: str, queue_id: int, address: int) -> ExtensionUnit | None:
        """The extension unit at an address of a queue; None if the queue has no unit there."""
        extension = self._by_name.get((topic, queue_id))
        at = position_of(address)
        if extension is None or not is_address(address) or at >= extension.end:
            return None
        return self._unit_at(extension, at)

    def truncation_steps(
        self, topic: str, queue_id: int, address_max: int | None, left: Unsynced
    ) -> Steps:
        """Steps that cut a queue's extension after the unit at `address_max`, the greatest address
        in the queue's remaining units (None: they have no address). The steps add to `left` the
        files that the caller must sync, and raise OSError."""
        extension = self._by_name.get((topic, queue_id))
        if extension is None:
            return
        segments = extension.segments
        end = segments.first
        if address_max is not None:
            at = address_max - _ADDRESS_BASE
            unit = self._unit_at(extension, at) if at < extension.end else None
            if unit is not None:
                end = at + _HEAD.size + len(unit.bitmap)
        extension.end = end
        extension.synced_end = min(extension.synced_end, end)
        while segments.count > 1 and segments.last_file_start >= end:
            yield removal_work(self.files, segments.forget_last(), segments.folder)
        if segments.count:
            mapped = segments.mapped_file(segments.last_file_start)
            if clear_tail(mapped, max(0, end - segments.last_file_start), sync=False):
                left.files.append(mapped.path)

    def delete_before(self, topic: str, queue_id: int, address_min: int) -> list[str]:
        """Take out the queue's files that end before the unit at `address_min`, never the last
        file; [] if that is no address. Returns their paths, oldest first, for the caller to
        remove."""
        extension = self._by_name.get((topic, queue_id))
        paths = []
        if extension is not None and is_address(address_min):
            at = address_min - _ADDRESS_BASE
            segments = extension.segments
            while segments.count > 1 and segments.first + self.file_size <= at:
                paths.append(segments.forget_first())
        return paths

    def forget_topic(self, topic: str) -> str:
        """Forget a topic's extensions, and return the folder of their files, which may not exist,
        for the caller to remove. Raises StoreError for a topic that is no folder name."""
        folder = topic_folder(self.folder, topic)
        for name in [name for name in self._by_name if name[0] == topic]:
            segments = self._by_name.pop(name).segments
            while segments.count:
                segments.forget_last()
        return folder

    def dirty_paths(self) -> tuple[list[str], list[str]]:
        """Take the paths that the caller must sync now: (files, folders). A later call does not
        return them again, because after a failed sync the store takes no writes."""
        paths, folders = list[str](), dict[str, None]()
        root = self.folder.rpartition("/")[0]
        for (topic, _queue_id), extension in self._by_name.items():
            segments = extension.segments
            if extension.end > extension.synced_end:
                first = segments.start_of(extension.synced_end)
                starts = range(first, extension.end, self.file_size)
                paths += [segments.path(start) for start in starts if segments.contains(start)]
                extension.synced_end = extension.end
            if not extension.names_synced:
                extension.names_synced = True
                above = [segments.folder, topic_folder(self.folder, topic), self.folder, root]
                folders.update(dict.fromkeys(above))
        return paths, list(folders)

    def _get(self, topic: str, queue_id: int) -> _Extension:
        """The extension of a queue; an empty one is added if there is none."""
        extension = self._by_name.get((topic, queue_id))
        if extension is None:
            folder = queue_folder(self.folder, topic, queue_id)
            extension = _Extension(Segments(self._pool, folder, self.file_size))
            self._by_name[(topic, queue_id)] = extension
        return extension

    def _unit_at(self, extension: _Extension, at: int) -> ExtensionUnit | None:
        """The extension unit at byte `at` of the queue's extension files; None if there is none."""
        segments = extension.segments
        if not segments.contains(at):
            return None
        start = segments.start_of(at)
        return unit_in(segments.file_region(start), at - start, self.file_size)

    def _find_end(self, extension: _Extension) -> int:
        """Byte of the extension files after the last unit, found by a walk over all of them."""
        segments = extension.segments
        at = segments.first
        while segments.contains(at):
            unit = self._unit_at(extension, at)
            if unit is not None:
                at += _HEAD.size + len(unit.bitmap)
                continue
            start = segments.start_of(at)
            position = at - start
            ended = (
                position + 2 <= self.file_size and segments.file_region(start).get_i16(position) < 0
            )
            if not ended or start == segments.last_file_start:
                break
            at = start + self.file_size
        return at
