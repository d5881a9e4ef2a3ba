"""Half messages move to other masters while a replica acts, and are ended there (RIP-32, I15)."""

import pytest
from tests.unit.broker.escape.cluster import NOT_SAFE, Replica, bodies, records

from turbopump.broker.scheduled import half_escape
from turbopump.broker.scheduled.half_escape import WINDOW
from turbopump.broker.scheduled.half_messages import committed_flag
from turbopump.broker.traffic.role import ALONE
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import NewMessage, QueueOffset
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.transactions import EndTransactionRequest
from turbopump.net.wire.names import HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from turbopump.net.wire.properties import decode_properties, encode_properties

COMMIT, ROLL_BACK = 8, 12


class Term:
    """The term of a master that does not wait for replicas."""

    has_ended = False

    def copies_needed(self) -> int | None:
        return ALONE


def half(replica: Replica, body: bytes, topic: str = "T", **more: str) -> EndTransactionRequest:
    """Store a half message copied from the dead master; returns its producer's end request."""
    key = body.decode()
    properties = {
        "REAL_TOPIC": topic,
        "REAL_QID": "2",
        "TRAN_MSG": "true",
        "PGROUP": "PG",
        "UNIQ_KEY": key,
        "__transactionId__": key,
        **more,
    }
    store = replica.world.broker.store
    number, at = store.next_queue_offset(HALF_TOPIC, 0), store.max_log_offset
    replica.store(HALF_TOPIC, 0, body, properties)
    return EndTransactionRequest("PG", number, at, COMMIT, key, transaction_id=key)


def end(replica: Replica, header: EndTransactionRequest, how: int = COMMIT) -> Command | Deferred:
    header.commit_or_rollback = how
    return replica.world.dispatch(new_request(RequestCode.END_TRANSACTION, header))


def progress(replica: Replica) -> int:
    offsets = replica.world.broker.offsets
    return int(offsets.query(TRANSACTION_GROUP, HALF_TOPIC, 0))


def answered(response: Command | Deferred) -> Command:
    found = response.value if isinstance(response, Deferred) else response
    assert isinstance(found, Command)
    return found


def test_a_half_message_moves_and_is_ended_at_the_other_master(replica: Replica) -> None:
    other = replica.master("m")
    header = half(replica, b"k", DELAY="2", TAGS="a", TRANSACTION_CHECK_TIMES="3")
    log_end = replica.world.broker.store.max_log_offset
    replica.pass_time(1_500)
    (record,) = records(other, HALF_TOPIC)
    properties = decode_properties(record.properties)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "2")
    assert (properties["DELAY"], properties["PGROUP"]) == ("2", "PG")
    assert bodies(other) == [], "no consumer sees it"
    assert progress(replica) == 1
    assert answered(end(replica, header)).code == 0
    replica.pass_time(6_000)
    other.pass_time(100)
    assert bodies(other) == [b"k"]
    assert replica.world.broker.store.max_log_offset == log_end
    assert answered(end(replica, header)).code == 0
    response = answered(end(replica, header, ROLL_BACK))
    assert (response.code, response.remark) == (1, "The transaction was committed")


def test_a_rollback_stays_one(replica: Replica) -> None:
    other = replica.master("m")
    moved, here = half(replica, b"moved"), half(replica, b"here", topic="Alone")
    replica.pass_time(1_500)
    assert bodies(other, HALF_TOPIC) == [b"moved"]
    for header in (moved, here):
        assert answered(end(replica, header, ROLL_BACK)).code == 0
    replica.master("n", topic="Alone")
    replica.pass_time(12_000)
    assert (bodies(other), bodies(replica.others.masters["n"], HALF_TOPIC)) == ([], [])
    assert progress(replica) == 2
    assert answered(end(replica, moved)).code == 1
    assert answered(end(replica, here)).code == ResponseCode.SYSTEM_BUSY


def test_an_end_waits_until_its_half_message_has_moved(replica: Replica) -> None:
    other = replica.master("m")
    replica.others.silent = True
    header = half(replica, b"k")
    replica.pass_time(1_500)
    waiting = end(replica, header)
    assert isinstance(waiting, Deferred)
    assert not waiting.done
    replica.others.silent = False
    replica.others.answer_all()
    assert answered(waiting).code == 0
    assert bodies(other) == [b"k"]


def test_messages_no_master_took_move_later(replica: Replica) -> None:
    other = replica.master("m")
    replica.others.dead.add("m")
    first, second = half(replica, b"1"), half(replica, b"2")
    replica.pass_time(1_500)
    response = answered(end(replica, first))
    assert response.code == ResponseCode.SYSTEM_BUSY
    assert response.remark == "no other master has the half message yet"
    assert progress(replica) <= 0
    replica.others.dead.clear()
    assert answered(end(replica, second)).code == 0
    replica.pass_time(6_000)
    assert sorted(bodies(other, HALF_TOPIC)) == [b"1", b"2"]
    assert bodies(other) == [b"2"]
    assert progress(replica) == 2


def test_messages_that_ended_before_do_not_move(replica: Replica) -> None:
    other = replica.master("m")
    half(replica, b"named")
    half(replica, b"committed")
    half(replica, b"open")
    store, now_ms = replica.world.broker.store, replica.world.now_ms
    text = encode_properties({"TAGS": "d"})
    store.append(NewMessage(OP_TOPIC, 0, b"0,", text), now_ms)
    text = encode_properties({"UNIQ_KEY": "committed", "TRAN_MSG": "true", "PGROUP": "PG"})
    store.append(NewMessage("T", 2, b"committed", text, 5, committed_flag(0), 77), now_ms)
    replica.pass_time(1_500)
    assert bodies(other, HALF_TOPIC) == [b"open"], "the op message of the second was lost"
    assert progress(replica) == 3


def test_the_returning_master_does_not_ask_for_moved_messages(replica: Replica) -> None:
    replica.master("m")
    header = half(replica, b"k")
    replica.pass_time(1_500)
    role = replica.world.broker.role
    role.is_acting = False
    replica.pass_time(200)
    response = answered(end(replica, header))
    assert (response.code, response.remark) == (
        11,
        "a replica does not end transactions: ask its master",
    )
    # A new master has the same log and the same offsets.
    replica.world.broker.offsets.versions.following = False
    role.become_master(Term())
    replica.pass_time(60_000)
    assert replica.world.broker.transactions.is_ready
    assert bodies(replica.world, HALF_TOPIC) == [b"k"], "it was not renewed"
    response = answered(end(replica, header))
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert bodies(replica.world) == []


def test_an_older_half_message_of_a_transaction_means_the_newest(replica: Replica) -> None:
    other = replica.master("m")
    header = half(replica, b"k")
    half(replica, b"k", TRANSACTION_CHECK_TIMES="1", TRAN_PREPARED_QUEUE_OFFSET="0")
    replica.pass_time(1_500)
    (record,) = records(other, HALF_TOPIC)
    properties = decode_properties(record.properties)
    assert "TRAN_PREPARED_QUEUE_OFFSET" not in properties
    assert answered(end(replica, header)).code == 0
    assert bodies(other) == [b"k"]


def test_a_half_message_without_a_topic_is_dropped(replica: Replica) -> None:
    replica.master("m")
    half(replica, b"k", REAL_QID="two")
    replica.pass_time(1_500)
    assert progress(replica) == 1
    assert replica.others.sends == []


def test_messages_moved_after_one_that_stays_are_bounded(replica: Replica) -> None:
    replica.master("m")
    half(replica, b"stays", topic="Alone")
    for number in range(WINDOW + 20):
        half(replica, b"%d" % number)
    replica.pass_time(20_000)
    assert len(replica.others.sends) == WINDOW - 1


def test_places_that_are_remembered_are_bounded(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_escape, "MOVED_SIZE", 1 << 20)
    monkeypatch.setattr(half_escape, "MOVED_SIZE_MAX", 5 << 19)
    replica.master("m")
    headers = [half(replica, b"%d" % number) for number in range(4)]
    replica.pass_time(1_500)
    codes = [answered(end(replica, header)).code for header in headers]
    assert sorted(codes) == [0, 0, 2, 2]


def test_ends_that_wait_are_bounded(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_escape, "WAITING_MAX", 1)
    replica.master("m")
    replica.others.silent = True
    header = half(replica, b"k")
    replica.pass_time(1_500)
    assert isinstance(end(replica, header), Deferred)
    response = answered(end(replica, header))
    assert (response.code, response.remark) == (
        2,
        "too many requests to end transactions are pending",
    )


def test_a_half_message_that_is_not_safe_is_sent_to_the_same_master(replica: Replica) -> None:
    replica.master("m")
    replica.master("n")
    replica.others.codes |= {"m": NOT_SAFE, "n": NOT_SAFE}
    half(replica, b"k")
    replica.pass_time(12_000)
    assert len({name for name, _ in replica.others.sends}) == 1
    assert len(replica.others.sends) == 3


def test_an_end_before_anything_is_known_is_refused(replica: Replica) -> None:
    header = half(replica, b"k")
    response = answered(end(replica, header))
    assert (response.code, response.remark) == (2, "the outcomes of transactions are not read yet")
    assert QueueOffset(header.tran_state_table_offset) == 0
