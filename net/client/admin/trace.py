"""Message traces: what clients of RocketMQ write of sends and deliveries, as records.

Owns the text forms of RocketMQ's TraceDataEncoder (messages.md 8.6) and what belongs to one
message. It must never ask a broker. Called by the admin client with the messages of a trace topic.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from turbopump.net.client.admin.results import Result
from turbopump.net.client.messages import ReceivedMessage

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
RECORDS_MAX: Final = 10_000
"""Records that are read of one message; a client writes some hundred."""

_FIELD, _RECORD = "\x01", "\x02"
_MESSAGE_TYPES: Final = ("NORMAL", "HALF", "COMMIT", "DELAY", "ORDER")
_OUTCOMES: Final = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")
"""What a consumer made of a message (ConsumeReturnType), by SubAfter's context code."""


@dataclass(frozen=True, slots=True)
class TraceRecord(Result):
    """One step of a message: Pub, SubBefore, SubAfter, EndTransaction or Recall. What a kind does
    not say is empty or None; `group` is of the producer or the consumer."""

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
    """What messages of a trace topic say of the message with that id, or of those with that key.

    The end of a delivery that says neither its time nor its group (traces for CLOUD) has them from
    its begin, and what says no client's host from the message that brought it.
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
    """The records of a trace message's body; those that cannot be read are left out."""
    for part in text.split(_RECORD, RECORDS_MAX)[:RECORDS_MAX]:
        kind, _, rest = part.partition(_FIELD)
        read = _READERS.get(kind)
        if read is not None:
            try:
                yield read(_Fields(rest))
            except ValueError:
                continue


class _Fields:
    """The fields of a record behind its kind; one that is missing or `null` is empty."""

    def __init__(self, text: str) -> None:
        self._fields = text.split(_FIELD, 20)

    def __len__(self) -> int:
        return len(self._fields)

    def text(self, number: int) -> str:
        found = self._fields[number] if number < len(self._fields) else ""
        return "" if found == "null" else found

    def whole(self, number: int) -> int | None:
        """Raises ValueError."""
        found = self.text(number)
        return int(found[:20]) if found else None

    def flag(self, number: int) -> bool:
        return self.text(number).lower() == "true"

    def one_of(self, number: int, names: tuple[str, ...]) -> str:
        at = self.whole(number)
        return names[at] if at is not None and 0 <= at < len(names) else ""


def _pub(fields: _Fields) -> TraceRecord:
    # Old clients say no offsetMsgId.
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
"""Of steps within one millisecond."""
