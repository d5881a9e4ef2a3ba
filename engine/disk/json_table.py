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
from turbopump.engine.disk.flush import pause_if_long
from turbopump.engine.json_steps import Rows

PIECE_ROWS: Final = 64
"""Rows per piece: some 10 KB, and less than a millisecond even if none of them was encoded
before."""

SORTED_ANEW: Final = 200
"""Number of rows of a `put_all` from which new names are merged, not inserted one by one."""

Content = Callable[[], Iterable[bytes]]
"""Returns the pieces of a JSON text, for `ConfigFiles.replace`; called on a disk thread, so its
data must not change."""


class Row(Protocol):
    """A row of a table; it is replaced, never changed."""

    def row(self) -> bytes:
        """The text `"name":{...}` of the row with its name, indented as in a pretty text whose
        object has the table as a member (fastjson.encode_member at depth 2)."""


R = TypeVar("R", bound=Row)


class JsonTable(Generic[R]):
    """A table of name to row in memory. Only `put_all`, `replace`, `rows`, `names`, `body` and
    `snapshot` take longer in a larger table."""

    def __init__(self) -> None:
        self._rows: dict[str, R] = {}
        self._names: list[str] = []
        self.changes = 0
        """Grows with each put, removal and `replace`: equal values mean an unchanged table."""

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def get(self, name: str) -> R | None:
        """The row of a name, or None."""
        return self._rows.get(name)

    def rows(self) -> dict[str, R]:
        """A copy of the table, name to row, not sorted by name."""
        return dict(self._rows)

    def names(self) -> list[str]:
        """A copy of all names, sorted."""
        return list(self._names)

    def body(self, names: Sequence[str]) -> Rows:
        """The rows that these names have now, in the order of `names`, for the body of a response;
        the text is made later, and a name without a row raises KeyError then."""
        return Rows(row_texts(names, dict(self._rows)))

    def put_all(self, rows: Mapping[str, R]) -> None:
        """Add these rows by name, in place of rows with the same names."""
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
        """Add a row, in place of a row with the same name."""
        if name not in self._rows:
            insort(self._names, name)
        self._rows[name] = row
        self.changes += 1

    def remove(self, name: str) -> None:
        """Remove a row. A missing row is a programmer error (KeyError)."""
        del self._rows[name]
        del self._names[bisect_left(self._names, name)]
        self.changes += 1

    def replace(self, rows: Mapping[str, R]) -> None:
        """Replace the whole table by a copy of `rows`."""
        self._rows = dict(rows)
        self._names = sorted(self._rows)
        self.changes += 1

    def snapshot(self, name: str, members: dict[str, Any]) -> Content:
        """Content for the pretty text of an object that has the table as it is now under `name`,
        and the other members, sorted by name; members that are None are left out, and the values of
        the other members must not change until the text is made."""
        return partial(
            text_of, {**members, name: TableSnapshot(list(self._names), dict(self._rows))}
        )


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A table at some moment, as a member for `text_of`. Its content must not be changed."""

    names: Sequence[str]
    """Names of the rows to write, in this order."""
    rows: Mapping[str, Row]
    """Name to row, at least for these names."""
    together: int = PIECE_ROWS
    """Number of rows in a piece of text."""


def text_of(members: Mapping[str, Any]) -> Iterator[bytes]:
    """The pretty text of an object, sorted by member name, in pieces that never end inside a
    string. A TableSnapshot is written as a table, other members as fastjson.dumps writes them;
    members that are None are left out."""
    lead = b"{\n\t"
    for name in sorted(name for name, value in members.items() if value is not None):
        value = members[name]
        if isinstance(value, TableSnapshot):
            yield lead + fastjson.encode_member(name, {}, 1)[:-1]  # up to its opening brace
            yield from _table_pieces(value)
        else:
            yield lead + fastjson.encode_member(name, value, 1)
        lead = b",\n\t"
    yield b"\n}" if lead.startswith(b",") else b"{}"


def _table_pieces(table: TableSnapshot) -> Iterator[bytes]:
    """The pretty text of the rows of a table and the closing brace, in pieces."""
    names, rows, together = table.names, table.rows, table.together
    for at in range(0, len(names), together):
        pause_if_long()
        lead = b",\n\t\t" if at else b"\n\t\t"
        yield lead + b",\n\t\t".join([rows[one].row() for one in names[at : at + together]])
    yield b"\n\t}" if names else b"}"


def row_texts(names: Sequence[str], rows: Mapping[str, Row]) -> Iterator[str]:
    """The rows of these names, in this order, as pieces of compact text for json_steps.Rows. Raises
    KeyError for a name without a row."""
    for at in range(0, len(names), PIECE_ROWS):
        pause_if_long()
        written = b",".join([rows[one].row() for one in names[at : at + PIECE_ROWS]])
        yield fastjson.strip_layout(written).decode()
