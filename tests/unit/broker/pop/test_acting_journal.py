"""Notes of an acting replica's hand-outs and acknowledgements: on the disk, between brokers, and in
the log."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.broker.conftest import World
from tests.unit.broker.pop.poppers import RETRY, Popper

from turbopump.broker.pop import acting_journal as notes_module
from turbopump.broker.pop.acting_journal import (
    FILE_NAME,
    PAGE,
    ActingJournal,
    JournaledPop,
    read_page,
)
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import PutStatus, QueueOffset
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.java_properties import ConfigError
from turbopump.net.wire.pop_records import Acknowledgement, CheckPoint, CheckPointKey

G = "0123456789abcdef"
NOW_MS = 1_700_000_000_000


def point(start: int, *, pop_ms: int = NOW_MS, broker: str = "broker-a") -> CheckPoint:
    """A check point of three messages of queue 0."""
    key = CheckPointKey("T", "g", 0, QueueOffset(start), pop_ms, broker)
    return CheckPoint(key, 900, (0, 1, 2))


def ack(of: CheckPoint, *numbers: int) -> Acknowledgement:
    offsets = tuple(QueueOffset(of.key.start + number) for number in numbers)
    return Acknowledgement(of.key, offsets, is_batch=True)


def status(later: Deferred[PutStatus]) -> PutStatus | None:
    return later.value if later.done else None


@pytest.fixture
def notes(world: World) -> ActingJournal:
    return world.broker.pop.notes


@pytest.fixture
def others(make_world: Callable[..., World]) -> Iterator[Callable[[], ActingJournal]]:
    """Tables of other brokers."""
    count = iter(range(99))

    def made() -> ActingJournal:
        broker = make_world(folder=f"other-{next(count)}").broker
        broker.pop.notes._generation = f"{next(count):016x}"
        return broker.pop.notes

    yield made


def moved(giver: ActingJournal, taker: ActingJournal, return_number: int = 0) -> int:
    """Copy all notes, page by page, as brokers send them; returns the number of pages."""
    after: int | None = 0
    pages = 0
    while after is not None:
        parsed = json.loads(json.dumps(giver.notes_after(after, return_number)))
        generation, found, after = read_page(parsed)
        assert taker.take_notes(generation, found)
        pages += 1
    return pages


def test_a_note_counts_once_it_is_on_the_disk(world: World, notes: ActingJournal) -> None:
    world.config_disk.hold()
    given = notes.add_check_point(point(5), 3, NOW_MS)
    heard = notes.add_ack(ack(point(5), 1), 900, 3, NOW_MS)
    assert (status(given), status(heard)) == (None, None)
    world.config_disk.release()
    assert (status(given), status(heard)) == (PutStatus.PUT_OK, PutStatus.PUT_OK)
    notes.add_ack(ack(point(40), 0, 2), 700, 1, NOW_MS)
    notes.set_master_takes(master_takes=True)
    world.close()
    world.open()
    again = world.broker.pop.notes
    assert again.all_notes() == notes.all_notes()
    assert (again.generation, again.master_takes) == (notes.generation, True)
    [first, second] = again.all_notes()
    assert (first.check_point, first.acked, first.revive_queue_id) == (point(5), (6,), 3)
    assert (second.check_point, second.acked, second.invisible_ms) == (None, (40, 42), 700)
    assert first.acked_bits(point(5)) == 0b010


def test_a_note_that_could_not_be_saved_is_said(
    world: World, notes: ActingJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_of: object) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patched:
        for name in ("append", "replace"):
            patched.setattr(type(world.files), name, fail)
        assert status(notes.add_check_point(point(5), 3, NOW_MS)) is PutStatus.UNKNOWN_ERROR
    world.broker.saver.tick()
    assert len(json.loads(Path(f"{world.files._folder}/{FILE_NAME}").read_text())["noteTable"]) == 1


def test_no_check_point_has_more_messages(notes: ActingJournal) -> None:
    many = Acknowledgement(point(0).key, tuple(map(QueueOffset, range(32))), is_batch=True)
    assert status(notes.add_ack(many, 900, 0, NOW_MS)) is PutStatus.PUT_OK
    assert status(notes.add_ack(ack(point(0), 32), 900, 0, NOW_MS)) is PutStatus.MESSAGE_ILLEGAL
    assert status(notes.add_ack(ack(point(0), 31), 900, 0, NOW_MS)) is PutStatus.PUT_OK


def test_handled_messages_make_room(notes: ActingJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes_module, "SIZE_MAX", 40 * 600)
    for number in range(30):
        notes.add_check_point(point(3 * number), 0, NOW_MS)
        if number < 25:
            notes.add_ack(ack(point(3 * number), 0, 1, 2), 900, 0, NOW_MS)
    assert len(notes) == 30
    later_ms = NOW_MS + notes_module.SETTLED_MS + 1
    assert status(notes.add_check_point(point(900, pop_ms=later_ms), 0, later_ms)) is (
        PutStatus.PUT_OK
    )
    assert len(notes) == 6
    refused = 0
    for number in range(100):
        put = notes.add_check_point(point(1_000 + number, pop_ms=later_ms), 0, later_ms)
        refused += status(put) is PutStatus.OS_PAGE_CACHE_BUSY
    assert refused > 30
    assert len(notes) + refused == 106
    assert notes._size <= notes_module.SIZE_MAX


def test_notes_go_from_broker_to_broker_once(others: Callable[[], ActingJournal]) -> None:
    giver, between, master = others(), others(), others()
    for number in range(2 * PAGE + 1):
        giver.add_check_point(point(3 * number), 0, NOW_MS)
    giver.add_ack(ack(point(0), 1), 900, 0, NOW_MS)
    assert moved(giver, between) == 3
    between.add_ack(ack(point(0), 2), 900, 0, NOW_MS)
    moved(between, giver)
    moved(between, master, 7)
    moved(giver, master, 8)
    moved(giver, master, 8)
    assert len(master) == 2 * PAGE + 1
    known = master.get(point(0).key)
    assert known is not None and set(known.acked) == {1, 2}
    count = master._number
    moved(giver, master, 8)
    assert master._number == count, "none is taken twice"
    master.forget_notes(count)
    moved(giver, master)
    assert len(master) == 0, "nor when it is in the log"
    giver.forget_taken_over_notes(7)
    assert len(giver) == 2 * PAGE + 1, "that master has not asked here"


def test_a_replica_forgets_notes_its_master_has_read(others: Callable[[], ActingJournal]) -> None:
    giver, master = others(), others()
    giver.add_check_point(point(0), 0, NOW_MS)
    moved(giver, master, 7)
    giver.add_check_point(point(9), 0, NOW_MS)
    giver.add_ack(ack(point(0), 0), 900, 0, NOW_MS)
    giver.forget_taken_over_notes(7)
    assert [note.key.start for note in giver.all_notes()] == [9, 0], "later notes are news"
    giver.forget_taken_over_notes(7)
    assert len(giver) == 2
    moved(giver, master, 8)
    giver.forget_taken_over_notes(8)
    assert len(giver) == 0
    assert len(master) == 2


def test_there_may_be_no_room_for_notes(
    others: Callable[[], ActingJournal], monkeypatch: pytest.MonkeyPatch
) -> None:
    giver, master = others(), others()
    for number in range(9):
        giver.add_check_point(point(3 * number), 0, NOW_MS)
    monkeypatch.setattr(notes_module, "SIZE_MAX", 2_000)
    generation, found, _ = read_page(giver.notes_after(0, 0))
    assert not master.take_notes(generation, found)
    assert len(master) == 0
    monkeypatch.undo()
    assert master.take_notes(generation, found)
    assert len(master) == 9


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"generation": 7},
        {"generation": "a" * 5_000},
        {"generation": G, "notes": {}},
        {"generation": G, "notes": [7]},
        {"generation": G, "notes": [{"ack": "{}"}]},
        {"generation": G, "notes": [{"ack": "no json", "number": 1}]},
        {"generation": G, "notes": [], "isLast": False, "number": "x"},
    ],
)
def test_invalid_notes_are_refused(value: object) -> None:
    with pytest.raises(BadBody):
        read_page(value)


def test_notes_that_contradict_themselves_are_refused() -> None:
    one = JournaledPop(point(5).key, 3, 900, point(5), (QueueOffset(5),), 1).to_json()
    assert JournaledPop.from_json(one).check_point == point(5)
    many = Acknowledgement(point(5).key, tuple(map(QueueOffset, range(33))), is_batch=True)
    for changes in (
        {"number": -1},
        {"reviveQueueId": -1},
        {"checkPoint": point(6).encode_body().decode()},
        {"checkPoint": "{}"},
        {"ack": many.encode_body().decode()},
    ):
        with pytest.raises(BadBody):
            JournaledPop.from_json({**one, **changes})


def test_a_damaged_table_is_said(world: World) -> None:
    world.broker.pop.notes.add_check_point(point(5), 3, NOW_MS)
    world.broker.saver.begin_last_writes()
    path = Path(f"{world.files._folder}/{FILE_NAME}")
    path.write_text(path.read_text().replace('"number"', '"number":[],"x"'))
    world.close()
    with pytest.raises(ConfigError, match=FILE_NAME):
        world.open()


# Into the log


def noted(world: World, *acked: int) -> CheckPoint:
    """Three messages handed out by a replica five seconds ago, some of them acknowledged there."""
    popper = Popper(world)
    popper.send("a", "b", "c")
    given = point(0, pop_ms=world.now_ms - 5_000, broker=world.config.broker_name)
    notes = world.broker.pop.notes
    notes.add_check_point(given, 3, world.now_ms)
    if acked:
        notes.add_ack(ack(given, *acked), given.invisible_ms, 3, world.now_ms)
    return given


def copies(world: World) -> int:
    return max(0, world.broker.store.max_queue_offset(RETRY, 0))


def test_messages_popped_at_a_replica_are_the_masters_to_revive(world: World) -> None:
    noted(world, 1)
    popper = Popper(world)
    assert popper.pop() == [], "before the handed-out messages are known"
    world.pass_time(300)
    assert len(world.broker.pop.notes) == 0
    assert sorted(body for body, _ in popper.pop()) == ["a", "c"]
    assert copies(world) == 2


def test_notes_stay_until_their_records_are_safe(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted(world, 1)

    def timeout(*_put: object) -> Deferred[PutStatus]:
        later: Deferred[PutStatus] = Deferred()
        later.resolve(PutStatus.FLUSH_SLAVE_TIMEOUT)
        return later

    with monkeypatch.context() as patched:
        patched.setattr(world.broker.role, "when_safe", timeout)
        world.pass_time(3_500)
        assert (len(world.broker.pop.notes), copies(world)) == (1, 0)
    world.pass_time(2_000)
    assert (len(world.broker.pop.notes), copies(world)) == (0, 2)


@pytest.fixture
def handled(world: World) -> CheckPoint:
    """A check point that a master handed out five seconds ago, for 1.5 seconds; `hear` adds a
    replica's note that all its messages are acknowledged."""
    popper = Popper(world)
    world.pass_time(100)
    popper.send("a", "b", "c")
    popped_ms = world.now_ms
    assert len(popper.pop(invisible_time=1_500)) == 3
    world.now_ms += 5_000
    given = point(0, pop_ms=popped_ms, broker=world.config.broker_name)
    return replace(given, invisible_ms=1_500)


def hear(world: World, given: CheckPoint) -> None:
    turn, _ = world.broker.pop.turns.take()
    queue_id = (turn - 1) % len(world.broker.pop.queues)  # of the last pop
    notes = world.broker.pop.notes
    notes.add_ack(ack(given, 0, 1, 2), given.invisible_ms, queue_id, world.now_ms)


def test_an_acknowledgement_waits_behind_its_check_point(world: World, handled: CheckPoint) -> None:
    """The check point is still among the timers, although its time has passed."""
    hear(world, handled)
    world.broker.pop.step(world.now_ms)
    assert len(world.broker.pop.notes) == 0, "it is in the log, and was not delivered"
    world.pass_time(3_000)
    assert copies(world) == 0


def test_unreadable_messages_are_waited_for(world: World, handled: CheckPoint) -> None:
    tail = world.broker.store._log.tail
    world.broker.pop.others_first = lambda: True
    world.pass_time(300)
    world.broker.pop.others_first = lambda: False
    before, tail.limit = tail.limit, world.broker.store.max_log_offset
    hear(world, handled)
    world.pass_time(2_000)
    assert (len(world.broker.pop.notes), copies(world)) == (0, 0)
    tail.limit = before
    Popper(world).send("later")
    world.pass_time(2_000)
    assert world.broker.store.dispatched_log_offset == world.broker.store.max_log_offset
    assert copies(world) == 0


def test_all_that_came_late_is_read_before_anything_is_revived(
    world: World, handled: CheckPoint
) -> None:
    """Acknowledgements from notes may lie far after their check points."""
    world.run_timers()
    turn, _ = world.broker.pop.turns.take()
    world.broker.pop.turns.take()
    for number in range(2_000):
        key = handled.key._replace(group="gone", start=QueueOffset(number))
        gone = Acknowledgement(key, (QueueOffset(number),))
        queue_id = (turn - 1) % len(world.broker.pop.queues)
        world.broker.pop.log.add_ack(gone, 0, queue_id, world.now_ms)
    notes = world.broker.pop.notes
    notes.add_ack(ack(handled, 0, 1, 2), handled.invisible_ms, queue_id, world.now_ms)
    world.pass_time(3_000)
    assert (len(notes), copies(world)) == (0, 0)


def test_a_master_that_asks_its_replicas_revives_nothing_meanwhile(world: World) -> None:
    popper = Popper(world)
    popper.send("a")
    popper.pop()
    asks = True
    world.broker.pop.others_first = lambda: asks
    world.pass_time(5_000)
    assert copies(world) == 0
    asks = False
    world.pass_time(300)
    assert copies(world) == 1
