"""Every request code of a broker with numbers of both signs and all sizes in all of its fields.

A number that a header admits may reach native code, where one of the wrong size or sign raises
OverflowError. Any answer is right here; an exception that a node catches and logs fails the test
(tests/failures/logged.py).
"""

import importlib
import json
import pkgutil
import random
import tempfile
from collections.abc import Generator
from dataclasses import is_dataclass
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.failures.logged import FAILURES, check
from tests.unit.broker.conftest import World
from tests.unit.broker.pop.poppers import Popper

from turbopump.engine.types import NewMessage
from turbopump.net.wire import headers
from turbopump.net.wire.bodies import run_to_result
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.header import members_of, read_int32, read_int64
from turbopump.net.wire.topics import TopicConfig

NAMES = ["T", "T", "G", "%RETRY%G", "a", "", "*", "a || hoOOLdKL", "1"]
INT32 = [-(1 << 31), -1, 0, 1, 2, 7, (1 << 31) - 1]
INT64 = [-(1 << 63), -(1 << 32), *INT32, 1 << 31, 1 << 32, 1 << 53, (1 << 63) - 1]
UNSAFE = {RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.UPDATE_BROKER_CONFIG}
"""Codes that end the world which serves the other requests."""
CODES = sorted(int(code) for code in RequestCode if code not in UNSAFE)


def fields_of_all() -> dict[str, list[str]]:
    """Values for each field of each header class, by its key on the wire."""
    found: dict[str, list[str]] = {}
    for module in pkgutil.iter_modules(headers.__path__):
        for one in vars(importlib.import_module(f"{headers.__name__}.{module.name}")).values():
            if not (isinstance(one, type) and is_dataclass(one)):
                continue
            for _, key, read, _ in members_of(one):
                if read is read_int32:
                    found[key] = list(map(str, INT32))
                elif read is read_int64:
                    found[key] = list(map(str, INT64))
                else:
                    found.setdefault(key, NAMES)
    return found


FIELDS = fields_of_all()


def drawn(rng: random.Random) -> dict[str, str]:
    """Draw a value for each field. Names often exist, numbers are often small."""
    found = {}
    for key, values in FIELDS.items():
        value = rng.choice(values)
        if values is not NAMES and rng.random() < 0.5:
            value = rng.choice("0123")
        found[key] = value
    if rng.random() < 0.7:
        found |= {"topic": "T", "consumerGroup": "G", "b": "T"}
    return found


def body_of(rng: random.Random) -> bytes:
    """Body of a request: empty, or a heartbeat whose subscription has such numbers."""
    if rng.random() < 0.5:
        return rng.choice([b"", b"{}", b"[]", b"x"])
    subscription = {
        "topic": "T", "subString": "a", "tagsSet": ["a"], "expressionType": "TAG",
        "codeSet": [*rng.sample(INT64, 2), rng.getrandbits(64) - (1 << 63)],
        "subVersion": rng.choice(INT64),
    }  # fmt: skip
    consumer = {
        "groupName": "G", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
        "subscriptionDataSet": [subscription],
    }  # fmt: skip
    return json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode()


@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32))
def test_no_number_of_a_request_raises(seed: int) -> None:
    play(seed)


def play(seed: int) -> None:
    """Send each request code once, in the seed's order."""
    FAILURES.take()
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), "")
        try:
            world.broker.topics.put(TopicConfig("T", 4, 4), world.now_ms)
            world.broker.fast.start(world.broker.store_host)
            codes = [code for code in CODES if code in world.table.codes]
            rng.shuffle(codes)
            codes[:0] = [RequestCode.SEND_MESSAGE, RequestCode.HEART_BEAT, RequestCode.PULL_MESSAGE]
            for code in codes:
                request = new_request(code, fields=drawn(rng), body=body_of(rng))
                response = world.table.dispatch(request, world.peer(), world.now_ms)
                if isinstance(response, Generator):
                    run_to_result(response)
                check()
            world.pass_time(200)
            check()
        finally:
            world.close()


def test_a_message_with_the_most_attempts_is_sent_back_and_revived() -> None:
    """A producer may set reconsumeTimes to the largest int; one more raised OverflowError."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), "")
        try:
            popper = Popper(world)
            stored = NewMessage("T", 0, b"a", b"UNIQ_KEY\x01k\x02", reconsume_times=INT32[-1])
            (log_offset,) = world.broker.store.append(stored, world.now_ms).log_offsets
            world.broker.groups.put(SubscriptionGroupConfig("g"), world.now_ms)
            fields = {
                "offset": str(log_offset), "group": "g", "delayLevel": "1",
                "maxReconsumeTimes": str(INT32[-1]),
            }  # fmt: skip
            world.ask_fields(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
            check()
            assert [body for body, _ in popper.pop()] == ["a"]
            world.pass_time(20_000)
            assert [body for body, _ in popper.pop()] == ["a"], "it was not revived"
            check()
        finally:
            world.close()
