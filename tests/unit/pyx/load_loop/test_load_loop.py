"""The load generator's loop against a scripted peer at the other end of a socket pair."""

import itertools
import random
import struct
from array import array
from contextlib import ExitStack

import pytest
from tests.unit.pyx.load_loop.stages import (
    BODY,
    NEVER_NS,
    PULL_HEADER,
    SECOND_NS,
    SEND_HEADER,
    SEND_TEXT,
    TEXTS,
    Request,
    Stage,
    answer,
    backlog,
    fine,
    framed,
)

from turbopump.pyx.load import CODE_LOST, CODE_MALFORMED, CODE_UNANSWERED, DONE, LATE, LOST, SEND
from turbopump.pyx.load_parts import OPAQUE_BASE


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize("window", [1, 5, 300])
def test_all_is_sent_and_answered(stage: Stage, window: int, chunk: int) -> None:
    peers = [stage.send(fine, window, chunk) for _ in range(3)]
    assert stage.run(messages=400, serial=0xA0) == DONE
    found = stage.load.counters(SEND)
    assert (found["messages"], found["all_requests"], found["errors"]) == (400, 400, [])
    assert found["bytes"] == 400 * len(BODY)
    assert sum(len(peer.requests) for peer in peers) == 400
    assert all(request.body == BODY for peer in peers for request in peer.requests)
    assert stage.load.latency(SEND, 1) > 0


@pytest.mark.parametrize("window", [1, 3, 300])
def test_bodies_of_a_corpus_go_by_turns(window: int) -> None:
    """The bodies include some that fill the buffer alone, between many small ones."""
    bodies = [b"a" * 10, b"", b"b" * 300_000, b"c" * 777]
    ends = list(itertools.accumulate(map(len, bodies)))
    with ExitStack() as stack:
        stage = Stage(stack, texts=framed(SEND_HEADER) + framed(PULL_HEADER), body=b"")
        stage.load.set_corpus(b"".join(bodies), array("q", [0, *ends[:-1]]), array("q", ends))
        peer = stage.send(fine, window)
        assert stage.run(messages=40) == DONE
        found = stage.load.counters(SEND)
        assert (found["messages"], found["bytes"]) == (40, 10 * sum(map(len, bodies)))
        assert [request.body for request in peer.requests] == bodies * 10


def test_a_corpus_comes_before_the_connections(stage: Stage) -> None:
    stage.send(fine)
    with pytest.raises(ValueError, match="already"):
        stage.load.set_corpus(b"x", array("q", [0]), array("q", [1]))
    stage.run(messages=1)


def test_answers_in_any_order(stage: Stage) -> None:
    held: list[int] = []

    def backwards(request: Request) -> bytes:
        held.append(request.opaque)
        if len(held) < 10:
            return b""
        reply = b"".join(map(answer, reversed(held)))
        held.clear()
        return reply

    peer = stage.send(backwards, 10)
    assert stage.run(messages=500) == DONE
    assert stage.load.counters(SEND)["messages"] == 500
    assert {request.opaque - OPAQUE_BASE for request in peer.requests} == set(range(10))


def test_refusals_are_counted_by_code_with_their_first_text(stage: Stage) -> None:
    stage.send(lambda request: answer(request.opaque, request.number % 3))
    assert stage.run(messages=300) == DONE
    assert stage.load.counters(SEND)["errors"] == [(1, 100, b"r1"), (2, 100, b"r2")]
    assert stage.load.counters(SEND)["messages"] == 100


def test_more_codes_than_are_told_apart_are_still_counted(stage: Stage) -> None:
    stage.send(lambda request: answer(request.opaque, 100 + request.number % 40))
    assert stage.run(messages=400) == DONE
    assert sum(stage.errors(SEND).values()) == 400


def test_an_answer_to_nothing_is_dropped(stage: Stage) -> None:
    stage.send(lambda request: answer(7) + answer(OPAQUE_BASE + 9) + fine(request))
    assert stage.run(messages=5) == DONE
    assert stage.load.counters(SEND)["messages"] == 5


@pytest.mark.parametrize(
    "bad",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 3),
        struct.pack(">i", 1 << 30),
        framed(b"x"),
        struct.pack(">ii", 4, 100),
    ],
)
def test_a_peer_that_speaks_another_language_is_lost(stage: Stage, bad: bytes) -> None:
    stage.send(lambda request: bad)
    assert stage.run(messages=5) == LOST
    assert stage.errors(SEND) == {CODE_MALFORMED: 1}


def test_a_peer_that_goes_away_is_lost_and_the_others_go_on(stage: Stage) -> None:
    first = stage.send(lambda request: fine(request) if request.number < 3 else None, 2)

    def fine_once_the_first_is_gone(request: Request) -> bytes:
        if request.number == 10:
            assert first.gone.wait(NEVER_NS / SECOND_NS)
        return fine(request)

    stage.send(fine_once_the_first_is_gone)
    assert stage.run(messages=100) == DONE
    assert stage.load.lost_connections == 1
    assert stage.errors(SEND)[CODE_LOST] in (1, 2)


def test_with_the_last_connection_the_load_ends(stage: Stage) -> None:
    for _ in range(2):
        stage.send(lambda request: fine(request) if request.number < 3 else None)
    assert stage.run() == LOST
    assert stage.load.counters(SEND)["all_messages"] == 6


def test_unanswered_requests_are_counted(stage: Stage) -> None:
    stage.send(lambda request: fine(request) if request.number < 5 else b"", 3)
    assert stage.run(messages=8, drain_ns=1) == LATE
    assert stage.errors(SEND) == {CODE_UNANSWERED: 3}


def test_a_peer_that_never_answers_ends_it(stage: Stage) -> None:
    stage.send(lambda request: fine(request) if request.number < 5 else b"", 3)
    assert stage.run(silence_ns=50_000_000) == LATE
    assert stage.load.counters(SEND)["messages"] == 5
    assert stage.errors(SEND) == {CODE_UNANSWERED: 3}


def test_a_latency_begun_in_the_warm_up_is_none(stage: Stage) -> None:
    """The first response is held back until the warm-up has ended; it then counts as a message."""

    def after_warm_up(request: Request) -> bytes:
        if request.number == 0:
            while stage.load.progress()[0] < 0.01:
                pass
        return fine(request)

    stage.send(after_warm_up)
    assert stage.run(messages=1, warmup_ns=1_000_000) == DONE
    assert stage.load.counters(SEND)["messages"] == 1
    assert stage.load.latency_max(SEND) == 0


def test_a_schedule_counts_from_when_a_request_was_due(stage: Stage) -> None:
    """No coordinated omission: a late response delays all requests that were due meanwhile."""

    def late_once(request: Request) -> bytes:
        if request.number == 10:
            while stage.load.progress()[0] < 0.2:
                pass
        return fine(request)

    stage.send(late_once)
    assert stage.run(messages=100, interval_ns=1_000_000) == DONE
    assert stage.load.latency(SEND, 0.5) > 100_000_000  # due at 50 ms, sent after 200 ms
    assert stage.load.measured_ns >= 200_000_000


def test_a_schedule_is_kept(stage: Stage) -> None:
    stage.send(fine, 8)
    stage.send(fine, 8)
    assert stage.run(messages=50, interval_ns=2_000_000) == DONE
    assert stage.load.measured_ns >= 49 * 2_000_000
    assert stage.load.unsent == 0


def test_a_peer_that_reads_slowly_gets_everything() -> None:
    body = bytes(range(256)) * 4000
    head = struct.pack(">i", len(SEND_HEADER) + 4 + len(body)) + SEND_TEXT[4:]
    texts = head + TEXTS[len(SEND_TEXT) :]
    with ExitStack() as stack:
        stage = Stage(stack, texts=texts, body=body)
        peer = stage.send(fine, 4, chunk=50_000)
        assert stage.run(messages=12) == DONE
    assert [request.body == body for request in peer.requests] == [True] * 12


def test_a_stop_from_another_thread_ends_it(stage: Stage) -> None:
    def until(request: Request) -> bytes:
        if request.number == 20:
            stage.load.stop()
        return fine(request)

    stage.send(until)
    assert stage.run() == DONE
    assert stage.load.counters(SEND)["messages"] >= 20
    with pytest.raises(ValueError, match="runs once"):
        stage.load.run(0)


@pytest.mark.parametrize("seed", range(30))
def test_damaged_answers_end_a_load_one_way_or_another(stage: Stage, seed: int) -> None:
    """The test is most useful with the sanitizers."""
    chosen = random.Random(seed)

    def damaged(request: Request) -> bytes:
        whole = bytearray(backlog(10_000)(request) if request.code == 11 else fine(request))
        if chosen.random() < 0.2:
            at = chosen.randrange(4 if chosen.random() < 0.8 else 0, len(whole))
            whole[at] = chosen.randrange(256)
        return bytes(whole)

    stage.send(damaged, 4)
    stage.pull(damaged, (0, 300), (0, 300))
    assert stage.run(messages=100, drain_ns=10_000_000, silence_ns=50_000_000, follow=seed % 2) in (
        DONE,
        LATE,
        LOST,
    )
