"""How a small file is replaced as a whole, also where its name is a symbolic link.

Owns the steps: written beside the file, made durable, renamed. It must never replace a link by a
file, nor know what a file says. Called by what keeps a table, a list or a configuration.

A link stays what it is: what it leads to is replaced, there. RocketMQ writes through a link, too.
"""

from turbopump.engine.disk.files import Files

TEMPORARY = ".tmp"


def write_beside(files: Files, path: str, data: bytes, suffix: str = TEMPORARY) -> None:
    """The new content, durably, but under another name. Raises OSError."""
    unfinished = files.resolve(path) + suffix
    files.write(unfinished, data)
    files.sync(unfinished)


def take(files: Files, path: str, suffix: str = TEMPORARY) -> None:
    """Rename what was written beside a file; `sync_names` is to follow. Raises OSError."""
    target = files.resolve(path)
    files.rename(target + suffix, target)


def set_aside(files: Files, path: str, backup: str) -> None:
    """The file is the backup from now on, by its name or, where either is a link, as a durable
    copy: then it also stays. Raises OSError."""
    if files.resolve(path) == path and files.resolve(backup) == backup:
        files.rename(path, backup)
        return
    write_beside(files, backup, files.read(path))
    take(files, backup)


def sync_names(files: Files, path: str) -> None:
    """Make renames in the folder durable, and in the one to which a link leads. Raises OSError."""
    folders = dict.fromkeys(_folder(one) for one in (path, files.resolve(path)))
    for folder in folders:
        files.sync_folder(folder)


def replace(files: Files, path: str, data: bytes, suffix: str = TEMPORARY) -> None:
    """A crash leaves the old content or the new one, durable on return. Raises OSError."""
    write_beside(files, path, data, suffix)
    take(files, path, suffix)
    sync_names(files, path)


def _folder(path: str) -> str:
    return path.rpartition("/")[0] or "."
