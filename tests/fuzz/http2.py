"""Fuzz targets of gRPC: frames and HPACK in a session, and whole connections with their calls.

Where libnghttp2 is missing they do nothing.
"""

import asyncio
import zlib
from collections.abc import Iterator
from typing import Any, Final

from tests.unit.net.grpc.conftest import Bench, hear
from tests.unit.net.grpc.hostile import Scripted
from tests.wire import h2_frames as h2
from tests.wire.h2_frames import BEGIN, frame, headers, setting
from turbopump.net.grpc.call import unary_method
from turbopump.net.grpc.framing import MessageReader, frame_message
from turbopump.net.grpc.messages import message_class
from turbopump.net.grpc.server import why_no_grpc
from turbopump.net.grpc.status import GrpcError
from turbopump.net.messaging.messaging import PATH
from turbopump.net.transport.errors import ConnectionClosed
from turbopump.pyx.grpc_lane import GrpcLane
from turbopump.pyx.h2 import DATA, H2Session

RESPONSE_MAX: Final = 256 << 10
"""Maximum size of a server's output for some KB of input, beside the data that calls request."""
MESSAGE_MAX: Final = 64 << 10
LARGE: Final = 2_000
SENDS: Final = f"{PATH}SendMessage"
ACKS: Final = f"{PATH}AckMessage"

RESPONSES: Final = ((b":status", b"200"), (b"content-type", b"application/grpc"))

_IS_THERE: Final = why_no_grpc() is None


def _frames(data: bytes) -> bytes:
    """Bytes of a client: by the first byte any bytes after its preface, or a header block in frames
    of their own.
    """
    if not data[:1] or data[0] & 1:
        return BEGIN + data[2:]
    pieces = data[2:].split(b"\0\0\0\0")
    blocks = [frame(h2.HEADERS, 2 * at + 1, one, 5) for at, one in enumerate(pieces)]
    return BEGIN + b"".join(blocks)


def http2(data: bytes) -> None:
    """The same events whether bytes come at once or in slices; a session that ends may end a few
    bytes sooner or later."""
    if _IS_THERE:
        sent, slice_ = _frames(data), 1 + (data[1] if len(data) > 1 else 0)
        whole, sliced = _heard([sent]), _heard(_cut(sent, slice_))
        common = min(len(whole), len(sliced))
        assert whole[:common] == sliced[:common], f"{whole} is not {sliced}"


def _cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def _heard(pieces: list[bytes]) -> list[tuple[int, int, Any]]:
    one = H2Session(streams=8, headers=8_192, stream_window=65_535, window=1 << 20)
    found: list[tuple[int, int, Any]] = []
    try:
        for piece in pieces:
            while piece:
                taken, events = one.receive(piece)
                for kind, stream, what in events:
                    if kind == DATA and found and found[-1][:2] == (kind, stream):
                        found[-1] = (kind, stream, found[-1][2] + what)
                    else:
                        found.append((kind, stream, what))
                piece = piece[taken:]
                if not taken and not events:
                    return found
    except ValueError:
        pass  # the session ended
    return found


def grpc_calls(data: bytes) -> None:
    """A connection keeps nothing after its end, and sends little to a peer that requests little.

    A lane that leaves all sends to Python gives the same output.
    """
    if _IS_THERE:
        lane = GrpcLane(lambda *_: None, lambda *_: None, b"", b"")
        assert _said(data, lane) == _said(data, None)


def _said(data: bytes, lane: GrpcLane | None) -> bytes:
    """Output of a server for the client's bytes."""
    made = Bench(message_max=MESSAGE_MAX)
    made.hub.lane = lane
    echo = made.hub.methods["/S/Echo"]
    made.hub.methods = {**made.hub.methods, SENDS: echo, ACKS: echo}
    large = unary_method(lambda call, _message: call.answer_with(bytes(LARGE)))
    made.hub.methods = {**made.hub.methods, "/S/Large": large}
    one, wire = made.connect(b"")
    for piece in _cut(_frames(data), 1 + 16 * (data[1] if len(data) > 1 else 0)):
        if not wire.closed:
            hear(one, piece)
    for _ in range(4):
        made.loop.run()
    for kept in made.kept:
        kept.answer_with(b"late")
    made.loop.wait(1)
    asked = 2 * len(data) + LARGE * data.count(b"/S/Large")
    assert len(wire.out) <= RESPONSE_MAX + asked, f"{len(wire.out)} bytes for {len(data)}"
    one.connection_lost(None)
    hub = made.hub
    left = (hub.calls, hub.held, hub.unsent, len(hub.connections))
    assert left == (0, 0, 0, 0), left
    return wire.out


def grpc_messages(data: bytes) -> None:
    """Prefixes and gzip: the same messages, or none, however they are cut."""
    gzip, slice_ = bool(data[:1]) and data[0] & 1 == 1, 1 + (data[1] if len(data) > 1 else 0)
    whole, sliced = _read([data[2:]], gzip), _read(_cut(data[2:], slice_), gzip)
    assert whole[1] == sliced[1], f"{whole} is not {sliced}"
    assert whole[1] or whole[0] == sliced[0]
    assert all(len(one) <= MESSAGE_MAX for one in sliced[0])


def _read(pieces: list[bytes], gzip: bool) -> tuple[list[bytes], str]:
    reader = MessageReader(MESSAGE_MAX, gzip)
    found: list[bytes] = []
    try:
        for piece in pieces:
            found += reader.feed_bytes(piece)
            assert reader.held_bytes <= MESSAGE_MAX + 5 + len(piece)
    except GrpcError as error:
        return found, error.text
    return found, ""


def grpc_answers(data: bytes) -> None:
    """Whatever bytes a server sends, each of our calls ends once, with messages or a readable
    error; little is written in response, and held memory is bounded.
    """
    if _IS_THERE:
        asyncio.run(_answered(data))


async def _answered(data: bytes) -> None:
    one = Scripted()
    asked = [one.ask(), one.ask(), one.ask()]
    streamed: list[Exception | None] = []
    await one.open_stream("/S/M", [], lambda _message: None, streamed.append)
    for _ in range(5):
        await asyncio.sleep(0)  # all have gone out
    (script,) = one.scripts
    assert len(script.client._calls) == 4
    script.say(_server_frames(data), 1 + 16 * (data[1] if len(data) > 1 else 0))
    assert len(script.out) < RESPONSE_MAX + len(data), f"{len(script.out)} for {len(data)} bytes"
    held = [call.reader.held_bytes for call in script.client._calls.values() if call.reader]
    assert sum(held) <= len(data)
    await asyncio.sleep(0)
    script.close()
    for ended in await asyncio.gather(*asked, return_exceptions=True):
        assert isinstance(ended, list | GrpcError | ConnectionClosed), repr(ended)
        assert isinstance(ended, list) or str(ended).isprintable(), repr(ended)
    assert len(streamed) == 1 and not script.client._calls


def _server_frames(data: bytes) -> bytes:
    """Bytes of a server: by the first byte any bytes, frames after SETTINGS, or responses made of
    the given header blocks and messages.
    """
    kind = data[0] % 3 if data else 0
    if kind == 0:
        return data[2:]
    if kind == 1:
        return frame(h2.SETTINGS) + data[2:]
    pieces = data[2:].split(b"\0\0\0\0")
    frames = [frame(h2.SETTINGS)]
    for at, piece in enumerate(pieces):
        stream, ends = 1 + 2 * (at // 3 % 4), at % 3 == 2
        head = h2.block(RESPONSES) if at % 3 == 0 else b""
        kind = h2.DATA if at % 3 == 1 else h2.HEADERS
        frames.append(frame(kind, stream, head + piece, h2.END_HEADERS | (1 if ends else 0)))
    return b"".join(frames)


def grpc_answer_seeds() -> Iterator[bytes]:
    """Good answers, and each kind of frame."""
    last = h2.block([(b"grpc-status", b"7"), (b"grpc-message", b"%e4x")])
    good = b"\0\0\0\0".join([b"", b"\0" + (3).to_bytes(4, "big") + b"abc", last] * 2)
    for number in range(4):
        yield bytes([2, 40 * number]) + good
    for kind in range(10):
        yield bytes([1, kind]) + frame(kind, kind % 2, bytes(8)) + h2.headers(1, RESPONSES)
    yield b"\0\0HTTP/1.1 400 Bad Request\r\n\r\n"
    yield b"\0\0\x15\x03\x01\x00\x02\x02\x46"


def http2_seeds() -> Iterator[bytes]:
    """Calls, plain ones too, and frames of each kind."""
    calls = [h2.call(1, b"x"), h2.call(1, b"x") + h2.call(3, b"y" * 300, b"/S/Keep")]
    calls.append(h2.call(1, b"2000", b"/S/Large") + frame(h2.RESET, 1, bytes(3) + b"\x08"))
    calls.append(headers(1) + frame(h2.CONTINUATION, 1, b"", 4))
    calls.append(frame(h2.SETTINGS, 0, setting(4, 100)) + h2.call(1, b"5000", b"/S/Large"))
    calls.append(headers(1) + frame(h2.DATA, 1, b"\x03abc\0\0\0", h2.PADDED | h2.END_STREAM))
    calls += [
        frame(kind, 0, bytes(8)) + frame(kind, 1, bytes(8)) + h2.call(3, b"z") for kind in range(12)
    ]
    for path, asked, cut in ((SENDS, _send(), 5), (SENDS, _send(), 40), (ACKS, _ack(), 30)):
        head = [(name, path.encode() if name == b":path" else value) for name, value in h2.REQUEST]
        body = frame_message(asked.SerializeToString())
        block = h2.headers(1, [*head, (b"x-mq-client-id", b"c")])
        calls.append(block + frame(h2.DATA, 1, body[:cut]) + frame(h2.DATA, 1, body[cut:], 1))
    for number, one in enumerate(calls):
        yield bytes([1, 16 * number & 0xFF]) + one
    for number in range(4):
        pair = h2.literal(b"grpc-timeout", b"%dm" % number, 0x40)
        yield bytes([0, number]) + h2.block() + pair + b"\0\0\0\0" + h2.block() + b"\xbe" * number


def _send() -> Any:
    """A plain SendMessage request."""
    system: dict[str, Any] = {"message_id": "m", "message_type": 1, "tag": "t", "keys": ["k"]}
    system["born_timestamp"] = {"seconds": 1_700_000_000}
    one = {"topic": {"name": "T"}, "body": b"b", "user_properties": {"u": "v"}}
    return message_class("SendMessageRequest")(messages=[{**one, "system_properties": system}])


def _ack() -> Any:
    """A plain AckMessage request."""
    entry = {"message_id": "m", "receipt_handle": "0 1700000000000 20000 1 0 b 3 7 3820"}
    return message_class("AckMessageRequest")(
        group={"name": "G"}, topic={"name": "T"}, entries=[entry]
    )


def grpc_message_seeds() -> Iterator[bytes]:
    """Messages, plain and packed."""
    packing = zlib.compressobj(wbits=31)
    packed = packing.compress(b"x" * 1_000) + packing.flush()
    for number in range(4):
        plain = b"".join(frame_message(b"m" * size) for size in range(0, 50 * number, 17))
        yield bytes([0, number]) + plain
        yield bytes([1, number]) + plain + b"\1" + len(packed).to_bytes(4, "big") + packed
