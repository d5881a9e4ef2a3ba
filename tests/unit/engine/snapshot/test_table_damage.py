"""A table over a damaged log, and over files that are removed while it is read."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.columns_model import rows
from tests.unit.engine.snapshot.log_tables import (
    COUNT,
    FILE_SIZE,
    NOW_MS,
    Bytes,
    Steps,
    change,
    fill,
    log_file,
    number_of,
    offsets_of,
    rows_of,
)

from turbopump.engine.snapshot.inspect import Deviation
from turbopump.engine.snapshot.log_table import (
    DamagedLog,
    LogTable,
    ScanQuery,
    SegmentGone,
    decode,
)
from turbopump.engine.snapshot.ranges import DiskOpener
from turbopump.engine.store import Store
from turbopump.engine.types import StoreError
from turbopump.pyx import record as kernel
from turbopump.pyx.region import Region


class TestDamage:
    """Bytes that are no records."""

    def test_is_named(self, store: Store, stores: Any) -> None:
        at = offsets_of(stores)[40]
        path = log_file(stores.root, at // FILE_SIZE)
        change(path, at % FILE_SIZE + 4, b"????")
        table = LogTable.open(str(stores.root))
        found = []
        with pytest.raises(DamagedLog, match="the magic is neither") as caught:
            for part in table.split_ranges():
                for batch in decode(part, ScanQuery()):
                    found += rows(batch, ("body",))
        assert caught.value.damage.file == str(path)
        assert caught.value.damage.position == at % FILE_SIZE
        assert len(found) == 40, "the records before it are there"

    @pytest.mark.parametrize("step", [None, 400])
    @pytest.mark.parametrize("data", [b"\0\0\0\0????", bytes(8), b"\x7f\xff\xff\xff"])
    def test_is_passed_if_somebody_takes_it(
        self, store: Store, stores: Any, data: bytes, step: int | None
    ) -> None:
        at = offsets_of(stores)[40]
        change(log_file(stores.root, at // FILE_SIZE), at % FILE_SIZE, data)
        opener = Steps(step) if step else None
        table = LogTable.open(str(stores.root), opener)
        damages: list[Deviation] = []
        found = rows_of(table.split_ranges(), damaged=damages.append, opener=opener)
        assert number_of(found) == [n for n in range(COUNT) if n != 40]
        assert [one.position for one in damages] == [at % FILE_SIZE]

    def test_of_a_body_is_seen_if_asked_for(self, store: Store, stores: Any) -> None:
        at = offsets_of(stores)[40]
        change(log_file(stores.root, at // FILE_SIZE), at % FILE_SIZE + 92, b"?")
        table = LogTable.open(str(stores.root))
        assert len(rows_of(table.split_ranges())) == COUNT
        with pytest.raises(DamagedLog, match="the body does not have the stored CRC"):
            rows_of(table.split_ranges(), ScanQuery(check_body=True))
        damages: list[Deviation] = []
        found = rows_of(table.split_ranges(), ScanQuery(check_body=True), damaged=damages.append)
        assert number_of(found) == [n for n in range(COUNT) if n != 40] and len(damages) == 1
        others = ScanQuery(check_body=True, topics=frozenset([b"T0", b"T2"]))
        assert rows_of(table.split_ranges(), others), "bodies that are not wanted are not read"

    def test_to_the_end_of_a_file(self, store: Store, stores: Any) -> None:
        second = [at for at in offsets_of(stores) if at // FILE_SIZE == 1]
        filler = FILE_SIZE - 4
        change(log_file(stores.root, 0), filler - 4, b"")
        change(
            log_file(stores.root, 1),
            second[2] % FILE_SIZE,
            bytes(FILE_SIZE - second[2] % FILE_SIZE),
        )
        table = LogTable.open(str(stores.root))
        damages: list[Deviation] = []
        found = rows_of(table.split_ranges(), damaged=damages.append)
        assert len(found) == COUNT - len(second) + 2
        assert [one.reason for one in damages] == ["the space is empty (size and magic are 0)"]

    def test_in_the_last_file_is_not_its_end(self, store: Store, stores: Any) -> None:
        at = offsets_of(stores)[-3]
        path = log_file(stores.root, at // FILE_SIZE)
        for data in (bytes(8), b"\0\0\0\0????"):
            change(path, at % FILE_SIZE, data)
            with pytest.raises(DamagedLog) as caught:
                LogTable.open(str(stores.root))
            assert caught.value.damage.position == at % FILE_SIZE
            damages: list[Deviation] = []
            table = LogTable.open(str(stores.root), damaged=damages.append)
            assert table.end == store.max_log_offset and len(damages) == 1
            assert len(rows_of(table.split_ranges(), damaged=damages.append)) == COUNT - 1

    @pytest.mark.parametrize("is_known", [True, False], ids=["ours", "RocketMQ's"])
    def test_of_a_body_near_the_end_is_seen_if_asked_for(
        self, store: Store, stores: Any, is_known: bool
    ) -> None:
        if not is_known:
            (stores.root / "checkpoint").unlink()
        first, second = (offsets_of(stores)[-number] for number in (4, 3))
        for at in (first, second):
            change(log_file(stores.root, at // FILE_SIZE), at % FILE_SIZE + 92, b"?")
        damages: list[Deviation] = []
        table = LogTable.open(str(stores.root), damaged=damages.append)
        assert table.end == store.max_log_offset
        assert len(rows_of(table.split_ranges(), damaged=damages.append)) == COUNT and not damages
        with pytest.raises(DamagedLog, match="the body does not have the stored CRC"):
            LogTable.open(str(stores.root), check_body=True)
        table = LogTable.open(str(stores.root), damaged=damages.append, check_body=True)
        found = rows_of(table.split_ranges(), ScanQuery(check_body=True), damaged=damages.append)
        assert number_of(found) == [n for n in range(COUNT) if n not in (COUNT - 4, COUNT - 3)]
        assert {one.position for one in damages} == {first % FILE_SIZE, second % FILE_SIZE}

    def test_old_bytes_behind_the_end_are_no_damage(self, store: Store, stores: Any) -> None:
        """RocketMQ's recovery leaves such bytes where it truncated, and appends before them."""
        end = store.max_log_offset
        path = log_file(stores.root, end // FILE_SIZE)
        change(path, end % FILE_SIZE + 30, forged(end + 30, b"old"))
        assert LogTable.open(str(stores.root)).end == end

    def test_of_a_filler(self, store: Store, stores: Any) -> None:
        table = LogTable.open(str(stores.root))
        first = [row for row in rows_of(table.split_ranges()) if row["log_offset"] < FILE_SIZE]
        end = first[-1]["log_offset"] + first[-1]["size"]
        change(log_file(stores.root, 0), end, (77).to_bytes(4, "big"))
        with pytest.raises(DamagedLog, match="filler of 77 bytes where"):
            rows_of(table.split_ranges())

    def test_of_a_file_that_is_missing(self, store: Store, stores: Any) -> None:
        assert len(LogTable.open(str(stores.root)).segments) >= 3
        log_file(stores.root, 1).unlink()
        with pytest.raises(DamagedLog, match=f"the next file begins at {2 * FILE_SIZE}"):
            LogTable.open(str(stores.root))
        damages: list[Deviation] = []
        table = LogTable.open(str(stores.root), damaged=damages.append)
        assert len(damages) == 1 and 0 < len(rows_of(table.split_ranges())) < COUNT

    def test_of_the_beginning_of_a_file(self, store: Store, stores: Any) -> None:
        change(log_file(stores.root, 1), 4, b"????")
        table = LogTable.open(str(stores.root))
        query = ScanQuery(max_store_ms=NOW_MS - 3_600_000, prune_by_time=True)
        with pytest.raises(DamagedLog):
            rows_of(table.split_ranges(1 << 20, ScanQuery()))
        assert [part.base for part in table.split_ranges(1 << 20, query)] == [FILE_SIZE], (
            "not left out"
        )
        damages: list[Deviation] = []
        assert len(rows_of(table.split_ranges(), damaged=damages.append)) == COUNT - 1
        assert [one.position for one in damages] == [0]

    def test_a_seeming_record_inside_a_body_is_found_out(self, stores: Any, put: Any) -> None:
        """The sender guessed the body's log offset and put records with matching offsets there."""
        store = stores.open()
        fill(store, put, range(3))
        begin = store.max_log_offset
        inner_at = begin + 88 + 1500
        fake = forged(inner_at, b"forged") + forged(inner_at + len(forged(0, b"forged")), b"too")
        put(store, body=bytes(1500) + fake + bytes(800))
        fill(store, put, range(3, 9))
        table = LogTable.open(str(stores.root))
        assert begin < table.find_boundary(inner_at - 5) == inner_at, "it does look like one"
        parts = table.split_ranges(inner_at - 2)
        with pytest.raises(DamagedLog, match="reaches beyond the end of its range"):
            rows_of(parts)
        assert len(rows_of(table.split_ranges())) == 10


def forged(log_offset: int, body: bytes) -> bytes:
    memory = bytearray(1000)
    size = kernel.append(
        Region(memory),
        0,
        1000,
        log_offset=log_offset,
        topic=b"T",
        body=body,
        properties=b"",
        queue_id=0,
        flag=0,
        queue_offset=0,
        sys_flag=0,
        born_timestamp_ms=NOW_MS,
        born_host=bytes(8),
        store_timestamp_ms=NOW_MS,
        store_host=bytes(8),
        reconsume_times=0,
        prepared_transaction_offset=0,
        version=kernel.V1,
    )
    return bytes(memory[:size])


class TestFilesThatGo:
    """Retention removes files of a live store."""

    def test_between_the_look_and_the_read(self, store: Store, stores: Any) -> None:
        table = LogTable.open(str(stores.root))
        parts = table.split_ranges()
        log_file(stores.root, 0).unlink()
        with pytest.raises(SegmentGone, match="is gone: it was removed"):
            rows_of(parts)
        assert rows_of(parts[1:])
        again = LogTable.open(str(stores.root))
        assert again.min == FILE_SIZE
        with pytest.raises(SegmentGone, match=f"begins at {FILE_SIZE} now: 0 was removed"):
            again.split_ranges(start=0)

    @pytest.mark.parametrize("missed", [0, 1])
    def test_while_their_folder_is_listed(self, store: Store, stores: Any, missed: int) -> None:
        """A listing is not atomic: it may lack a new file, or have a removed one, and still have
        the next file."""

        class Busy(DiskOpener):
            lists = 0

            def list_files(self, folder: str) -> list[tuple[str, int]]:
                found = super().list_files(folder)
                if folder.endswith("commitlog"):
                    self.lists += 1
                    if self.lists == 1:
                        del found[1]
                        for number in range(missed, 1):
                            log_file(stores.root, number).unlink()
                return found

        opener = Busy()
        table = LogTable.open(str(stores.root), opener)
        assert opener.lists > 2
        assert table.min == (0 if missed else FILE_SIZE)
        assert len(table.segments) >= 2 + missed

    def test_while_it_is_read(self, store: Store, stores: Any) -> None:
        part = LogTable.open(str(stores.root)).split_ranges()[0]
        reading: Iterator[Any] = decode(part, ScanQuery(batch_rows=5))
        found = rows(next(reading), ("body",))
        log_file(stores.root, 0).unlink()
        found += [row for batch in reading for row in rows(batch, ("body",))]
        assert len(found) == len({body for (body,) in found}) > 10

    def test_between_the_listing_and_the_look(self, store: Store, stores: Any, put: Any) -> None:
        fill(store, put, range(COUNT, 3 * COUNT))
        *going, last = sorted((stores.root / "commitlog").iterdir())[:9]

        class Slow(Steps):
            def list_files(self, folder: str) -> list[tuple[str, int]]:
                listed = super().list_files(folder)
                if going and going[0].name in dict(listed):
                    going.pop(0).unlink()
                return listed

        assert LogTable.open(str(stores.root), Slow(1 << 20)).min == int(last.name)

    def test_all_the_time(self, store: Store, stores: Any) -> None:
        class Never(Steps):
            def open(self, path: str) -> Bytes:
                raise FileNotFoundError(path)

        with pytest.raises(StoreError, match="changes faster than it can be read"):
            LogTable.open(str(stores.root), Never(1 << 20))
