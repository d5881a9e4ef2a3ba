"""The key-value configuration: small texts by namespace and key, kept over restarts.

Owns the table and its order of events: saved first, answered then. It must never know where it is
saved. Called by the handlers (100, 101, 102, 219, the order configuration in 103 and 105) and by
node.py, which loads it.
"""

from collections.abc import Callable
from typing import Any

from turbopump.net.wire import bodies

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""The namespace whose keys are topics, its values `broker:queues;broker2:queues`."""

MAX_ITEMS = 100_000  # of all namespaces: an ordered topic is one item, and a table is saved whole
MAX_TOTAL_SIZE = 32 << 20  # characters of all items: each change writes them all
MAX_ITEM_SIZE = 64 << 10  # characters of namespace, key and value: the order of 2,000 brokers


class KeyValues:
    """The table in memory, and `save` which persists the whole of it or raises OSError."""

    def __init__(
        self,
        save: Callable[[dict[str, dict[str, str]]], None],
        table: dict[str, dict[str, str]] | None = None,
    ) -> None:
        self._save = save
        self._table = table or {}

    def get(self, namespace: str, key: str) -> str | None:
        """The value, or None."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All keys and values of a namespace, None if there never was one."""
        found = self._table.get(namespace)
        return None if found is None else dict(found)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set and save. Raises ValueError beyond the limits and OSError; then nothing changed."""
        if len(namespace) + len(key) + len(value) > MAX_ITEM_SIZE:
            raise ValueError(f"namespace, key and value are longer than {MAX_ITEM_SIZE}")
        items = self._table.get(namespace, {})
        # A namespace stays when its last key is deleted, so it counts, too.
        if key not in items and self.count + len(self._table) >= MAX_ITEMS:
            raise ValueError(f"there are {MAX_ITEMS} items already")
        if self._size + len(namespace) + len(key) + len(value) > MAX_TOTAL_SIZE:
            raise ValueError(f"all items together are longer than {MAX_TOTAL_SIZE}")
        self._replace({**self._table, namespace: {**items, key: value}})

    def delete(self, namespace: str, key: str) -> None:
        """Remove, if there, and save. Raises OSError; then nothing changed."""
        items = self._table.get(namespace, {})
        if key in items:
            rest = {name: value for name, value in items.items() if name != key}
            self._replace({**self._table, namespace: rest})

    @property
    def count(self) -> int:
        """Items of all namespaces."""
        return sum(len(items) for items in self._table.values())

    @property
    def _size(self) -> int:
        return sum(
            len(namespace) + sum(len(key) + len(value) for key, value in items.items())
            for namespace, items in self._table.items()
        )

    def _replace(self, table: dict[str, dict[str, str]]) -> None:
        self._save(table)
        self._table = table


def table_from_json(value: Any) -> dict[str, dict[str, str]]:
    """The table in a kvConfig.json (RocketMQ: KVConfigSerializeWrapper).

    Raises BadBody where it has another shape.
    """
    return bodies.table(
        bodies.as_object(value),
        "configTable",
        lambda items: {key: bodies.as_text(item) for key, item in bodies.as_object(items).items()},
    )


def table_to_json(table: dict[str, dict[str, str]]) -> dict[str, Any]:
    """What kvConfig.json holds."""
    return {"configTable": table}
