"""A gRPC connection on the server's loop: bytes in, calls begun, answers out.

Owns the protocol of uvloop, the connection's calls, and a single write for all answers of a turn of
the loop. It must never know a service, nor the format of frames: H2Session does. Connections of a
GrpcServer share its GrpcHub.

    open -> (GOAWAY: no new calls) -> closing: bytes that the peer still sends are dropped -> lost
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from turbopump.net.grpc.call import GrpcCall
from turbopump.net.grpc.framing import MessageReader, timeout_ms, uses_gzip
from turbopump.net.grpc.hub import GrpcHub
from turbopump.net.grpc.status import HEADERS, GrpcCode, GrpcError, encode_refusal, encode_trailers
from turbopump.net.transport.dispatcher import one_line
from turbopump.net.transport.tls import TlsSession
from turbopump.net.wire.hosts import join, pack_ip
from turbopump.pyx.h2 import CLOSED, DATA, END, H2Session, pairs
from turbopump.pyx.h2 import HEADERS as BLOCK

logger = logging.getLogger(__name__)

NO_ERROR: Final = 0
"""Error code of HTTP/2: a clean end."""
ENHANCE_YOUR_CALM: Final = 11
"""Error code of HTTP/2: too many streams of the peer ended with errors."""
CLOGGED_OVER: Final = 1 << 20
"""Unsent bytes above which a peer counts as clogged, and is sent nothing that would be lost with
it."""
DRAIN_MAX: Final = 1 << 18
"""Maximum bytes that a peer may still send after everything was written to it, before it closes;
beyond it the connection is aborted."""

_NOT_TAKEN: Final = "earlier answers were not taken yet"
_NOT_GRPC: Final = pairs([(b":status", b"415")])
_OF_CALL: Final = (DATA, END)
_BROKEN: Final = (ValueError, ssl.SSLError)
_Pairs = list[tuple[bytes, bytes]]
_Events = list[tuple[int, int, _Pairs | bytes | int | None]]


class GrpcConnection(asyncio.BufferedProtocol):
    """A connection of a GrpcHub. Loop thread only. The calls' methods run within reads, or in later
    turns of the loop if there are many messages."""

    __slots__ = (
        "_blocked",
        "_breaks",
        "_breaks_at",
        "_calls",
        "_closing",
        "_flush_due",
        "_hub",
        "_in_read",
        "_may_drain",
        "_noted",
        "_reads",
        "_ready",
        "_rests",
        "_session",
        "_tls",
        "_transport",
        "active_at",
        "address",
        "called_at",
        "host",
        "pinged_at",
        "wrote_at",
    )

    def __init__(self, hub: GrpcHub, tls: TlsSession | None = None) -> None:
        """`tls` is a session whose handshake has finished."""
        options = hub.options
        self._hub = hub
        self._tls = tls
        self._session = H2Session(
            options.streams_max, options.metadata_max, options.stream_window, options.window
        )
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, GrpcCall] = {}
        self._ready: deque[Callable[[], None]] = deque()
        self._blocked = self._closing = self._in_read = self._flush_due = self._rests = False
        self._reads = True
        self._noted = self._may_drain = 0
        self._breaks = float(options.breaks_burst)
        self.address, self.host = "", b""
        """`ip:port` of the peer, and the same packed (see Carrier); empty before the connection is
        made."""
        self._breaks_at = self.active_at = self.called_at = self.wrote_at = hub.clock()
        """Seconds of the loop's clock. `active_at`: the last read; `called_at`: the begin of the
        newest call, or of the close; `wrote_at`: the last write while bytes are unsent."""
        self.pinged_at = 0.0
        """Seconds of the loop's clock at which an unanswered PING was sent, 0.0: no PING waits."""

    # Callbacks of the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the peer's address, join the hub and write SETTINGS; abort if the hub does not
        admit the connection."""
        self._transport = cast(asyncio.Transport, transport)
        name = self._transport.get_extra_info("peername") or ("0.0.0.0", 0)
        self.address, self.host = join(name[0], name[1]), pack_ip(name[0], name[1])
        if self._hub.lane is not None:
            self._session.serve_plain(self._hub.lane, self.address.encode(), self.host)
        if self._hub.admit_connection(self):
            self._flush()
        else:
            self.abort()

    def begin(self, transport: asyncio.Transport, data: memoryview) -> None:
        """Become the protocol of a socket that another protocol has read, and handle its first
        bytes, `data`; with TLS the session has them and `data` is empty."""
        transport.set_write_buffer_limits()
        transport.set_protocol(self)
        self.connection_made(transport)
        self._on_read(data)

    def get_buffer(self, _hint: int) -> memoryview:
        """The memory that the next read fills; all connections share it, because each read is
        handled completely."""
        return self._hub.room

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the bytes that were read, then write all answers."""
        self._on_read(self._hub.room[:nbytes])

    def _on_read(self, data: memoryview) -> None:
        """Handle the bytes of a read, encrypted or not, and write the answers; while closing,
        drop them."""
        if self._closing:
            self._drain(len(data))
            return
        self.active_at = self._hub.clock()
        self.pinged_at = 0.0
        self._in_read = True
        try:
            if self._tls is None:
                self._on_bytes(data)
            else:
                self._on_records(self._tls, data)
        except _BROKEN as error:
            self._break(error)
        finally:
            self._in_read = False
        self._flush()

    def _on_records(self, tls: TlsSession, data: memoryview) -> None:
        """Decrypt and handle bytes in pieces that fit into the room, which is free after `feed`."""
        if data:
            tls.feed(data)
        size = 1
        while size > 0 and not self._closing:
            size = tls.read_into(self._hub.room)
            if size > 0:
                self._on_bytes(self._hub.room[:size])
        words = tls.outgoing()
        if words and self._transport is not None and not self._closing:
            self._transport.write(words)
        if size < 0:
            self._close()

    def _on_bytes(self, data: memoryview) -> None:
        """Pass decrypted bytes to the HTTP/2 session, and handle the events that result."""
        hub, session = self._hub, self._session
        while len(data) and not self._closing:
            if hub.lane is not None:
                session.may_serve = not (self._ready or hub.call_refusal() or self._is_in_arrears())
            taken, events = session.receive(data)
            if session.has_served:
                self.called_at = self.active_at
            data = data[taken:]
            self._on_events(events)
            if not taken and not events:
                break

    def eof_received(self) -> bool:
        """Always False: the loop closes a connection that the peer closed halfway."""
        return False

    def pause_writing(self) -> None:
        """Note that the transport's buffer is full: stop writing and reading, so that answers do
        not pile up."""
        self._blocked = True
        self._read_on_or_not()

    def resume_writing(self) -> None:
        """Note that the transport's buffer has room: write and read again."""
        self._blocked = False
        self._read_on_or_not()
        if self._transport is not None and not self._closing:
            self._flush()

    def connection_lost(self, _exc: Exception | None) -> None:
        """Leave the hub and end all calls: their `on_closed` runs."""
        self._transport = self._tls = None
        self._closing = True
        self._session.let_go()
        self._hub.remove(self)
        self._drop_calls()
        self._hub.unsent -= self._noted
        self._noted = 0

    # Methods for GrpcCall (this is its Carrier).

    @property
    def unsent(self) -> int:
        """Bytes of answers that wait for the peer's window, without bytes in the transport and the
        kernel."""
        return self._session.unsent

    @property
    def is_clogged(self) -> bool:
        """Whether the peer does not read its answers: the transport's buffer is full, over
        CLOGGED_OVER bytes are unsent, or the connection closes."""
        return self._closing or self._blocked or self._session.unsent > CLOGGED_OVER

    def write_answer(self, call: GrpcCall, body: bytes, end: tuple[GrpcCode, str] | None) -> None:
        """Write framed messages of an answer, and its end unless `end` is None, at the end of the
        read in progress or in the next turn of the loop. No-op for a lost connection."""
        if self._transport is None:
            return
        ending = b"" if end is None else encode_trailers(*end)
        if call.has_begun:
            self._session.more(call.stream_id, body, ending)
        elif end is not None and not body:
            self._session.answer(call.stream_id, encode_refusal(*end), None, b"")
        else:
            call.has_begun = True
            self._session.answer(call.stream_id, HEADERS, body, ending)
        if end is not None:
            self._forget(call)
        self._flush_soon()

    # Methods for FairScheduler.

    def continue_turn(self) -> None:
        """Serve waiting messages of this connection's calls, as many as fit into this turn, then
        read again unless messages are left."""
        turns = self._hub.turns
        while self._ready and turns.begin_request():
            self._ready.popleft()()
        if self._ready:
            turns.continue_later(self, fresh=False)
        else:
            self._rests = False
            self._read_on_or_not()

    # Methods for GrpcHub and GrpcServer.

    def sweep(self, now: float) -> None:
        """Close a peer that is idle, does not answer a PING, or does not read its answers; send a
        PING to a silent peer. `now` is in seconds of the loop's clock."""
        options, session = self._hub.options, self._session
        if self._hub.lane is not None and not self._closing:
            self._on_events(session.let_go())
        if session.unsent and now - self.wrote_at > options.stall_timeout_ms / 1_000:
            self._hub.log_problem(f"{self.address} closed: it does not read its answers")
            self.abort()
        elif self.pinged_at and now - self.pinged_at > options.ping_timeout_ms / 1_000:
            self._hub.log_problem(f"{self.address} closed: it does not answer a PING")
            self.abort()
        elif self._closing:
            if now - self.called_at > options.message_timeout_ms / 1_000:
                self.abort()
        elif not self._calls and now - self.called_at > options.idle_timeout_ms / 1_000:
            self.close()
        elif not self.pinged_at and now - self.active_at > options.ping_after_ms / 1_000:
            self.pinged_at = now
            session.ping()
            self._flush_soon()

    def go_away(self) -> None:
        """Announce the stop (GOAWAY): the peer begins no new calls; calls in progress continue."""
        if not self._closing:
            self._session.shutdown()
            self._flush_soon()

    def close(self) -> None:
        """Fail the calls in progress with UNAVAILABLE, write the answers and GOAWAY, and close.
        Returns at once."""
        for call in list(self._calls.values()):
            call.fail(GrpcError(GrpcCode.UNAVAILABLE, "the server stops"))
        if not self._closing:
            self._say_goodbye(NO_ERROR)
        elif self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close and drop all unsent bytes. Calls end when the connection is lost, right after."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    # Events of the session.

    def _on_events(self, events: _Events) -> None:
        """Handle the events of the HTTP/2 session: headers, data and closed streams."""
        for kind, stream_id, what in events:
            if kind == BLOCK:
                self._on_headers(stream_id, cast("_Pairs | None", what))
            elif kind == CLOSED:
                self._on_closed(stream_id, cast(int, what))
            elif kind in _OF_CALL:
                call = self._calls.get(stream_id)
                if call is not None:
                    self._guarded(call, cast("bytes | None", what))

    def _on_headers(self, stream_id: int, headers: _Pairs | None) -> None:
        """Begin the call of a new stream, or refuse it; None: its headers were too large."""
        if stream_id in self._calls:
            return  # trailers of the client: gRPC gives them no meaning
        self.called_at = self.active_at
        if headers is None:
            text = f"the metadata is larger than {self._hub.options.metadata_max} bytes"
            error = encode_refusal(GrpcCode.RESOURCE_EXHAUSTED, text)
            self._session.answer(stream_id, error, None, b"")
            return
        metadata: dict[bytes, bytes] = {}
        for name, value in headers:
            known = metadata.get(name)
            metadata[name] = value if known is None else known + b"," + value
        content = metadata.get(b"content-type", b"")
        if metadata.get(b":method") != b"POST" or not content.startswith(b"application/grpc"):
            self._session.answer(stream_id, _NOT_GRPC, None, b"")
            return
        path = metadata.get(b":path", b"").decode("ascii", "replace")
        call = GrpcCall(self, stream_id, path, metadata)
        self._calls[stream_id] = call
        self._hub.calls += 1
        try:
            self._begin(call)
        except GrpcError as error:
            call.fail(error)

    def _begin(self, call: GrpcCall) -> None:
        """Have the method of `call.path` set up the call. Raises GrpcError to refuse it."""
        hub = self._hub
        refused = hub.call_refusal()
        if refused is not None:
            raise refused
        if self._is_in_arrears():
            raise GrpcError(GrpcCode.RESOURCE_EXHAUSTED, _NOT_TAKEN)
        method = hub.methods.get(call.path)
        if method is None:
            raise GrpcError(GrpcCode.UNIMPLEMENTED, f"there is no method {call.path[:200]}")
        limit_ms = timeout_ms(call.metadata.get(b"grpc-timeout"))
        if limit_ms is not None:
            call.deadline = self.active_at + limit_ms / 1_000
        call.reader = MessageReader(hub.options.message_max, uses_gzip(call.metadata))
        method(call)

    def _is_in_arrears(self) -> bool:
        """Whether the peer reads too few of its answers, so that it may begin no new calls."""
        hub = self._hub
        unsent = self._session.unsent
        return unsent > hub.options.unsent_max or (hub.is_full and self.is_clogged)

    def _guarded(self, call: GrpcCall, data: bytes | None) -> None:
        """Handle `data` of a request, or None for its end; a GrpcError fails the call."""
        try:
            if data is None:
                self._on_end(call)
            else:
                self._on_data(call, data)
        except GrpcError as error:
            call.fail(error)

    def _on_data(self, call: GrpcCall, data: bytes) -> None:
        """Cut data of a request into messages and handle them; raises GrpcError."""
        reader = call.reader
        assert reader is not None, "an ended call gets no data"
        before = reader.held_bytes
        messages = reader.feed_bytes(data)
        if before or reader.held_bytes:
            self._hub.count_incomplete(call, before, reader.held_bytes)
        if messages:
            self._on_messages(call, messages)

    def _on_messages(self, call: GrpcCall, messages: list[bytes]) -> None:
        """Handle messages of a call; all but the first wait for turns, because a few bytes may
        contain thousands of messages."""
        for at, message in enumerate(messages):
            if self._ready or (call.has_received and not self._hub.turns.begin_request()):
                self._rest(partial(self._go_on_with, call, messages[at:]))
                return
            self._on_message(call, message)

    def _go_on_with(self, call: GrpcCall, messages: list[bytes]) -> None:
        """Handle messages that waited for their turn."""
        self._on_message(call, messages[0])
        for at, message in enumerate(messages[1:], 1):
            if not self._hub.turns.begin_request():
                self._ready.appendleft(partial(self._go_on_with, call, messages[at:]))
                return
            self._on_message(call, message)

    def _on_message(self, call: GrpcCall, message: bytes) -> None:
        """Pass a message to the call's method, or fail the call if the peer reads too few of its
        answers."""
        call.has_received = True
        if call.on_message is None:
            return
        if self._session.unsent > self._hub.options.unsent_max:
            call.fail(GrpcError(GrpcCode.RESOURCE_EXHAUSTED, _NOT_TAKEN))
        else:
            self._serve(call, partial(call.on_message, message))

    def _on_end(self, call: GrpcCall) -> None:
        """Handle the end of the client's half, now or in a later turn. Raises GrpcError within a
        message."""
        if call.reader is not None and call.reader.held_bytes:
            raise GrpcError(GrpcCode.INTERNAL, "the stream ends within a message")
        if call.on_end is None:
            return
        if self._ready or not self._hub.turns.begin_request():
            self._rest(partial(self._end, call))
        else:
            self._end(call)

    def _rest(self, work: Callable[[], None]) -> None:
        """Have `work` run in a later turn, so that other connections are served; nothing is read
        until then."""
        self._ready.append(work)
        if not self._rests:
            self._rests = True
            self._read_on_or_not()
            self._hub.turns.continue_later(self, fresh=True)

    def _read_on_or_not(self) -> None:
        """Read only if there is room for answers and no work waits for its turn."""
        if self._transport is None or self._closing or self._transport.is_closing():
            return
        reads = not (self._blocked or self._rests)
        if reads != self._reads:
            self._reads = reads
            (self._transport.resume_reading if reads else self._transport.pause_reading)()

    def _end(self, call: GrpcCall) -> None:
        """Note the end of the client's half: a unary call is served now."""
        if call.on_end is not None:
            self._serve(call, call.on_end)
        if call.deadline is not None and not call.has_ended:
            left_s = max(0.0, call.deadline - self._hub.clock())
            call.timer = self._hub.loop.call_later(left_s, self._expire, call)

    def _serve(self, call: GrpcCall, work: Callable[[], None]) -> None:
        """Run a service's work: its failure ends the call, not the connection."""
        try:
            work()
        except GrpcError as error:
            call.fail(error)
        except Exception:
            logger.exception("a call of %s to %s failed", self.address, call.path)
            call.fail(GrpcError(GrpcCode.INTERNAL, "the call failed, see the server's log"))

    def _expire(self, call: GrpcCall) -> None:
        call.fail(GrpcError(GrpcCode.DEADLINE_EXCEEDED, "the deadline of the call has passed"))

    def _on_closed(self, stream_id: int, error: int) -> None:
        """End the call of a closed stream silently; close a connection whose streams end with
        errors too often."""
        call = self._calls.get(stream_id)
        if call is not None:
            self._forget(call)
            call.end_silently()
        if error == NO_ERROR or self._closing:
            return
        options, now = self._hub.options, self._hub.clock()
        self._breaks += (now - self._breaks_at) * options.breaks_per_s
        self._breaks = min(self._breaks, float(options.breaks_burst)) - 1
        self._breaks_at = now
        if self._breaks < 0:
            self._hub.log_problem(f"{self.address} closed: too many of its streams end broken")
            self._say_goodbye(ENHANCE_YOUR_CALM)

    def _drop_calls(self) -> None:
        """End all calls of the connection silently: the peer is gone."""
        self._ready.clear()
        for call in list(self._calls.values()):
            self._forget(call)
            call.end_silently()

    def _forget(self, call: GrpcCall) -> None:
        """Remove a call from this connection's table and from the hub's counts."""
        if self._calls.pop(call.stream_id, None) is not None:
            self._hub.call_ended()
            if call.reader is not None and call.reader.held_bytes:
                self._hub.count_incomplete(call, call.reader.held_bytes, 0)

    # Writing.

    def _flush_soon(self) -> None:
        if not self._in_read and not self._flush_due:
            self._flush_due = True
            self._hub.loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write all answers of this turn at once."""
        self._flush_due = False
        if self._transport is None or self._closing:
            return
        try:
            self._write()
        except _BROKEN as error:
            self._break(error)
        if self._session.is_finished:
            self._close_with_peer()

    def _write(self) -> None:
        """Write the session's bytes until the transport's buffer is full, and note the unsent
        bytes in the hub."""
        transport = self._transport
        while transport is not None and not self._blocked:
            out, events = self._session.take()
            if events:
                self._on_events(events)
            if not out:
                break
            self.wrote_at = self._hub.clock()
            transport.write(out if self._tls is None else self._tls.sealed(out))
        unsent = self._session.unsent
        if not unsent:
            self.wrote_at = self.active_at
        self._hub.unsent += unsent - self._noted
        self._noted = unsent

    def _say_goodbye(self, error: int) -> None:
        """Write the answers, then GOAWAY, and close. Nothing can be
        written after a session's GOAWAY."""
        self._closing = True
        try:
            self._write()
            self._session.terminate(error)
            self._write()
        except _BROKEN as failure:
            self._hub.log_problem(f"{self.address} closed: {failure}")
        self.called_at = self._hub.clock()
        self._close()

    def _break(self, error: Exception) -> None:
        """Handle a protocol error of either side: write the
        remaining answers if possible, and close."""
        self._hub.log_problem(f"{self.address} closed: {one_line(error)}")
        try:
            self._write()
        except _BROKEN:
            pass  # the same error prevents the write
        self._close_with_peer()

    def _close(self) -> None:
        """Write out the transport's buffer, and close; the sweep
        aborts if the peer does not read it."""
        self._begin_closing()
        if self._transport is not None:
            self._transport.close()

    def _close_with_peer(self) -> None:
        """Write out the transport's buffer, and let the peer close the connection.

        Bytes that the peer sends meanwhile are read and dropped. Closing with unread bytes would
        reset the connection, and the peer might lose the last answers (RFC 9112, section 9.6).
        """
        self._begin_closing()
        transport = self._transport
        if transport is None or transport.is_closing() or self._may_drain:
            return
        self._drop_calls()
        self._may_drain = DRAIN_MAX
        if not self._reads:
            self._reads = True
            transport.resume_reading()
        transport.write_eof()

    def _begin_closing(self) -> None:
        """Mark the connection as closing, and with TLS write the closing alert."""
        if not self._closing:
            self._closing = True
            self.called_at = self._hub.clock()
        transport = self._transport
        if transport is not None and self._tls is not None and not transport.is_closing():
            self._tls.end()
            transport.write(self._tls.outgoing())

    def _drain(self, size: int) -> None:
        """Drop bytes of a peer that should close; too many of them reset the connection."""
        if self._may_drain:
            self._may_drain = max(self._may_drain - size, 0)
            if not self._may_drain:
                self.abort()
