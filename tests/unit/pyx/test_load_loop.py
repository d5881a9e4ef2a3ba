"""The load generator's loop against a scripted peer at the other end of a socket pair."""

import itertools
import json
import os
import random
import select
import socket
import struct
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from turbopump.pyx.load import (
    CODE_LOST,
    CODE_MALFORMED,
    CODE_UNANSWERED,
    DONE,
    LATE,
    LOST,
    PULL,
    SEND,
    Load,
)
from turbopump.pyx.load_parts import OPAQUE_BASE

MAGIC = 0xDAA320A7
BODY = b"body"
SECOND_NS = 1_000_000_000
NEVER_NS = 15 * SECOND_NS  # a test that comes here has failed


def framed(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def answer(opaque: int, code: int = 0, next_offset: int | None = None, body: bytes = b"") -> bytes:
    fields = {} if next_offset is None else {"nextBeginOffset": str(next_offset)}
    header = {"code": code, "extFields": fields, "flag": 1, "opaque": opaque, "remark": f"r{code}"}
    return framed(json.dumps(header, separators=(",", ":")).encode(), body)


def records(count: int) -> bytes:
    head = struct.pack(">IIiiqqi", MAGIC, 0, 0, 0, 0, 0, 0)
    rest = head + struct.pack(">q8sq8siqi", 5, b"", 0, b"", 0, 0, 1) + b"x\x01T\x00\x00"
    return (struct.pack(">i", 4 + len(rest)) + rest) * count


SEND_HEADER = (
    b'{"code":310,"extFields":{"g":"1000000000000","i":"000000000000"},"opaque":1000000000}'
)
PULL_HEADER = b'{"code":11,"extFields":{"queueOffset":"0"},"opaque":1000000000}'


def row_of(texts: bytes, at: int, header: bytes) -> tuple[int, int, int, int, int, int, int, int]:
    born, serial = header.find(b"1000000000000"), header.find(b"000000000000")
    offset = header.find(b'"0"')
    places = (header.rfind(b"1000000000"), born, -8, serial if born >= 0 else -8)
    if born >= 0:
        places = (*places[:3], header.find(b'"i":"') + 5)
    offset = -8 if offset < 0 else offset + 1
    found = [0 if place < 0 else place + 8 for place in (*places, offset)]
    return (at, len(header) + 8, found[0], found[1], found[2], found[3], found[4], 0)


SEND_TEXT = framed(SEND_HEADER + b"")
SEND_TEXT = struct.pack(">i", len(SEND_TEXT) - 4 + len(BODY)) + SEND_TEXT[4:]
TEXTS = SEND_TEXT + framed(PULL_HEADER)
ROWS = [row_of(TEXTS, 0, SEND_HEADER), row_of(TEXTS, len(SEND_TEXT), PULL_HEADER)]


@dataclass
class Request:
    code: int
    opaque: int
    queue_offset: int
    number: int
    body: bytes


Script = Callable[[Request], bytes | None]


@dataclass
class Peer:
    """Answers each request with what the script says; None closes, and it is `gone`."""

    script: Script
    chunk: int = 1 << 20
    requests: list[Request] = field(default_factory=list)
    gone: threading.Event = field(default_factory=threading.Event)

    def serve(self, end: socket.socket) -> None:
        data = b""
        try:
            while received := end.recv(self.chunk):
                data += received
                while len(data) >= 4 and len(data) - 4 >= int.from_bytes(data[:4], "big"):
                    size = int.from_bytes(data[:4], "big") + 4
                    frame, data = data[:size], data[size:]
                    reply = self.script(self._request(frame))
                    if reply is None:
                        end.shutdown(socket.SHUT_RDWR)
                        self.gone.set()
                        return
                    for at in range(0, len(reply), self.chunk):
                        end.sendall(reply[at : at + self.chunk])
        except OSError:
            pass  # the load ended first

    def _request(self, frame: bytes) -> Request:
        size = int.from_bytes(frame[5:8], "big")
        header = json.loads(frame[8 : 8 + size])
        offset = int(header["extFields"].get("queueOffset", -1))
        made = Request(
            header["code"], header["opaque"], offset, len(self.requests), frame[8 + size :]
        )
        self.requests.append(made)
        return made


class Stage:
    """A load and its peers; `run` plays it to the end."""

    def __init__(self, stack: ExitStack, *, texts: bytes = TEXTS, body: bytes = BODY) -> None:
        self._stack = stack
        self._threads: list[threading.Thread] = []
        self.load = Load(texts, ROWS, body, connections=8, queues=8, rows=4)

    def pair(self, peer: Peer) -> socket.socket:
        ours, theirs = socket.socketpair()
        self._stack.enter_context(ours)
        self._stack.enter_context(theirs)
        ours.setblocking(False)
        thread = threading.Thread(target=peer.serve, args=(theirs,))
        self._threads.append(thread)
        self._stack.callback(thread.join)
        self._stack.callback(ours.close)
        return ours

    def send(self, script: Script, window: int = 1, chunk: int = 1 << 20) -> Peer:
        peer = Peer(script, chunk)
        self.load.add_sender(self.pair(peer).fileno(), window, 0, 1)
        return peer

    def pull(self, script: Script, *queues: tuple[int, int], chunk: int = 1 << 20) -> Peer:
        peer = Peer(script, chunk)
        wanted = [(1, begin, end) for begin, end in queues]
        self.load.add_puller(self.pair(peer).fileno(), wanted)
        return peer

    def run(self, **limits: int) -> int:
        self.load.set_limits(
            **{"drain_ns": NEVER_NS, "silence_ns": NEVER_NS, "duration_ns": NEVER_NS, **limits}
        )
        for thread in self._threads:
            thread.start()
        with select.epoll() as epoll:
            return self.load.run(epoll.fileno())

    def errors(self, kind: int) -> dict[int, int]:
        return {code: count for code, count, _ in self.load.figures(kind)["errors"]}


@pytest.fixture
def stage() -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(stack)


def fine(request: Request) -> bytes:
    return answer(request.opaque)


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize("window", [1, 5, 300])
def test_all_is_sent_and_answered(stage: Stage, window: int, chunk: int) -> None:
    peers = [stage.send(fine, window, chunk) for _ in range(3)]
    assert stage.run(messages=400, serial=0xA0) == DONE
    found = stage.load.figures(SEND)
    assert (found["messages"], found["all_requests"], found["errors"]) == (400, 400, [])
    assert found["bytes"] == 400 * len(BODY)
    assert sum(len(peer.requests) for peer in peers) == 400
    assert all(request.body == BODY for peer in peers for request in peer.requests)
    assert stage.load.latency(SEND, 1) > 0


@pytest.mark.parametrize("window", [1, 3, 300])
def test_bodies_of_a_corpus_go_by_turns(window: int) -> None:
    """Also those that fill the buffer for themselves, between many that are small."""
    bodies = [b"a" * 10, b"", b"b" * 300_000, b"c" * 777]
    ends = list(itertools.accumulate(map(len, bodies)))
    with ExitStack() as stack:
        stage = Stage(stack, texts=framed(SEND_HEADER) + framed(PULL_HEADER), body=b"")
        stage.load.set_corpus(b"".join(bodies), array("q", [0, *ends[:-1]]), array("q", ends))
        peer = stage.send(fine, window)
        assert stage.run(messages=40) == DONE
        found = stage.load.figures(SEND)
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
    assert stage.load.figures(SEND)["messages"] == 500
    assert {request.opaque - OPAQUE_BASE for request in peer.requests} == set(range(10))


def test_refusals_are_counted_by_code_with_their_first_text(stage: Stage) -> None:
    stage.send(lambda request: answer(request.opaque, request.number % 3))
    assert stage.run(messages=300) == DONE
    assert stage.load.figures(SEND)["errors"] == [(1, 100, b"r1"), (2, 100, b"r2")]
    assert stage.load.figures(SEND)["messages"] == 100


def test_more_codes_than_are_told_apart_are_still_counted(stage: Stage) -> None:
    stage.send(lambda request: answer(request.opaque, 100 + request.number % 40))
    assert stage.run(messages=400) == DONE
    assert sum(stage.errors(SEND).values()) == 400


def test_an_answer_to_nothing_is_dropped(stage: Stage) -> None:
    stage.send(lambda request: answer(7) + answer(OPAQUE_BASE + 9) + fine(request))
    assert stage.run(messages=5) == DONE
    assert stage.load.figures(SEND)["messages"] == 5


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
    assert stage.load.figures(SEND)["all_messages"] == 6


def test_what_is_not_answered_in_time_is_counted(stage: Stage) -> None:
    stage.send(lambda request: fine(request) if request.number < 5 else b"", 3)
    assert stage.run(messages=8, drain_ns=1) == LATE
    assert stage.errors(SEND) == {CODE_UNANSWERED: 3}


def test_a_peer_that_never_answers_ends_it(stage: Stage) -> None:
    stage.send(lambda request: fine(request) if request.number < 5 else b"", 3)
    assert stage.run(silence_ns=50_000_000) == LATE
    assert stage.load.figures(SEND)["messages"] == 5
    assert stage.errors(SEND) == {CODE_UNANSWERED: 3}


def test_a_latency_begun_in_the_warm_up_is_none(stage: Stage) -> None:
    """The first answer is held back until the warm-up is over; then it counts as a message."""

    def after_warm_up(request: Request) -> bytes:
        if request.number == 0:
            while stage.load.progress()[0] < 0.01:
                pass
        return fine(request)

    stage.send(after_warm_up)
    assert stage.run(messages=1, warmup_ns=1_000_000) == DONE
    assert stage.load.figures(SEND)["messages"] == 1
    assert stage.load.latency_max(SEND) == 0


def test_a_schedule_counts_from_when_a_request_was_due(stage: Stage) -> None:
    """No coordinated omission: one answer is late, and so are all that were due meanwhile."""

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


def backlog(end: int) -> Script:
    """A queue of `end` messages, ten a pull."""

    def script(request: Request) -> bytes:
        count = min(10, end - request.queue_offset)
        if count <= 0:
            return answer(request.opaque, 19, request.queue_offset)
        return answer(request.opaque, 0, request.queue_offset + count, records(count))

    return script


@pytest.mark.parametrize("chunk", [1, 100, 1 << 20])
def test_a_backlog_is_read_to_its_end_and_not_further(stage: Stage, chunk: int) -> None:
    one = stage.pull(backlog(1000), (0, 25), (5, 9), chunk=chunk)
    two = stage.pull(backlog(1000), (0, 10), chunk=chunk)
    assert stage.run() == DONE
    assert [request.queue_offset for request in two.requests] == [0]
    assert {request.queue_offset for request in one.requests} == {0, 10, 20, 5}
    found = stage.load.figures(PULL)
    assert (found["requests"], found["messages"]) == (5, 50)
    assert found["bytes"] == len(records(50))
    assert stage.load.unread_queues == 0


def test_a_queue_shorter_than_it_seemed_ends_where_it_ends(stage: Stage) -> None:
    stage.pull(backlog(15), (0, 1000))
    assert stage.run() == DONE
    assert (stage.load.figures(PULL)["messages"], stage.load.unread_queues) == (15, 0)


def test_a_pull_goes_on_where_the_broker_says(stage: Stage) -> None:
    """20: nothing here, go on there; 21: you are wrong, go there; 2: not now."""

    def script(request: Request) -> bytes:
        if request.queue_offset == 0:
            return answer(request.opaque, 21, 40)
        if request.queue_offset == 40:
            return answer(request.opaque, 20, 50)
        return answer(request.opaque, 2) if request.number < 5 else backlog(60)(request)

    peer = stage.pull(script, (0, 60))
    assert stage.run() == DONE
    assert [request.queue_offset for request in peer.requests] == [0, 40, 50, 50, 50, 50]
    assert stage.load.figures(PULL)["messages"] == 10
    assert stage.errors(PULL) == {2: 3}


@pytest.mark.parametrize(
    ("reply", "errors"),
    [
        ((0, 0, records(1)), {}),  # it would bring the same for ever
        ((0, None, records(1)), {}),
        ((20, 0, b""), {}),
        ((21, None, b""), {}),
        ((26, None, b""), {26: 1}),
        ((0, 1, b"no records"), {CODE_MALFORMED: 1}),
        ((0, -4, records(1)), {}),
    ],
)
def test_a_queue_that_cannot_be_read_ends(
    stage: Stage, reply: tuple[int, int | None, bytes], errors: dict[int, int]
) -> None:
    stage.pull(lambda request: answer(request.opaque, *reply), (0, 9))
    assert stage.run() == DONE
    assert (stage.load.unread_queues, stage.errors(PULL)) == (1, errors)


def test_a_follower_waits_until_all_that_was_sent_came(stage: Stage) -> None:
    sent: list[int] = []

    def send(request: Request) -> bytes:
        sent.append(request.number)
        return fine(request)

    def pull(request: Request) -> bytes:
        count = len(sent) - request.queue_offset
        code, body = (0, records(count)) if count else (19, b"")
        return answer(request.opaque, code, request.queue_offset + count, body)

    stage.send(send)
    stage.pull(pull, (0, 0))
    assert stage.run(messages=200, follow=True) == DONE
    assert stage.load.figures(SEND)["messages"] == 200
    assert stage.load.figures(PULL)["messages"] >= 200
    assert stage.load.delivery(0.5) > 0


def test_a_stop_from_another_thread_ends_it(stage: Stage) -> None:
    def until(request: Request) -> bytes:
        if request.number == 20:
            stage.load.stop()
        return fine(request)

    stage.send(until)
    assert stage.run() == DONE
    assert stage.load.figures(SEND)["messages"] >= 20
    with pytest.raises(ValueError, match="runs once"):
        stage.load.run(0)


@pytest.mark.parametrize("seed", range(30))
def test_damaged_answers_end_a_load_one_way_or_another(stage: Stage, seed: int) -> None:
    """Worth its name under the sanitizers."""
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


def reconnecting(stage: Stage, *renewals: tuple[int, Script], **limits: int) -> tuple[int, Peer]:
    """Run with reconnect; each renewal gives connection `number` a new peer once it is away."""
    peers = [Peer(script) for _, script in renewals]
    fresh = [stage.pair(peer) for peer in peers]

    def hand_over() -> None:
        for (number, _), made in zip(renewals, fresh, strict=True):
            while not stage.load.is_away(number) and stage.load.ended < 0:
                os.sched_yield()
            if stage.load.is_away(number):
                stage.load.hand_over(number, made.fileno())

    helper = threading.Thread(target=hand_over)
    helper.start()
    try:
        return stage.run(reconnect=True, **limits), peers[-1]
    finally:
        helper.join()


@pytest.mark.parametrize("interval_ns", [0, 50_000])
def test_a_lost_connection_goes_on_with_a_new_socket(stage: Stage, interval_ns: int) -> None:
    """What was in flight has failed, all else is counted once, also with a schedule."""
    stage.send(lambda request: fine(request) if request.number < 30 else None, 4)
    ended, peer = reconnecting(stage, (0, fine), messages=100, interval_ns=interval_ns)
    assert ended == DONE
    lost = stage.errors(SEND)[CODE_LOST]
    found = stage.load.figures(SEND)
    assert 1 <= lost <= 4
    assert (found["all_requests"], found["all_messages"]) == (100, 100 - lost)
    assert len(peer.requests) == 100 - 30 - lost, "what failed is not sent again"
    assert (stage.load.away, stage.load.lost_connections) == (0, 1)
    ((began_ns, resumed_ns, gap_ns, failed),) = stage.load.outages()
    assert failed == lost
    assert 0 < began_ns < resumed_ns
    assert gap_ns >= resumed_ns - began_ns


def test_a_refusal_moves_the_connection_once_it_was_served(stage: Stage) -> None:
    """14 of a broker that was the master: the connection is made anew; at the start it is not."""

    def demoted(request: Request) -> bytes:
        return answer(request.opaque, 14 if request.number in (0, 20) else 0)

    stage.send(demoted)
    ended, peer = reconnecting(stage, (0, fine), messages=50)
    assert ended == DONE
    assert stage.errors(SEND)[14] == 2
    assert len(peer.requests) == 50 - 21
    assert [outage[3] for outage in stage.load.outages()] == [2], "one outage, so near they are"


def test_pulls_go_on_where_they_were(stage: Stage) -> None:
    def some(request: Request) -> bytes:
        if request.queue_offset >= 90:
            return answer(request.opaque, 19, request.queue_offset)
        return answer(request.opaque, 0, request.queue_offset + 3, records(3))

    stage.pull(lambda request: some(request) if request.number < 10 else None, (0, 90))
    ended, peer = reconnecting(stage, (0, some))
    assert ended == DONE
    assert stage.load.figures(PULL)["all_messages"] == 90
    assert peer.requests[0].queue_offset == 30
    assert stage.load.unread_queues == 0
    assert stage.load.outages() == [], "no connection sent"


@pytest.mark.parametrize("code", [20, 21])
def test_a_new_master_that_does_not_show_all_yet_is_asked_again(stage: Stage, code: int) -> None:
    def some(request: Request) -> bytes:
        if request.number < 2:
            return answer(request.opaque, code, request.queue_offset)
        return answer(request.opaque, 0, request.queue_offset + 3, records(3))

    stage.pull(lambda request: None, (0, 9))
    assert reconnecting(stage, (0, some))[0] == DONE
    assert stage.load.figures(PULL)["all_messages"] == 9


def test_a_silent_peer_is_dropped_by_another_thread(stage: Stage) -> None:
    silent = threading.Event()

    def stops(request: Request) -> bytes:
        if request.number < 5:
            return fine(request)
        silent.set()
        return b""

    stage.send(stops, 2)
    thread = threading.Thread(target=lambda: silent.wait() and stage.load.drop(0))
    thread.start()
    ended, _ = reconnecting(stage, (0, fine), messages=20)
    thread.join()
    assert ended == DONE
    assert stage.load.figures(SEND)["all_messages"] == 20 - stage.errors(SEND)[CODE_LOST]


def test_nobody_comes_back(stage: Stage) -> None:
    stage.send(lambda request: fine(request) if request.number < 3 else None)
    assert stage.run(reconnect=True, silence_ns=SECOND_NS // 20) == LOST
    ((_, resumed_ns, gap_ns, failed),) = stage.load.outages()
    assert (resumed_ns, failed) == (-1, 1)
    assert gap_ns > SECOND_NS // 20
    with pytest.raises(ValueError, match="no connection 1"):
        stage.load.is_away(1)


def test_who_speaks_another_language_is_not_asked_again(stage: Stage) -> None:
    stage.send(lambda request: framed(b"x"))
    assert stage.run(reconnect=True, messages=5) == LOST
    assert not stage.load.is_away(0)
    with pytest.raises(ValueError, match="not away"):
        stage.load.hand_over(0, 99)
