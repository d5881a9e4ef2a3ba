"""A replica at work: what its machine asks for is done to the log and to the connection.

Owns the order: actions one after the other, none behind one that failed, so that what must be
durable before a word is said is. It must never know a socket, nor a clock. Driven by `service` and
by the simulator: times are of the monotonic clock; what is written down has its time from
`wall_ms`.

A store that failed follows no master: it would wait for this one, as a member of the SyncStateSet.

What is written down beside the log is synced by a disk's thread: epochs before the bytes that they
label, the log's marks before the handshake, a cut of the log or its beginning anew. Meanwhile the
loop goes on, with heartbeats to controllers: what the machine asks for is kept, in order, and the
connection is not read.

Under SYNC_FLUSH (`ack_durable`) nothing is acknowledged that a power cut could take: the
handshake waits until all that is there is durable, an acknowledgement until its bytes are.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from turbopump.broker.ha.ports import ReplicatedLog, Transport
from turbopump.broker.replication import ByteRate
from turbopump.engine.later import Later
from turbopump.engine.types import Buffer, LogOffset, StoreError
from turbopump.engine.upkeep.cutting import Ended
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
from turbopump.net.ha.plain import PlainReplica
from turbopump.net.ha.replica import LogState, Replica, State

logger = logging.getLogger(__name__)

FAILED = "the store takes no changes"


class Follower:
    """A replica of either protocol; it has at most one connection."""

    def __init__(
        self,
        log: ReplicatedLog,
        machine: Replica | PlainReplica,
        transport: Transport,
        wall_ms: Callable[[], int],
    ) -> None:
        """The machine's option `ack_durable` is to be set under SYNC_FLUSH."""
        self.machine = machine
        self.connection: int | None = None
        """The connection's number, also while it is being made."""
        self.rate = ByteRate(0)
        self.reconnects = 0
        """Connections that were made after one was lost."""
        self._lost = False
        self._log = log
        self._transport = transport
        self._wall_ms = wall_ms
        self._waits_for_disk = machine.options.ack_durable
        self._waiting = self._syncing = self._paused = False
        self._recording = self._blocked = self._grew = False
        self._kept: deque[Action] = deque()
        """What is to be done once a disk's thread is ready, or the bytes before it have a file."""
        self._now_ms = 0
        if self._waits_for_disk:
            log.on_flushed.append(self._on_flushed)

    def follow(self, address: str, epoch: int, now_ms: int) -> None:
        """Follow the master at that address, of that epoch (default HA knows none); "" none."""
        machine = self.machine
        is_new = address != machine.address
        if isinstance(machine, Replica):
            self._do(machine.follow(address, epoch, now_ms), now_ms)
        else:
            self._do(machine.follow(address, now_ms), now_ms)
        self._lost = self._lost and not is_new

    def shutdown(self, now_ms: int) -> None:
        """The last word: the log is left alone from now on."""
        self._recording = False
        self._kept.clear()
        self._do(self.machine.shutdown(), now_ms)
        if self._on_flushed in self._log.on_flushed:
            self._log.on_flushed.remove(self._on_flushed)

    # What the transport tells; of a connection that was left it may tell anything.

    def on_connected(self, connection: int, now_ms: int) -> None:
        """The connection stands."""
        if connection != self.connection:
            self._transport.close(connection)
            return
        self._now_ms = now_ms
        self.reconnects += self._lost
        self._lost = False
        self._waiting = True
        self._log.get_ready().then(lambda error: self._ready(connection, error))

    def on_bytes(self, connection: int, data: Buffer, now_ms: int) -> None:
        """Bytes of the master. They may be of a buffer that is used again afterwards."""
        if connection != self.connection:
            return
        if self._waiting:
            self._cut()
            self._do(self.machine.on_closed("the master spoke first", now_ms), now_ms)
            return
        self.rate.add(len(data), now_ms)
        self._do(self.machine.on_bytes(data, now_ms), now_ms)

    def on_closed(self, connection: int, reason: str, now_ms: int) -> None:
        """The connection is gone, or could not be made."""
        if connection == self.connection:
            self._gone()
            self._do(self.machine.on_closed(reason, now_ms), now_ms)

    def on_tick(self, now_ms: int) -> None:
        """Time passes; to be called several times a second."""
        if self.connection is not None and self._log.failed is not None:
            logger.error("the master is left: %s", self._log.failed)
            self._cut()
            self._do(self.machine.on_closed(FAILED, now_ms), now_ms)
        self._now_ms = now_ms
        if self._blocked:
            self._unblock()
        self._read_on()
        machine = self.machine
        if isinstance(machine, Replica) and self._is_counted():
            self._do(machine.on_counted(now_ms), now_ms)
        self._do(machine.on_tick(now_ms), now_ms)

    # Inside

    def _ready(self, connection: int, error: Ended) -> None:
        """What a handshake relies on is durable but, under SYNC_FLUSH, the log itself."""
        if connection != self.connection or self.machine.state is State.SHUTDOWN:
            return
        if error is not None:
            logger.error("no master can be followed, the log is not ready: %s", error)
            self._cut()
            self._do(self.machine.on_closed(str(error), self._now_ms), self._now_ms)
        elif self._waits_for_disk and self._log.flushed < self._log.end:
            self._syncing = True
            self._log.sync(self._wall_ms())
        else:
            self._attach(self._now_ms)

    def _attach(self, now_ms: int) -> None:
        self._waiting = self._syncing = False
        machine = self.machine
        if isinstance(machine, Replica):
            self._do(machine.on_connected(self._state(), now_ms), now_ms)
        else:
            self._do(machine.on_connected(self._log.end, now_ms), now_ms)

    def _appended(self, now_ms: int) -> None:
        if self._waits_for_disk:
            self._log.sync(self._wall_ms())
        if isinstance(self.machine, PlainReplica):
            # Default HA knows no confirmOffset: what is here may be read.
            self._log.confirm_to(self._log.end, self._wall_ms())
        if self._log.is_slow:
            # More would only have the kernel stop the one thread at a page fault.
            self._pause()

    def _pause(self) -> None:
        if self.connection is not None and not self._paused:
            self._paused = True
            self._transport.pause(self.connection, True)

    def _read_on(self) -> None:
        if self._recording or self._log.is_slow:
            return
        if self._paused and self.connection is not None:
            self._paused = False
            self._transport.pause(self.connection, False)

    def _on_flushed(self, log_end: LogOffset) -> None:
        now_ms = self._now_ms
        if self.machine.state is State.SHUTDOWN:
            return
        if self._syncing:
            if log_end >= self._log.end:
                self._attach(now_ms)
            else:
                self._log.sync(self._wall_ms())
        elif not self._waiting:
            self._do(self.machine.on_durable(log_end, now_ms), now_ms)

    def _do(self, actions: list[Action], now_ms: int) -> None:
        self._now_ms = now_ms
        if self._blocked and any(isinstance(one, Close | Connect) for one in actions):
            self._blocked, self._kept = False, deque()  # that was of a connection that is left
        if self._recording or self._blocked:
            self._kept.extend(_copied(_told_once(actions)))
            return
        self._go_on(deque(_told_once(actions)))

    def _go_on(self, waiting: deque[Action]) -> None:
        """Do what waits, up to what a disk has to do first."""
        now_ms = self._now_ms
        while waiting:
            action = waiting.popleft()
            try:
                told = self._by_disk(action)
                if told is not None:
                    if isinstance(action, Append):
                        waiting.appendleft(action)  # once there is a log that begins there
                    if not told.done:
                        self._recording = True
                        self._kept = deque(_copied(waiting))
                        self._pause()
                        told.then(partial(self._recorded, action))
                        break
                    if told.value is not None:
                        raise told.value
                    waiting.extendleft(reversed(self._behind(action)))
                    continue
                if isinstance(action, Append):
                    self._append(action, waiting)
                    if self._log.is_blocked:
                        self._blocked = True
                        self._kept = deque(_copied(waiting))
                        self._pause()
                        break
                    continue
                self._one(action, now_ms)
            except (StoreError, OSError) as error:
                waiting = self._failed(type(action).__name__, error)
        if self._grew:
            self._grew = False
            self._appended(now_ms)

    def _by_disk(self, action: Action) -> Later[Ended] | None:
        """Have a disk's thread do it, or what has to come before it; None of any other."""
        log = self._log
        match action:
            case RecordEpochs(epochs):
                return log.record(epochs)
            case Truncate(log_end):
                logger.warning("the log is cut from %d to %d", log.end, log_end)
                return log.truncating(log_end, self._wall_ms())
            case Restart():
                logger.warning("the log up to %d is given up and fetched anew", log.end)
                return log.restarting()
            case Append(log_offset) if log.begins_at(log_offset):
                return log.beginning(log_offset)
        return None

    def _behind(self, action: Action) -> list[Action]:
        """What is to be done next, once that is durable."""
        if not isinstance(action, Truncate | Restart):
            return []
        assert isinstance(self.machine, Replica), "default HA cuts nothing"
        return self.machine.on_truncated(self._state(), self._now_ms)

    def _recorded(self, action: Action, error: Ended) -> None:
        if not self._recording:
            return  # that was another role
        self._recording = False
        waiting, self._kept = self._kept, deque()
        if error is not None:
            waiting = self._failed(type(action).__name__, error)
        else:
            waiting.extendleft(reversed(self._behind(action)))
        self._go_on(waiting)
        self._read_on()

    def _unblock(self) -> None:
        """Go on with what was to be done, if there is a log file for the bytes before it."""
        before = self._log.end
        try:
            self._log.go_on(self._wall_ms())
        except (StoreError, OSError) as error:
            self._go_on(self._failed("Append", error))
            return
        self._grew = self._grew or self._log.end > before
        waiting: deque[Action] = deque()
        if not self._log.is_blocked:
            waiting, self._kept, self._blocked = self._kept, waiting, False
        self._go_on(waiting)

    def _failed(self, what: str, error: StoreError | OSError) -> deque[Action]:
        """What is to be done instead of all that was to follow."""
        logger.error("replication stops, %s failed: %s", what, error)
        self._cut()
        machine, now_ms = self.machine, self._now_ms
        # A connection that was to be made meanwhile is none.
        return deque(machine.on_failed(str(error), now_ms) or machine.on_closed(str(error), now_ms))

    def _append(self, action: Append, waiting: deque[Action]) -> None:
        """With those that follow on: all that a read brought at once."""
        end, more = action.log_offset + len(action.data), []
        while waiting and isinstance(after := waiting[0], Append) and after.log_offset == end:
            waiting.popleft()
            end += len(after.data)
            more.append(after.data)
        before = self._log.end
        self._log.append(action.log_offset, action.data, self._wall_ms(), more)
        self._grew = self._grew or self._log.end > before

    def _one(self, action: Action, now_ms: int) -> None:
        log = self._log
        match action:
            case Send(data):
                if self.connection is not None:
                    self._transport.send(self.connection, [data])
            case Confirm(log_offset):
                log.confirm_to(log_offset, self._wall_ms())
            case Connect(address):
                self._cut()
                if log.failed is not None:
                    self.machine.on_closed(FAILED, now_ms)
                else:
                    self.connection = self._transport.connect(address)
            case Close(reason):
                if self.connection is not None:
                    logger.info("the connection to the master is closed: %s", reason)
                self._cut()
            case _:
                raise AssertionError(f"{action} is nothing for a replica")

    def _cut(self) -> None:
        connection = self._gone()
        if connection is not None:
            self._transport.close(connection)

    def _gone(self) -> int | None:
        connection, self.connection = self.connection, None
        self._waiting = self._syncing = self._paused = False
        if self._blocked:
            self._blocked, self._kept = False, deque()
        self._lost = self._lost or connection is not None
        return connection

    def _state(self) -> LogState:
        log = self._log
        return LogState(log.min, log.end, log.confirm, log.epochs, log.believed_end, log.is_counted)

    def _is_counted(self) -> bool:
        """Of the log as the machine knows it: nothing waits to be done to it."""
        return self._log.is_counted and not (self._recording or self._blocked)


def _told_once(actions: list[Action]) -> list[Action]:
    """Readers are woken once for all that a read brought, with the last word on it."""
    places = [place for place, action in enumerate(actions) if isinstance(action, Confirm)]
    if len(places) < 2:
        return actions
    early = set(places[:-1])
    return [action for place, action in enumerate(actions) if place not in early]


def _copied(actions: Iterable[Action]) -> list[Action]:
    """As they can be kept: what was read is of a buffer that is used again."""
    return [
        replace(one, data=bytes(one.data)) if isinstance(one, Append) else one for one in actions
    ]
