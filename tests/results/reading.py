"""Reading, choosing and printing results of single runs.

Owns the fields of a line in docs/results. It must never measure anything.
"""

import json
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "docs" / "results"
PAGES: Final = ("testing", "performance")
WIDTH: Final = 100


class BadResultError(ValueError):
    """A line that is not a result; the message names its file and number."""


@dataclass(frozen=True)
class Result:
    """A run: its commit (may be empty), its command, its subject, its figures and findings, and
    the heading of the page to which it belongs.
    """

    commit: str
    command: str
    what: str
    result: str
    section: str


FIELDS: Final = [field.name for field in fields(Result)]


def read(path: Path) -> list[Result]:
    """All results of a file, in its order; no results if there is no such file.

    Raises BadResultError.
    """
    if not path.exists():
        return []
    lines = enumerate(path.read_text().splitlines(), start=1)
    return [_parsed(line, f"{path.name}:{number}") for number, line in lines]


def _parsed(line: str, place: str) -> Result:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise BadResultError(f"{place}: {error}") from error
    if not isinstance(found, dict) or sorted(found) != sorted(FIELDS):
        raise BadResultError(f"{place}: the fields are not {', '.join(FIELDS)}")
    if not all(isinstance(value, str) for value in found.values()):
        raise BadResultError(f"{place}: a value is no text")
    if empty := [name for name in FIELDS if name != "commit" and not found[name].strip()]:
        raise BadResultError(f"{place}: {empty[0]} is empty")
    return Result(**found)


def chosen(results: Iterable[Result], text: str = "", section: str = "") -> list[Result]:
    """Results with `text` in any field and `section` in their heading, in any case."""
    return [
        result
        for result in results
        if section.lower() in result.section.lower()
        and any(text.lower() in getattr(result, name).lower() for name in FIELDS)
    ]


def shown(result: Result) -> str:
    """A block of lines: subject, command and commit, and the result."""
    run = f"{result.command} (at {result.commit})" if result.commit else result.command
    return "\n".join(
        [
            f"{result.section}: {result.what}",
            f"  {run}",
            textwrap.fill(result.result, WIDTH, initial_indent="  ", subsequent_indent="  "),
        ]
    )
