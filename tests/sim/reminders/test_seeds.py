"""Timers and delay levels in simulated groups: seeds that hold, and bugs that they find (I14)."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.sim.planting import Patch, Plant
from tests.sim.reminders.suite import run_late_copies, run_seed
from tests.sim.share import check_found, played
from tests.sim.timers.planted import a_slot_is_delivered_when_it_begins
from turbopump.broker.scheduled.durable_progress import DurableProgress
from turbopump.broker.scheduled.timer_deliveries import TimerDeliveries
from turbopump.broker.scheduled.wheel_reader import WheelReader
from turbopump.broker.traffic.role import Permit
from turbopump.engine.types import LogOffset

SEEDS = range(20)
THEMED_SEEDS = range(200)
# So that the processes of a parallel run share them.
PARTS = 2

# Seeds that found bugs which are mended.
REGRESSIONS = {
    "a rewind over the end of a file left its units in their slots": 3044,
    "a new master delivers to a topic that it has not copied yet": 4079,
}


def progress_is_ahead_of_the_replicas(patch: Patch) -> None:
    """A replica receives and trusts the progress of deliveries before it has the deliveries
    themselves.
    """
    take = DurableProgress._adopt_if_covered

    def settle(self: DurableProgress[Any]) -> None:
        if self._candidate is not None:
            self.safe, self._candidate = self._candidate[0], None

    def takes(self: DurableProgress[Any], ours: LogOffset) -> bool:
        return take(self, LogOffset(1 << 62))

    patch.setattr(DurableProgress, "settle_candidate", settle)
    patch.setattr(DurableProgress, "_adopt_if_covered", takes)


def a_new_master_begins_at_its_own_time(patch: Patch) -> None:
    """Timers that were due while there was no master are never delivered."""
    begin = WheelReader.begin_at

    def begins(self: WheelReader, read_tick: int, now_tick: int) -> None:
        begin(self, max(read_tick, now_tick), now_tick)

    patch.setattr(WheelReader, "begin_at", begins)


def a_deposed_master_delivers(patch: Patch) -> None:
    """A deposed master delivers without a lease until it is notified of the next master."""
    deliver = TimerDeliveries.step

    def delivers(self: TimerDeliveries, now_ms: int, until_ms: int) -> bool:
        role = self._role
        self._role = SimpleNamespace(admit_append=Permit)
        try:
            return deliver(self, now_ms, until_ms)
        finally:
            self._role = role

    patch.setattr(TimerDeliveries, "step", delivers)


BUGS: dict[Plant, tuple[str, ...]] = {
    a_new_master_begins_at_its_own_time: ("kill",),
    a_deposed_master_delivers: ("partition",),
    a_slot_is_delivered_when_it_begins: (),
}
"""Planted bugs, each with the faults that a seed needs to find it."""


@pytest.mark.parametrize("part", range(PARTS))
def test_reminders(part: int) -> None:
    for seed in played(SEEDS)[part::PARTS]:
        run_seed(seed)


@pytest.mark.parametrize("seed", REGRESSIONS.values(), ids=REGRESSIONS)
def test_past_finding(seed: int) -> None:
    run_seed(seed)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_suite_finds(bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    about = BUGS[bug]
    check_found(bug, monkeypatch, lambda seed: run_seed(seed, about), THEMED_SEEDS, beyond=True)


def test_late_copies_find_a_progress_that_is_ahead_of_the_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_found(progress_is_ahead_of_the_replicas, monkeypatch, run_late_copies, range(20))
