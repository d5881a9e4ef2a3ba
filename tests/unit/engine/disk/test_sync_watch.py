"""A store with syncs too slow for sends accepts messages, and reports that it is slow."""

from typing import Any

import pytest

from turbopump.engine.disk import sync_watch
from turbopump.engine.disk.sync_pace import SLOW_MS
from turbopump.engine.types import FlushMode, NewMessage, PutStatus, StoreHealth

NOW_MS = 1_700_000_000_000


@pytest.fixture
def sync(stores: Any) -> Any:
    stores.configure(flush_disk_type=FlushMode.SYNC_FLUSH)
    return stores


class TestSlowSyncs:
    """Syncs return too late for sends; test_sync_pace.py has the rules."""

    def test_three_in_a_row_and_the_third_while_it_is_under_way(
        self, sync: Any, put: Any, held_disk: Any
    ) -> None:
        store = sync.open(held_disk)
        assert store.is_sync_slow is None
        held_disk.drain()
        now_ms = slow_syncs(store, put, held_disk, 2)
        assert store.health is StoreHealth.FIT
        put(store)
        for _ in range(SLOW_MS // 100 - 1):
            store.tick(now_ms := now_ms + 100)
        assert (store.health, store.is_sync_slow) == (StoreHealth.FIT, None)
        store.tick(now_ms + 100)
        assert (store.health, store.is_sync_slow) == (StoreHealth.SLOW, True)
        assert store.append(NewMessage("T", 0, b"x"), NOW_MS).status is PutStatus.PUT_OK

    def test_no_send_waits_for_them_under_async_flush(
        self, stores: Any, put: Any, held_disk: Any
    ) -> None:
        stores.configure(flush_commit_log_least_pages=0)
        store = stores.open(held_disk)
        held_disk.drain()
        slow_syncs(store, put, held_disk, 4)
        assert (store.health, store.is_sync_slow) == (StoreHealth.FIT, False)

    def test_many_bytes_may_take_longer(
        self, sync: Any, put: Any, held_disk: Any, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(sync_watch, "SYNC_BYTES_MS", 1)
        store = sync.open(held_disk)
        held_disk.drain()
        slow_syncs(store, put, held_disk, 4, size=1500)
        assert store.health is StoreHealth.FIT

    def test_a_full_disk_is_worse(self, sync: Any, put: Any, held_disk: Any, troubled: Any) -> None:
        store = sync.open(held_disk)
        held_disk.drain()
        now_ms = slow_syncs(store, put, held_disk, 3)
        troubled.used = 0.99
        store.tick(NOW_MS, now_ms + 20_000)
        held_disk.drain()
        store.tick(NOW_MS, now_ms + 20_100)
        assert (store.health, store.is_sync_slow) == (StoreHealth.FULL, True)


def slow_syncs(store: Any, put: Any, held_disk: Any, count: int, size: int = 10) -> int:
    """Make `count` syncs of 2 s each; returns the time at which the last one returned."""
    now_ms = NOW_MS
    for _ in range(count):
        put(store, body=bytes(size))
        store.commit()
        for _ in range(20):
            store.tick(now_ms := now_ms + 100)
        held_disk.drain()
    return now_ms
