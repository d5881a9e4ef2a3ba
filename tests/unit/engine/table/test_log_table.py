"""A store as a table: its end, what is confirmed, splits, damage, files that come and go."""

import os
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.columns_model import expected, rows

from turbopump.engine.disk import checkpoint as checkpoints
from turbopump.engine.disk.files import RealFiles
from turbopump.engine.log.epoch_file import BACKUP, EPOCH_FILE
from turbopump.engine.store import Store
from turbopump.engine.table.inspect import Deviation
from turbopump.engine.table.log_table import (
    DamagedLog,
    LogRange,
    LogTable,
    SegmentGone,
    Wish,
    decode,
)
from turbopump.engine.types import LogOffset, StoreError
from turbopump.pyx import record as kernel
from turbopump.pyx.columns import COLUMNS
from turbopump.pyx.region import Region

NOW_MS = 1_700_000_000_000
FILE_SIZE = 16 * 1024
COUNT = 100
STORE_TIME_AT = 56  # of a record from an IPv4 host
Row = dict[str, Any]


class Bytes:
    """A file that is read in steps."""

    def __init__(self, data: bytes, step: int) -> None:
        self.data, self.size, self.step = data, len(data), step
        self.read = 0

    def region(self, start: int, end: int) -> Region:
        self.read += end - start
        return Region(self.data[start:end])

    def close(self) -> None:
        pass


class Steps:
    """Files as an object store has them: no mapping, a read costs what it brings."""

    def __init__(self, step: int) -> None:
        self._step = step
        self._files = RealFiles()
        self.opened: list[Bytes] = []

    def list_files(self, folder: str) -> list[tuple[str, int]]:
        return self._files.list_files(folder)

    def read(self, path: str) -> bytes:
        return self._files.read(path)

    def open(self, path: str) -> Bytes:
        self.opened.append(Bytes(self._files.read(path), self._step))
        return self.opened[-1]


def rows_of(parts: list[LogRange], wish: Wish | None = None, **how: Any) -> list[Row]:
    wish = wish or Wish()
    found = []
    for part in parts:
        for batch in decode(part, wish, **how):
            found += [
                dict(zip(wish.columns, row, strict=True)) for row in rows(batch, wish.columns)
            ]
    return found


def bodies(found: list[Row]) -> list[bytes]:
    return [row["body"] for row in found]


def number_of(found: list[Row]) -> list[int]:
    return [int(body[:4]) for body in bodies(found)]


@pytest.fixture
def store(stores: Any, put: Any) -> Store:
    """Messages in some three files; the store stays open."""
    opened: Store = stores.open()
    fill(opened, put, range(COUNT))
    return opened


def fill(store: Store, put: Any, numbers: range) -> None:
    for number in numbers:
        put(
            store, topic=f"T{number % 3}", queue_id=number % 2, KEYS=f"k{number}",
            body=b"%04d" % number + bytes(number * 37 % 900), now_ms=NOW_MS + number * 60_000,
        )  # fmt: skip


def log_file(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * FILE_SIZE:020d}"


def offsets_of(stores: Any) -> list[int]:
    table = LogTable.open(str(stores.root))
    return [row["log_offset"] for row in rows_of(table.split(confirmed=False))]


def change(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def snapshot(root: Path) -> dict[str, Any]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_size, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_a_live_store_is_read_and_left_as_it_is(store: Store, put: Any, stores: Any) -> None:
    before = snapshot(stores.root)
    table = LogTable.open(str(stores.root))
    assert (table.min, table.end, table.confirmed_end) == (0, *[store.max_log_offset] * 2)
    assert not table.is_replicated and table.epoch_at(0) is None
    found = rows_of(table.split())
    assert snapshot(stores.root) == before
    wanted = []
    for row in found:
        one = store.record(row["log_offset"])
        assert one is not None
        wanted.append(expected(one))
    assert found == wanted and number_of(found) == list(range(COUNT))
    fill(store, put, range(COUNT, 2 * COUNT))
    assert rows_of(table.split()) == found, "what came behind is not part of it"
    again = LogTable.open(str(stores.root))
    assert number_of(rows_of(again.split())) == list(range(2 * COUNT))


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_a_store_at_rest(store: Store, stores: Any, how: str) -> None:
    end = store.max_log_offset
    if how == "closed":
        store.close(NOW_MS)
    else:
        stores.kill(store)
    table = LogTable.open(str(stores.root) + "/")
    assert table.end == end and len(rows_of(table.split())) == COUNT


def test_folders_and_files_are_tables_too(store: Store, stores: Any, tmp_path: Path) -> None:
    folder = stores.root / "commitlog"
    assert len(rows_of(LogTable.open(str(folder)).split())) == COUNT
    parts = [LogTable.open(str(path)) for path in sorted(folder.iterdir())]
    assert sum(len(rows_of(table.split())) for table in parts) == COUNT
    renamed = tmp_path / "copy.log"
    renamed.write_bytes(log_file(stores.root, 1).read_bytes())
    table = LogTable.open(str(renamed))
    assert rows_of(table.split())[0]["log_offset"] == table.min == FILE_SIZE
    beyond = tmp_path / ("9" * 20)
    beyond.write_bytes(renamed.read_bytes())
    with pytest.raises(StoreError, match="is no file of a log"):
        LogTable.open(str(beyond))
    with pytest.raises(StoreError, match="no commit log at"):
        LogTable.open(str(tmp_path / "nowhere"))
    other = tmp_path / "other.log"
    for data in (b"no log at all", b"", bytes(100)):
        other.write_bytes(data)
        with pytest.raises(StoreError, match=r"is no file of a log: (no record begins|it is)"):
            LogTable.open(str(other))
    blank = tmp_path / f"{0:020d}"
    blank.write_bytes(bytes(FILE_SIZE))
    assert LogTable.open(str(blank)).split() == [], "made ahead"
    queue = stores.root / "consumequeue" / "T1" / "1"
    for place in (queue, *queue.iterdir()):
        with pytest.raises(StoreError, match="is no file of a log: no record begins it"):
            LogTable.open(str(place))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="empty has no commit log"):
        LogTable.open(str(tmp_path / "empty"))
    with pytest.raises(StoreError, match="has no commit log"):
        LogTable.open(str(tmp_path / "folder"))


def test_a_store_without_messages_has_no_rows(stores: Any) -> None:
    stores.open().close(NOW_MS)
    table = LogTable.open(str(stores.root))
    assert table.segments == () and table.split() == [] and table.min == table.end == 0


@pytest.mark.parametrize("torn", ["body", "properties", "head"])
def test_a_record_that_is_being_written_is_left_out(store: Store, stores: Any, torn: str) -> None:
    last = offsets_of(stores)[-1]
    size = store.max_log_offset - last
    start = {"body": 100, "properties": size - 4, "head": 0}[torn]
    change(log_file(stores.root, last // FILE_SIZE), last % FILE_SIZE + start, bytes(size - start))
    table = LogTable.open(str(stores.root))
    assert table.end == last
    assert number_of(rows_of(table.split())) == list(range(COUNT - 1))


@pytest.mark.parametrize("range_bytes", [1, 500, 4000, 1 << 30])
@pytest.mark.parametrize("step", [None, 300, 5000])
def test_ranges_hold_every_record_once(
    store: Store, stores: Any, range_bytes: int, step: int | None
) -> None:
    opener = Steps(step) if step else None
    table = LogTable.open(str(stores.root), opener)
    assert table.end == store.max_log_offset
    parts = pickle.loads(pickle.dumps(table.split(range_bytes)))
    if range_bytes < 4000:
        assert len(parts) > COUNT // 3
    whole = rows_of(LogTable.open(str(stores.root)).split())
    assert rows_of(parts, opener=opener) == whole
    small = Wish(batch_rows=7, batch_bytes=100)
    assert rows_of(parts, small, opener=opener) == whole


def test_little_is_read_to_split(store: Store, stores: Any, put: Any) -> None:
    store.close(NOW_MS)
    opener = Steps(100)
    table = LogTable.open(str(stores.root), opener)
    opener.opened.clear()
    assert table.split(FILE_SIZE) and not opener.opened, "files begin with records"
    assert table.split(6000) and sum(file.read for file in opener.opened) > 0


def test_a_clock_that_was_set_back_hides_no_record(store: Store, stores: Any) -> None:
    """Records of another hour amid a file and a range: RocketMQ stores what its clock says."""
    for number, hours in ((40, -2), (41, 9)):
        at = offsets_of(stores)[number]
        time_ms = NOW_MS + hours * 3_600_000
        data = time_ms.to_bytes(8, "big")
        change(log_file(stores.root, at // FILE_SIZE), at % FILE_SIZE + STORE_TIME_AT, data)
    table = LogTable.open(str(stores.root))
    early, late = Wish(max_store_ms=NOW_MS - 3_600_000), Wish(min_store_ms=NOW_MS + 8 * 3_600_000)
    assert number_of(rows_of(table.split(2000, early), early)) == [40]
    assert number_of(rows_of(table.split(2000, late), late)) == [41]
    assert table.split(1 << 20, replace(early, prune_by_time=True)) == [], "as it was asked for"


def test_what_rules_itself_out_is_not_planned(store: Store, stores: Any) -> None:
    table = LogTable.open(str(stores.root))
    whole = rows_of(table.split())
    late = NOW_MS + 95 * 60_000
    wish = Wish(min_store_ms=late, prune_by_time=True)
    parts = table.split(2000, wish)
    assert 0 < len(parts) < len(table.split(2000)) / 2
    assert number_of(rows_of(parts, wish)) == list(range(95, COUNT))
    wish = Wish(max_store_ms=NOW_MS + 60_000, prune_by_time=True)
    assert number_of(rows_of(table.split(2000, wish), wish)) == [0, 1]
    low, high = whole[20]["log_offset"], whole[30]["log_offset"]
    wish = Wish(min_log_offset=low + 1, end_log_offset=high)
    parts = table.split(2000, wish)
    assert all(part.base + part.end > low and part.log_offset < high for part in parts)
    assert number_of(rows_of(parts, wish)) == list(range(21, 30))
    wish = Wish(topics=frozenset([b"T1"]), queue_ids=frozenset([1]), columns=("body", "topic"))
    assert number_of(rows_of(table.split(), wish)) == [n for n in range(COUNT) if n % 6 == 1]
    assert rows_of(table.split(), Wish(columns=())) == [{}] * COUNT


def test_a_stream_goes_on_where_it_was(store: Store, stores: Any) -> None:
    table = LogTable.open(str(stores.root))
    at: int = table.min
    found = []
    while at < table.end:
        until = table.boundary(at + 3000)
        assert at < until <= table.end
        found += rows_of(table.split(1000, start=at, end=until))
        at = until
    assert found == rows_of(table.split())
    assert table.boundary(0) == 0 and table.boundary(table.end + 1) == table.end
    assert table.split(start=table.end) == []


class TestDamage:
    """Bytes that are no records."""

    def test_is_named(self, store: Store, stores: Any) -> None:
        at = offsets_of(stores)[40]
        path = log_file(stores.root, at // FILE_SIZE)
        change(path, at % FILE_SIZE + 4, b"????")
        table = LogTable.open(str(stores.root))
        found = []
        with pytest.raises(DamagedLog, match="the magic is neither") as caught:
            for part in table.split():
                for batch in decode(part, Wish()):
                    found += rows(batch, ("body",))
        assert caught.value.damage.file == str(path)
        assert caught.value.damage.position == at % FILE_SIZE
        assert len(found) == 40, "what is before it is there"

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
        found = rows_of(table.split(), damaged=damages.append, opener=opener)
        assert number_of(found) == [n for n in range(COUNT) if n != 40]
        assert [one.position for one in damages] == [at % FILE_SIZE]

    def test_of_a_body_is_seen_if_asked_for(self, store: Store, stores: Any) -> None:
        at = offsets_of(stores)[40]
        change(log_file(stores.root, at // FILE_SIZE), at % FILE_SIZE + 92, b"?")
        table = LogTable.open(str(stores.root))
        assert len(rows_of(table.split())) == COUNT
        with pytest.raises(DamagedLog, match="the body does not have the stored CRC"):
            rows_of(table.split(), Wish(check_body=True))
        damages: list[Deviation] = []
        found = rows_of(table.split(), Wish(check_body=True), damaged=damages.append)
        assert number_of(found) == [n for n in range(COUNT) if n != 40] and len(damages) == 1
        others = Wish(check_body=True, topics=frozenset([b"T0", b"T2"]))
        assert rows_of(table.split(), others), "bodies that are not wanted are not read"

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
        found = rows_of(table.split(), damaged=damages.append)
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
            assert len(rows_of(table.split(), damaged=damages.append)) == COUNT - 1

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
        assert len(rows_of(table.split(), damaged=damages.append)) == COUNT and not damages
        with pytest.raises(DamagedLog, match="the body does not have the stored CRC"):
            LogTable.open(str(stores.root), check_body=True)
        table = LogTable.open(str(stores.root), damaged=damages.append, check_body=True)
        found = rows_of(table.split(), Wish(check_body=True), damaged=damages.append)
        assert number_of(found) == [n for n in range(COUNT) if n not in (COUNT - 4, COUNT - 3)]
        assert {one.position for one in damages} == {first % FILE_SIZE, second % FILE_SIZE}

    def test_old_bytes_behind_the_end_are_no_damage(self, store: Store, stores: Any) -> None:
        """RocketMQ's recovery leaves them where it cut, and goes on before them."""
        end = store.max_log_offset
        path = log_file(stores.root, end // FILE_SIZE)
        change(path, end % FILE_SIZE + 30, forged(end + 30, b"old"))
        assert LogTable.open(str(stores.root)).end == end

    def test_of_a_filler(self, store: Store, stores: Any) -> None:
        table = LogTable.open(str(stores.root))
        first = [row for row in rows_of(table.split()) if row["log_offset"] < FILE_SIZE]
        end = first[-1]["log_offset"] + first[-1]["size"]
        change(log_file(stores.root, 0), end, (77).to_bytes(4, "big"))
        with pytest.raises(DamagedLog, match="filler of 77 bytes where"):
            rows_of(table.split())

    def test_of_a_file_that_is_missing(self, store: Store, stores: Any) -> None:
        assert len(LogTable.open(str(stores.root)).segments) >= 3
        log_file(stores.root, 1).unlink()
        with pytest.raises(DamagedLog, match=f"the next file begins at {2 * FILE_SIZE}"):
            LogTable.open(str(stores.root))
        damages: list[Deviation] = []
        table = LogTable.open(str(stores.root), damaged=damages.append)
        assert len(damages) == 1 and 0 < len(rows_of(table.split())) < COUNT

    def test_of_the_beginning_of_a_file(self, store: Store, stores: Any) -> None:
        change(log_file(stores.root, 1), 4, b"????")
        table = LogTable.open(str(stores.root))
        wish = Wish(max_store_ms=NOW_MS - 3_600_000, prune_by_time=True)
        with pytest.raises(DamagedLog):
            rows_of(table.split(1 << 20, Wish()))
        assert [part.base for part in table.split(1 << 20, wish)] == [FILE_SIZE], "not left out"
        damages: list[Deviation] = []
        assert len(rows_of(table.split(), damaged=damages.append)) == COUNT - 1
        assert [one.position for one in damages] == [0]

    def test_what_looks_like_a_record_inside_a_body_is_found_out(
        self, stores: Any, put: Any
    ) -> None:
        """A sender guessed where the body will lie and put records there that say so."""
        store = stores.open()
        fill(store, put, range(3))
        begin = store.max_log_offset
        inner_at = begin + 88 + 1500
        fake = forged(inner_at, b"forged") + forged(inner_at + len(forged(0, b"forged")), b"too")
        put(store, body=bytes(1500) + fake + bytes(800))
        fill(store, put, range(3, 9))
        table = LogTable.open(str(stores.root))
        assert begin < table.boundary(inner_at - 5) == inner_at, "it does look like one"
        parts = table.split(inner_at - 2)
        with pytest.raises(DamagedLog, match="reaches beyond the end of its range"):
            rows_of(parts)
        assert len(rows_of(table.split())) == 10


def forged(log_offset: int, body: bytes) -> bytes:
    memory = bytearray(1000)
    size = kernel.append(
        Region(memory), 0, 1000, log_offset=log_offset, topic=b"T", body=body, properties=b"",
        queue_id=0, flag=0, queue_offset=0, sys_flag=0, born_timestamp_ms=NOW_MS,
        born_host=bytes(8), store_timestamp_ms=NOW_MS, store_host=bytes(8), reconsume_times=0,
        prepared_transaction_offset=0, version=kernel.V1,
    )  # fmt: skip
    return bytes(memory[:size])


class TestFilesThatGo:
    """Retention removes files of a live store."""

    def test_between_the_look_and_the_read(self, store: Store, stores: Any) -> None:
        table = LogTable.open(str(stores.root))
        parts = table.split()
        log_file(stores.root, 0).unlink()
        with pytest.raises(SegmentGone, match="is gone: it was removed"):
            rows_of(parts)
        assert rows_of(parts[1:])
        again = LogTable.open(str(stores.root))
        assert again.min == FILE_SIZE
        with pytest.raises(SegmentGone, match=f"begins at {FILE_SIZE} now: 0 was removed"):
            again.split(start=0)

    def test_while_it_is_read(self, store: Store, stores: Any) -> None:
        part = LogTable.open(str(stores.root)).split()[0]
        reading: Iterator[Any] = decode(part, Wish(batch_rows=5))
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


class TestReplicated:
    """A store that is one of several copies."""

    @pytest.fixture
    def master(self, stores: Any, put: Any) -> tuple[Store, int]:
        """Confirmed up to its thirtieth message, which the next epoch begins with."""
        store: Store = stores.open()
        leader = store.replicated(NOW_MS)
        leader.to_master(3, NOW_MS)
        fill(store, put, range(30))
        middle = leader.end
        leader.confirm_to(middle, NOW_MS)
        fill(store, put, range(30, COUNT))
        return store, middle

    def test_is_read_up_to_what_is_confirmed(self, master: Any, stores: Any) -> None:
        store, middle = master
        end = store.max_log_offset
        store.close(NOW_MS)
        table = LogTable.open(str(stores.root))
        assert table.is_replicated and (table.confirmed_end, table.end) == (middle, end)
        found = rows_of(table.split(1000))
        assert number_of(found) == list(range(30))
        assert all(row["confirmed"] and row["epoch"] == 3 for row in found)
        every = rows_of(table.split(1000, confirmed=False))
        assert [row["confirmed"] for row in every] == [n < 30 for n in range(COUNT)]

    def test_knows_who_wrote_what(self, master: Any, stores: Any) -> None:
        store, middle = master
        store.close(NOW_MS)
        epochs = b"5-%d\n9-%d\n12-%d\n" % (0, 400, middle)
        (stores.root / EPOCH_FILE).write_bytes(b"3\n0\n" + epochs)
        table = LogTable.open(str(stores.root))
        assert table.epoch_at(399) == 5 and table.epoch_at(middle) == 12
        for range_bytes in (100, 1 << 20):
            found = rows_of(table.split(range_bytes, confirmed=False))
            assert [row["epoch"] for row in found] == [
                table.epoch_at(row["log_offset"]) for row in found
            ]
        assert {row["epoch"] for row in found} == {5, 9, 12}
        (stores.root / EPOCH_FILE).write_bytes(b"1\n0\n9-400\n")
        found = rows_of(LogTable.open(str(stores.root)).split())
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
        leader = store.replicated(NOW_MS)
        last = [row["log_offset"] for row in self.every(str(stores.root))][-1]
        other = type(stores)(tmp_path / "replica")
        other.config = replace(stores.config, root=str(tmp_path / "replica"))
        follower_store = other.open()
        follower = follower_store.replicated(NOW_MS)
        follower.record_epochs(leader.epochs)
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
        return rows_of(LogTable.open(root).split(confirmed=False))


def replace_marks(saved: checkpoints.Checkpoint, confirm: int) -> checkpoints.Checkpoint:
    """As RocketMQ would have written it: without our numbers."""
    return saved._replace(marks=None, confirm_offset=confirm, damaged=False)


def test_columns_are_those_of_a_wish(store: Store, stores: Any) -> None:
    assert Wish().columns == COLUMNS
    part = LogTable.open(str(stores.root)).split()[0]
    with pytest.raises(ValueError, match="no column 'colour'"):
        next(decode(part, Wish(columns=("colour",))))
    assert os.path.basename(part.path) == f"{0:020d}"
