"""Offsets of groups and queues: 22 or 0, resets, unknown names, times."""

from typing import Any

import pytest

from turbopump.broker.handlers.offsets import GO_RESPONSE_DELAY_MS
from turbopump.engine.types import QueueOffset
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import ONEWAY_FLAG, new_request
from turbopump.net.wire.headers.clients import ResetOffsetRequest
from turbopump.net.wire.headers.offsets import (
    GetEarliestMsgStoretimeRequest,
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    QueryConsumerOffsetRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from turbopump.net.wire.headers.send import SendMessageRequestV2
from turbopump.net.wire.topics import TopicConfig

NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


def send(world: Any, count: int = 1) -> None:
    """Send messages to queue 0 of T, 100 ms apart."""
    for _ in range(count):
        header = SendMessageRequestV2("PG", "T", "TBW102", 4, 0, 0, 1, 0)
        assert world.ask(RequestCode.SEND_MESSAGE_V2, header, b"x").code == 0
        world.now_ms += 100


def query(world: Any, zero: bool | None = None) -> tuple[int, str | None, str | None]:
    """Code, offset and remark of 14."""
    header = QueryConsumerOffsetRequest("G", "T", 0, zero)
    response = world.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
    return response.code, response.fields.get("offset"), response.remark


def update(world: Any, queue_id: int | None = 0, commit: int | None = 7) -> tuple[int, str | None]:
    """Code and remark of 15."""
    header = UpdateConsumerOffsetRequest("G", "T", queue_id, commit)
    response = world.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    return response.code, response.remark


def test_unknown_offset_of_an_empty_queue(world: Any) -> None:
    assert query(world) == (22, None, NOT_FOUND)


def test_new_group_of_a_young_topic_starts_at_its_begin(world: Any) -> None:
    send(world)
    assert query(world) == (0, "0", None)
    assert query(world, True) == (0, "0", None)
    code, offset, remark = query(world, False)
    assert (code, offset) == (22, None)
    assert "do not set to zero" in (remark or "")


def test_committed_offset(world: Any) -> None:
    send(world)
    world.broker.groups.find_or_create("G", world.now_ms)
    assert update(world) == (0, None)
    assert query(world) == (0, "7", None)
    assert update(world, commit=3) == (0, None)
    assert query(world) == (0, "3", None)


def test_commit_is_checked(world: Any) -> None:
    assert update(world) == (26, "Group G not exist!")
    world.broker.groups.find_or_create("G", world.now_ms)
    assert update(world) == (17, "Topic T not exist!")
    send(world)
    assert update(world, queue_id=None) == (29, "QueueId is null, topic is T")
    assert update(world, commit=None) == (29, "Offset is null, topic is T")


def test_a_commit_outside_of_the_queue_is_taken_as_it_is(world: Any) -> None:
    """Commits are not checked, as in RocketMQ: tools commit offsets beyond the end, and -1 means no
    offset. A new master lowers offsets beyond its log (broker/ha/metadata/pulling.py)."""
    send(world)
    world.broker.groups.find_or_create("G", world.now_ms)
    for commit in (1 << 40, 2**63 - 1):
        assert update(world, commit=commit) == (0, None)
        assert query(world) == (0, str(commit), None)
    assert update(world, commit=-5) == (0, None)
    assert query(world)[0] == 0  # as if there were none: a young topic begins at 0
    assert query(world)[1] == "0"
    assert update(world, queue_id=77, commit=3) == (0, None)
    assert world.broker.offsets.queues_of("G", "T") == {0: -5, 77: 3}


def test_pending_reset_swallows_commits(world: Any) -> None:
    send(world, 3)
    world.broker.groups.find_or_create("G", world.now_ms)
    world.broker.offsets.set_reset("G", "T", 0, QueueOffset(1), world.now_ms)
    assert update(world) == (0, "Offset has been previously reset")
    assert query(world) == (0, "1", None)
    assert world.broker.offsets.take_reset("G", "T", 0) == 1
    assert update(world) == (0, None)
    assert query(world) == (0, "7", None)


def ask(world: Any, code: int, header: object, field: str = "offset") -> int:
    response = world.ask(code, header)
    assert response.code == ResponseCode.SUCCESS
    return int(response.fields[field])


def test_limits_of_a_queue(world: Any) -> None:
    send(world, 3)
    assert ask(world, RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequest("T", 0)) == 3
    assert ask(world, RequestCode.GET_MIN_OFFSET, GetMinOffsetRequest("T", 0)) == 0
    assert ask(world, RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequest("U", 5)) == 0
    assert ask(world, RequestCode.GET_MIN_OFFSET, GetMinOffsetRequest("U", 5)) == 0


def test_the_first_offset_of_an_empty_queue_of_batches_is_below_all(world: Any) -> None:
    batch = TopicConfig("B", attributes={"queue.type": "BatchCQ"})
    world.broker.topics.put(batch, world.now_ms)
    code, header = RequestCode.GET_MIN_OFFSET, GetMinOffsetRequest("B", 0)
    assert ask(world, code, header, "offset") == -1
    assert ask(world, code, GetMinOffsetRequest("T", 0), "offset") == 0
    one = SendMessageRequestV2("PG", "B", "TBW102", 4, 0, 0, 1, 0)
    assert world.ask(RequestCode.SEND_MESSAGE_V2, one, b"x").code == 0
    assert ask(world, code, header, "offset") == 0


def test_time_of_the_oldest_message(world: Any) -> None:
    code = RequestCode.GET_EARLIEST_MSG_STORETIME
    header = GetEarliestMsgStoretimeRequest("T", 0)
    assert ask(world, code, header, "timestamp") == -1
    first_ms = world.now_ms
    send(world, 2)
    assert ask(world, code, header, "timestamp") == first_ms


@pytest.mark.parametrize(
    ("after_ms", "boundary", "found"),
    [
        (-50, None, 0),
        (100, None, 1),
        (150, "LOWER", 2),
        (150, "UPPER", 1),
        (150, "upper", 1),
        (150, "sideways", 2),
        (10_000, "LOWER", 3),
    ],
)
def test_offset_by_time(world: Any, after_ms: int, boundary: str | None, found: int) -> None:
    begin_ms = world.now_ms
    send(world, 3)
    header = SearchOffsetRequest("T", 0, begin_ms + after_ms, boundary)
    assert ask(world, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header) == found


def test_a_search_for_now_after_the_clock_was_ahead_finds_the_end(world: Any) -> None:
    """Messages have store times in the future: a reset to now must not go to the beginning."""
    world.set_clock(3_600_000)
    send(world, 2)
    world.set_clock(-3_600_000)
    send(world)
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    for boundary in ("LOWER", "UPPER"):
        header = SearchOffsetRequest("T", 0, world.now_ms, boundary)
        assert ask(world, code, header) == 3
        assert ask(world, code, SearchOffsetRequest("T", 0, world.now_ms - 1, boundary)) == 0
    reset = ResetOffsetRequest("T", "G", timestamp=world.now_ms, is_force=True)
    world.broker.groups.find_or_create("G", world.now_ms)
    assert world.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset).code == 0
    assert query(world) == (0, "3", None)


class Timers:
    """A link that records delayed callbacks."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, Any]] = []

    def call_later(self, delay_ms: int, callback: Any) -> None:
        self.waiting.append((delay_ms, callback))


def test_a_go_client_may_close_before_its_commit_is_answered(world: Any) -> None:
    send(world)
    world.broker.groups.find_or_create("G", world.now_ms)
    timers: Any = Timers()
    peer = Peer("127.0.0.1:50", b"\x7f\0\0\1\0\0\0\x32", timers)
    peer.language = "GO"
    header = UpdateConsumerOffsetRequest("G", "T", 0, 1)
    request = new_request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    response = world.dispatch(request, peer)
    assert not response.done
    assert query(world) == (0, "1", None), "it counts at once"
    ((delay_ms, callback),) = timers.waiting
    assert delay_ms == GO_RESPONSE_DELAY_MS
    callback()
    assert (response.value.code, response.value.opaque) == (0, request.opaque)
    request.flag |= ONEWAY_FLAG
    assert world.dispatch(request, peer).code == 0
    assert len(timers.waiting) == 1, "no client waits for the answer of a one-way commit"
