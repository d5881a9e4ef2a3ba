"""Counts the tracebacks in the logs and outputs of processes that a run started.

A traceback in a node's log is an exception that the node did not expect: a handler whose exception
is an answer by design logs one line, or none. Only Python writes this text, so that the logs of
RocketMQ are not counted, and clients write in folders of their own, whose names begin with
`client`: RocketMQ's client in Python logs each heartbeat that a restart of its broker ends. It must
never change a file.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

BEGIN: Final = "Traceback (most recent call last):"
SUFFIXES: Final = frozenset({".err", ".log", ".out"})
LINES_SHOWN: Final = 40
CLIENTS: Final = "client"
"""Beginning of the names of clients' folders."""


def logs_of(folder: Path) -> Iterator[Path]:
    """Return the nodes' logs and outputs below a folder, including rolled ones such as
    `turbopump.log.1`."""
    for path in sorted(folder.rglob("*")):
        if any(part.startswith(CLIENTS) for part in path.relative_to(folder).parts[:-1]):
            continue
        if (path.suffix in SUFFIXES or ".log." in path.name) and path.is_file():
            yield path


def tracebacks(folder: Path) -> list[str]:
    """Return the first lines of each traceback, with its file."""
    found: list[str] = []
    for path in logs_of(folder):
        lines = path.read_text(errors="replace").splitlines()
        for at, line in enumerate(lines):
            if BEGIN in line:
                shown = "\n".join(lines[max(0, at - 1) : at + LINES_SHOWN])
                found.append(f"{path}:{at + 1}\n{shown}")
    return found
