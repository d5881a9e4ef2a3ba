"""Resolves a path to stores: a store itself, or those in the data folder of `turbopump up`.

Owns that rule. It must never open a file.

Tests: tests/unit/cli/test_analyze.py
"""

from pathlib import Path

from turbopump.engine.config import LOG_FOLDER


class SeveralStores(ValueError):
    """A folder has several stores, but the job needs one; the text names them."""


def stores_in(path: str) -> list[str]:
    """Return the stores that a path or URI means, sorted by path.

    A folder without a commit log means the stores directly below it, if it has any. Any other path
    means itself, whether it is a store or not.
    """
    if "://" in path:
        return [path]
    folder = Path(path)
    try:
        if not folder.is_dir() or folder.name == LOG_FOLDER or (folder / LOG_FOLDER).is_dir():
            return [path]
        found = sorted(one for one in folder.iterdir() if (one / LOG_FOLDER).is_dir())
    except OSError:
        return [path]  # opening it later reports the error
    return [str(one) for one in found] or [path]


def one_store(path: str) -> str:
    """Return the single store that a path means. Raises SeveralStores.

    All stores of a group have the same messages, so a job that counts them must read just one.
    """
    found = stores_in(path)
    if len(found) > 1:
        names = ", ".join(found)
        raise SeveralStores(f"{path} has {len(found)} stores; name the one to read: {names}")
    return found[0]


def named_stores(text: str) -> list[str]:
    """Resolve `name=path` or a path by `stores_in`, and return the stores in the same form.

    Several stores are named `name-folder=path`, or `folder=path` without a name.
    """
    name, separator, path = text.rpartition("=")
    found = stores_in(path)
    if len(found) == 1:
        return [f"{name}{separator}{found[0]}"]
    return [f"{name}{'-' if name else ''}{Path(one).name}={one}" for one in found]
