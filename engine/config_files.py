"""The JSON files of `config/`: topics, groups, offsets and whatever else must survive.

Owns how such a file is replaced and which copy is read. It must never know what a file says, nor
keep state: any thread may save. Called by the broker's and the name server's tables.

A save writes X.tmp, makes it durable, renames X to X.bak and X.tmp to X, and makes the names
durable (RocketMQ 5.x: X is renamed to X.bak and written anew). Wherever a crash hits, X or X.bak is
whole; both brokers fall back to X.bak.
"""

import errno
import logging
from typing import Any

from turbopump.engine import fastjson
from turbopump.engine.files import Files, sync_above
from turbopump.engine.types import StoreError

logger = logging.getLogger(__name__)

BACKUP = ".bak"
DAMAGED = ".damaged"
TEMPORARY = ".tmp"


def replace_file(files: Files, path: str, data: bytes) -> None:
    """Replace a file of any kind, durably: a crash leaves the old one or the new one. Raises
    OSError."""
    folder = path.rpartition("/")[0] or "."
    files.make_folders(folder)
    files.write(path + TEMPORARY, data)
    files.sync(path + TEMPORARY)
    files.rename(path + TEMPORARY, path)
    files.sync_folder(folder)


class ConfigFiles:
    """The files of one folder."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._names_synced = False
        self._latest: set[str] = set()

    def is_latest(self, name: str) -> bool:
        """Whether `load` found the file itself whole, and not an older copy or nothing."""
        return name in self._latest

    def load(self, name: str) -> Any | None:
        """The value of a file or, if that is missing or damaged, of its backup; None without both.

        An empty or zeroed file counts as missing: a power cut leaves such files of brokers that
        write in place. What is returned is durable. Raises StoreError if a file is damaged and no
        copy can stand in, or the disk fails.
        """
        damaged = ""
        self._latest.discard(name)
        for candidate in (name, name + BACKUP):
            path = f"{self._folder}/{candidate}"
            try:
                text = self._files.read(path) if self._files.exists(path) else b""
            except OSError as error:
                raise StoreError(f"{path} cannot be read: {error}") from error
            if not text.strip(b"\0 \t\r\n"):
                if text:
                    logger.warning("%s holds nothing", path)
                continue
            try:
                value = fastjson.loads(text)
            except ValueError as error:
                logger.warning("%s is damaged: %s", path, error)
                damaged = damaged or path
                continue
            if candidate == name:
                self._latest.add(name)
            else:
                self._restored(name)
            self._keep(path)
            return value
        if damaged:
            raise StoreError(f"{damaged} is damaged and no whole copy of it exists")
        return None

    def save(self, name: str, value: Any) -> None:
        """Replace a file; it is durable on return. Raises OSError, the old value then stays.

        That is also raised for what `load` would refuse: a broker must find its tables again.
        """
        path = f"{self._folder}/{name}"
        try:
            text = fastjson.dumps(value, pretty=True)
            fastjson.check_readable(text)
        except ValueError as error:
            raise OSError(errno.EFBIG, f"{name} could not be read again: {error}") from None
        files = self._files
        files.make_folders(self._folder)
        if not self._names_synced:
            sync_above(files, self._folder)
            self._names_synced = True
        files.write(path + TEMPORARY, text.encode())
        files.sync(path + TEMPORARY)
        if files.exists(path):
            files.rename(path, path + BACKUP)
        files.rename(path + TEMPORARY, path)
        files.sync_folder(self._folder)

    def _keep(self, path: str) -> None:
        """The save that wrote the file may have been killed before its names were durable; what is
        read now is acted upon, so a power cut must not take it back."""
        files = self._files
        try:
            files.sync(path)
            files.sync_folder(self._folder)
            sync_above(files, self._folder)
        except OSError as error:
            # Where nobody may write nobody was killed while writing.
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise StoreError(f"{path} cannot be opened for good: {error}") from error

    def _restored(self, name: str) -> None:
        """Keep a damaged file out of the way: the next save must not make it the backup."""
        path = f"{self._folder}/{name}"
        logger.warning("%s was restored from %s%s", path, path, BACKUP)
        if self._files.exists(path):
            try:
                self._files.rename(path, path + DAMAGED)
            except OSError as error:
                raise StoreError(f"{path} is damaged and cannot be moved: {error}") from error
