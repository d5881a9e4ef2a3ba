"""The SyncStateSet as its master keeps it: the members that must have a message before it is
acknowledged.

Owns the set in force, the sets proposed to the controller, and each replica's position. It must
never send anything: a proposal is returned, and its outcome comes back by `on_agreed`, `on_refused`
or `on_lost`. A SyncState lives as long as a master's epoch and counts only acknowledgements of its
connections.

The required members of a message are the union of the set in force and of every set that the
controller may have accepted without this master's knowledge (R01). A proposal is dead only if the
controller refused it, or has moved on to a newer set. A set is taken from the controller, never
computed (R02). A replica that is in a lost proposal and has disconnected would block all sends for
ever; in that case the set in force is proposed unchanged, to raise its epoch (`fence`).
confirmOffset stands still while a required member has no connection or has not reported its
position (R05, R06), and it never decreases.

    a proposal: proposed -> agreed: the set in force
                         -> refused: dead; the next one after PROPOSE_AGAIN_MS
                         -> lost: its members stay required until a newer set is agreed
    a replica:  outside -> close to the end: waited for like a member -> member -> too slow: outside

A replica joins when it has all confirmed bytes and the first byte of this epoch (KIP-320). With a
single member everything is confirmed at once, and under load a replica is always slightly late. So
a replica that is close is waited for, like a member, until it has caught up or JOIN_WAIT_MS has
passed.

A slow member delays every send. When sends have waited for a member for nearly haMaxTimeSendsWait,
the master proposes to remove it, if at least minInSyncReplicas members stay; the sends continue
when the controller has agreed. The replica returns when it has kept up for the same time, and after
each further removal for twice the time.
"""

from dataclasses import dataclass, field

from turbopump.engine.log.epochs import LOG_OFFSET_MAX
from turbopump.engine.types import LogOffset

NOT_CAUGHT_UP_MS = 15_000
"""Time for which a member may lack a part of the log before its removal is proposed; default of
haMaxTimeSlaveNotCatchup."""
SENDS_WAIT_MS = 3_000
"""Time for which sends may wait for a member before its removal; default of haMaxTimeSendsWait."""
CONNECT_GRACE_MS = 1000
"""Time for a member to connect to a new master before its removal is proposed. Replicas try every
100 ms at first, and return to the set as soon as they have caught up."""
PROPOSE_AGAIN_MS = 1000
"""Wait after a refused or lost proposal before the next."""
JOIN_GAP_MAX = 4 << 20
"""A replica with at most this lag in bytes is waited for: a few milliseconds of a fast network."""
JOIN_WAIT_MS = 500
"""Time for which sends wait for a replica that is close to the end of the log."""
JOIN_AGAIN_MS = 5000
"""Time until the next wait for the same replica, so that sends do not pay for a replica that does
not catch up."""
LEAVE_PART = 0.9
"""Fraction of haMaxTimeSendsWait after which a member's removal is proposed. The rest is for the
next tick and the controllers' entry, so that the pending sends are answered within that time, and
within slaveTimeout, which is equal by default."""
KEPT_UP_PART = 1 / 3
"""A replica removed for slowness has caught up once no send waited longer than this fraction of its
limit."""
KEPT_UP_MAX_MS = 60_000
"""Maximum time for which a replica that was removed for slowness has to keep up before it
returns."""
KEPT_UP_FORGET = 10
"""Multiple of a replica's last time of keeping up: if it is removed later than that after its last
removal, the shortest time counts again."""
LOOK_MAX_MS = 500
"""Maximum time that counts between two ticks: a master that stood still for longer has
acknowledgements in its sockets, and must not count its own pause as a replica's."""


@dataclass(slots=True, frozen=True)
class SyncOptions:
    """Options of the set; names are RocketMQ's keys if it has one."""

    own_id: int
    """The master's broker id."""
    max_time_not_caught_up_ms: int = NOT_CAUGHT_UP_MS
    """Time for which a member may lack a part of the log before its removal is proposed."""
    all_ack: bool = True
    """allAckInSyncStateSet; without it the master's whole log counts as confirmed."""
    fixed: bool = False
    """The set comes from a file: the master proposes nothing."""
    check_period_ms: int = 0
    """checkSyncStateSetPeriod: interval of the checks that remove members; 0: checked at every
    event."""
    max_time_sends_wait_ms: int = SENDS_WAIT_MS
    """haMaxTimeSendsWait, a Turbopump key; 0: as long as max_time_not_caught_up_ms."""
    min_in_sync_replicas: int = 1
    """Members, the master included, that a removal for waiting sends must leave."""


@dataclass(slots=True, frozen=True)
class Proposal:
    """A set for the controller, which agrees only while `set_epoch` is the set's epoch there. Its
    outcome has to be reported with `number`."""

    number: int
    """The proposal's number in its SyncState."""
    members: frozenset[int]
    """Broker ids, the master's included."""
    set_epoch: int
    """The epoch of the set in force when the proposal was made."""
    fence: bool = False
    """The set is the current one; only its epoch is to be raised, so that earlier proposals whose
    answers were lost can no longer be accepted."""


@dataclass(slots=True)
class _Replica:
    """A connected replica. `seen` is (log end, time, awake time) at its last acknowledgement; the
    awake time counts only the master's own running time, see LOOK_MAX_MS.
    """

    connection: int
    learner: bool
    caught_up_ms: int
    caught_up_awake_ms: int
    seen: tuple[LogOffset, int, int]
    acked: LogOffset | None = None
    join_until_ms: int | None = None
    join_again_ms: int = field(default=-(1 << 62))


@dataclass(slots=True)
class _Slow:
    """A replica that left because sends waited for it, and its record since then."""

    left_ms: int
    kept_up_ms: int
    wait_ms: int
    """Time for which it has to keep up before it returns."""


class SyncState:
    """The state of the SyncStateSet; see the module. Times are ms of the monotonic clock. Loop
    thread only.

    An event that returns a Proposal has it registered: the caller must send it, and report its
    outcome by `on_agreed`, `on_refused` or `on_lost`. While it is open, None is returned.
    """

    def __init__(
        self,
        options: SyncOptions,
        members: frozenset[int],
        set_epoch: int,
        epoch_start: LogOffset,
        confirm: LogOffset,
        now_ms: int,
    ) -> None:
        """`members`, broker ids, and `set_epoch` are the controller's set; `epoch_start` is the log
        offset at which this master's epoch begins, `confirm` its confirmOffset at that time."""
        self.options = options
        self.members = members | {options.own_id}
        """Broker ids of the set in force, the master's included."""
        self.set_epoch = set_epoch
        """The controller's epoch of the set in force."""
        self.epoch_start = epoch_start
        """Log offset of the first byte of this master's epoch."""
        self.confirm_offset = confirm
        """confirmOffset, which never decreases."""
        self.log_end = confirm
        """Log offset of the end of the log that counts as replicated; `on_log` also reports bytes
        from before this epoch."""
        self.proposed: Proposal | None = None
        """The proposal without an outcome, or None."""
        self._lost: frozenset[int] = frozenset()
        self._numbers = 0
        self._not_before_ms = self._leaving_asked_ms = now_ms
        self._replicas: dict[int, _Replica] = {}
        self._awake_ms, self._looked_ms = 0, now_ms
        self._slow: dict[int, _Slow] = {}
        self._too_slow: frozenset[int] = frozenset()
        """Members whose removal was proposed because sends waited for them."""
        self._missing_since = dict.fromkeys(self.members - {options.own_id}, now_ms)

    # --- required members and positions

    @property
    def required_ids(self) -> frozenset[int]:
        """Broker ids of all replicas for which an acknowledgement waits, the master included: a new
        set."""
        proposed = self.proposed.members if self.proposed else frozenset()
        joining = {n for n, r in self._replicas.items() if r.join_until_ms is not None}
        return self.members | proposed | self._lost | joining

    @property
    def in_sync_count(self) -> int:
        """Size of the set in force or proposed, the greater of both; the master counts. Compared
        with minInSyncReplicas before a message is written."""
        return max(len(self.members), len(self.proposed.members) if self.proposed else 0)

    def acked_offset(self, broker_id: int) -> LogOffset | None:
        """Log offset up to which a connected replica acknowledged the log on its present
        connection; None if it has not, or is not connected."""
        replica = self._replicas.get(broker_id)
        return replica.acked if replica else None

    def is_learner(self, broker_id: int) -> bool:
        """Whether a replica is connected as a learner, which never joins."""
        replica = self._replicas.get(broker_id)
        return replica is not None and replica.learner

    def behind_ms(self, broker_id: int, now_ms: int) -> int:
        """Time in ms since which a connected replica has lacked a part of the log; 0 if it has all
        of it, or is not connected."""
        replica = self._replicas.get(broker_id)
        if replica is None or (replica.acked is not None and replica.acked >= self.log_end):
            return 0
        return now_ms - replica.caught_up_ms

    def all_end(self) -> LogOffset:
        """Log offset up to which all required members have the log, the master included; -1 while a
        position is unknown. Bytes that the master does not count yet may be required of a further
        member later."""
        others = self.required_ids - {self.options.own_id}
        acks = [self.acked_offset(other) for other in others]
        return min([self.log_end, *(LogOffset(-1) if at is None else at for at in acks)])

    def copies_end(self, count: int) -> LogOffset:
        """Log offset up to which `count` copies have the log, the master and connected replicas; -1
        if there are fewer copies, LOG_OFFSET_MAX for a `count` up to 1. Learners do not count (in
        RocketMQ they do, though a learner cannot be elected)."""
        if count <= 1:
            return LOG_OFFSET_MAX
        replicas = [r for r in self._replicas.values() if not r.learner]
        acks = sorted((r.acked for r in replicas if r.acked is not None), reverse=True)
        return acks[count - 2] if len(acks) >= count - 1 else LogOffset(-1)

    # --- events

    def on_log(self, log_end: LogOffset) -> bool:
        """Note the end of the master's log, a log offset, as far as it may count; a lower one is
        ignored. Returns whether confirmOffset moved."""
        self.log_end = max(self.log_end, log_end)
        return self._raise_confirm_offset()

    def on_connected(self, broker_id: int, connection: int, learner: bool, now_ms: int) -> None:
        """Note that `broker_id` has done its handshake on `connection`, a number of the caller's.
        It replaces the replica's older connection. `learner`: it never joins."""
        assert broker_id != self.options.own_id, "a master is no replica of its own"
        old = self._replicas.get(broker_id)
        awake_ms = self._awake_now_ms(now_ms)
        seen = LogOffset(self.log_end + 1), now_ms, awake_ms
        replica = _Replica(connection, learner, now_ms, awake_ms, seen)
        if old is not None:
            replica.caught_up_ms, replica.join_again_ms = old.caught_up_ms, old.join_again_ms
            replica.caught_up_awake_ms = old.caught_up_awake_ms
        self._replicas[broker_id] = replica
        self._missing_since.pop(broker_id, None)

    def on_disconnected(self, broker_id: int, connection: int, now_ms: int) -> Proposal | None:
        """Handle the end of `connection`: its replica leaves the set at once, which may return a
        Proposal. Ignored if the replica has a newer connection."""
        replica = self._replicas.get(broker_id)
        if replica is None or replica.connection != connection:
            return None
        del self._replicas[broker_id]
        self._missing_since[broker_id] = now_ms - CONNECT_GRACE_MS - 1
        self._raise_confirm_offset()
        return self._propose_change(now_ms)

    def on_ack(
        self, broker_id: int, connection: int, log_offset: LogOffset, now_ms: int
    ) -> Proposal | None:
        """Note that a replica acknowledged the log up to `log_offset` on `connection`; ignored if
        it has a newer connection. Returns a Proposal if the set has to change."""
        replica = self._replicas.get(broker_id)
        if replica is None or replica.connection != connection:
            return None
        replica.acked = log_offset
        (end, at_ms, at_awake_ms), awake_ms = replica.seen, self._awake_now_ms(now_ms)
        if log_offset >= self.log_end:
            replica.caught_up_ms, replica.caught_up_awake_ms = now_ms, awake_ms
        elif log_offset >= end:
            replica.caught_up_ms = max(replica.caught_up_ms, at_ms)
            replica.caught_up_awake_ms = max(replica.caught_up_awake_ms, at_awake_ms)
        replica.seen = (self.log_end, now_ms, awake_ms)
        if broker_id not in self.members and not self._may_join(broker_id, now_ms):
            self._maybe_wait_to_join(broker_id, replica, now_ms)
        self._raise_confirm_offset()
        return self._propose_change(now_ms)

    def on_tick(self, now_ms: int) -> Proposal | None:
        """Count the time that replicas lack bytes; to be called several times a second. Returns a
        Proposal if the set has to change."""
        self._awake_ms, self._looked_ms = self._awake_now_ms(now_ms), now_ms
        for replica in self._replicas.values():
            if replica.acked is not None and replica.acked >= self.log_end:
                replica.caught_up_ms, replica.caught_up_awake_ms = now_ms, self._awake_ms
            if replica.join_until_ms is not None and now_ms > replica.join_until_ms:
                replica.join_until_ms = None
                replica.join_again_ms = now_ms + JOIN_AGAIN_MS
        for broker_id, slow in self._slow.items():
            if self._send_wait_ms(broker_id, now_ms) > self._wait_max_ms * KEPT_UP_PART:
                slow.kept_up_ms = now_ms
        self._raise_confirm_offset()
        return self._propose_change(now_ms)

    def on_agreed(self, members: frozenset[int], set_epoch: int, now_ms: int) -> bool:
        """Take over the controller's set, from an answer, a notice or a query; False, and ignored,
        if `set_epoch` is not newer. All earlier proposals are dead: they named an older set
        epoch."""
        if set_epoch <= self.set_epoch:
            return False
        self.members, self.set_epoch = members | {self.options.own_id}, set_epoch
        self.proposed, self._lost = None, frozenset()
        for broker_id in self._too_slow - self.members:
            self._note_slow(broker_id, now_ms)
        self._too_slow = frozenset()
        for broker_id in self.members - {self.options.own_id}:
            if broker_id not in self._replicas:
                self._missing_since.setdefault(broker_id, now_ms)
            else:
                self._replicas[broker_id].join_until_ms = None
        self._raise_confirm_offset()
        return True

    def on_refused(self, number: int, now_ms: int) -> None:
        """Note that the controller refused the proposal `number`: it will never be the set. Ignored
        unless it is open; the next proposal comes after PROPOSE_AGAIN_MS."""
        if self.proposed is not None and self.proposed.number == number:
            self.proposed = None
            self._not_before_ms = now_ms + PROPOSE_AGAIN_MS
            self._raise_confirm_offset()

    def on_lost(self, number: int, now_ms: int) -> None:
        """Note that the proposal `number` was not answered: it may be the set by now, so its
        members stay required. Ignored unless it is open; the next proposal comes after
        PROPOSE_AGAIN_MS."""
        if self.proposed is not None and self.proposed.number == number:
            self._lost |= self.proposed.members
            self.proposed = None
            self._not_before_ms = now_ms + PROPOSE_AGAIN_MS

    # --- calculations

    @property
    def _wait_max_ms(self) -> int:
        """Longest time in ms that sends may wait for a member, after which the member is removed
        from the set."""
        options = self.options
        # Without allAckInSyncStateSet no send waits for the slowest member.
        asked_ms = options.max_time_sends_wait_ms if options.all_ack else 0
        return asked_ms or options.max_time_not_caught_up_ms

    @property
    def _removal_after_ms(self) -> int:
        """Time of waiting sends after which a member's removal is proposed."""
        has_own_time = self.options.all_ack and self.options.max_time_sends_wait_ms > 0
        return int(self._wait_max_ms * LEAVE_PART) if has_own_time else self._wait_max_ms

    def _send_wait_ms(self, broker_id: int, now_ms: int) -> int:
        """Return the time for which a send has waited for a member, or would have; the maximum
        if it is disconnected."""
        replica = self._replicas.get(broker_id)
        if replica is None:
            return self._wait_max_ms
        if replica.acked is not None and replica.acked >= self.log_end:
            return 0
        return self._awake_now_ms(now_ms) - replica.caught_up_awake_ms

    def _awake_now_ms(self, now_ms: int) -> int:
        """Return the time, in ms, that this master has run; pauses of the process count
        LOOK_MAX_MS at most."""
        return self._awake_ms + min(now_ms - self._looked_ms, LOOK_MAX_MS)

    def _note_slow(self, broker_id: int, now_ms: int) -> None:
        """Note that a replica leaves the set because sends waited for it; it may return after it
        has kept up for a time that doubles."""
        old = self._slow.get(broker_id)
        wait_ms = self._wait_max_ms
        if old is not None and now_ms - old.left_ms < KEPT_UP_FORGET * old.wait_ms:
            wait_ms = max(wait_ms, min(2 * old.wait_ms, KEPT_UP_MAX_MS))
        self._slow[broker_id] = _Slow(now_ms, now_ms, wait_ms)

    def _has_kept_up(self, broker_id: int, now_ms: int) -> bool:
        """Whether a replica may join as far as its slowness matters."""
        slow = self._slow.get(broker_id)
        return slow is None or now_ms - slow.kept_up_ms >= slow.wait_ms

    def _may_join(self, broker_id: int, now_ms: int) -> bool:
        """Whether a connected replica may be proposed as a member: not a learner, it has all
        confirmed bytes and the first byte of the epoch, and has kept up."""
        replica = self._replicas[broker_id]
        acked = -1 if replica.acked is None else replica.acked
        has_all = acked >= max(self.confirm_offset, self.epoch_start)
        return not replica.learner and has_all and self._has_kept_up(broker_id, now_ms)

    def _maybe_wait_to_join(self, broker_id: int, replica: _Replica, now_ms: int) -> None:
        """Let acknowledgements wait for a replica that is close to the end of the log, up to
        JOIN_WAIT_MS, so that it can join."""
        if not self._has_kept_up(broker_id, now_ms):
            return
        close = replica.acked is not None and self.log_end - replica.acked <= JOIN_GAP_MAX
        known = not replica.learner and (replica.acked or 0) >= self.epoch_start
        if close and known and replica.join_until_ms is None and now_ms >= replica.join_again_ms:
            replica.join_until_ms = now_ms + JOIN_WAIT_MS

    def _may_stay(self, broker_id: int, now_ms: int) -> bool:
        """Whether a member may stay in the set: connected and not behind for too long, or
        disconnected for CONNECT_GRACE_MS at most."""
        replica = self._replicas.get(broker_id)
        if replica is None:
            return now_ms - self._missing_since.get(broker_id, now_ms) <= CONNECT_GRACE_MS
        behind_ms = now_ms - replica.caught_up_ms
        return not replica.learner and behind_ms <= self.options.max_time_not_caught_up_ms

    def _propose_change(self, now_ms: int) -> Proposal | None:
        """Return and register a Proposal if the set has to change; None if not, or while a
        proposal is open."""
        if self.options.fixed or self.proposed is not None or now_ms < self._not_before_ms:
            return None
        own = self.options.own_id
        wanted = set(self.members)
        if now_ms - self._leaving_asked_ms >= self.options.check_period_ms:
            self._leaving_asked_ms = now_ms
            wanted = {m for m in self.members if m == own or self._may_stay(m, now_ms)}
            self._too_slow = self._too_slow_members(wanted, now_ms)
            wanted -= self._too_slow
        wanted |= {
            number
            for number in self._replicas
            if number not in self.members and self._may_join(number, now_ms)
        }
        fence = wanted == self.members
        if fence and self._lost <= self.members:
            return None
        self._numbers += 1
        self.proposed = Proposal(self._numbers, frozenset(wanted), self.set_epoch, fence)
        return self.proposed

    def _too_slow_members(self, staying: set[int], now_ms: int) -> frozenset[int]:
        """Return the members for which sends have waited too long; only the slowest if
        minInSyncReplicas must stay."""
        held_up = {one: self._send_wait_ms(one, now_ms) for one in staying & self._replicas.keys()}
        slow = [one for one, held_ms in held_up.items() if held_ms > self._removal_after_ms]
        slow.sort(key=lambda one: (-held_up[one], one))
        return frozenset(slow[: max(0, len(staying) - self.options.min_in_sync_replicas)])

    def _raise_confirm_offset(self) -> bool:
        """Raise confirmOffset to the end that all required members have; returns whether it
        moved."""
        before = self.confirm_offset
        others = self.required_ids - {self.options.own_id}
        acks = [self.acked_offset(other) for other in others] if self.options.all_ack else []
        known = [acked for acked in acks if acked is not None]
        if len(known) == len(acks):
            self.confirm_offset = max(before, min([self.log_end, *known]))
        return self.confirm_offset != before
