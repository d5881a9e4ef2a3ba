"""Bugs of pop, to be planted one at a time: the suite must find each."""

from typing import Any

from tests.sim.planting import Patch, Plant
from turbopump.broker.pop import assembly, service
from turbopump.broker.pop.ack_watermark import AckWatermark
from turbopump.broker.pop.lives import Lives
from turbopump.broker.pop.offset_recovery import PoppedOffsets
from turbopump.broker.pop.outstanding import OutstandingBatch, OutstandingPops, PoppedQueue
from turbopump.broker.pop.revive import ReviveQueue, Stepped
from turbopump.broker.pop.revive_log import ReviveLog
from turbopump.broker.scheduled.timers import Timers
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import PutStatus, QueueOffset
from turbopump.net.wire.pop_records import Acknowledgement


def acknowledgements_are_answered_at_once(patch: Patch) -> None:
    """Their records may be lost with the power."""
    add_ack = ReviveLog.add_ack

    def answered(self: ReviveLog, *arguments: object) -> Deferred[PutStatus]:
        add_ack(self, *arguments)
        return _resolved()

    patch.setattr(ReviveLog, "add_ack", answered)


def acknowledgements_are_not_waited_for(patch: Patch) -> None:
    """A message is revived by the clock, whatever is still to be read."""
    patch.setattr(AckWatermark, "take_sample", lambda self, now_ms: now_ms)


def hand_outs_are_forgotten(patch: Patch) -> None:
    """After a crash pops begin at the saved offsets (as in RocketMQ)."""
    patch.setattr(service.PopService, "_recover_step", _leads)


def _leads(self: service.PopService) -> bool:
    self._led = True
    return True


def what_is_revived_is_not_noted(patch: Patch) -> None:
    """Only the saved progress shows which messages were revived (as in RocketMQ)."""
    revive_one = ReviveQueue._revive_message

    def silent(self: ReviveQueue, *arguments: object) -> bool:
        revive_one(self, *arguments)
        return False

    patch.setattr(ReviveQueue, "_revive_message", silent)


def offsets_are_committed_before_check_points_are_safe(patch: Patch) -> None:
    """A power cut takes the check point and leaves the offset: no consumer gets the messages."""
    add = OutstandingPops.add

    def added(self: OutstandingPops, queue: PoppedQueue, end: QueueOffset) -> OutstandingBatch:
        given = add(self, queue, end)
        self.mark_safe(queue, given)
        return given

    patch.setattr(OutstandingPops, "add", added)


def acknowledgements_are_kept_in_memory(patch: Patch) -> None:
    """Acknowledgements are kept in memory, and lost at a restart."""
    revive = ReviveQueue._revive_messages

    def kept(self: ReviveLog, ack: Acknowledgement, *_more: int) -> Deferred[PutStatus]:
        vars(self).setdefault("kept", []).append(ack)
        return _resolved()

    def revived(self: ReviveQueue, entry: Any, *rest: Any, **flags: Any) -> int:
        for ack in vars(self._log).get("kept", []):
            self._apply_ack(ack)
        return revive(self, entry, *rest, **flags)

    patch.setattr(ReviveLog, "add_ack", kept)
    patch.setattr(ReviveQueue, "_revive_messages", revived)


def messages_are_revived_before_their_time(patch: Patch) -> None:
    """Messages are revived by less than a second early: check points are there a second before they
    are due.
    """
    step, early_ms = ReviveQueue.step, 700

    def early(
        self: ReviveQueue, now_ms: int, settled_ms: int, *rest: int, holds: bool = False
    ) -> Stepped:
        return step(self, now_ms + early_ms, settled_ms + early_ms, *rest, holds=holds)

    patch.setattr(ReviveQueue, "step", early)


def acknowledgements_go_to_another_revive_queue(patch: Patch) -> None:
    """Acknowledgements are stored in another revive queue than their check point."""
    add_ack = ReviveLog.add_ack

    def astray(
        self: ReviveLog, ack: Acknowledgement, invisible_ms: int, queue_id: int, now_ms: int
    ) -> Deferred[PutStatus]:
        return add_ack(self, ack, invisible_ms, (queue_id + 1) % 2, now_ms)

    patch.setattr(ReviveLog, "add_ack", astray)


def _resolved() -> Deferred[PutStatus]:
    later: Deferred[PutStatus] = Deferred()
    later.resolve(PutStatus.PUT_OK)
    return later


def offsets_move_by_check_points_of_a_former_life(patch: Patch) -> None:
    """After a crash the first messages of a topic that was created again are skipped."""
    patch.setattr(
        PoppedOffsets,
        "is_in_present_life",
        lambda self, queue, pop_time_ms: pop_time_ms > self.set_back_ms(queue),
    )


def check_points_of_a_former_life_revive(patch: Patch) -> None:
    """Messages that lie at their offsets now come again."""
    patch.setattr(Lives, "has_ended", lambda self, key: False)


def handles_of_a_former_life_acknowledge(patch: Patch) -> None:
    """Handles, check points and batches of a former life count as current."""
    patch.setattr(Lives, "is_former", lambda self, topic, group, pop_time_ms: False)


def recovery_ends_at_the_gaps_of_a_filter(patch: Patch) -> None:
    """Check points begin at their first message, not where the filter began to pass over some."""
    patch.setattr(OutstandingPops, "take_check_point_start", lambda self, queue, start: start)


def revive_queues_beyond_a_lower_number_are_not_read(patch: Patch) -> None:
    """Records in revive queues beyond a lowered number are never read (as in RocketMQ)."""
    patch.setattr(assembly, "_revive_queues", lambda deps, topic: deps.config.revive_queue_num)


def the_clock_never_goes_back(patch: Patch) -> None:
    """After the clock was set back, times that were read before count as read."""
    step, delivered_ms = AckWatermark.take_sample, Timers.delivered_ms

    def ahead(self: AckWatermark, now_ms: int) -> int:
        self._now_ms = 0
        return step(self, now_ms)

    def latest(self: Timers, now_ms: int) -> int:
        known = vars(self).get("latest_ms", 0)
        vars(self)["latest_ms"] = max(known, delivered_ms(self, now_ms))
        return vars(self)["latest_ms"]

    patch.setattr(AckWatermark, "take_sample", ahead)
    patch.setattr(Timers, "delivered_ms", latest)


BUGS_OF_TROUBLE: list[Plant] = [
    recovery_ends_at_the_gaps_of_a_filter,
    revive_queues_beyond_a_lower_number_are_not_read,
    the_clock_never_goes_back,
    offsets_move_by_check_points_of_a_former_life,
    check_points_of_a_former_life_revive,
    handles_of_a_former_life_acknowledge,
]

BUGS: list[Plant] = [
    acknowledgements_are_kept_in_memory,
    acknowledgements_go_to_another_revive_queue,
    messages_are_revived_before_their_time,
    offsets_are_committed_before_check_points_are_safe,
    acknowledgements_are_answered_at_once,
    acknowledgements_are_not_waited_for,
    hand_outs_are_forgotten,
    what_is_revived_is_not_noted,
]
