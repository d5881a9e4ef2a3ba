"""Identity of this broker at its controllers: an id that was assigned once, and stays.

Owns the two small files beside the store, and their meaning after a crash. Their format is
RocketMQ's (BrokerMetadata, TempBrokerMetadata), so that the store can move between the two:

    brokerIdentity        clusterName#brokerName#brokerId
    brokerIdentity-temp   clusterName#brokerName#brokerId#registerCheckCode

Files after a crash, and the next start:

    neither               no id was requested: begin
    the second            the id may or may not be assigned: apply again for that id with that
                          code, which the controller that assigned it grants
    both, or the first    the id is assigned

RocketMQ deletes and rewrites each file, without a sync: a crash between the two loses the id, and
an empty file counts as missing. These files are replaced atomically and are durable before the next
request to a controller. RocketMQ also gives up its temporary id after any failure, which leaks an
id whenever an answer is lost; here the id stays until a controller reports that it is another
broker's.

The second file stays, because its code proves later, too, which broker has the id. Controllers that
lost their state assign ids again, and two brokers with one id would both lead. (RocketMQ reads it
only if the first one is missing.)
"""

import logging
from dataclasses import dataclass

from turbopump.engine.disk import atomic_replace
from turbopump.engine.disk.files import Files, sync_parent_folders

logger = logging.getLogger(__name__)

TEMPORARY = "-temp"
"""Suffix of the file of the id that was applied for."""
FORGOTTEN = "-forgotten"
"""Suffix of the copy that `remove_files` leaves of the first file."""
_UNFINISHED = ".new"
_SEPARATOR = "#"
ID_MAX = 2**63 - 1
"""Largest broker id; the smallest is 1."""


class IdentityError(Exception):
    """A file of another broker, or without credible content; the text is one clear sentence."""


@dataclass(frozen=True, slots=True)
class Applied:
    """An id that this broker applied for, whether it was assigned or not."""

    broker_id: int
    """The id, 1 to ID_MAX."""
    check_code: str
    """Secret text that proves to a controller that this broker applied for the id."""


class IdentityFiles:
    """The two files of a broker's identity at the controllers: brokerIdentity with its assigned id
    (the first), and brokerIdentity-temp with the id that it applied for (the second). Methods block
    for the disk and raise OSError; written files are durable on return."""

    def __init__(self, files: Files, path: str, cluster_name: str, broker_name: str) -> None:
        """`path` is of the first file; the names are checked against those in the files."""
        self._files = files
        self._path = path
        self._folder = path.rpartition("/")[0] or "."
        self._cluster_name = cluster_name
        self._broker_name = broker_name

    def load(self) -> int | None:
        """Return the assigned id, None if no file has one. Raises IdentityError if the file is
        another broker's or damaged."""
        found = self._read(self._path, 3)
        return None if found is None else self._parse_id(found[2], self._path)

    def load_applied(self) -> Applied | None:
        """Return the id that was last applied for and its code, whether it was assigned or not;
        None without such a file. Raises IdentityError if the file is another broker's or
        damaged."""
        path = self._path + TEMPORARY
        found = self._read(path, 4)
        return None if found is None else Applied(self._parse_id(found[2], path), found[3])

    def save_applied(self, applied: Applied) -> None:
        """Replace the second file; to be called before the id is applied for."""
        self._write_file(self._path + TEMPORARY, f"{applied.broker_id}#{applied.check_code}")

    def drop_applied(self) -> None:
        """Remove the second file, because its id belongs to another broker; no-op without it."""
        self._remove(self._path + TEMPORARY)

    def save(self, broker_id: int) -> None:
        """Replace the first file with an id that a controller assigned; the second file stays."""
        self._write_file(self._path, str(broker_id))

    def remove_files(self) -> None:
        """Remove both files, because the controllers no longer know the id. The first file is kept
        with the suffix FORGOTTEN, in case these were the wrong controllers."""
        self._remove(self._path + TEMPORARY)
        if self._files.exists(self._path):
            atomic_replace.move_to_backup(self._files, self._path, self._path + FORGOTTEN)
            self._remove(self._path)
            self._files.sync_folder(self._folder)

    def _read(self, path: str, count: int) -> list[str] | None:
        """Return the `count` parts of a file, None if it is missing or empty. Raises
        IdentityError."""
        if not self._files.exists(path):
            return None
        content = self._files.read(path)
        if not content.strip(b"\0 \t\r\n"):
            logger.warning("%s is empty: a RocketMQ broker stopped while it wrote the file", path)
            return None
        try:
            parts = content.decode().strip().split(_SEPARATOR)
        except UnicodeDecodeError:
            parts = []
        if len(parts) != count:
            raise IdentityError(f"{path} is damaged: it names no cluster, broker and id")
        if (parts[0], parts[1]) != (self._cluster_name, self._broker_name):
            raise IdentityError(
                f"{path} is of broker {parts[1]} of cluster {parts[0]}, not of"
                f" {self._broker_name} of {self._cluster_name}: a broker that changes its name"
                " needs a new store (cleanBrokerMetadata makes the controllers forget the old one)"
            )
        return parts

    def _parse_id(self, text: str, path: str) -> int:
        """Parse a broker id, which must be 1 or more. Raises IdentityError."""
        is_number = text.isascii() and text.isdigit() and len(text) <= len(str(ID_MAX))
        if not is_number or not 0 < int(text) <= ID_MAX:
            raise IdentityError(f"{path} is damaged: {text[:20]!r} is no broker id")
        return int(text)

    def _write_file(self, path: str, rest: str) -> None:
        """Replace a file, durably, by cluster name, broker name and `rest`."""
        files, folder = self._files, self._folder
        files.make_folders(folder)
        content = _SEPARATOR.join((self._cluster_name, self._broker_name, rest))
        atomic_replace.replace(files, path, content.encode(), _UNFINISHED)
        sync_parent_folders(files, folder)

    def _remove(self, path: str) -> None:
        """Remove a file, durably; no-op without it."""
        if self._files.exists(path):
            self._files.remove(self._files.resolve(path))
            atomic_replace.sync_names(self._files, path)
