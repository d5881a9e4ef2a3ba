"""A broker of ours goes on with the transactions of a store that RocketMQ 5.5.0 wrote."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.golden_stores.conftest import GOLDEN, Golden
from tests.unit.broker.conftest import World

from turbopump.broker.scheduled.half_messages import op_message, read_op
from turbopump.broker.scheduled.transaction_outcomes import TransactionOutcome
from turbopump.engine.types import LogOffset, QueueOffset
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.transactions import (
    CheckTransactionStateRequest,
    EndTransactionRequest,
)
from turbopump.net.wire.names import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from turbopump.net.wire.properties import decode_properties
from turbopump.pyx.halves import HalfMarks

BEHIND_MS = 1_795_267_280_000
"""Some seconds after its last half message."""
GIVEN_UP_AT = LogOffset(1_129_135)
"""Log offset of the message that it gave up, a copy of half message 12."""


_KEYS = (
    "brokerName", "mappedFileSizeC", "mappedFileSizeT", "mapperFileSizeB", "maxHashSlotNum",
    "maxIndexNum", "fileReservedTime", "transactionC", "transactionT",
)  # fmt: skip
"""Keys of a store's configuration that such a broker needs."""


class Continued(World):
    """A broker on the unpacked store, when that was written."""

    def __init__(self, golden: Golden, more: str = "") -> None:
        lines = (GOLDEN / f"{golden.name}.conf").read_text().splitlines()
        kept = [line for line in lines if line.startswith(_KEYS)]
        super().__init__(Path(golden.root), "\n".join(kept) + more)

    def open(self) -> None:
        self.now_ms = BEHIND_MS
        super().open()
        self.broker.producers.register(self.client, "client", "PG_tran", self.now_ms)

    @property
    def asked(self) -> list[CheckTransactionStateRequest]:
        """The checks its producer was sent."""
        return [
            read_header(CheckTransactionStateRequest, each.fields)
            for each in self.client._link.sent
            if each.code == RequestCode.CHECK_TRANSACTION_STATE
        ]

    def count(self, topic: str) -> int:
        """Messages of a topic's first queue."""
        return self.broker.store.max_queue_offset(topic, 0)


@pytest.mark.parametrize("name", ["shapes-v4", "shapes-v6"])
def test_op_messages_are_those_rocketmq_writes(unpack: Callable[..., Any], name: str) -> None:
    golden = unpack(name)
    store = golden.open()
    found = [store.record_of(unit) for unit in store.units(OP_TOPIC, 0, QueueOffset(0), 100)]
    assert found
    for record in found:
        marks = HalfMarks(0, 0, 100, lambda: None)
        for at in read_op(record):
            marks.end(at, TransactionOutcome.DONE)
        body, _count, _newest = marks.op_body(4096)
        mine = op_message(body, record.born_timestamp_ms, record.born_host)
        assert (mine.body, mine.properties) == (record.body, record.properties)
    if name == "shapes-v4":
        assert [sorted(read_op(record)) for record in found] == [[0, 1, 2, 3, 4], [8, 9]]
    store.close(BEHIND_MS)


def test_ended_transactions_are_left_alone(unpack: Callable[..., Any]) -> None:
    world = Continued(unpack("shapes-v4"))
    before = world.broker.store.max_log_offset
    world.pass_time(20_000)
    assert world.broker.store.max_log_offset == before and not world.asked
    world.close()


def test_so_it_is_when_the_progress_is_lost(unpack: Callable[..., Any]) -> None:
    """The index finds renewed and given-up half messages, for which RocketMQ writes no op message,
    after the progress was lost.
    """
    golden = unpack("shapes-v4")
    (golden.root / "config" / "consumerOffset.json").unlink()
    (golden.root / "config" / "consumerOffset.json.bak").unlink(missing_ok=True)
    world = Continued(golden)
    counts = [world.count(topic) for topic in (HALF_TOPIC, GIVEN_UP_TOPIC)]
    shown = [world.broker.store.max_queue_offset("Tran", queue_id) for queue_id in range(4)]
    world.pass_time(20_000)
    assert [world.count(topic) for topic in (HALF_TOPIC, GIVEN_UP_TOPIC)] == counts
    after = [world.broker.store.max_queue_offset("Tran", queue_id) for queue_id in range(4)]
    assert after == shown and not world.asked
    assert world.broker.offsets.query(TRANSACTION_GROUP, HALF_TOPIC, 0) == 13
    world.close()


def test_open_transactions_are_checked_and_end(unpack: Callable[..., Any]) -> None:
    """Open half messages are checked and end. (The store is as before RocketMQ gave the last one
    up, and more checks are allowed.)
    """
    golden = unpack("shapes-v4")
    store = golden.open()
    store.truncate(GIVEN_UP_AT, BEHIND_MS)
    store.close(BEHIND_MS)
    (golden.root / "config" / "consumerOffset.json").unlink()
    (golden.root / "config" / "consumerOffset.json.bak").unlink(missing_ok=True)
    world = Continued(golden, "\ntransactionCheckMax=15\n")
    world.pass_time(6_100)
    (asked,) = world.asked
    assert asked.tran_state_table_offset == 13
    renewed = world.broker.store.record(asked.commit_log_offset)
    properties = decode_properties(renewed.properties)
    assert (properties["KEYS"], properties["TRANSACTION_CHECK_TIMES"]) == ("tu-never", "4")
    end = EndTransactionRequest(
        "PG_tran", 13, asked.commit_log_offset, 8, asked.msg_id or "", from_transaction_check=True
    )
    assert world.ask(RequestCode.END_TRANSACTION, end).code == 0
    world.pass_time(10_000)
    assert len(world.asked) == 1
    world.close()
