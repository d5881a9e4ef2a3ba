"""Ordered batches in the log: a new master, and a broker after a crash, know the batches in flight
(I17)."""

from typing import Any

import pytest
from tests.unit.broker.pop.poppers import Popper

from turbopump.broker.pop.order_info import OrderedBatch
from turbopump.broker.pop.order_journal import REFRESH_MS, body_of, read_record
from turbopump.broker.pop.outstanding import PoppedQueue
from turbopump.broker.pop.revive_log import ReviveLog
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import LogOffset, PutStatus, QueueOffset
from turbopump.net.wire.bodies import BadBody, encode_json
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.headers.pop import ChangeInvisibleTimeRequest
from turbopump.net.wire.pop_handles import PopHandle

LONG_MS = 50_000
QUEUE = PoppedQueue("T", "g", 0)
MEMBERS = {"bn": "broker-a", "c": "g", "t": "T", "q": 0, "o": [3, 1], "popTime": 7, "i": 900}


def bodies(popper: Popper, **changes: Any) -> list[str]:
    return [body for body, _ in popper.pop(order=True, **changes)]


def lead_anew(popper: Popper, saved: int = 0) -> None:
    """Restart as the next master: it has the log, an old copy of the offset, and no file of
    batches."""
    world = popper.world
    world.broker.offsets._committed.restore_entry(("T", "g"), 0, QueueOffset(saved))
    world.close()
    world.open()
    assert world.broker.pop.orders.get(*QUEUE) is None


def test_messages_acknowledged_before_a_switch_are_not_redelivered(popper: Popper) -> None:
    popper.send("a", "b", "c", "d")
    batch = popper.pop(order=True, invisible_time=LONG_MS, max_msg_nums=3)
    for _, handle in (batch[0], batch[2]):
        assert popper.ack(handle).code == ResponseCode.SUCCESS
    lead_anew(popper)
    assert bodies(popper) == []
    assert popper.world.broker.offsets.query("g", "T", 0) == 1
    assert popper.ack(batch[1][1]).code == ResponseCode.SUCCESS
    assert bodies(popper) == ["d"]
    assert popper.world.broker.offsets.query("g", "T", 0) == 3


def test_messages_with_a_consumer_are_given_to_no_other_until_their_time_ends(
    popper: Popper,
) -> None:
    popper.send("a", "b")
    [(_, handle)] = popper.pop(order=True, invisible_time=2_000, max_msg_nums=1)
    lead_anew(popper)
    assert bodies(popper) == []
    popper.world.pass_time(2_000)
    assert bodies(popper, max_msg_nums=1, invisible_time=LONG_MS) == ["a"]
    # the handle is from the pop before
    assert popper.ack(handle).code == ResponseCode.MESSAGE_ILLEGAL
    assert bodies(popper) == []


def test_the_time_of_a_message_that_was_changed_holds(popper: Popper) -> None:
    popper.send("a")
    [(_, handle)] = popper.pop(order=True)
    header = ChangeInvisibleTimeRequest("g", "T", 0, handle, 0, LONG_MS)
    response = popper.world.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
    assert response.code == ResponseCode.SUCCESS
    lead_anew(popper)
    popper.world.pass_time(2_000)
    assert bodies(popper) == []


def test_a_batch_that_is_out_for_long_is_among_the_newest_records(make_world: Any) -> None:
    """The new master reads only the last minute, and many messages are popped meanwhile."""
    popper = Popper(make_world("reviveQueueNum=1\n"))
    popper.send("a", "b")
    batch = popper.pop(order=True, invisible_time=600_000, queue_id=0)
    popper.ack(batch[0][1])
    world = popper.world
    world.pass_time(10 * REFRESH_MS, step_ms=1_000)
    popper.send("x", queue_id=1)
    assert bodies(popper) == ["x"]
    lead_anew(popper)
    assert world.broker.offsets.query("g", "T", 0) == 0
    assert bodies(popper, queue_id=0) == []
    assert world.broker.offsets.query("g", "T", 0) == 1
    log, written = world.broker.pop.log.topic, world.broker.store.max_queue_offset
    popper.ack(batch[1][1])
    world.pass_time(REFRESH_MS)
    end = written(log, 0)
    world.pass_time(2 * REFRESH_MS)
    assert written(log, 0) == end  # without a batch in flight nothing is written


def test_a_queue_that_was_set_back_is_read_from_there(popper: Popper) -> None:
    popper.send("a", "b")
    popper.pop(order=True, invisible_time=LONG_MS)
    world = popper.world
    world.pass_time(100)
    world.broker.offsets.commit("g", "T", 0, QueueOffset(1), world.now_ms)
    world.broker.offsets.commit("g", "T", 0, QueueOffset(0), world.now_ms)
    lead_anew(popper)
    assert bodies(popper) == ["a", "b"]


def test_no_pop_and_no_acknowledgement_is_answered_before_its_record_is_safe(
    make_world: Any,
) -> None:
    world = make_world("flushDiskType=SYNC_FLUSH\n")
    popper = Popper(world)
    popper.send("a", "b")
    world.disk.hold()
    response = popper.request(order=True, max_msg_nums=1, invisible_time=LONG_MS)
    assert isinstance(response, Deferred) and not response.done
    world.disk.release()
    [(body, handle)] = popper.messages(response.value)
    assert body == "a"
    world.disk.hold()
    acked = world.dispatch(popper.acknowledgement(handle))
    again = world.dispatch(popper.acknowledgement(handle))
    assert not acked.done and not again.done
    world.disk.release()
    assert acked.value.code == again.value.code == ResponseCode.SUCCESS


def test_acknowledgements_of_a_batch_request_are_in_the_log_too(popper: Popper) -> None:
    popper.send("a", "b", "c", "d")
    popped = popper.pop(order=True, invisible_time=LONG_MS, max_msg_nums=3)
    handle = PopHandle.parse(popped[0][1])
    entry = {
        "c": "g", "t": "T", "r": "0", "so": handle.start, "q": 0, "rq": handle.revive_queue_id,
        "pt": handle.pop_time_ms, "it": handle.invisible_ms, "b": "Aw==",
    }  # fmt: skip
    body = encode_json({"brokerName": "broker-a", "acks": [entry]})
    response = popper.world.ask(RequestCode.BATCH_ACK_MESSAGE, body=body)
    assert response.code == ResponseCode.SUCCESS
    lead_anew(popper)
    assert bodies(popper) == [] and popper.world.broker.offsets.query("g", "T", 0) == 2
    assert popper.ack(popped[2][1]).code == ResponseCode.SUCCESS
    assert bodies(popper) == ["d"]


def test_unwritable_pops_are_answered_with_an_error_and_popped_again_at_once(
    popper: Popper, monkeypatch: pytest.MonkeyPatch
) -> None:
    popper.send("a")
    refused: Deferred[PutStatus] = Deferred()
    with monkeypatch.context() as failing:
        failing.setattr(ReviveLog, "add_ordered", lambda *_: refused)
        waiting = popper.request(order=True, invisible_time=LONG_MS)
        assert isinstance(waiting, Deferred) and not waiting.done
        refused.resolve(PutStatus.FLUSH_DISK_TIMEOUT)
        assert waiting.value.code == ResponseCode.SYSTEM_ERROR
    [(body, handle)] = popper.pop(order=True, invisible_time=LONG_MS)
    assert body == "a"
    with monkeypatch.context() as failing:
        failing.setattr(ReviveLog, "add_ordered", lambda *_: refused)
        assert popper.ack(handle).code == ResponseCode.SYSTEM_ERROR
        header = ChangeInvisibleTimeRequest("g", "T", 0, handle, 0, LONG_MS)
        response = popper.world.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        assert response.code == ResponseCode.SYSTEM_ERROR
    assert popper.ack(handle).code == ResponseCode.SUCCESS


def test_a_deposed_master_knows_nothing_of_the_next_ones_pops(
    popper: Popper,
) -> None:
    popper.send("a")
    popper.pop(order=True, invisible_time=LONG_MS)
    pop = popper.world.broker.pop
    pop._end_serving()
    assert pop.orders.get(*QUEUE) is None and pop.orders.size == 0
    assert bodies(popper) == []  # the broker is master again: the log has the batch in flight


def test_a_record_is_read_as_it_was_written() -> None:
    offsets = [QueueOffset(3), QueueOffset(4)]
    batch = OrderedBatch(7, 900, offsets, "t" * 300, 7, 1, {QueueOffset(4): 90}, {offsets[0]: 2})
    logged = read_record(body_of(QUEUE, batch, "broker-a"), LogOffset(5))
    batch.attempt_id = None  # clients use no attempt ids of this length
    assert logged == (QUEUE, batch, "broker-a", 5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"o": []},
        {"o": [-1]},
        {"o": [3, -1]},
        {"o": list(range(40))},
        {"o": [1 << 62]},
        {"q": -1},
        {"t": ""},
        {"c": "g" * 300},
        {"a": "x" * 70_000},
    ],
)
def test_bytes_a_client_writes_there_are_no_record(wrong: dict[str, Any]) -> None:
    assert read_record(encode_json(MEMBERS), LogOffset(0)).batch.offsets == [3, 4]
    with pytest.raises(BadBody):
        read_record(encode_json({**MEMBERS, **wrong}), LogOffset(0))
