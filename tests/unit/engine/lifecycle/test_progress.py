"""A long recovery reports its progress, can be stopped, and the next recovery continues it."""

import shutil
from typing import Any

import pytest

from turbopump.engine.disk import checkpoint as checkpoints
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.lifecycle import recovery
from turbopump.engine.log import scan as log_scan
from turbopump.engine.types import OpeningStopped, Progress

NOW_MS = 1_700_000_000_000
FOREVER = 1 << 62
COUNT = 160


@pytest.fixture
def long_ago(stores: Any, put: Any, monkeypatch: Any) -> Any:
    """Fill a store of several files, with records longer than a recovery step; returns a function
    that makes the next start long."""
    monkeypatch.setattr(log_scan, "STEP_BYTES", 500)
    monkeypatch.setattr(recovery, "STEP_BYTES", 500)
    stores.configure(max_index_num=8)
    store = stores.open()
    for number in range(COUNT):
        put(
            store,
            "T",
            number % 2,
            b"%d " % number + bytes(number * 7 % 900),
            NOW_MS + number,
            KEYS=f"k{number}",
        )

    def end(how: str) -> None:
        if how == "killed":
            stores.kill(store)
            return
        store.close(NOW_MS)
        for folder in {
            "no queues": ["consumequeue"],
            "no index": ["index"],
            "neither": ["consumequeue", "index"],
        }[how]:
            shutil.rmtree(stores.root / folder)

    return end


def check(store: Any, read_bodies: Any) -> None:
    assert [len(read_bodies(store, "T", queue_id)) for queue_id in (0, 1)] == [COUNT // 2] * 2
    for number in (0, 57, COUNT - 1):
        assert len(store.query("T", f"k{number}", 9, 0, FOREVER).slices) == 1


ENDS = {
    "killed": ["checking the log", "filling the queues"],
    "no queues": ["filling the queues"],
    "no index": ["filling the index"],
    "neither": ["filling the queues"],
}


@pytest.mark.parametrize("how", ENDS)
def test_it_is_told_in_small_steps(stores: Any, long_ago: Any, read_bodies: Any, how: str) -> None:
    long_ago(how)
    seen: list[Progress] = []
    stores.watch = seen.append
    check(stores.open(), read_bodies)
    assert list(dict.fromkeys(one.phase for one in seen)) == ENDS[how]
    for phase in ENDS[how]:
        done = [one.done for one in seen if one.phase == phase]
        assert done == sorted(done)
        assert len(done) >= 5
        assert done[-1] == seen[-1].total or phase == "checking the log"
    assert all(0 <= one.done <= one.total for one in seen)


@pytest.mark.parametrize("how", ENDS)
def test_stopped_again_and_again_it_gets_to_its_end(
    stores: Any, long_ago: Any, read_bodies: Any, how: str
) -> None:
    """R46: each start may recover the bytes of a single log file. The index continues at its last
    file but one, so its files are small here."""
    long_ago(how)
    reached = [0]

    def watch(progress: Progress) -> None:
        if progress.phase != "checking the log":
            begun.append(progress.done)
            if progress.done - begun[0] > 20_000:
                raise OpeningStopped("enough")

    stores.watch = watch
    while True:
        begun: list[int] = []
        try:
            store = stores.open()
            break
        except OpeningStopped:
            marks = checkpoints.load(RealFiles(), str(stores.root)).marks
            assert marks is not None
            reached.append(marks.index if how == "no index" else marks.queues)
            assert reached[-1] > reached[-2] + 10_000
    assert len(reached) > 2
    check(store, read_bodies)


def test_a_store_closed_cleanly_has_nothing_to_tell(stores: Any, put: Any) -> None:
    store = stores.open()
    for _ in range(200):
        put(store, body=bytes(600))
    store.close(NOW_MS)
    seen: list[Progress] = []
    stores.watch = seen.append
    stores.open()
    assert seen == []
