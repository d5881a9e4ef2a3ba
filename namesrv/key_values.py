"""The key-value configuration: small texts by namespace and key, saved over restarts.

Owns the table, and the rule that a change is answered only after it is saved. It must never know
the file, nor wait for it.

Another thread writes the whole table. Changes that arrive during a write are written together after
it. Until a change is durable, readers see the table without it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from turbopump.engine import fastjson
from turbopump.engine.deferred import Deferred
from turbopump.net.wire import bodies
from turbopump.net.wire.names import check_lengths, kept_size

MAX_ITEMS = 100_000
"""Maximum number of items of all namespaces: an ordered topic is an item, and a table is saved
whole."""
MAX_TOTAL_SIZE = 32 << 20
"""Maximum estimated bytes of all items, in memory and in the file: each change writes them all, and
a file of over 64 MiB is not written, because the next start would refuse it."""
MAX_ITEM_SIZE = 64 << 10
"""Maximum characters of namespace, key and value together: the order of 2,000 brokers."""
MAX_WAITING: Final = 200
"""Maximum number of changes that wait for the write in progress; a further change raises
ValueError."""
PIECE_ITEMS: Final = 64
"""Maximum items in a piece of the file's text; other threads may run between two pieces."""

Table = dict[str, dict[str, str]]
"""Namespace to key to value."""
Pieces = Callable[[], Iterable[bytes]]
"""Returns the pieces of the file's text, in order."""
Save = Callable[[Pieces], Deferred[OSError | None]]
"""Replaces the file by a text, durably, on another thread; resolves on the loop with None, or with
the error of the write."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of one key that waits for the next write of the table."""

    namespace: str
    key: str
    value: str | None
    """The new value; None deletes the key."""
    result: Deferred[OSError | None]
    size: int
    """Estimated bytes of its texts."""


class KeyValues:
    """The table in memory; each change passes all of it to `save`. Loop thread only."""

    def __init__(self, save: Save, table: Table | None = None) -> None:
        """`table` is the content of the file at the start; it belongs to this object then."""
        self._save = save
        self._table: Table = table or {}
        self._waiting: list[_Change] = []
        self._written: list[_Change] = []
        self._count = sum(map(len, self._table.values()))
        self._size = sum(
            _size_of(namespace) + sum(_size_of(key, value) for key, value in items.items())
            for namespace, items in self._table.items()
        )

    def get(self, namespace: str, key: str) -> str | None:
        """The durable value of a key, None if it is missing."""
        return self._table.get(namespace, {}).get(key)

    def values_of_namespace(self, namespace: str) -> dict[str, str] | None:
        """Key to durable value in a namespace, unordered; None if it never had a key.

        The returned table must not be changed, and never changes: each change makes a copy.
        """
        return self._table.get(namespace)

    def set_value(self, namespace: str, key: str, value: str) -> Deferred[OSError | None]:
        """Set a value and have the table saved; resolves with None when it is durable, or with the
        error, and then the value is unchanged. `get` returns the value only after it is durable.

        Raises ValueError, a sentence, beyond the limits or MAX_WAITING; then nothing has changed.
        """
        wrong = check_lengths(namespace=namespace, key=key)
        if wrong is not None:
            raise ValueError(wrong)
        if len(namespace) + len(key) + len(value) > MAX_ITEM_SIZE:
            raise ValueError(f"namespace, key and value are longer than {MAX_ITEM_SIZE}")
        # Waiting changes count like new items, because they may be.
        waiting = [*self._waiting, *self._written]
        # A namespace stays when its last key is deleted, so it counts, too.
        count = self._count + len(self._table) + 2 * len(waiting)
        if self.get(namespace, key) is None and count >= MAX_ITEMS:
            raise ValueError(f"there are {MAX_ITEMS} items already")
        size = sum(one.size for one in waiting)
        if self._size + size + _size_of(namespace, key, value) > MAX_TOTAL_SIZE:
            raise ValueError(f"all items together exceed {MAX_TOTAL_SIZE} bytes")
        return self._queue_change(namespace, key, value)

    def delete(self, namespace: str, key: str) -> Deferred[OSError | None]:
        """Delete a key and have the table saved; resolves with None when that is durable (at once
        for a missing key), or with the error, and then the value is unchanged.

        Raises ValueError beyond MAX_WAITING; then nothing has changed.
        """
        names = {(one.namespace, one.key) for one in (*self._waiting, *self._written)}
        if self.get(namespace, key) is None and (namespace, key) not in names:
            return Deferred.resolved(None)
        return self._queue_change(namespace, key, None)

    @property
    def count(self) -> int:
        """Number of durable items in all namespaces."""
        return self._count

    def _queue_change(
        self, namespace: str, key: str, value: str | None
    ) -> Deferred[OSError | None]:
        """Queue a change, and begin a write if none is under way. Raises ValueError
        beyond MAX_WAITING."""
        if len(self._waiting) >= MAX_WAITING:
            raise ValueError(f"{MAX_WAITING} changes wait for the disk")
        result: Deferred[OSError | None] = Deferred()
        size = _size_of(namespace, key, value or "")
        self._waiting.append(_Change(namespace, key, value, result, size))
        if not self._written:
            self._write()
        return result

    def _write(self) -> None:
        """Begin to save a copy of the table with all waiting changes."""
        self._written, self._waiting = self._waiting, []
        table = dict(self._table)
        copied: set[str] = set()
        count, size = self._count, self._size
        for one in self._written:
            if one.namespace not in copied:
                size += 0 if one.namespace in table else _size_of(one.namespace)
                table[one.namespace] = dict(table.get(one.namespace, {}))
                copied.add(one.namespace)
            items = table[one.namespace]
            former = items.pop(one.key, None)
            if former is not None:
                count, size = count - 1, size - _size_of(one.key, former)
            if one.value is not None:
                items[one.key] = one.value
                count, size = count + 1, size + _size_of(one.key, one.value)
        saved = self._save(partial(pieces_of, table))
        saved.then(partial(self._on_saved, table, count, size))

    def _on_saved(self, table: Table, count: int, size: int, error: OSError | None) -> None:
        """A write has ended: take `table` with its count and size, unless it failed, resolve the
        changes, and begin the next write."""
        done, self._written = self._written, []
        if error is None:
            self._table, self._count, self._size = table, count, size
        for one in done:
            one.result.resolve(error)
        if self._waiting and not self._written:
            self._write()


def pieces_of(table: Table) -> Iterator[bytes]:
    """Encode the text of kvConfig.json (RocketMQ: KVConfigSerializeWrapper) in pieces, its
    namespaces and keys sorted; `table` must not change meanwhile."""
    yield b'{\n\t"configTable":{'
    for number, namespace in enumerate(sorted(table)):
        yield _line_start(number, 2) + _json_text(namespace) + b":{"
        items = sorted(table[namespace].items())
        for at in range(0, len(items), PIECE_ITEMS):
            yield b"".join(
                _line_start(at + index, 3) + _json_text(key) + b":" + _json_text(value)
                for index, (key, value) in enumerate(items[at : at + PIECE_ITEMS])
            )
        yield b"\n\t\t}" if items else b"}"
    yield b"\n\t}\n}" if table else b"}\n}"


def _size_of(*texts: str) -> int:
    """Estimate the bytes of texts in memory or in the file, which has up to 6 for a control
    character: the larger ones."""
    return sum(max(kept_size(text), fastjson.text_size(text)) for text in texts)


def _line_start(number: int, depth: int) -> bytes:
    """The bytes before member `number` (from 0) of an object: a comma unless it is the first, a
    line break, `depth` tabs."""
    return (b",\n" if number else b"\n") + b"\t" * depth


def _json_text(value: str) -> bytes:
    return fastjson.dumps(value).encode("utf-8", "replace")


def table_from_json(value: Any) -> dict[str, dict[str, str]]:
    """Decode kvConfig.json's JSON value to namespace to key to value (RocketMQ:
    KVConfigSerializeWrapper). Raises BadBody for another shape."""
    return bodies.read_table(
        bodies.as_object(value),
        "configTable",
        lambda items: {key: bodies.as_text(item) for key, item in bodies.as_object(items).items()},
    )
