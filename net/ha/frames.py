"""The frames of replication, both protocols, as data.

Owns sizes, bounds and the cutting of a stream into frames. It must never keep more of a stream than
one frame, nor know the effect of a frame. All numbers are big-endian and signed.

AutoSwitch, replica to master:
    handshake       0 state 1 (4)   4 syncFromLastFile (2)   6 asyncLearner (2)   8 brokerId (8)
    ack             0 state 2 (4)   4 log offset (8)
AutoSwitch, master to replica:
    handshake reply 0 state 1 (4)   4 body size (4)   8 log end (8)   16 last epoch or -1 (4)
                    20 entries of epoch (4) and start (8)
    transfer        0 state 2 (4)   4 body size (4)   8 log offset (8)   16 epoch (4)
                    20 epoch's start (8)   28 confirmOffset (8)   36 body; without one a heartbeat
Default HA:
    report          0 log offset (8)
    transfer        0 log offset (8)   8 body size (4)   12 body; without one a heartbeat

Tests: tests/property/test_ha_frames.py, tests/wire/test_golden_ha.py
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from turbopump.engine.log.epochs import Epochs, EpochsDamaged
from turbopump.engine.types import Buffer, LogOffset

HANDSHAKE = 1
"""First number of a frame: the state of its sender."""
TRANSFER = 2
"""First number of a frame: the state of its sender."""
BODY_MAX = (4 << 20) - 36
"""Maximum bytes of a frame's body: a Java replica reads into a buffer of 4 MiB and waits forever
for a frame that does not fit."""
TRANSFER_BATCH_SIZE = 256 << 10
"""Maximum bytes of a body if haTransferBatchSize is not set (RocketMQ's is 32 KiB): both sides work
for each frame."""
HEARTBEAT_INTERVAL_MS = 5_000
"""Time without a write after which an end of a connection sends a heartbeat."""
HOUSEKEEPING_INTERVAL_MS = 20_000
"""Time without a read after which an end closes the connection."""
HELD_MAX = 1 << 20
"""Maximum bytes that MasterFramer holds: a master waits for the replica's position before it sends
the log."""
ENTRIES_SENT_MAX = 1000
"""Maximum number of entries in a reply that is sent, the newest: a Java master fits 1,000 entries
and fails on the next."""
ENTRIES_READ_MAX = 10_000
"""Maximum number of entries in a reply that is read."""

NOTHING = memoryview(b"")
"""The read bytes of a framer that has read no bytes."""

_STATE = struct.Struct(">i")
_HANDSHAKE = struct.Struct(">ihhq")
_ACK = struct.Struct(">iq")
_REPLY = struct.Struct(">iiqi")
_ENTRY = struct.Struct(">iq")
_TRANSFER = struct.Struct(">iiqiqq")
_REPORT = struct.Struct(">q")
_PLAIN = struct.Struct(">qi")


class BadFrame(ValueError):
    """Bytes that are not a frame, or a frame that is not allowed now; the receiver closes the
    connection."""


@dataclass(slots=True, frozen=True)
class Handshake:
    """The first frame of a replica's connection in AutoSwitch HA: its broker id and whether it
    is a learner."""

    broker_id: int
    """The id that the controller assigned, at least 0."""
    sync_from_last_file: bool = False
    """Whether a replica with an empty log begins with the master's last file."""
    async_learner: bool = False
    """Whether the replica never joins the SyncStateSet."""

    def encode(self) -> bytes:
        """Encode the 16 bytes of the frame."""
        flags = int(self.sync_from_last_file), int(self.async_learner)
        return _HANDSHAKE.pack(HANDSHAKE, *flags, self.broker_id)


@dataclass(slots=True, frozen=True)
class Ack:
    """The replica has the log up to `log_offset`; repeated as a sign of life."""

    log_offset: LogOffset

    def encode(self) -> bytes:
        """Encode the 12 bytes of the frame."""
        return _ACK.pack(TRANSFER, self.log_offset)


@dataclass(slots=True, frozen=True)
class HandshakeReply:
    """The master's epochs and the end of its log at the time of the reply."""

    log_end: LogOffset
    epochs: Epochs

    def encode(self) -> bytes:
        """Encode the frame, with the newest ENTRIES_SENT_MAX entries."""
        entries = self.epochs.entries[-ENTRIES_SENT_MAX:]
        body = b"".join(_ENTRY.pack(entry.epoch, entry.start) for entry in entries)
        return _REPLY.pack(HANDSHAKE, len(body), self.log_end, self.epochs.last_epoch) + body


@dataclass(slots=True, frozen=True)
class Transfer:
    """A piece of the log that begins at `log_offset`, or a heartbeat if `body` is empty.

    `log_offset` may be -1 in a heartbeat of a master without a log. `epoch` is the epoch of the
    bytes and `epoch_start` its first byte, which may follow `log_offset`: RocketMQ labels the last
    bytes of an epoch with the next epoch. `confirm_offset` is the master's confirmOffset.
    """

    log_offset: LogOffset
    epoch: int
    epoch_start: LogOffset
    confirm_offset: LogOffset
    body: Buffer = b""

    def encode_header(self, size: int) -> bytes:
        """The 36 bytes before a body of `size` bytes; `body` is ignored."""
        return _TRANSFER.pack(
            TRANSFER, size, self.log_offset, self.epoch, self.epoch_start, self.confirm_offset
        )


@dataclass(slots=True, frozen=True)
class Report:
    """Default HA: the replica has the log up to `log_offset`; repeated as a sign of life."""

    log_offset: LogOffset

    def encode(self) -> bytes:
        """Encode the 8 bytes of the frame."""
        return _REPORT.pack(self.log_offset)


@dataclass(slots=True, frozen=True)
class DefaultHaTransfer:
    """Default HA: a piece of the log that begins at `log_offset`, or a heartbeat if `body` is
    empty."""

    log_offset: LogOffset
    body: Buffer = b""

    def encode_header(self, size: int) -> bytes:
        """The 12 bytes before a body of `size` bytes; `body` is ignored."""
        return _PLAIN.pack(self.log_offset, size)


class _Framer:
    """The bytes of a stream that are not yet a whole frame: first the held bytes, then the bytes
    just read. A frame that lies completely in the latter is not copied."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._read = NOTHING

    @property
    def is_inside(self) -> bool:
        """Whether a frame has begun and not ended: further bytes are on their way."""
        return bool(self._held)

    def _keep_bytes(self) -> None:
        """Add the bytes just read to the held bytes, by a copy."""
        self._held += self._read
        self._read = NOTHING

    def _has_bytes(self, size: int) -> bool:
        """Whether the next `size` bytes have arrived; if so, they are contiguous."""
        if not self._held:
            return len(self._read) >= size
        lacking = size - len(self._held)
        if lacking > 0:
            self._held += self._read[:lacking]
            self._read = self._read[lacking:]
        return lacking <= 0 or len(self._held) >= size

    def _read_number(self, at: int) -> int | None:
        """Return the 4-byte number at position `at` of the next frame; None until it has
        arrived."""
        if not self._has_bytes(at + _STATE.size):
            return None
        number: int = _STATE.unpack_from(self._held or self._read, at)[0]
        return number

    def _take_bytes(self, size: int) -> Buffer | None:
        """Remove and return the next `size` bytes of the stream; None until they have arrived."""
        if not self._has_bytes(size):
            return None
        if not self._held:
            view, self._read = self._read[:size], self._read[size:]
            return view
        if size == len(self._held):
            whole, self._held = self._held, bytearray()
            return whole
        taken = bytes(memoryview(self._held)[:size])
        del self._held[:size]
        return taken


class ReplicaFramer(_Framer):
    """Cuts the bytes of a replica's connection, at the master of AutoSwitch HA, into frames."""

    def feed(self, data: Buffer) -> Iterator[Handshake | Ack]:
        """Add bytes of the stream, and yield the frames that are complete then, in order; nothing
        happens before the iteration, which must go to the end. Raises BadFrame after the last good
        frame."""
        self._held += data
        while (state := self._read_number(0)) is not None:
            if state not in (HANDSHAKE, TRANSFER):
                raise BadFrame(f"no replica is in state {state}")
            frame = self._take_bytes(_HANDSHAKE.size if state == HANDSHAKE else _ACK.size)
            if frame is None:
                return
            if state == TRANSFER:
                yield Ack(LogOffset(_ACK.unpack(frame)[1]))
                continue
            _one, last_file, learner, broker_id = _HANDSHAKE.unpack(frame)
            yield Handshake(broker_id, last_file == 1, learner == 1)


class MasterFramer(_Framer):
    """Cuts the bytes of the master's connection, at a replica of AutoSwitch HA, into frames."""

    def feed(self, data: Buffer, *, hold: bool = False) -> Iterator[HandshakeReply | Transfer]:
        """Add bytes of the stream, and yield the frames that are complete then, in order; with
        `hold` only add the bytes, at most HELD_MAX. Nothing happens before the iteration; if it
        stops early, the rest is kept for the next call. A body may be a view of `data`. Raises
        BadFrame after the last good frame."""
        if hold:
            self._held += data
            if len(self._held) > HELD_MAX:
                raise BadFrame("the master goes on without waiting for an answer")
            return
        self._read = memoryview(data)
        try:
            yield from self._complete_frames()
        finally:
            self._keep_bytes()

    def _complete_frames(self) -> Iterator[HandshakeReply | Transfer]:
        """Yield the complete frames; raises BadFrame."""
        while (state := self._read_number(0)) is not None:
            if state == HANDSHAKE:
                frame = self._take_frame(_REPLY.size, ENTRIES_READ_MAX * _ENTRY.size)
                if frame is None:
                    return
                yield _read_reply(frame)
            elif state == TRANSFER:
                frame = self._take_frame(_TRANSFER.size, BODY_MAX)
                if frame is None:
                    return
                yield _read_transfer(frame)
            else:
                raise BadFrame(f"no master is in state {state}")

    def _take_frame(self, header_size: int, body_max: int) -> Buffer | None:
        """Remove and return the next frame, whose bytes 4 to 7 are the size of its body; None
        until it has arrived. Raises BadFrame for a body beyond `body_max`."""
        size = self._read_number(4)
        if size is None:
            return None
        if not 0 <= size <= body_max:
            raise BadFrame(f"a frame has no body of {size} bytes")
        return self._take_bytes(header_size + size)


class ReportFramer(_Framer):
    """Cuts the bytes of a replica's connection, at the master of default HA, into frames."""

    def feed(self, data: Buffer) -> Iterator[Report]:
        """Add bytes of the stream, and yield the reports that are complete then, in order; any 8
        bytes are a report. Nothing happens before the iteration, which must go to the end."""
        self._held += data
        while (frame := self._take_bytes(_REPORT.size)) is not None:
            yield Report(LogOffset(_REPORT.unpack(frame)[0]))


class DefaultHaFramer(_Framer):
    """Cuts the bytes of the master's connection, at a replica of default HA, into frames."""

    def feed(self, data: Buffer) -> Iterator[DefaultHaTransfer]:
        """Add bytes of the stream, and yield the frames that are complete then, in order; nothing
        happens before the iteration, which must go to the end. A body may be a view of `data`.
        Raises BadFrame after the last good frame."""
        self._read = memoryview(data)
        try:
            yield from self._complete_frames()
        finally:
            self._keep_bytes()

    def _complete_frames(self) -> Iterator[DefaultHaTransfer]:
        """Yield the complete frames; raises BadFrame."""
        while self._has_bytes(_PLAIN.size):
            log_offset, size = _PLAIN.unpack_from(self._held or self._read)
            if not 0 <= size <= BODY_MAX:
                raise BadFrame(f"a frame has no body of {size} bytes")
            frame = self._take_bytes(_PLAIN.size + size)
            if frame is None:
                return
            yield DefaultHaTransfer(LogOffset(log_offset), memoryview(frame)[_PLAIN.size :])


def _read_reply(frame: Buffer) -> HandshakeReply:
    """Decode a whole HandshakeReply; raises BadFrame."""
    _state, size, log_end, last_epoch = _REPLY.unpack_from(frame)
    if size % _ENTRY.size:
        raise BadFrame(f"{size} bytes are no epoch entries")
    if log_end < 0:
        raise BadFrame(f"no log ends at {log_end}")
    try:
        epochs = Epochs.from_pairs(_ENTRY.iter_unpack(frame[_REPLY.size :]))
    except EpochsDamaged as error:
        raise BadFrame(str(error)) from None
    if epochs.last_epoch != last_epoch:
        raise BadFrame(f"the last epoch is {last_epoch}, the last entry {epochs.last_epoch}")
    return HandshakeReply(LogOffset(log_end), epochs)


def _read_transfer(frame: Buffer) -> Transfer:
    """Decode a whole Transfer, whose body is a view of `frame`; raises BadFrame."""
    _state, size, log_offset, epoch, epoch_start, confirm = _TRANSFER.unpack_from(frame)
    if size and (log_offset < 0 or epoch < 0 or epoch_start < 0):
        raise BadFrame(f"no bytes lie at {log_offset} in epoch {epoch} from {epoch_start} on")
    return Transfer(
        LogOffset(log_offset),
        epoch,
        LogOffset(epoch_start),
        LogOffset(confirm),
        memoryview(frame)[_TRANSFER.size :],
    )
