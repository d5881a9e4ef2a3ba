"""The table of a replica: the confirmed part, and epochs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.snapshot.log_tables import (
    COUNT,
    FILE_SIZE,
    NOW_MS,
    Row,
    Steps,
    fill,
    number_of,
    rows_of,
)
from tests.waiting import record_epochs

from turbopump.engine.disk import checkpoint as checkpoints
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.log.epoch_file import BACKUP, EPOCH_FILE
from turbopump.engine.snapshot.inspect import Deviation
from turbopump.engine.snapshot.log_table import (
    DamagedLog,
    LogTable,
)
from turbopump.engine.store import Store
from turbopump.engine.types import LogOffset


class TestReplicated:
    """A store that is one of several copies."""

    @pytest.fixture
    def master(self, stores: Any, put: Any) -> tuple[Store, int]:
        """A master's store, confirmed up to its thirtieth message, with which the next epoch
        begins."""
        store: Store = stores.open()
        leader = store.as_replicated(NOW_MS)
        leader.to_master(3, NOW_MS)
        fill(store, put, range(30))
        middle = leader.end
        leader.confirm_to(middle, NOW_MS)
        fill(store, put, range(30, COUNT))
        return store, middle

    def test_it_is_read_up_to_the_confirmed_offset(self, master: Any, stores: Any) -> None:
        store, middle = master
        end = store.max_log_offset
        store.close(NOW_MS)
        table = LogTable.open(str(stores.root))
        assert table.is_replicated and (table.confirmed_end, table.end) == (middle, end)
        found = rows_of(table.split_ranges(1000))
        assert number_of(found) == list(range(30))
        assert all(row["confirmed"] and row["epoch"] == 3 for row in found)
        every = rows_of(table.split_ranges(1000, confirmed=False))
        assert [row["confirmed"] for row in every] == [n < 30 for n in range(COUNT)]

    def test_it_knows_the_writer_of_each_range(self, master: Any, stores: Any) -> None:
        store, middle = master
        store.close(NOW_MS)
        epochs = b"5-%d\n9-%d\n12-%d\n" % (0, 400, middle)
        (stores.root / EPOCH_FILE).write_bytes(b"3\n0\n" + epochs)
        table = LogTable.open(str(stores.root))
        assert table.epoch_at(399) == 5 and table.epoch_at(middle) == 12
        for range_bytes in (100, 1 << 20):
            found = rows_of(table.split_ranges(range_bytes, confirmed=False))
            assert [row["epoch"] for row in found] == [
                table.epoch_at(row["log_offset"]) for row in found
            ]
        assert {row["epoch"] for row in found} == {5, 9, 12}
        (stores.root / EPOCH_FILE).write_bytes(b"1\n0\n9-400\n")
        found = rows_of(LogTable.open(str(stores.root)).split_ranges())
        assert [row["epoch"] for row in found] == [
            None if row["log_offset"] < 400 else 9 for row in found
        ]

    def test_reads_the_second_copy_of_a_damaged_list(self, master: Any, stores: Any) -> None:
        store, _middle = master
        store.close(NOW_MS)
        (stores.root / EPOCH_FILE).write_bytes(b"3\n0")
        assert LogTable.open(str(stores.root)).epoch_at(0) == 3
        (stores.root / (EPOCH_FILE + BACKUP)).unlink()
        with pytest.raises(DamagedLog, match="cut short"):
            LogTable.open(str(stores.root))
        damages: list[Deviation] = []
        table = LogTable.open(str(stores.root), damaged=damages.append)
        assert len(damages) == 1 and table.is_replicated and table.epoch_at(0) is None

    def test_rocketmqs_confirm_offset_may_lie_inside_a_record(
        self, master: Any, stores: Any
    ) -> None:
        store, middle = master
        store.close(NOW_MS)
        files, root = RealFiles(), str(stores.root)
        theirs = replace_marks(checkpoints.load(files, root), middle + 5)
        checkpoints.save(files, root, theirs)
        for opener in (None, Steps(333)):
            table = LogTable.open(root, opener)
            assert table.confirmed_end == middle
        checkpoints.save(files, root, replace_marks(theirs, 1 << 40))
        table = LogTable.open(root)
        assert table.confirmed_end == table.end

    def test_a_replica_may_end_inside_a_record(
        self, master: Any, stores: Any, tmp_path: Path
    ) -> None:
        store, _middle = master
        leader = store.as_replicated(NOW_MS)
        last = [row["log_offset"] for row in self.every(str(stores.root))][-1]
        other = type(stores)(tmp_path / "replica")
        other.config = replace(stores.config, root=str(tmp_path / "replica"))
        follower_store = other.open()
        follower = follower_store.as_replicated(NOW_MS)
        record_epochs(follower, leader.epochs)
        at = 0
        while at < leader.end - 5:
            data = b"".join(
                leader.view(LogOffset(at), min(FILE_SIZE - at % FILE_SIZE, leader.end - 5 - at))
            )
            follower.append(LogOffset(at), data, NOW_MS)
            at += len(data)
        follower.confirm_to(leader.end, NOW_MS)
        table = LogTable.open(other.config.root)
        assert table.end == last
        assert len(self.every(other.config.root)) == COUNT - 1
        other.close()

    @staticmethod
    def every(root: str) -> list[Row]:
        return rows_of(LogTable.open(root).split_ranges(confirmed=False))


def replace_marks(saved: checkpoints.Checkpoint, confirm: int) -> checkpoints.Checkpoint:
    """The checkpoint as RocketMQ would have written it: without Turbopump's counts."""
    return saved._replace(marks=None, confirm_offset=confirm, damaged=False)
