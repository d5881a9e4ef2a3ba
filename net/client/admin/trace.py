"""Message traces: records of sends and deliveries that RocketMQ's clients write.

Owns the text forms of RocketMQ's TraceDataEncoder (messages.md 8.6) and the choice of the records
of a message. It must never ask a broker.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

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
    """A step of a message. Fields that a kind does not have are empty or None.

    `kind`: Pub (sent), SubBefore and SubAfter (begin and end of a delivery, paired by
    `request_id`), EndTransaction or Recall. `timestamp_ms` is in epoch milliseconds, of the client;
    `cost_ms` the duration of the step; `group` the producer's or the consumer's; `keys` are
    separated by blanks; `body_size` is in bytes; `message_type` is NORMAL, HALF, COMMIT, DELAY or
    ORDER; `outcome` SUCCESS, TIME_OUT, EXCEPTION, RETURNNULL or FAILED; `from_check`: a broker's
    check caused the end of the transaction.
    """

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
    """The answer of queryMsgTrace: the steps of the message with the id `key`, or of all messages
    with that key, by time; `topic` is the trace topic."""

    topic: str
    key: str
    records: list[TraceRecord]


def trace_of(key: str, messages: Iterable[ReceivedMessage]) -> list[TraceRecord]:
    """The steps of the message with the id `key`, or of all messages with that key, from trace
    messages, sorted by time.

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
    """The records of a trace message's body, in its order, at most RECORDS_MAX; records that cannot
    be read are left out."""
    for part in text.split(_RECORD, RECORDS_MAX)[:RECORDS_MAX]:
        kind, _, rest = part.partition(_FIELD)
        form = _FORMS.get(kind)
        if form is not None:
            try:
                yield _make_record(kind, form, _Fields(rest))
            except ValueError:
                continue


class _Fields:
    """The fields of a record after its kind; a missing field and `null` are empty."""

    def __init__(self, text: str) -> None:
        self._fields = text.split(_FIELD, 20)

    def __len__(self) -> int:
        return len(self._fields)

    def text(self, number: int) -> str:
        """Return the field at this index, from 0; "" if it is missing or `null`."""
        found = self._fields[number] if number < len(self._fields) else ""
        return "" if found == "null" else found

    def int_field(self, number: int) -> int | None:
        """The field as an integer; None if it is empty. Raises ValueError."""
        found = self.text(number)
        return int(found[:20]) if found else None

    def bool_field(self, number: int) -> bool:
        """Return whether the field is `true`."""
        return self.text(number).lower() == "true"

    def one_of(self, number: int, names: tuple[str, ...]) -> str:
        """Return the name at the index that the field has; "" if it has none."""
        at = self.int_field(number)
        return names[at] if at is not None and 0 <= at < len(names) else ""


_PARSERS: Final[Mapping[str, Callable[[_Fields, int], Any]]] = {
    **dict.fromkeys(("timestamp_ms", "body_size", "cost_ms", "retry_times"), _Fields.int_field),
    **dict.fromkeys(("is_success", "from_check"), _Fields.bool_field),
    "message_type": partial(_Fields.one_of, names=_MESSAGE_TYPES),
    "outcome": partial(_Fields.one_of, names=_OUTCOMES),
}
"""Parsers of the fields that are not texts."""
_PLACE: Final = ("timestamp_ms", "region", "group", "topic", "message_id")
_SENT: Final = (*_PLACE, "tags", "keys", "store_host")
_FORMS: Final[Mapping[str, tuple[str, ...]]] = {
    "Pub": (
        *_SENT,
        "body_size",
        "cost_ms",
        "message_type",
        "offset_message_id",
        "is_success",
        "client_host",
    ),
    "EndTransaction": (
        *_SENT,
        "message_type",
        "transaction_id",
        "transaction_state",
        "from_check",
    ),
    "Recall": (*_PLACE, "is_success"),
    "SubBefore": (
        "timestamp_ms",
        "region",
        "group",
        "request_id",
        "message_id",
        "retry_times",
        "keys",
        "client_host",
    ),
    "SubAfter": (
        "request_id",
        "message_id",
        "cost_ms",
        "is_success",
        "keys",
        "outcome",
        "timestamp_ms",
        "group",
    ),
}
"""The fields of each kind in their order; within a millisecond, steps are listed by kind."""
_OLD_PUB_FIELDS: Final = 12
"""Number of fields that old clients write, without `offset_message_id`."""
_ORDER: Final = {kind: place for place, kind in enumerate(_FORMS)}


def _make_record(kind: str, form: tuple[str, ...], fields: _Fields) -> TraceRecord:
    """Return the record of this kind, whose fields are in the order of `form`."""
    if kind == "Pub" and len(fields) == _OLD_PUB_FIELDS:
        form = tuple(name for name in form if name != "offset_message_id")
    read = {
        name: _PARSERS.get(name, _Fields.text)(fields, number) for number, name in enumerate(form)
    }
    return TraceRecord(kind, **read)
