"""What changed in a config file since it was written: X.changes beside X, one record a change.

Owns that file's form, when it counts, and what a change says. It must never know which members a
config file has. Called by config_files.py; the tables make the changes.

A table of thousands takes long to write as a whole, and the answer to a change waits until it
is durable: so changes are appended here, and now and then the table is written whole, after which
this file goes. A first line says of which content of X it holds the changes, by its digest: beside
any other X, a RocketMQ broker's or a newer one of ours, it counts for nothing. The checksum of each
record covers all those before it, so what is read ends before the first one that is not whole.
Nothing is ever appended behind a write that failed: X is written whole then.
"""

import hashlib
import logging
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from turbopump.engine import fastjson
from turbopump.engine.disk.files import Files

logger = logging.getLogger(__name__)

SUFFIX: Final = ".changes"
SIZE_MIN: Final = 1 << 20
"""Bytes that are appended before X is written whole again; of a larger X as many as it has, so that
what is written for a change does not grow with the table."""
SIZE_MAX: Final = 32 << 20
ZEROS_MIN: Final = 64 << 10
"""The file is longer than what it holds, by zeros: a store over them and its sync touch nothing but
their own blocks, where one that makes the file longer waits for the file system's own log, and with
it each file that is made meanwhile. So many zeros at first, then as many as there are bytes."""
_MAGIC: Final = b"turbopump changes 1 "
_RECORD: Final = struct.Struct(">II")  # size of the JSON text, checksum


def digest_of(text: bytes) -> bytes:
    """What a file's content is known by."""
    return hashlib.blake2b(text, digest_size=16).hexdigest().encode()


def change(
    members: Mapping[str, Any],
    put: Mapping[str, Sequence[bytes]],
    gone: Mapping[str, Sequence[str]],
) -> bytes:
    """The text of one change: members that are set as a whole (None: left out from now on), and of
    members that are tables the rows that are put, as `"name":{...}`, and those that are gone."""
    parts = []
    if absent := [name for name, value in members.items() if value is None]:
        parts.append(b'"absent":' + _text(absent))
    if names := {table: list(of) for table, of in gone.items() if of}:
        parts.append(b'"gone":' + _text(names))
    if tables := [b"%s:{%s}" % (_text(table), b",".join(of)) for table, of in put.items() if of]:
        parts.append(b'"put":{%s}' % b",".join(tables))
    parts.append(b'"set":' + _text(members))
    return b"{%s}" % b",".join(parts)


def apply(value: Any, said: Any) -> Any:
    """A file's value after one change; its tables are changed in place. Raises ValueError where
    either is of another shape."""
    try:
        result = {**value, **said["set"]}
        for name in said.get("absent", ()):
            result.pop(name, None)
        for table, names in said.get("gone", {}).items():
            rows = result[table] = result.get(table) or {}
            for name in names:
                rows.pop(name, None)
        for table, put in said.get("put", {}).items():
            rows = result[table] = result.get(table) or {}
            rows.update(put)
        return result
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"a change does not fit: {type(error).__name__} {error}") from None


def _text(value: Any) -> bytes:
    return fastjson.dumps(value).encode("utf-8", "replace")


class Changes:
    """The changes of one file."""

    def __init__(self, files: Files, path: str) -> None:
        """`path` is that of the file whose changes they are."""
        self.path = path + SUFFIX
        self._files = files
        self._digest = b""
        self._said_of = b""
        """The content that the changes on the disk are of; empty: unknown."""
        self._limit = 0
        self._checksum = 0
        self._end = 0
        self._read = b""
        self.size = 0
        """Bytes of the changes; 0 while there are none. The file has more of them, up to `_end`."""

    def fits(self, size: int) -> bool:
        """Whether changes of so many bytes can be appended: not before the file was read or written
        whole, not behind a write that failed, not beyond what is worth it."""
        return bool(self._digest) and self.size + size <= self._limit

    def begin(self, text_size: int, digest: bytes) -> None:
        """The file is durable with this content; changes before count no more."""
        self._digest = digest
        self._limit = min(max(SIZE_MIN, text_size), SIZE_MAX)
        self.size = 0

    def stop(self) -> None:
        """Nothing is appended until the file was written whole."""
        self._digest = b""

    def remove(self) -> None:
        """Those of a former content go, where there are any; durably if that was the same: a file
        that is written again as it was before its changes must not get them back. Raises OSError.
        """
        if self._files.exists(self.path):
            self._files.remove(self.path)
            if self._said_of in (b"", self._digest):
                self._files.sync_folder(self.path.rpartition("/")[0])
        self._said_of = b""

    def append(self, changes: Sequence[bytes]) -> None:
        """Make changes durable. Raises OSError; then nothing more can be appended."""
        assert self._digest, "changes of an unknown file"
        files, digest, first = self._files, self._digest, self.size == 0
        self._digest = b""
        pieces = []
        if first:
            head = _MAGIC + digest + b"\n"
            self._said_of = digest
            self._checksum, self._end = zlib.crc32(head), 0
            pieces.append(head)
        for one in changes:
            self._checksum = zlib.crc32(one, self._checksum)
            pieces += (_RECORD.pack(len(one), self._checksum), one)
        data = b"".join(pieces)
        end = self.size + len(data)
        if end > self._end:
            zeros = bytes(max(ZEROS_MIN, end))
            files.write(self.path, data + zeros, -1 if first else self.size)
            files.sync(self.path)
            self._end = end + len(zeros)
        else:
            files.write(self.path, data, self.size)
            files.sync_data(self.path)
        if first:
            files.sync_folder(self.path.rpartition("/")[0])
        self.size = end
        self._digest = digest

    def read(self, digest: bytes) -> list[Any]:
        """The changes of the content with this digest, as JSON values. Raises OSError."""
        self.size = 0
        if not self._files.exists(self.path):
            return []
        data = memoryview(self._files.read(self.path))
        head = _MAGIC + digest + b"\n"
        if data[: len(head)] != head:
            logger.info("%s: not of the file that is there: passed over", self.path)
            return []
        self._said_of = digest
        found, at, checksum = [], len(head), zlib.crc32(head)
        while at + _RECORD.size <= len(data):
            size, wanted = _RECORD.unpack_from(data, at)
            text = data[at + _RECORD.size : at + _RECORD.size + size]
            checksum = zlib.crc32(text, checksum)
            if size == 0 or len(text) < size or checksum != wanted:
                break
            found.append(fastjson.loads(text))
            at += _RECORD.size + size
        if bytes(data[at:]).strip(b"\0"):
            logger.warning("%s: what follows byte %d was not completed", self.path, at)
        if found:
            self.size, self._read = at, bytes(data[:at])
        return found

    def keep(self) -> None:
        """What was read is acted upon, so no power cut may take it back. Raises OSError."""
        data, self._read = self._read, b""
        if data:
            # Written again: after a sync that failed the system takes what is here for durable.
            self._files.write(self.path, data, 0)
            self._files.sync(self.path)
