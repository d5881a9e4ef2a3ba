"""Requests at their maximum length: refused before objects are made, or handled in steps."""

from collections.abc import Generator

import pytest

from turbopump.broker.tables import locks as lock_table
from turbopump.engine import fastjson, json_steps
from turbopump.engine.types import QueueOffset
from turbopump.net.wire import bodies
from turbopump.net.wire.command import new_request
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.message import encode_batch
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.topics import TopicConfig

MANY = b"{}," * 600_000 + b"{}]}"


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (34, b'{"clientID":"c","consumerDataSet":[' + MANY),
        (41, b'{"consumerGroup":"g","clientId":"c","mqSet":[' + MANY),
        (42, b'{"consumerGroup":"g","clientId":"c","mqSet":[' + MANY),
        (18, b'{"topicConfigList":[' + MANY),
        (225, b'{"groupConfigList":[' + MANY),
        (200, b'{"groupName":"g","attributes":{"a":[' + MANY),
        (46, b'{"subscriptionData":[' + MANY),
        (401, b'{"topic":[' + MANY),
    ],
)
def test_a_body_of_many_values_is_refused_before_they_are_made(admin, monkeypatch, code, body):
    world, read = admin.world, []
    loads = fastjson.loads

    def counted(text):
        read.append(len(text))
        return loads(text)

    monkeypatch.setattr(fastjson, "loads", counted)
    response = world.table.dispatch(new_request(code, body=body), world.peer(), world.now_ms)
    if isinstance(response, Generator):
        response = bodies.run_to_result(response)
    assert response.code == 1
    assert sum(read) <= bodies.LONG.size


def test_many_locks_take_many_steps(admin) -> None:
    world = admin.world
    queues = [{"topic": "T", "brokerName": "b", "queueId": number} for number in range(10_000)]
    body = {"consumerGroup": "g", "clientId": "c", "mqSet": queues}
    request = new_request(41, body=fastjson.dumps(body).encode())
    steps = world.table.dispatch(request, world.peer(), world.now_ms)
    before, most, count = len(world.broker.locks), 0, 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            response = done.value
            break
        most, before = max(most, len(world.broker.locks) - before), len(world.broker.locks)
        count += 1
    assert most <= bodies.READ and count >= len(queues) // bodies.READ
    assert len(fastjson.loads(response.body)["lockOKMQSet"]) == 10_000
    assert json_steps.PIECE <= 64 << 10


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (202, {"topic": "Wide"}),
        (303, {"topic": "Wide", "group": "g"}),
        (222, {"topic": "Wide", "group": "g", "timestamp": -1}),
        (308, {"topic": "Wide", "compareGroup": "g"}),
        (314, {"srcGroup": "g", "destGroup": "h", "offline": True}),
    ],
)
def test_a_topic_of_many_queues_takes_steps(admin, monkeypatch, code, fields) -> None:
    """Counts the queries for queues that a step makes of the store or the table."""
    world, broker = admin.world, admin.broker
    broker.topics.put(TopicConfig("Wide", 9_000, 9_000), world.now_ms)
    broker.groups.put(SubscriptionGroupConfig("g"), world.now_ms)
    for queue_id in range(9_000):
        broker.offsets.commit("g", "Wide", queue_id, QueueOffset(1), world.now_ms)
    asked = 0

    def counted(of, name):
        before = getattr(of, name)

        def call(self, *arguments, **more):
            nonlocal asked
            asked += 1
            return before(self, *arguments, **more)

        monkeypatch.setattr(of, name, call)

    counted(type(broker.store), "max_queue_offset")
    counted(type(broker.offsets), "commit")
    counted(type(broker.store), "min_queue_offset")
    most, steps = 0, 0
    request = new_request(code, fields={key: str(value) for key, value in fields.items()})
    response = world.table.dispatch(request, world.peer(), world.now_ms)
    while isinstance(response, Generator):
        most, asked = max(most, asked), 0
        steps += 1
        try:
            next(response)
        except StopIteration as done:
            response = done.value
    assert response.code == 0, response.remark
    assert most <= 4_000 and steps > 2


def test_a_batch_of_more_than_is_made_at_once_is_refused(admin) -> None:
    admin.create_topic("T")
    fields = {
        "a": "g",
        "b": "T",
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 0,
        "g": admin.now_ms,
        "h": 0,
        "i": "",
        "j": 0,
        "k": False,
        "m": True,
    }
    end = admin.broker.store.max_log_offset
    many = encode_batch([(0, b"", b"")] * 32_769)
    assert admin.ask(310, many, **fields).code == 13
    assert admin.broker.store.max_log_offset == end
    few = admin.ask(310, encode_batch([(0, b"", b"")] * 32_768), **fields)
    assert few.code == 0 and few.fields["msgId"].count(",") == 32_767
    assert admin.broker.store.max_queue_offset("T", 0) == 32_768


def test_a_retry_of_a_group_with_many_locks_looks_at_one(admin, monkeypatch) -> None:
    locks, looked = admin.broker.locks, []
    queues = [MessageQueue("T", "b", number) for number in range(10_000)]
    locks.lock("g", "c", queues, 1)
    before = lock_table._Lock.expired

    def expired(self, now_ms):
        looked.append(self)
        return before(self, now_ms)

    monkeypatch.setattr(lock_table._Lock, "expired", expired)
    assert not locks.is_group_locked("g", 1 + lock_table.LEASE_MS + 1)
    assert len(looked) == 1
    locks.lock("g", "c", queues[5_000:5_001], lock_table.LEASE_MS)
    assert locks.is_group_locked("g", lock_table.LEASE_MS + 2)
    locks.unlock("g", "c", queues[5_000:5_001])
    assert not locks.is_group_locked("g", lock_table.LEASE_MS + 2)
