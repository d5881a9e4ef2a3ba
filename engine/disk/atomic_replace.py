"""Replacement of a small file as a whole, even if its name is a symbolic link.

Owns the steps: write beside the file, make durable, rename. It must never replace a link by a file,
nor know a file's content.

A link stays a link, and its target is replaced. RocketMQ writes through a link, too.
"""

from turbopump.engine.disk.files import Files

TEMPORARY = ".tmp"
"""Suffix of the unfinished file beside the file that is replaced."""


def write_beside(files: Files, path: str, data: bytes, suffix: str = TEMPORARY) -> None:
    """Write the new content to the file's path (a link's target) plus `suffix`, in place of an
    earlier such file; the content is durable on return, its name is not. Raises OSError."""
    unfinished = files.resolve(path) + suffix
    files.write(unfinished, data)
    files.sync(unfinished)


def replace_with_new(files: Files, path: str, suffix: str = TEMPORARY) -> None:
    """Rename the file that `write_beside` wrote to the file's own name, in place of the old file;
    durable after `sync_names`. Raises OSError."""
    target = files.resolve(path)
    files.rename(target + suffix, target)


def move_to_backup(files: Files, path: str, backup: str) -> None:
    """Give the file at `path` the name `backup`, in place of an old backup, so that `path` is free;
    if either is a link, copy its content to `backup` instead, and the file stays. The names are
    durable after `sync_names`. Raises OSError."""
    if files.resolve(path) == path and files.resolve(backup) == backup:
        files.rename(path, backup)
        return
    write_beside(files, backup, files.read(path))
    replace_with_new(files, backup)


def sync_names(files: Files, path: str) -> None:
    """Make renames durable in the folder of `path`, and in the folder of a link's target. Raises
    OSError."""
    folders = dict.fromkeys(_parent_folder(one) for one in (path, files.resolve(path)))
    for folder in folders:
        files.sync_folder(folder)


def replace(files: Files, path: str, data: bytes, suffix: str = TEMPORARY) -> None:
    """Replace or create a file in an existing folder, durably on return: a crash leaves the old
    content or the new one. Raises OSError."""
    write_beside(files, path, data, suffix)
    replace_with_new(files, path, suffix)
    sync_names(files, path)


def _parent_folder(path: str) -> str:
    return path.rpartition("/")[0] or "."
