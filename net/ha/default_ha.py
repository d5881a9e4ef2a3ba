"""Default HA, for groups without a controller: the master's connection, the replica, and the count
of replicas in sync.

Owns for default HA the parts that `primary`, `replica` and `sync_state` own for AutoSwitch HA. The
protocol has no handshake, ids or epochs: it does not show that two logs hold the same bytes, only
that one log ends where the next bytes begin. It must never touch a log, a socket or a clock.

    READY      no connection; the next try follows after a wait that doubles from 100 ms to 5 s
    TRANSFER   the log is received, reports are sent
    SHUTDOWN

A replica with an empty log begins with the master's last file, as in RocketMQ. RocketMQ's replica
sends an empty report only when a heartbeat is due; this one reports at once.
"""

from dataclasses import dataclass

from turbopump.engine.log.epochs import LOG_OFFSET_MAX
from turbopump.engine.types import LONG_AGO_MS, Buffer, LogOffset
from turbopump.net.ha.actions import Acked, Action, Append, Close, Connect, Send, SendLog
from turbopump.net.ha.frames import (
    HEARTBEAT_INTERVAL_MS,
    HOUSEKEEPING_INTERVAL_MS,
    BadFrame,
    DefaultHaFramer,
    DefaultHaTransfer,
    Report,
    ReportFramer,
)
from turbopump.net.ha.primary import FRAMES_AT_ONCE_MAX, MasterLog, MasterSide, PrimaryOptions
from turbopump.net.ha.replica import RETRY_MAX_MS, RETRY_MIN_MS, State, may_wait
from turbopump.pyx.ha_copy import PlainFrames

GAP_NOT_IN_SYNC = 268_435_456
"""Bytes of lag from which a replica does not count as in sync; default of RocketMQ's
haMaxGapNotInSync."""


class DefaultHaPrimary(MasterSide):
    """A replica's connection in default HA, at the master. `number` identifies the connection: the
    replica's address does not. Times are ms of the monotonic clock. Each method returns the actions
    to execute, in order; nothing is executed by it."""

    def __init__(self, options: PrimaryOptions, log: MasterLog, number: int, now_ms: int) -> None:
        super().__init__(options, log, State.TRANSFER, now_ms)
        self.number = number
        self._framer = ReportFramer()

    def on_bytes(self, data: Buffer, now_ms: int) -> list[Action]:
        """Handle bytes of the replica: return an Acked for the last of its reports, then send as
        `send_available` does. A position that the replica cannot have returns Close."""
        if self.state is State.SHUTDOWN:
            return []
        self.last_read_ms = now_ms
        reports = list(self._framer.feed(data))
        actions: list[Action] = []
        if reports:
            log_offset = reports[-1].log_offset
            if not max(0, self.acked) <= log_offset <= self._highest_known:
                return self.close(
                    f"a replica at {log_offset}, not {self.acked} to {self._highest_known}"
                )
            if self.next < 0:
                self.next = self._started = self._transfer_start(log_offset)
            self.acked = log_offset
            actions.append(Acked(self.number, log_offset, async_learner=False))
        return actions + self.send_available(now_ms)

    def send_available(self, now_ms: int) -> list[Action]:
        """Send everything that may be sent now, up to FRAMES_AT_ONCE_MAX pieces of the log, and a
        heartbeat that is due; to be called when the log grew or the quota was raised."""
        if self.state is State.SHUTDOWN or self.next < 0 or not self._writable:
            return []
        log, options = self._log, self.options
        if self.next < log.min:
            return self.close(f"the log begins at {log.min}, {self.next} is gone")
        actions: list[Action] = []
        if now_ms - self.last_write_ms > options.heartbeat_interval_ms:
            actions.append(Send(DefaultHaTransfer(self.next).encode_header(0)))
            self.last_write_ms = now_ms
        for _ in range(FRAMES_AT_ONCE_MAX):
            if self.next >= log.end or self.in_flight >= options.in_flight_max:
                break
            in_file = log.file_size - self.next % log.file_size
            size = min(options.transfer_batch_size, log.end - self.next, in_file)
            size = self._within_quota(size)
            if not size:
                break
            actions.append(
                SendLog(DefaultHaTransfer(self.next).encode_header(size), self.next, size)
            )
            self.next = LogOffset(self.next + size)
            self.last_write_ms = now_ms
        return actions

    @property
    def _highest_known(self) -> LogOffset:
        """The highest log offset that the replica can have."""
        return self.next if self.next >= 0 else self._log.end

    def _transfer_start(self, log_offset: LogOffset) -> LogOffset:
        """Return the start of the transfer for a replica whose log ends at `log_offset`: 0, an
        empty log, begins with the last file."""
        end = self._log.end
        return log_offset or LogOffset(max(self._log.min, end - end % self._log.file_size))


@dataclass(slots=True, frozen=True)
class DefaultHaOptions:
    """Options of the replica; names are RocketMQ's keys if it has one."""

    heartbeat_interval_ms: int = HEARTBEAT_INTERVAL_MS
    """Time without a write after which the last report is repeated."""
    housekeeping_interval_ms: int = HOUSEKEEPING_INTERVAL_MS
    """Time without a read after which the connection is closed."""
    ack_durable: bool = False
    """Report the end from `on_durable`, not the end of the appended bytes."""


class DefaultHaReplica:
    """The replica, with at most one connection. An empty log ends at 0 and accepts bytes of any
    offset. Times are ms of the monotonic clock. Each event returns the actions to execute, in
    order; nothing is executed by it."""

    def __init__(self, options: DefaultHaOptions) -> None:
        self.options = options
        self.state = State.READY
        """READY, TRANSFER or SHUTDOWN."""
        self.reason = ""
        """The reason why the last connection or try ended; empty while it follows."""
        self.address = ""
        """The master's `host:port`; empty: it follows no master."""
        self.frames = PlainFrames(switching=False)
        """The frames that `take_plain_frames` takes, and the log offset below."""
        self.last_read_ms = self.last_write_ms = LONG_AGO_MS
        """Time of the last bytes from, and of the last report to, the master; LONG_AGO_MS before
        the first."""
        self._framer = DefaultHaFramer()
        self._reported = LogOffset(-1)
        self._durable_end = LogOffset(0)
        self._connecting = False
        self._wait_ms = RETRY_MIN_MS
        self._due_ms = LONG_AGO_MS

    @property
    def log_end(self) -> LogOffset:
        """Log offset of the end of the log, the bytes of returned Appends and of
        `take_plain_frames` included."""
        return LogOffset(self.frames.log_end)

    def follow(self, address: str, now_ms: int) -> list[Action]:
        """Close the present connection and connect to the master at `address` (`host:port`), now;
        "" only closes it. No actions if it follows this address already, or after `shutdown`."""
        if self.state is State.SHUTDOWN or address == self.address:
            return []
        actions = self._close("another master")
        self.address, self.state = address, State.READY
        self._wait_ms, self._due_ms = RETRY_MIN_MS, now_ms
        return actions + self.on_tick(now_ms)

    def shutdown(self) -> list[Action]:
        """Stop permanently, and return Close if there is a connection or a try to connect."""
        actions = self._close("shut down")
        self.state = State.SHUTDOWN
        return actions

    def on_connected(self, log_end: LogOffset, now_ms: int) -> list[Action]:
        """Handle the connection that a Connect opened: report the end of the log, which is
        `log_end`. Nothing is being written to the log; with `ack_durable` all of it is durable.
        Without a pending Connect the result is Close."""
        if not self._connecting or self.state is not State.READY:
            return [Close("not asked for")]
        self._connecting = False
        self.state, self.reason = State.TRANSFER, ""
        self._framer = DefaultHaFramer()
        self.frames.stop()
        self.frames.log_end = log_end
        self._reported, self._durable_end = LogOffset(-1), log_end
        self.last_read_ms = now_ms
        return self._make_report(now_ms)

    def on_closed(self, reason: str, now_ms: int) -> list[Action]:
        """Handle the end of the connection, or of a failed try to connect; the next try is due
        after a wait that doubles. Never returns an action."""
        if self._connecting or self.state is State.TRANSFER:
            self._retry_later(reason, now_ms)
        return []

    def take_plain_frames(self, data: Buffer, now_ms: int) -> int:
        """Take the plain frames at the beginning of a read into `frames`; see Replica."""
        if self.state is not State.TRANSFER or self._framer.is_inside:
            return 0
        self.last_read_ms = now_ms
        taken = self.frames.take(data)
        if taken:
            self._wait_ms = RETRY_MIN_MS
        return taken

    def due_report(self, now_ms: int) -> bytes | None:
        """The report that is due after bytes were appended, None if none is."""
        actions = self._report_if_more(now_ms)
        return actions[0].data if actions and isinstance(actions[0], Send) else None

    def on_bytes(self, data: Buffer, now_ms: int, *, taken: int = 0) -> list[Action]:
        """Handle bytes of the master: Append each piece and report the end. Malformed bytes, or
        bytes that do not begin at the end of the log, return Close. `taken` is the size of the part
        of the read before `data` that `take_plain_frames` took."""
        actions: list[Action] = []
        if self.state is not State.TRANSFER:
            return actions
        self.last_read_ms = now_ms
        try:
            for frame in self._framer.feed(data):
                if self.log_end != 0 and frame.log_offset != self.log_end:
                    raise BadFrame(
                        f"bytes from {frame.log_offset} on, the log ends at {self.log_end}"
                    )
                self._wait_ms = RETRY_MIN_MS
                if frame.body and frame.log_offset < 0:
                    raise BadFrame(f"no bytes lie at {frame.log_offset}")
                if frame.body:
                    actions.append(Append(frame.log_offset, frame.body))
                    self.frames.log_end = frame.log_offset + len(frame.body)
        except BadFrame as error:
            self._retry_later(str(error), now_ms)
            return [*actions, Close(str(error))]
        if self.log_end > 0:
            self.frames.expect()
        may_wait = self._may_wait(taken + len(data), now_ms)
        return actions if may_wait else actions + self._report_if_more(now_ms)

    def on_durable(self, log_end: LogOffset, now_ms: int) -> list[Action]:
        """Note that the log is durable up to `log_end`, a log offset, and report that with
        `ack_durable`."""
        self._durable_end = max(self._durable_end, log_end)
        return self._report_if_more(now_ms) if self.state is State.TRANSFER else []

    def on_failed(self, reason: str, now_ms: int) -> list[Action]:
        """Handle the failure of an action, such as a write to the log: return Close; the next try
        is due after the wait."""
        if self.state is not State.TRANSFER:
            return []
        self._retry_later(reason, now_ms)
        return [Close(reason)]

    def on_tick(self, now_ms: int) -> list[Action]:
        """Connect when a try is due, close the connection of a silent master, repeat the report
        when a heartbeat is due; to be called several times a second."""
        if self.state is State.READY:
            if not self.address or self._connecting or now_ms < self._due_ms:
                return []
            self._connecting = True
            return [Connect(self.address)]
        if self.state is not State.TRANSFER:
            return []
        if now_ms - self.last_read_ms > self.options.housekeeping_interval_ms:
            self._retry_later("the master is silent", now_ms)
            return [Close(self.reason)]
        due = now_ms - self.last_write_ms > self.options.heartbeat_interval_ms
        return self._make_report(now_ms) if due else self._report_if_more(now_ms)

    @property
    def _reportable_end(self) -> LogOffset:
        """The log offset up to which the log may be reported: with `ack_durable` only durable
        bytes count."""
        return min(self.log_end, self._durable_end) if self.options.ack_durable else self.log_end

    def _report_if_more(self, now_ms: int) -> list[Action]:
        """Report the end of the log if more than reported before counts."""
        return self._make_report(now_ms) if self._reportable_end > self._reported else []

    def _may_wait(self, read_size: int, now_ms: int) -> bool:
        """Whether the next report may wait for a later read; see `replica.may_wait`."""
        if not self._framer.is_inside:
            return False
        return may_wait(
            self._reportable_end - self._reported, now_ms - self.last_write_ms, read_size
        )

    def _make_report(self, now_ms: int) -> list[Action]:
        """Return the Send of a report of the log's end."""
        self._reported, self.last_write_ms = self._reportable_end, now_ms
        return [Send(Report(self._reported).encode())]

    def _retry_later(self, reason: str, now_ms: int) -> None:
        """Set the state READY, and double the wait until the next try."""
        self.state, self.reason, self._connecting = State.READY, reason, False
        self._due_ms = now_ms + self._wait_ms
        self._wait_ms = min(self._wait_ms * 2, RETRY_MAX_MS)

    def _close(self, reason: str) -> list[Action]:
        """Return Close if there is a connection or a try to connect."""
        open_ = self.state is State.TRANSFER or self._connecting
        self._connecting, self.reason = False, reason
        return [Close(reason)] if open_ else []


class DefaultHaGroup:
    """The positions of a plain master's replicas, by the numbers of their connections."""

    def __init__(self, gap_max: int = GAP_NOT_IN_SYNC) -> None:
        self.gap_max = gap_max
        """Bytes of lag from which a replica does not count as in sync."""
        self._acked: dict[int, LogOffset] = {}

    def on_ack(self, number: int, log_offset: LogOffset) -> None:
        """Note that the replica of connection `number` has the log up to `log_offset`."""
        self._acked[number] = log_offset

    def on_closed(self, number: int) -> None:
        """Forget the position of a closed connection; no-op for an unknown number."""
        self._acked.pop(number, None)

    def in_sync_count(self, log_end: LogOffset) -> int:
        """The number of connected replicas with a lag below `gap_max` from `log_end`, plus the
        master."""
        return 1 + sum(log_end - acked < self.gap_max for acked in self._acked.values())

    def all_end(self) -> LogOffset:
        """Always LOG_OFFSET_MAX: default HA has no set of required replicas (RocketMQ answers such
        sends at once)."""
        return LOG_OFFSET_MAX

    def copies_end(self, count: int) -> LogOffset:
        """Log offset up to which `count` copies have the log, the master and connected replicas; -1
        if there are fewer copies, LOG_OFFSET_MAX for a `count` up to 1."""
        if count <= 1:
            return LOG_OFFSET_MAX
        acks = sorted(self._acked.values(), reverse=True)
        return acks[count - 2] if len(acks) >= count - 1 else LogOffset(-1)
