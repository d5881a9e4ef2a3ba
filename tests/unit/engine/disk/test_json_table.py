"""Tables whose rows are encoded once: the text equals fastjson's text of the whole table."""

from typing import Any

import pytest

from turbopump.engine import fastjson
from turbopump.engine.disk.json_table import PIECE_ROWS, JsonTable

COUNTS = (0, 1, PIECE_ROWS - 1, PIECE_ROWS, PIECE_ROWS + 1, 3 * PIECE_ROWS)
MEMBERS: dict[str, Any] = {"dataVersion": {"counter": 1}, "zone": ["a"], "onlyHere": None, "u": {}}


class Row:
    """A row that counts its encodings."""

    def __init__(self, name: str, value: Any) -> None:
        self.value, self._row, self.written = value, b"", 0
        self._name = name

    def row(self) -> bytes:
        if not self._row:
            self.written += 1
            self._row = fastjson.encode_member(self._name, self.value, 2)
        return self._row


def filled(count: int) -> JsonTable[Row]:
    table: JsonTable[Row] = JsonTable()
    for number in range(count):
        name = f'{number * 7 % count} "\n\t\\ü'
        table.put(name, Row(name, {"n": number, "t": "x\n\t", "of": [1], "none": {}}))
    return table


@pytest.mark.parametrize("count", COUNTS)
def test_it_is_written_as_a_whole_would_be(count: int) -> None:
    table = filled(count)
    value = {**MEMBERS, "rows": {name: row.value for name, row in table.rows().items()}}
    text = b"".join(table.snapshot("rows", MEMBERS)())
    assert text.decode() == fastjson.dumps(value, pretty=True)
    assert fastjson.strip_layout(text).decode() == fastjson.dumps(value)


def test_a_row_is_written_once() -> None:
    table = filled(100)
    new = Row("new", {})
    list(table.snapshot("rows", {})())
    table.put("new", new)
    list(table.snapshot("rows", {})())
    assert {row.written for row in table.rows().values()} == {1}


def test_a_snapshot_does_not_change() -> None:
    table = filled(3)
    taken = table.snapshot("rows", {"a": 1})
    before = list(taken())
    table.put("x", Row("x", {}))
    table.remove(min(table.rows()))
    assert list(taken()) == before


def test_rows_come_and_go() -> None:
    table = filled(5)
    names = sorted(table.rows())
    table.remove(names[2])
    assert (len(table), names[2] in table, table.get(names[2])) == (4, False, None)
    other = Row(names[1], {"other": 1})
    table.put(names[1], other)
    assert table.get(names[1]) is other
    assert b"".join(table.snapshot("rows", {})()).count(b'"other"') == 1
    table.replace({"b": other, "a": other})
    assert list(table.rows()) == ["b", "a"]
    assert table.changes == 5 + 3
