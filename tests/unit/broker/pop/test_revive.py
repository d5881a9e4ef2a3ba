"""What is revived where the store refuses, and which check points are none of ours."""

import pytest
from tests.unit.broker.conftest import World
from tests.unit.broker.pop.test_pops import INVISIBLE_MS, RETRY, Popper

from turbopump.broker.introspection.runtime_info import runtime_table
from turbopump.broker.pop import retries
from turbopump.engine.later import Later
from turbopump.engine.types import PutStatus, QueueOffset
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.headers.pop import ChangeInvisibleTimeRequest
from turbopump.net.wire.pop_records import CheckPoint, CheckPointKey

LOG = "rmq_sys_REVIVE_LOG_DefaultCluster"


@pytest.fixture
def popper(world: World) -> Popper:
    return Popper(world)


def check_point(popper: Popper, start: int, broker: str = "broker-a", it_ms: int = 0) -> CheckPoint:
    key = CheckPointKey("T", "g", 0, QueueOffset(start), popper.world.now_ms - 1, broker)
    return CheckPoint(key, it_ms, (0,))


def copies(popper: Popper) -> int:
    return max(0, popper.world.broker.store.max_queue_offset(RETRY, 0))


def test_a_store_that_is_not_safe_is_not_flooded_with_copies(
    popper: Popper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What FLUSH_SLAVE_TIMEOUT is answered of lies in the log: each attempt is another copy."""
    popper.send(*map(str, range(20)))
    assert len(popper.pop()) == 20

    def timeout(*_put: object) -> Later[PutStatus]:
        later: Later[PutStatus] = Later()
        later.resolve(PutStatus.FLUSH_SLAVE_TIMEOUT)
        return later

    with monkeypatch.context() as patched:
        patched.setattr(popper.world.broker.role, "when_safe", timeout)
        popper.world.pass_time(INVISIBLE_MS + 20_000)
        tried = copies(popper)
        assert 20 <= tried <= 25
    popper.world.pass_time(31_000)
    assert copies(popper) == tried + 20
    popper.world.pass_time(60_000)
    assert copies(popper) == tried + 20


def test_a_copy_that_is_always_refused_keeps_no_others(
    popper: Popper, monkeypatch: pytest.MonkeyPatch
) -> None:
    popper.send("a", "b")
    popper.pop()
    whole = retries.RetryCopies.revive

    def refuse_a(self, record, check_point, now_ms):  # type: ignore[no-untyped-def]
        if bytes(record.body) != b"a":
            return whole(self, record, check_point, now_ms)
        later: Later[PutStatus] = Later()
        later.resolve(PutStatus.MESSAGE_ILLEGAL)
        return later

    with monkeypatch.context() as patched:
        patched.setattr(retries.RetryCopies, "revive", refuse_a)
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
    assert popper.world.broker.store.max_queue_offset(LOG, 0) >= 2  # it was put off


def test_a_check_point_that_no_broker_wrote_keeps_nothing(popper: Popper) -> None:
    """A client wrote it: it lies in the revive queue long before it is due."""
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


def test_what_is_in_flight_is_counted(popper: Popper) -> None:
    """What is acknowledged is not, nor what was revived; what is hidden for longer is."""
    world = popper.world

    def told() -> str:
        return runtime_table(world.broker, world.now_ms).get("consumerPop_g", "")

    assert told() == ""
    popper.send("a", "b", "c")
    (_, first), (_, second), _ = popper.pop()
    world.broker.statistics.sample(world.now_ms)
    world.pass_time(300)
    assert told().endswith(" 3 in flight")
    popper.ack(first)
    world.pass_time(300)
    assert told().endswith(" 2 in flight")
    change = ChangeInvisibleTimeRequest(
        "g", "T", 0, second, int(second.rpartition(" ")[2]), 10 * INVISIBLE_MS
    )
    world.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, change)
    world.pass_time(INVISIBLE_MS + 300)
    assert told().endswith(" 1 in flight"), "c was revived"
    world.broker.statistics.sample(world.now_ms + 10_000)
    assert told() == "0.1 popped/s, 0.1 acked/s, 1 in flight"
    assert runtime_table(world.broker, world.now_ms)["popReviveBehind"] == "0"


def test_properties_that_have_no_room_for_one_more_are_revived(popper: Popper) -> None:
    for size in range(32_760, 0, -8):
        try:
            popper.send("a", tag="x" * size)
        except AssertionError:
            continue  # too long to be sent
        break
    assert len(popper.pop()) == 1
    popper.world.pass_time(INVISIBLE_MS + 300)
    [(body, handle)] = popper.pop()
    assert body == "a" and popper.ack(handle).code == ResponseCode.SUCCESS


def test_a_waiting_pop_learns_that_this_broker_is_not_the_master_any_more(
    popper: Popper, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = popper.request(poll_time=10_000)
    assert isinstance(waiting, Later) and not waiting.done
    monkeypatch.setattr(type(popper.world.broker.role), "is_master", False)
    popper.world.broker.pop.step(popper.world.now_ms)
    popper.world.broker.pop.waiters.release_all()
    assert waiting.value.code == ResponseCode.SYSTEM_BUSY


def test_an_offset_that_was_reset_stays_though_a_check_point_becomes_safe(
    popper: Popper, monkeypatch: pytest.MonkeyPatch
) -> None:
    popper.send("a", "b")
    broker, answers = popper.world.broker, []

    def later(*_put: object) -> Later[PutStatus]:
        answers.append(Later[PutStatus]())
        return answers[-1]

    monkeypatch.setattr(broker.role, "when_safe", later)
    popper.request()
    broker.offsets.set_reset("g", "T", 0, QueueOffset(1), popper.world.now_ms)
    for each in answers:
        each.resolve(PutStatus.PUT_OK)
    assert broker.offsets.query("g", "T", 0) == 1
