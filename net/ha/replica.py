"""A replica of AutoSwitch HA as a machine: bytes and ticks in, actions out.

Owns the states of the connection to the master, the decision where to cut the log before it
follows, and the time at which epochs are recorded. It must never touch a log, a file, a socket or a
clock. The I/O layer executes its actions in order.

    READY      no connection: a Connect is returned when the next try is due
    HANDSHAKE  the handshake was sent, or the log is being cut
    TRANSFER   the log follows the master's
    SUSPEND    this log must not follow that master; tried again later, the reason is shown
    SHUTDOWN

Differences from RocketMQ's client, which all keep the wire format: a connection has a single
handshake (RocketMQ's repeated ones end in a livelock). The position is reported immediately after
it, not with the next heartbeat. The master's list of epochs is adopted as far as the log is known
to be a prefix of the master's, so epochs without writes reach replicas. A log with bytes but
without reliable epochs does not count as empty (S1). Confirmed bytes are not cut unless the
operator allows it (I12).
"""

from dataclasses import dataclass, replace
from enum import IntEnum

from turbopump.engine.log.epochs import (
    ENTRIES_MAX,
    LOG_OFFSET_MAX,
    EpochEntry,
    Epochs,
    consistent_point,
)
from turbopump.engine.types import LONG_AGO_MS, Buffer, Epoch, LogOffset
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
from turbopump.net.ha.frames import (
    HEARTBEAT_INTERVAL_MS,
    HOUSEKEEPING_INTERVAL_MS,
    Ack,
    BadFrame,
    Handshake,
    HandshakeReply,
    MasterFramer,
    Transfer,
)
from turbopump.pyx.ha_copy import PlainFrames

RETRY_MIN_MS = 100
"""First wait between tries to connect, which doubles up to RETRY_MAX_MS: short, because most losses
are restarts and elections, which take a few hundred milliseconds; RocketMQ always waits the longer
time."""
RETRY_MAX_MS = 5000
"""Longest wait between tries to connect."""
SUSPEND_MS = 5000
"""Wait in state SUSPEND until the next try."""
ACK_BYTES = 1 << 20
"""Bytes after which a replica acknowledges inside a frame, whose rest is on its way: during a
catch-up every read ends inside a frame, and each acknowledgement would cost the master a turn of
the loop."""
ACK_MS = 1
"""Time since the last acknowledgement after which a replica acknowledges inside a frame."""
LARGE_READ = 512 << 10
"""Bytes of a read that show a backlog: a replica that lags delays no send that would not wait
anyway, and each acknowledgement costs it 100 us."""
CATCH_UP_ACK_BYTES = 4 << 20
"""Bytes after which a replica with a backlog acknowledges inside a frame."""
CATCH_UP_ACK_MS = 4
"""Time since the last acknowledgement after which a replica with a backlog acknowledges inside a
frame."""


def may_wait(size: int, passed_ms: int, read_size: int) -> bool:
    """Whether the acknowledgement of `size` received bytes may wait for a later read,
    `passed_ms` after the last acknowledgement; `read_size` is the bytes of the newest read."""
    if read_size >= LARGE_READ:
        return size < CATCH_UP_ACK_BYTES and passed_ms <= CATCH_UP_ACK_MS
    return size < ACK_BYTES and passed_ms <= ACK_MS


class State(IntEnum):
    """The states of a connection or of a replica (RocketMQ: HAConnectionState); the machines'
    modules explain them."""

    READY = 0
    """A replica without a connection, or whose try to connect is in progress."""
    HANDSHAKE = 1
    """Connected; the replica's log is not known to be a prefix of the master's."""
    TRANSFER = 2
    """Connected; the log is transferred."""
    SUSPEND = 3
    """A replica without a connection whose log must not follow this master; it tries again after
    SUSPEND_MS."""
    SHUTDOWN = 4
    """Stopped permanently."""


@dataclass(slots=True, frozen=True)
class ReplicaOptions:
    """Options of the replica; names are RocketMQ's keys if it has one."""

    broker_id: int
    """The id that the controller assigned."""
    sync_from_last_file: bool = False
    """Begin an empty log with the master's last file, not its first."""
    async_learner: bool = False
    """Never join the SyncStateSet."""
    heartbeat_interval_ms: int = HEARTBEAT_INTERVAL_MS
    """Time without a write after which the last acknowledgement is repeated."""
    housekeeping_interval_ms: int = HOUSEKEEPING_INTERVAL_MS
    """Time without a read after which the connection is closed."""
    ack_durable: bool = False
    """Acknowledge the end from `on_durable`, not the end of the appended bytes."""
    cut_confirmed: bool = False
    """Follow a master that lacks confirmed bytes: after an unclean election, or if confirmOffset
    promises nothing (allAckInSyncStateSet=false)."""
    fenced: bool = True
    """Follow only a master that has recorded the epoch in which it was elected. RocketMQ's master
    does not record it if nothing was written in the epoch before; to follow such a master, this
    must be off."""


@dataclass(slots=True, frozen=True)
class LogState:
    """The log at the time when the machine begins to use it: bytes from `min` to before `end`."""

    min: LogOffset
    end: LogOffset
    confirm: LogOffset
    """confirmOffset, as far as this log knows it."""
    epochs: Epochs
    """The log's own list."""
    believed_end: LogOffset
    """End of the part of the log that `epochs` covers reliably: `end`, unless the epoch file was
    damaged."""
    counted: bool = True
    """Whether the counters of idle queues, whose messages are no longer in the log, are known."""


class Replica:
    """The replica's machine; it has at most one connection. Times are ms of the monotonic clock.
    Each event returns the actions to execute, in order; nothing is executed by it."""

    def __init__(self, options: ReplicaOptions) -> None:
        self.options = options
        self.state = State.READY
        self.reason = ""
        """The reason why it is not following; empty while it follows."""
        self.address = ""
        """The master's `host:port`; empty: it follows no master."""
        self.frames = PlainFrames(switching=True)
        """The frames that `take_plain_frames` takes, and both log offsets below."""
        self.truncated_bytes = 0
        """Bytes that Truncate and Restart removed, over all connections."""
        self.last_read_ms = self.last_write_ms = LONG_AGO_MS
        """Time of the last bytes from, and of the last bytes for, the master; LONG_AGO_MS before
        the first."""
        self._master_epoch = Epoch(-1)
        self._framer = MasterFramer()
        self._log: LogState | None = None
        self._epochs = Epochs()
        self._coming: list[EpochEntry] = []
        self._adopting: Epochs | None = None
        self._connecting = False
        self._first_frame = False
        self._counters_known = True
        self._apart = False
        """Whether it connected as a learner, because the counters of idle queues are not known."""
        self._durable_end = LogOffset(0)
        self._reported = LogOffset(-1)
        self._wait_ms = RETRY_MIN_MS
        self._due_ms = LONG_AGO_MS

    @property
    def log_end(self) -> LogOffset:
        """Log offset of the end of the log, the bytes of returned Appends and of
        `take_plain_frames` included."""
        return LogOffset(self.frames.log_end)

    @property
    def confirm_offset(self) -> LogOffset:
        """The newest confirmOffset that the master sent, or the log's at the begin; at most
        `log_end`."""
        return LogOffset(self.frames.confirm_offset)

    def follow(self, address: str, epoch: int, now_ms: int) -> list[Action]:
        """Close the present connection and connect to the master of `epoch` at `address`
        (`host:port`), now; "" only closes it. No actions if it follows this address and epoch
        already, or after `shutdown`."""
        same = address == self.address and epoch == self._master_epoch
        if self.state is State.SHUTDOWN or same:
            return []
        actions = self._close("another master")
        self.address, self._master_epoch = address, Epoch(epoch)
        self.state, self.reason = State.READY, ""
        self._wait_ms, self._due_ms = RETRY_MIN_MS, now_ms
        return actions + self.on_tick(now_ms)

    def set_fenced(self, fenced: bool) -> None:
        """Set whether later handshakes refuse a master that has not recorded the epoch in which
        it was elected (ReplicaOptions.fenced); a present connection stays."""
        if fenced != self.options.fenced:
            self.options = replace(self.options, fenced=fenced)

    def shutdown(self) -> list[Action]:
        """Stop permanently, and return Close if there is a connection or a try to connect."""
        actions = self._close("shut down")
        self.state = State.SHUTDOWN
        return actions

    def on_connected(self, log: LogState, now_ms: int) -> list[Action]:
        """Handle the connection that a Connect opened: send the handshake. `log` is the present
        log, to which nothing is being written; with `ack_durable` all of it is durable. Without a
        pending Connect the result is Close."""
        if not self._connecting or self.state is not State.READY:
            return [Close("not asked for")]
        self._connecting = False
        self.state, self.reason = State.HANDSHAKE, ""
        self._framer = MasterFramer()
        self.frames.stop()
        self._adopting, self._coming, self._first_frame = None, [], False
        self._use_log(log)
        self._reported = LogOffset(-1)
        self.last_read_ms = self.last_write_ms = now_ms
        options = self.options
        self._counters_known, self._apart = True, not log.counted
        learner = options.async_learner or self._apart
        first = Handshake(options.broker_id, options.sync_from_last_file, learner)
        return [Send(first.encode())]

    def on_closed(self, reason: str, now_ms: int) -> list[Action]:
        """Handle the end of the connection, or of a failed try to connect; the next try is due
        after a wait that doubles. Never returns an action."""
        if self._connecting or self._is_attached:
            self._connecting = False
            self._retry_later(reason, now_ms)
        return []

    def take_plain_frames(self, data: Buffer, now_ms: int) -> int:
        """Take the plain frames at the beginning of a read into `frames`. Returns their size in
        bytes; the caller appends their bodies, confirms, and passes the rest of the read to
        `on_bytes`, or sends the result of `due_report` if there is no rest."""
        if self.state is not State.TRANSFER or self._framer.is_inside:
            return 0
        self.last_read_ms = now_ms
        return self.frames.take(data)

    def due_report(self, now_ms: int) -> bytes | None:
        """The acknowledgement that is due after bytes were appended, None if none is."""
        actions: list[Action] = []
        self._acknowledge(actions, now_ms)
        return actions[0].data if actions and isinstance(actions[0], Send) else None

    def on_bytes(self, data: Buffer, now_ms: int, *, taken: int = 0) -> list[Action]:
        """Handle bytes of the master: cut or extend the log, record epochs, acknowledge. Malformed
        bytes return Close. While the log is being cut, bytes are only kept. `taken` is the size of
        the part of the read before `data` that `take_plain_frames` took."""
        actions: list[Action] = []
        if not self._is_attached:
            return actions
        self.last_read_ms = now_ms
        try:
            for frame in self._framer.feed(data, hold=self._adopting is not None):
                if isinstance(frame, HandshakeReply):
                    self._on_reply(frame, actions, now_ms)
                else:
                    self._on_transfer(frame, actions)
                if not self._is_attached or self._adopting is not None:
                    return actions
        except BadFrame as error:
            actions.append(Close(str(error)))
            self._retry_later(str(error), now_ms)
            return actions
        self._expect_plain()
        if not self._may_wait(taken + len(data), now_ms):
            self._acknowledge(actions, now_ms)
        return actions

    def on_truncated(self, log: LogState, now_ms: int) -> list[Action]:
        """Handle the durable end of a Truncate or Restart; `log` is the log after it. The transfer
        begins, with the bytes that were kept. No actions if the connection was closed meanwhile."""
        actions: list[Action] = []
        if self._adopting is None:  # the connection was closed meanwhile
            return actions
        self._use_log(log)
        self._start(self._adopting, actions)
        self._acknowledge(actions, now_ms)
        return actions + self.on_bytes(b"", now_ms)

    def on_failed(self, reason: str, now_ms: int) -> list[Action]:
        """Handle the failure of an action, such as a cut or a write: return Close; the next try is
        due after SUSPEND_MS."""
        return self._suspend(reason, now_ms) if self._is_attached else []

    def on_durable(self, log_end: LogOffset, now_ms: int) -> list[Action]:
        """Note that the log is durable up to `log_end`, a log offset, and acknowledge that with
        `ack_durable`."""
        self._durable_end = max(self._durable_end, log_end)
        actions: list[Action] = []
        self._acknowledge(actions, now_ms)
        return actions

    def on_counted(self, now_ms: int) -> list[Action]:
        """Note that the counters of idle queues are known durably, or that the master cannot report
        them.

        Before that, a log that began after its master's first byte is no member's: a member may
        have to lead, and would count these queues from 0 (I9). So a connection in which the log
        begins reports nothing, and a later connection is a learner's, whose first acknowledgement
        is the end of its log.
        """
        actions: list[Action] = []
        self._counters_known = True
        if self._apart and self._is_attached:
            self._retry_later("idle queues are counted", now_ms)
            actions.append(Close(self.reason))
        self._apart = False
        self._acknowledge(actions, now_ms)
        return actions

    def on_tick(self, now_ms: int) -> list[Action]:
        """Connect when a try is due, close the connection of a silent master, repeat the
        acknowledgement when a heartbeat is due; to be called several times a second."""
        options = self.options
        if self.state in (State.READY, State.SUSPEND):
            if not self.address or self._connecting or now_ms < self._due_ms:
                return []
            self.state, self._connecting = State.READY, True
            return [Connect(self.address)]
        if not self._is_attached:
            return []
        actions: list[Action] = []
        if now_ms - self.last_read_ms > options.housekeeping_interval_ms:
            self._retry_later("the master is silent", now_ms)
            return [Close(self.reason)]
        due = now_ms - self.last_write_ms > options.heartbeat_interval_ms
        if self.state is State.TRANSFER and due and self._reported >= 0:
            self.last_write_ms = now_ms
            return [Send(Ack(self._reported).encode())]
        self._acknowledge(actions, now_ms)
        return actions

    @property
    def _is_attached(self) -> bool:
        """Whether a handshake was sent and the connection is open."""
        return self.state in (State.HANDSHAKE, State.TRANSFER)

    def _use_log(self, log: LogState) -> None:
        """Take the ends, confirmOffset and epochs of `log`, the log at the begin of a
        connection."""
        self._log = log
        self.frames.log_end, self.frames.confirm_offset = log.end, log.confirm
        self._epochs = log.epochs
        self._durable_end = LogOffset(0)

    @property
    def _is_log_empty(self) -> bool:
        """Whether the log has no byte, so that it may begin at any log offset."""
        assert self._log is not None, "no connection yet"
        return self._log.min == self.log_end

    # --- handshake

    def _on_reply(self, reply: HandshakeReply, actions: list[Action], now_ms: int) -> None:
        """Handle the master's reply to the handshake; raises BadFrame for a second reply."""
        if self.state is not State.HANDSHAKE or self._adopting is not None:
            raise BadFrame("a second answer to the handshake")
        if not reply.epochs.entries:
            actions += self._suspend("the master has no epochs", now_ms)
            return
        assert self._log is not None, "no connection yet"
        wanted = max(self._master_epoch, -1 if self._is_log_empty else self._log.epochs.last_epoch)
        if self.options.fenced and reply.epochs.last_epoch < wanted:
            text = f"the master is of epoch {reply.epochs.last_epoch}, not of {wanted}"
            actions.append(Close(text))
            self._retry_later(text, now_ms)
            return
        self._adopt_reply(reply, actions, now_ms)

    def _adopt_reply(self, reply: HandshakeReply, actions: list[Action], now_ms: int) -> None:
        """Cut the log at the point where it differs from the master's, and adopt the epochs
        before it."""
        log = self._log
        assert log is not None, "no connection yet"
        if self._is_log_empty:
            self._start(reply.epochs, actions)
            return
        point = consistent_point(log.epochs, log.believed_end, reply.epochs, reply.log_end)
        self._adopting = reply.epochs
        if point is not None and point > log.min:
            if refusal := self._lacks_confirmed(log, point):
                actions += self._suspend(refusal, now_ms)
            elif point < log.end:
                self.truncated_bytes += log.end - point
                actions.append(Truncate(point))
            else:
                self._start(reply.epochs, actions)
            return
        # Retention removed the master's epochs of the oldest bytes, so bytes before its first epoch
        # may be removed.
        if refusal := self._lacks_confirmed(log, reply.epochs.entries[0].start):
            actions += self._suspend(refusal, now_ms)
            return
        self.truncated_bytes += log.end - log.min
        actions.append(Restart())

    def _lacks_confirmed(self, log: LogState, point: LogOffset) -> str:
        """Return the reason why the log may not be cut at the log offset `point`; "" if it may
        be."""
        confirmed = min(log.confirm, log.believed_end)
        if point >= confirmed or confirmed <= log.min or self.options.cut_confirmed:
            return ""
        return f"the master's log parts from this one at {point}, before confirmed {confirmed}"

    def _start(self, theirs: Epochs, actions: list[Action]) -> None:
        """Begin the transfer: the log is a prefix of the master's."""
        self.state, self._adopting, self._first_frame = State.TRANSFER, None, True
        own = Epochs() if self._is_log_empty else self._epochs
        if not self._is_log_empty:
            known = own.cut_at(self.log_end).adopted_from(theirs, self.log_end)
            if known != self._epochs:
                actions.append(RecordEpochs(known))
            own = known
        self._epochs = own
        self._coming = [entry for entry in theirs if entry.epoch > own.last_epoch]
        self._durable_end = LogOffset(0)

    # --- transfer

    def _on_transfer(self, frame: Transfer, actions: list[Action]) -> None:
        """Add the actions for a piece of the log or a heartbeat: epochs, Append, Confirm. Raises
        BadFrame unless it begins at the end of the log."""
        if self.state is not State.TRANSFER:
            raise BadFrame("a transfer before the answer to the handshake")
        first, self._first_frame = self._first_frame, False
        stop = LogOffset(frame.log_offset + len(frame.body))
        if self._is_log_empty:
            if not frame.body and frame.log_offset != 0:
                return
            self._counters_known = self._counters_known and frame.log_offset == self.log_end
        elif frame.log_offset != self.log_end:
            if first and frame.log_offset > self.log_end:
                actions.append(Restart())
            raise BadFrame(f"bytes from {frame.log_offset} on, the log ends at {self.log_end}")
        self._check_epoch(frame)
        self._record_up_to(stop, actions)
        if frame.body:
            actions.append(Append(frame.log_offset, frame.body))
            self.frames.log_end = stop
        self._wait_ms = RETRY_MIN_MS
        confirm = min(frame.confirm_offset, self.log_end)
        if confirm > self.confirm_offset:
            self.frames.confirm_offset = confirm
            actions.append(Confirm(self.confirm_offset))

    def _expect_plain(self) -> None:
        """Let `take_plain_frames` take the frames that only continue the log in its last epoch."""
        entries = self._epochs.entries
        if (
            self.state is State.TRANSFER
            and entries
            and not (self._is_log_empty or self._first_frame)
        ):
            newest = entries[-1]
            stop = self._coming[0].start if self._coming else LOG_OFFSET_MAX
            self.frames.expect(newest.epoch, newest.start, stop)
        else:
            self.frames.stop()

    def _check_epoch(self, frame: Transfer) -> None:
        """Check the header's epoch, and remember it if it is new."""
        entry = EpochEntry(Epoch(frame.epoch), frame.epoch_start)
        coming_at = self._coming[0].start if self._coming else LOG_OFFSET_MAX
        if self._epochs.entries[-1:] == (entry,) and frame.log_offset < coming_at:
            return
        newest = self._coming[-1] if self._coming else None
        if newest is None and self._epochs.entries:
            newest = self._epochs.entries[-1]
        if newest is None or frame.epoch > newest.epoch:
            if newest is not None and frame.epoch_start < newest.start:
                raise BadFrame(f"epoch {frame.epoch} from {frame.epoch_start} on begins too early")
            if len(self._coming) >= ENTRIES_MAX:
                raise BadFrame("epochs without end")
            if frame.epoch >= 0 and frame.epoch_start >= 0:
                self._coming.append(entry)
        elif frame.body:
            known = [*self._epochs, *self._coming]
            owners = [e.epoch for e in known if e.start <= frame.log_offset]
            if entry not in known or (owners and frame.epoch < owners[-1]):
                raise BadFrame(f"epoch {frame.epoch} does not own {frame.log_offset}")

    def _record_up_to(self, log_end: LogOffset, actions: list[Action]) -> None:
        """Record the epochs that begin in the next bytes, or at their end, before the bytes: after
        a crash in between, an entry beyond the log's end is ignored."""
        due = [entry for entry in self._coming if entry.start <= log_end]
        if due:
            del self._coming[: len(due)]
            self._epochs = Epochs((*self._epochs, *due)[-ENTRIES_MAX:])
            actions.append(RecordEpochs(self._epochs))

    def _acknowledge(self, actions: list[Action], now_ms: int) -> None:
        """Acknowledge the end of the log if more than acknowledged before counts."""
        if self.state is not State.TRANSFER:
            return
        end = LogOffset(0) if self._is_log_empty or not self._counters_known else self.log_end
        if self.options.ack_durable and self._reported >= 0:
            end = min(end, self._durable_end)
        if end > self._reported:
            self._reported = end
            self.last_write_ms = now_ms
            actions.append(Send(Ack(end).encode()))

    def _may_wait(self, read_size: int, now_ms: int) -> bool:
        """Whether the next acknowledgement may wait for a later read; see `may_wait`."""
        if self._reported < 0 or not self._framer.is_inside:
            return False
        return may_wait(self.log_end - self._reported, now_ms - self.last_write_ms, read_size)

    # --- leaving

    def _retry_later(self, reason: str, now_ms: int) -> None:
        """Set the state READY, and double the wait until the next try."""
        self.state, self.reason, self._adopting = State.READY, reason, None
        self._due_ms = now_ms + self._wait_ms
        self._wait_ms = min(self._wait_ms * 2, RETRY_MAX_MS)

    def _suspend(self, reason: str, now_ms: int) -> list[Action]:
        """Set the state SUSPEND, tried again after SUSPEND_MS, and return Close."""
        self.state, self.reason, self._adopting = State.SUSPEND, reason, None
        self._due_ms = now_ms + SUSPEND_MS
        return [Close(reason)]

    def _close(self, reason: str) -> list[Action]:
        """Close the connection, or stop the try to connect: return Close if there is either."""
        actions: list[Action] = [Close(reason)] if self._is_attached or self._connecting else []
        self._adopting, self._connecting, self.reason = None, False, reason
        return actions
