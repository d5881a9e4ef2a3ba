"""Replacement of a small file as a whole, even if its name is a symbolic link.

Owns the steps: write beside the file, make durable, rename. It must never replace a link by a file,
nor know a file's content.

A link stays a link, and its target is replaced. RocketMQ writes through a link, too.
"""

from turbopump.engine.disk.files import Files

TEMPORARY = ".tmp"


def write_beside(files: Files, path: str, data: bytes, suffix: str = TEMPORARY) -> None:
    """Write the new content durably under another name. Raises OSError."""
    unfinished = files.resolve(path) + suffix
    files.write(unfinished, data)
    files.sync(unfinished)


def take(files: Files, path: str, suffix: str = TEMPORARY) -> None:
    """Rename the content that `write_beside` wrote to the file's own name; call `sync_names`
    afterwards. Raises OSError."""
    target = files.resolve(path)
    files.rename(target + suffix, target)


def set_aside(files: Files, path: str, backup: str) -> None:
    """Make the file the backup: by renaming it or, if either is a link, by a durable copy, and then
    the file stays, too. Raises OSError."""
    if files.resolve(path) == path and files.resolve(backup) == backup:
        files.rename(path, backup)
        return
    write_beside(files, backup, files.read(path))
    take(files, backup)


def sync_names(files: Files, path: str) -> None:
    """Make renames durable in the file's folder, and in the folder of a link's target. Raises
    OSError."""
    folders = dict.fromkeys(_folder(one) for one in (path, files.resolve(path)))
    for folder in folders:
        files.sync_folder(folder)


def replace(files: Files, path: str, data: bytes, suffix: str = TEMPORARY) -> None:
    """Replace a file, durably on return: a crash leaves the old content or the new one. Raises
    OSError."""
    write_beside(files, path, data, suffix)
    take(files, path, suffix)
    sync_names(files, path)


def _folder(path: str) -> str:
    return path.rpartition("/")[0] or "."
