"""Output of commands: JSON lines for programs, columns like mqadmin's for people.

Owns formats only. It must never send a request to a node.
"""

import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, Protocol


def print_json(value: Any) -> None:
    """Print one JSON document on one line of stdout and flush: readers of a pipe wait for lines."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, separators=(", ", ": ")) + "\n")
    sys.stdout.flush()


class JsonResult(Protocol):
    """The result of a command; `to_json` returns the JSON object that `--json` prints."""

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        ...


def print_result(result: JsonResult, as_json: bool, lines: Sequence[str]) -> None:
    """Print a result to stdout and flush: as JSON, or else `lines` for people."""
    if as_json:
        print_json(result.to_json())
    else:
        print_lines(lines, flush=True)


def java_text(value: object) -> object:
    """Convert a bool or a dict to Java's text, as `true` or `{a=1, b=2}`; any other value is
    returned itself."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={java_text(item)}" for key, item in value.items()) + "}"
    return value


def format_columns(layout: str, *values: object) -> str:
    """Format one line of columns by `layout`, fields as in `{:<16} {:>14}`; trailing blanks are
    cut.

    Values are printed as Java prints them.
    """
    return layout.format(*map(java_text, values)).rstrip()


def format_table(
    layout: str, head: Sequence[object], rows: Iterable[Sequence[object]]
) -> list[str]:
    """Format the head and the rows as lines with `format_columns`."""
    return [format_columns(layout, *cells) for cells in (head, *rows)]


def shorten_text(text: str, length: int) -> str:
    """Shorten a text to its first `length` characters (RocketMQ: UtilAll.frontStringAtLeast)."""
    return text[:length]


def local_time(epoch_ms: int) -> str:
    """Format epoch ms as `2026-11-21 17:30:00,123` in local time; "" for 0 and before."""
    if epoch_ms <= 0:
        return ""
    seconds = local_seconds(epoch_ms)
    return seconds if seconds.endswith(" ms") else f"{seconds},{epoch_ms % 1000:03d}"


def local_seconds(epoch_ms: int) -> str:
    """Format epoch ms as `2026-11-21 17:30:00` in local time.

    A time beyond the year 9999, which a client may have written, becomes `99999999999999999999 ms`.
    """
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(epoch_ms // 1000))
    except (OSError, OverflowError, ValueError):
        return f"{epoch_ms} ms"


def duration_text(length_ms: int | None, known: bool = True) -> str:
    """Format a duration: `0.8 s`, `59 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`; `>= 59 s` if
    `known` is False, because the duration may be longer; `N/A` for None.
    """
    if length_ms is None:
        return "N/A"
    seconds = length_ms // 1000
    if seconds < 10:
        text = f"{length_ms / 1000:.1f} s"
    elif seconds < 60:
        text = f"{seconds} s"
    elif seconds < 3_600:
        text = f"{seconds // 60} min {seconds % 60} s"
    elif seconds < 86_400:
        text = f"{seconds // 3_600} h {seconds // 60 % 60} min"
    else:
        text = f"{seconds // 86_400} d {seconds // 3_600 % 24} h"
    return text if known else f">= {text}"


def print_lines(lines: Sequence[str], *, flush: bool = False) -> None:
    """Print lines to stdout, each with a newline; with `flush` a reader of a pipe, too, gets them
    at once."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    if flush:
        sys.stdout.flush()
