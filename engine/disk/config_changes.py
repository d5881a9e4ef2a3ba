"""Changes of a config file since it was written: X.changes beside X, one record per change.

Owns that file's form, its validity, and the meaning of a change. It must never know which members a
config file has.

Writing a table with thousands of rows takes long, and the response to a change waits until it is
durable. So changes are appended here; now and then the table is written whole, and then this file
is removed. The first line has the digest of the content of X that the changes belong to: beside any
other X, from a RocketMQ broker or a later save of ours, the file is ignored. The checksum of each
record covers all records before it, so reading stops before the first record that is not whole.
After a failed write nothing is appended: X is written whole then.
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
"""Suffix of the name of a file with changes, after the name of its config file."""
SIZE_MIN: Final = 1 << 20
"""Bytes that are appended before X is written whole again. The limit of a larger X is its own size,
so that the cost of a change does not grow with the table."""
SIZE_MAX: Final = 32 << 20
"""Maximum of that limit, in bytes."""
ZEROS_MIN: Final = 64 << 10
"""Minimum bytes of zeros after the changes. Writing over zeros and syncing touches only those
blocks; growing a file waits for the file system's journal, and delays every file that is created
meanwhile. Later the file has as many zeros as changes."""
_MAGIC: Final = b"turbopump changes 1 "
_RECORD: Final = struct.Struct(">II")  # size of the JSON text, checksum


def digest_of(text: bytes) -> bytes:
    """Digest of a file's whole content, as 32 ASCII hex digits."""
    return hashlib.blake2b(text, digest_size=16).hexdigest().encode()


def encode_change(
    members: Mapping[str, Any],
    put: Mapping[str, Sequence[bytes]],
    removed: Mapping[str, Sequence[str]],
) -> bytes:
    """The JSON text of a change, for `Changes.append`. `members`: name to the new value of a member
    of the file's object (None: the member is removed). `put` and `removed`: name of a member that
    is a table to the rows to add or replace, each as `"name":{...}`, and to the names of rows to
    remove; a row in both is put."""
    parts = []
    if absent := [name for name, value in members.items() if value is None]:
        parts.append(b'"absent":' + _json_text(absent))
    if names := {table: list(rows) for table, rows in removed.items() if rows}:
        parts.append(b'"gone":' + _json_text(names))
    if tables := [
        b"%s:{%s}" % (_json_text(table), b",".join(rows)) for table, rows in put.items() if rows
    ]:
        parts.append(b'"put":{%s}' % b",".join(tables))
    parts.append(b'"set":' + _json_text(members))
    return b"{%s}" % b",".join(parts)


def apply_change(value: Any, change: Any) -> Any:
    """The value of a config file after `encode_change`, a parsed text of the function
    `encode_change`. The result is a new dict, but its tables are changed in place in `value`; rows
    that are missing are removed without an error. Raises ValueError if the change does not fit the
    value."""
    try:
        result = {**value, **change["set"]}
        for name in change.get("absent", ()):
            result.pop(name, None)
        for table, names in change.get("gone", {}).items():
            rows = result[table] = result.get(table) or {}
            for name in names:
                rows.pop(name, None)
        for table, put in change.get("put", {}).items():
            rows = result[table] = result.get(table) or {}
            rows.update(put)
        return result
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"a change does not fit: {type(error).__name__} {error}") from None


def _json_text(value: Any) -> bytes:
    """A value as compact JSON text in UTF-8; lone surrogates become `?`."""
    return fastjson.dumps(value).encode("utf-8", "replace")


class Changes:
    """The file with the changes of a config file; methods that touch it wait for the disk."""

    def __init__(self, files: Files, path: str) -> None:
        """`path` is the config file; its changes lie at `path` plus SUFFIX. Touches no file."""
        self.path = path + SUFFIX
        """Path of the file with the changes."""
        self._files = files
        self._digest = b""
        self._said_of = b""
        """Digest of the content that the changes on the disk belong to; empty: unknown."""
        self._limit = 0
        self._checksum = 0
        self._end = 0
        self._read = b""
        self.size = 0
        """Bytes of the changes; 0 without changes. Zeros follow them in the file, up to
        `_end`."""

    def may_append(self, size: int) -> bool:
        """Whether `append` may be called with changes of `size` bytes. False before
        `note_durable_file`, after `require_full_save` or a failed `append`, and when saving the
        whole config file is cheaper.
        """
        return bool(self._digest) and self.size + size <= self._limit

    def note_durable_file(self, text_size: int, digest: bytes) -> None:
        """Note that the config file is durable with a content of `text_size` bytes and this
        `digest_of`; earlier changes are void, and new ones may be appended. Touches no file."""
        self._digest = digest
        self._limit = min(max(SIZE_MIN, text_size), SIZE_MAX)
        self.size = 0

    def require_full_save(self) -> None:
        """Let `may_append` return False until the next `note_durable_file`: the config file must be
        written whole."""
        self._digest = b""

    def remove(self) -> None:
        """Remove the file with changes of an earlier content, if it exists; durably if that content
        equals the current one: a config file that is saved as it was before its changes must not
        get them back. Raises OSError."""
        if self._files.exists(self.path):
            self._files.remove(self.path)
            if self._said_of in (b"", self._digest):
                self._files.sync_folder(self.path.rpartition("/")[0])
        self._said_of = b""

    def append(self, changes: Sequence[bytes]) -> None:
        """Append texts of `encode_change`, durably on return. Raises OSError, and then no changes
        can be appended until `note_durable_file`. Without `note_durable_file` a programmer error;
        `may_append` must be True."""
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
        """The changes of the content with this digest as JSON values, oldest first; empty if the
        file is missing or its changes belong to another content. Raises OSError, ValueError."""
        self.size = 0
        if not self._files.exists(self.path):
            return []
        data = memoryview(self._files.read(self.path))
        head = _MAGIC + digest + b"\n"
        if data[: len(head)] != head:
            logger.info(
                "%s is ignored: its changes belong to another content of the file", self.path
            )
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

    def make_read_durable(self) -> None:
        """Make the changes of the last `read` durable, because the broker acts on them; no-op
        without any. Raises OSError."""
        data, self._read = self._read, b""
        if data:
            # Written again: after a failed sync the system takes these bytes for durable.
            self._files.write(self.path, data, 0)
            self._files.sync(self.path)
