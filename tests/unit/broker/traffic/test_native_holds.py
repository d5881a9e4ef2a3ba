"""Pulls that native code holds: portions, limits, and peers that do not read or disappear."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lane.world import Driven, finish, frame_of, make
from tests.property.test_fast_lane import send_to
from tests.unit.broker.conftest import World

from turbopump.engine.types import FlushMode, QueueOffset
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Codec, decode, new_request
from turbopump.net.wire.header import write_header
from turbopump.net.wire.headers.pull import SUSPEND_FLAG, PullMessageRequest
from turbopump.pyx.held import HAND_OVER_ROWS, WAKES_MAX

FIRST = 1_000_000
"""The first opaque of many pulls: all have the same number of digits."""


class Holding:
    """A broker with two connections, and a queue whose pulls are plain."""

    def __init__(self, folder: Path) -> None:
        self.world: World = make(str(folder), FlushMode.ASYNC_FLUSH)
        self.driven, self.other = Driven(self.world), Driven(self.world)
        self.rows = self.world.broker.fast.held_rows
        self.sent = 0
        for queue_id in (0, 1):
            self.send(queue_id)
            self.pull(self.driven, 0, queue_id, flags=0)
        self.driven.responses.clear()

    def send(self, queue_id: int = 0, size: int = 1) -> None:
        self.sent += 1
        key = f"UNIQ_KEY\x017F0000010000558C000000000000{self.sent:04}\x02"
        step = {**send_to(queue_id, key), "body": b"x" * size}
        self.other.feed(frame_of(step, self.sent), 1 << 20)

    def end_of(self, queue_id: int = 0) -> int:
        return self.world.broker.store.max_queue_offset("Plain", queue_id)

    def frame(self, opaque: int, at: int, queue_id: int = 0, flags: int = SUSPEND_FLAG) -> bytes:
        header = PullMessageRequest("live", "Plain", queue_id, at, 32, flags, 0, 15_000, 5)
        request = new_request(RequestCode.PULL_MESSAGE, fields=write_header(header))
        return finish(request, {"codec": Codec.JSON, "version": 513}, opaque)

    def pull(
        self, driven: Driven, opaque: int, queue_id: int = 0, flags: int = SUSPEND_FLAG
    ) -> None:
        at = self.end_of(queue_id) - (flags == 0)
        driven.feed(self.frame(opaque, at, queue_id, flags), 1 << 20)

    def hold_many(self, count: int, queue_id: int = 0) -> None:
        """Hold `count` pulls of the queue, with opaques from FIRST on."""
        one = self.frame(FIRST, self.end_of(queue_id), queue_id)
        digits = str(FIRST).encode()
        assert one.count(digits) == 1
        for begin in range(0, count, 1_000):
            numbers = range(FIRST + begin, FIRST + min(begin + 1_000, count))
            data = b"".join(one.replace(digits, str(each).encode()) for each in numbers)
            self.driven.feed(data, 1 << 18)

    def codes(self) -> dict[int, int]:
        self.driven.collect()
        return {opaque: decode(one[0]).code for opaque, one in self.driven.responses.items()}


@pytest.fixture
def holding(tmp_path: Path) -> Iterator[Holding]:
    made = Holding(tmp_path)
    yield made
    for each in (made.driven, made.other):
        each.end_fast()
        each.near.close()
        each.far.close()
    made.world.close()


def test_a_message_for_thousands_wakes_them_in_portions(holding: Holding) -> None:
    holding.hold_many(10_000)
    holding.pull(holding.other, 5, queue_id=1)
    assert holding.rows.count == holding.rows.held_count == 10_001
    holding.send(0)
    holding.send(1)
    for turn in range(1, 12):
        holding.rows.wake()
        codes = holding.codes()
        assert len(codes) <= turn * WAKES_MAX
        holding.other.collect()
        # The other queue does not wait for all pulls of the first one.
        assert turn < 2 or 5 in holding.other.responses
    assert holding.rows.count == 0
    assert list(codes) == list(range(FIRST, FIRST + 10_000)), "in the order of holding"
    assert set(codes.values()) == {0}


def test_times_end_in_portions(holding: Holding) -> None:
    holding.hold_many(3 * WAKES_MAX + 10)
    holding.world.now_ms += 15_000
    holding.rows.tick(holding.world.steady_ms)
    assert holding.rows.count == 2 * WAKES_MAX + 10
    for _ in range(3):
        holding.rows.expire()
    assert holding.rows.count == 0
    codes = holding.codes()
    assert list(codes) == sorted(codes), "in the order of holding"
    assert set(codes.values()) == {19}


PORTION = WAKES_MAX // HAND_OVER_ROWS
"""Pulls that a call gives to the handler, at most."""


def test_a_change_of_role_has_the_present_pulls_answered_in_portions(holding: Holding) -> None:
    holding.hold_many(3 * PORTION)
    held = holding.world.broker.held_pulls
    held.release_all()
    assert held.count == 3 * PORTION, "none in the call"
    holding.pull(holding.other, 5)
    last = held.count
    while holding.rows.has_leaving:
        holding.rows.hand_over_some()
        assert 0 <= last - held.count <= PORTION
        last = held.count
    assert (held.count, holding.rows.count) == (1, 1), "the pull that came later"
    assert list(holding.codes().values()) == [19] * (3 * PORTION)


def test_a_pull_to_be_answered_does_not_wait_on_for_a_message(holding: Holding) -> None:
    holding.hold_many(1)
    holding.world.broker.held_pulls.release_all()
    holding.world.broker.fast.invalidate_readers()
    holding.send()
    holding.rows.wake()
    assert holding.codes() == {FIRST: 0}
    assert holding.world.broker.held_pulls.count == 0


def test_a_reset_has_the_present_pulls_attempted_in_portions(holding: Holding) -> None:
    holding.hold_many(2 * PORTION + 1)
    holding.pull(holding.other, 5, queue_id=1)
    broker = holding.world.broker
    attempts, resume = [0], holding.rows.hand_over

    def counting(*arguments: Any) -> None:
        attempts[0] += 1
        resume(*arguments)

    holding.rows.hand_over = counting
    broker.offsets.set_reset("live", "Plain", 0, QueueOffset(0), holding.world.now_ms)
    assert attempts == [0], "none in the call"
    last = 0
    while holding.rows.has_leaving:
        holding.rows.hand_over_some()
        assert attempts[0] - last <= PORTION
        last = attempts[0]
    assert attempts == [2 * PORTION + 1]
    assert holding.rows.count == 1, "the other queue's pull stays"
    assert holding.codes() == {FIRST: 21}, "the first pull takes the reset"


def test_the_slot_of_a_removed_queue_is_used_again_after_its_last_pull(holding: Holding) -> None:
    holding.hold_many(PORTION + 1)
    store, held = holding.world.broker.store, holding.world.broker.held_pulls
    queues = store._queues.table
    slot = queues.find(b"Plain", 0)
    store.delete_topic("Plain")
    others = [queues.add(b"Another", number) for number in range(3)]
    assert slot not in others and held.count == PORTION + 1
    while holding.rows.has_leaving:
        holding.rows.hand_over_some()
    assert (holding.rows.count, held.count) == (0, PORTION + 1), "the handler holds them"
    assert slot in [queues.add(b"Another", number) for number in range(3, 6)]


def test_pulls_of_a_queue_that_was_created_again_get_its_messages(holding: Holding) -> None:
    holding.pull(holding.driven, 6)
    store = holding.world.broker.store
    store.delete_topic("Plain")
    for _ in range(3):
        holding.send()
    while holding.rows.has_leaving:
        holding.rows.hand_over_some()
    assert holding.codes() == {6: 0}


def test_100_000_pulls_leave_with_their_connection(holding: Holding) -> None:
    holding.hold_many(100_000)
    held = holding.world.broker.held_pulls
    assert holding.rows.count == held.count == holding.driven.held == 100_000
    holding.driven.lose()
    assert (held.count, held.size) == (0, 0)
    holding.send()
    holding.rows.wake()
    assert holding.rows.wake_count == 0


@pytest.mark.parametrize("limit", ["count_max", "size_max"])
def test_a_pull_beyond_the_limits_is_answered_at_once(holding: Holding, limit: str) -> None:
    holding.hold_many(2)
    held = holding.world.broker.held_pulls
    if limit == "count_max":
        holding.rows.count_max = held._max_holds = 3
    else:
        holding.rows.size_max = held.size * 2
    holding.pull(holding.driven, 6)
    assert held.count == 3
    if limit == "size_max":
        holding.pull(holding.driven, 7)
        holding.pull(holding.driven, 8)
        assert holding.rows.count == 4, "the handler's limit is its own"
        return
    holding.pull(holding.driven, 7)
    assert holding.codes() == {7: 19}


def test_a_peer_that_does_not_read_gets_its_answers_in_order(holding: Holding) -> None:
    holding.hold_many(900)
    holding.pull(holding.other, 5)
    holding.send(size=3_000)
    holding.rows.wake()
    holding.other.collect()
    assert 5 in holding.other.responses
    assert len(holding.driven.rest) > 1 << 20, "the socket did not take all"
    assert list(holding.codes()) == list(range(FIRST, FIRST + 900))


def test_a_connection_that_is_cut_by_its_own_answers(
    holding: Holding, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(driven: Any, buffers: list[bytes]) -> None:
        driven.closed = True
        driven.end_fast()

    monkeypatch.setattr(Driven, "write_rest", cut)
    holding.hold_many(900)
    holding.send(size=3_000)
    holding.rows.wake()
    assert holding.rows.count == 0
    assert 0 < holding.rows.wake_count < 900
    holding.send()
    holding.rows.wake()


@pytest.mark.parametrize("lost", ["wake", "expire"])
def test_a_call_that_the_loop_dropped_is_made_up_for(holding: Holding, lost: str) -> None:
    """The loop drops posted calls while another thread uses the store."""
    if lost == "wake":
        holding.hold_many(1)
        holding.send()
    else:
        holding.hold_many(WAKES_MAX + 1)
        holding.world.now_ms += 15_000
        holding.rows.tick(holding.world.steady_ms)
        assert holding.rows.count == 1
    posted: list[Callable[[], None]] = []
    holding.world.soon = posted.append
    for _ in range(3):
        holding.rows.tick(holding.world.steady_ms)
        for work in posted:
            work()
    assert holding.rows.count == 0


def test_pulls_are_native_again_after_the_handler_woke_one(holding: Holding) -> None:
    broker = holding.world.broker
    broker.fast.invalidate_readers()
    holding.pull(holding.driven, 6)
    assert (broker.held_pulls.count, holding.rows.count) == (1, 0)
    holding.send()
    broker.store.notify_arrivals()
    broker.held_pulls.attempt_grown()
    assert holding.codes() == {6: 0}
    holding.pull(holding.driven, 7)
    assert holding.rows.count == 1
