"""A replica's connection at the master of AutoSwitch HA as a machine: bytes and ticks in, actions
out.

Owns the replica's place in the stream, its acknowledgements, and the number of bytes in flight. It
must never touch the log, a socket or a clock, nor decide which replicas are in sync (`sync_state`).
Each connection has a machine of its own, so that a slow replica does not delay the others.

    HANDSHAKE  until the replica's first acknowledgement, which has the start offset
    TRANSFER   the log is sent, acknowledgements are received
    SHUTDOWN

An acknowledgement carries no epoch. So a connection lives in one epoch only: it closes when the
master's epoch changes, and every acknowledgement belongs to the handshake of the current epoch.

Differences from RocketMQ's master, which keep the wire format: a repeated handshake, sent because
the answer was late, is answered once; the last bytes of an epoch have its own label; an
acknowledgement of bytes that were not sent closes the connection (R18); a replica before the log's
beginning receives the beginning, so that it can start again (R19).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from turbopump.engine.log.epochs import Epochs
from turbopump.engine.types import Buffer, Epoch, LogOffset
from turbopump.net.ha.actions import Acked, Action, Close, Send, SendLog
from turbopump.net.ha.frames import (
    BODY_MAX,
    HEARTBEAT_INTERVAL_MS,
    HOUSEKEEPING_INTERVAL_MS,
    TRANSFER_BATCH_SIZE,
    Ack,
    BadFrame,
    Handshake,
    HandshakeReply,
    ReplicaFramer,
    Transfer,
)
from turbopump.net.ha.replica import State

IN_FLIGHT_MAX = 32 << 20
"""Bytes in flight to a replica from which no frame is sent: the data of 10 Gbit/s in 25 ms, and the
amount to send again when the connection breaks."""
FRAMES_AT_ONCE_MAX = 64
"""Maximum number of frames of the log in a call of `send_available`, so that a replica with a large
lag does not block the loop."""


class MasterLog(Protocol):
    """The master's log at the time of each read: bytes from `min` to before `end`, in files of
    `file_size` bytes. `confirm` is confirmOffset, `epochs` the epochs of the whole log."""

    @property
    def min(self) -> LogOffset: ...
    @property
    def end(self) -> LogOffset: ...
    @property
    def confirm(self) -> LogOffset: ...
    @property
    def file_size(self) -> int: ...
    @property
    def epochs(self) -> Epochs: ...


@dataclass(slots=True, frozen=True)
class PrimaryOptions:
    """Options of the master's side; names are RocketMQ's keys if it has one."""

    transfer_batch_size: int = TRANSFER_BATCH_SIZE
    """Maximum bytes of a body."""
    heartbeat_interval_ms: int = HEARTBEAT_INTERVAL_MS
    """Time without a write after which a heartbeat is sent."""
    housekeeping_interval_ms: int = HOUSEKEEPING_INTERVAL_MS
    """Time without a read after which the connection is closed."""
    in_flight_max: int = IN_FLIGHT_MAX
    """Bytes sent and not acknowledged from which no frame is sent."""


class MasterSide(ABC):
    """The master's side of a replica's connection, in either protocol. Times are ms of the
    monotonic clock. Each method returns the actions to execute, in order; nothing is executed by
    it."""

    def __init__(self, options: PrimaryOptions, log: MasterLog, state: State, now_ms: int) -> None:
        self.options = options
        self.state = state
        """HANDSHAKE, TRANSFER or SHUTDOWN; after SHUTDOWN all methods return no actions."""
        self.acked = LogOffset(-1)
        """Log offset of the end of the replica's log, as it reported last; -1 until its first
        report."""
        self.next = LogOffset(-1)
        """Log offset of the first byte not sent; -1 until the replica's first report."""
        self.last_read_ms = self.last_write_ms = now_ms
        """Time of the last bytes from, and of the last bytes for, the replica; at first of the
        connection."""
        self.quota: int | None = None
        """Bytes of the log that may be sent until the owner raises the quota, from which sent bytes
        are subtracted; None: unlimited."""
        self._log = log
        self._writable = True
        self._started = LogOffset(0)

    @abstractmethod
    def on_bytes(self, data: Buffer, now_ms: int) -> list[Action]:
        """Handle bytes of the replica, then send as `send_available` does. Malformed bytes return
        Close."""

    @abstractmethod
    def send_available(self, now_ms: int) -> list[Action]:
        """Send everything that may be sent now, up to FRAMES_AT_ONCE_MAX frames; to be called when
        the log grew, confirmOffset moved or the quota was raised."""

    def on_tick(self, now_ms: int) -> list[Action]:
        """Close the connection of a silent replica, else send as `send_available` does, heartbeats
        included; to be called several times a second."""
        if self.state is State.SHUTDOWN:
            return []
        if now_ms - self.last_read_ms > self.options.housekeeping_interval_ms:
            return self.close("the replica is silent")
        return self.send_available(now_ms)

    def on_writable(self, writable: bool, now_ms: int) -> list[Action]:
        """Note that the socket's buffer is full (False: nothing is sent), or has room again, and
        send as `send_available` does."""
        self._writable = writable
        return self.send_available(now_ms)

    def close(self, reason: str) -> list[Action]:
        """Stop permanently, and return Close with `reason`; no actions if it has stopped
        already."""
        if self.state is State.SHUTDOWN:
            return []
        self.state = State.SHUTDOWN
        return [Close(reason)]

    def _within_quota(self, size: int) -> int:
        """Subtract up to `size` bytes from the quota and return their number."""
        if self.quota is None:
            return size
        size = min(size, self.quota)
        self.quota -= size
        return size

    @property
    def in_flight(self) -> int:
        """Bytes of the log that were sent and not acknowledged."""
        return max(0, self.next - max(self.acked, self._started))


class PrimaryConnection(MasterSide):
    """A replica's connection in AutoSwitch HA, at the master. Times are ms of the monotonic clock.
    Each method returns the actions to execute, in order; nothing is executed by it."""

    def __init__(self, options: PrimaryOptions, log: MasterLog, now_ms: int) -> None:
        assert 0 < options.transfer_batch_size <= BODY_MAX, "a replica could not read such frames"
        super().__init__(options, log, State.HANDSHAKE, now_ms)
        self.replica: Handshake | None = None
        """The replica's handshake; None until it has arrived."""
        self.epoch: Epoch = log.epochs.last_epoch
        """The master's epoch at the begin of the connection, which closes when it changes."""
        self._framer = ReplicaFramer()
        self._confirm_told = LogOffset(-1)

    def on_bytes(self, data: Buffer, now_ms: int) -> list[Action]:
        """Handle bytes of the replica: answer the handshake, return an Acked for each
        acknowledgement, then send as `send_available` does. Malformed bytes return Close."""
        actions: list[Action] = []
        if self.state is State.SHUTDOWN:
            return actions
        self.last_read_ms = now_ms
        try:
            self._check_epoch()
            for frame in self._framer.feed(data):
                if isinstance(frame, Handshake):
                    self._on_handshake(frame, actions, now_ms)
                else:
                    self._on_ack(frame, actions)
        except BadFrame as error:
            return actions + self.close(str(error))
        return actions + self.send_available(now_ms)

    def send_available(self, now_ms: int) -> list[Action]:
        """Send everything that may be sent now, up to FRAMES_AT_ONCE_MAX pieces of the log, and
        heartbeats that are due or carry a newer confirmOffset to a replica that has all bytes; to
        be called when the log grew, confirmOffset moved or the quota was raised."""
        if self.state is State.SHUTDOWN:
            return []
        try:
            self._check_epoch()
        except BadFrame as error:
            return self.close(str(error))
        if self.state is not State.TRANSFER or not self._writable:
            return []
        if self.next < self._log.min:
            return self.close(f"the log begins at {self._log.min}, {self.next} is gone")
        actions: list[Action] = []
        if now_ms - self.last_write_ms > self.options.heartbeat_interval_ms:
            actions += self._make_heartbeat(now_ms)
        actions += self._log_pieces(now_ms)
        if self.next == self._log.end and self._confirm_told < self._log.confirm:
            actions += self._make_heartbeat(now_ms)  # so that readers there need not wait
        return actions

    def _check_epoch(self) -> None:
        """Raises BadFrame if the master's epoch changed since the handshake."""
        if self._log.epochs.last_epoch != self.epoch:
            raise BadFrame("the epoch changed")

    def _on_handshake(self, frame: Handshake, actions: list[Action], now_ms: int) -> None:
        """Add the reply to a replica's handshake to `actions`; raises BadFrame."""
        if self.replica is not None:
            if frame != self.replica or self.state is not State.HANDSHAKE:
                raise BadFrame("a second handshake")
            return
        if not self._log.epochs.entries:
            raise BadFrame("this master has no epoch yet")
        if frame.broker_id < 0:
            raise BadFrame(f"no broker has the id {frame.broker_id}")
        self.replica = frame
        actions.append(Send(HandshakeReply(self._log.end, self._log.epochs).encode()))
        self.last_write_ms = now_ms

    def _on_ack(self, frame: Ack, actions: list[Action]) -> None:
        """Add an Acked to `actions`; the first acknowledgement begins the transfer. Raises
        BadFrame for an offset that the replica cannot have."""
        log_offset = frame.log_offset
        if self.replica is None:
            raise BadFrame("an acknowledgement before the handshake")
        if self.state is State.HANDSHAKE:
            if not 0 <= log_offset <= self._log.end:
                raise BadFrame(f"a replica at {log_offset}, the log ends at {self._log.end}")
            self.next = self._started = self._transfer_start(log_offset)
            self.state = State.TRANSFER
        elif not self.acked <= log_offset <= self.next:
            raise BadFrame(f"acknowledged {log_offset} after {self.acked}, sent up to {self.next}")
        self.acked = log_offset
        replica = self.replica
        actions.append(Acked(replica.broker_id, log_offset, replica.async_learner))

    def _transfer_start(self, log_offset: LogOffset) -> LogOffset:
        """The start of the transfer for a replica that has the log up to `log_offset`."""
        log = self._log
        if log_offset == 0 and self.replica is not None and self.replica.sync_from_last_file:
            # Start at or before confirmOffset: the replica must have the unconfirmed bytes, or it
            # would count as a copy of bytes that it lacks.
            last = min(log.end, log.confirm)
            return LogOffset(max(log.min, last - last % log.file_size))
        return max(log_offset, log.min)

    def _log_pieces(self, now_ms: int) -> list[Action]:
        """Return a SendLog for each piece of the log that may be sent now."""
        log, options = self._log, self.options
        pieces: list[Action] = []
        while self.next < log.end and self.in_flight < options.in_flight_max:
            if len(pieces) == FRAMES_AT_ONCE_MAX:
                break
            in_file = log.file_size - self.next % log.file_size
            in_epoch = self._epoch_end(self.next) - self.next
            size = min(options.transfer_batch_size, log.end - self.next, in_file, in_epoch)
            size = self._within_quota(size)
            if not size:
                break
            pieces.append(
                SendLog(self._transfer_header(self.next).encode_header(size), self.next, size)
            )
            self.next = LogOffset(self.next + size)
        if pieces:
            self.last_write_ms = now_ms
        return pieces

    def _make_heartbeat(self, now_ms: int) -> list[Action]:
        """Return the Send of a heartbeat, with confirmOffset."""
        self.last_write_ms = now_ms
        return [Send(self._transfer_header(self.next).encode_header(0))]

    def _transfer_header(self, log_offset: LogOffset) -> Transfer:
        """Return a Transfer without a body at `log_offset`, with the epoch of its bytes. Bytes
        before the first epoch have its label: they were written before epochs were kept."""
        epochs = self._log.epochs
        entry = epochs.entries[epochs.index_at(log_offset) or 0]
        self._confirm_told = self._log.confirm
        return Transfer(log_offset, entry.epoch, entry.start, self._log.confirm)

    def _epoch_end(self, log_offset: LogOffset) -> LogOffset:
        """Return the log offset at which the epoch of the byte at `log_offset` ends."""
        epochs = self._log.epochs
        number = epochs.index_at(log_offset)
        if number is None:
            return epochs.entries[0].start
        return epochs.end_of(number)
