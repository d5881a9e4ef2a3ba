"""Files of a store by path: the path may be a store, one of its folders, or a single file.

Owns the folder layout of store.md 1 for readers. It must never open a file for writing.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from turbopump.cli.errors import UserError, sentence_of
from turbopump.engine.config import LOG_FOLDER
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.snapshot.inspect import StoreFile
from turbopump.pyx.region import Region

QUEUE_NAME_DIGITS = 20
"""Digits of the name of a log's or queue's file: its first offset in bytes."""
INDEX_NAME_DIGITS = 17
"""Digits of the name of an index file: its local time of creation."""
QUEUE_FOLDERS = ("consumequeue", "batchconsumequeue", "consumequeue_ext")
"""Folders of queue files in a store, by kind of unit."""


@dataclass(frozen=True, slots=True)
class QueueFile:
    """A file of a queue, with its topic and queue id as its path has them."""

    kind: str
    """Kind of its units, one of QUEUE_FOLDERS."""
    topic: str
    queue_id: int
    file: StoreFile


@contextmanager
def open_readonly(path: str) -> Iterator[Region]:
    """Map a file read-only until the block ends; bytes are read from the disk only when accessed.
    Raises UserError."""
    try:
        mapped = RealFiles().open(path, readonly=True)
    except OSError as error:
        raise UserError(sentence_of(error)) from None
    try:
        yield mapped.region
    finally:
        mapped.close()


def log_files(path: Path) -> list[StoreFile]:
    """Return the files of a commit log in order, at least one; `path` is a store, a folder with one
    store, a commitlog folder, or one file. Raises UserError."""
    return _store_files(path, LOG_FOLDER, QUEUE_NAME_DIGITS)


def index_files(path: Path) -> list[StoreFile]:
    """Return the index files in order of their creation, at least one; `path` is a store, a folder
    with one store, an index folder, or one file. Raises UserError."""
    return _store_files(path, "index", INDEX_NAME_DIGITS)


def queue_files(path: Path) -> list[QueueFile]:
    """Return the queue files below `path`, at least one, sorted by kind, topic, queue id and
    position; `path` is a store, a folder with one store, the folder of a kind, topic or queue, or
    one file. Raises UserError."""
    _must_exist(path)
    if path.is_file():
        return [_queue_file(path)]
    store = _find_store(path, *QUEUE_FOLDERS)
    kinds = [store / name for name in QUEUE_FOLDERS if (store / name).is_dir()] or [path]
    found = [_queue_file(file) for kind in kinds for file in _with_numeric_name(_files_below(kind))]
    if not found:
        raise UserError(f"{path}: no file named by {QUEUE_NAME_DIGITS} digits is below it")
    return sorted(found, key=_sort_key)


def _sort_key(one: QueueFile) -> tuple[int, str, int, int]:
    return QUEUE_FOLDERS.index(one.kind), one.topic, one.queue_id, one.file.base


def _store_files(path: Path, folder: str, digits: int) -> list[StoreFile]:
    """The files with names of `digits` digits in the folder `folder` of the store at `path`, or
    `path` itself if it is a file. Raises UserError."""
    _must_exist(path)
    if path.is_file():
        return [_store_file(path)]
    store = _find_store(path, folder)
    place = store / folder if (store / folder).is_dir() else path
    files = sorted(_with_numeric_name(place.iterdir(), digits))
    if not files:
        raise UserError(f"{place}: no file named by {digits} digits is in it")
    return [_store_file(file) for file in files]


def _find_store(path: Path, *folders: str) -> Path:
    """Return `path` if it is a store, else the only store in it: `turbopump up` keeps one for a
    broker."""
    if any((path / folder).is_dir() for folder in folders):
        return path
    stores = sorted({below.parent for folder in folders for below in path.glob(f"*/{folder}")})
    if len(stores) > 1:
        names = ", ".join(str(store) for store in stores)
        raise UserError(f"{path} holds several stores, say which: {names}")
    return stores[0] if stores else path


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield every file; unlike rglob it raises OSError for an unreadable folder."""

    def refuse(error: OSError) -> None:
        raise error

    for at, _, names in os.walk(folder, onerror=refuse):
        yield from (Path(at, name) for name in names)


def _with_numeric_name(files: Iterable[Path], digits: int = QUEUE_NAME_DIGITS) -> list[Path]:
    named = (file for file in files if file.name.isdecimal() and len(file.name) == digits)
    return [file for file in named if file.is_file()]


def _queue_file(path: Path) -> QueueFile:
    """A queue file with the kind, topic and queue id of its path."""
    parts = path.absolute().parts
    kind = next((part for part in reversed(parts) if part in QUEUE_FOLDERS), QUEUE_FOLDERS[0])
    queue, topic = parts[-2], parts[-3] if len(parts) > 2 else ""
    return QueueFile(kind, topic, int(queue) if queue.isdecimal() else 0, _store_file(path))


def _store_file(path: Path) -> StoreFile:
    """A file of a store; its name is its first byte, if it is a number."""
    base = int(path.name) if path.name.isdecimal() else 0
    return StoreFile(str(path), path.name, base)


def _must_exist(path: Path) -> None:
    if not path.exists():
        raise UserError(f"{path}: there is no such file or folder")
