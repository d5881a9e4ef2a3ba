"""STICKY among members: the deciding member, the requests of the others, and malformed
responses."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.net.client.cluster import NAME_SERVER, TOPIC, ScriptedCluster, options, play

from turbopump.engine import fastjson
from turbopump.net.client.consuming.consumer import Consumer
from turbopump.net.client.consuming.leader_assignment import LeaderAssignment
from turbopump.net.client.options import ConsumerOptions
from turbopump.net.wire.bodies import BadBody, encode_json
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.queues import MessageQueue

OWN, FIRST, LAST = "127.0.0.1@unit", "127.0.0.1@aa", "127.0.0.1@zz"
ASK = RequestCode.GET_CONSUMER_RUNNING_INFO


def shares(*led: LeaderAssignment, **more: Any) -> bytes:
    """A member's answer to 307."""
    kept = {TOPIC: led[0].to_json()} if led else {}
    return encode_json({"properties": {"turbopump.shares": encode_json(kept).decode()}} | more)


def queues(*numbers: int) -> list[MessageQueue]:
    return [MessageQueue(TOPIC, "a", number) for number in numbers]


def held_by_us(cluster: ScriptedCluster, member: str, *responses: bytes) -> list[list[int]]:
    """The queues of this member after each response of the other member, which the broker lists."""
    found = []

    async def story() -> None:
        made = Consumer(
            "G",
            NAME_SERVER,
            options=ConsumerOptions(strategy="STICKY"),
            client_options=options(instance_name="unit"),
        )
        made.subscribe(TOPIC)
        cluster.named("a").members.append(member)
        cluster.set_response("a", ASK, responses[0])
        async with made:
            for response in responses:
                cluster.set_response("a", ASK, response)
                await asyncio.sleep(25)
                found.append([queue.queue_id for queue in made.queues if queue.topic == TOPIC])

    play(story())
    return found


@pytest.fixture
def four(cluster: ScriptedCluster) -> ScriptedCluster:
    cluster.add("a", queues=4, topics=(TOPIC,))
    cluster.routes["%RETRY%G"] = cluster.route(1, "a")
    return cluster


def test_the_member_with_the_smallest_id_decides(four: ScriptedCluster) -> None:
    both = (FIRST, OWN)
    share = LeaderAssignment(3, both, {FIRST: queues(0, 1), OWN: queues(2, 3)})
    other = LeaderAssignment(4, both, {FIRST: queues(3, 1), OWN: queues(2, 0)})
    older = LeaderAssignment(9, (FIRST,), {FIRST: queues(0, 1, 2, 3)})
    none = shares()
    assert held_by_us(four, FIRST, share_of(share), none, share_of(older), share_of(other)) == [
        [2, 3],
        [2, 3],
        [2, 3],
        [0, 2],
    ]


def share_of(led: LeaderAssignment) -> bytes:
    return shares(led)


def test_one_that_leads_and_knows_nothing_asks_the_others(four: ScriptedCluster) -> None:
    led = LeaderAssignment(7, (LAST, "gone"), {LAST: queues(3, 0), "gone": queues(1, 2)})
    assert held_by_us(four, LAST, shares(led)) == [[1, 2]]
    assert held_by_us(four, LAST, shares()) == [[0, 2]]


@pytest.mark.parametrize(
    "response",
    [
        b"no JSON",
        b"{}",
        encode_json({"properties": {}}),
        encode_json({"properties": {"turbopump.shares": "["}}),
        encode_json({"properties": {"turbopump.shares": encode_json({TOPIC: 7}).decode()}}),
    ],
)
def test_an_answer_that_says_nothing_leaves_us_without(
    four: ScriptedCluster, response: bytes
) -> None:
    assert held_by_us(four, FIRST, response) == [[]]


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["owners", "members", "generation", "a"]), inner)
        ),
    )
)
def test_any_bean_is_read_or_refused(value: Any) -> None:
    try:
        led = LeaderAssignment.from_json(TOPIC, value)
    except BadBody:
        return
    assert LeaderAssignment.from_json(TOPIC, fastjson.loads(encode_json(led.to_json()))) == led
