"""A load that pulls: backlogs, followers, queues that end."""

import pytest
from tests.unit.pyx.load_loop.stages import Request, Stage, answer, backlog, fine, records

from turbopump.pyx.load import CODE_MALFORMED, DONE, PULL, SEND


@pytest.mark.parametrize("chunk", [1, 100, 1 << 20])
def test_a_backlog_is_read_to_its_end_and_not_further(stage: Stage, chunk: int) -> None:
    one = stage.pull(backlog(1000), (0, 25), (5, 9), chunk=chunk)
    two = stage.pull(backlog(1000), (0, 10), chunk=chunk)
    assert stage.run() == DONE
    assert [request.queue_offset for request in two.requests] == [0]
    assert {request.queue_offset for request in one.requests} == {0, 10, 20, 5}
    found = stage.load.counters(PULL)
    assert (found["requests"], found["messages"]) == (5, 50)
    assert found["bytes"] == len(records(50))
    assert stage.load.unread_queues == 0


def test_a_queue_shorter_than_it_seemed_ends_where_it_ends(stage: Stage) -> None:
    stage.pull(backlog(15), (0, 1000))
    assert stage.run() == DONE
    assert (stage.load.counters(PULL)["messages"], stage.load.unread_queues) == (15, 0)


def test_a_pull_goes_on_where_the_broker_says(stage: Stage) -> None:
    """Code 20: no messages, continue there; 21: wrong offset, continue there; 2: not now."""

    def script(request: Request) -> bytes:
        if request.queue_offset == 0:
            return answer(request.opaque, 21, 40)
        if request.queue_offset == 40:
            return answer(request.opaque, 20, 50)
        return answer(request.opaque, 2) if request.number < 5 else backlog(60)(request)

    peer = stage.pull(script, (0, 60))
    assert stage.run() == DONE
    assert [request.queue_offset for request in peer.requests] == [0, 40, 50, 50, 50, 50]
    assert stage.load.counters(PULL)["messages"] == 10
    assert stage.errors(PULL) == {2: 3}


@pytest.mark.parametrize(
    ("reply", "errors"),
    [
        ((0, 0, records(1)), {}),  # the same offset would return the same messages forever
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
    assert stage.load.counters(SEND)["messages"] == 200
    assert stage.load.counters(PULL)["messages"] >= 200
    assert stage.load.delivery(0.5) > 0
