"""The epoch file: durable before its epoch is used, and not taken for a new one after damage."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sim.disk import PowerCut, SimDisk

from turbopump.engine.disk.atomic_replace import TEMPORARY
from turbopump.engine.log import epoch_lines
from turbopump.engine.log.epoch_file import BACKUP, DAMAGED, EpochFile, Trust
from turbopump.engine.log.epochs import Epochs, decode
from turbopump.engine.types import LogOffset, StoreError
from turbopump.pyx.crc32 import masked_crc32

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "ha" / "controller-json" / "epochs"
PATH = "/store/epochFileCheckpoint"
LINES = PATH + epoch_lines.SUFFIX


def epochs(pairs: dict[int, int]) -> Epochs:
    return Epochs.from_pairs(pairs.items())


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(random.Random(1), lambda: 0)
    disk.make_folders("/store")
    return disk


def opened(disk: SimDisk, log_end: int, log_min: int = 0) -> EpochFile:
    return EpochFile.open(disk, PATH, LogOffset(log_min), LogOffset(log_end))


def lined(disk: SimDisk, log_end: int, *, kept: bool = True) -> EpochFile:
    """An epoch file with its line file, as `Replicated` has it; `kept`: a list existed once, which
    is marked."""
    end = LogOffset(log_end)
    file = EpochFile.open(disk, PATH, LogOffset(0), end, never_kept=not kept)
    file.begin_lines()
    return file


def put(disk: SimDisk, text: bytes, name: str = PATH) -> None:
    disk.write(name, text)
    disk.settle()


def adopt_proven(file: EpochFile, entries: Epochs) -> None:
    """Replace the list by entries that a handshake proved to label this log."""
    file._replace_list(entries)
    file.trust, file.reason = Trust.WHOLE, ""


def test_a_store_without_a_byte_is_new(disk: SimDisk) -> None:
    file = opened(disk, 0)
    assert (file.trust, file.may_lead, file.epochs) == (Trust.NEW, True, Epochs())
    file.append(1, LogOffset(0))
    assert file.trust is Trust.WHOLE
    assert disk.read(PATH) == b"1\n1725254278\n1-0\n"
    assert opened(disk, 500).epochs == epochs({1: 0})


def test_changes_are_in_the_file_and_in_its_second_copy(disk: SimDisk) -> None:
    file = opened(disk, 0)
    file.append(1, LogOffset(0))
    file.append(2, LogOffset(0))
    file.append(5, LogOffset(900))
    file.append(6, LogOffset(2000))
    file.cut_entries(LogOffset(1000))
    assert file.epochs == epochs({1: 0, 2: 0, 5: 900})
    file._replace_list(file.epochs.without_expired(LogOffset(950)))
    assert file.epochs == epochs({5: 900})
    assert disk.read(PATH) == file.epochs.encode()
    assert decode(disk.read(PATH + BACKUP)) == (file.epochs, [b"current", b"number 6"])
    assert not disk.exists(PATH + TEMPORARY)
    file.cut_entries(LogOffset(900))
    assert disk.read(PATH) == b"0\n0\n"


def test_files_of_a_real_broker_are_believed(disk: SimDisk) -> None:
    put(disk, (GOLDEN / "6-end" / "a").read_bytes())
    put(disk, (GOLDEN / "6-end" / "a.bak").read_bytes(), PATH + BACKUP)
    file = opened(disk, 623578)
    assert (file.trust, file.lost_from) == (Trust.WHOLE, None)
    assert file.epochs == epochs({1: 0, 2: 407727, 3: 602849})
    assert decode(disk.read(PATH + BACKUP))[0] == file.epochs  # both copies have the same list now


def test_entries_behind_the_end_of_the_log_are_absent(disk: SimDisk) -> None:
    put(disk, epochs({1: 0, 2: 900, 3: 1000}).encode())
    file = opened(disk, 900)
    assert (file.epochs, file.lost_from) == (epochs({1: 0, 2: 900}), 1000)
    assert opened(disk, 900).lost_from is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda disk: disk.remove(PATH),
        lambda disk: put(disk, b""),
        lambda disk: put(disk, b"\0" * 20),
        lambda disk: put(disk, disk.read(PATH)[:-2]),
        lambda disk: put(disk, disk.read(PATH).replace(b"900", b"800")),
    ],
    ids=["missing", "empty", "zeroed", "cut", "changed"],
)
class TestDamage:
    def test_the_second_copy_stands_in(
        self, disk: SimDisk, damage: Callable[[SimDisk], None]
    ) -> None:
        file = opened(disk, 0)
        file.append(1, LogOffset(0))
        file.append(2, LogOffset(900))
        damage(disk)
        again = opened(disk, 1000)
        assert (again.trust, again.epochs) == (Trust.WHOLE, file.epochs)
        assert decode(disk.read(PATH))[0] == file.epochs

    def test_a_real_brokers_backup_is_believed_only_below_its_last_entry(
        self, disk: SimDisk, damage: Callable[[SimDisk], None]
    ) -> None:
        put(disk, epochs({1: 0, 2: 900, 3: 1200}).encode())
        put(disk, epochs({1: 0, 2: 900}).encode(), PATH + BACKUP)
        damage(disk)
        file = opened(disk, 1500)
        assert (file.trust, file.may_lead) == (Trust.UNPROVEN, False)
        assert (file.epochs, file.believed_end(LogOffset(1500))) == (epochs({1: 0}), 900)
        assert PATH in file.reason
        with pytest.raises(ValueError, match="no epoch can follow"):
            file.append(4, LogOffset(1500))
        # the refused change did not make the file look whole
        assert opened(disk, 1500).trust is Trust.UNPROVEN

    def test_without_any_copy_the_store_is_not_new(
        self, disk: SimDisk, damage: Callable[[SimDisk], None]
    ) -> None:
        put(disk, epochs({1: 0, 2: 900}).encode())
        damage(disk)
        file = opened(disk, 1500, log_min=300)
        assert (file.trust, file.may_lead, file.epochs) == (Trust.UNPROVEN, False, Epochs())
        assert file.believed_end(LogOffset(1500)) == 300
        assert ("it is missing" in file.reason) == (not disk.exists(PATH))

    def test_a_handshake_makes_it_whole_again(
        self, disk: SimDisk, damage: Callable[[SimDisk], None]
    ) -> None:
        put(disk, epochs({1: 0, 2: 900}).encode())
        damage(disk)
        was = disk.read(PATH) if disk.exists(PATH) else None
        file = opened(disk, 1500)
        file.cut_entries(LogOffset(0))
        adopt_proven(file, epochs({1: 0}))
        assert (file.trust, file.may_lead, file.reason) == (Trust.WHOLE, True, "")
        assert opened(disk, 10).epochs == epochs({1: 0})
        if was is not None:
            assert disk.read(PATH + DAMAGED) == was


def test_a_damaged_list_is_not_a_list_that_was_never_kept(disk: SimDisk) -> None:
    put(disk, b"1\n1725254279\n1-0\n")
    file = EpochFile.open(disk, PATH, LogOffset(0), LogOffset(1500), never_kept=True)
    assert (file.trust, file.may_lead) == (Trust.UNPROVEN, False)


def test_a_reader_takes_the_list_beside_a_damaged_second_copy() -> None:
    text = epochs({1: 0}).encode()
    found, faults = epoch_lines.newest_valid(text[:-2], text, None, is_marked=True)
    assert (found, len(faults)) == (epochs({1: 0}), 1)


def test_a_list_without_entries_labels_nothing(disk: SimDisk) -> None:
    put(disk, b"0\n0\n")
    assert opened(disk, 0).trust is Trust.NEW
    file = opened(disk, 10)
    assert file.trust is Trust.UNPROVEN and "no entries" in file.reason


def test_a_disk_that_fails_is_not_a_damaged_file(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(disk, epochs({1: 0}).encode())

    def failing(path: str) -> bytes:
        raise OSError(5, "input/output error", path)

    monkeypatch.setattr(disk, "read", failing)
    with pytest.raises(StoreError, match="cannot be used"):
        opened(disk, 10)


def test_a_change_that_fails_changes_nothing(disk: SimDisk) -> None:
    file = opened(disk, 0)
    file.append(1, LogOffset(0))
    disk.fail_syncs = 1
    with pytest.raises(OSError):
        file.append(2, LogOffset(50))
    assert file.epochs == epochs({1: 0})


def test_read_bytes_are_durable(disk: SimDisk) -> None:
    """A killed process may have left the file in the page cache only."""
    file = opened(disk, 0)
    file.append(1, LogOffset(0))
    later = SimDisk(random.Random(1), lambda: 0)
    later.make_folders("/store")
    adopt_proven(opened(later, 50), epochs({1: 0, 2: 50}))
    for name in (PATH + BACKUP, PATH):
        disk.write(name, later.read(name))
    assert opened(disk, 50).epochs == epochs({1: 0, 2: 50})
    assert disk.durable(PATH) == epochs({1: 0, 2: 50}).encode()


@pytest.mark.parametrize("ordered", [True, False])
def test_a_power_cut_anywhere_leaves_the_list_before_or_after(ordered: bool) -> None:
    """Each of the copies alone gives the list; a change that returned is never lost."""
    for seed in range(150):
        rng = random.Random(seed)
        disk = SimDisk(rng, lambda: 0)
        disk.ordered, disk.torn_pages = ordered, True
        disk.make_folders("/store")
        file = opened(disk, 0)
        file.append(1, LogOffset(0))
        before, log_end = file.epochs, 0
        disk.cut_after = rng.randrange(24)
        try:
            for epoch in range(2, 9):
                log_end += rng.choice([0, 100])
                file.append(epoch, LogOffset(log_end))
                before = file.epochs
        except PowerCut:
            pass
        disk.restart()
        after = before.with_epoch(before.last_epoch + 1, log_end)
        if rng.random() < 0.4:
            disk.remove(PATH)
            disk.settle()
        again = opened(disk, log_end)
        assert again.trust is Trust.WHOLE, f"seed {seed}: {again.reason}"
        assert again.epochs in (before, after), f"seed {seed}"


class Syncs:
    """Counts the syncs of a disk."""

    def __init__(self, disk: SimDisk, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = disk.check_sync

        def counted(*args: Any) -> None:
            self.count += 1
            real(*args)

        patch.setattr(disk, "check_sync", counted)


def test_a_change_is_one_sync(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for the first change of a new store, and while the copies are older."""
    file = lined(disk, 0, kept=False)
    syncs = Syncs(disk, monkeypatch)
    for epoch in (1, 2, 3):
        file.append(epoch, LogOffset(epoch))
        assert (syncs.count, file.is_behind, disk.exists(PATH)) == (epoch, True, False)
    file.write_copies()
    assert (file.is_behind, disk.read(PATH)) == (False, file.epochs.encode())
    before = syncs.count
    file.append(4, LogOffset(4))
    assert syncs.count == before + 1
    assert disk.read(LINES).startswith(epoch_lines.encode(4, file.epochs)), "over the former ones"
    disk.end()
    disk.restart()
    assert lined(disk, 10).epochs == epochs({1: 1, 2: 2, 3: 3, 4: 4})
    assert disk.read(PATH) == file.epochs.encode(), "RocketMQ's file follows at the next opening"


def test_a_line_that_is_torn_anywhere_is_none(disk: SimDisk) -> None:
    file = lined(disk, 0, kept=False)
    file.append(1, LogOffset(0))
    before = len(disk.read(LINES))
    file.append(2, LogOffset(50))
    text = disk.read(LINES)
    for size in range(before, len(text)):
        for torn in (text[:size], text[:size].ljust(len(text), b"\0")):
            put(disk, torn, LINES)
            again = EpochFile.open(disk, PATH, LogOffset(0), LogOffset(60), never_kept=True)
            assert again.epochs == epochs({1: 0}), size
            disk.remove(PATH)
            disk.remove(PATH + BACKUP)


def test_a_line_of_numbers_that_are_no_list_ends_the_lines() -> None:
    first, last = epoch_lines.encode(1, epochs({1: 0})), epoch_lines.encode(3, epochs({2: 9}))
    body = b"2 2-50 1-0"
    wrong = b"%d %b\n" % (masked_crc32(body), body)
    assert epoch_lines.read_newest_line(first + wrong + last) == (1, epochs({1: 0}), len(first))


def test_nothing_is_read_behind_a_line_that_failed(disk: SimDisk) -> None:
    """The next line replaces it, and its list does not count, although it may be on the disk."""
    file = lined(disk, 0, kept=False)
    file.append(1, LogOffset(0))
    disk.fail_syncs = 1
    with pytest.raises(OSError):
        file.append(7, LogOffset(50))
    assert file.is_behind
    # the line was not written completely
    disk.write(LINES, bytes(4), len(epoch_lines.encode(1, file.epochs)))
    assert file.write_work(file.epochs) is None
    file.set_written(file.epochs)  # the list is unchanged: no line was written
    file.append(3, LogOffset(50))
    disk.end()
    disk.restart()
    assert lined(disk, 60, kept=False).epochs == epochs({1: 0, 3: 50})


def test_a_change_that_failed_does_not_come_back(disk: SimDisk) -> None:
    file = lined(disk, 0, kept=False)
    file.append(1, LogOffset(0))
    file.write_copies()
    disk.fail_syncs = 1
    with pytest.raises(OSError):
        file.append(7, LogOffset(50))
    file.write_copies()
    disk.settle()
    assert lined(disk, 60).epochs == epochs({1: 0})


def test_a_first_change_that_failed_makes_no_list(disk: SimDisk) -> None:
    """A store with messages from before its first epoch may still become master."""
    file = EpochFile.open(disk, PATH, LogOffset(0), LogOffset(500), never_kept=True)
    file.begin_lines()
    disk.fail_syncs = 1
    with pytest.raises(OSError):
        file.append(1, LogOffset(500))
    assert not file.is_behind
    file.write_copies()
    put(disk, b"", LINES)
    again = EpochFile.open(disk, PATH, LogOffset(0), LogOffset(500), never_kept=True)
    assert (again.trust, again.may_lead) == (Trust.NEW, True)


def test_lines_count_for_nothing_beside_a_list_that_rocketmq_wrote(disk: SimDisk) -> None:
    """RocketMQ ignores the lines; its backup copy is the previous list."""
    file = lined(disk, 0, kept=False)
    file.append(1, LogOffset(0))
    file.write_copies()
    file.append(2, LogOffset(50))
    put(disk, disk.read(PATH), PATH + BACKUP)
    put(disk, epochs({1: 0, 4: 70}).encode())
    again = lined(disk, 90)
    assert again.epochs == epochs({1: 0, 4: 70})
    again.append(5, LogOffset(90))
    disk.end()
    disk.restart()
    assert lined(disk, 90).epochs == epochs({1: 0, 4: 70, 5: 90})


def test_a_list_that_is_lost_is_not_made_of_old_lines(disk: SimDisk) -> None:
    file = lined(disk, 0, kept=False)
    file.append(1, LogOffset(0))
    file.write_copies()
    disk.remove(PATH)
    disk.remove(PATH + BACKUP)
    again = lined(disk, 100)
    assert again.trust is Trust.UNPROVEN
    again.cut_entries(LogOffset(0))
    adopt_proven(again, epochs({1: 0, 3: 0}))
    disk.end()
    disk.restart()
    assert lined(disk, 100).epochs == epochs({1: 0, 3: 0})


def play(disk: SimDisk, rng: random.Random) -> Iterator[tuple[Epochs, Epochs, int]]:
    """Yields (durable list, list being written, log's end) before each step: changes, some of them
    while the copies are being written, failures, restarts."""
    log_end, epoch = 0, 0
    file = lined(disk, 0, kept=False)
    for _step in range(12):
        yield file.epochs, file.epochs, log_end
        work = took = None
        if file.is_behind and rng.random() < 0.5:
            work, took = file.write_copies_work()
        for _change in range(rng.randrange(3)):
            log_end += rng.choice([0, 100]) if file.epochs.entries else 0
            epoch += rng.choice([1, 9, 90])
            yield file.epochs, file.epochs.with_epoch(epoch, LogOffset(log_end)), log_end
            if rng.random() < 0.15:
                disk.fail_syncs = 1
                with pytest.raises(OSError):
                    file.append(epoch, LogOffset(log_end))
            else:
                file.append(epoch, LogOffset(log_end))
            if work is not None and took is not None and rng.random() < 0.5:
                yield file.epochs, file.epochs, log_end
                work()
                took()
                work = None
        yield file.epochs, file.epochs, log_end
        if work is not None and took is not None:
            work()
            took()
        if rng.random() < 0.1:
            file.write_copies()
            file = lined(disk, log_end)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("kill", [True, False], ids=["killed", "power cut"])
def test_an_end_anywhere_beside_lines_leaves_the_list_before_or_after(
    ordered: bool, kill: bool
) -> None:
    """Ends before, in and after a line, and during the copies: recorded changes are never lost, and
    unrecorded ones appear only if their write failed."""
    for seed in range(400):
        rng = random.Random(seed)
        disk = SimDisk(rng, lambda: 0)
        disk.ordered, disk.torn_pages, disk.kill = ordered, True, kill
        disk.make_folders("/store")
        disk.settle()
        disk.cut_after = rng.randrange(6, 90)
        steps: list[tuple[Epochs, Epochs, int]] = []
        try:
            steps.extend(play(disk, rng))
        except PowerCut:
            pass
        before, after, log_end = steps[-1] if steps else (Epochs(), Epochs(), 0)
        failed = {step[1] for step in steps}
        if not disk._dead:
            disk.end()
        disk.restart()
        kept = disk.exists(PATH) or disk.exists(PATH + BACKUP)
        again = lined(disk, log_end, kept=kept)
        assert again.trust is not Trust.UNPROVEN, f"seed {seed}: {again.reason}"
        # A change that failed may be on the disk until the next one, or the copies, are.
        known = {before, after} | {one for one in failed if one.entries[:-1] == before.entries}
        assert again.epochs in known, f"seed {seed}"
        again.append(9_999, LogOffset(log_end))
        assert lined(disk, log_end, kept=disk.exists(PATH)).epochs.last_epoch == 9_999
