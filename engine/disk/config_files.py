"""The JSON files of `config/`: topics, groups, offsets and other tables that must survive.

Owns how such a file is replaced and which copy is read. It must never know a file's members, nor
keep their values: any thread may save.

A save writes X.tmp, makes it durable, renames X to X.bak and X.tmp to X, and makes the names
durable (RocketMQ 5.x: X is renamed to X.bak and written again). After a crash at any point, X or
X.bak is whole; both brokers fall back to X.bak. If X is a symbolic link, its target is replaced,
and X.bak is a copy (atomic_replace.py). Single changes of a large file may be appended to X.changes
instead (config_changes.py); loading includes them.
"""

import errno
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from turbopump.engine import fastjson
from turbopump.engine.disk import atomic_replace
from turbopump.engine.disk.atomic_replace import TEMPORARY
from turbopump.engine.disk.config_changes import Changes, apply_change, digest_of
from turbopump.engine.disk.files import Files, sync_parent_folders
from turbopump.engine.types import StoreError

logger = logging.getLogger(__name__)

BACKUP = ".bak"
"""Suffix of the copy with the content before the last save."""
DAMAGED = ".damaged"
"""Suffix of a damaged file that `load` has moved aside."""


def replace_file(files: Files, path: str, data: bytes) -> None:
    """Replace or create a file of any kind, durably on return, and create its folder if needed: a
    crash leaves the old content or the new one. No backup is made. Raises OSError."""
    folder = path.rpartition("/")[0] or "."
    files.make_folders(folder)
    atomic_replace.replace(files, path, data)


def pieces_of(value: Any) -> Iterator[bytes]:
    """The pretty JSON text of a value, as one piece, for `ConfigFiles.replace`. Raises ValueError
    for a text that `load` would refuse, TypeError for a value without a JSON form."""
    text = fastjson.dumps(value, pretty=True)
    fastjson.check_readable(text)
    yield text.encode()


class ConfigFiles:
    """The config files of a folder; a file is named without the folder. All methods but
    `may_append`, `has_changes` and `is_latest` wait for the disk, on the calling thread."""

    def __init__(self, files: Files, folder: str) -> None:
        """`folder` is the folder of the config files; it is made by the first save."""
        self._files = files
        self._folder = folder
        self._names_synced = False
        self._latest: set[str] = set()
        self._private: set[str] = set()
        self._changes: dict[str, Changes] = {}

    def is_latest(self, name: str) -> bool:
        """Whether the last `load` of this name found the file itself whole, and not its backup or
        no file."""
        return name in self._latest

    def keep_private(self, name: str) -> None:
        """Give a file, its backup and its unfinished copies mode 0600 whenever they are written. To
        be called before the first save; such a file is saved whole only."""
        self._private.add(name)

    def load(self, name: str) -> Any | None:
        """The value of a file with its appended changes; if the file is missing or damaged, the
        value of its backup; None without both.

        An empty or zeroed file counts as missing: a power cut leaves such files of brokers that
        write in place. But if its backup exists and is empty, too, data was lost. The returned
        value is durable. A damaged file with a whole backup is renamed (DAMAGED), so that the next
        save does not make it the backup. Raises StoreError if a file is damaged and has no whole
        copy, or the disk fails.
        """
        damaged = ""
        empty: list[str] = []
        self._latest.discard(name)
        changes = self._changes_of(name)
        changes.require_full_save()
        for candidate in (name, name + BACKUP):
            path = f"{self._folder}/{candidate}"
            try:
                is_there = self._files.exists(path)
                text = self._files.read(path) if is_there else b""
            except OSError as error:
                raise StoreError(f"{path} cannot be read: {error}") from error
            if not text.strip(b"\0 \t\r\n"):
                if is_there:
                    logger.warning("%s is empty", path)
                    empty.append(path)
                continue
            try:
                value = fastjson.loads(text)
                if value is None:
                    raise ValueError("its value is null")
            except ValueError as error:
                logger.warning("%s is damaged: %s", path, error)
                damaged = damaged or path
                continue
            value, changed = self._with_changes(changes, value, text)
            if candidate == name:
                self._latest.add(name)
                if not changed:
                    changes.note_durable_file(len(text), digest_of(text))
            else:
                self._rename_damaged(name)
            self._make_read_durable(path, changes)
            return value
        if len(empty) > 1:
            damaged = damaged or empty[0]
        if damaged:
            raise StoreError(f"{damaged} is damaged and no whole copy of it exists")
        return None

    def save(self, name: str, value: Any) -> None:
        """Replace a file by the JSON text of a value, durably on return; the old file becomes the
        backup. Raises OSError, and then `load` finds the old value or the new one.

        OSError is also raised for a value that `load` would refuse, and then the old value stays: a
        broker must find its tables again. Raises TypeError for a value without a JSON form.
        """
        self.replace(name, partial(pieces_of, value))

    def replace(self, name: str, pieces: Callable[[], Iterable[bytes]]) -> None:
        """Replace a file as `save` does, by a pretty JSON text. `pieces` returns its pieces in
        order, which must not end inside a string; a ValueError from it is raised as OSError."""
        path, files = f"{self._folder}/{name}", self._files
        unfinished = files.resolve(path) + TEMPORARY
        digest = hashlib.blake2b(digest_size=16)
        size = references = 0
        try:
            for piece in pieces():
                if size == 0:
                    self._make_folder()
                    if name in self._private:
                        files.create_private(unfinished)
                files.write(unfinished, piece, size or -1)
                digest.update(piece)
                size += len(piece)
                references += piece.count(b'"$ref"')
                if size > fastjson.SIZE_MAX:
                    raise ValueError(f"a text of over {fastjson.SIZE_MAX} bytes")
            if references > fastjson.REFERENCES_MAX:
                raise ValueError(f"over {fastjson.REFERENCES_MAX} references")
        except ValueError as error:
            raise OSError(errno.EFBIG, f"{name} could not be read again: {error}") from None
        files.sync(unfinished)
        changes = self._changes_of(name)
        changes.require_full_save()
        if files.exists(path):
            if name in self._private and files.resolve(path) != path:
                # The backup of a link is a copy, which is written beside it.
                files.create_private(files.resolve(path + BACKUP) + TEMPORARY)
            atomic_replace.move_to_backup(files, path, path + BACKUP)
        atomic_replace.replace_with_new(files, path)
        atomic_replace.sync_names(files, path)
        changes.note_durable_file(size, digest.hexdigest().encode())
        changes.remove()

    def may_append(self, name: str, size: int) -> bool:
        """Whether `append` may be called with changes of `size` bytes; if not, the file must be
        saved whole."""
        return self._changes_of(name).may_append(size)

    def append(self, name: str, changes: Sequence[bytes]) -> None:
        """Append texts of `config_changes.encode_change` to the changes of a file, durably on
        return; only after `may_append`. Raises OSError, and then the file must be saved whole."""
        self._changes_of(name).append(changes)

    def has_changes(self, name: str) -> bool:
        """Whether the file has changes that were appended since it was saved whole."""
        return self._changes_of(name).size > 0

    def _changes_of(self, name: str) -> Changes:
        """The changes file of the config file `name`, always the same object for a name."""
        found = self._changes.get(name)
        if found is None:
            found = self._changes[name] = Changes(self._files, f"{self._folder}/{name}")
        return found

    def _with_changes(self, changes: Changes, value: Any, text: bytes) -> tuple[Any, bool]:
        """(the value with its appended changes, whether any changes were appended)."""
        try:
            changed = changes.read(digest_of(text))
            for one in changed:
                value = apply_change(value, one)
        except (OSError, ValueError) as error:
            raise StoreError(f"{changes.path} cannot be read: {error}") from error
        return value, bool(changed)

    def _make_folder(self) -> None:
        """Create the folder of the config files; its name is durable on return."""
        self._files.make_folders(self._folder)
        if not self._names_synced:
            sync_parent_folders(self._files, self._folder)
            self._names_synced = True

    def _make_read_durable(self, path: str, changes: Changes) -> None:
        """Make a file that was read durable, because the broker acts on it: the save that wrote it
        may have been killed before its names were durable."""
        files = self._files
        try:
            changes.make_read_durable()
            files.sync(path)
            atomic_replace.sync_names(files, path)
            sync_parent_folders(files, self._folder)
        except OSError as error:
            # A read-only file system cannot hold a half-written file.
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise StoreError(f"{path} cannot be made durable: {error}") from error

    def _rename_damaged(self, name: str) -> None:
        """Rename a damaged file, whose backup was read: the next save must not make
        it the backup."""
        path = f"{self._folder}/{name}"
        logger.warning("%s was restored from %s%s", path, path, BACKUP)
        if self._files.exists(path):
            try:
                damaged = self._files.resolve(path)
                self._files.rename(damaged, damaged + DAMAGED)
            except OSError as error:
                raise StoreError(f"{path} is damaged and cannot be moved: {error}") from error
