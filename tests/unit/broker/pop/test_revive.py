"""Reviving while the store refuses messages, and check points that this broker ignores."""

from collections.abc import Callable

import pytest
from tests.unit.broker.conftest import World
from tests.unit.broker.pop.poppers import INVISIBLE_MS, RETRY, Popper

from turbopump.broker.config.config import load_config
from turbopump.broker.introspection.runtime_info import runtime_table
from turbopump.broker.pop import retries
from turbopump.broker.pop.revive import WRITES_MAX
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import NewMessage, PutStatus, QueueOffset
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.headers.pop import ChangeInvisibleTimeRequest
from turbopump.net.wire.pop_handles import PopHandle
from turbopump.net.wire.pop_records import CheckPoint, CheckPointKey
from turbopump.net.wire.properties import encode_properties

LOG = "rmq_sys_REVIVE_LOG_DefaultCluster"


def check_point(popper: Popper, start: int, broker: str = "broker-a", it_ms: int = 0) -> CheckPoint:
    key = CheckPointKey("T", "g", 0, QueueOffset(start), popper.world.now_ms - 1, broker)
    return CheckPoint(key, it_ms, (0,))


def copies(popper: Popper) -> int:
    return max(0, popper.world.broker.store.max_queue_offset(RETRY, 0))


def test_a_store_that_is_not_safe_is_not_flooded_with_copies(
    popper: Popper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message answered with FLUSH_SLAVE_TIMEOUT lies in the log: each attempt appends another
    copy."""
    popper.send(*map(str, range(20)))
    assert len(popper.pop()) == 20

    def timeout(*_put: object) -> Deferred[PutStatus]:
        later: Deferred[PutStatus] = Deferred()
        later.resolve(PutStatus.FLUSH_SLAVE_TIMEOUT)
        return later

    with monkeypatch.context() as patched:
        patched.setattr(popper.world.broker.role, "when_safe", timeout)
        popper.world.pass_time(INVISIBLE_MS + 20_000)
        tried = copies(popper)
        assert 2 <= tried <= 6
    popper.world.pass_time(31_000)
    assert copies(popper) == tried + 20
    popper.world.pass_time(60_000)
    assert copies(popper) == tried + 20


def test_a_copy_that_is_always_refused_keeps_no_others(
    popper: Popper, monkeypatch: pytest.MonkeyPatch
) -> None:
    popper.send("a", "b")
    popper.pop()
    whole = retries.RetryCopies.append_copy

    def refuse_a(self, record, check_point, now_ms):  # type: ignore[no-untyped-def]
        if bytes(record.body) != b"a":
            return whole(self, record, check_point, now_ms)
        later: Deferred[PutStatus] = Deferred()
        later.resolve(PutStatus.MESSAGE_ILLEGAL)
        return later

    with monkeypatch.context() as patched:
        patched.setattr(retries.RetryCopies, "append_copy", refuse_a)
        popper.world.pass_time(INVISIBLE_MS + 300)
        popper.send("c", queue_id=1)
        popped = popper.pop(invisible_time=60_000)
        assert sorted(body for body, _ in popped) == ["b", "c"]
    popper.world.pass_time(9_000)
    assert popper.pop() == []
    popper.world.pass_time(2_000)
    assert [body for body, _ in popper.pop()] == ["a"]


def test_a_check_point_of_another_broker_revives_none_of_our_messages(popper: Popper) -> None:
    popper.send("a")
    [(_, handle)] = popper.pop()
    popper.ack(handle)
    log = popper.world.broker.pop.log
    log.add_check_point(check_point(popper, 0, "broker-b"), 0, popper.world.now_ms)
    popper.world.pass_time(15_000)
    assert copies(popper) == 0
    assert popper.world.broker.store.max_queue_offset(LOG, 0) >= 2  # the check point was postponed


def test_a_check_point_that_no_broker_wrote_keeps_nothing(popper: Popper) -> None:
    """A client wrote the check point: it lies in the revive queue long before it is due."""
    world = popper.world
    world.broker.pop.log.add_check_point(check_point(popper, 0), 0, world.now_ms)
    world.pass_time(200)
    for late_ms in (50_000, 10**15):
        forged = check_point(popper, 0, it_ms=late_ms)
        for queue_id in range(8):
            world.broker.pop.log.add_check_point(forged, queue_id, forged.revive_ms)
    world.pass_time(200)
    popper.send("a")
    popper.pop()
    world.pass_time(INVISIBLE_MS + 300)
    assert [body for body, _ in popper.pop()] == ["a"]


def test_messages_in_flight_are_counted(popper: Popper) -> None:
    """Acknowledged and revived messages do not count; messages with a longer invisible time do."""
    world = popper.world

    def in_flight() -> str:
        return runtime_table(world.broker, world.now_ms).get("consumerPop_g", "")

    assert in_flight() == ""
    popper.send("a", "b", "c")
    (_, first), (_, second), _ = popper.pop()
    world.broker.statistics.sample(world.now_ms)
    world.pass_time(300)
    assert in_flight().endswith(" 3 in flight")
    popper.ack(first)
    world.pass_time(300)
    assert in_flight().endswith(" 2 in flight")
    change = ChangeInvisibleTimeRequest(
        "g", "T", 0, second, int(second.rpartition(" ")[2]), 10 * INVISIBLE_MS
    )
    world.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, change)
    world.pass_time(INVISIBLE_MS + 300)
    assert in_flight().endswith(" 1 in flight"), "c was revived"
    world.broker.statistics.sample(world.now_ms + 10_000)
    assert in_flight() == "0.1 popped/s, 0.1 acked/s, 1 in flight"
    assert runtime_table(world.broker, world.now_ms)["popReviveBehind"] == "0"


def test_properties_that_have_no_room_for_one_more_are_revived(popper: Popper) -> None:
    for size in range(32_760, 0, -8):
        try:
            popper.send("a", tag="x" * size)
        except AssertionError:
            continue  # the message is too long to be sent
        break
    assert len(popper.pop()) == 1
    popper.world.pass_time(INVISIBLE_MS + 300)
    [(body, handle)] = popper.pop()
    assert body == "a" and popper.ack(handle).code == ResponseCode.SUCCESS


def test_a_waiting_pop_learns_that_this_broker_is_not_the_master_any_more(
    popper: Popper, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = popper.request(poll_time=10_000)
    assert isinstance(waiting, Deferred) and not waiting.done
    monkeypatch.setattr(type(popper.world.broker.role), "is_master", False)
    popper.world.broker.pop.step(popper.world.now_ms)
    popper.world.broker.pop.waiters.release_all()
    popper.world.broker.pop.waiters.release_some()
    assert waiting.value.code == ResponseCode.SYSTEM_BUSY


def test_an_offset_that_was_reset_stays_though_a_check_point_becomes_safe(
    popper: Popper, monkeypatch: pytest.MonkeyPatch
) -> None:
    popper.send("a", "b")
    broker, responses = popper.world.broker, []

    def later(*_put: object) -> Deferred[PutStatus]:
        responses.append(Deferred[PutStatus]())
        return responses[-1]

    monkeypatch.setattr(broker.role, "when_safe", later)
    popper.request()
    broker.offsets.set_reset("g", "T", 0, QueueOffset(1), popper.world.now_ms)
    for each in responses:
        each.resolve(PutStatus.PUT_OK)
    assert broker.offsets.query("g", "T", 0) == 1


def test_the_queues_beyond_a_lowered_count_are_read_until_they_are_empty(
    make_world: Callable[..., World],
) -> None:
    world = make_world("reviveQueueNum=8\n")
    popper = Popper(world)
    popper.send(*map(str, range(24)))
    handles = dict(popper.pop(max_msg_nums=1, invisible_time=5_000)[0] for _ in range(24))
    used = {PopHandle.parse(handle).revive_queue_id for handle in handles.values()}
    assert used == set(range(8))
    world.close()
    world.config, _ = load_config(f"{world.text}\nreviveQueueNum=2\n")
    world.open()
    for number in range(12):
        assert popper.ack(handles[str(number)]).code == ResponseCode.SUCCESS
    world.pass_time(6_000)
    popped = [popper.pop(invisible_time=60_000) for _ in range(3)]
    assert sorted(int(body) for one in popped for body, _ in one) == list(range(12, 24))
    of_now = {PopHandle.parse(handle).revive_queue_id for one in popped for _, handle in one}
    assert of_now <= {0, 1}


def test_acknowledgements_stay_with_their_check_points_when_there_are_more_revive_queues(
    make_world: Callable[..., World],
) -> None:
    """topics.json keeps the lower number. A check point that is due within a second is stored at
    once, its acknowledgement waits among the timers and has to come to the same revive queue."""
    world = make_world("reviveQueueNum=1\n")
    popper = Popper(world)
    popper.send(*map(str, range(8)))
    world.close()
    world.config, _ = load_config(f"{world.text}\nreviveQueueNum=8\n")
    world.open()
    popped = [popper.pop(max_msg_nums=1, invisible_time=800)[0] for _ in range(8)]
    assert {PopHandle.parse(handle).revive_queue_id for _, handle in popped} == set(range(8))
    for _, handle in popped:
        assert popper.ack(handle).code == ResponseCode.SUCCESS
    world.pass_time(5_000)
    assert popper.pop() == [], "acknowledged messages come again"


def test_many_new_groups_are_revived_once_their_retry_topics_are_saved(popper: Popper) -> None:
    """An unsaved topic is no failure: it delays neither its own group nor others."""
    world = popper.world
    popper.send("a", "b")
    popper.pop(consumer_group="known")
    world.pass_time(INVISIBLE_MS + 300)
    groups = [f"new{number}" for number in range(300)]
    for group in groups:
        assert len(popper.pop(consumer_group=group)) == 2
    assert len(popper.pop(consumer_group="known")) == 2
    world.config_disk.hold()
    world.pass_time(INVISIBLE_MS + 300)
    assert world.broker.store.max_queue_offset("%RETRY%known_T", 0) == 4, "it waits for others"
    assert world.broker.store.max_queue_offset("%RETRY%new0_T", 0) <= 0
    world.config_disk.release()
    world.pass_time(1_000)
    ends = [world.broker.store.max_queue_offset(f"%RETRY%{group}_T", 0) for group in groups]
    assert ends == [2] * len(groups)


def test_a_store_that_refuses_for_a_moment_delays_revival_by_a_second(
    popper: Popper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role change or a full disk writes nothing, and does not count as a failure."""
    popper.send(*map(str, range(30)))
    popper.pop()
    popper.world.pass_time(INVISIBLE_MS - 100)
    with monkeypatch.context() as patched:
        refused = PutStatus.SERVICE_NOT_AVAILABLE
        patched.setattr(
            type(popper.world.broker.role), "admit_append", lambda _self, _waits: refused
        )
        popper.world.pass_time(600)
        assert copies(popper) == 0
    popper.world.pass_time(1_200)
    assert copies(popper) == 30


def test_a_step_revives_a_bounded_number_of_messages(popper: Popper) -> None:
    world = popper.world
    for _ in range(10):
        popper.send(*["x"] * 100)
        for _ in range(4):
            popper.pop(invisible_time=3_000)
    world.pass_time(2_900)
    world.now_ms += 1_000
    world.run_timers()
    while copies(popper) == 0:
        assert world.broker.pop.step(world.now_ms) or copies(popper)
    counts, known = [], copies(popper)
    while world.broker.pop.step(world.now_ms):
        counts.append(copies(popper) - known)
        known = copies(popper)
    assert max(counts) <= WRITES_MAX
    world.pass_time(500)
    assert copies(popper) == 1_000


def test_a_due_time_of_other_digits_keeps_nothing(popper: Popper) -> None:
    """isdigit of Java and Python accepts more than int does."""
    world = popper.world
    properties = {"TAGS": "ck", "UNIQ_KEY": "k", "TIMER_DELIVER_MS": "²²"}
    popper.send("a")
    popper.pop()
    for queue_id in range(8):
        for _ in range(50):
            message = world.broker.pop.log
            draft = NewMessage(
                topic=LOG,
                queue_id=queue_id,
                body=b"{}",
                properties=encode_properties(properties),
                born_timestamp_ms=world.now_ms,
                born_host=world.broker.store_host,
                store_host=world.broker.store_host,
            )
            assert message.topic == LOG
            assert world.broker.store.append(draft, world.now_ms).status is PutStatus.PUT_OK
    world.pass_time(INVISIBLE_MS + 300)
    assert copies(popper) == 1


def after_the_clock_went_back(popper: Popper) -> None:
    """A message popped for 5 s and acknowledged after 4.2 s, after the clock went back by 10 s."""
    world = popper.world
    for _ in range(16):  # each revive queue gets records from before the jump
        popper.send("a")
        for _, handle in popper.pop(invisible_time=1_000):
            popper.ack(handle)
        world.pass_time(1_200)
    world.set_clock(-10_000)
    popper.send("b")
    [(_, handle)] = popper.pop(invisible_time=5_000)
    world.pass_time(4_200)
    assert popper.ack(handle).code == ResponseCode.SUCCESS


def test_revival_waits_for_timers_after_the_clock_went_back(popper: Popper) -> None:
    """Acknowledgements are due at a time already delivered, and are delivered late."""
    world = popper.world
    after_the_clock_went_back(popper)
    world.now_ms += 900
    for _ in range(3):
        world.broker.pop.step(world.now_ms)
    assert copies(popper) == 0
    world.pass_time(2_000)
    assert copies(popper) == 0


def test_nothing_is_revived_before_its_time_after_the_clock_went_back(popper: Popper) -> None:
    """The last record that was read is of a time that comes again."""
    world = popper.world
    after_the_clock_went_back(popper)
    for queue in world.broker.pop.queues:
        queue.step(world.now_ms, world.now_ms, 0, WRITES_MAX)
    assert copies(popper) == 0


@pytest.mark.parametrize("days", [8, 30, 400])
@pytest.mark.parametrize("restarts", [False, True])
def test_revival_goes_on_after_a_clock_that_was_ahead(
    popper: Popper, days: int, restarts: bool
) -> None:
    world = popper.world
    popper.send("a", "b")
    popper.pop()
    world.pass_time(INVISIBLE_MS + 300)
    world.set_clock(days * 86_400_000)
    world.pass_time(1_000)
    popper.send("ahead")
    popper.pop(invisible_time=60_000)
    world.pass_time(1_000)
    world.set_clock(-days * 86_400_000)
    if restarts:
        world.close()
        world.open()
    world.pass_time(1_000)
    popper.send("c")
    assert "c" in [body for body, _ in popper.pop()]
    world.pass_time(INVISIBLE_MS + 1_300)
    assert "c" in [body for body, _ in popper.pop()]
