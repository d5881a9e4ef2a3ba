"""Which stores a path means: a store itself, or the data folder of `turbopump up` around some.

Owns that rule. It must never open a file. Called by the jobs that take stores.
"""

from pathlib import Path

LOG_FOLDER = "commitlog"


class SeveralStores(ValueError):
    """A folder has several stores where one is wanted; the text names them."""


def stores_in(path: str) -> list[str]:
    """The stores that a path means: those directly below it if it is a folder without a commit
    log that has any, else the path as it is, whatever it is."""
    if "://" in path:
        return [path]
    folder = Path(path)
    try:
        if not folder.is_dir() or folder.name == LOG_FOLDER or (folder / LOG_FOLDER).is_dir():
            return [path]
        found = sorted(one for one in folder.iterdir() if (one / LOG_FOLDER).is_dir())
    except OSError:
        return [path]  # opening it says what is wrong
    return [str(one) for one in found] or [path]


def one_store(path: str) -> str:
    """The store that a path means. Raises SeveralStores: of a group's stores each has the same
    messages, so a job that counts them needs the one to read."""
    found = stores_in(path)
    if len(found) > 1:
        names = ", ".join(found)
        raise SeveralStores(f"{path} has {len(found)} stores; name the one to read: {names}")
    return found[0]


def named_stores(text: str) -> list[str]:
    """As `stores_in`, of `name=path` or a path; several are named by their folders."""
    name, separator, path = text.rpartition("=")
    found = stores_in(path)
    if len(found) == 1:
        return [f"{name}{separator}{found[0]}"]
    return [f"{name}{'-' if name else ''}{Path(one).name}={one}" for one in found]
