"""Pulls, pops and notifications that wait are answered on arrival, whatever the queue's file."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.handlers.test_pull import answered, bodies, hold, send

from turbopump.engine.deferred import Deferred
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.pop import (
    NotificationRequest,
    NotificationResponse,
    PopMessageRequest,
)
from turbopump.net.wire.topics import TopicConfig
from turbopump.pyx.index import java_hash

NEGATIVE = "hoOOLdKL"
KINDS = ["plain", "extended", "batch"]


@pytest.fixture(params=KINDS)
def kind(request: Any, make_world: Callable[..., Any]) -> Any:
    """A broker whose topic T has a certain kind of queue files."""
    lines = "enableConsumeQueueExt=true\n" if request.param == "extended" else ""
    world = make_world(lines)
    attributes = {"queue.type": "BatchCQ"} if request.param == "batch" else {}
    world.broker.topics.put(TopicConfig("T", attributes=attributes), world.now_ms)
    return world


@pytest.mark.parametrize("tag", ["red", NEGATIVE])
def test_a_pull_that_waits_gets_the_message_at_once(kind: Any, tag: str) -> None:
    assert java_hash(NEGATIVE.encode()) < 0
    held = hold(kind, subscription=tag)
    send(kind, b"other", "another")
    kind.broker.held_pulls.attempt_grown()
    assert not held.done
    send(kind, b"wanted", tag)
    kind.broker.held_pulls.attempt_grown()
    assert bodies(answered(held)) == [b"wanted"]


@pytest.mark.parametrize("tag", ["red", NEGATIVE])
def test_a_pop_that_waits_gets_the_message_at_once(kind: Any, tag: str) -> None:
    request = PopMessageRequest(
        "G", "T", -1, 32, 60_000, 15_000, kind.now_ms, 1, exp_type="TAG", exp=tag
    )
    held = kind.dispatch(new_request(RequestCode.POP_MESSAGE, request))
    assert isinstance(held, Deferred)
    assert not held.done
    send(kind, b"wanted", tag)
    kind.broker.pop.waiters.wake_waiters()
    assert held.done
    assert held.value is not None
    assert b"wanted" in b"".join(held.value.body)


def test_a_notification_answers_that_there_is_a_message(kind: Any) -> None:
    request = NotificationRequest("G", "T", -1, 15_000, kind.now_ms)
    held = kind.dispatch(new_request(RequestCode.NOTIFICATION, request))
    assert isinstance(held, Deferred)
    assert not held.done
    send(kind, b"wanted", NEGATIVE)
    kind.broker.pop.waiters.wake_waiters()
    assert held.done
    assert held.value is not None
    assert read_header(NotificationResponse, held.value.fields).has_msg
