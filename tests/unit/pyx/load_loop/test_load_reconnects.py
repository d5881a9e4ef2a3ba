"""A load that loses its connections and reconnects."""

import os
import threading

import pytest
from tests.unit.pyx.load_loop.stages import (
    SECOND_NS,
    Peer,
    Request,
    Script,
    Stage,
    answer,
    fine,
    framed,
    records,
)

from turbopump.pyx.load import CODE_LOST, DONE, LOST, PULL, SEND


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
    """Requests in flight failed, all others are counted once, also with a schedule."""
    stage.send(lambda request: fine(request) if request.number < 30 else None, 4)
    ended, peer = reconnecting(stage, (0, fine), messages=100, interval_ns=interval_ns)
    assert ended == DONE
    lost = stage.errors(SEND)[CODE_LOST]
    found = stage.load.counters(SEND)
    assert 1 <= lost <= 4
    assert (found["all_requests"], found["all_messages"]) == (100, 100 - lost)
    assert len(peer.requests) == 100 - 30 - lost, "failed messages are not sent again"
    assert (stage.load.away, stage.load.lost_connections) == (0, 1)
    ((began_ns, resumed_ns, gap_ns, failed),) = stage.load.outages()
    assert failed == lost
    assert 0 < began_ns < resumed_ns
    assert gap_ns >= resumed_ns - began_ns


def test_a_refusal_moves_the_connection_once_it_was_served(stage: Stage) -> None:
    """Code 14 comes from a broker that was the master: the load reconnects, except at the start."""

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
    assert stage.load.counters(PULL)["all_messages"] == 90
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
    assert stage.load.counters(PULL)["all_messages"] == 9


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
    assert stage.load.counters(SEND)["all_messages"] == 20 - stage.errors(SEND)[CODE_LOST]


def test_no_connection_comes_back(stage: Stage) -> None:
    stage.send(lambda request: fine(request) if request.number < 3 else None)
    assert stage.run(reconnect=True, silence_ns=SECOND_NS // 20) == LOST
    ((_, resumed_ns, gap_ns, failed),) = stage.load.outages()
    assert (resumed_ns, failed) == (-1, 1)
    assert gap_ns > SECOND_NS // 20
    with pytest.raises(ValueError, match="no connection 1"):
        stage.load.is_away(1)


def test_a_server_that_speaks_another_language_is_not_asked_again(stage: Stage) -> None:
    stage.send(lambda request: framed(b"x"))
    assert stage.run(reconnect=True, messages=5) == LOST
    assert not stage.load.is_away(0)
    with pytest.raises(ValueError, match="not away"):
        stage.load.hand_over(0, 99)
