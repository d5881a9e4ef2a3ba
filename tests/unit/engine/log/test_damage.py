"""Damage in the middle of the log: found, reported, never served, never copied, never truncated."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import delete_expired

from turbopump.engine.disk import checkpoint as checkpoints
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.log.damage import FILE_NAME
from turbopump.engine.snapshot.inspect import Deviation as InspectDamage
from turbopump.engine.snapshot.inspect import StoreFile, walk_log
from turbopump.engine.types import NewMessage, PutStatus, StoreError
from turbopump.pyx.region import Region

NOW_MS = 1_700_000_000_000
FOREVER = 1 << 62
FILE_SIZE = 16 * 1024
BODY_AT = 84 + 4


def fill(store: Any, put: Any, count: int = 60) -> list[int]:
    """Messages in two queues over several files; returns where their records begin."""
    return [
        put(
            store,
            "T",
            number % 2,
            b"%04d" % number + bytes(600),
            NOW_MS + number * 5000,
            KEYS=f"k{number}",
        ).log_offsets[0]
        for number in range(count)
    ]


def file_of(stores: Any, log_offset: int) -> Path:
    return Path(stores.root / "commitlog" / f"{log_offset // FILE_SIZE * FILE_SIZE:020d}")


def scribble(stores: Any, log_offset: int, data: bytes) -> None:
    with file_of(stores, log_offset).open("r+b") as file:
        file.seek(log_offset % FILE_SIZE)
        file.write(data)


def numbers(store: Any) -> list[int]:
    """Numbers of the messages that a consumer of both queues receives."""
    found = []
    for queue_id in (0, 1):
        at = store.min_queue_offset("T", queue_id)
        while at < store.max_queue_offset("T", queue_id):
            result = store.read("T", queue_id, at, 32)
            assert result.next_queue_offset > at
            at = result.next_queue_offset
            assert result.size == sum(len(piece) for piece in result.slices)
            for piece in result.slices:
                data = bytes(piece)
                while data:
                    size = int.from_bytes(data[:4], "big")
                    found.append(int(data[BODY_AT : BODY_AT + 4]))
                    data = data[size:]
    return sorted(found)


def check_refused(store: Any, stores: Any, log_offset: int) -> None:
    """Check that the store names the damaged place, and refuses writes."""
    place = store.damage
    assert (place.log_offset, place.position) == (log_offset, log_offset % FILE_SIZE)
    assert place.file == str(file_of(stores, log_offset))
    refused = store.append(NewMessage("T", 0, b"x"), NOW_MS)
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert f"{place.file} is damaged at byte {place.position}" in refused.reason


@contextmanager
def mapped(path: str) -> Iterator[Region]:
    file = RealFiles().open(path, readonly=True)
    yield file.region
    file.close()


BODY = (BODY_AT, b"\xff")
SIZE = (0, b"\0\0\x01\x00")
MAGIC = (4, b"\0")
ELSEWHERE = (35, b"\x01")
ZEROS = (0, bytes(512))


@pytest.mark.parametrize("at,data", [BODY, SIZE, MAGIC, ELSEWHERE, ZEROS])
@pytest.mark.parametrize("number", [3, 30])
def test_a_read_finds_it_and_goes_on_behind_it(
    stores: Any, put: Any, at: int, data: bytes, number: int
) -> None:
    store = stores.open()
    starts = fill(store, put)
    store.close(NOW_MS)
    scribble(stores, starts[number] + at, data)
    store = stores.open()
    assert store.damage is None, "a clean start does not read the log"
    assert numbers(store) == [other for other in range(60) if other != number]
    check_refused(store, stores, starts[number])
    assert [place.log_offset for place in store.damages] == [starts[number]]
    assert store.damages[0].end == starts[number + 1]
    assert store.record(starts[number]) is None
    assert not store.query("T", f"k{number}", 9, 0, FOREVER).slices
    assert numbers(store) == [other for other in range(60) if other != number]
    # The same place as `turbopump inspect log` shows.
    files = [
        StoreFile(str(path), path.name, int(path.name))
        for path in sorted((stores.root / "commitlog").iterdir())
    ]
    shown = [line for line in walk_log(files, mapped) if isinstance(line, InspectDamage)]
    assert (shown[0].file, shown[0].position) == (store.damage.file, store.damage.position)


def test_a_record_in_the_body_of_a_damaged_one_is_not_the_next(stores: Any, put: Any) -> None:
    store = stores.open()
    starts = fill(store, put, 3)
    inner = file_of(stores, 0).read_bytes()[: starts[1]]
    [outer] = put(store, "T", 0, inner, NOW_MS).log_offsets
    [last] = put(store, "T", 0, b"0004", NOW_MS).log_offsets
    store.close(NOW_MS)
    scribble(stores, outer, SIZE[1])
    store = stores.open()
    assert numbers(store) == [0, 1, 2, 4]
    assert [(place.log_offset, place.end) for place in store.damages] == [(outer, last)]


def test_a_search_by_key_finds_it(stores: Any, put: Any) -> None:
    store = stores.open()
    starts = fill(store, put)
    scribble(stores, starts[7] + BODY_AT, b"\xff")
    assert not store.query("T", "k7", 9, 0, FOREVER).slices
    check_refused(store, stores, starts[7])


def test_it_outlives_the_process_until_the_place_is_whole_again(stores: Any, put: Any) -> None:
    store = stores.open()
    starts = fill(store, put)
    scribble(stores, starts[7] + BODY_AT, b"\xff")
    numbers(store)
    store.tick(NOW_MS)
    stores.kill(store)
    saved = json.loads((stores.root / "config" / FILE_NAME).read_text())
    assert [place["log_offset"] for place in saved["places"]] == [starts[7]]
    store = stores.open()
    check_refused(store, stores, starts[7])
    store.close(NOW_MS)
    store = stores.open()
    check_refused(store, stores, starts[7])
    store.close(NOW_MS)
    scribble(stores, starts[7] + BODY_AT, b"0")
    store = stores.open()
    assert store.damage is None
    put(store)
    assert json.loads((stores.root / "config" / FILE_NAME).read_text()) == {"places": []}


class TestUnits:
    """A queue unit has no checksum, but its record has the topic, queue and offset of the
    message."""

    def damage(self, stores: Any, number: int, at: int, data: bytes) -> Path:
        path = sorted((stores.root / "consumequeue/T/0").iterdir())[number // 10]
        write = number % 10 * 20 + at
        with path.open("r+b") as file:
            file.seek(write)
            file.write(data)
        return Path(path)

    KINDS = (
        "inside", "another", "size", "beyond", "zeros", "far back", "next", "negative size",
        "negative offset",
    )  # fmt: skip

    @pytest.mark.parametrize("number", [0, 3, 9, 10, 29])
    @pytest.mark.parametrize("what", KINDS)
    def test_it_is_put_right_from_the_log(
        self, stores: Any, put: Any, number: int, what: str, caplog: Any
    ) -> None:
        store = stores.open()
        starts = fill(store, put)
        own = starts[2 * number]
        wrong = {
            "inside": (own + 4, 704),
            "another": (starts[2 * number + 1], 704),
            "size": (own, 700),
            "beyond": (1 << 50, 704),
            "zeros": (0, 0),
            "far back": (starts[40], 704),
            "next": (starts[(2 * number + 2) % 60], 704),
            "negative size": (own, 704 | 1 << 31),
            "negative offset": (own | 1 << 63, 704),
        }[what]
        before = sorted(path.read_bytes() for path in (stores.root / "consumequeue/T/0").iterdir())
        path = self.damage(stores, number, 0, wrong[0].to_bytes(8) + wrong[1].to_bytes(4))
        assert numbers(store) == list(range(60))
        after = sorted(path.read_bytes() for path in (stores.root / "consumequeue/T/0").iterdir())
        assert after == before
        assert store.damage is None
        if (number, what) not in ((0, "zeros"), (20, "far back")):
            assert f"{path} is damaged at byte {number % 10 * 20}" in caplog.text
        put(store)

    @pytest.mark.parametrize("length", [1, 9, 32])
    @pytest.mark.parametrize("other", ["topic", "queue"])
    @pytest.mark.parametrize("lost", [False, True])
    def test_a_store_of_another_owner_is_not_served(
        self, stores: Any, put: Any, length: int, other: str, lost: bool
    ) -> None:
        """Messages alternate between two topics: the other's message has the same number, and
        directly follows the expected message."""
        store = stores.open()
        theirs = ("U", 0) if other == "topic" else ("T", 1)
        starts = []
        for number in range(20):
            starts.append(put(store, "T", 0, b"%04d" % (2 * number)).log_offsets[0])
            wrong = put(store, *theirs, b"%04d" % (2 * number + 1)).log_offsets[0]
            if number == 7:
                self.damage(stores, number, 0, wrong.to_bytes(8))
                if lost:
                    scribble(stores, starts[7] + BODY_AT, b"\xff")
        bodies, at = [], 0
        while at < 20:
            result = store.read("T", 0, at, length)
            at = result.next_queue_offset
            for piece in map(bytes, result.slices):
                size = int.from_bytes(piece[:4], "big")
                bodies += [int(piece[n + BODY_AT :][:4]) for n in range(0, len(piece), size)]
        assert bodies == [2 * number for number in range(20) if not lost or number != 7]

    def test_a_former_life_of_the_topic_is_not_looked_at(self, stores: Any, put: Any) -> None:
        store = stores.open()
        put(store, "T", 0, b"0098" + bytes(600))
        store.delete_topic("T")
        starts = fill(store, put)
        self.damage(stores, 0, 0, (starts[0] + 4).to_bytes(8))
        assert numbers(store) == list(range(60))

    def test_one_whose_record_is_damaged_too_stays(self, stores: Any, put: Any) -> None:
        store = stores.open()
        starts = fill(store, put)
        self.damage(stores, 3, 0, (starts[6] + 4).to_bytes(8))
        scribble(stores, starts[6] + BODY_AT, b"\xff")
        for _ in range(2):
            assert numbers(store) == [number for number in range(60) if number != 6]

    @pytest.mark.parametrize("data", [bytes(12), b"\xff" * 12])
    def test_the_reader_goes_on_right_behind_one_that_stays(
        self, stores: Any, put: Any, data: bytes, caplog: Any
    ) -> None:
        store = stores.open()
        starts = fill(store, put)
        path = self.damage(stores, 3, 0, data)
        scribble(stores, starts[6] + BODY_AT, b"\xff")
        for _ in range(2):
            assert numbers(store) == [number for number in range(60) if number != 6]
        text = f"{path} at byte 60: unit 3 of T/0 does not point to that message"
        assert caplog.text.count(text) == 1


class TestCutShort:
    """A file of queues or index that lost its end, or is missing, is rebuilt from the log, too."""

    def lose(self, path: Path, how: str) -> None:
        if how == "gone":
            path.unlink()
        else:
            with path.open("r+b") as file:
                file.truncate(path.stat().st_size // 2 + 7)

    @pytest.mark.parametrize("how", ["gone", "short"])
    @pytest.mark.parametrize("number", [0, 1, -1])
    @pytest.mark.parametrize("marks", [True, False])
    @pytest.mark.parametrize("end", ["close", "kill"])
    def test_of_a_queue(
        self, stores: Any, put: Any, how: str, number: int, marks: bool, end: str
    ) -> None:
        if not marks and end == "close" and how == "gone":
            number = 1  # The loss of the first or last file leaves no trace.
        store = stores.open()
        fill(store, put)
        settle_and_stop(store, stores, end)
        if not marks:
            (stores.root / "checkpoint").unlink()
        path = sorted((stores.root / "consumequeue/T/0").iterdir())[number]
        before = path.read_bytes()
        self.lose(path, how)
        store = stores.open()
        assert numbers(store) == list(range(60))
        assert path.read_bytes() == before
        put(store)

    @pytest.mark.parametrize("number", [0, -1])
    def test_of_the_index(self, stores: Any, put: Any, number: int) -> None:
        stores.configure(max_hash_slot_num=10, max_index_num=12)
        store = stores.open()
        fill(store, put)
        store.close(NOW_MS)
        path = sorted((stores.root / "index").iterdir())[number]
        self.lose(path, "short")
        store = stores.open()
        for number in range(60):
            assert len(store.query("T", f"k{number}", 9, 0, FOREVER).slices) == 1

    def test_of_the_log_is_named(self, stores: Any, put: Any, caplog: Any) -> None:
        store = stores.open()
        fill(store, put)
        store.close(NOW_MS)
        file_of(stores, 0).unlink()
        store = stores.open()
        assert f"{stores.root}/commitlog begins at {FILE_SIZE}, but began at 0 when" in caplog.text
        caplog.clear()
        store.close(NOW_MS)
        stores.open()
        assert "began at" not in caplog.text

    def test_the_configuration_may_be_the_wrong_part(self, stores: Any, put: Any) -> None:
        store = stores.open()
        fill(store, put)
        store.close(NOW_MS)
        before = sorted((stores.root / "consumequeue/T/0").iterdir())
        stores.configure(mapped_file_size_consume_queue=100_000)
        with pytest.raises(StoreError, match="has 200 bytes, but the store is configured for"):
            stores.open()
        assert sorted((stores.root / "consumequeue/T/0").iterdir()) == before


def settle_and_stop(store: Any, stores: Any, end: str) -> None:
    if end == "close":
        store.close(NOW_MS)
    else:
        stores.kill(store)


class TestRebuild:
    """Queues are rebuilt from the log: damaged records are skipped, all others are there again."""

    @pytest.mark.parametrize("at,data", [BODY, SIZE, MAGIC, ELSEWHERE, ZEROS])
    @pytest.mark.parametrize("gone", ["consumequeue", "checkpoint", "both"])
    @pytest.mark.parametrize("end", ["close", "kill"])
    def test_of_queues(
        self, stores: Any, put: Any, at: int, data: bytes, gone: str, end: str
    ) -> None:
        store = stores.open()
        starts = fill(store, put)
        for second in range(1, 70):
            store.tick(NOW_MS + second * 1000)
        log_end = store.max_log_offset
        if end == "close":
            store.close(NOW_MS)
        else:
            stores.kill(store)
        scribble(stores, starts[25] + at, data)
        if gone in ("consumequeue", "both"):
            shutil.rmtree(stores.root / "consumequeue")
        if gone in ("checkpoint", "both"):
            saved = checkpoints.load(RealFiles(), str(stores.root))
            # RocketMQ's checkpoint has only its times.
            theirs = checkpoints.Checkpoint(
                saved.log_timestamp_ms, saved.queue_timestamp_ms, saved.index_timestamp_ms
            )
            checkpoints.save(RealFiles(), str(stores.root), theirs)
        store = stores.open()
        assert store.max_log_offset == log_end, "the log is not cut at damage"
        assert numbers(store) == [number for number in range(60) if number != 25]
        check_refused(store, stores, starts[25])
        assert store.max_queue_offset("T", 0) == 30
        before = [store.max_queue_offset("T", queue_id) for queue_id in (0, 1)]
        store.close(NOW_MS)
        store = stores.open()
        assert [store.max_queue_offset("T", queue_id) for queue_id in (0, 1)] == before
        check_refused(store, stores, starts[25])


@pytest.mark.parametrize("number,kept", [(50, True), (58, False)])
def test_where_rocketmqs_times_call_it_durable(
    stores: Any, put: Any, number: int, kept: bool
) -> None:
    """A killed store without Turbopump's mark: a record 3 s older than the checkpoint was
    durable."""
    store = stores.open()
    starts = fill(store, put)
    for second in range(1, 70):
        store.tick(NOW_MS + second * 1000)
    stores.kill(store)
    saved = checkpoints.load(RealFiles(), str(stores.root))
    assert saved.log_timestamp_ms == NOW_MS + 59 * 5000
    theirs = checkpoints.Checkpoint(saved.log_timestamp_ms, saved.queue_timestamp_ms)
    checkpoints.save(RealFiles(), str(stores.root), theirs)
    scribble(stores, starts[number] + BODY_AT, b"\xff")
    store = stores.open()
    if kept:
        assert numbers(store) == [other for other in range(60) if other != number]
        check_refused(store, stores, starts[number])
    else:
        assert (store.max_log_offset, store.damage) == (starts[number], None)


def test_behind_the_durable_mark_a_torn_record_is_the_end(stores: Any, put: Any) -> None:
    """A torn record cannot be distinguished from pages that a power cut wrote out of order."""
    store = stores.open()
    starts = fill(store, put)
    stores.kill(store)
    scribble(stores, starts[30] + BODY_AT, b"\xff")
    store = stores.open()
    assert (store.max_log_offset, store.damage) == (starts[30], None)


class TestWaysOut:
    def damaged(self, stores: Any, put: Any, *which: int) -> tuple[Any, list[int]]:
        store = stores.open()
        starts = fill(store, put)
        for number in which:
            scribble(stores, starts[number] + BODY_AT, b"\xff")
        numbers(store)
        return store, starts

    def test_cut_the_log_there(self, stores: Any, put: Any) -> None:
        store, starts = self.damaged(stores, put, 5, 7)
        store.truncate(starts[7], NOW_MS)
        assert [place.log_offset for place in store.damages] == [starts[5]]
        store.truncate(starts[5], NOW_MS)
        assert (store.damage, store.max_log_offset) == (None, starts[5])
        assert numbers(store) == list(range(5))
        put(store, "T", 0, b"0099")
        store.close(NOW_MS)
        assert numbers(stores.open()) == [0, 1, 2, 3, 4, 99]

    def test_give_the_record_up(self, stores: Any, put: Any) -> None:
        store, starts = self.damaged(stores, put, 5, 7)
        with pytest.raises(StoreError, match=rf"no damage is known at log offset 1; .*{starts[5]}"):
            store.skip_damaged_record(1)
        store.skip_damaged_record(starts[5])
        check_refused(store, stores, starts[7])
        store.skip_damaged_record(starts[7])
        assert store.damage is None
        put(store, "T", 0, b"0099")
        expected = [number for number in range(60) if number not in (5, 7)] + [99]
        assert numbers(store) == expected
        store.close(NOW_MS)
        store = stores.open()
        assert (store.damage, len(store.damages)) == (None, 2)
        assert numbers(store) == expected

    def test_the_rest_of_the_log_may_be_gone_with_it(self, stores: Any, put: Any) -> None:
        store = stores.open()
        starts = fill(store, put)
        scribble(stores, starts[-1], b"\xee" * 200)
        assert numbers(store) == list(range(59))
        assert (store.damage.log_offset, store.damage.end) == (starts[-1], store.max_log_offset)


def test_age_takes_damage_with_it(stores: Any, put: Any, settle: Any) -> None:
    store = stores.open()
    starts = fill(store, put)
    scribble(stores, starts[5] + BODY_AT, b"\xff")
    numbers(store)
    late_ms = settle(store) * 2
    assert delete_expired(store, late_ms) > 0
    store.tick(late_ms)
    assert starts[5] < store.min_log_offset
    assert store.damage is None
    put(store)


def test_a_list_that_is_none_is_named(stores: Any) -> None:
    stores.open().close(NOW_MS)
    (stores.root / "config").mkdir(exist_ok=True)
    (stores.root / "config" / FILE_NAME).write_text('{"places": [{"log_offset": "x"}]}')
    with pytest.raises(StoreError, match=FILE_NAME):
        stores.open()
