"""The responses to a peer of a gRPC connection, and the limits of the memory that it can occupy."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.net.grpc.conftest import Bench, Wire, hear
from tests.wire import h2_frames as h2
from tests.wire.h2_frames import call, frame, frames, headers, setting

from turbopump.net.grpc.call import GrpcCall
from turbopump.net.grpc.connection import DRAIN_MAX, GrpcConnection
from turbopump.net.grpc.framing import frame_message

Make = Callable[..., Bench]


def ends(wire: Wire) -> dict[int, bytes]:
    """Trailers by stream, as far as they are plain text."""
    return {
        stream: payload
        for kind, stream, flags, payload in frames(wire.out)
        if kind == h2.HEADERS and flags & h2.END_STREAM
    }


def body(wire: Wire, stream: int) -> bytes:
    return b"".join(
        payload for kind, one, _, payload in frames(wire.out) if (kind, one) == (h2.DATA, stream)
    )


def away(wire: Wire) -> list[int]:
    return [
        int.from_bytes(payload[4:8], "big")
        for kind, _, _, payload in frames(wire.out)
        if kind == h2.GOAWAY
    ]


def test_requests_of_one_read_are_answered_by_one_write(bench: Make) -> None:
    one, wire = bench().connect()
    hear(one, b"".join(call(stream, b"m%d" % stream) for stream in range(1, 21, 2)))
    assert [body(wire, stream) for stream in (1, 19)] == [
        frame_message(b"m1"),
        frame_message(b"m19"),
    ]
    assert (len(ends(wire)), wire.writes) == (10, 1)


def test_answers_of_one_turn_that_come_later_are_one_write(bench: Make) -> None:
    made = bench()
    one, wire = made.connect()
    hear(one, call(1, path=b"/S/Keep") + call(3, path=b"/S/Keep"))
    writes = wire.writes
    for kept in made.kept:
        kept.answer_with(b"later")
    assert wire.writes == writes
    made.loop.run()
    assert (wire.writes - writes, body(wire, 1), body(wire, 3)) == (
        1,
        *[frame_message(b"later")] * 2,
    )
    assert made.hub.calls == 0


def test_many_calls_of_one_read_take_turns(bench: Make) -> None:
    made = bench()
    one, wire = made.connect()
    hear(one, b"".join(call(stream, b"x") for stream in range(1, 201, 2)))
    assert 0 < len(ends(wire)) < 100
    for _ in range(10):
        made.loop.run()
    assert len(ends(wire)) == 100


def test_messages_of_a_stream_take_turns_in_their_order(bench: Make) -> None:
    made = bench()
    came: list[int] = []

    def talk(call: GrpcCall) -> None:
        call.on_message = lambda message: came.append(int(message))
        call.on_end = call.answer_with

    made.hub.methods = {**made.hub.methods, "/S/Echo": talk}
    (one, wire), (other, _) = made.connect(), made.connect()
    sent = [b"%d" % number for number in range(1_000)]
    begun, rest = headers(1), b"".join(map(frame_message, sent))
    hear(one, begun + frame(h2.DATA, 1, rest[:4_000]) + frame(h2.DATA, 1, rest[4_000:], 1))
    assert (len(came) < 100, wire.reads) == (True, False)
    hear(other, call(1, b"quick", b"/S/Keep"))
    made.loop.run()
    made.loop.run()
    assert len(made.kept) == 1
    turns = 2
    while not ends(wire):
        assert wire.reads == (len(came) == 1_000)
        made.loop.run()
        turns += 1
    assert (came, wire.reads, turns > 10) == ([*range(1_000)], True, True)


def test_a_deadline_ends_a_call_for_both_sides(bench: Make) -> None:
    made = bench()
    one, wire = made.connect()
    pairs = [(b":path", b"/S/Keep") if pair[0] == b":path" else pair for pair in h2.REQUEST]
    late = headers(1, [*pairs, (b"grpc-timeout", b"250m")])
    hear(one, late + frame(h2.DATA, 1, frame_message(b""), h2.END_STREAM))
    made.loop.wait(0.2)
    assert (made.over, ends(wire)) == ([], {})
    made.loop.wait(0.1)
    assert made.over == [1]
    assert (list(ends(wire)), made.hub.calls) == ([1], 0)


def test_a_peer_that_cancels_or_goes_ends_its_calls(bench: Make) -> None:
    made = bench()
    one, _ = made.connect()
    hear(one, call(1, path=b"/S/Keep") + call(3, path=b"/S/Keep"))
    hear(one, frame(h2.RESET, 1, (8).to_bytes(4, "big")))
    assert (made.over, made.hub.calls) == ([1], 1)
    one.connection_lost(None)
    assert (made.over, made.hub.calls, made.hub.connections) == ([1, 3], 0, set())
    made.kept[1].answer_with(b"too late")
    made.loop.run()


def test_streams_that_are_reset_again_and_again_end_the_connection(bench: Make) -> None:
    made = bench(breaks_burst=50, breaks_per_s=10)
    one, wire = made.connect()
    reset = (8).to_bytes(4, "big")
    streams = iter(range(1, 10_000, 2))

    def attack(count: int) -> None:
        for _, stream in zip(range(count), streams, strict=False):
            hear(one, headers(stream) + frame(h2.RESET, stream, reset))

    attack(50)
    made.loop.now += 2
    attack(20)
    assert (wire.closed, away(wire)) == ("", [])
    attack(2)
    assert (wire.closed, away(wire)) == ("close", [11])
    calls = made.hub.calls
    hear(one, call(9_999))
    assert made.hub.calls == calls


@pytest.mark.parametrize("flood", [frame(h2.PING, 0, bytes(8)), frame(h2.SETTINGS)])
def test_pings_and_settings_are_answered_while_they_are_read(bench: Make, flood: bytes) -> None:
    made = bench()
    one, wire = made.connect()
    for _ in range(20):
        hear(one, flood * 500)
    assert (sum(1 for _ in frames(wire.out)), wire.closed) == (10_000, "")
    wire.full = True
    hear(one, flood * 500)
    hear(one, flood * 400)  # data that was read while the socket became full
    assert (wire.reads, wire.closed) == (False, "")
    other, good = made.connect()
    hear(other, call(1, b"good"))
    assert body(good, 1) == frame_message(b"good")


@pytest.mark.parametrize("flood", [frame(h2.PING, 0, bytes(8)), frame(h2.SETTINGS)])
def test_a_read_full_of_pings_or_settings_ends_the_connection(bench: Make, flood: bytes) -> None:
    one, wire = bench().connect()
    hear(one, flood * 3_000)
    assert wire.closed == "eof"
    assert len(wire.out) < 3_000 * len(flood)


def test_a_window_beyond_its_limit_ends_the_stream_or_the_connection(bench: Make) -> None:
    made = bench()
    one, wire = made.connect()
    most = (0x7FFFFFFF).to_bytes(4, "big")
    hear(one, headers(1) + frame(h2.WINDOW, 1, most) + call(3, b"good"))
    assert body(wire, 3) == frame_message(b"good")
    assert (h2.RESET, 1) in [(kind, stream) for kind, stream, *_ in frames(wire.out)]
    assert made.hub.calls == 0
    hear(one, frame(h2.WINDOW, 0, most))
    assert (away(wire), wire.closed) == ([3], "eof")


def test_a_peer_that_was_told_all_closes_first(bench: Make) -> None:
    """Closing a socket with unread bytes would reset the connection, and the peer would lose unread
    responses."""
    made = bench()
    one, wire = made.connect()
    hear(one, call(1, b"good") + frame(h2.GOAWAY, 0, bytes(8)))
    assert (body(wire, 1), wire.closed) == (frame_message(b"good"), "eof")
    hear(one, frame(h2.PING, 0, bytes(8)) * 1_000)
    written = len(wire.out)
    hear(one, bytes(DRAIN_MAX - 17_001))
    assert (len(wire.out), wire.closed) == (written, "eof")
    hear(one, bytes(1))
    assert wire.closed == "abort"


def test_a_stop_waits_for_no_peer_that_is_to_close(bench: Make) -> None:
    one, wire = bench().connect()
    hear(one, frame(h2.GOAWAY, 0, bytes(8)))
    assert wire.closed == "eof"
    one.close()
    assert wire.closed == "close"


def test_a_peer_that_does_not_close_is_reset(bench: Make) -> None:
    made = bench()
    made.hub.start_sweeping()
    one, wire = made.connect()
    hear(one, call(1, path=b"/S/Keep"))
    hear(one, frame(h2.WINDOW, 0, (0x7FFFFFFF).to_bytes(4, "big")))
    assert (made.hub.calls, made.over, wire.closed) == (0, [1], "eof")
    made.loop.wait(32)
    assert wire.closed == "abort"


def test_metadata_beyond_the_limit_is_refused_and_the_connection_goes_on(bench: Make) -> None:
    one, wire = bench().connect()
    hear(one, headers(1, [*h2.REQUEST, (b"k", b"v" * 9_000)], ends=True) + call(3, b"good"))
    assert (body(wire, 1), body(wire, 3)) == (b"", frame_message(b"good"))
    assert 1 in ends(wire)


def test_half_messages_of_all_peers_are_bounded_and_do_not_last(bench: Make) -> None:
    made = bench(held_max=100_000, message_timeout_ms=30_000, sweep_ms=1_000)
    one, wire = made.connect()
    made.hub.start_sweeping()
    part = (1 << 20).to_bytes(4, "big")
    for stream in (1, 3, 5):
        hear(one, headers(stream) + frame(h2.DATA, stream, b"\0" + part))
        for _ in range(3):
            hear(one, frame(h2.DATA, stream, bytes(16_000)))
    assert made.hub.held <= 100_000
    assert list(ends(wire)) == [5]
    made.loop.wait(32)
    assert (made.hub.held, made.hub.calls) == (0, 0)
    assert list(ends(wire)) == [5, 1, 3]


def test_a_peer_that_takes_nothing_is_refused_and_then_cut(bench: Make) -> None:
    made = bench(unsent_max=300_000, stall_timeout_ms=60_000)
    one, wire = made.connect(h2.PREFACE + frame(h2.SETTINGS, 0, setting(4, 0)))
    made.hub.start_sweeping()
    hear(one, call(1, b"200000", b"/S/Large") + call(3, b"200000", b"/S/Large"))
    hear(one, call(5, b"200000", b"/S/Large"))
    made.loop.run()
    assert one.unsent == made.hub.unsent == 2 * 200_005
    assert list(ends(wire)) == [5]
    made.loop.wait(62)
    assert wire.closed == "abort"
    one.connection_lost(None)
    assert made.hub.unsent == 0


def test_a_stream_that_asks_and_takes_nothing_is_ended(bench: Make) -> None:
    made = bench(unsent_max=300_000)

    def talk(call: GrpcCall) -> None:
        call.on_message = lambda _message: call.send(bytes(100_000))

    made.hub.methods = {"/S/Echo": talk}
    one, wire = made.connect(h2.PREFACE + frame(h2.SETTINGS, 0, setting(4, 0)))
    asked = frame_message(b"") * 1_000
    hear(one, headers(1) + frame(h2.DATA, 1, asked))
    assert one.unsent < 500_000
    assert (made.hub.calls, wire.closed) == (0, "")


def test_all_peers_that_take_nothing_are_bounded_together(bench: Make) -> None:
    made = bench(unsent_total_max=3_000_000)
    made.hub.start_sweeping()
    slow = [made.connect(h2.PREFACE + frame(h2.SETTINGS, 0, setting(4, 0))) for _ in range(3)]
    for one, _ in slow:
        hear(one, call(1, b"1500000", b"/S/Large"))
    assert made.hub.is_full
    hear(slow[0][0], call(3, b"1", b"/S/Large"))
    assert list(ends(slow[0][1])) == [3]
    good, wire = made.connect()
    hear(good, call(1, b"good"))
    assert body(wire, 1) == frame_message(b"good")
    made.loop.wait(1.5)
    assert [wire.closed for _, wire in slow].count("abort") == 1


def test_a_full_socket_stops_reading_and_writing(bench: Make) -> None:
    made = bench()
    one, wire = made.connect()
    wire.full = True
    hear(one, frame(h2.WINDOW, 0, (1 << 30).to_bytes(4, "big")))
    hear(one, frame(h2.SETTINGS, 0, setting(4, 1 << 30)) + call(1, b"4000000", b"/S/Large"))
    assert (wire.reads, wire.writes) == (False, 1)
    while not wire.reads:
        wire.full = wire.writes < 5
        one.resume_writing()
    made.loop.run()
    assert len(body(wire, 1)) == 4_000_005


def test_a_silent_peer_is_asked_and_a_dead_one_is_closed(bench: Make) -> None:
    made = bench()
    made.hub.start_sweeping()
    one, wire = made.connect()
    hear(one, call(1, path=b"/S/Keep"))
    made.loop.wait(63)
    assert [kind for kind, *_ in frames(wire.out)].count(h2.PING) == 1
    hear(one, frame(h2.PING, 0, bytes(8), h2.ACK))
    made.loop.wait(50)
    assert wire.closed == ""
    made.loop.wait(50)
    assert (wire.closed, made.over) == ("abort", [])
    one.connection_lost(None)
    assert made.over == [1]


def test_a_connection_without_calls_is_closed_after_its_time(bench: Make) -> None:
    made = bench()
    made.hub.start_sweeping()
    one, wire = made.connect()
    for _ in range(5):
        made.loop.wait(25)
        hear(one, frame(h2.PING, 0, bytes(8)))
    assert (wire.closed, away(wire)) == ("close", [0])


def test_connections_beyond_the_limit_are_closed_at_once(bench: Make) -> None:
    made = bench(connections_max=1)
    made.connect()
    assert made.connect()[1].closed == "abort"


def test_a_request_other_than_grpc_is_answered_and_costs_nothing_else(bench: Make) -> None:
    one, wire = bench().connect()
    plain = [pair for pair in h2.REQUEST if pair[0] != b"content-type"]
    hear(one, headers(1, plain, ends=True) + call(3, path=b"/S/Nothing"))
    for stream, change in ((5, (b"grpc-timeout", b"soon")), (7, (b"grpc-encoding", b"br"))):
        hear(one, headers(stream, [*h2.REQUEST, change], ends=True))
    assert list(ends(wire)) == [1, 3, 5, 7]
    hear(one, call(9, b"still"))
    assert body(wire, 9) == frame_message(b"still")


def test_a_stopping_server_takes_no_new_calls_and_ends_the_old(bench: Make) -> None:
    made = bench()
    one, wire = made.connect()
    hear(one, call(1, path=b"/S/Keep"))
    made.hub.stopping = True
    one.go_away()
    hear(one, call(3, b"new"))
    assert list(ends(wire)) == [3]
    one.close()
    assert (list(ends(wire)), made.over, wire.closed) == ([3, 1], [1], "close")
    assert away(wire)[-1] == 0


def test_a_call_is_ended_once(bench: Make) -> None:
    made = bench()
    one, wire = made.connect()
    hear(one, call(1, path=b"/S/Keep"))
    kept: Any = made.kept[0]
    assert isinstance(kept, GrpcCall) and isinstance(one, GrpcConnection)
    kept.send(b"a")
    kept.answer_with(b"b")
    kept.answer_with(b"c")
    kept.send(b"d")
    made.loop.run()
    assert (body(wire, 1), made.over) == (frame_message(b"a") + frame_message(b"b"), [1])
