"""Where jobs write: a folder that is there whole or not at all.

Owns the way there: beside its place, synced, renamed. It must never replace what no job has made.
Called by export/job.py and rebalance/job.py.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turbopump.engine.disk.real_files import RealFiles
from turbopump.spark.session import JobError


def is_remote(target: str) -> bool:
    """Whether a place is a URI, not a path of this machine."""
    return "://" in target


@contextmanager
def placed(target: str, overwrite: bool, mark: str) -> Iterator[str]:
    """A folder's name to write to, which becomes the target when the block ends well.

    A remote target is itself: there Spark's committer sees to it that readers see all or nothing.
    Raises JobError where something is in the way; what lies there is replaced only if it is the
    work of an export (it has the mark).
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
    """A small file of a folder, wherever that is."""
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
