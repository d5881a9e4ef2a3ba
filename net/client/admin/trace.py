"""Message traces: records of sends and deliveries that RocketMQ's clients write.

Owns the text forms of RocketMQ's TraceDataEncoder (messages.md 8.6) and the choice of the records
of a message. It must never ask a broker.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from turbopump.net.client.admin.results import Result
from turbopump.net.client.messages import ReceivedMessage

RECORDS_MAX: Final = 10_000
"""Maximum number of records read from a trace message; a client writes a few hundred."""

_FIELD, _RECORD = "\x01", "\x02"
_MESSAGE_TYPES: Final = ("NORMAL", "HALF", "COMMIT", "DELAY", "ORDER")
_OUTCOMES: Final = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")
"""Results of a consumption (ConsumeReturnType), by SubAfter's context code."""


@dataclass(frozen=True, slots=True)
class TraceRecord(Result):
    """A step of a message: Pub, SubBefore, SubAfter, EndTransaction or Recall. Fields that a kind
    does not have are empty or None; `group` is the producer's or the consumer's."""

    kind: str
    timestamp_ms: int | None = None
    region: str = ""
    group: str = ""
    topic: str = ""
    message_id: str = ""
    tags: str = ""
    keys: str = ""
    store_host: str = ""
    client_host: str = ""
    body_size: int | None = None
    cost_ms: int | None = None
    message_type: str = ""
    offset_message_id: str = ""
    is_success: bool | None = None
    request_id: str = ""
    retry_times: int | None = None
    outcome: str = ""
    transaction_id: str = ""
    transaction_state: str = ""
    from_check: bool | None = None


@dataclass(frozen=True, slots=True)
class MessageTrace(Result):
    """The answer of queryMsgTrace: the steps of a message, or of all with a key, by time."""

    topic: str
    key: str
    records: list[TraceRecord]


def trace_of(key: str, messages: Iterable[ReceivedMessage]) -> list[TraceRecord]:
    """The steps of the message with that id, or of all messages with that key, from trace messages.

    The end of a delivery may lack time and group (traces for CLOUD): it gets them from the
    delivery's begin. A record without a client host gets it from the message that contained it.
    """
    found = []
    for message in messages:
        for record in read_trace(message.text):
            if key == record.message_id or key in record.keys.split():
                host = record.client_host or message.born_host
                found.append(replace(record, client_host=host))
    begun = {record.request_id: record for record in found if record.kind == "SubBefore"}
    whole = []
    for record in found:
        begin = begun.get(record.request_id)
        if record.kind == "SubAfter" and begin is not None and record.timestamp_ms is None:
            record = replace(record, timestamp_ms=begin.timestamp_ms, group=begin.group)
        whole.append(record)
    return sorted(whole, key=lambda record: (record.timestamp_ms or 0, _ORDER[record.kind]))


def read_trace(text: str) -> Iterator[TraceRecord]:
    """The records of a trace message's body; records that cannot be read are left out."""
    for part in text.split(_RECORD, RECORDS_MAX)[:RECORDS_MAX]:
        kind, _, rest = part.partition(_FIELD)
        read = _READERS.get(kind)
        if read is not None:
            try:
                yield read(_Fields(rest))
            except ValueError:
                continue


class _Fields:
    """The fields of a record after its kind; a missing field and `null` are empty."""

    def __init__(self, text: str) -> None:
        self._fields = text.split(_FIELD, 20)

    def __len__(self) -> int:
        return len(self._fields)

    def text(self, number: int) -> str:
        found = self._fields[number] if number < len(self._fields) else ""
        return "" if found == "null" else found

    def whole(self, number: int) -> int | None:
        """The field as an integer; None if it is empty. Raises ValueError."""
        found = self.text(number)
        return int(found[:20]) if found else None

    def flag(self, number: int) -> bool:
        return self.text(number).lower() == "true"

    def one_of(self, number: int, names: tuple[str, ...]) -> str:
        at = self.whole(number)
        return names[at] if at is not None and 0 <= at < len(names) else ""


def _pub(fields: _Fields) -> TraceRecord:
    # Old clients send no offsetMsgId.
    is_old = len(fields) == 12
    return TraceRecord(
        "Pub",
        timestamp_ms=fields.whole(0),
        region=fields.text(1),
        group=fields.text(2),
        topic=fields.text(3),
        message_id=fields.text(4),
        tags=fields.text(5),
        keys=fields.text(6),
        store_host=fields.text(7),
        body_size=fields.whole(8),
        cost_ms=fields.whole(9),
        message_type=fields.one_of(10, _MESSAGE_TYPES),
        offset_message_id="" if is_old else fields.text(11),
        is_success=fields.flag(11 if is_old else 12),
        client_host=fields.text(13),
    )


def _sub_before(fields: _Fields) -> TraceRecord:
    return TraceRecord(
        "SubBefore",
        timestamp_ms=fields.whole(0),
        region=fields.text(1),
        group=fields.text(2),
        request_id=fields.text(3),
        message_id=fields.text(4),
        retry_times=fields.whole(5),
        keys=fields.text(6),
        client_host=fields.text(7),
    )


def _sub_after(fields: _Fields) -> TraceRecord:
    return TraceRecord(
        "SubAfter",
        request_id=fields.text(0),
        message_id=fields.text(1),
        cost_ms=fields.whole(2),
        is_success=fields.flag(3),
        keys=fields.text(4),
        outcome=fields.one_of(5, _OUTCOMES),
        timestamp_ms=fields.whole(6),
        group=fields.text(7),
    )


def _end_transaction(fields: _Fields) -> TraceRecord:
    return TraceRecord(
        "EndTransaction",
        timestamp_ms=fields.whole(0),
        region=fields.text(1),
        group=fields.text(2),
        topic=fields.text(3),
        message_id=fields.text(4),
        tags=fields.text(5),
        keys=fields.text(6),
        store_host=fields.text(7),
        message_type=fields.one_of(8, _MESSAGE_TYPES),
        transaction_id=fields.text(9),
        transaction_state=fields.text(10),
        from_check=fields.flag(11),
    )


def _recall(fields: _Fields) -> TraceRecord:
    return TraceRecord(
        "Recall",
        timestamp_ms=fields.whole(0),
        region=fields.text(1),
        group=fields.text(2),
        topic=fields.text(3),
        message_id=fields.text(4),
        is_success=fields.flag(5),
    )


_READERS: Final = {
    "Pub": _pub,
    "SubBefore": _sub_before,
    "SubAfter": _sub_after,
    "EndTransaction": _end_transaction,
    "Recall": _recall,
}
_ORDER: Final = {
    kind: place
    for place, kind in enumerate(("Pub", "EndTransaction", "Recall", "SubBefore", "SubAfter"))
}
"""Order of steps within the same millisecond."""
