"""A store that refuses check points: a pop gets an error, not an empty response."""

import logging
import re

import pytest
from tests.unit.broker.conftest import World
from tests.unit.broker.pop.poppers import Popper

from turbopump.broker.introspection.metrics import CounterSnapshot, render
from turbopump.engine.deferred import Deferred
from turbopump.engine.log.commit_log import DISK_FULL
from turbopump.net.messaging.rpc import code_of
from turbopump.net.wire.codes import ResponseCode


def fill(world: World, is_full: bool) -> None:
    """Set the store's state as retention does after it measured the disk."""
    store = world.broker.store
    store._retention.disk_full = is_full
    store._log.tail.refuse(DISK_FULL, is_full)


@pytest.mark.parametrize("is_ordered", [False, True])
@pytest.mark.parametrize("poll_ms", [0, 15_000])
def test_a_pop_on_a_full_disk_gets_an_error_and_messages_once_there_is_room(
    world: World, caplog: pytest.LogCaptureFixture, poll_ms: int, is_ordered: bool
) -> None:
    popper = Popper(world)
    popper.send("known")
    assert popper.pop(order=is_ordered, invisible_time=60_000)
    popper.send("a", queue_id=1)
    fill(world, True)
    with caplog.at_level(logging.INFO, logger="turbopump.broker.pop.service"):
        for _ in range(3):
            response = popper.request(poll_time=poll_ms, order=is_ordered)
            if isinstance(response, Deferred):
                assert response.done, "the pop waits"
                response = response.value
            assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "disk is full" in code_of(response)[1]
        assert len(caplog.messages) == 1
        metrics, _ = render(CounterSnapshot.read_counters(world.broker, world.now_ms), "")
        (line,) = re.findall(rb"(?m)^turbopump_pops_refused_total\S* (\S+)", metrics)
        assert float(line) == 3
        fill(world, False)
        assert [body for body, _ in popper.pop(order=is_ordered)] == ["a"]
        assert len(caplog.messages) == 2


def test_a_waiting_pop_learns_that_the_store_takes_no_check_points(world: World) -> None:
    popper = Popper(world)
    waits = popper.request(poll_time=15_000)
    popper.send("a")
    fill(world, True)
    world.turn()
    assert isinstance(waits, Deferred) and waits.done
    assert waits.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
