"""Native responses and handlers' sends share one list of pending requests, on a real connection."""

import tempfile
from collections.abc import Iterator

import pytest
from tests.lane.world import Driven, make
from tests.unit.broker.traffic.test_fast_path import code, send

from turbopump.engine.types import FlushMode, PutStatus
from turbopump.net.wire.codes import ResponseCode

BY_HANDLER = {"properties": "WAIT\x01true\x02"}
"""A handler makes the unique key that it lacks."""


class Noting(Driven):
    """Records the number of native responses and the handlers' responses that were written before
    them."""

    def settled(self, count: int) -> bool:
        if hasattr(self, "seen"):
            self.seen.append((count, sorted(self.responses.keys() & set(range(200, 300)))))
        return super().settled(count)


@pytest.fixture
def driven() -> Iterator[Noting]:
    """A connection to a broker with SYNC_FLUSH whose disk hangs; the next simple sends are
    native."""
    with tempfile.TemporaryDirectory() as folder:
        world = make(folder, FlushMode.SYNC_FLUSH)
        connection = Noting(world)
        send(connection, 0)
        send(connection, 1)
        assert connection.lane.send_count == 1
        connection.seen = []  # type: ignore[attr-defined]
        world.disk.hold()
        yield connection
        world.close()
        connection.near.close()
        connection.far.close()


def mixed(driven: Noting) -> None:
    """200 and 201 are native, so are 203 and 204; between them 202 is a handler's."""
    for opaque in range(200, 205):
        send(driven, opaque, **(BY_HANDLER if opaque == 202 else {}))
    assert driven.lane.send_count == 1 + 4
    assert driven.lane.pending.count == 5
    assert [code(driven, opaque) for opaque in range(200, 205)] == [None] * 5


def test_answers_leave_in_the_order_of_the_log_whoever_holds_them(driven: Noting) -> None:
    mixed(driven)
    driven.world.disk.release()
    assert driven.lane.pending.count == 0
    assert [code(driven, opaque) for opaque in range(200, 205)] == [0] * 5
    # The sync that was under way is of the first alone; the next one is of all others.
    assert driven.seen == [(1, []), (1, []), (2, [202])]  # type: ignore[attr-defined]


@pytest.mark.parametrize("status", [PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.SERVICE_NOT_AVAILABLE])
def test_both_fail_alike(driven: Noting, status: PutStatus) -> None:
    mixed(driven)
    driven.lane.pending.fail(status)
    expected = ResponseCode[status.name]
    assert [code(driven, opaque) for opaque in range(200, 205)] == [expected] * 5
    assert driven.held == driven.lane.pending.count == 0


def test_both_are_late_alike(driven: Noting) -> None:
    mixed(driven)
    driven.world.pass_time(driven.world.config.store.sync_flush_timeout_ms)
    late = ResponseCode.FLUSH_DISK_TIMEOUT
    assert [code(driven, opaque) for opaque in range(200, 205)] == [late] * 5


def test_an_answer_to_a_closed_connection_is_nothing(driven: Noting) -> None:
    mixed(driven)
    driven.closed = True
    driven.world.disk.release()
    assert driven.lane.pending.count == driven.held == 0
    found = [code(driven, opaque) for opaque in range(200, 205)]
    assert found == [None, None, 0, None, None], "a handler's is the transport's to drop"


def test_the_lane_leaves_the_next_one_when_as_many_wait_as_may(driven: Noting) -> None:
    driven.lane.pending.limit = 2
    for opaque in (200, 201, 202):
        send(driven, opaque, **(BY_HANDLER if opaque == 200 else {}))
    assert driven.lane.send_count == 1 + 1
    assert driven.lane.pending.count == 3


def test_a_master_with_replicas_dispatches_natively_and_reports_each_growth() -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = make(folder, FlushMode.ASYNC_FLUSH)
        driven = Driven(world)
        send(driven, 0)
        store = world.broker.store
        log = store.as_replicated(world.now_ms, plain=True)
        log.to_master(-1, world.now_ms)
        world.broker.store.pending.ask_for(1)
        send(driven, 1)
        seen: list[int] = []
        log.on_appended.append(lambda: seen.append(log.end))
        store._run_dispatch = lambda now_ms: pytest.fail("a call of Python for each read")  # type: ignore[method-assign]
        before = driven.lane.send_count
        ends = []
        for opaque in (2, 3):
            send(driven, opaque)
            ends.append(log.end)
            assert store.dispatched_log_offset == log.end
        assert driven.lane.send_count == before + 2
        assert seen == ends, "replicas are sent each growth, once"
        del store._run_dispatch
        world.close()
        driven.near.close()
        driven.far.close()
