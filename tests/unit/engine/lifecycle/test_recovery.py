"""Opening a store after every kind of end; queues and index always equal a rebuild from the log."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from turbopump.engine.disk import checkpoint as checkpoints
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.types import NewMessage, PutStatus, StoreError

NOW_MS = 1_700_000_000_000
FOREVER = 1 << 62


def fill(store: Any, put: Any, count: int = 120, size: int = 300, first: int = 0) -> None:
    for number in range(first, first + count):
        put(
            store,
            "AB"[number % 2],
            number % 3,
            b"%d " % number + bytes(size),
            NOW_MS + number,
            KEYS=f"k{number % 40} n{number}",
            TAGS=f"t{number % 5}",
        )


def derived(root: Path) -> dict[str, bytes]:
    """Queue files by name, index files by their order: their names are times."""
    found = {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted((root / "consumequeue").rglob("*"))
        if path.is_file()
    }
    for number, path in enumerate(sorted((root / "index").glob("*"))):
        found[f"index/{number}"] = path.read_bytes()
    return found


def check_equals_rebuild(stores: Any, tmp_path: Path) -> None:
    """Close, rebuild queues and index from the log alone in a different folder, and compare
    bytes."""
    store = stores.open()
    store.close(NOW_MS)
    root = stores.root
    before = derived(root)
    other = tmp_path / "rebuilt"
    shutil.rmtree(other, ignore_errors=True)
    other.mkdir()
    shutil.copytree(root / "commitlog", other / "commitlog")
    stores.configure(root=str(other))
    rebuilt = stores.open()
    rebuilt.close(NOW_MS)
    stores.configure(root=str(root))
    after = derived(other)
    assert before.keys() == after.keys()
    for name, content in before.items():
        assert content == after[name], name


def last_file(root: Path) -> Path:
    """The last log file that holds a record."""
    return max(path for path in (root / "commitlog").iterdir() if any(path.read_bytes()))


class TestCleanStop:
    def test_it_leaves_the_files_that_rocketmq_leaves(self, stores: Any, put: Any) -> None:
        store = stores.open()
        assert (stores.root / "abort").read_text().isdigit()
        assert (stores.root / "lock").read_text() == "lock"
        fill(store, put)
        end, size = store.max_log_offset, store.config.mapped_file_size_commit_log
        store.close(NOW_MS)
        assert not (stores.root / "abort").exists()
        names = sorted(path.name for path in (stores.root / "commitlog").iterdir())
        assert names == [f"{start:020d}" for start in range(0, end, size)]
        for path in (stores.root / "commitlog").iterdir():
            assert path.stat().st_size == size
        assert (stores.root / "checkpoint").stat().st_size == 4096
        saved = checkpoints.load(RealFiles(), str(stores.root))
        assert saved.log_timestamp_ms == saved.queue_timestamp_ms == NOW_MS + 119
        assert saved.index_timestamp_ms == NOW_MS + 119

    def test_all_is_there_again_and_goes_on(
        self, stores: Any, put: Any, read_bodies: Any, tmp_path: Path
    ) -> None:
        store = stores.open()
        fill(store, put)
        bodies, end = read_bodies(store, "A", 0), store.max_log_offset
        store.close(NOW_MS)
        store.close(NOW_MS)
        again = stores.open()
        assert (again.max_log_offset, again.flushed_log_offset) == (end, end)
        assert read_bodies(again, "A", 0) == bodies
        assert put(again, "A", 0).queue_offset == len(bodies)
        again.close(NOW_MS)
        check_equals_rebuild(stores, tmp_path)

    def test_an_empty_store(self, stores: Any) -> None:
        stores.open().close(NOW_MS)
        store = stores.open()
        assert (store.max_log_offset, store.topics()) == (0, [])
        store.close(NOW_MS)
        assert list((stores.root / "commitlog").iterdir()) == []

    def test_does_not_look_at_old_records(self, stores: Any, put: Any) -> None:
        store = stores.open()
        fill(store, put)
        store.close(NOW_MS)
        oldest = stores.root / "commitlog" / f"{0:020d}"
        oldest.write_bytes(b"\xff" * oldest.stat().st_size)
        assert stores.open().max_log_offset == store.max_log_offset


class TestKilled:
    def test_all_that_was_written_is_there(
        self, stores: Any, put: Any, read_bodies: Any, tmp_path: Path
    ) -> None:
        store = stores.open()
        fill(store, put)
        bodies, end = read_bodies(store, "B", 1), store.max_log_offset
        stores.kill(store)
        again = stores.open()
        assert again.max_log_offset == again.flushed_log_offset == end
        assert read_bodies(again, "B", 1) == bodies
        assert len(again.query("A", "k2", 64, 0, FOREVER).slices) == 3
        fill(again, put, first=120)
        again.close(NOW_MS)
        check_equals_rebuild(stores, tmp_path)

    def test_twice_and_in_between_closed(self, stores: Any, put: Any, tmp_path: Path) -> None:
        for number, end in enumerate(["kill", "kill", "close", "kill", "close"]):
            store = stores.open()
            assert store.max_queue_offset("A", 0) == number * 20
            fill(store, put, first=number * 120)
            if end == "kill":
                stores.kill(store)
            else:
                store.close(NOW_MS)
        check_equals_rebuild(stores, tmp_path)

    def test_a_file_made_ahead_is_used_again(self, stores: Any, put: Any) -> None:
        store = stores.open()
        put(store, body=bytes(3000))
        stores.kill(store)
        assert len(list((stores.root / "commitlog").iterdir())) == 2
        again = stores.open()
        for _ in range(20):
            put(again, body=bytes(3000))
        assert again.max_queue_offset("T", 0) == 21
        assert again.max_log_offset < 6 * store.config.mapped_file_size_commit_log

    @pytest.mark.parametrize("keep", range(1, 400, 23))
    def test_a_torn_record_is_cut_and_stays_cut(
        self, stores: Any, put: Any, keep: int, tmp_path: Path
    ) -> None:
        store = stores.open()
        fill(store, put, 21)
        last = put(store, "A", 0, b"torn" + b"x" * 300)
        start = last.log_offsets[0]
        stores.kill(store)
        path = last_file(stores.root)
        data = bytearray(path.read_bytes())
        at = start % len(data) + min(keep, last.size - 1)
        if any(data[at : start % len(data) + last.size]):
            data[at:] = bytes(len(data) - at)
            path.write_bytes(data)
            again = stores.open()
            assert again.max_log_offset == start
            assert again.max_queue_offset("A", 0) == 4
            assert again.record(start) is None
            assert not any(path.read_bytes()[start % len(data) :])
            assert put(again, "A", 0, b"new").queue_offset == 4
            again.close(NOW_MS)
            check_equals_rebuild(stores, tmp_path)

    def test_a_truncated_byte_never_comes_back(self, stores: Any, put: Any) -> None:
        """Law 6 (R11): intact records after the damage would pass a later recovery."""
        store = stores.open()
        fill(store, put, 30)
        units = [
            unit
            for topic in "AB"
            for queue_id in range(3)
            for unit in store.units(topic, queue_id, 0, 99)
        ]
        units.sort(key=lambda unit: unit.log_offset)
        stores.kill(store)
        size = store.config.mapped_file_size_commit_log
        damaged = units[20]
        path = stores.root / "commitlog" / f"{damaged.log_offset // size * size:020d}"
        with path.open("r+b") as file:
            file.seek(damaged.log_offset % size + 90)
            file.write(b"\xff")
        again = stores.open()
        assert again.max_log_offset == damaged.log_offset
        stores.kill(again)
        with path.open("r+b") as file:
            file.seek(damaged.log_offset % size + 90)
            file.write(b"\0")
        third = stores.open()
        assert third.max_log_offset == damaged.log_offset
        for unit in units[20:]:
            assert third.record(unit.log_offset) is None

    def test_bytes_of_another_life_of_the_file_are_no_records(self, stores: Any, put: Any) -> None:
        store = stores.open()
        fill(store, put, 10)
        first = bytes(store.record_view(0) or b"")
        end = store.max_log_offset
        stores.kill(store)
        path = last_file(stores.root)
        with path.open("r+b") as file:
            file.seek(end)
            file.write(first)
        assert stores.open().max_log_offset == end

    @pytest.mark.parametrize("what", ["queues", "index", "both", "checkpoint", "all"])
    def test_derived_files_may_be_gone(
        self, stores: Any, put: Any, read_bodies: Any, what: str, tmp_path: Path
    ) -> None:
        store = stores.open()
        fill(store, put)
        bodies = read_bodies(store, "A", 2)
        stores.kill(store)
        if what in ("queues", "both", "all"):
            shutil.rmtree(stores.root / "consumequeue")
        if what in ("index", "both", "all"):
            shutil.rmtree(stores.root / "index")
        if what in ("checkpoint", "all"):
            (stores.root / "checkpoint").unlink()
        again = stores.open()
        assert read_bodies(again, "A", 2) == bodies
        again.close(NOW_MS)
        check_equals_rebuild(stores, tmp_path)

    def test_a_log_that_lacks_its_durable_end_is_not_opened(self, stores: Any, put: Any) -> None:
        store = stores.open()
        fill(store, put)
        end = store.max_log_offset
        stores.kill(store)
        shutil.rmtree(stores.root / "consumequeue")
        marks = checkpoints.DurableMarks(end * 9, end * 9, end * 9, 3, 99, 9, end, 0)
        checkpoints.save(RealFiles(), str(stores.root), checkpoints.Checkpoint(marks=marks))
        with pytest.raises(StoreError, match="later ones are missing"):
            stores.open()
        (stores.root / "checkpoint").unlink()
        assert stores.open().max_log_offset == end

    def test_recovery_goes_on_where_the_last_one_stopped(
        self, stores: Any, put: Any, held_disk: Any
    ) -> None:
        """R46: progress is saved after each file, so that a killed recovery is not wasted."""
        store = stores.open()
        fill(store, put, 300)
        stores.kill(store)

        class Killed(Exception):
            pass

        class DyingFiles(RealFiles):
            saves = 0

            def write(self, path: str, data: bytes, position: int = -1) -> None:
                if path.endswith("/checkpoint"):
                    self.saves += 1
                    if self.saves == 5:
                        raise Killed
                super().write(path, data, position)

        files, stores.files = stores.files, DyingFiles()
        with pytest.raises(Killed):
            stores.open()
        stores.files = files
        saved = checkpoints.load(files, str(stores.root))
        assert saved.marks is not None
        assert saved.marks.queues >= 3 * store.config.mapped_file_size_commit_log
        assert stores.open().max_queue_offset("A", 0) == 50


class TestMissingQueues:
    def test_of_a_clean_store_are_noticed(
        self, stores: Any, put: Any, read_bodies: Any, tmp_path: Path
    ) -> None:
        store = stores.open()
        fill(store, put)
        bodies = read_bodies(store, "A", 0)
        store.close(NOW_MS)
        shutil.rmtree(stores.root / "consumequeue/A/0")
        again = stores.open()
        assert read_bodies(again, "A", 0) == bodies
        assert put(again, "A", 0).queue_offset == len(bodies)
        again.close(NOW_MS)
        check_equals_rebuild(stores, tmp_path)

    @pytest.mark.parametrize("number", [0, 1])
    def test_a_file_of_a_queue(
        self, stores: Any, put: Any, read_bodies: Any, number: int, tmp_path: Path
    ) -> None:
        store = stores.open()
        fill(store, put, 240)
        bodies = read_bodies(store, "A", 0)
        store.close(NOW_MS)
        sorted((stores.root / "consumequeue/A/0").iterdir())[number].unlink()
        again = stores.open()
        assert read_bodies(again, "A", 0) == bodies
        again.close(NOW_MS)
        check_equals_rebuild(stores, tmp_path)

    def test_noticed_late_by_a_gap(self, stores: Any, put: Any, read_bodies: Any) -> None:
        """The store of another broker has no counts: the first record that does not fit the queue
        reveals the missing queue files."""
        store = stores.open()
        fill(store, put, 60)
        put(store, "A", 0, b"last")
        bodies = read_bodies(store, "A", 0)
        store.close(NOW_MS)
        (stores.root / "checkpoint").unlink()
        shutil.rmtree(stores.root / "consumequeue/A/0")
        again = stores.open()
        assert read_bodies(again, "A", 0) == bodies

    def test_an_index_file_that_makes_no_sense(self, stores: Any, put: Any, tmp_path: Path) -> None:
        store = stores.open()
        fill(store, put)
        store.close(NOW_MS)
        newest = max((stores.root / "index").iterdir())
        newest.write_bytes(bytes(newest.stat().st_size))
        again = stores.open()
        assert len(again.query("A", "n118", 9, 0, FOREVER).slices) == 1
        again.close(NOW_MS)
        check_equals_rebuild(stores, tmp_path)

    @pytest.mark.parametrize("header", [bytes(40), b"\xff" * 40], ids=["zeros", "ones"])
    def test_an_index_file_between_others_after_the_log_lost_its_first_file(
        self, stores: Any, put: Any, read_bodies: Any, header: bytes
    ) -> None:
        """The count of entries does not reveal the loss: expired entries are missing, too."""
        store = stores.open()
        fill(store, put)
        store.close(NOW_MS)
        min((stores.root / "commitlog").iterdir()).unlink()
        between = sorted((stores.root / "index").iterdir())[-2]
        between.write_bytes(header + between.read_bytes()[40:])
        again = stores.open()
        count = sum(len(read_bodies(again, topic, queue)) for topic in "AB" for queue in range(3))
        found = sum(
            len(again.query(topic, f"n{number}", 9, 0, FOREVER).slices)
            for topic in "AB"
            for number in range(120)
        )
        assert 0 < found == count


class TestDeletedTopics:
    def test_count_from_0_again_and_do_not_come_back(
        self, stores: Any, put: Any, read_bodies: Any
    ) -> None:
        store = stores.open()
        fill(store, put, 60)
        store.delete_topic("A")
        assert store.topics() == ["B"]
        assert store.max_queue_offset("A", 0) == 0
        assert not (stores.root / "consumequeue/A").exists()
        assert put(store, "A", 0, b"second life").queue_offset == 0
        stores.kill(store)
        shutil.rmtree(stores.root / "consumequeue")
        again = stores.open()
        assert read_bodies(again, "A", 0) == [b"second life"]
        assert again.queue_ids("A") == [0]
        assert len(again.query("A", "n0", 9, 0, FOREVER).slices) == 1, "the log keeps the record"

    def test_deleted_before_its_messages_were_visible(
        self, stores: Any, put: Any, held_disk: Any, read_bodies: Any
    ) -> None:
        from turbopump.engine.types import FlushMode

        stores.configure(flush_disk_type=FlushMode.SYNC_FLUSH)
        store = stores.open(held_disk)
        held_disk.drain()
        put(store, "A", 0, b"old")
        put(store, "A", 0, b"old")
        store.delete_topic("A")
        assert put(store, "A", 0, b"new").queue_offset == 0
        held_disk.drain()
        assert read_bodies(store, "A", 0) == [b"new"]

    def test_a_log_cut_below_a_deletion(self, stores: Any, put: Any, read_bodies: Any) -> None:
        store = stores.open()
        put(store, "B", 0, b"kept")
        end = store.max_log_offset
        fill(store, put, 3)
        store.delete_topic("A")
        stores.kill(store)
        path = last_file(stores.root)
        data = path.read_bytes()
        path.write_bytes(data[:end] + bytes(len(data) - end))
        again = stores.open()
        assert again.max_log_offset == end
        assert put(again, "A", 0, b"new").queue_offset == 0
        stores.kill(again)
        assert read_bodies(stores.open(), "A", 0) == [b"new"]


class TestRefused:
    def test_a_folder_in_use_by_this_process(self, stores: Any) -> None:
        stores.open()
        with pytest.raises(StoreError, match="in use by a running broker"):
            stores.open()

    def test_a_folder_in_use_by_another_process(self, stores: Any) -> None:
        """RocketMQ's lock is a POSIX record lock on byte 0."""
        stores.open().close(NOW_MS)
        code = (
            "import fcntl,sys;f=open(sys.argv[1],'r+');"
            "fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB,1);"
            "print('held',flush=True);sys.stdin.read()"
        )
        command = [sys.executable, "-c", code, str(stores.root / "lock")]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as holder:
            assert holder.stdout is not None and holder.stdout.readline() == "held\n"
            with pytest.raises(StoreError, match="in use by a running broker"):
                stores.open()
            holder.communicate("")
        store = stores.open()
        taken = subprocess.run(command, input="", capture_output=True, text=True)
        assert "BlockingIOError" in taken.stderr or "Resource temporarily" in taken.stderr
        store.close(NOW_MS)

    def test_a_missing_log_file(self, stores: Any, put: Any) -> None:
        store = stores.open()
        fill(store, put, 200)
        store.close(NOW_MS)
        sorted((stores.root / "commitlog").iterdir())[1].unlink()
        with pytest.raises(StoreError, match=r"0{15}16384 is missing while .*0{15}32768 exists"):
            stores.open()

    def test_queues_without_a_log(self, stores: Any, put: Any) -> None:
        store = stores.open()
        fill(store, put, 10)
        store.close(NOW_MS)
        shutil.rmtree(stores.root / "commitlog")
        with pytest.raises(StoreError, match="holds no commit log"):
            stores.open()

    def test_a_single_short_file(self, stores: Any, put: Any) -> None:
        store = stores.open()
        fill(store, put, 10)
        store.close(NOW_MS)
        (path,) = (stores.root / "commitlog").iterdir()
        path.write_bytes(path.read_bytes()[:9000])
        with pytest.raises(StoreError, match="has 9000 bytes, but the store is configured for"):
            stores.open()

    def test_a_short_file_with_records_behind_it(self, stores: Any, put: Any) -> None:
        store = stores.open()
        fill(store, put, 200)
        store.close(NOW_MS)
        second = sorted((stores.root / "commitlog").iterdir())[1]
        second.write_bytes(second.read_bytes()[:9000])
        with pytest.raises(StoreError, match="cut short, but records follow"):
            stores.open()

    def test_a_refusal_releases_the_folder(self, stores: Any, put: Any) -> None:
        stores.open().close(NOW_MS)
        (stores.root / "commitlog" / f"{0:020d}").write_bytes(b"x" * 100)
        for _ in range(2):
            with pytest.raises(StoreError, match="configured for"):
                stores.open()

    def test_a_folder_that_cannot_be_read(self, stores: Any) -> None:
        stores.root.write_text("a file")
        with pytest.raises(StoreError, match="cannot be opened"):
            stores.open()


def test_an_empty_last_file_is_a_crash_while_it_was_made(stores: Any, put: Any) -> None:
    store = stores.open()
    fill(store, put, 10)
    stores.kill(store)
    names = sorted((stores.root / "commitlog").iterdir())
    names[-1].write_bytes(b"")
    assert stores.open().max_log_offset == store.max_log_offset


def test_unknown_files_and_folders_are_let_be(stores: Any, put: Any) -> None:
    store = stores.open()
    put(store)
    store.close(NOW_MS)
    for name in ("commitlog/notes.txt", "consumequeue/T/0/x", "index/readme", "consumequeue/f"):
        (stores.root / name).write_text("mine")
    (stores.root / "commitlog" / f"{99:020d}").mkdir()
    again = stores.open()
    assert put(again).queue_offset == 1


def test_names_of_queues_that_are_none_do_not_leave_the_folder(stores: Any, put: Any) -> None:
    """The topic in a record of a damaged or hostile log is no valid folder name."""
    store = stores.open()
    put(store, "TopicX", 0, b"evil")
    put(store, "T", 0, b"good")
    store.close(NOW_MS)
    (path,) = (stores.root / "commitlog").iterdir()
    path.write_bytes(path.read_bytes().replace(b"TopicX", b"../../"))
    shutil.rmtree(stores.root / "consumequeue")
    (stores.root / "checkpoint").unlink()
    again = stores.open()
    assert again.topics() == ["T"]
    assert json.dumps(sorted(path.name for path in stores.root.parent.iterdir())) == '["store"]'
    assert again.append(NewMessage("../../", 0, b""), NOW_MS).status is PutStatus.MESSAGE_ILLEGAL


def open_below(root: Path) -> int:
    """Number of files below a folder that this process holds open or mapped."""
    count = sum(f" {root}/" in line for line in Path("/proc/self/maps").read_text().splitlines())
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{descriptor}").startswith(f"{root}/")
        except FileNotFoundError:
            continue
    return count


def test_a_closed_store_holds_no_file_open(stores: Any, put: Any) -> None:
    store = stores.open()
    fill(store, put, 60)
    assert open_below(stores.root) > 6
    view = store.read("A", 0, 0, 1).slices[0]
    store.close(NOW_MS)
    assert open_below(stores.root) == 1, "the view that a reader still holds"
    assert bytes(view)
    del view
    assert open_below(stores.root) == 0
