"""Timers that are due go to other masters while a replica acts (RIP-32, I11, I14)."""

import pytest
from tests.unit.broker.conftest import World
from tests.unit.broker.escape.cluster import Replica, bodies, records

from turbopump.broker.scheduled import wheel_reader
from turbopump.broker.scheduled.timer_escape import OUT_MAX
from turbopump.broker.scheduled.timers import TimerProgress
from turbopump.broker.scheduled.wheel_reader import ASIDE_MAX, SLOTS_MAX
from turbopump.broker.tables.data_versions import ACTING_STEP
from turbopump.engine.timer.timer_check import TimerCheckpoint
from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.properties import decode_properties

HOUR_MS = 3_600_000


def timer(replica: Replica, body: bytes, delay_ms: int, topic: str = "T", **more: str) -> int:
    """Store a timer message copied from the dead master; returns its due time in ms."""
    due_ms = replica.world.now_ms + delay_ms
    properties = {
        "REAL_TOPIC": topic,
        "REAL_QID": "2",
        "TIMER_DELIVER_MS": str(due_ms),
        "TIMER_OUT_MS": str((due_ms - 1) // 1_000 * 1_000),
        "UNIQ_KEY": body.decode(),
        **more,
    }
    replica.store(TIMER_TOPIC, 0, body, properties)
    return due_ms


def reported_checkpoint(replica: Replica) -> TimerCheckpoint:
    return replica.world.broker.timers.replica_checkpoint()


def test_a_timer_goes_to_another_master_in_its_time(replica: Replica) -> None:
    other = replica.master("m")
    due_ms = timer(replica, b"soon", 2_350)
    end = replica.world.broker.store.max_log_offset
    replica.pass_time(2_300)
    assert bodies(other) == []
    replica.pass_time(200)
    (record,) = records(other)
    assert record.store_timestamp_ms >= due_ms
    properties = decode_properties(record.properties)
    assert "TIMER_DELIVER_MS" not in properties
    assert properties["UNIQ_KEY"] == "soon"
    assert replica.world.broker.store.max_log_offset == end
    replica.pass_time(30_000)
    assert bodies(other) == [b"soon"]


def test_progress_does_not_pass_undelivered_messages(replica: Replica) -> None:
    other = replica.master("m")
    due_ms = timer(replica, b"alone", 2_000, topic="Alone")
    timer(replica, b"x", 4_000)
    replica.pass_time(8_000)
    assert bodies(other) == [b"x"], "it holds up nothing else"
    assert reported_checkpoint(replica).read_ms < due_ms
    replica.master("n", topic="Alone")
    replica.pass_time(11_000)
    assert bodies(replica.others.masters["n"], "Alone") == [b"alone"]
    assert reported_checkpoint(replica).read_ms >= due_ms
    assert reported_checkpoint(replica).master_queue_offset == 2


def test_timers_too_late_for_their_slot_hold_back_the_progress(replica: Replica) -> None:
    replica.master("m")
    timer(replica, b"first", 1_500)
    replica.pass_time(3_000)
    timer(replica, b"late", -5_000, topic="Alone")
    timer(replica, b"later", 1_000)
    replica.pass_time(5_000)
    assert reported_checkpoint(replica).master_queue_offset == 1, "the late one is not delivered"
    assert bodies(replica.others.masters["m"]) == [b"first", b"later"]
    replica.master("n", topic="Alone")
    replica.pass_time(12_000)
    assert reported_checkpoint(replica).master_queue_offset == 3


def test_messages_no_master_takes_are_bounded(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert OUT_MAX <= 1 << 16
    monkeypatch.setattr("turbopump.broker.scheduled.timer_escape.OUT_MAX", 20)
    replica.master("m")
    for number in range(40):
        timer(replica, b"%d" % number, 1_500, topic="Alone")
    timer(replica, b"x", 3_000)
    replica.pass_time(5_000)
    assert replica.others.sends == []
    escaping = replica.world.broker.timers._escaping
    assert escaping is not None
    assert len(escaping._window) == 20


def test_a_long_wait_goes_on_at_the_other_master(replica: Replica) -> None:
    other = replica.master("m")
    due_ms = timer(replica, b"far", 9 * HOUR_MS)
    timers = replica.world.broker.timers
    window_ms = timers._roll_ms
    assert window_ms < 9 * HOUR_MS
    replica.pass_time(1_000)
    replica.world.now_ms += window_ms
    replica.pass_time(3_000)
    assert bodies(other) == []
    (record,) = records(other, TIMER_TOPIC)
    properties = decode_properties(record.properties)
    assert properties["REAL_TOPIC"] == "T"
    assert int(properties["TIMER_DELIVER_MS"]) in (due_ms, due_ms + 1)
    other.now_ms = due_ms + 2_000
    other.run_timers()
    other.run_timers()
    assert bodies(other) == [b"far"]


def test_timers_and_their_recalls_go_to_one_master(replica: Replica) -> None:
    for name in ("m", "n", "o"):
        replica.master(name)
    escape = replica.world.broker.escape
    masters = escape._masters
    replica.pass_time(600)
    masters.for_topic("T")
    chosen = {escape._choose_master("T", f"K{number}").name for number in range(50)}  # type: ignore[union-attr]
    assert chosen == {"m", "n", "o"}
    for number in range(50):
        first = escape._choose_master("T", f"K{number}")
        assert first == escape._choose_master("T", f"K{number}")


def test_a_timer_that_was_recalled_does_not_go(replica: Replica) -> None:
    other = replica.master("m")
    timer(replica, b"gone", 2_000)
    timer(replica, b"r", 2_000, TIMER_DEL_UNIQKEY="gone")
    timer(replica, b"x", 2_000)
    replica.pass_time(5_000)
    assert bodies(other) == [b"x"]
    assert reported_checkpoint(replica).master_queue_offset == 3


def test_the_progress_survives_a_restart(replica: Replica) -> None:
    other = replica.master("m")
    timer(replica, b"a", 1_500)
    timer(replica, b"b", 9_000)
    replica.pass_time(5_000)
    saved = reported_checkpoint(replica)
    assert saved.counter > ACTING_STEP
    replica.world.broker.store.close(replica.world.now_ms)
    replica.world.open()
    replica.start()
    replica.pass_time(6_000)
    assert bodies(other) == [b"a", b"b"]


def test_a_replica_that_acts_no_more_sends_nothing_more(replica: Replica) -> None:
    replica.master("m")
    replica.others.silent = True
    timer(replica, b"a", 1_500)
    timer(replica, b"b", 3_500)
    replica.pass_time(2_500)
    before = reported_checkpoint(replica)
    replica.world.broker.role.is_acting = False
    replica.pass_time(3_000)
    replica.others.answer_all()
    assert reported_checkpoint(replica)[:1] == before[:1]
    assert len(replica.others.sends) == 1
    replica.others.silent = False
    replica.world.broker.role.is_acting = True
    replica.pass_time(3_000)
    assert sorted(bodies(replica.others.masters["m"])) == [b"a", b"a", b"b"]


def checkpoint(read_ms: int, queue_offset: int) -> TimerCheckpoint:
    return TimerCheckpoint(read_ms, 0, queue_offset, queue_offset, 0, 0, 9)


def test_a_master_that_returns_goes_on_where_its_replica_was(replica: Replica) -> None:
    master = replica.master("m", begins=False)
    replica.others.masters.clear()
    timers = master.broker.timers
    before = TimerProgress(master.now_ms // 1_000 * 1_000, QueueOffset(0))
    timers.durable.current = before
    for number, delay_ms in enumerate((1_500, 2_500, 9_000)):
        stored = replica.world
        replica.world = master
        timer(replica, b"%d" % number, delay_ms)
        replica.world = stored
    timers.adopt_newer(checkpoint(before.read_ms + 4_000, 3))
    timers.adopt_newer(checkpoint(before.read_ms + 2_000, 3))
    assert timers.durable.data_version.counter == 9
    master.pass_time(12_000)
    assert bodies(master) == [b"2"]
    assert timers.durable.current.read_ms >= before.read_ms + 12_000


def test_old_knowledge_of_another_broker_does_not_count(replica: Replica) -> None:
    timers, now_ms = replica.world.broker.timers, replica.world.now_ms // 1_000 * 1_000
    replica.world.broker.role.is_acting = False
    timers.adopt_newer(checkpoint(now_ms - 60_000, 1))
    timers.durable.current = TimerProgress(now_ms, QueueOffset(0))
    replica.world.broker.role.is_acting = True
    replica.pass_time(200)
    assert timers._delivered.read_ms == now_ms


def test_less_of_the_queue_and_more_of_the_slots(replica: Replica) -> None:
    master = replica.master("m", begins=False)
    replica.others.masters.clear()
    stored, replica.world = replica.world, master
    timers, begin_ms = master.broker.timers, master.now_ms // 1_000 * 1_000
    for number, delay_ms in enumerate((1_500, 2_500, 9_000)):
        timer(replica, b"%d" % number, delay_ms)
    replica.world = stored
    timers.durable.current = TimerProgress(begin_ms, QueueOffset(3))
    timers.adopt_newer(checkpoint(begin_ms + 4_000, 1))
    master.pass_time(12_000)
    assert bodies(master) == [b"1", b"2"], "the second may not have come to the replica"


def test_rolls_of_slots_that_another_broker_has_passed_are_not_lost(replica: Replica) -> None:
    master = replica.master("m", begins=False)
    replica.others.masters.clear()
    stored, replica.world = replica.world, master
    timers, begin_ms = master.broker.timers, master.now_ms // 1_000 * 1_000
    timer(replica, b"far", 9 * HOUR_MS)
    replica.world = stored
    master.pass_time(1_000)
    assert timers._files.queue_offset == 1
    timers._leads = False
    timers.adopt_newer(checkpoint(begin_ms + timers._roll_ms + 5_000, 1))
    master.now_ms += timers._roll_ms + 6_000
    master.pass_time(1_000)
    assert bodies(master, TIMER_TOPIC) == [b"far", b"far"]
    assert timers.durable.current.read_ms > begin_ms + timers._roll_ms


@pytest.mark.parametrize("is_taken", [True, False])
@pytest.mark.parametrize("wait_ms", [300, 12_000])
@pytest.mark.parametrize("kept", [ASIDE_MAX, 0])
def test_a_clock_that_is_set_back_while_a_timer_is_on_its_way(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, is_taken: bool, wait_ms: int, kept: int
) -> None:
    """Both timers are in one slot. If no slot may be kept, a timer comes twice, unless it is still
    on its way when its slot is read again."""
    monkeypatch.setattr(wheel_reader, "ASIDE_MAX", kept)
    other = replica.master("m")
    replica.pass_time(1_000 - replica.world.now_ms % 1_000)
    timer(replica, b"first", 2_150)
    timer(replica, b"later", 2_850)
    replica.others.silent = True
    if not is_taken:
        replica.others.dead.add("m")
    replica.pass_time(2_400)
    assert len(replica.others.waiting) == 1
    replica.world.set_clock(-5_000)
    replica.pass_time(wait_ms)
    replica.others.silent = False
    replica.others.dead.clear()
    replica.others.answer_all()
    replica.pass_time(25_000)
    assert set(bodies(other)) == {b"first", b"later"}
    assert len(bodies(other)) == (2 if kept or wait_ms > 5_000 else 3)
    timers = replica.world.broker.timers
    assert (timers.dequeued.total, timers.metrics.total) == (2, 0)
    assert reported_checkpoint(replica).master_queue_offset == 2
    assert len(timers._slots.heap) == 0


def test_a_timer_that_no_master_takes_holds_up_no_later_slot(replica: Replica) -> None:
    other = replica.master("m")
    for number in range(SLOTS_MAX):
        timer(replica, b"alone", 2_000 + 1_000 * number, topic="Alone")
    due_ms = [timer(replica, b"%d" % number, 2_500 + 1_000 * number) for number in range(150)]
    replica.pass_time(155_000)
    assert bodies(other) == [b"%d" % number for number in range(150)]
    late_ms = [record.store_timestamp_ms for record in records(other)]
    assert all(at_ms >= each_ms for at_ms, each_ms in zip(late_ms, due_ms, strict=True))
    slots = replica.world.broker.timers._slots
    assert len(slots._waiting) <= SLOTS_MAX + 2, "slots without units are forgotten"
    assert reported_checkpoint(replica).read_ms < due_ms[0]
    replica.master("n", topic="Alone")
    replica.pass_time(20_000)
    assert len(bodies(replica.others.masters["n"], "Alone")) == SLOTS_MAX
    assert reported_checkpoint(replica).read_ms >= due_ms[-1]


@pytest.mark.parametrize("is_cut", [True, False])
def test_answers_after_the_log_or_the_master_has_changed_count_nothing(
    replica: Replica, is_cut: bool
) -> None:
    other = replica.master("m")
    timer(replica, b"a", 1_500)
    replica.others.silent = True
    replica.pass_time(2_500)
    timers = replica.world.broker.timers
    before, counted = timers.durable.current.read_ms, timers.dequeued.total
    if is_cut:
        timers.on_truncated()
    else:
        timers.begin_following()
    replica.others.silent = False
    replica.others.answer_all()
    assert (timers.durable.current.read_ms, timers.dequeued.total) == (before, counted)
    replica.pass_time(2_000)
    assert bodies(other) == [b"a", b"a"]
    assert timers.dequeued.total == counted + 1


def returned(replica: Replica, delays_ms: tuple[int, ...]) -> World:
    """Return a master whose replica acted for it; before, it put timers into its wheel."""
    master = replica.master("m", begins=False)
    replica.others.masters.clear()
    stored, replica.world = replica.world, master
    for number, delay_ms in enumerate(delays_ms):
        timer(replica, b"%d" % number, delay_ms)
    replica.world = stored
    master.pass_time(1_000)
    assert master.broker.timers._files.queue_offset == len(delays_ms)
    master.broker.timers._leads = False
    return master


def test_slots_that_a_replica_with_another_clock_has_passed(replica: Replica) -> None:
    """The replica had the first timer alone, and its clock was ahead."""
    begin_ms = replica.world.now_ms // 1_000 * 1_000
    master = returned(replica, (3_500, 5_500, 7_500))
    master.broker.timers.adopt_newer(checkpoint(begin_ms + 60_000, 1))
    master.pass_time(12_000)
    assert bodies(master) == [b"1", b"2"]


@pytest.mark.parametrize("ahead_ms", [6_000, -3_000])
def test_rolls_of_passed_slots_are_not_lost_if_the_clock_is_behind(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    begin_ms = replica.world.now_ms // 1_000 * 1_000
    master = returned(replica, (9 * HOUR_MS,))
    timers = master.broker.timers
    timers.adopt_newer(checkpoint(begin_ms + timers._roll_ms + 5_000, 1))
    master.now_ms += timers._roll_ms + ahead_ms
    with monkeypatch.context() as patch:
        patch.setattr(timers._deliveries, "step", lambda *_times: False)
        master.pass_time(1_000)
        assert timers.durable.current.read_ms < begin_ms + timers._roll_ms, "it is not delivered"
        master.set_clock(-60_000)
        master.pass_time(1_000)
    master.pass_time(70_000)
    assert bodies(master, TIMER_TOPIC) == [b"0", b"0"]
    assert timers.durable.current.read_ms > begin_ms + timers._roll_ms


def before_a_roll(replica: Replica, delay_ms: int) -> World:
    """Return a master with a clock less than the other broker's progress and its own. The first
    part of a 9 h wait is in a slot between both; a timer of `delay_ms` is stored, too."""
    begin_ms = replica.world.now_ms // 1_000 * 1_000
    master = returned(replica, (9 * HOUR_MS,))
    timers = master.broker.timers
    roll_ms, timers._leads = timers._roll_ms, True
    master.now_ms += roll_ms - 10_000
    master.pass_time(5_000)
    assert timers.durable.current.read_ms < begin_ms + roll_ms
    timers._leads = False
    timers.adopt_newer(checkpoint(begin_ms + roll_ms + 5_000, 1))
    master.set_clock(-60_000)
    master.pass_time(1_000)
    stored, replica.world = replica.world, master
    timer(replica, b"new", delay_ms)
    replica.world = stored
    return master


@pytest.mark.parametrize("is_clean", [True, False])
def test_rolls_of_passed_slots_are_not_lost_at_a_stop(replica: Replica, is_clean: bool) -> None:
    master = before_a_roll(replica, 2_000)
    master.pass_time(6_000)
    assert bodies(master) == [b"new"]
    assert master.broker.timers._slots.has_passed, "the clock has not reached the slot"
    if is_clean:
        master.close()
    else:
        master.broker.store.close(master.now_ms)
    master.open()
    master.pass_time(90_000)
    assert bodies(master, TIMER_TOPIC).count(b"0") == 2
    assert set(bodies(master)) == {b"new"}


def test_a_role_that_is_lost_early_does_not_forget_the_other_brokers_deliveries(
    replica: Replica,
) -> None:
    """The other broker has delivered the first timer; this one leads, follows and leads again while
    a roll of a passed slot waits for the clock."""
    begin_ms = replica.world.now_ms // 1_000 * 1_000
    master = returned(replica, (9 * HOUR_MS, 2_500))
    timers = master.broker.timers
    timers.adopt_newer(checkpoint(begin_ms + timers._roll_ms + 5_000, 2))
    master.now_ms += timers._roll_ms - 60_000
    master.pass_time(2_000)
    assert timers._slots.has_passed
    timers.begin_following()
    master.pass_time(80_000)
    assert bodies(master) == []
    assert bodies(master, TIMER_TOPIC) == [b"0", b"1", b"0"]
    assert timers._newer is None, "it counts until this broker's progress is as far"
