"""A table of named rows that is saved as JSON: each row is encoded once, and the names stay sorted.

Owns the rows, their order and the text around them. It must never change a row, nor know its
content. Loop thread only, but the texts are made on a disk thread, which gives way to the loop's
thread between two pieces.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from turbopump.engine import fastjson
from turbopump.engine.disk.flush import give_way
from turbopump.engine.json_steps import Rows

PIECE_ROWS: Final = 64
"""Rows per piece: some 10 KB, and less than a millisecond even if none of them was encoded
before."""

SORTED_ANEW: Final = 200
"""Number of new rows from which the names are merged, not inserted one by one."""

Content = Callable[[], Iterable[bytes]]
"""Returns the pieces of a text; called on a disk thread, so its data must not change."""


class Row(Protocol):
    """A row of a table; it is replaced, never changed."""

    def row(self) -> bytes:
        """The text `"name":{...}`, at the depth of a table in a pretty text."""


R = TypeVar("R", bound=Row)


class JsonTable(Generic[R]):
    """Name to row. Only `put_all`, `replace`, `rows`, `names`, `body` and `snapshot` take longer in
    a larger table."""

    def __init__(self) -> None:
        self._rows: dict[str, R] = {}
        self._names: list[str] = []
        self.changes = 0
        """Number of puts and removals."""

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def get(self, name: str) -> R | None:
        """The row of a name, or None."""
        return self._rows.get(name)

    def rows(self) -> dict[str, R]:
        """A copy of the table."""
        return dict(self._rows)

    def names(self) -> list[str]:
        """All names, sorted."""
        return list(self._names)

    def body(self, names: Sequence[str]) -> Rows:
        """The current rows of these names, for the body of a response."""
        return Rows(texts(names, dict(self._rows)))

    def put_all(self, rows: Mapping[str, R]) -> None:
        """Add rows, or replace them."""
        if len(rows) < SORTED_ANEW:
            for name, row in rows.items():
                self.put(name, row)
            return
        new = sorted(rows.keys() - self._rows.keys())
        self._rows.update(rows)
        if new:
            # Merge two sorted runs: each single insertion would move half of the table.
            self._names += new
            self._names.sort()
        self.changes += len(rows)

    def put(self, name: str, row: R) -> None:
        """Add a row, or replace it."""
        if name not in self._rows:
            insort(self._names, name)
        self._rows[name] = row
        self.changes += 1

    def remove(self, name: str) -> None:
        """Remove a row. A missing row is a programmer error."""
        del self._rows[name]
        del self._names[bisect_left(self._names, name)]
        self.changes += 1

    def replace(self, rows: Mapping[str, R]) -> None:
        """Replace the whole table by these rows."""
        self._rows = dict(rows)
        self._names = sorted(self._rows)
        self.changes += 1

    def snapshot(self, name: str, members: dict[str, Any]) -> Content:
        """The pretty text of an object that has the current table under `name`, and the other
        members (members that are None are left out)."""
        return partial(
            text_of, {**members, name: TableSnapshot(list(self._names), dict(self._rows))}
        )


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A table at some moment, in the order of its names; `together` rows make a piece of text. Its
    content must not be changed."""

    names: Sequence[str]
    rows: Mapping[str, Row]
    together: int = PIECE_ROWS


def text_of(members: Mapping[str, Any]) -> Iterator[bytes]:
    """The pretty text of an object in pieces, which never end inside a string. Members that are
    Taken are tables; members that are None are left out."""
    lead = b"{\n\t"
    for name in sorted(name for name, value in members.items() if value is not None):
        value = members[name]
        if isinstance(value, TableSnapshot):
            yield lead + fastjson.row(name, {}, 1)[:-1]  # up to its opening brace
            yield from _rows(value)
        else:
            yield lead + fastjson.row(name, value, 1)
        lead = b",\n\t"
    yield b"\n}" if lead.startswith(b",") else b"{}"


def _rows(table: TableSnapshot) -> Iterator[bytes]:
    names, rows, together = table.names, table.rows, table.together
    for at in range(0, len(names), together):
        give_way()
        lead = b",\n\t\t" if at else b"\n\t\t"
        yield lead + b",\n\t\t".join([rows[one].row() for one in names[at : at + together]])
    yield b"\n\t}" if names else b"}"


def texts(names: Sequence[str], rows: Mapping[str, Row]) -> Iterator[str]:
    """The rows of these names in the form of a body, for json_steps.Rows."""
    for at in range(0, len(names), PIECE_ROWS):
        give_way()
        written = b",".join([rows[one].row() for one in names[at : at + PIECE_ROWS]])
        yield fastjson.compact(written).decode()
