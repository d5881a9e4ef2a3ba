"""Replays requests that RocketMQ 5.5.0 answered: the responses must be equal.

A capture keeps at most three frames of a kind, so queues are filled with other messages up to the
offset in a frame. Frames with SQL filters are skipped: a filter would read those messages.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from turbopump.engine.deferred import Deferred
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, decode
from turbopump.net.wire.headers.pull import SUBSCRIPTION_FLAG
from turbopump.net.wire.headers.send import SendMessageRequestV2
from turbopump.net.wire.heartbeat import ConsumerData
from turbopump.net.wire.message import MessageView, decode_messages
from turbopump.net.wire.subscription import parse_subscription
from turbopump.net.wire.topics import TopicConfig

FRAMES = Path(__file__).resolve().parents[2] / "golden" / "frames"
SENDS = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
PULLS = {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}
OTHERS = {
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
}
NOT_COMPARED = {"msgId", "transactionId", "timestamp"}


def load(capture: str) -> list[tuple[dict[str, Any], bytes]]:
    """(truth, frame) of a capture, in order."""

    def unpack(name: str) -> bytes:
        return zstandard.decompress((FRAMES / name).read_bytes(), max_output_size=1 << 24)

    data = unpack(f"{capture}.bin.zst")
    lines = [json.loads(line) for line in unpack(f"{capture}.jsonl.zst").decode().splitlines()]
    return [(one, data[one["at"] : one["at"] + one["length"]]) for one in lines]


def fill(world: Any, topic: str, queue_id: int, max_offset: int) -> None:
    """Append messages until the queue's next offset is `max_offset`."""
    while world.broker.store.max_queue_offset(topic, queue_id) < max_offset:
        header = SendMessageRequestV2("PG", topic, "TBW102", 4, queue_id, 0, 1, 0)
        assert world.ask(RequestCode.SEND_MESSAGE_V2, header, b"filler").code == 0


def prepare_pull(world: Any, fields: dict[str, str], expected: dict[str, Any]) -> None:
    """Bring the group to its recorded state: its heartbeat, and a reset by an admin."""
    group, topic, queue_id = fields["consumerGroup"], fields["topic"], int(fields["queueId"])
    if topic.startswith("%RETRY%"):
        world.broker.topics.create_internal(topic, 1, 6, world.now_ms)
    fill(world, topic, queue_id, int((expected["extFields"] or {}).get("maxOffset", 0)))
    if not int(fields["sysFlag"]) & SUBSCRIPTION_FLAG and expected["code"] != 24:
        version = int(fields["subVersion"]) - (expected["code"] == 25)
        subscriptions = [parse_subscription(topic, "*", sub_version=version)]
        world.broker.consumers.register(
            world.peer(),
            "client",
            ConsumerData(group, subscription_data_set=subscriptions),
            world.now_ms,
        )
    if expected["remark"] == "OFFSET_RESET":
        target = QueueOffset(int(expected["extFields"]["nextBeginOffset"]))
        world.broker.offsets.set_reset(group, topic, queue_id, target, world.now_ms)


def replay(world: Any, frame: bytes, truth: dict[str, Any], expected: dict[str, Any]) -> None:
    """Replay a request and compare its response."""
    request = decode(frame)
    fields = request.fields
    born_ms = int(fields.get("g") or fields.get("bornTimestamp") or 0)
    world.now_ms = max(world.now_ms, born_ms)
    if truth["code"] in SENDS and expected["code"] == 0:
        queue_id = int(fields.get("e") or fields["queueId"])
        topic = fields.get("b") or fields["topic"]
        fill(world, topic, queue_id, int(expected["extFields"]["queueOffset"]))
    if truth["code"] in PULLS:
        prepare_pull(world, fields, expected)
    if truth["code"] == RequestCode.CONSUMER_SEND_MSG_BACK:
        fields["offset"] = "0"  # the first message of this broker has that log offset, too
    if truth["code"] == RequestCode.GET_MAX_OFFSET:
        fill(world, fields["topic"], int(fields["queueId"]), int(expected["extFields"]["offset"]))
    response = world.dispatch(request)
    if isinstance(response, Deferred):
        world.broker.held_pulls.release_all()
        response = response.value
    compare(response, expected, f"frame {truth['frame']} {truth['name']}")


def compare(response: Command, expected: dict[str, Any], where: str) -> None:
    """Compare code, remark and header members, except for times and generated ids."""
    wanted, got = expected["extFields"] or {}, response.fields
    assert response.code == expected["code"], where
    if (expected["remark"] or "").startswith("java.lang"):
        return  # the text of an exception, and no header
    assert plain(response.remark) == plain(expected["remark"]), where
    assert got.keys() == wanted.keys(), where
    for key in got.keys() - NOT_COMPARED:
        assert got[key] == wanted[key], f"{where}: {key}"
    if "msgId" in got:
        shape = [len(one) for one in wanted["msgId"].split(",")]
        assert [len(one) for one in got["msgId"].split(",")] == shape, where


def plain(remark: str | None) -> str:
    """A remark without the port of its client."""
    return re.sub(r"(127\.0\.0\.1:)\d+", r"\1PORT", remark or "")


def is_ours(truth: dict[str, Any]) -> bool:
    if truth["kind"] == "response" or truth["code"] not in SENDS | PULLS | OTHERS:
        return False
    fields = truth["extFields"] or {}
    properties = fields.get("i") or fields.get("properties") or ""
    special = any(word in properties for word in ("TRAN_MSG", "TIMER_"))
    return fields.get("expressionType") != "SQL92" and not special


def stored(world: Any) -> dict[str, MessageView]:
    """Every message that came in under a unique key of its own."""
    found: dict[str, MessageView] = {}
    store = world.broker.store
    for topic in store.topics():
        for queue_id in store.queue_ids(topic):
            for unit in store.units(topic, queue_id, QueueOffset(0), 1_000):
                (view,) = decode_messages(store.record_view(unit.log_offset))
                found[view.properties.get("UNIQ_KEY", "")] = view
    return found


@pytest.mark.parametrize("capture", ["json", "json-2", "rocketmq", "mixed"])
def test_answers_are_those_of_rocketmq(make_world: Callable[..., Any], capture: str) -> None:
    world = make_world("defaultTopicQueueNums=4\n")
    world.broker.topics.put(TopicConfig("WRead", 1, 1, 4), world.now_ms)
    world.broker.topics.put(TopicConfig("Order", 2, 2, 6, order=True), world.now_ms)
    frames = load(capture)
    responses = {truth["pair"]: truth for truth, _ in frames if truth["kind"] == "response"}
    compared = 0
    for truth, frame in frames:
        if not is_ours(truth):
            continue
        if truth["kind"] == "oneway":
            world.table.dispatch(decode(frame), world.client, world.now_ms)
        elif truth["frame"] in responses:
            replay(world, frame, truth, responses[truth["frame"]])
            compared += 1
    assert compared > 35
    messages = stored(world)
    same = 0
    for truth, frame in frames:
        if truth["kind"] == "response" and truth["requestName"] == "PULL_MESSAGE":
            for theirs in decode_messages(frame[len(frame) - truth["bodyLength"] :]):
                ours = messages.get(theirs.properties.get("UNIQ_KEY", "none"))
                if ours is not None:
                    assert comparable(ours) == comparable(theirs)
                    same += 1
    assert same >= 2


def comparable(view: MessageView) -> tuple[object, ...]:
    """Properties that must be equal for a message sent to both brokers."""
    return (
        view.topic,
        view.queue_id,
        view.body,
        view.flag,
        view.sys_flag,
        view.born_timestamp_ms,
        view.reconsume_times,
        view.properties,
    )
