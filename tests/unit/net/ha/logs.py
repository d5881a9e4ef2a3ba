"""A log in memory for the replication machines, and a shell that executes their actions."""

from dataclasses import dataclass, field

from turbopump.engine.log.epochs import Epochs
from turbopump.engine.types import LogOffset
from turbopump.net.ha.actions import (
    Action,
    Append,
    Close,
    Confirm,
    RecordEpochs,
    Restart,
    Send,
    SendLog,
    Truncate,
)
from turbopump.net.ha.replica import LogState, Replica

FILE_SIZE = 1000
START = LogOffset(0)


@dataclass
class MemoryLog:
    """The bytes [min, end) of a log, used as a master's log and as a replica's."""

    data: bytearray = field(default_factory=bytearray)
    epochs: Epochs = field(default_factory=Epochs)
    min: LogOffset = START
    confirm: LogOffset = START
    file_size: int = FILE_SIZE
    believed: LogOffset | None = None

    @property
    def end(self) -> LogOffset:
        return LogOffset(self.min + len(self.data))

    def write(self, data: bytes) -> None:
        self.data += data

    def read(self, log_offset: int, size: int) -> bytes:
        assert self.min <= log_offset <= log_offset + size <= self.end
        return bytes(self.data[log_offset - self.min :][:size])

    def state(self) -> LogState:
        believed = self.end if self.believed is None else self.believed
        return LogState(self.min, self.end, self.confirm, self.epochs, believed)

    def truncate(self, log_end: int) -> None:
        del self.data[log_end - self.min :]
        self.epochs = self.epochs.cut_at(LogOffset(log_end))
        self.confirm = min(self.confirm, LogOffset(log_end))
        self.believed = None

    def restart(self) -> None:
        self.data.clear()
        self.epochs, self.min, self.confirm = Epochs(), LogOffset(0), LogOffset(0)
        self.believed = None

    def append(self, log_offset: int, data: bytes) -> None:
        if not self.data:
            self.min = LogOffset(log_offset)
        assert log_offset == self.end, "a hole in the log"
        self.data += data


@dataclass
class Shell:
    """Executes a replica's actions on a log; `sent` has the bytes for the master."""

    replica: Replica
    log: MemoryLog
    sent: bytearray = field(default_factory=bytearray)
    closed: list[str] = field(default_factory=list)
    done: list[Action] = field(default_factory=list)

    def do(self, actions: list[Action], now_ms: int = 0) -> None:
        for action in actions:
            self.done.append(action)
            match action:
                case Send(data):
                    self.sent += data
                case Append(log_offset, data):
                    self.log.append(log_offset, data)
                case RecordEpochs(epochs):
                    self.log.epochs = epochs
                case Confirm(log_offset):
                    assert self.log.confirm < log_offset <= self.log.end
                    self.log.confirm = log_offset
                case Truncate(log_end):
                    self.log.truncate(log_end)
                    self.do(self.replica.on_truncated(self.log.state(), now_ms), now_ms)
                case Restart():
                    self.log.restart()
                    self.do(self.replica.on_truncated(self.log.state(), now_ms), now_ms)
                case Close(reason):
                    self.closed.append(reason)

    def connect(self, now_ms: int = 0) -> None:
        """Establish the requested connection."""
        self.do(self.replica.on_tick(now_ms), now_ms)
        self.do(self.replica.on_connected(self.log.state(), now_ms), now_ms)

    def feed(self, data: bytes, now_ms: int = 0) -> None:
        self.do(self.replica.on_bytes(data, now_ms), now_ms)

    def take(self) -> bytes:
        taken, self.sent = bytes(self.sent), bytearray()
        return taken


def on_the_wire(log: MemoryLog, actions: list[Action]) -> bytes:
    """The bytes that a master's actions send."""
    parts = []
    for action in actions:
        if isinstance(action, Send):
            parts.append(action.data)
        elif isinstance(action, SendLog):
            parts.append(action.header + log.read(action.log_offset, action.size))
    return b"".join(parts)
