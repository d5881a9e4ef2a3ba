"""Transactions: the records stored at each step, the producers that may end one, and that an end
counts once (I15, F31)."""

from collections.abc import Callable
from typing import Any

import pytest

from turbopump.broker.introspection.metrics import CounterSnapshot, render
from turbopump.broker.introspection.runtime_info import runtime_table
from turbopump.broker.scheduled import transaction_checks
from turbopump.broker.scheduled.transactions import OPS_APART_MS, OPS_AT_ONCE
from turbopump.engine.types import PutStatus, QueueOffset
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.send import SendMessageRequestV2, SendMessageResponse
from turbopump.net.wire.headers.transactions import (
    CheckTransactionStateRequest,
    EndTransactionRequest,
    ResumeCheckHalfMessageRequest,
)
from turbopump.net.wire.message import decode_messages
from turbopump.net.wire.message_id import decode_message_id, encode_message_id
from turbopump.net.wire.names import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from turbopump.net.wire.properties import decode_properties, encode_properties
from turbopump.pyx.record import Record

COMMIT, ROLL_BACK, UNKNOWN = 8, 12, 0
FAST = "transactionTimeOut=3000\ntransactionCheckInterval=1000\ntransactionCheckMax=3\n"


def prepare(
    world: Any, body: bytes = b"x", queue_id: int = 2, *, peer: Any = None, **more: str
) -> SendMessageResponse:
    """Send a half message of group PG for topic T, by the client or by `peer`; returns the
    response."""
    properties = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": f"ID-{body!r}", "TAGS": "a"}
    text = encode_properties({**properties, **more}).decode()
    born_ms = world.now_ms
    header = SendMessageRequestV2("PG", "T", "TBW102", 4, queue_id, 4, born_ms, 5, properties=text)
    response = world.ask(RequestCode.SEND_MESSAGE_V2, header, body, peer)
    assert response.code == 0, response.remark
    return read_header(SendMessageResponse, response.fields)


def end(world: Any, half: SendMessageResponse, what: int = COMMIT, **changed: Any) -> Command:
    """End the half message; returns the response."""
    values: dict[str, Any] = {
        "producer_group": "PG",
        "tran_state_table_offset": half.queue_offset,
        "commit_log_offset": decode_message_id(half.msg_id)[1],
        "commit_or_rollback": what,
        "msg_id": half.transaction_id or "",
        **changed,
    }
    return world.ask(RequestCode.END_TRANSACTION, EndTransactionRequest(**values))


def records(world: Any, topic: str = "T", queue_id: int = 0) -> list[Record]:
    """All records of a queue."""
    units = world.broker.store.units(topic, queue_id, QueueOffset(0), 10_000)
    found = [world.broker.store.record(unit.log_offset) for unit in units]
    assert None not in found
    return found


def bodies(world: Any) -> list[bytes]:
    """The bodies consumers can read, of all queues of T."""
    return [record.body for queue in range(4) for record in records(world, "T", queue)]


def ops(world: Any) -> list[bytes]:
    """The bodies of op messages, once all are written."""
    world.broker.transaction_checks.step(world.now_ms)
    return [record.body for record in records(world, OP_TOPIC)]


def checks(world: Any, peer: Any) -> list[Command]:
    """Transaction checks that a peer received."""
    return [sent for sent in peer._link.sent if sent.code == RequestCode.CHECK_TRANSACTION_STATE]


@pytest.fixture
def fast(make_world: Callable[..., Any]) -> Any:
    """A broker with short check intervals and a producer of PG, after its start."""
    world = make_world(FAST)
    world.pass_time(100)
    world.broker.producers.register(world.client, "client", "PG", world.now_ms)
    return world


def test_a_message_committed_to_an_unknown_topic_creates_it(fast: Any) -> None:
    """The topic of a new master that had not copied it: no client could read the message (R20)."""
    half = prepare(fast)
    fast.broker.topics.delete("T", fast.now_ms)
    assert end(fast, half).code == 0
    assert fast.broker.topics.get("T").read_queue_nums == 3


def test_half_message_is_stored_as_rocketmq_does(fast: Any) -> None:
    half = prepare(fast, KEYS="k")
    assert (half.queue_id, half.queue_offset, half.transaction_id) == (2, 0, "ID-b'x'")
    (record,) = records(fast, HALF_TOPIC)
    assert record.log_offset == decode_message_id(half.msg_id)[1]
    assert (record.queue_id, record.sys_flag, record.flag) == (0, 0, 5)
    assert decode_properties(record.properties) == {
        "TRAN_MSG": "true",
        "PGROUP": "PG",
        "UNIQ_KEY": "ID-b'x'",
        "TAGS": "a",
        "KEYS": "k",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
        "__transactionId__": "ID-b'x'",
        "REAL_TOPIC": "T",
        "REAL_QID": "2",
    }
    assert bodies(fast) == []


def test_committed_message_is_stored_as_rocketmq_does(fast: Any) -> None:
    half = prepare(fast)
    (before,) = records(fast, HALF_TOPIC)
    assert end(fast, half).code == 0
    (record,) = records(fast, "T", 2)
    assert (record.body, record.sys_flag, record.flag) == (b"x", 8, 5)
    assert record.prepared_transaction_offset == before.log_offset
    assert record.born_timestamp_ms == before.born_timestamp_ms
    properties = decode_properties(record.properties)
    assert properties["TRAN_MSG"] == "true" and properties["__transactionId__"] == "ID-b'x'"
    assert not {"REAL_TOPIC", "REAL_QID"} & properties.keys()
    assert ops(fast) == [b"0,"]
    (op,) = records(fast, OP_TOPIC)
    assert op.properties == b"WAIT\x01true\x02TAGS\x01d\x02"


def test_rolled_back_message_is_never_shown(fast: Any) -> None:
    assert end(fast, prepare(fast), ROLL_BACK).code == 0
    assert ops(fast) == [b"0,"]
    fast.pass_time(20_000)
    assert bodies(fast) == []
    assert not checks(fast, fast.client)


def test_ends_of_one_turn_share_an_op_message(fast: Any) -> None:
    halves = [prepare(fast, b"%d" % number) for number in range(12)]
    for half in halves:
        end(fast, half)
    assert ops(fast) == [b"0,1,2,3,4,5,6,7,8,9,10,11,"]


def test_ends_of_a_moment_share_an_op_message(fast: Any) -> None:
    """The first end has its own op message; ends of the following turns wait for a shared one."""
    fast.soon = lambda work: work()

    def written() -> list[bytes]:
        return [record.body for record in records(fast, OP_TOPIC)]

    for number in range(3):
        end(fast, prepare(fast, b"%d" % number))
    assert written() == [b"0,"]
    fast.now_ms += OPS_APART_MS
    end(fast, prepare(fast, b"3"))
    assert written() == [b"0,", b"1,2,3,"]
    for number in range(4, 3 + OPS_AT_ONCE):
        end(fast, prepare(fast, b"%d" % number))
    assert len(written()) == 2
    end(fast, prepare(fast, b"last"))
    assert written()[2].count(b",") == OPS_AT_ONCE
    end(fast, prepare(fast, b"one more"))
    assert len(written()) == 3
    fast.pass_time(100)
    assert written()[3] == b"%d," % (4 + OPS_AT_ONCE)


def test_clock_that_is_set_back_holds_up_no_op_message(fast: Any) -> None:
    fast.soon = lambda work: work()
    end(fast, prepare(fast, b"before"))
    fast.now_ms -= 1
    end(fast, prepare(fast, b"after"))
    assert [record.body for record in records(fast, OP_TOPIC)] == [b"0,", b"1,"]


def test_op_message_is_bounded(make_world: Callable[..., Any]) -> None:
    world = make_world("transactionOpMsgMaxSize=20\n")
    world.pass_time(100)
    for number in range(12):
        end(world, prepare(world, b"%d" % number))
    assert ops(world) == [b"0,1,2,3,4,5,6,7,8,9,", b"10,11,"]


@pytest.mark.parametrize(("first", "then"), [(COMMIT, ROLL_BACK), (ROLL_BACK, COMMIT)])
@pytest.mark.parametrize("waits", ["no", "op", "restart"])
def test_transaction_ends_once(fast: Any, first: int, then: int, waits: str) -> None:
    half = prepare(fast)
    assert end(fast, half, first).code == 0
    if waits != "no":
        fast.pass_time(200)
    if waits == "restart":
        fast.close()
        fast.open()
        fast.pass_time(200)
    for _ in range(2):
        assert end(fast, half, first).code == 0
        assert end(fast, half, then).code == ResponseCode.SYSTEM_ERROR
    assert bodies(fast) == ([b"x"] if first == COMMIT else [])


def test_nothing_is_answered_to_a_producer_that_does_not_know(fast: Any) -> None:
    half = prepare(fast)
    request = EndTransactionRequest("PG", half.queue_offset, 0, UNKNOWN, "")
    asked = new_request(RequestCode.END_TRANSACTION, request)
    assert fast.table.dispatch(asked, fast.client, fast.now_ms) is None


@pytest.mark.parametrize(
    ("changed", "remark"),
    [
        ({"producer_group": "other"}, "The producer group wrong"),
        ({"tran_state_table_offset": 1}, "The transaction state table offset wrong"),
        ({"tran_state_table_offset": -1}, "The transaction state table offset wrong"),
        ({"commit_log_offset": 1 << 40}, "Find prepared transaction message failed"),
        ({"commit_log_offset": -(2**63)}, "Find prepared transaction message failed"),
        ({"commit_log_offset": 2**63 - 1}, "Find prepared transaction message failed"),
        ({"msg_id": "of another transaction"}, "The transaction id wrong"),
        ({"msg_id": "", "transaction_id": "of another transaction"}, "The transaction id wrong"),
        ({"commit_log_offset": 7}, "Find prepared transaction message failed"),
    ],
)
def test_end_that_speaks_of_another_record(fast: Any, changed: dict, remark: str) -> None:
    half = prepare(fast)
    response = end(fast, half, **changed)
    assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert bodies(fast) == []
    assert end(fast, half).code == 0


def test_end_of_a_plain_message_and_of_a_message_inside_a_body(fast: Any) -> None:
    """A body may hold the bytes of a half message that names its own log offset."""
    half = prepare(fast)
    (mine,) = records(fast, HALF_TOPIC)
    view = fast.broker.store.record_view(mine.log_offset)
    forged = bytearray(view)
    text = encode_properties({"UNIQ_KEY": "u"}).decode()
    header = SendMessageRequestV2("PG", "T", "TBW102", 4, 1, 0, 1, 0, properties=text)
    start = fast.broker.store.max_log_offset
    inner_at = start + 88  # after the header of the outer record
    forged[28:36] = inner_at.to_bytes(8, "big")
    assert fast.ask(RequestCode.SEND_MESSAGE_V2, header, bytes(forged)).code == 0
    assert fast.broker.store.record(inner_at).topic == HALF_TOPIC.encode()
    response = end(fast, half, commit_log_offset=inner_at)
    assert (response.code, response.remark) == (1, "The commit log offset wrong")
    response = end(fast, half, commit_log_offset=start, tran_state_table_offset=0)
    assert (response.code, response.remark) == (1, "Find prepared transaction message failed")
    assert end(fast, half).code == 0
    assert [record.body for record in records(fast, "T", 2)] == [b"x"]


def test_replica_ends_nothing(fast: Any) -> None:
    half = prepare(fast)
    fast.broker.role.become_replica(1)
    assert end(fast, half).code == ResponseCode.SLAVE_NOT_AVAILABLE


def test_transactions_can_be_switched_off(make_world: Callable[..., Any]) -> None:
    world = make_world("rejectTransactionMessage=true\n")
    text = encode_properties({"TRAN_MSG": "TRUE", "PGROUP": "PG"}).decode()
    header = SendMessageRequestV2("PG", "T", "TBW102", 4, 0, 4, 1, 0, properties=text)
    response = world.ask(RequestCode.SEND_MESSAGE_V2, header, b"x")
    assert response.code == ResponseCode.NO_PERMISSION


def test_check_renews_the_half_message_and_asks_a_producer(fast: Any) -> None:
    prepare(fast, b"open")
    fast.pass_time(3_000)
    assert not checks(fast, fast.client)
    fast.pass_time(1_100)
    (check,) = checks(fast, fast.client)
    assert check.is_oneway
    header = read_header(CheckTransactionStateRequest, check.fields)
    old, new = records(fast, HALF_TOPIC)
    assert (header.tran_state_table_offset, header.commit_log_offset) == (1, new.log_offset)
    assert (header.topic, header.msg_id) == (HALF_TOPIC, "ID-b'open'")
    assert header.transaction_id == header.msg_id
    assert decode_message_id(header.offset_msg_id or "")[1] == new.log_offset
    (message,) = decode_messages(bytes(check.body))
    assert (message.topic, message.queue_id, message.body) == ("T", 2, b"open")
    assert (message.queue_offset, message.log_offset) == (1, new.log_offset)
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert new.born_timestamp_ms == old.born_timestamp_ms
    assert ops(fast) == [b"0,"]


@pytest.mark.parametrize("waits_ms", [0, 200])
def test_first_answer_of_a_slow_producer_ends_the_renewed_message(fast: Any, waits_ms: int) -> None:
    """RocketMQ delivers the message, checks the transaction again, and delivers it again."""
    half = prepare(fast)
    fast.pass_time(4_100)
    assert len(checks(fast, fast.client)) == 1
    fast.pass_time(waits_ms)
    assert end(fast, half).code == 0
    fast.pass_time(20_000)
    assert bodies(fast) == [b"x"]
    assert len(checks(fast, fast.client)) == 1


def test_half_message_is_given_up_and_taken_up_again(fast: Any) -> None:
    prepare(fast)
    fast.pass_time(10_000)
    assert len(checks(fast, fast.client)) == 3
    (given_up,) = records(fast, GIVEN_UP_TOPIC)
    assert decode_properties(given_up.properties)["TRANSACTION_CHECK_TIMES"] == "3"
    fast.pass_time(10_000)
    assert len(checks(fast, fast.client)) == 3
    msg_id = encode_message_id(given_up.store_host, given_up.log_offset)
    resume = ResumeCheckHalfMessageRequest(msg_id, GIVEN_UP_TOPIC)
    assert fast.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, resume).code == 0
    again = fast.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, resume)
    assert (again.code, again.remark) == (1, "the transaction is being checked")
    fast.pass_time(1_100)
    header = read_header(CheckTransactionStateRequest, checks(fast, fast.client)[-1].fields)
    ended = EndTransactionRequest(
        "PG", header.tran_state_table_offset, header.commit_log_offset, COMMIT, "", True
    )
    assert fast.ask(RequestCode.END_TRANSACTION, ended).code == 0
    assert bodies(fast) == [b"x"]
    assert fast.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, resume).code == 1
    assert fast.broker.store.max_queue_offset(HALF_TOPIC, 0) == 6


def test_message_that_was_given_up_may_still_be_committed_once(fast: Any) -> None:
    half = prepare(fast)
    fast.pass_time(10_000)
    assert end(fast, half).code == 0
    assert end(fast, half).code == 0
    fast.pass_time(300)
    assert end(fast, half).code == 0
    assert end(fast, half, ROLL_BACK).code == 1
    assert bodies(fast) == [b"x"]


def test_immune_message_waits_and_then_is_checked(fast: Any) -> None:
    half = prepare(fast, CHECK_IMMUNITY_TIME_IN_SECONDS="6")
    fast.pass_time(5_500)
    assert not checks(fast, fast.client)
    assert len(records(fast, HALF_TOPIC)) == 1
    assert end(fast, half).code == 0
    fast.pass_time(20_000)
    assert (bodies(fast), checks(fast, fast.client)) == ([b"x"], [])


def test_a_message_in_its_immunity_is_stored_again_for_many_ended_ones(
    fast: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_checks, "HELD_BACK_MAX", 50)
    half = prepare(fast, CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    for number in range(52):
        end(fast, prepare(fast, b"%d" % number), ROLL_BACK)
    fast.pass_time(5_500)
    *_, last = records(fast, HALF_TOPIC)
    assert len(records(fast, HALF_TOPIC)) == 54
    assert decode_properties(last.properties)["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
    assert "TRANSACTION_CHECK_TIMES" not in decode_properties(last.properties)
    assert fast.broker.transactions.current_outcomes.next_open(0) == 53
    assert end(fast, half).code == 0
    fast.pass_time(60_000)
    assert (bodies(fast), checks(fast, fast.client)) == ([b"x"], [])


def test_those_after_a_message_in_its_immunity_are_checked(fast: Any) -> None:
    prepare(fast, b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    prepare(fast, b"other")
    fast.pass_time(4_500)
    assert [
        read_header(CheckTransactionStateRequest, one.fields).msg_id
        for one in checks(fast, fast.client)
    ] == ["ID-b'other'"]


def test_a_step_of_checks_ends_after_its_time(fast: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        prepare(fast, b"%d" % number)
    fast.now_ms += 4_000
    slow = iter(range(0, 1_000_000, 2))  # each look at the clock is 2 ms later
    monkeypatch.setattr(fast.broker.transaction_checks, "_wall_ms", lambda: next(slow))
    assert fast.broker.transaction_checks.step(fast.now_ms)
    assert len(checks(fast, fast.client)) == 2


def test_a_check_goes_to_the_producer_that_sent_the_message(fast: Any) -> None:
    own, other = fast.peer(), fast.peer()
    for name, peer in (("own", own), ("other", other)):
        fast.broker.producers.register(peer, name, "PG", fast.now_ms)
    for number in range(6):
        prepare(fast, b"%d" % number, peer=own)
    fast.pass_time(4_100)
    assert [len(checks(fast, peer)) for peer in (fast.client, own, other)] == [0, 6, 0]
    fast.broker.producers.peer_closed(own)
    fast.pass_time(1_000)
    assert [len(checks(fast, peer)) for peer in (fast.client, own, other)] == [3, 6, 3]


def test_late_end_of_an_immune_message_is_left_to_the_check(fast: Any) -> None:
    half = prepare(fast, CHECK_IMMUNITY_TIME_IN_SECONDS="4")
    fast.pass_time(4_500)
    assert end(fast, half).code == ResponseCode.ILLEGAL_OPERATION
    assert bodies(fast) == []
    fast.pass_time(1_500)
    assert checks(fast, fast.client)
    assert end(fast, half, from_transaction_check=True).code == 0


def test_checks_take_turns_among_producers_and_pass_over_closed_ones(fast: Any) -> None:
    other, closed = fast.peer(), fast.peer()
    for name, peer in (("other", other), ("closed", closed)):
        fast.broker.producers.register(peer, name, "PG", fast.now_ms)
    closed.closed = True
    gone = fast.peer()
    for number in range(4):
        prepare(fast, b"%d" % number, peer=gone)
    fast.pass_time(4_100)
    assert [len(checks(fast, peer)) for peer in (fast.client, other, closed)] == [2, 2, 0]


def test_progress_is_kept_for_the_next_broker(make_world: Callable[..., Any]) -> None:
    fast = make_world(FAST + "flushDiskType=SYNC_FLUSH\n")
    fast.pass_time(100)
    for number in range(5):
        end(fast, prepare(fast, b"%d" % number))
    fast.pass_time(100)
    open_one = prepare(fast, b"open")
    end(fast, prepare(fast, b"5"))
    fast.pass_time(1_000)
    progress = [
        fast.broker.offsets.query(TRANSACTION_GROUP, topic, 0) for topic in (HALF_TOPIC, OP_TOPIC)
    ]
    assert progress[0] == open_one.queue_offset == 5
    assert 0 < progress[1] < fast.broker.store.max_queue_offset(OP_TOPIC, 0)
    fast.close()
    fast.open()
    fast.broker.producers.register(fast.client, "client", "PG", fast.now_ms)
    fast.pass_time(4_100)
    asked = len(checks(fast, fast.client))
    assert asked > 0
    fast.pass_time(200)
    assert fast.broker.offsets.query(TRANSACTION_GROUP, HALF_TOPIC, 0) == 6 + asked


def test_commit_whose_op_message_a_crash_took_is_found(fast: Any) -> None:
    half = prepare(fast)
    assert end(fast, half).code == 0  # the op message would be written after the turn
    fast.close()
    fast.open()
    fast.broker.producers.register(fast.client, "client", "PG", fast.now_ms)
    fast.pass_time(10_000)
    assert not checks(fast, fast.client)
    assert end(fast, half).code == 0
    assert end(fast, half, ROLL_BACK).code == 1
    assert bodies(fast) == [b"x"]
    assert ops(fast) == [b"0,"]


def test_end_that_comes_first_waits_until_the_broker_knows(make_world: Callable[..., Any]) -> None:
    world = make_world(FAST)
    world.pass_time(100)
    half = prepare(world)
    world.close()
    world.open()
    header = EndTransactionRequest(
        "PG", half.queue_offset, decode_message_id(half.msg_id)[1], COMMIT, ""
    )
    response = world.dispatch(new_request(RequestCode.END_TRANSACTION, header))
    assert not response.done and bodies(world) == []
    world.pass_time(100)
    assert response.value.code == 0 and bodies(world) == [b"x"]


def test_counts_are_as_rocketmq_keeps_them(fast: Any) -> None:
    halves = [prepare(fast, b"%d" % number) for number in range(3)]
    end(fast, halves[0])
    end(fast, halves[1], ROLL_BACK)
    assert fast.broker.half_counts.open_counts() == {"T": 1}
    fast.close()
    fast.open()
    assert fast.broker.half_counts.open_counts() == {"T": 1}


def test_delayed_message_is_delayed_from_its_commit_on(fast: Any) -> None:
    half = prepare(fast, DELAY="2")
    fast.pass_time(2_000)
    assert end(fast, half).code == 0
    assert end(fast, half).code == 0
    fast.pass_time(4_900)
    assert bodies(fast) == []
    fast.pass_time(200)
    assert bodies(fast) == [b"x"]


def test_operators_see_open_transactions_and_their_ends(fast: Any) -> None:
    halves = [prepare(fast, b"%d" % number) for number in range(4)]
    fast.pass_time(2_000)
    end(fast, halves[0])
    end(fast, halves[1], ROLL_BACK)
    shown = runtime_table(fast.broker, fast.now_ms)
    assert (shown["transactionsOpen"], shown["transactionsAsked"]) == ("2", "0")
    fast.pass_time(8_000)
    shown = runtime_table(fast.broker, fast.now_ms)
    assert (shown["transactionsOpen"], shown["transactionsAsked"]) == ("0", "6")
    assert shown["transactionsGivenUp"] == "2"
    text = render(CounterSnapshot.read_counters(fast.broker, fast.now_ms), "")[0].decode()
    lines = [line for line in text.splitlines() if 'topic="T"' in line]
    values = {line.split("{")[0]: line.rsplit(" ", 1)[1] for line in lines}
    assert values["rocketmq_half_messages"] == "2.0"
    assert values["rocketmq_commit_messages_total"] == "1.0"
    assert values["rocketmq_rollback_messages_total"] == "1.0"
    assert values["rocketmq_finish_message_latency_milliseconds_sum"] == "2.0"


def test_deposed_master_writes_no_op_message(fast: Any) -> None:
    end(fast, prepare(fast))
    before = fast.broker.store.max_log_offset
    fast.broker.role.become_replica(1)
    fast.broker.transaction_checks.step(fast.now_ms)
    fast.broker.transactions.write_ops(fast.now_ms)
    assert fast.broker.store.max_log_offset == before


def test_master_without_a_lease_writes_none_either(fast: Any) -> None:
    end(fast, prepare(fast))
    before = fast.broker.store.max_log_offset
    fast.broker.role.admit_append = lambda waits=True: PutStatus.SERVICE_NOT_AVAILABLE
    fast.pass_time(5_000)
    assert fast.broker.store.max_log_offset == before
    del fast.broker.role.admit_append
    fast.pass_time(100)
    assert ops(fast) == [b"0,"]
