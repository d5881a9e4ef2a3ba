"""What clients may send that no consumer does: each is answered, and costs the others nothing."""

import pytest
from tests.unit.broker.conftest import World
from tests.unit.broker.pop.test_pops import INVISIBLE_MS, Popper

from turbopump.broker.pop.waiters import MAX_OF_GROUP, MAX_SIZE
from turbopump.engine.later import Later
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.headers.pop import ChangeInvisibleTimeRequest

HELD = 10_000


@pytest.fixture
def popper(world: World) -> Popper:
    return Popper(world)


def handle(*, start: str = "0", popped: str = "", hidden: str = "900", broker: str = "") -> str:
    """One that no broker gave."""
    return f"{start} {popped or 1} {hidden} 0 0 {broker or 'broker-a'} 0 0"


@pytest.mark.parametrize(
    "text",
    [
        handle(start="-1"),
        handle(start=str(2**63)),
        handle(popped="-1"),
        handle(popped=str(2**63)),
        handle(hidden="-1"),
        handle(hidden=str(2**63)),
    ],
)
def test_numbers_that_no_handle_has(popper: Popper, text: str) -> None:
    popper.send("a")
    [(_, good)] = popper.pop()
    assert popper.ack(good, extra_info=text).code == ResponseCode.MESSAGE_ILLEGAL
    header = ChangeInvisibleTimeRequest("g", "T", 0, text, 0, 900)
    changed = popper.world.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
    assert changed.code == ResponseCode.MESSAGE_ILLEGAL


def test_an_acknowledgement_of_a_time_to_come_is_refused(popper: Popper) -> None:
    """Its record would wait for longer than timers may."""
    popper.send("a")
    [(_, good)] = popper.pop()
    end = popper.world.broker.store.max_log_offset
    answer = popper.ack(good, extra_info=handle(popped=str(2**61)))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert popper.world.broker.store.max_log_offset == end


@pytest.mark.parametrize("invisible_ms", [-1, 2**62, 2**63 - 1])
def test_times_that_no_message_is_hidden_for(popper: Popper, invisible_ms: int) -> None:
    popper.send("a")
    [(_, good)] = popper.pop()
    header = ChangeInvisibleTimeRequest("g", "T", 0, good, 0, invisible_ms)
    answer = popper.world.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    popper.world.pass_time(INVISIBLE_MS + 300)
    assert [body for body, _ in popper.pop()] == ["a"]


def test_handles_of_other_groups_and_brokers_acknowledge_nothing(popper: Popper) -> None:
    """Who has a handle may acknowledge its message; for another group it stands for nothing."""
    popper.send("a")
    [(_, good)] = popper.pop()
    assert popper.ack(good, consumer_group="others").code == ResponseCode.SUCCESS
    elsewhere = good.replace("broker-a", "broker-b")
    assert popper.ack(good, extra_info=elsewhere).code == ResponseCode.SUCCESS
    popper.world.pass_time(INVISIBLE_MS + 300)
    assert [body for body, _ in popper.pop()] == ["a"]


def test_ten_thousand_pops_that_wait(popper: Popper) -> None:
    """Of one group only some may; all are answered when their time is over."""
    waiters = popper.world.broker.pop.waiters
    groups = -(-HELD // MAX_OF_GROUP)
    for number in range(HELD):
        asked = popper.request(poll_time=1_000, consumer_group=f"g{number % groups}")
        assert isinstance(asked, Later)
    assert waiters.count == HELD and waiters.size < MAX_SIZE
    for _ in range(MAX_OF_GROUP - waiters.number_of("T", "g0", -1)):
        popper.request(poll_time=1_000, consumer_group="g0")
    full = popper.request(poll_time=1_000, consumer_group="g0")
    full = full.value if isinstance(full, Later) else full
    assert full.code == ResponseCode.POLLING_FULL
    popper.world.pass_time(1_100)
    assert waiters.count == waiters.size == 0
