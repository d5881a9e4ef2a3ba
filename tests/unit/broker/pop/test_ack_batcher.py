"""Acknowledgements of one check point share a record, and none is lost when a record is full.

Whole brokers: tests/unit/broker/handlers/pop/test_pops.py, tests/unit/broker/pop/test_full_disk.py
"""

from typing import Any

import pytest

from turbopump.broker.pop import ack_batcher
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import PutStatus, QueueOffset
from turbopump.net.wire.pop_records import Acknowledgement, CheckPointKey

KEY = CheckPointKey("T", "g", 0, QueueOffset(0), 1, "broker-a")


class Log:
    """A revive log that notes each acknowledgement with its invisible time."""

    def __init__(self) -> None:
        self.written: list[tuple[tuple[int, ...], int]] = []
        self.fails = False

    def add_ack(self, ack: Acknowledgement, invisible_ms: int, *_rest: Any) -> Deferred[PutStatus]:
        if self.fails and ack.key == KEY:
            raise RuntimeError("planted")
        self.written.append((ack.queue_offsets, invisible_ms))
        written: Deferred[PutStatus] = Deferred()
        written.resolve(PutStatus.PUT_OK)
        return written


def test_a_full_record_and_another_time_are_written_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ack_batcher, "MESSAGES_MAX", 2)
    log: Any = Log()
    batcher = ack_batcher.AckBatcher(log, lambda _flush: None, lambda: 1)
    responses = [batcher.add(KEY, QueueOffset(number), 900, 0) for number in range(3)]
    assert log.written == [((0, 1), 900)]
    responses.append(batcher.add(KEY, QueueOffset(3), 800, 0))
    batcher.write_collected()
    assert log.written == [((0, 1), 900), ((2,), 900), ((3,), 800)]
    assert all(response.value is PutStatus.PUT_OK for response in responses)


@pytest.mark.logs_tracebacks
def test_an_error_answers_its_acknowledgements_and_no_others() -> None:
    log: Any = Log()
    log.fails = True
    batcher = ack_batcher.AckBatcher(log, lambda _flush: None, lambda: 1)
    other = KEY._replace(queue_id=1)
    responses = [batcher.add(key, QueueOffset(0), 900, 0) for key in (KEY, other)]
    batcher.write_collected()
    assert [one.value for one in responses] == [PutStatus.UNKNOWN_ERROR, PutStatus.PUT_OK]
