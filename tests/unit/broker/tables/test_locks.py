"""Queue locks: leases, renewal, which client may unlock, bounds (remoting.md 13, messages.md 5)."""

from typing import Any

import pytest

from turbopump.broker.tables import locks
from turbopump.broker.tables.locks import LEASE_MS, QueueLocks
from turbopump.net.wire.queues import MessageQueue

NOW = 1_700_000_000_000
Q0, Q1 = (MessageQueue("T", "broker-a", number) for number in range(2))


def test_free_queues_are_granted_and_known_as_locked() -> None:
    table = QueueLocks()
    assert table.lock("g", "a", [Q0, Q1, Q0], NOW) == [Q0, Q1]
    assert table.is_group_locked("g", NOW)
    assert not table.is_group_locked("other", NOW)
    assert len(table) == 2


def test_another_client_waits_until_the_lease_is_over() -> None:
    table = QueueLocks()
    table.lock("g", "a", [Q0], NOW)
    assert table.lock("g", "b", [Q0, Q1], NOW + LEASE_MS) == [Q1]
    assert table.lock("g", "b", [Q0], NOW + LEASE_MS + 1) == [Q0]
    assert table.lock("g", "a", [Q0], NOW + LEASE_MS + 2) == []


def test_asking_again_renews() -> None:
    table = QueueLocks()
    table.lock("g", "a", [Q0], NOW)
    assert table.lock("g", "a", [Q0], NOW + 20_000) == [Q0]
    assert table.lock("g", "b", [Q0], NOW + LEASE_MS + 1) == []


def test_groups_and_brokers_do_not_meet() -> None:
    table = QueueLocks()
    table.lock("g", "a", [Q0], NOW)
    elsewhere = MessageQueue("T", "broker-b", 0)
    assert table.lock("g", "b", [elsewhere], NOW) == [elsewhere]
    assert table.lock("h", "b", [Q0], NOW) == [Q0]


def test_only_the_holder_unlocks() -> None:
    table = QueueLocks()
    table.lock("g", "a", [Q0], NOW)
    table.unlock("g", "b", [Q0])
    assert table.lock("g", "b", [Q0], NOW) == []
    table.unlock("g", "a", [Q0, Q1])
    assert len(table) == 0
    assert not table.is_group_locked("g", NOW)
    table.unlock("nobody", "a", [Q0])


def test_an_expired_lock_counts_for_nothing_and_is_swept() -> None:
    table = QueueLocks()
    table.lock("g", "a", [Q0], NOW)
    table.lock("g", "a", [Q1], NOW + 1)
    later = NOW + LEASE_MS + 1
    assert table.is_group_locked("g", later)
    assert not table.is_group_locked("g", later + 1)
    table.remove_expired(later)
    assert len(table) == 1
    table.remove_expired(later + 1)
    assert len(table) == 0


def test_a_full_table_grants_nothing_new_but_renews(monkeypatch: pytest.MonkeyPatch) -> None:
    table = QueueLocks()
    table.lock("g", "a", [Q0], NOW)
    monkeypatch.setattr(locks, "MAX_SIZE", table.size)
    table.unlock("g", "a", [Q0])
    assert table.size == 0
    assert table.lock("g", "a", [Q0, Q1], NOW) == [Q0]
    assert table.lock("g", "a", [Q0], NOW + 1) == [Q0]


def test_the_two_requests(admin: Any) -> None:
    body = {"clientId": "a", "consumerGroup": "g", "mqSet": [Q0.to_json(), Q1.to_json()]}
    assert admin.json(41, body) == {"lockOKMQSet": [Q0.to_json(), Q1.to_json()]}
    assert admin.json(41, {**body, "clientId": "b"}) == {"lockOKMQSet": []}
    assert admin.ask(42, {**body, "clientId": "b"}).code == 0
    assert admin.json(41, {**body, "clientId": "b"}) == {"lockOKMQSet": []}
    assert admin.ask(42, body).code == 0
    assert len(admin.json(41, {**body, "clientId": "b"})["lockOKMQSet"]) == 2


@pytest.mark.parametrize("body", [b"", b"[]", b'{"mqSet":[1]}', b'{"mqSet":{}}'])
def test_a_bad_body_is_an_error_of_one_line(admin: Any, body: bytes) -> None:
    response = admin.ask(41, body)
    assert response.code == 1
    assert "\n" not in response.remark
