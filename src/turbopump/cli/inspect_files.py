"""Which files of a store a path means: a store, one of its folders, or a single file.

Owns the folder layout of store.md 1 as a reader needs it. It must never open a file for writing.
Called by inspect.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from turbopump.cli.errors import UserError, sentence_of
from turbopump.engine.files import RealFiles
from turbopump.engine.inspect import StoreFile
from turbopump.pyx.region import Region

QUEUE_FOLDERS = ("consumequeue", "batchconsumequeue", "consumequeue_ext")


@dataclass(frozen=True, slots=True)
class QueueFile:
    """A file of a queue: which kind of units it holds, and whose they are."""

    kind: str
    topic: str
    queue_id: int
    file: StoreFile


@contextmanager
def open_readonly(path: str) -> Iterator[Region]:
    """The bytes of a file, mapped; nothing is read before it is looked at."""
    try:
        mapped = RealFiles().open(path, readonly=True)
    except OSError as error:
        raise UserError(sentence_of(error)) from None
    try:
        yield mapped.region
    finally:
        mapped.close()


def log_files(path: Path) -> list[StoreFile]:
    """The files of a commit log in order: of a store, a commitlog folder, or one file."""
    return _store_files(path, "commitlog", "a commit log")


def index_files(path: Path) -> list[StoreFile]:
    """The index files in order of their creation."""
    return _store_files(path, "index", "an index")


def queue_files(path: Path) -> list[QueueFile]:
    """The queue files of a store, of a kind, a topic, a queue, or one file; in order of queues."""
    _must_exist(path)
    if path.is_file():
        return [_queue_file(path)]
    kinds = [path / name for name in QUEUE_FOLDERS if (path / name).is_dir()] or [path]
    found = [_queue_file(file) for kind in kinds for file in _files_below(kind)]
    if not found:
        raise UserError(f"{path} is no consume queue: there are no files named by 20 digits")
    return sorted(found, key=_place)


def _place(one: QueueFile) -> tuple[int, str, int, int]:
    return QUEUE_FOLDERS.index(one.kind), one.topic, one.queue_id, one.file.base


def _store_files(path: Path, folder: str, what: str) -> list[StoreFile]:
    _must_exist(path)
    if path.is_file():
        return [_store_file(path)]
    place = path / folder if (path / folder).is_dir() else path
    files = sorted(file for file in place.iterdir() if file.is_file() and file.name.isdecimal())
    if not files:
        raise UserError(f"{path} is no folder of {what}: there are no files named by digits")
    return [_store_file(file) for file in files]


def _files_below(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and file.name.isdecimal()]


def _queue_file(path: Path) -> QueueFile:
    parts = path.absolute().parts
    kind = next((part for part in reversed(parts) if part in QUEUE_FOLDERS), QUEUE_FOLDERS[0])
    queue, topic = parts[-2], parts[-3] if len(parts) > 2 else ""
    return QueueFile(kind, topic, int(queue) if queue.isdecimal() else 0, _store_file(path))


def _store_file(path: Path) -> StoreFile:
    base = int(path.name) if path.name.isdecimal() else 0
    return StoreFile(str(path), path.name, base)


def _must_exist(path: Path) -> None:
    if not path.exists():
        raise UserError(f"{path}: there is no such file or folder")
