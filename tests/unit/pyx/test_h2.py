"""HTTP/2 of a server against allowed and forbidden frames of a client (RFC 9113)."""

import pytest
from tests.wire import h2_frames as h2
from tests.wire.h2_frames import BEGIN, REQUEST, block, frame, frames, headers, setting

from turbopump.pyx.h2 import AWAY, CLOSED, DATA, END, HEADERS, H2Session, library, pairs

try:
    library()
except OSError:
    pytest.skip("libnghttp2 is not installed", allow_module_level=True)

NO, PROTOCOL, FLOW, CLOSED_CODE, SIZE, REFUSED, COMPRESSION = 0, 1, 3, 5, 6, 7, 9
OPEN = headers(1)


def session() -> H2Session:
    return H2Session(streams=4, headers=8_192, stream_window=65_535, window=1 << 20)


def written(one: H2Session) -> bytes:
    found = b""
    while out := one.take()[0]:
        found += out
    return found


def heard(one: H2Session, data: bytes) -> list[tuple[int, int, object]]:
    found: list[tuple[int, int, object]] = []
    while data:
        taken, events = one.receive(data)
        assert taken or events
        data, found = data[taken:], [*found, *events]
    return found


def outcome(data: bytes) -> tuple[str, int]:
    """The way in which the server ends the connection ("away") or a stream ("reset")."""
    one = session()
    try:
        heard(one, data)
    except ValueError:
        return "cut", 0
    for kind, _stream, _flags, payload in frames(written(one)):
        if kind == h2.GOAWAY:
            return "away", int.from_bytes(payload[4:8], "big")
        if kind == h2.RESET:
            return "reset", int.from_bytes(payload[:4], "big")
    return "goes on", 0


def without(name: bytes) -> list[tuple[bytes, bytes]]:
    return [pair for pair in REQUEST if pair[0] != name]


RFC_9113 = [
    ("3.4 no preface", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", ("cut", 0)),
    ("3.4 no settings after it", h2.PREFACE + frame(h2.PING, 0, bytes(8)), ("away", PROTOCOL)),
    ("4.1 an unknown frame is ignored", BEGIN + frame(77, 0, b"x") + OPEN, ("goes on", 0)),
    ("4.2 a frame above 16384", BEGIN + OPEN + frame(h2.DATA, 1, bytes(16_385)), ("away", SIZE)),
    ("4.3 no HPACK", BEGIN + frame(h2.HEADERS, 1, b"\xff" * 9, 4), ("away", COMPRESSION)),
    ("5.1 DATA of an idle stream", BEGIN + frame(h2.DATA, 1, b"x"), ("away", PROTOCOL)),
    ("5.1 RST_STREAM of an idle one", BEGIN + frame(h2.RESET, 1, bytes(4)), ("away", PROTOCOL)),
    ("5.1 WINDOW of an idle one", BEGIN + frame(h2.WINDOW, 1, b"\0\0\0\1"), ("away", PROTOCOL)),
    (
        "5.1 DATA after the end",
        BEGIN + headers(1, ends=True) + frame(h2.DATA, 1, b"x"),
        ("away", CLOSED_CODE),
    ),
    ("5.1.1 an even stream", BEGIN + headers(2), ("away", PROTOCOL)),
    # The stream may have been closed just now, so its frames are ignored (5.1).
    ("5.1.1 a lower stream", BEGIN + headers(5) + headers(3), ("goes on", 0)),
    ("5.1.2 a fifth of four", BEGIN + b"".join(map(headers, (1, 3, 5, 7, 9))), ("reset", REFUSED)),
    ("6.1 DATA of stream 0", BEGIN + frame(h2.DATA, 0, b"x"), ("away", PROTOCOL)),
    ("6.1 more padding than frame", BEGIN + OPEN + frame(h2.DATA, 1, b"\x09x", 8), ("away", 1)),
    ("6.2 HEADERS of stream 0", BEGIN + headers(0), ("away", PROTOCOL)),
    ("6.4 RST_STREAM of 3 bytes", BEGIN + OPEN + frame(h2.RESET, 1, bytes(3)), ("away", SIZE)),
    ("6.5 SETTINGS of a stream", BEGIN + frame(h2.SETTINGS, 1), ("away", PROTOCOL)),
    ("6.5 an ACK that says more", BEGIN + frame(h2.SETTINGS, 0, bytes(6), 1), ("away", SIZE)),
    ("6.5 half a setting", BEGIN + frame(h2.SETTINGS, 0, bytes(5)), ("away", SIZE)),
    ("6.5.2 ENABLE_PUSH 2", BEGIN + frame(h2.SETTINGS, 0, setting(2, 2)), ("away", PROTOCOL)),
    ("6.5.2 a window of 2^31", BEGIN + frame(h2.SETTINGS, 0, setting(4, 1 << 31)), ("away", FLOW)),
    ("6.5.2 MAX_FRAME_SIZE 1", BEGIN + frame(h2.SETTINGS, 0, setting(5, 1)), ("away", PROTOCOL)),
    ("6.5.2 an unknown one", BEGIN + frame(h2.SETTINGS, 0, setting(999, 1)) + OPEN, ("goes on", 0)),
    ("6.6 PUSH_PROMISE of a client", BEGIN + frame(h2.PUSH, 1, bytes(4), 4), ("away", PROTOCOL)),
    ("6.7 PING of a stream", BEGIN + frame(h2.PING, 1, bytes(8)), ("away", PROTOCOL)),
    ("6.7 PING of 7 bytes", BEGIN + frame(h2.PING, 0, bytes(7)), ("away", SIZE)),
    ("6.8 GOAWAY of a stream", BEGIN + frame(h2.GOAWAY, 1, bytes(8)), ("away", PROTOCOL)),
    ("6.9 WINDOW_UPDATE 0", BEGIN + frame(h2.WINDOW, 0, bytes(4)), ("away", PROTOCOL)),
    ("6.9.1 2^31", BEGIN + frame(h2.WINDOW, 0, b"\x7f\xff\xff\xff"), ("away", FLOW)),
    ("6.10 CONTINUATION of nothing", BEGIN + frame(h2.CONTINUATION, 1, b"", 4), ("away", PROTOCOL)),
    (
        "6.10 a frame within a block",
        BEGIN + frame(h2.HEADERS, 1, block()) + frame(h2.PING, 0, bytes(8)),
        ("away", PROTOCOL),
    ),
    ("8.1.1 fewer bytes than content-length", b"", ("reset", PROTOCOL)),
    ("8.2.1 a capital letter", BEGIN + headers(1, [*REQUEST, (b"Ab", b"")]), ("reset", PROTOCOL)),
    ("8.2.2 connection", BEGIN + headers(1, [*REQUEST, (b"connection", b"")]), ("reset", PROTOCOL)),
    ("8.2.2 te of another kind", BEGIN + headers(1, [*REQUEST, (b"te", b"x")]), ("reset", 1)),
    ("8.3 none of :path", BEGIN + headers(1, without(b":path")), ("reset", PROTOCOL)),
    ("8.3 twice :path", BEGIN + headers(1, [(b":path", b"/"), *REQUEST]), ("reset", PROTOCOL)),
    ("8.3 :path after others", BEGIN + headers(1, REQUEST[::-1]), ("reset", PROTOCOL)),
    ("8.3 an unknown one", BEGIN + headers(1, [(b":x", b"/"), *REQUEST]), ("reset", PROTOCOL)),
]
_SHORT = headers(1, [*REQUEST, (b"content-length", b"9")]) + frame(h2.DATA, 1, b"x", h2.END_STREAM)


@pytest.mark.parametrize(("name", "data", "expected"), RFC_9113, ids=[one[0] for one in RFC_9113])
def test_violations_of_rfc_9113_end_a_stream_or_the_connection(
    name: str, data: bytes, expected: tuple[str, int]
) -> None:
    assert outcome(data or BEGIN + _SHORT) == expected


@pytest.mark.parametrize("slice_", [1, 7, 100_000])
def test_a_call_comes_as_events_however_it_is_cut(slice_: int) -> None:
    one = session()
    data = BEGIN + headers(1) + frame(h2.DATA, 1, b"abc") + frame(h2.DATA, 1, b"", h2.END_STREAM)
    found = [
        event for at in range(0, len(data), slice_) for event in heard(one, data[at:][:slice_])
    ]
    assert found[0] == (HEADERS, 1, list(REQUEST))
    assert b"".join(what for kind, _, what in found if kind == DATA) == b"abc"  # type: ignore[misc]
    assert found[-1] == (END, 1, None)


@pytest.mark.parametrize("size", [16_000, 48_000, 65_000, 65_280, 65_300, 65_450, 131_000])
def test_a_read_that_fills_the_room_ends_the_frames_in_it(size: int) -> None:
    """The library pauses after the last byte of a frame, and must be called again to end it."""
    one = H2Session(streams=4, headers=8_192, stream_window=1 << 20, window=1 << 20)
    written(one)
    heard(one, BEGIN + frame(h2.SETTINGS, 0, b"", h2.ACK) + OPEN)
    parts = [frame(h2.DATA, 1, bytes(16_384)) for _ in range(size // 16_384)]
    found = heard(one, b"".join(parts) + frame(h2.DATA, 1, bytes(size % 16_384), h2.END_STREAM))
    assert sum(len(what) for kind, _, what in found if isinstance(what, bytes)) == size
    assert [kind for kind, _, _ in found if kind != DATA] == [END]


@pytest.mark.parametrize("count", [9, 18, 20, 21, 22, 23, 40])
def test_headers_that_fill_the_room_are_complete(count: int) -> None:
    """A repeated header of 3 KB takes one byte in the frame."""
    one = H2Session(streams=100, headers=8_192, stream_window=1 << 20, window=1 << 20)
    known = h2.literal(b"a", b"x" * 3_000, 0x40)
    first = frame(h2.HEADERS, 1, block() + known, h2.END_HEADERS | h2.END_STREAM)
    heard(one, BEGIN + first)
    again = [
        frame(h2.HEADERS, stream, block() + bytes((0x80 | 62,)), h2.END_HEADERS | h2.END_STREAM)
        for stream in range(3, 2 * count + 3, 2)
    ]
    found = heard(one, b"".join(again))
    assert [kind for kind, _, _ in found] == [HEADERS, END] * count


def test_an_answer_is_written_as_its_window_allows_and_ends_with_trailers() -> None:
    one = session()
    heard(one, h2.PREFACE + frame(h2.SETTINGS, 0, setting(4, 10)) + headers(1, ends=True))
    one.answer(1, pairs([(b":status", b"200")]), b"a" * 15, b"")
    one.more(1, b"b" * 5, pairs([(b"grpc-status", b"0")]))
    first = [payload for kind, _, _, payload in frames(written(one)) if kind == h2.DATA]
    assert (first, one.unsent) == ([b"a" * 10], 10)
    heard(one, frame(h2.WINDOW, 1, (100).to_bytes(4, "big")))
    data, events = one.take()
    rest = [*frames(data)]
    assert b"".join(payload for kind, _, _, payload in rest if kind == h2.DATA) == b"aaaaabbbbb"
    assert rest[-1][0] == h2.HEADERS and rest[-1][2] & h2.END_STREAM
    assert (one.unsent, events) == (0, [(CLOSED, 1, NO)])


def test_a_stream_that_was_reset_takes_no_answer_and_keeps_none() -> None:
    one = session()
    heard(one, BEGIN + headers(1, ends=True))
    one.answer(1, pairs([(b":status", b"200")]), b"x" * 100_000, b"")
    written(one)
    assert one.unsent == 100_000 - 65_535
    assert heard(one, frame(h2.RESET, 1, (8).to_bytes(4, "big"))) == [(CLOSED, 1, 8)]
    assert one.unsent == 0
    one.more(1, b"more", b"")
    one.answer(1, pairs([(b":status", b"200")]), b"x", b"")
    assert (one.unsent, written(one)) == (0, b"")


def test_headers_beyond_the_limit_are_counted_and_not_kept() -> None:
    one = session()
    big = b"".join(h2.literal(b"k%d" % number, b"v" * 1_000) for number in range(15))
    heard(one, BEGIN)
    assert heard(one, frame(h2.HEADERS, 1, block() + big, 4)) == [(HEADERS, 1, None)]
    # 100 MB of headers, each from a single byte that names a remembered header.
    named = h2.literal(b"k", b"v" * 4_000, 0x40) + b"\xbe" * 12_000
    found = []
    for stream in (3, 5):
        found += heard(one, frame(h2.HEADERS, stream, block() + named, 4))
    assert [event for event in found if event[0] == HEADERS and event[2] is not None] == []


def test_a_block_that_does_not_end_ends_the_connection() -> None:
    one = session()
    heard(one, BEGIN + frame(h2.HEADERS, 1, block()))
    with pytest.raises(ValueError, match="HTTP/2"):
        for _ in range(20):
            heard(one, frame(h2.CONTINUATION, 1))


def test_settings_and_pings_are_answered_and_our_own_are_known() -> None:
    one = session()
    heard(one, BEGIN + frame(h2.PING, 0, b"12345678"))
    responses = [(kind, flags, payload) for kind, _, flags, payload in frames(written(one))]
    assert (h2.SETTINGS, h2.ACK, b"") in responses
    assert (h2.PING, h2.ACK, b"12345678") in responses
    one.ping()
    assert [kind for kind, *_ in frames(written(one))] == [h2.PING]
    assert heard(one, frame(h2.PING, 0, bytes(8), h2.ACK))[0][0] == 6


def test_open_streams_continue_after_a_shutdown() -> None:
    one = session()
    heard(one, BEGIN + headers(1, ends=True))
    one.shutdown()
    assert [kind for kind, *_ in frames(written(one))].count(h2.GOAWAY) == 1
    one.answer(1, pairs([(b":status", b"200")]), None, b"")
    assert [kind for kind, *_ in frames(written(one))] == [h2.HEADERS]
    assert not one.is_finished
    one.terminate(0)
    written(one)
    assert one.is_finished


def test_a_library_that_is_not_there_is_named() -> None:
    with pytest.raises(OSError, match=r"libno\.so"):
        library("libno.so")
    with pytest.raises(OSError, match="libc"):
        library("libc.so.6")


def test_pairs_that_do_not_fit_are_refused() -> None:
    for bad in ([(b"n" * 256, b"")], [(b"n", b"v" * 65_536)], [(b"n", b"v")] * 17):
        with pytest.raises(ValueError, match="header"):
            pairs(bad)


ASKED = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/S/M"),
    (b":authority", b"a"),
]


def talk(client: H2Session, server: H2Session) -> tuple[list[object], list[object]]:
    """Exchange bytes until both sides are idle; returns the events at the client and at the
    server."""
    at_client, at_server = list[object](), list[object]()
    for _ in range(100):
        asked, answered = written(client), written(server)
        at_server += heard(server, asked)
        at_client += heard(client, answered)
        if not asked and not answered:
            break
    return at_client, at_server


def test_a_client_asks_a_server_with_small_and_large_bodies() -> None:
    server = H2Session(streams=4, headers=8_192, stream_window=65_535, window=1 << 20)
    client = H2Session(4, 8_192, 65_535, 1 << 20, client=True)
    head = pairs(ASKED)
    for number, body in enumerate((b"", b"x", bytes(200_000))):
        stream_id = client.request(head, body, True)
        assert stream_id == 2 * number + 1
        _, at_server = talk(client, server)
        assert b"".join(data for kind, _, data in at_server if kind == DATA) == body  # type: ignore[misc]
        assert (END, stream_id, None) in at_server
        assert client.unsent == 0
        response = pairs([(b":status", b"200")])
        server.answer(stream_id, response, body[::-1], pairs([(b"grpc-status", b"0")]))
        at_client, _ = talk(client, server)
        blocks = [what for kind, _, what in at_client if kind == HEADERS]  # type: ignore[misc]
        assert blocks == [[(b":status", b"200")], [(b"grpc-status", b"0")]]
        assert sum(len(data) for kind, _, data in at_client if kind == DATA) == len(body)  # type: ignore[misc]
        assert (CLOSED, stream_id, NO) in at_client


def test_a_clients_stream_goes_on_until_it_is_ended() -> None:
    server = session()
    client = H2Session(4, 8_192, 65_535, 1 << 20, client=True)
    head = pairs(ASKED)
    stream_id = client.request(head, b"", False)
    assert [kind for kind, *_ in talk(client, server)[1]] == [HEADERS]  # type: ignore[misc]
    client.more(stream_id, b"a", b"")
    assert (DATA, stream_id, b"a") in talk(client, server)[1]
    client.more(stream_id, b"", b"", True)
    assert (END, stream_id, None) in talk(client, server)[1]
    server.terminate(0)
    assert AWAY in [kind for kind, *_ in talk(client, server)[0]]  # type: ignore[misc]
