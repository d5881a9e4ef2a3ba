"""Writes a job's output folder completely or not at all.

Owns the steps: write beside the target, sync, rename. It must never replace a folder that no job
has written.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turbopump.engine.disk.real_files import RealFiles
from turbopump.spark.session import JobError


def is_remote(target: str) -> bool:
    """Whether a target is a URI, not a path of this machine."""
    return "://" in target


@contextmanager
def written_folder(target: str, overwrite: bool, mark: str) -> Iterator[str]:
    """Yield the path of a folder to write to; it becomes the target when the block succeeds.

    The folder (`target.part`) is not made here. When the block ends, its files are synced and it is
    renamed; if the block raises, it is removed. A remote target is yielded as it is: Spark's
    committer shows readers all of it or nothing. Raises JobError if something is in the way. With
    `overwrite`, a folder is replaced only if a job wrote it, which the file named `mark` in it
    shows.
    """
    if is_remote(target):
        yield target
        return
    place = Path(target).absolute()
    if not place.name:
        raise JobError(f"{place} is no place for a folder of its own")
    part, old = (place.with_name(f"{place.name}.{end}") for end in ("part", "old"))
    if not place.parent.is_dir():
        raise JobError(f"{place.parent} is no folder")
    for there, what in ((place, "exists"), (part, "is left of an export that did not end")):
        if there.exists() and not overwrite:
            raise JobError(f"{there} {what}: choose another place, or --overwrite")
    if place.exists() and not (place / mark).is_file():
        raise JobError(f"{place} is no export: it is not overwritten")
    for left in (part, old):
        shutil.rmtree(left, ignore_errors=True)
    try:
        yield str(part)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    files = RealFiles()
    paths = list(part.rglob("*"))
    folders = [str(part), *(str(path) for path in paths if path.is_dir())]
    files.sync_all([str(path) for path in paths if path.is_file()], folders)
    if place.exists():
        place.rename(old)
    part.rename(place)
    files.sync_folder(str(place.parent))
    shutil.rmtree(old, ignore_errors=True)


def write_text(folder: str, name: str, text: str) -> None:
    """Write a small text file into a folder of this machine or a URI; an existing file is replaced.
    Raises OSError."""
    if not is_remote(folder):
        Path(folder, name).write_text(text)
        return
    from pyarrow.fs import FileSystem

    uri = f"{folder.rstrip('/')}/{name}"
    if uri.startswith("s3a://"):  # Hadoop's name of it
        uri = f"s3{uri[3:]}"
    files, path = FileSystem.from_uri(uri)
    with files.open_output_stream(path) as out:
        out.write(text.encode())
