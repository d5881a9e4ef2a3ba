"""Bugs that replication has had elsewhere, to be planted one at a time: the suite must find each.

The texts have ids of docs/INVARIANTS.md: R01 and so on were reported for RocketMQ, S1
to S3 were read in its source.
"""

import dataclasses
from typing import Any

from tests.sim.ha.settings import Options
from tests.sim.planted import truncation_by_position
from tests.sim.planting import Patch, Plant
from turbopump.broker.ha import leader
from turbopump.broker.ha.leader import MasterTerm
from turbopump.engine.disk.flush import DiskLane
from turbopump.engine.lifecycle import recovery
from turbopump.engine.log import epochs
from turbopump.engine.log.epoch_file import EpochFile, Trust
from turbopump.engine.log.epochs import LOG_OFFSET_MAX, Epochs
from turbopump.engine.log.replica_append import ReceivedBytes
from turbopump.engine.queues.dispatcher import LogDispatcher
from turbopump.engine.types import LogOffset, PutStatus
from turbopump.net.ha import replica as replicas
from turbopump.net.ha.frames import HandshakeReply, ReplicaFramer
from turbopump.net.ha.replica import Replica
from turbopump.net.ha.sync_state import SyncState


def proposed_set_ignored(patch: Patch) -> None:
    """R01: an acknowledgement waits for the last set that the master knows as agreed, not also for
    the members of a pending proposal.
    """
    patch.setattr(SyncState, "required_ids", property(lambda self: self.members))


def _confirm_by(patch: Patch, counts: Any) -> None:
    def confirm(self: SyncState) -> bool:
        before = self.confirm_offset
        others = [
            other for other in self.required_ids - {self.options.own_id} if counts(self, other)
        ]
        acks = [self.acked_offset(other) for other in others] if self.options.all_ack else []
        known = [acked for acked in acks if acked is not None]
        if len(known) == len(acks):
            self.confirm_offset = max(before, min([self.log_end, *known]))
        return self.confirm_offset != before

    patch.setattr(SyncState, "_raise_confirm_offset", confirm)


def missing_member_does_not_count(patch: Patch) -> None:
    """R05: confirmOffset goes on while a member of the set has no connection."""
    _confirm_by(patch, lambda self, other: other in self._replicas)


def silent_member_does_not_count(patch: Patch) -> None:
    """R06: confirmOffset advances while a connected member has not reported its offset yet."""
    _confirm_by(
        patch,
        lambda self, other: other not in self._replicas or self._replicas[other].acked is not None,
    )


def queues_counted_up_to_confirm(patch: Patch) -> None:
    """R08: a new master gives out queue offsets of messages that are in its log, but that no reader
    was shown yet."""
    patch.setattr(LogDispatcher, "advance_next_offsets", lambda self, log_end: None)


def cut_at_the_confirmed(patch: Patch) -> None:
    """R10: a replica with a new master truncates every unconfirmed byte, also bytes that the master
    has.
    """
    real = Replica._adopt_reply

    def meet(self: Replica, reply: HandshakeReply, actions: list[Any], now_ms: int) -> None:
        assert self._log is not None
        confirm = self._log.confirm
        point = replicas.consistent_point

        def earlier(*args: Any) -> LogOffset | None:
            found = point(*args)
            return found if found is None or confirm <= 0 else min(found, confirm)

        with patch.context() as inside:
            inside.setattr(replicas, "consistent_point", earlier)
            real(self, reply, actions, now_ms)

    patch.setattr(Replica, "_adopt_reply", meet)


def handshake_read_too_early(patch: Patch) -> None:
    """R17: a handshake is read when as many bytes are there as an acknowledgement has."""
    real = ReplicaFramer._take_bytes

    def taken(self: ReplicaFramer, size: int) -> bytes | None:
        if size == 16 and 12 <= len(self._held) < size:
            frame = bytes(self._held).ljust(size, b"\0")
            self._held.clear()
            return frame
        return real(self, size)

    patch.setattr(ReplicaFramer, "_take_bytes", taken)


def no_epochs_is_a_new_replica(patch: Patch) -> None:
    """S1: a log without epochs is not cut, whether it is empty or its list was damaged."""
    real = Replica._adopt_reply

    def distrust(self: EpochFile, *args: Any) -> None:
        self.trust = Trust.NEW

    def meet(self: Replica, reply: HandshakeReply, actions: list[Any], now_ms: int) -> None:
        assert self._log is not None
        if not self._log.epochs.entries and self._log.end <= reply.log_end:
            self._start(reply.epochs, actions)
        else:
            real(self, reply, actions, now_ms)

    patch.setattr(EpochFile, "_mark_unproven", distrust)
    patch.setattr(Replica, "_adopt_reply", meet)


def epoch_without_writes_refused(patch: Patch) -> None:
    """S2: an epoch without writes is not recorded: the next one begins at the same offset."""
    real = Epochs.with_epoch

    def appended(self: Epochs, epoch: int, start: int) -> Epochs:
        if self.entries and start <= self.entries[-1].start:
            return self
        return real(self, epoch, start)

    patch.setattr(Epochs, "with_epoch", appended)


def no_consistent_point_without_an_equal_start(patch: Patch) -> None:
    """S3: without an epoch that both lists have from the same start on it is tried again."""
    real = Replica._adopt_reply

    def meet(self: Replica, reply: HandshakeReply, actions: list[Any], now_ms: int) -> None:
        log = self._log
        assert log is not None
        if self._is_log_empty or replicas.consistent_point(
            log.epochs, log.believed_end, reply.epochs, reply.log_end
        ):
            real(self, reply, actions, now_ms)
        else:
            actions += self._suspend("no consistent point", now_ms)

    patch.setattr(epochs, "_agreed_end", lambda own, other, limit: None)
    patch.setattr(Replica, "_adopt_reply", meet)


def released_when_demoted(patch: Patch) -> None:
    """A deposed master acknowledges its pending sends (observed)."""
    real = MasterTerm._fail_pending_sends
    patch.setattr(
        MasterTerm, "_fail_pending_sends", lambda self, status=None: real(self, PutStatus.PUT_OK)
    )


def acknowledged_before_replicas_have_it(patch: Patch) -> None:
    """The term pushes its own log's end to the pending sends, whatever its replicas have."""
    patch.setattr(leader, "safe_end", lambda copies, need, least: LOG_OFFSET_MAX)


def acknowledged_before_durable(patch: Patch) -> None:
    """A replica under SYNC_FLUSH acknowledges bytes that are not durable."""
    real = Options.replica_options.__get__
    replica = property(lambda self: dataclasses.replace(real(self), ack_durable=False))
    patch.setattr(Options, "replica_options", replica)


def joins_before_it_has_all(patch: Patch) -> None:
    """A replica is proposed for the set whatever it has (KIP-320, rule 4)."""

    def may_join(self: SyncState, broker_id: int, _now_ms: int) -> bool:
        return not self._replicas[broker_id].learner

    patch.setattr(SyncState, "_may_join", may_join)


def lost_answer_is_a_refusal(patch: Patch) -> None:
    """A proposal without a response counts as refused."""
    patch.setattr(SyncState, "on_lost", SyncState.on_refused)


def records_written_in_part(patch: Patch) -> None:
    """A replica writes incomplete records."""
    real = ReceivedBytes.take_writable

    def take(self: ReceivedBytes, pieces: list[Any], room: int, file_size: int) -> list[memoryview]:
        waiting, self._held = self._held, b""
        whole = real(self, [waiting, *pieces], room, file_size)
        rest, self._held = self._held, b""
        return [*whole, memoryview(rest)]

    patch.setattr(ReceivedBytes, "take_writable", take)


def text_that_ends_in_zeros_is_cut(patch: Patch) -> None:
    """After a kill each record whose properties end in zeros is taken for an incomplete one."""
    patch.setattr(recovery, "may_end_inside", lambda *_args: True)


def failed_sync_counts_as_done(patch: Patch) -> None:
    """A failed sync of the log is ignored: the next one reports success."""
    real = DiskLane.sync

    def sync(self: DiskLane, ranges: Any, done: Any) -> None:
        real(self, ranges, lambda _result: done(None))

    patch.setattr(DiskLane, "sync", sync)


def elected_before_it_knows_idle_queues(patch: Patch) -> None:
    """A replica whose log began after its master's first byte reports all of it at once, and may be
    elected before it has the offsets of queues without records in its log.
    """
    real = Replica._acknowledge

    def report(self: Replica, actions: list[Any], now_ms: int) -> None:
        self._counters_known = True
        real(self, actions, now_ms)

    patch.setattr(Replica, "_acknowledge", report)


BUGS: list[Plant] = [
    proposed_set_ignored, missing_member_does_not_count, silent_member_does_not_count,
    queues_counted_up_to_confirm, cut_at_the_confirmed, truncation_by_position,
    handshake_read_too_early, no_epochs_is_a_new_replica, epoch_without_writes_refused,
    no_consistent_point_without_an_equal_start, released_when_demoted,
    acknowledged_before_replicas_have_it, acknowledged_before_durable, joins_before_it_has_all,
    lost_answer_is_a_refusal, records_written_in_part, text_that_ends_in_zeros_is_cut,
    failed_sync_counts_as_done, elected_before_it_knows_idle_queues,
]  # fmt: skip
# Kinds of trouble to play, the first as the theme of the seed, for bugs that show in few seeds.
ABOUT: dict[Plant, tuple[str, ...]] = {
    proposed_set_ignored: ("lost answers", "election"),
    missing_member_does_not_count: ("partition", "election"),
    silent_member_does_not_count: ("reset", "election"),
    queues_counted_up_to_confirm: ("kill", "partition"),
    cut_at_the_confirmed: ("election",),
    truncation_by_position: ("crash", "election"),
    handshake_read_too_early: ("small pieces", "reset"),
    no_epochs_is_a_new_replica: ("epochs", "kill"),
    epoch_without_writes_refused: ("idle elections",),
    no_consistent_point_without_an_equal_start: ("retention", "kill"),
    records_written_in_part: ("kill", "partition"),
    text_that_ends_in_zeros_is_cut: ("kill", "partition"),
    failed_sync_counts_as_done: ("failing disk", "crash"),
    elected_before_it_knows_idle_queues: ("lost answers", "election"),
}
