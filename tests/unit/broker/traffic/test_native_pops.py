"""Native pops together with waiting pops, offset requests, new topics, and Python code that runs in
the middle of a native pop (docs/internals/fast-lane.md, "Native code that calls Python")."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lane.world import Driven, make
from tests.property.pops.test_fast_lane_pops import POP, PopWorld

from turbopump.broker.pop.popping import Popping
from turbopump.engine.log.commit_log import CommitLog
from turbopump.engine.queues.lookup import Lookup
from turbopump.engine.types import FlushMode, QueueOffset
from turbopump.net.wire.command import decode
from turbopump.net.wire.topics import TopicConfig
from turbopump.pyx.pops import MAX_PLACES

HOOKS = [(Popping, "offsets_for_native_pops"), (Lookup, "units_of"), (CommitLog, "region_of")]
MANY = 40
"""Number of groups whose rows exceed the reserved room."""


class Popper(Driven):
    """A connection that calls `acts[name]()` once, after the hooked function `name` returns."""

    acts: dict[str, Callable[[], object]]


def acting(acts: dict[str, Callable[[], object]], name: str, original: Any) -> Any:
    def call(*arguments: Any) -> Any:
        found = original(*arguments)
        if name in acts:
            acts.pop(name)()
        return found

    return call


@pytest.fixture
def popped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[PopWorld, Popper]]:
    """A broker whose fast path has learned the pops of a group, and its connection."""
    acts: dict[str, Callable[[], object]] = {}
    for owner, name in HOOKS:
        monkeypatch.setattr(owner, name, acting(acts, name, getattr(owner, name)))
    native = PopWorld(make(str(tmp_path), FlushMode.ASYNC_FLUSH))
    driven = Popper(native.world)
    driven.acts = acts
    driven.feed(native.pop_frame(POP, 1), 1 << 20)
    yield native, driven
    native.world.close()
    driven.near.close()
    driven.far.close()


def pop(native: PopWorld, driven: Driven, opaque: int) -> bool:
    """Pop one message; whether it was served natively."""
    pops = driven.fast_lane.pops
    before = pops.pop_count
    driven.feed(native.pop_frame(POP, opaque), 1 << 20)
    assert driven.responses[opaque]
    return pops.pop_count > before


def test_waiting_pops_are_notified_of_remaining_messages(
    popped: tuple[PopWorld, Popper], monkeypatch: pytest.MonkeyPatch
) -> None:
    native, driven = popped
    arrived: list[tuple[str, int]] = []
    monkeypatch.setattr(
        native.world.broker.pop.waiters, "on_arrival", lambda *place: arrived.append(place)
    )
    assert pop(native, driven, 2) and not arrived  # no pop waits
    driven.lane.watched = True
    assert pop(native, driven, 3)
    assert len(arrived) == 1 and arrived[0][0] == "Plain"


def test_the_offset_is_there_for_all_that_look(popped: tuple[PopWorld, Popper]) -> None:
    native, driven = popped
    offsets = native.world.broker.offsets
    count = sum(offsets.queues_of("live", "Plain").values())
    assert pop(native, driven, 2) and pop(native, driven, 3)
    assert driven.fast_lane.pops.is_known
    assert sum(offsets.queues_of("live", "Plain").values()) == count + 2
    assert not driven.fast_lane.pops.is_known
    assert pop(native, driven, 4) and offsets.take_changes() is not None
    assert offsets.take_changes() is None and not driven.fast_lane.pops.is_known
    for queue_id in (0, 1):
        offsets.set_reset("live", "Plain", queue_id, QueueOffset(0), native.world.now_ms)
    assert not pop(native, driven, 5)  # the reset is applied by the handler


def test_a_retry_topic_that_is_new_is_looked_at(popped: tuple[PopWorld, Popper]) -> None:
    native, driven = popped
    topics, now_ms = native.world.broker.topics, native.world.now_ms
    topics.on_change = lambda names: None
    topics.put(TopicConfig("Another", 1, 1), now_ms)
    assert pop(native, driven, 2)
    topics.create_internal("%RETRY%live_Plain", 1, 6, now_ms)
    assert not pop(native, driven, 3)


def test_places_are_bounded(popped: tuple[PopWorld, Popper]) -> None:
    native, driven = popped
    pops, now_ms = driven.fast_lane.pops, native.world.now_ms
    native.world.broker.topics.put(TopicConfig("Wide", 1_000, 1_000), now_ms)
    for number in range(MAX_PLACES // 1_000 + 10):
        driven.fast_lane.allow_pop(f"g{number}", "Wide", None, "*", "TAG", [], now_ms, 0)
        driven.fast_lane.allow_pop("g0", "Wide", None, "*", "TAG", [], now_ms, 0)
    assert MAX_PLACES - 1_000 < pops.place_count <= MAX_PLACES
    assert not pop(native, driven, 2)
    assert pop(native, driven, 3)  # known places are still served natively


def learn_many(native: PopWorld, driven: Driven) -> None:
    for number in range(MANY):
        driven.fast_lane.allow_pop(
            f"g{number}", "Plain", None, "*", "TAG", [], native.world.now_ms, 0
        )


ACTS: dict[str, Callable[[PopWorld, Driven], Any]] = {
    "end": lambda native, driven: driven.end_fast(),
    "let go": lambda native, driven: driven.fast_lane.pops.readers.let_go(),
    "grow": learn_many,
    "forget": lambda native, driven: driven.fast_lane.invalidate_readers(),
    "look": lambda native, driven: native.world.broker.offsets.query("live", "Plain", 0),
    "anew": lambda native, driven: driven.fast_lane.allow_pop(
        "live", "Plain", None, "*", "TAG", [], native.world.now_ms, 0
    ),
}


@pytest.mark.parametrize("name", [name for _, name in HOOKS])
@pytest.mark.parametrize("act", ACTS)
def test_referenced_memory_may_move(popped: tuple[PopWorld, Popper], name: str, act: str) -> None:
    """The pop is served for all that, once, by the lane or by its handler."""
    native, driven = popped
    for number in range(100, 150):
        native.send_tagged(number % 2, number)  # the first messages lie in an earlier file
    offsets = native.world.broker.offsets
    before = sum(offsets.queues_of("live", "Plain").values())
    driven.acts[name] = lambda: ACTS[act](native, driven)
    driven.feed(native.pop_frame(POP, 2), 1 << 20)
    assert name not in driven.acts
    assert sum(offsets.queues_of("live", "Plain").values()) == before + 1
    if act != "end":
        assert decode(driven.responses[2][0]).code == 0
