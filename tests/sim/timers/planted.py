"""Bugs of timers, to be planted one at a time: the suite must find each."""

from typing import Any

from tests.sim.planting import Patch, Plant
from turbopump.broker.scheduled import durable_progress
from turbopump.broker.scheduled.delay import DelayedMessages
from turbopump.broker.scheduled.timer_deliveries import TimerDeliveries
from turbopump.broker.scheduled.timer_progress import TimerProgress
from turbopump.broker.scheduled.timer_reading import TimerReading
from turbopump.broker.scheduled.timers import Timers
from turbopump.broker.scheduled.wheel_reader import DueUnit, WheelReader
from turbopump.engine.store import Store
from turbopump.engine.timer import timer_check, timer_files
from turbopump.pyx import timer as kernel


def progress_is_ahead_of_the_deliveries(patch: Patch) -> None:
    """Deliveries count as safe before they are on the disk.

    No sync is requested for them either: a sync that began before the checkpoint's mostly ends
    before it.
    """

    def settle(self: Any) -> None:
        if self._candidate is not None:
            self.safe, self._candidate = self._candidate[0], None

    patch.setattr(durable_progress.DurableProgress, "settle_candidate", settle)
    patch.setattr(Store, "flush_soon", lambda self: None)


def a_slot_is_delivered_when_it_begins(patch: Patch) -> None:
    """Timers are delivered up to a second early."""
    load = WheelReader._load_more

    def early(self: WheelReader, budget: int) -> int:
        self._due_of = lambda _log_offset: 0
        self._order = lambda *_native: 0
        return load(self, budget)

    patch.setattr(WheelReader, "_load_more", early)


def a_roll_loses_its_slot(patch: Patch) -> None:
    """The second part of a wait is forgotten."""
    deliver = TimerDeliveries._deliver_one

    def forgets(self: TimerDeliveries, due: DueUnit, now_ms: int) -> bool:
        return bool(due.magic & kernel.ROLL) or deliver(self, due, now_ms)

    patch.setattr(TimerDeliveries, "_deliver_one", forgets)


def a_wheel_is_believed_after_a_power_cut(patch: Patch) -> None:
    """The wheel is trusted as if its pages were written in order."""
    load = timer_check.load

    def whole(*arguments: Any) -> Any:
        return load(*arguments)[0], True

    patch.setattr(timer_files.timer_check, "load", whole)


def the_cursor_stays_when_the_clock_is_set_back(patch: Patch) -> None:
    """After the clock was set back, new timers wait until it shows the earlier time again."""
    patch.setattr(WheelReader, "watch_clock", lambda self, now_tick: None)


def progress_does_not_rest_while_the_clock_is_behind(patch: Patch) -> None:
    """The progress advances while the clock is set back: a crash then loses newer timers."""
    progress_of = Timers._current_progress

    def unheld(self: Timers) -> TimerProgress:
        self._held = None
        return progress_of(self)

    patch.setattr(Timers, "_current_progress", unheld)


def the_queue_goes_on_behind_what_was_never_in_the_wheel(patch: Patch) -> None:
    """The progress counts timers that wait in the queue as put into their slots."""
    progress_of = Timers._current_progress

    def ahead(self: Timers) -> TimerProgress:
        found = progress_of(self)
        end = self._store.max_queue_offset(timer_files.TIMER_TOPIC, 0)
        return found._replace(queue_offset=max(found.queue_offset, end))

    patch.setattr(Timers, "_current_progress", ahead)


def levels_are_saved_before_their_deliveries(patch: Patch) -> None:
    """Progress of delay levels is saved before the deliveries are durable: a power cut
    loses them.
    """

    def take_save(self: DelayedMessages) -> dict[str, Any] | None:
        return self._to_json(self.durable.current)

    patch.setattr(DelayedMessages, "take_unsaved_content", take_save)


def recalls_are_passed_over(patch: Patch) -> None:
    """Timers are delivered before the queue was read up to their time."""
    patch.setattr(TimerReading, "until_ms", lambda self, now_ms: now_ms)


def chains_of_another_precision_stay(patch: Patch) -> None:
    """A wheel counts as whole although its slots had another length."""
    load = timer_check.load

    def whole(*arguments: Any) -> Any:
        check, _is_whole = load(*arguments)
        return check, check.log_position > 0

    patch.setattr(timer_files.timer_check, "load", whole)


BUGS: tuple[Plant, ...] = (
    levels_are_saved_before_their_deliveries,
    progress_is_ahead_of_the_deliveries,
    a_slot_is_delivered_when_it_begins,
    a_roll_loses_its_slot,
    a_wheel_is_believed_after_a_power_cut,
    the_cursor_stays_when_the_clock_is_set_back,
    progress_does_not_rest_while_the_clock_is_behind,
    the_queue_goes_on_behind_what_was_never_in_the_wheel,
    recalls_are_passed_over,
    chains_of_another_precision_stay,
)
