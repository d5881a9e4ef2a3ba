"""One connection on the loop: bytes in, frames handled, answers out.

Owns the BufferedProtocol of servers and clients alike: TLS by the first byte, back pressure both
ways, and the peer's place in the sweep for idle and slow ones. It must never know a request code.
Called by the loop; made by Server and Client, whose Hub it shares.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from turbopump.engine.later import Later
from turbopump.engine.types import Buffer
from turbopump.net.transport.dispatcher import Answer, Dispatcher, one_line
from turbopump.net.transport.hub import UNSENT_NOTED_OVER, Gate, Hub
from turbopump.net.transport.peer import Peer, Timer
from turbopump.net.transport.receiving import Receiver
from turbopump.net.transport.tls import HANDSHAKE_BYTE, TlsError, TlsSession
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import (
    LANGUAGES,
    RESPONSE_FLAG,
    Command,
    WireError,
    decode,
    encode,
    response,
)
from turbopump.net.wire.hosts import join, pack_ip
from turbopump.pyx.fast import FastConnection
from turbopump.pyx.frame import find_frames

_log = logging.getLogger(__name__)

GO_AWAY_SINCE_VERSION: Final = 476
"""MQVersion from which a client understands GO_AWAY (after V5_3_1)."""

JOIN_MAX: Final = 64 << 10
"""Answers of one read up to this are joined: one write is cheaper than a vector of small ones."""

FLUSH_OVER: Final = 256 << 10
"""Bytes to be written that do not wait for the end of the read or of the callback: back pressure
shows only in what the transport has."""

LAST_READS_MAX: Final = 64
"""Reads from a connection whose peer is gone: the kernel keeps a few megabytes at most."""

_WRITING: Final = 1
_IN_FLIGHT: Final = 2


class Connection(FastConnection, asyncio.BufferedProtocol):
    """A connection of a Hub. `refused` ones are answered SYSTEM_BUSY and closed.

    Where the hub has a lane, a connection without TLS is read natively from its first byte on.
    """

    __slots__ = (
        "_answered",
        "_closing",
        "_dispatcher",
        "_flushing",
        "_gate",
        "_hub",
        "_in_flight",
        "_out",
        "_out_size",
        "_paused",
        "_receiver",
        "_room_waiters",
        "_started",
        "_tls",
        "_transport",
        "closing_at",
        "peer",
    )

    peer: Peer

    def __init__(
        self,
        hub: Hub,
        tls: TlsSession | None = None,
        dispatcher: Dispatcher | None = None,
        gate: Gate | None = None,
    ) -> None:
        super().__init__()
        self._hub = hub
        self._gate = gate
        self._tls = tls
        self._dispatcher = dispatcher
        self._receiver = Receiver(hub.area, hub.options.max_frame)
        self._transport: asyncio.Transport | None = None
        self._started = tls is not None
        self._out: list[Buffer] = []
        self._out_size = 0
        self._answered: list[Callable[[], None]] = []
        self._room_waiters: list[Callable[[], None]] = []
        self._flushing = False
        self._closing = False
        self._paused = 0
        self._in_flight = 0
        self.closing_at = 0.0

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Join the hub; a client with TLS says hello."""
        self._transport = cast(asyncio.Transport, transport)
        options = self._hub.options
        self._transport.set_write_buffer_limits(options.write_high_water, options.write_low_water)
        name = self._transport.get_extra_info("peername") or ("0.0.0.0", 0)
        self.peer = Peer(join(name[0], name[1]), pack_ip(name[0], name[1]), self)
        self.active_at = self._hub.clock()
        if not self._hub.admit(self):
            self.abort()
        elif self._tls is not None:
            self.slow_since = self.active_at
            self._go_on_with_tls()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the hub; calls that wait fail."""
        if isinstance(exc, OSError) and self._tls is None and not self._closing:
            self._read_last_words()
        self._closing = True
        self.end_fast()
        self._transport = None
        self._tls = None
        self._out.clear()
        self._receiver.release()
        self._hub.settled(self._in_flight)
        self._hub.leave(self)
        self.peer.lost()
        self._wake_writers()

    def _read_last_words(self) -> None:
        """Handle what lies unread when writing failed; the answers go nowhere.

        A client that leaves closes without waiting for answers, and the loop stops reading at the
        first write that fails: the Go client's last commits, not marked one-way, would be lost.
        """
        assert self._transport is not None
        descriptor = self._transport.get_extra_info("socket").fileno()
        self.in_read = not self.is_fast
        try:
            for _ in range(LAST_READS_MAX):
                size = os.readv(descriptor, [self.get_buffer(-1)])
                if not size:
                    break
                if self.is_fast:
                    self.buffer_updated(size)
                else:
                    self._receiver.received(size, self._on_frame)
        except (OSError, WireError):
            pass  # the end of what had arrived
        finally:
            self.in_read = False
            self._flush()

    # What FastConnection calls: reads while a connection is none, and what it leaves to us.

    def slow_room(self) -> memoryview:
        """Where the next read goes."""
        if self._tls is not None:
            return self._hub.area.scratch
        return self._receiver.room()

    def slow_read(self, nbytes: int) -> None:
        """Handle what was read to the end, then write all answers at once."""
        self.active_at = self._hub.clock()
        self.in_read = True
        try:
            if not self._started:
                self._start(self._hub.area.scratch[0])
                if self._begin_fast(nbytes):
                    return
            if self._tls is not None:
                self._tls.feed(self._hub.area.scratch[:nbytes])
                self._go_on_with_tls()
            elif not self._closing:
                self._receiver.received(nbytes, self._on_frame)
        except (WireError, ssl.SSLError) as error:
            self._refuse(one_line(error))
        except Exception:
            _log.exception("a read from %s failed", self.peer.address)
            self.close()
        finally:
            self.in_read = False
            self._note_progress()
            self._flush()

    def frame(self, frame: memoryview) -> bool:
        """Handle a frame that is not plain; False if the connection was closed."""
        return not self._closing and self._on_frame(frame)

    def bad_length(self, rest: memoryview) -> None:
        """What follows cannot be a frame."""
        find_frames(rest, len(rest), self._hub.options.max_frame)

    def failed(self, error: Exception) -> None:
        """A read could not be handled."""
        if isinstance(error, WireError | ValueError):
            self._refuse(one_line(error))
        else:
            _log.error("a read from %s failed", self.peer.address, exc_info=error)
            self.close()

    def end_read(self) -> None:
        """All frames of a read are handled."""
        self._flush()

    def met(self, version: int, language: int) -> None:
        """The peer of a plain request says who it is."""
        self.peer.version, self.peer.language = version, LANGUAGES[language]

    def is_drained(self) -> bool:
        """Whether the transport has nothing to write."""
        return self._transport is not None and not self._transport.get_write_buffer_size()

    def write_rest(self, buffers: list[Buffer]) -> None:
        """Write behind what the transport has."""
        if self._transport is not None and not self._transport.is_closing():
            _write(self._transport, buffers)
            self._check_unread()

    def hold(self, count: int) -> None:
        """So many answers to what was just read come later."""
        self._in_flight += count
        self._hub.in_flight += count
        if self._in_flight >= self._hub.options.max_in_flight:
            self._pause(_IN_FLIGHT)

    def settled(self, count: int) -> bool:
        """So many answers come now; whether they may be written."""
        if self._transport is None:
            return False
        self._in_flight -= count
        if self._in_flight <= self._hub.options.max_in_flight // 2:
            self._resume(_IN_FLIGHT)
        self._hub.settled(count)
        return not self._closing and not self._transport.is_closing()

    def clock(self) -> float:
        """The loop's time."""
        return self._hub.clock()

    # What the loop calls.

    def eof_received(self) -> bool:
        """Half-closed connections are closed, as in RocketMQ."""
        return False

    def pause_writing(self) -> None:
        """The peer does not take what is written: a server does not read more from it.

        A client goes on reading, or both sides could wait for each other; its calls wait.
        """
        self.blocked = True
        if self._hub.is_server:
            self._pause(_WRITING)

    def resume_writing(self) -> None:
        """The peer took enough."""
        self.blocked = False
        self.go_on()
        if self.blocked:
            return
        self._resume(_WRITING)
        self._wake_writers()

    # What Peer calls (it is its Link).

    def send(self, command: Command) -> None:
        """Write a request; raises WireError if it does not fit into a frame."""
        self._put(encode(command))

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` after `delay_ms`."""
        return self._hub.loop.call_later(delay_ms / 1000, callback)

    def after_answers(self, callback: Callable[[], None]) -> None:
        """Run `callback` once what is to be written now is on its way."""
        self._answered.append(callback)
        self._flush_soon()

    def close(self) -> None:
        """Write out what is waiting, then close; the sweep aborts if the peer does not take it."""
        if self._closing or self._transport is None:
            return
        self._flush()
        self._closing = True
        self.end_fast()
        self.closing_at = self._hub.clock()
        if self._tls is not None and self._tls.established:
            self._tls.end()
            self._transport.write(self._tls.outgoing())
        self._transport.close()

    # What Hub and Client call.

    def abort(self) -> None:
        """Close without writing anything more."""
        self._closing = True
        self.end_fast()
        self._out.clear()
        if self._transport is not None:
            self._transport.abort()

    @property
    def unsent(self) -> int:
        """Bytes written that the peer has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def is_ready(self) -> bool:
        """Whether requests can be sent: connected, and TLS established if there is TLS."""
        return not self._closing and (self._tls is None or self._tls.established)

    @property
    def writable(self) -> bool:
        """Whether the unsent bytes are below the high-water mark."""
        return not self.blocked

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Run `callback` once unsent bytes fall below the low-water mark, or the peer is lost."""
        self._room_waiters.append(callback)

    # Reading.

    def _start(self, first: int) -> None:
        """Plain or TLS, by the first byte (RocketMQ: NettyRemotingServer.TlsModeHandler)."""
        self._started = True
        try:
            context = self._hub.tls_context(first == HANDSHAKE_BYTE)
        except TlsError as error:
            raise WireError(str(error)) from None
        if context is not None:
            self._tls = TlsSession(context, server_side=True)
            self.slow_since = self.active_at

    def _begin_fast(self, nbytes: int) -> bool:
        """Hand the first read of a plain connection over to the lane, if there is one."""
        gate = self._gate
        if gate is None or self._tls is not None or self._closing or not self._hub.is_free(self):
            return False
        assert self._transport is not None
        self.go_fast(
            gate.lane,
            gate.pulls,
            self._transport.get_extra_info("socket").fileno(),
            self.peer.host,
            self._hub.area,
            self._hub.options.max_frame,
            gate.turn,
        )
        self.in_read = False
        self.buffer_updated(nbytes)
        return True

    def _go_on_with_tls(self) -> None:
        assert self._tls is not None and self._transport is not None
        try:
            was_established = self._tls.established
            if self._tls.handshake():
                if not was_established:
                    self._hub.ready(self)
                self._read_decrypted(self._tls)
        finally:
            # An alert of a failed handshake goes out too.
            outgoing = self._tls.outgoing()
            if outgoing and not self._closing:
                self._transport.write(outgoing)

    def _read_decrypted(self, tls: TlsSession) -> None:
        while not self._closing:
            size = tls.read_into(self._receiver.room())
            if size < 0:
                self.close()
            if size <= 0:
                return
            self._receiver.received(size, self._on_frame)

    def _on_frame(self, frame: memoryview) -> bool:
        command = decode(frame)
        if command.is_response:
            try:
                self.peer.answered(command)
            except Exception:
                _log.exception("what waited for an answer of %s failed", self.peer.address)
        else:
            self._on_request(command)
        return not self._closing

    def _on_request(self, request: Command) -> None:
        peer = self.peer
        peer.version, peer.language = request.version, request.language
        self.met_version = -1
        answer: Answer = self._hub.refusal(self, request)
        if answer is None:
            answer = self._hub.dispatch(request, peer, self._dispatcher)
        if request.is_oneway or answer is None:
            return
        if isinstance(answer, Later):
            self._wait_for(request, answer)
        else:
            self._answer(request.opaque, answer)

    def _wait_for(
        self, request: Command, answer: Later[Command] | Later[Command | None]
    ) -> None:
        if not answer.done:
            self._in_flight += 1
            self._hub.in_flight += 1
            if self._in_flight >= self._hub.options.max_in_flight:
                self._pause(_IN_FLIGHT)
            # A handler keeps the request for its opaque and code: what else came with it could be
            # megabytes for each of thousands that wait.
            request.body, request.fields, request.remark = b"", {}, None
            answer.then(partial(self._on_late_answer, request.opaque))
        elif answer.value is not None:
            self._answer(request.opaque, answer.value)

    def _on_late_answer(self, opaque: int, answer: Command | None) -> None:
        if self._transport is None:
            return
        self._in_flight -= 1
        if self._in_flight <= self._hub.options.max_in_flight // 2:
            self._resume(_IN_FLIGHT)
        if answer is not None:
            self._answer(opaque, answer)
        self._hub.settled(1)

    def _refuse(self, reason: str) -> None:
        self._hub.complain(f"{self.peer.address} closed: {reason}")
        self.close()

    def _note_progress(self) -> None:
        """When the frame or handshake in progress began; 0 if there is none."""
        if self.is_fast:
            return
        waiting = self._receiver.partial or (self._tls is not None and not self._tls.established)
        if not waiting or self._paused:
            # A peer that is not read cannot be slow.
            self.slow_since = 0.0
        elif not self.slow_since:
            self.slow_since = self._hub.clock()

    # Writing.

    def _answer(self, opaque: int, answer: Command) -> None:
        if self._closing:
            return
        answer.opaque = opaque
        answer.flag |= RESPONSE_FLAG
        try:
            buffers = encode(answer)
        except Exception as error:
            _log.exception("an answer to %s cannot be encoded", self.peer.address)
            failure = response(Command(0, opaque), ResponseCode.SYSTEM_ERROR, one_line(error))
            buffers = encode(failure)
        self._put(buffers)

    def _put(self, buffers: list[Buffer]) -> None:
        if not self._closing:
            self._out += buffers
            self._out_size += sum(map(len, buffers))
            if self._out_size > FLUSH_OVER:
                self._write_out()
            else:
                self._flush_soon()

    def _flush_soon(self) -> None:
        if not self.in_read and not self._flushing:
            self._flushing = True
            self._hub.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self._write_out()
        if self._answered:
            callbacks, self._answered = self._answered, []
            for callback in callbacks:
                self._run(callback)

    def _write_out(self) -> None:
        if not self._out or self._transport is None or self._transport.is_closing():
            return
        if self._tls is not None and not self._tls.established:
            return
        out, self._out, self._out_size = self._out, [], 0
        if self._tls is None:
            _write(self._transport, out)
        else:
            self._tls.encrypt(out)
            self._transport.write(self._tls.outgoing())
        self.active_at = self._hub.clock()
        self._check_unread()

    def _check_unread(self) -> None:
        assert self._transport is not None
        self.queued = True
        unsent = self._transport.get_write_buffer_size()
        if unsent > self._hub.options.write_max:
            self._hub.complain(f"{self.peer.address} closed: it does not read its answers")
            self.abort()
        elif unsent > UNSENT_NOTED_OVER:
            self._hub.note_unsent(self, unsent)

    def _run(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            _log.exception("what followed an answer to %s failed", self.peer.address)

    def _wake_writers(self) -> None:
        waiters, self._room_waiters = self._room_waiters, []
        for waiter in waiters:
            self._run(waiter)

    def _pause(self, reason: int) -> None:
        if not self._paused and self._transport is not None:
            self._transport.pause_reading()
            self.slow_since = 0.0
        self._paused |= reason

    def _resume(self, reason: int) -> None:
        if self._paused & reason:
            self._paused &= ~reason
            if not self._paused and not self._closing and self._transport is not None:
                self._transport.resume_reading()
                self._note_progress()


def _write(transport: asyncio.Transport, out: list[Buffer]) -> None:
    if len(out) == 1:
        transport.write(out[0])
    elif sum(map(len, out)) <= JOIN_MAX:
        transport.write(b"".join(out))
    else:
        transport.writelines(out)
