"""A replica at work: executes its machine's actions on the log and on the connection.

Owns the order: actions run one after the other, none after a failed one, so that data is durable
before it is acknowledged. It knows no socket and no clock: `service` or the simulator drives it.
Times are of the monotonic clock; stored times come from `wall_ms`.

    no connection --Connect--> waiting (log made ready, synced) --> attached
         ^                                                            |  ^
         '---- closed, or an action failed ---------------------------'  |
    attached --disk work, or no file for bytes--> recording, blocked ----'  (actions are kept)

A broker with a failed store follows no master: as a member of the SyncStateSet it would make the
master wait.

Data beside the log is synced by a disk thread: epochs before the bytes that they label, the log's
marks before the handshake, a cut or a new begin of the log. Meanwhile the loop goes on, with
heartbeats to controllers: actions are kept, in order, and the connection is not read.

Under SYNC_FLUSH (`ack_durable`) no byte is acknowledged that a power cut could take: the handshake
waits until the whole log is durable, an acknowledgement until its bytes are.

Tests: tests/unit/broker/ha/test_service.py, tests/wire/test_golden_ha_stores.py
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from turbopump.broker.ha.ports import ReplicatedLog, Transport
from turbopump.broker.replication import ByteRate
from turbopump.engine.deferred import Deferred
from turbopump.engine.lifecycle.truncate_async import Ended
from turbopump.engine.types import Buffer, LogOffset, StoreError
from turbopump.net.ha.actions import (
    Action,
    Append,
    Close,
    Confirm,
    Connect,
    RecordEpochs,
    Restart,
    Send,
    Truncate,
)
from turbopump.net.ha.default_ha import DefaultHaReplica
from turbopump.net.ha.replica import LogState, Replica, State

logger = logging.getLogger(__name__)

FAILED = "the store takes no changes"
"""Reason in the status of a replica with a failed store."""


class Follower:
    """A replica at work, of either protocol: executes the actions of its state machine on the log
    and on its connection to the master, of which it has at most one. Loop thread only; failures of
    the log or the connection raise nothing: they are logged, and the connection is closed and tried
    again."""

    def __init__(
        self,
        log: ReplicatedLog,
        machine: Replica | DefaultHaReplica,
        transport: Transport,
        wall_ms: Callable[[], int],
    ) -> None:
        """The machine's option `ack_durable` must be set under SYNC_FLUSH. `wall_ms` returns the
        wall clock in ms since 1970."""
        self.machine = machine
        """State machine of the protocol; its state and reason are for reading."""
        self.connection: int | None = None
        """The connection's number, also while it is being made; None without a connection."""
        self.rate = ByteRate(0)
        """Rate of the bytes received from the master."""
        self.reconnects = 0
        """Number of connections that were made after an earlier one to the same master was lost."""
        self._lost = False
        self._log = log
        self._transport = transport
        self._wall_ms = wall_ms
        self._waits_for_disk = machine.options.ack_durable
        self._waiting = self._syncing = self._paused = False
        self._recording = self._blocked = self._grew = False
        self._kept: deque[Action] = deque()
        """Actions kept until a disk thread has finished, or the bytes before them have a file."""
        self._now_ms = 0
        if self._waits_for_disk:
            log.on_flushed.append(self._on_flushed)

    def follow(self, address: str, epoch: int, now_ms: int) -> None:
        """Follow the master of `epoch` (unused in default HA) at the HA address `host:port`; ""
        closes the connection and follows none. An attempt to connect begins now, or after pending
        disk work; the same address and epoch as before change nothing."""
        machine = self.machine
        is_new = address != machine.address
        if isinstance(machine, Replica):
            self._execute_or_keep(machine.follow(address, epoch, now_ms), now_ms)
        else:
            self._execute_or_keep(machine.follow(address, now_ms), now_ms)
        self._lost = self._lost and not is_new

    def shutdown(self, now_ms: int) -> None:
        """Close the connection for good, and drop all pending actions: after this call the log is
        not changed."""
        self._recording = False
        self._kept.clear()
        self._execute_or_keep(self.machine.shutdown(), now_ms)
        if self._on_flushed in self._log.on_flushed:
            self._log.on_flushed.remove(self._on_flushed)

    # Events of the transport; events of an earlier connection are ignored

    def on_connected(self, connection: int, now_ms: int) -> None:
        """Prepare the log on a disk thread, and send the handshake after that. A connection other
        than the present one is closed."""
        if connection != self.connection:
            self._transport.close(connection)
            return
        self._now_ms = now_ms
        self.reconnects += self._lost
        self._lost = False
        self._waiting = True
        self._log.get_ready().then(lambda error: self._on_log_ready(connection, error))

    def on_bytes(self, connection: int, data: Buffer, now_ms: int) -> None:
        """Append bytes of the master to the log and acknowledge them; during disk work they are
        copied and handled after it. The buffer of `data` may be reused after the call."""
        if connection != self.connection:
            return
        if self._waiting:
            self._close_connection()
            self._execute_or_keep(
                self.machine.on_closed("the master sent bytes before the handshake", now_ms), now_ms
            )
            return
        self.rate.count_bytes(len(data), now_ms)
        taken = 0
        if not (self._recording or self._blocked):
            self._now_ms = now_ms
            taken = self._take_plain_frames(data, now_ms)
        if connection == self.connection and (taken < len(data) or not taken):
            rest = memoryview(data)[taken:]
            self._execute_or_keep(self.machine.on_bytes(rest, now_ms, taken=taken), now_ms)

    def on_closed(self, connection: int, reason: str, now_ms: int) -> None:
        """Handle a closed connection, or a failed attempt to make one; the next attempt begins at a
        later `on_tick`. `reason` is for the log and the status."""
        if connection == self.connection:
            self._forget_connection()
            self._execute_or_keep(self.machine.on_closed(reason, now_ms), now_ms)

    def on_tick(self, now_ms: int) -> None:
        """Connect again, send heartbeats, resume paused reading, and leave the master if the log
        failed; to be called several times a second."""
        if self.connection is not None and self._log.failed is not None:
            logger.error("left the master, because the log failed: %s", self._log.failed)
            self._close_connection()
            self._execute_or_keep(self.machine.on_closed(FAILED, now_ms), now_ms)
        self._now_ms = now_ms
        if self._blocked:
            self._execute_kept_actions()
        self._resume_reading()
        machine = self.machine
        if isinstance(machine, Replica) and self._is_counted():
            self._execute_or_keep(machine.on_counted(now_ms), now_ms)
        self._execute_or_keep(machine.on_tick(now_ms), now_ms)

    # Internals

    def _take_plain_frames(self, data: Buffer, now_ms: int) -> int:
        """Append, confirm and acknowledge the plain frames at the beginning of a read, natively if
        possible. Return their size in bytes."""
        machine = self.machine
        frames, before = machine.frames, machine.frames.confirm_offset
        taken = machine.take_plain_frames(data, now_ms)
        if not taken:
            return 0
        confirmed, is_all = LogOffset(frames.confirm_offset), taken == len(data)
        grew = frames.count > 0
        if grew and not self._log.append_frames(frames):
            actions: list[Action] = [Append(LogOffset(at), body) for at, body in frames.bodies()]
            frames.drop()
            if confirmed > before:
                actions.append(Confirm(confirmed))
            if is_all and (report := machine.due_report(now_ms)):
                actions.append(Send(report))
            self._execute_or_keep(actions, now_ms)
            return taken
        if confirmed > before:
            try:
                self._log.confirm_to(confirmed, self._wall_ms())
            except (StoreError, OSError) as error:
                self._execute_waiting(self._close_after_failure("Confirm", error))
                return taken
        if is_all and self.connection is not None and (report := machine.due_report(now_ms)):
            self._transport.send(self.connection, [report])
        if grew:
            self._after_append(now_ms)
        return taken

    def _on_log_ready(self, connection: int, error: Ended) -> None:
        """Begin the handshake on the connection once the log's data for it is durable; under
        SYNC_FLUSH the log is synced first."""
        if connection != self.connection or self.machine.state is State.SHUTDOWN:
            return
        if error is not None:
            logger.error("this broker cannot follow a master, the log is not ready: %s", error)
            self._close_connection()
            self._execute_or_keep(self.machine.on_closed(str(error), self._now_ms), self._now_ms)
        elif self._waits_for_disk and self._log.flushed < self._log.end:
            self._syncing = True
            self._log.sync(self._wall_ms())
        else:
            self._begin_handshake(self._now_ms)

    def _begin_handshake(self, now_ms: int) -> None:
        """Begin the handshake on the connection, because the log is ready."""
        self._waiting = self._syncing = False
        machine = self.machine
        if isinstance(machine, Replica):
            self._execute_or_keep(machine.on_connected(self._log_state(), now_ms), now_ms)
        else:
            self._execute_or_keep(machine.on_connected(self._log.end, now_ms), now_ms)

    def _after_append(self, now_ms: int) -> None:
        """After an append: begin a sync if acknowledgements wait for it, let readers read in
        default HA, and pause reading if the disk is slow."""
        if self._waits_for_disk:
            self._log.sync(self._wall_ms())
        if isinstance(self.machine, DefaultHaReplica):
            # Default HA has no confirmOffset: all appended bytes may be read.
            self._log.confirm_to(self._log.end, self._wall_ms())
        if self._log.is_slow:
            # More bytes would make the kernel stop the only thread at a page fault.
            self._pause_reading()

    def _pause_reading(self) -> None:
        """Pause reading from the connection."""
        if self.connection is not None and not self._paused:
            self._paused = True
            self._transport.set_paused(self.connection, True)

    def _resume_reading(self) -> None:
        """Resume reading from the connection, unless disk work is in progress or the disk is
        slow."""
        if self._recording or self._log.is_slow:
            return
        if self._paused and self.connection is not None:
            self._paused = False
            self._transport.set_paused(self.connection, False)

    def _on_flushed(self, log_end: LogOffset) -> None:
        """Handle that the log is durable up to `log_end`: attach, or acknowledge bytes."""
        now_ms = self._now_ms
        if self.machine.state is State.SHUTDOWN:
            return
        if self._syncing:
            if log_end >= self._log.end:
                self._begin_handshake(now_ms)
            else:
                self._log.sync(self._wall_ms())
        elif not self._waiting:
            self._execute_or_keep(self.machine.on_durable(log_end, now_ms), now_ms)

    def _execute_or_keep(self, actions: list[Action], now_ms: int) -> None:
        """Execute the machine's actions now, or keep them in order while disk work is in progress
        or bytes have no file."""
        self._now_ms = now_ms
        if self._blocked and any(isinstance(one, Close | Connect) for one in actions):
            # the kept actions belong to an earlier connection
            self._blocked, self._kept = False, deque()
        if self._recording or self._blocked:
            self._kept.extend(_copy_actions(_without_repeats(actions)))
            return
        self._execute_waiting(deque(_without_repeats(actions)))

    def _execute_waiting(self, waiting: deque[Action]) -> None:
        """Execute actions, up to the first that needs a disk thread."""
        now_ms = self._now_ms
        while waiting:
            action = waiting.popleft()
            try:
                pending = self._by_disk(action)
                if pending is not None:
                    if isinstance(action, Append):
                        waiting.appendleft(action)  # again once the log begins there
                    if not pending.done:
                        self._recording = True
                        self._kept = deque(_copy_actions(waiting))
                        self._pause_reading()
                        pending.then(partial(self._on_disk_done, action))
                        break
                    if pending.value is not None:
                        raise pending.value
                    waiting.extendleft(reversed(self._actions_after(action)))
                    continue
                if isinstance(action, Append):
                    self._append(action, waiting)
                    if self._log.is_blocked:
                        self._blocked = True
                        self._kept = deque(_copy_actions(waiting))
                        self._pause_reading()
                        break
                    continue
                self._execute_action(action, now_ms)
            except (StoreError, OSError) as error:
                waiting = self._close_after_failure(type(action).__name__, error)
        if self._grew:
            self._grew = False
            self._after_append(now_ms)

    def _by_disk(self, action: Action) -> Deferred[Ended] | None:
        """Start a disk thread's work for an action, or before it; None if there is no such work."""
        log = self._log
        match action:
            case RecordEpochs(epochs):
                return log.record_epochs(epochs)
            case Truncate(log_end):
                logger.warning("cutting the log from %d to %d", log.end, log_end)
                return log.begin_truncation(log_end, self._wall_ms())
            case Restart():
                logger.warning(
                    "the log up to %d is removed and copied again from the master", log.end
                )
                return log.begin_restart()
            case Append(log_offset) if log.needs_begin_at(log_offset):
                return log.begin_log_at(log_offset)
        return None

    def _actions_after(self, action: Action) -> list[Action]:
        """Return the machine's next actions after `action`, a durable cut or restart; [] after
        other actions."""
        if not isinstance(action, Truncate | Restart):
            return []
        assert isinstance(self.machine, Replica), "default HA cuts nothing"
        return self.machine.on_truncated(self._log_state(), self._now_ms)

    def _on_disk_done(self, action: Action, error: Ended) -> None:
        """Handle the end of an action's work on a disk thread: execute the kept actions, or
        fail."""
        if not self._recording:
            return  # for an earlier role
        self._recording = False
        waiting, self._kept = self._kept, deque()
        if error is not None:
            waiting = self._close_after_failure(type(action).__name__, error)
        else:
            waiting.extendleft(reversed(self._actions_after(action)))
        self._execute_waiting(waiting)
        self._resume_reading()

    def _execute_kept_actions(self) -> None:
        """Execute the kept actions once there is a log file for the bytes before them."""
        before = self._log.end
        try:
            self._log.write_waiting_bytes(self._wall_ms())
        except (StoreError, OSError) as error:
            self._execute_waiting(self._close_after_failure("Append", error))
            return
        self._grew = self._grew or self._log.end > before
        waiting: deque[Action] = deque()
        if not self._log.is_blocked:
            waiting, self._kept, self._blocked = self._kept, waiting, False
        self._execute_waiting(waiting)

    def _close_after_failure(self, what: str, error: StoreError | OSError) -> deque[Action]:
        """Close the connection after the action `what` failed; return the machine's actions, which
        replace all others."""
        logger.error("replication stops, because %s failed: %s", what, error)
        self._close_connection()
        machine, now_ms = self.machine, self._now_ms
        # A connection that was to be made meanwhile is dropped.
        return deque(machine.on_failed(str(error), now_ms) or machine.on_closed(str(error), now_ms))

    def _append(self, action: Append, waiting: deque[Action]) -> None:
        """Append the bytes of this action and of directly following ones: all of a read."""
        end, more = action.log_offset + len(action.data), []
        while waiting and isinstance(after := waiting[0], Append) and after.log_offset == end:
            waiting.popleft()
            end += len(after.data)
            more.append(after.data)
        before = self._log.end
        self._log.append(action.log_offset, action.data, self._wall_ms(), more)
        self._grew = self._grew or self._log.end > before

    def _execute_action(self, action: Action, now_ms: int) -> None:
        """Execute an action that needs no disk thread and is no append."""
        log = self._log
        match action:
            case Send(data):
                if self.connection is not None:
                    self._transport.send(self.connection, [data])
            case Confirm(log_offset):
                log.confirm_to(log_offset, self._wall_ms())
            case Connect(address):
                self._close_connection()
                if log.failed is not None:
                    self.machine.on_closed(FAILED, now_ms)
                else:
                    self.connection = self._transport.connect(address)
            case Close(reason):
                if self.connection is not None:
                    logger.info("the connection to the master is closed: %s", reason)
                self._close_connection()
            case _:
                raise AssertionError(f"a replica has no action {action}")

    def _close_connection(self) -> None:
        """Close the connection, if there is one."""
        connection = self._forget_connection()
        if connection is not None:
            self._transport.close(connection)

    def _forget_connection(self) -> int | None:
        """Forget the connection with its kept actions; return its number, None without one."""
        connection, self.connection = self.connection, None
        self._waiting = self._syncing = self._paused = False
        if self._blocked:
            self._blocked, self._kept = False, deque()
        self._lost = self._lost or connection is not None
        return connection

    def _log_state(self) -> LogState:
        """The state of the log that the machine needs for a handshake."""
        log = self._log
        return LogState(
            log.min, log.end, log.confirm, log.epochs, log.believed_end, log.has_queue_counts
        )

    def _is_counted(self) -> bool:
        """Whether the log has queue counts, and no action on it is pending."""
        return self._log.has_queue_counts and not (self._recording or self._blocked)


def _without_repeats(actions: list[Action]) -> list[Action]:
    """Return the actions without each Confirm that a later one follows, so that readers are woken
    once."""
    places = [place for place, action in enumerate(actions) if isinstance(action, Confirm)]
    if len(places) < 2:
        return actions
    early = set(places[:-1])
    return [action for place, action in enumerate(actions) if place not in early]


def _copy_actions(actions: Iterable[Action]) -> list[Action]:
    """Copy the bytes of actions to be kept: their buffer is reused."""
    return [
        replace(one, data=bytes(one.data)) if isinstance(one, Append) else one for one in actions
    ]
