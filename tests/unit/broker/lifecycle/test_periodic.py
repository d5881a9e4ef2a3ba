"""PeriodicTasks: each has a single chain of steps, whatever its backlog."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from turbopump.broker.lifecycle.chain import PAUSE_MS, StepChain
from turbopump.broker.lifecycle.periodic import PeriodicTasks
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.disk.rotating_jsonl import RotatingJsonl

TICK_MS = 100


class Call:
    """A call that a loop has scheduled."""

    def __init__(self, at_s: float, work: Callable[[], None]) -> None:
        self.at_s, self.work, self.is_cancelled = at_s, work, False

    def when(self) -> float:
        return self.at_s

    def cancel(self) -> None:
        self.is_cancelled = True


class VirtualLoop:
    """Runs scheduled calls when the test moves its clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._calls: list[Call] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, work: Callable[[], None]) -> Call:
        self._calls.append(Call(self.now_s + delay_s, work))
        return self._calls[-1]

    @property
    def scheduled(self) -> int:
        return len([call for call in self._calls if not call.is_cancelled])

    def run(self, until_s: float) -> None:
        while due := [c for c in self._calls if not c.is_cancelled and c.at_s <= until_s]:
            first = min(due, key=lambda call: call.at_s)
            self._calls = [c for c in self._calls if c is not first and not c.is_cancelled]
            self.now_s = max(self.now_s, first.at_s)
            first.work()
        self.now_s = until_s


class Backlog:
    """A duty that always has more to do."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self, _now_ms: int) -> bool:
        self.steps += 1
        return True


def chain_of(loop: VirtualLoop, step: Callable[[], int | None]) -> StepChain:
    return StepChain(cast(asyncio.AbstractEventLoop, loop), "a duty", step, lambda: False)


def duties_of(world: Any, loop: VirtualLoop, folder: Path) -> PeriodicTasks:
    return PeriodicTasks(
        world.broker,
        cast(asyncio.AbstractEventLoop, loop),
        world.config_disk,
        files=world.files,
        histories=RotatingJsonl(RealFiles(), str(folder), "rebalance"),
        now_ms=lambda: world.now_ms,
        steady_ms=lambda: world.steady_ms,
    )


@pytest.mark.parametrize("part", ["delay", "transaction_checks", "pop"])
def test_a_backlog_has_one_chain_of_steps(
    world: Any, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backlog, loop = Backlog(), VirtualLoop()
    monkeypatch.setattr(getattr(world.broker, part), "step", backlog.step)
    duties = duties_of(world, loop, tmp_path)
    ticks = 100
    for _ in range(ticks):
        duties.tick()
        assert loop.scheduled <= 2  # the backlog, and the timers
        loop.run(loop.now_s + TICK_MS / 1000)
    assert backlog.steps <= ticks * (TICK_MS // PAUSE_MS + 1)
    duties.stop()
    assert loop.scheduled == 0


def test_a_step_that_is_due_soon_is_not_run_twice() -> None:
    loop, steps = VirtualLoop(), list[float]()
    chain = chain_of(loop, lambda: steps.append(loop.now_s) or PAUSE_MS)
    chain.tick()
    chain.tick()
    chain.run_soon()
    assert steps == [0.0] and loop.scheduled == 1


def test_a_chain_that_waits_hurries_when_there_is_more_to_do() -> None:
    loop, steps = VirtualLoop(), list[float]()
    chain = chain_of(loop, lambda: steps.append(loop.now_s) or (60_000 if steps else None))
    chain.tick()
    chain.run_soon()
    chain.run_soon()
    loop.run(1.0)
    assert steps == [0.0, PAUSE_MS / 1000] and loop.scheduled == 1


def test_a_step_that_fails_is_tried_again_by_the_next_tick() -> None:
    loop, steps = VirtualLoop(), list[int]()

    def step() -> int:
        steps.append(len(steps))
        if len(steps) == 1:
            raise OSError("a disk")
        return PAUSE_MS

    chain = chain_of(loop, step)
    chain.tick()
    assert loop.scheduled == 0
    chain.tick()
    assert steps == [0, 1] and loop.scheduled == 1
