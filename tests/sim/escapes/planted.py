"""Bugs of escaping messages, to be planted one at a time: the suite must find each."""

from collections.abc import Iterator
from typing import Any

from tests.sim.planting import Patch, Plant
from turbopump.broker.escape.bridge import Arrival, Escape
from turbopump.broker.escape.retry_window import RetryWindow
from turbopump.broker.ha.acting.pre_online import PreOnline
from turbopump.broker.pop.acting_journal import ActingJournal
from turbopump.broker.pop.revive_escape import PopEscape
from turbopump.broker.scheduled.delay import DelayedMessages
from turbopump.broker.scheduled.half_escape import HalfEscape
from turbopump.broker.scheduled.level_escape import LevelEscape
from turbopump.broker.scheduled.timer_escape import TimerEscape
from turbopump.broker.scheduled.timers import Timers
from turbopump.broker.scheduled.transactions import Half
from turbopump.broker.scheduled.wheel_reader import DueUnit
from turbopump.engine.deferred import Deferred
from turbopump.engine.timer.timer_check import TimerCheckpoint
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.command import Command


def what_no_master_took_counts(patch: Patch) -> None:
    """A message that failed is not sent again."""

    def failed(self: RetryWindow[Any, Any], item: Any, one: object) -> None:
        self.remove_item(item)

    patch.setattr(RetryWindow, "_begin_pause", failed)


def progress_is_ahead_of_what_was_delivered(patch: Patch) -> None:
    """The progress counts messages that are on their way."""

    def settle(self: LevelEscape, level: int, *_arrival: object) -> None:
        at = self._windows[level].next
        if at > self._levels.first_undelivered(level):
            self._levels.delivered_elsewhere(level, at, self._now_ms)

    patch.setattr(LevelEscape, "_advance_progress", settle)


def timers_leave_when_they_are_sent(patch: Patch) -> None:
    """An answer is not looked at."""
    send = TimerEscape._send

    def sent(self: TimerEscape, due: DueUnit, failures: int) -> None:
        if send(self, due, failures) is not None:
            self._left(due, None)

    patch.setattr(TimerEscape, "_send", sent)


def a_master_delivers_all_timers_again(patch: Patch) -> None:
    """The master ignores deliveries of its replica."""

    def take(self: Timers, checkpoint: TimerCheckpoint) -> None:
        pass

    patch.setattr(Timers, "adopt_newer", take)


def a_restart_begins_anew(patch: Patch) -> None:
    """A replica does not save its progress of escaped messages."""
    take = DelayedMessages.take_unsaved_content

    def of_masters(self: DelayedMessages) -> object:
        return None if self.durable.versions.following else take(self)

    patch.setattr(DelayedMessages, "take_unsaved_content", of_masters)


def check_points_and_acknowledgements_escape_to_different_masters(patch: Patch) -> None:
    """Check points and acknowledgements escape each by itself, as timers, like RocketMQ's."""
    patch.setattr(PopEscape, "handles_topic", lambda self, topic: False)


def acknowledgements_are_not_read(patch: Patch) -> None:
    """Acknowledgements that the master had stored are ignored."""
    patch.setattr(PopEscape, "_apply_acks", lambda self, tag, body: (None, []))


def messages_leave_before_all_acknowledgements_are_read(patch: Patch) -> None:
    """Messages leave when the check point comes, which is a second before its time."""
    look_at = PopEscape._schedule
    patch.setattr(PopEscape, "_schedule", lambda self, entry, at_ms: look_at(self, entry, 0))


def popped_messages_leave_when_they_are_sent(patch: Patch) -> None:
    """An answer is not looked at."""
    took = PopEscape._on_arrival

    def always(self: PopEscape, entry: Any, index: int, arrival: object) -> None:
        took(self, entry, index, True)

    patch.setattr(PopEscape, "_on_arrival", always)


def notes_are_not_kept(patch: Patch) -> None:
    """A replica that acts has them in memory alone."""
    patch.setattr(ActingJournal, "_save", lambda self, rows, gone: None)


def offsets_travel_without_their_notes(patch: Patch) -> None:
    """The master takes over its replica's pop offsets, but not its notes of hand-outs."""

    def notes(self: PreOnline, name: str, former: object, return_number: int = 0) -> Iterator[None]:
        yield from ()

    patch.setattr(PreOnline, "_take_over_notes", notes)


def what_a_replica_heard_leaves_all_the_same(patch: Patch) -> None:
    """The replica considers only records that its master had stored."""
    patch.setattr(ActingJournal, "get", lambda self, key: None)


def half_messages_leave_when_they_are_sent(patch: Patch) -> None:
    """An answer is not looked at."""
    send = HalfEscape._send

    def sent(self: HalfEscape, number: QueueOffset, failures: int) -> None:
        if send(self, number, failures) is not None:
            self._mark_done(number)

    patch.setattr(HalfEscape, "_send", sent)


def half_messages_leave_as_what_they_may_become(patch: Patch) -> None:
    """Consumers of the other master see them at once."""
    send = Escape.send

    def plainly(self: Escape, *args: Any, **more: Any) -> Deferred[Arrival | None]:
        return send(self, *args, **{**more, "is_half": False})

    patch.setattr(Escape, "send", plainly)


def ends_go_nowhere(patch: Patch) -> None:
    """The replica confirms a producer's decision, and does not pass it on to the master that has
    the half message.
    """

    def end(self: HalfEscape, half: Half, how: int) -> Deferred[Command | str]:
        return Deferred.resolved("")

    patch.setattr(HalfEscape, "forward_end", end)


HALF_BUGS: list[Plant] = [
    half_messages_leave_when_they_are_sent,
    half_messages_leave_as_what_they_may_become,
    ends_go_nowhere,
]
"""Bugs of the suite of transactions that escape."""

POP_BUGS: list[Plant] = [
    notes_are_not_kept,
    offsets_travel_without_their_notes,
    what_a_replica_heard_leaves_all_the_same,
    check_points_and_acknowledgements_escape_to_different_masters,
    acknowledgements_are_not_read,
    messages_leave_before_all_acknowledgements_are_read,
    popped_messages_leave_when_they_are_sent,
]
"""Bugs of the suite of popped messages that escape."""

BUGS: list[Plant] = [
    what_no_master_took_counts,
    progress_is_ahead_of_what_was_delivered,
    timers_leave_when_they_are_sent,
    a_master_delivers_all_timers_again,
    a_restart_begins_anew,
]
