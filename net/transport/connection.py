"""A connection on the loop: bytes in, frames handled, answers out.

Owns the BufferedProtocol of servers and clients alike: TLS and HTTP/2 by the first byte, back
pressure in both directions, and the peer's place in the sweep for idle and slow peers. It must
never know a request code. Connections of a Server or Client share its Hub.

    open -> first byte -> plain ------------------> frames, natively if the hub has a lane
                       -> TLS -> handshake -------> frames
                       -> HTTP/2 (also after TLS) -> handed over to the hub's Upgrade
    frames -> closing: unsent bytes are written -> ended; a peer that is gone may first have
             its unread bytes handled

Tests: tests/integration/transport/test_transport_last_words.py,
    tests/integration/transport/test_transport_cut.py
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Generator
from functools import partial
from typing import Final, cast

from turbopump.engine.deferred import Deferred
from turbopump.net.transport.closed_link import ClosedLink
from turbopump.net.transport.dispatcher import Dispatcher, Response, one_line
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.hub import HTTP2, Gate, Hub
from turbopump.net.transport.peer import Peer, Timer
from turbopump.net.transport.receive_buffer import Receiver
from turbopump.net.transport.scheduled_connection import READ
from turbopump.net.transport.tls import HANDSHAKE_BYTE, PREFACE_BYTE, TlsError, TlsSession
from turbopump.net.transport.writing import WritingSide
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import (
    LANGUAGES,
    RESPONSE_FLAG,
    Command,
    WireError,
    decode,
    encode,
    new_response,
)
from turbopump.net.wire.hosts import join, pack_ip
from turbopump.pyx.fast import READ_COUNTED_OVER, TURN_REQUESTS
from turbopump.pyx.frame import find_frames
from turbopump.pyx.io_threads import ThreadedTransport

logger = logging.getLogger(__name__)

GO_AWAY_SINCE_VERSION: Final = 476
"""First MQVersion (after V5_3_1) whose clients understand GO_AWAY; `Command.version` has the same
numbers."""

_WRITING: Final = 1
_IN_FLIGHT: Final = 2
_NO_CONTEXT: Final = 32


class Connection(WritingSide, asyncio.BufferedProtocol):
    """A connection of a Hub; connections that the hub refuses are answered SYSTEM_BUSY and closed.
    Loop thread only.

    `tls` is given by a client alone; a server's connection chooses plain or TLS by the first byte.
    `dispatcher` replaces the hub's. With a `gate` the connection is read natively from its first
    byte on, or, with TLS, from the end of the handshake on.
    """

    __slots__ = (
        "_context",
        "_dispatcher",
        "_gate",
        "_hello",
        "_in_flight",
        "_paused",
        "_receiver",
        "_started",
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
        super().__init__(hub, tls)
        self._gate = gate
        self._dispatcher = dispatcher
        self._receiver = Receiver(hub.area, hub.options.max_frame, self)
        self._started = tls is not None
        self._hello = b""
        self._context: ssl.SSLContext | TlsError | None = None
        self._paused = 0
        self._in_flight = 0

    # Callbacks of the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Join the hub, or abort if it does not admit the connection; a client with TLS begins the
        handshake."""
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
        """Leave the hub. If a write had failed (`exc` is an OSError), the bytes that the peer had
        sent are handled first, in later turns of the loop."""
        drains = self.is_ready and isinstance(exc, OSError)
        transport, self._transport = self._transport, None
        self._forget_unsent()
        if transport is None or not drains or not self.drain_socket(transport):
            self._end()

    def _end(self) -> None:
        """Leave the hub, fail the waiting calls and run the callbacks of the lost peer."""
        if self.peer.closed:
            return
        self._closing = True
        self.end_fast()
        self.give_up_work()
        self.hold_sealed(0)
        self.end_drain()
        self._tls = self._context = None
        self._hello = b""
        self._receiver.end()
        self._hub.settled(self._in_flight)
        self._hub.remove(self)
        self.peer.lost()
        self._wake_writers()
        self.peer.replace_link(ClosedLink(self._hub.loop))

    # Methods for FastConnection: reads before the connection is fast, and cases it leaves to
    # Python.

    def slow_room(self) -> memoryview:
        """The memory that the next read fills, shared by all connections unless a frame is
        incomplete."""
        if self._tls is not None:
            return self._hub.area.room
        return self._receiver.room()

    def slow_read(self, nbytes: int) -> None:
        """Handle the first `nbytes` of `slow_room`, then write all answers at once. Bytes that have
        to wait for a turn are copied. Never raises: malformed bytes close the connection."""
        self.active_at = self._hub.clock()
        self._guarded(lambda: self._slow_read(nbytes))
        if nbytes > READ_COUNTED_OVER and not self.is_fast:
            self.took(nbytes)

    def _slow_read(self, nbytes: int) -> None:
        """Handle the first `nbytes` of the memory that was read into; may raise."""
        if not self._started:
            self._start(self._hub.area.scratch[:nbytes])
            if self._hello or self._closing:
                return
            if self._tls is None and self._begin_fast():
                self.buffer_updated(nbytes)
                return
        if self._tls is not None:
            self._tls.feed(self._hub.area.scratch[:nbytes])
            self._go_on_with_tls()
        elif not self._closing:
            self._receiver.received(nbytes, self._handle)

    def go_on_slowly(self) -> None:
        """Handle the frames that the receiver keeps, then the bytes that are not decrypted yet.
        Never raises: malformed bytes close the connection."""
        self._guarded(self._go_on_slowly)

    def _go_on_slowly(self) -> None:
        """Handle waiting frames and bytes that are not decrypted yet; may raise."""
        if self._context is not None:
            self._begin_tls_later(self._context)
        self._receiver.go_on(self._handle)
        if self._tls is not None and not self._closing:
            self._go_on_with_tls()

    def _guarded(self, read: Callable[[], None]) -> None:
        """Run `read`, which handles frames, then write the answers; an exception closes the
        connection."""
        self.in_read = True
        self.turn_left = TURN_REQUESTS
        try:
            read()
        except (WireError, ssl.SSLError) as error:
            self._refuse(one_line(error))
        except Exception:
            logger.exception("a read from %s failed", self.peer.address)
            self.close()
        finally:
            self.in_read = False
            self._note_progress()
            self._flush()

    def _handle(self, frame: memoryview) -> bool | None:
        """Handle a frame if this turn has room; None: it has to wait. Else the result of
        `_on_frame`."""
        return self._on_frame(frame) if self.begins() else None

    def frame(self, frame: memoryview) -> bool:
        """Handle a frame, a view that is valid during the call only, in Python; False if the
        connection was closed and no later frame may be handled. Raises WireError for a malformed
        frame."""
        return not self._closing and self._on_frame(frame)

    def bad_length(self, rest: memoryview) -> None:
        """Raise ValueError with a sentence: `rest` begins with a length that no frame has."""
        find_frames(rest, len(rest), self._hub.options.max_frame)

    def failed(self, error: Exception) -> None:
        """Close the connection after a failed read: malformed bytes are logged as a problem with
        the peer, any other error with its traceback."""
        if isinstance(error, WireError | ValueError | ssl.SSLError):
            self._refuse(one_line(error))
        else:
            logger.error("a read from %s failed", self.peer.address, exc_info=error)
            self.close()

    def end_read(self) -> None:
        """Write the answers of a read whose frames were all handled, then run the callbacks of
        `after_answers`."""
        self._flush()

    def met(self, version: int, language: int) -> None:
        """Store the version (MQVersion) and the language (an index of LANGUAGES) of a plain request
        in `peer`."""
        self.peer.version, self.peer.language = version, LANGUAGES[language]

    def hold(self, count: int) -> None:
        """Count `count` requests whose responses will be sent later; from `max_in_flight` of
        them reading pauses."""
        self._in_flight += count
        self._hub.in_flight += count
        if self._in_flight >= self._hub.options.max_in_flight:
            self.pause(_IN_FLIGHT)

    def settled(self, count: int) -> bool:
        """Count the responses of `count` requests that `hold` counted as ready, and read again
        at half of `max_in_flight`. Returns True if the responses may be written, False if the
        peer is gone or the connection closes."""
        if self.peer.closed:
            return False
        self._in_flight -= count
        if self._in_flight <= self._hub.options.max_in_flight // 2:
            self.resume(_IN_FLIGHT)
        self._hub.settled(count)
        transport = self._transport
        return not self._closing and transport is not None and not transport.is_closing()

    def clock(self) -> float:
        """The loop's monotonic clock in seconds."""
        return self._hub.clock()

    def later(self, callback: Callable[[], None]) -> None:
        """Run `callback` in the next turn of the loop."""
        self._hub.loop.call_soon(callback)

    # Further callbacks of the loop.

    def eof_received(self) -> bool:
        """Always False: the loop closes half-closed connections, as RocketMQ does."""
        return False

    def pause_writing(self) -> None:
        """Note that unsent bytes reached the high-water mark, and stop reading from the peer of a
        server.

        A client continues to read, or both sides could wait for each other; its calls wait.
        """
        self.blocked = True
        self.blocked_since = self._hub.clock()
        if self._hub.is_server:
            self.pause(_WRITING)

    def resume_writing(self) -> None:
        """Note that unsent bytes fell below the low-water mark: write the bytes that wait for
        encryption, read again, and run the callbacks of `when_writable`."""
        self.blocked = False
        self.blocked_since = 0.0
        self._seal()
        self.go_on_if_free()
        if self.blocked:
            return
        self.resume(_WRITING)
        self._wake_writers()

    # Methods for Peer (this is its Link).

    def send(self, command: Command) -> None:
        """Encode a request now, and write it at the end of the read in progress or in the next turn
        of the loop; dropped without an error if the connection closes. Raises WireError if it does
        not fit into a frame."""
        self._put(encode(command))

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the loop after `delay_ms`, unless the returned timer is cancelled
        first. It also runs after the end of the connection."""
        return self._hub.loop.call_later(delay_ms / 1000, callback)

    def close(self) -> None:
        """Write out the unsent bytes, then close; no further request is handled or answered.
        Returns at once. The sweep aborts the connection if the peer does not read within
        `close_timeout_ms`."""
        if self._closing:
            return
        if self._transport is None:
            self.abort()
            return
        self._flush()
        self._closing = True
        self.end_fast()
        self.closing_at = self._hub.clock()
        if not self.sealing:
            self._close_transport()

    # Methods for Hub and Client.

    def abort(self) -> None:
        """Close and drop all unsent bytes. The connection leaves its hub in a later turn of the
        loop."""
        self._closing = True
        self.end_fast()
        self._forget_unsent()
        if self._transport is not None:
            self._transport.abort()
        elif not self.peer.closed:
            # Later, because a read may be in progress.
            self._hub.loop.call_soon(self._end)

    @property
    def is_closing(self) -> bool:
        """Whether the connection closes or is closed: no further frame is handled."""
        return self._closing

    @property
    def is_full(self) -> bool:
        """Whether reading is paused because too many requests are unanswered: from `max_in_flight`
        unanswered requests until half of them are answered."""
        return self._paused & _IN_FLIGHT != 0

    @property
    def is_ready(self) -> bool:
        """Whether requests can be sent: connected, and TLS established if there is TLS."""
        if self._closing or self._transport is None or self._hello:
            return False
        return self._tls is None or self._tls.established

    # Reading.

    def _start(self, data: memoryview) -> None:
        """Choose plain or TLS, by the first byte (RocketMQ: NettyRemotingServer.TlsModeHandler).

        Reading from a TLS peer pauses until there is a context for it.
        """
        self._started = True
        context = self._hub.tls_context(data[0] == HANDSHAKE_BYTE)
        if isinstance(context, Deferred):
            self._hello = bytes(data)
            self.hold_sealed(len(data))
            self.rests = True
            self.pause(_NO_CONTEXT)
            context.then(self._has_context)
        elif context is not None:
            self._begin_tls(context)
        elif data[0] == PREFACE_BYTE:
            self._hand_over(data)

    def _hand_over(self, data: memoryview) -> None:
        """Hand a peer that speaks HTTP/2 over to the hub's Upgrade, if it has one."""
        upgrade, transport = self._hub.upgrade, self._transport
        if upgrade is None or transport is None:
            return
        if not self._hub.is_free(self):
            raise WireError("too many connections are open")
        tls, self._tls, self._transport = self._tls, None, None
        self._end()
        if self._paused:
            transport.resume_reading()
        upgrade.take(transport, tls, data)

    def _has_context(self, context: ssl.SSLContext | TlsError) -> None:
        """Continue, in turns with other waiting connections, after
        the context was made or failed."""
        if not self._closing:
            self._context = context
            self.give_way()
            self.resume(_NO_CONTEXT)

    def _begin_tls_later(self, context: ssl.SSLContext | TlsError) -> None:
        """Begin TLS with the first bytes that were kept until the context was made. Raises
        WireError."""
        hello, self._hello, self._context = self._hello, b"", None
        self.hold_sealed(0)
        if isinstance(context, TlsError):
            raise WireError(str(context))
        self._begin_tls(context).feed(hello)

    def _begin_tls(self, context: ssl.SSLContext) -> TlsSession:
        """Begin the handshake of a server's connection and return its session."""
        tls = self._tls = TlsSession(context, server_side=True)
        self.slow_since = self.active_at
        return tls

    def _begin_fast(self) -> bool:
        """Begin to read natively; False without a lane for the port, or while the connection
        closes or is over the limit of connections."""
        gate = self._gate
        transport = self._transport
        if gate is None or transport is None or self._closing or not self._hub.is_free(self):
            return False
        self.go_fast(
            gate.lane,
            gate.pulls,
            transport.get_extra_info("socket").fileno(),
            self.peer.host,
            self._hub.area,
            self._hub.options.max_frame,
            gate.turn,
            self._tls,
            transport if isinstance(transport, ThreadedTransport) else None,
        )
        self.in_read = False
        self.slow_since = 0.0
        return True

    def _go_on_with_tls(self) -> None:
        """Take a step of the handshake, or handle the frames in the encrypted bytes that were
        fed."""
        tls = self._tls
        assert tls is not None
        if not tls.established and self._hub.is_server and not self._hub.turns.begin_handshake():
            self.give_way()
            return
        try:
            begins = not tls.established and tls.handshake()
            if begins:
                self._hub.ready(self)
                self._send_tls_records(tls)
            if begins and tls.protocol == HTTP2:
                self._hand_over(memoryview(b""))
            elif begins and self._begin_fast():
                self.go_on()
            elif tls.established:
                self._read_decrypted(tls)
        finally:
            # An alert of a failed handshake is sent, too.
            self._send_tls_records(tls)

    def _send_tls_records(self, tls: TlsSession) -> None:
        """Write the session's own records (handshake, alerts)."""
        outgoing = tls.outgoing()
        if outgoing and not self._closing and self._transport is not None:
            self._transport.write(outgoing)
            self.queued = True

    def _read_decrypted(self, tls: TlsSession) -> None:
        """Handle the frames in the encrypted bytes that were fed, until a frame has to wait for
        a turn."""
        while not self._closing and not self._receiver.rests:
            size = tls.read_into(self._receiver.room())
            if size < 0:
                self.close()
            if size <= 0:
                break
            self._receiver.received(size, self._handle)
        if not self._closing:
            self.hold_sealed(tls.pending)

    def _on_frame(self, frame: memoryview) -> bool:
        """Handle a request or response; False if the connection closes."""
        command = decode(frame)
        if command.is_response:
            try:
                self.peer.answered(command)
            except Exception:
                logger.exception("a callback for an answer of %s failed", self.peer.address)
        else:
            self._on_request(command)
        return not self._closing

    def _on_request(self, request: Command) -> None:
        """Have a request handled, and write its answer now or later."""
        peer = self.peer
        peer.version, peer.language = request.version, request.language
        self.met_version = -1
        response: Response | Steps[Response] = self._hub.refusal(self, request)
        if response is None:
            response = self._hub.dispatch(request, peer, self._dispatcher)
        if isinstance(response, Generator):
            self.begin_work(request, response)
        else:
            self.take(request, response)

    def take(self, request: Command, response: Response) -> None:
        """Write the answer to a request: now, once a Deferred resolves, or never (None, or a
        one-way request). While a Deferred is pending, body, fields and remark of `request` are
        removed."""
        if request.is_oneway or response is None:
            return
        if isinstance(response, Deferred):
            self._wait_for(request, response)
        else:
            self._answer(request.opaque, response)

    def _wait_for(
        self, request: Command, response: Deferred[Command] | Deferred[Command | None]
    ) -> None:
        """Write the answer when the Deferred resolves, and count the request as in flight until
        then."""
        if not response.done:
            self._in_flight += 1
            self._hub.in_flight += 1
            if self._in_flight >= self._hub.options.max_in_flight:
                self.pause(_IN_FLIGHT)
            # A handler keeps the request for its opaque and code: the rest of it could be megabytes
            # for each of thousands of waiting requests.
            request.body, request.fields, request.remark = b"", {}, None
            response.then(partial(self.answer_late, request.opaque))
        elif response.value is not None:
            self._answer(request.opaque, response.value)

    def answer_late(self, opaque: int, response: Command | None) -> None:
        """Write the answer to a request that was counted as unanswered (`hold`), None for none;
        no-op once the connection has ended."""
        if self.peer.closed:
            return
        self._in_flight -= 1
        if self._in_flight <= self._hub.options.max_in_flight // 2:
            self.resume(_IN_FLIGHT)
        if response is not None:
            self._answer(opaque, response)
        self._hub.settled(1)

    def _refuse(self, reason: str) -> None:
        """Log the peer's fault and close the connection."""
        self._hub.log_problem(f"{self.peer.address} closed: {reason}")
        self.close()

    def _note_progress(self) -> None:
        """Set the time at which the incomplete frame or handshake
        began; 0 if neither is in progress."""
        if self.is_fast:
            return
        waiting = self._receiver.partial or (self._tls is not None and not self._tls.established)
        if not waiting or self._paused & ~READ:
            # A peer that is not read cannot be slow.
            self.slow_since = 0.0
        elif not self.slow_since:
            self.slow_since = self._hub.clock()

    # Writing.

    def _answer(self, opaque: int, response: Command) -> None:
        """Encode the answer to the request with that opaque, and write it; no-op if the
        connection closes."""
        if self._closing:
            return
        response.opaque = opaque
        response.flag |= RESPONSE_FLAG
        try:
            buffers = encode(response)
        except Exception as error:
            logger.exception("an answer to %s cannot be encoded", self.peer.address)
            failure = new_response(Command(0, opaque), ResponseCode.SYSTEM_ERROR, one_line(error))
            buffers = encode(failure)
        self._put(buffers)

    def pause(self, reason: int) -> None:
        """Add `reason`, a bit, to the reasons not to read, and stop reading."""
        if self._transport is not None:
            if not self._paused:
                self._transport.pause_reading()
            if reason != READ:
                self.slow_since = 0.0
        self._paused |= reason

    def resume(self, reason: int) -> None:
        """Remove `reason`, a bit, from the reasons not to read; read again if no reason is left."""
        if self._paused & reason:
            self._paused &= ~reason
            if not self._paused and not self._closing and self._transport is not None:
                self._transport.resume_reading()
                self._note_progress()
            elif reason == _IN_FLIGHT:
                self.continue_drain()
