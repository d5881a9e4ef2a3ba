"""Tags whose hash codes are of both signs: a group that subscribes to a tag gets all of its
messages.

A consumer that pulls, a consumer that pops and a gRPC consumer read the same backlog in one broker,
by the handlers and by the fast lane. Half of all tags have a negative hash code.
"""

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from tests.failures.logged import FAILURES, check
from tests.lane.world import Driven, finish, subscribe
from tests.unit.broker.conftest import World
from tests.unit.broker.grpc.fronts import GrpcWorld
from tests.unit.broker.pop.poppers import Popper
from tests.unit.net.messaging.test_receiving import ended, start
from tests.unit.net.messaging.test_receiving import receipt as receipt_of

from turbopump.engine.types import NewMessage
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Codec, decode, new_request
from turbopump.net.wire.headers.pull import PullMessageRequest
from turbopump.net.wire.message import decode_messages
from turbopump.net.wire.subscription import SubscriptionData
from turbopump.net.wire.topics import TopicConfig
from turbopump.pyx.index import java_hash

COUNT = 100
NEGATIVE = "hoOOLdKL"
ROUNDS = 40
tags = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FFF), min_size=1, max_size=12)


def filled(folder: str, tag: str) -> World:
    """A broker with 100 messages of a tag, and as many of another between them."""
    world = World(Path(folder), "")
    for topic in ("Plain", "T"):
        world.broker.topics.put(TopicConfig(topic, 2, 2), world.now_ms)
        for number in range(COUNT):
            for name in (tag, "other"):
                properties = f"TAGS\x01{name}\x02UNIQ_KEY\x01{number}{name}\x02".encode()
                message = NewMessage(topic, number % 2, b"%d" % number, properties)
                assert world.broker.store.append(message, world.now_ms).log_offsets
    world.pass_time(100)
    return world


def pulled(world: World, tag: str) -> int:
    """Number of messages that a consumer gets by pulls over a connection, each queue to its end."""
    driven = Driven(world)
    subscribe(world, "live", tag, 5)
    count = 0
    for queue_id in (0, 1):
        at = 0
        for opaque in range(ROUNDS):
            header = PullMessageRequest(
                consumer_group="live", topic="Plain", queue_id=queue_id, queue_offset=at,
                max_msg_nums=9, sys_flag=0, commit_offset=0, suspend_timeout_millis=0,
                sub_version=5,
            )  # fmt: skip
            request = new_request(RequestCode.PULL_MESSAGE, header)
            frame = finish(request, {"codec": Codec.JSON, "version": 500}, opaque)
            driven.responses.clear()
            driven.feed(frame, 1 << 20)
            response = decode(driven.responses[opaque][0])
            if response.code == 19:
                break
            at = int(response.fields["nextBeginOffset"])
            count += len(decode_messages(bytes(response.body or b"")))
    driven.near.close()
    driven.far.close()
    assert driven.pulled.found_count > 0, "nothing was read natively"
    return count


def popped(world: World, tag: str) -> int:
    """Number of messages that a consumer pops and acknowledges."""
    popper, found = Popper(world), set[str]()
    for _ in range(ROUNDS):
        for body, handle in popper.pop(exp=tag, exp_type="TAG", max_msg_nums=32):
            found.add(body)
            popper.ack(handle)
    return len(found)


def received(world: World, tag: str) -> int:
    """Number of messages that a SimpleConsumer of gRPC receives and acknowledges."""
    front, found = GrpcWorld(world), set[bytes]()
    world.broker.fast.start(world.broker.store_host)
    front.consumer("c1", "GNative", "T")
    for _ in range(ROUNDS):
        filters = {"type": 1, "expression": tag}
        call, heard = start(front, "T", group="GNative", filter_expression=filters)
        world.pass_time(100)
        if not heard.has_ended:
            call.end_silently()
            break
        entries = []
        for one in ended(heard)[1]:
            found.add(one.body)
            entries.append(receipt_of(one))
        if entries:
            response = front.start(
                "AckMessage", group={"name": "GNative"}, topic={"name": "T"}, entries=entries
            )[1]
            for _ in range(10):
                if not response.has_ended:
                    world.pass_time(100)
                    world.turn()
            assert {one.status.code for one in response.answer.entries} == {20000}
    return len(found)


@settings(max_examples=2, suppress_health_check=list(HealthCheck))
@example(NEGATIVE)
@given(tags)
def test_every_consumer_gets_all_messages_of_a_tag(tag: str) -> None:
    assume("|" not in tag and tag.strip() == tag and tag not in ("*", "other"))
    FAILURES.take()
    for consumer in (pulled, popped, received):
        with tempfile.TemporaryDirectory() as folder:
            world = filled(folder, tag)
            try:
                assert consumer(world, tag) == COUNT, consumer.__name__
                check()
            finally:
                world.close()


def test_the_example_is_negative() -> None:
    assert java_hash(NEGATIVE.encode()) < 0


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_code_of_a_peer_is_the_signed_one(code: int) -> None:
    """The unsigned form and the signed one of a hash code are one subscription."""
    given_codes = {"topic": "T", "subString": "a", "codeSet": [code], "tagsSet": ["a"]}
    (found,) = SubscriptionData.from_json(given_codes).code_set
    assert -(1 << 31) <= found < 1 << 31 and (found - code) % (1 << 32) == 0
