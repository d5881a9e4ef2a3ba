import pytest

from turbopump.engine import fastjson
from turbopump.engine.deferred import Deferred
from turbopump.namesrv.key_values import (
    MAX_WAITING,
    KeyValues,
    Pieces,
    pieces_of,
    table_from_json,
)
from turbopump.net.wire.bodies import BadBody


def test_the_file_is_rocketmqs() -> None:
    table = {"ORDER_TOPIC_CONFIG": {"T": "a:4;b:4"}, "NS": {}}
    assert table_from_json(fastjson.loads(b"".join(pieces_of(table)))) == table
    assert table_from_json({"configTable": table}) == table
    assert table_from_json({}) == {}


@pytest.mark.parametrize("value", [[], None, {"configTable": []}, {"configTable": {"n": ["x"]}}])
def test_another_shape_is_refused(value: object) -> None:
    with pytest.raises(BadBody):
        table_from_json(value)


class Disk:
    """A disk that writes when a test calls it."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.asked: list[tuple[Pieces, Deferred[OSError | None]]] = []

    def save(self, pieces: Pieces) -> Deferred[OSError | None]:
        later: Deferred[OSError | None] = Deferred()
        self.asked.append((pieces, later))
        return later

    def finish(self, error: OSError | None = None) -> None:
        pieces, later = self.asked.pop(0)
        if error is None:
            self.texts.append(b"".join(pieces()))
        later.resolve(error)

    def tables(self) -> list[dict[str, dict[str, str]]]:
        return [table_from_json(fastjson.loads(text)) for text in self.texts]


def test_deleting_nothing_saves_nothing() -> None:
    disk = Disk()
    values = KeyValues(disk.save, {"n": {"k": "v"}})
    assert values.delete("n", "other").value is None
    assert values.delete("other", "k").value is None
    assert not disk.asked and values.count == 1
    result = values.delete("n", "k")
    assert not result.done and values.get("n", "k") == "v", "not before it is durable"
    disk.finish()
    assert result.value is None and disk.tables() == [{"n": {}}]
    assert values.values_of_namespace("n") == {} and values.count == 0


def test_the_text_is_that_of_a_pretty_bean() -> None:
    table = {"b": {f"k{number}": "v\x02\n中" for number in range(200)}, "a": {}, "c": {"x": '"'}}
    text = b"".join(pieces_of(table))
    assert text.decode() == fastjson.dumps({"configTable": table}, pretty=True)
    assert b"".join(pieces_of({})).decode() == fastjson.dumps({"configTable": {}}, pretty=True)


def test_changes_that_come_while_the_disk_works_are_written_together() -> None:
    disk = Disk()
    values = KeyValues(disk.save)
    first = values.set_value("n", "a", "1")
    others = [
        values.set_value("n", "b", "2"),
        values.set_value("m", "c", "3"),
        values.delete("n", "a"),
    ]
    assert len(disk.asked) == 1
    disk.finish()
    assert first.value is None and not any(later.done for later in others)
    disk.finish()
    assert [later.value for later in others] == [None] * 3 and not disk.asked
    assert disk.tables() == [{"n": {"a": "1"}}, {"n": {"b": "2"}, "m": {"c": "3"}}]
    assert values.count == 2


def test_an_unsaved_change_counts_as_not_requested() -> None:
    disk, full = Disk(), OSError(28, "No space left on device")
    values = KeyValues(disk.save, {"n": {"a": "0"}})
    failed, later = values.set_value("n", "a", "1"), values.set_value("n", "b", "2")
    disk.finish(full)
    assert failed.value is full and values.get("n", "a") == "0"
    disk.finish()
    assert later.value is None and disk.tables() == [{"n": {"a": "0", "b": "2"}}]


def test_requests_that_wait_for_the_disk_are_bounded() -> None:
    disk = Disk()
    values = KeyValues(disk.save)
    values.set_value("n", "first", "1")
    for number in range(MAX_WAITING):
        values.set_value("n", f"k{number}", "v")
    with pytest.raises(ValueError, match="wait for the disk"):
        values.set_value("n", "more", "v")
    disk.finish()
    disk.finish()
    assert values.count == MAX_WAITING + 1


@pytest.mark.parametrize("letter", ["\x01", '"', "a", "主", "\U0001f680"])
def test_items_are_counted_as_the_file_has_them(
    letter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control characters have six bytes in the file. Counted as one, a table of 32 MiB needed a
    file of 190 MiB: beyond 64 MiB each write failed, also of others' items."""
    monkeypatch.setattr("turbopump.namesrv.key_values.MAX_TOTAL_SIZE", 100_000)
    disk = Disk()
    values = KeyValues(disk.save)
    with pytest.raises(ValueError, match="all items together"):
        for number in range(1_000):
            values.set_value(letter, f"{number}", 100 * letter)
            disk.finish()
    assert values.count > 100
    assert len(disk.texts[-1]) < 2 * 100_000
    again = KeyValues(disk.save, disk.tables()[-1])
    with pytest.raises(ValueError, match="all items together"):
        again.set_value(letter, "new", 100 * letter)
