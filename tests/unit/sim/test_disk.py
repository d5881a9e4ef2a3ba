"""The simulated disk loses only the data that a real disk may lose."""

import errno
import random
from collections.abc import Callable

import pytest
from tests.sim.disk import PowerCut, SimDisk
from tests.sim.nodes import PAGE, SECTOR

ROUNDS = 60


def outcomes(prepare: Callable[[SimDisk], None], look: Callable[[SimDisk], object]) -> set[object]:
    """The different states found after a power cut, over many seeds."""
    found = set()
    for seed in range(ROUNDS):
        disk = SimDisk(random.Random(seed), lambda: 0)
        prepare(disk)
        disk.end()
        disk.restart()
        found.add(look(disk))
    return found


def pages(disk: SimDisk) -> str:
    """The first byte of each page of /f/a, as a letter."""
    content = disk.content("/f/a")
    return "".join(chr(content[at] or ord(".")) for at in range(0, len(content), PAGE))


def make(disk: SimDisk, size: int = 3 * PAGE) -> None:
    """A durable file of zeros with blocks."""
    disk.make_folders("/f")
    mapped = disk.create("/f/a", size)
    mapped.reserve(0, size)
    mapped.sync(0, size)
    disk.sync_folder("/f")
    disk.sync_folder("/")


def store(disk: SimDisk, text: str) -> None:
    """Store a letter at the beginning of each page."""
    region = disk.open("/f/a").region
    for number, letter in enumerate(text):
        region.write(number * PAGE, letter.encode())


def test_any_subset_of_unsynced_pages_survives() -> None:
    def prepare(disk: SimDisk) -> None:
        make(disk)
        store(disk, "abc")

    assert outcomes(prepare, pages) == {
        "...",
        "a..",
        ".b.",
        "..c",
        "ab.",
        "a.c",
        ".bc",
        "abc",
    }


def test_synced_pages_survive_and_only_those_surely() -> None:
    def prepare(disk: SimDisk) -> None:
        make(disk)
        store(disk, "abc")
        disk.open("/f/a").sync(PAGE, PAGE + 1)

    assert outcomes(prepare, pages) == {".b.", "ab.", ".bc", "abc"}


def test_a_page_may_have_been_written_back_in_between() -> None:
    def prepare(disk: SimDisk) -> None:
        make(disk, PAGE)
        store(disk, "a")
        for _ in range(2):
            disk.writeback()
        store(disk, "b")

    assert outcomes(prepare, pages) == {".", "a", "b"}


def test_torn_pages_lose_sectors() -> None:
    def prepare(disk: SimDisk) -> None:
        disk.torn_pages = True
        make(disk, PAGE)
        disk.open("/f/a").region.write(0, b"x" * 3 * SECTOR)

    found = outcomes(prepare, lambda disk: bytes(disk.content("/f/a")[: 3 * SECTOR : SECTOR]))
    assert len(found) == 8


def test_a_name_is_durable_with_its_folder_alone() -> None:
    def prepare(disk: SimDisk) -> None:
        disk.make_folders("/f")
        disk.sync_folder("/")
        disk.create("/f/a", PAGE).sync(0, PAGE)

    assert outcomes(prepare, lambda disk: disk.exists("/f/a")) == {False, True}
    assert outcomes(
        lambda disk: (prepare(disk), disk.sync_folder("/f"))[0],
        lambda disk: disk.exists("/f/a"),
    ) == {True}


def test_folders_are_entries_of_their_parents() -> None:
    def prepare(disk: SimDisk) -> None:
        disk.make_folders("/f/g")
        disk.create("/f/g/a", PAGE).sync(0, PAGE)
        disk.sync_folder("/f/g")
        disk.sync_folder("/f")

    assert outcomes(prepare, lambda disk: disk.exists("/f/g/a")) == {False, True}


def test_a_rename_is_one_change_and_a_removal_may_be_taken_back() -> None:
    def prepare(disk: SimDisk) -> None:
        make(disk)
        disk.rename("/f/a", "/f/b")

    assert outcomes(prepare, lambda disk: tuple(disk.list_folder("/f"))) == {("a",), ("b",)}

    def remove(disk: SimDisk) -> None:
        make(disk)
        disk.remove("/f/a")

    assert outcomes(remove, lambda disk: disk.exists("/f/a")) == {False, True}


def test_changes_survive_in_any_order_or_as_a_journal_keeps_them() -> None:
    def prepare(disk: SimDisk) -> None:
        make(disk)
        disk.create("/f/b", PAGE)
        disk.create("/f/c", PAGE)

    def names(disk: SimDisk) -> object:
        return "".join(disk.list_folder("/f"))

    def ordered(disk: SimDisk) -> None:
        disk.ordered = True
        prepare(disk)

    assert outcomes(prepare, names) == {"a", "ab", "ac", "abc"}
    assert outcomes(ordered, names) == {"a", "ab", "abc"}


def test_an_unsynced_replacement_leaves_the_old_content_or_a_torn_new_one() -> None:
    def prepare(disk: SimDisk) -> None:
        disk.make_folders("/f")
        disk.write("/f/a", b"o" * 10)
        disk.sync("/f/a")
        disk.sync_folder("/f")
        disk.sync_folder("/")
        disk.write("/f/a", b"n" * 20)

    found = outcomes(prepare, lambda disk: bytes(disk.content("/f/a")))
    assert {b"", b"o" * 10, b"n" * 20} <= found
    assert all(set(text) <= set(b"o") or set(text) <= set(b"n\0") for text in found)


def test_a_new_file_has_its_length_or_none() -> None:
    def prepare(disk: SimDisk) -> None:
        disk.make_folders("/f")
        disk.create("/f/a", 3 * PAGE)
        disk.sync_folder("/f")
        disk.sync_folder("/")

    assert outcomes(prepare, lambda disk: disk.file_size("/f/a")) == {0, 3 * PAGE}


def test_a_kill_loses_nothing_but_a_power_cut_after_it_does() -> None:
    def prepare(disk: SimDisk) -> None:
        make(disk, PAGE)
        store(disk, "a")
        disk.kill = True
        disk.end()
        disk.restart()
        assert pages(disk) == "a"

    assert outcomes(prepare, pages) == {".", "a"}


def test_pages_of_a_failed_sync_count_as_clean() -> None:
    def prepare(disk: SimDisk) -> None:
        make(disk, PAGE)
        store(disk, "a")
        mapped = disk.open("/f/a")
        disk.fail_syncs = 1
        with pytest.raises(OSError) as failure:
            mapped.sync(0, PAGE)
        assert failure.value.errno == errno.EIO
        mapped.sync(0, PAGE)

    assert outcomes(prepare, pages) == {"."}

    def touched(disk: SimDisk) -> None:
        prepare(disk)
        mapped = disk.open("/f/a")
        mapped.mark_dirty(0, PAGE)
        mapped.sync(0, PAGE)

    assert outcomes(touched, pages) == {"a"}

    def changed(disk: SimDisk) -> None:
        prepare(disk)
        store(disk, "b")
        disk.open("/f/a").sync(0, PAGE)

    assert outcomes(changed, pages) == {"b"}


def test_lost_pages_may_be_read_again() -> None:
    disk = SimDisk(random.Random(1), lambda: 0)
    make(disk, PAGE)
    store(disk, "a")
    disk.fail_syncs = 1
    with pytest.raises(OSError, match="input/output"):
        disk.sync("/f/a")
    disk.forget_lost()
    assert pages(disk) == "."


def test_full_and_read_only() -> None:
    disk = SimDisk(random.Random(1), lambda: 0)
    make(disk)
    disk.full = True
    with pytest.raises(OSError, match="no space"):
        disk.create("/f/b", PAGE)
    disk.write("/f/a", b"inside", 10)
    disk.open("/f/a").reserve(0, PAGE)
    disk.remove("/f/a")
    disk.full, disk.readonly = False, True
    with pytest.raises(OSError, match="read-only"):
        disk.sync_folder("/f")


def test_a_store_into_a_hole_is_found() -> None:
    disk = SimDisk(random.Random(1), lambda: 0)
    disk.make_folders("/f")
    mapped = disk.create("/f/a", 2 * PAGE)
    mapped.reserve(0, PAGE)
    mapped.region.write(PAGE - 1, b"ab")
    with pytest.raises(AssertionError, match="without a block"):
        mapped.sync(0, 2 * PAGE)


def test_nothing_happens_after_the_end() -> None:
    disk = SimDisk(random.Random(1), lambda: 0)
    make(disk)
    region = disk.open("/f/a").region
    disk.cut_after = 1
    disk.make_folders("/g")
    with pytest.raises(PowerCut):
        disk.sync("/f/a")
    region.write(0, b"late")
    for late in (lambda: disk.remove("/f/a"), lambda: disk.write("/f/b", b"late")):
        with pytest.raises(PowerCut):
            late()
    disk.restart()
    assert pages(disk) == "..."
    assert disk.list_folder("/f") == ["a"]


def test_a_lock_goes_with_its_process() -> None:
    disk = SimDisk(random.Random(1), lambda: 0)
    disk.make_folders("/f")
    disk.lock("/f/lock", b"lock")
    with pytest.raises(BlockingIOError):
        disk.lock("/f/lock", b"lock")
    disk.kill = True
    disk.end()
    disk.restart()
    disk.lock("/f/lock", b"lock").release()
    disk.lock("/f/lock", b"lock")


def test_a_file_knows_when_it_was_written() -> None:
    now_ms = [5]
    disk = SimDisk(random.Random(1), lambda: now_ms[0])
    make(disk)
    now_ms[0] = 9
    disk.sync("/f/a")
    assert disk.modified_ms("/f/a") == 5
    store(disk, "a")
    disk.sync("/f/a")
    assert disk.modified_ms("/f/a") == 9
