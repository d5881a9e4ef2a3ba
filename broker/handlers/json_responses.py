"""JSON forms that several admin answers share: maps by queue, topic lists, size limits.

Owns their RocketMQ forms (maps whose keys are MessageQueue beans are written raw, as every Java
peer expects them). It must never read a table of the broker.

Tests: tests/unit/broker/handlers/hostile/test_long_answers.py
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from turbopump.engine.fastjson import RawKeys
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import MAX_BODY, Command, new_response
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.topics import DataVersion

MAX_PAGE: Final = 2_000
"""Maximum entries of a page (RocketMQ: splitMetadataSize); some 300 KB of topics."""

QUEUES_PER_STEP: Final = 64
"""Queues or groups that one step of a handler processes, some 30 us each: see `StepCounter`."""

MAX_LISTED: Final = 10_000
"""Maximum topics or groups that one request (18, 225) creates or changes: the work on all of them
together takes 20 ms."""


def json_response(request: Command, value: Any, header: Any = None) -> Command:
    """Build the answer with `value` as JSON body and the dataclass `header`, if any, as fields:
    success, or error 1 if the body does not fit into a frame."""
    body = bodies.encode_json(value)
    if len(body) > MAX_BODY:
        remark = f"the answer of {len(body)} bytes does not fit into one frame"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    return new_response(request, ResponseCode.SUCCESS, header=header, body=body)


def response_in_steps(
    request: Command,
    value: Any,
    header: Any = None,
    *,
    kept: bodies.KeptBody | None = None,
    key: object = None,
) -> bodies.Steps[Command]:
    """Return the answer that `json_response` returns, in steps; yields between pieces of the body.
    With `kept`, a body encoded before for an equal `key` is used instead of `value`; key None
    encodes it each time."""
    body = yield from (kept or bodies.KeptBody()).dump_in_steps(key, value, MAX_BODY)
    if body is None:
        return too_long(request)
    return new_response(request, ResponseCode.SUCCESS, header=header, body=body)


def too_long(request: Command) -> Command:
    """Build the answer with error 1: the body does not fit into a frame."""
    remark = f"the answer of over {MAX_BODY} bytes does not fit into one frame"
    return new_response(request, ResponseCode.SYSTEM_ERROR, remark)


class StepCounter:
    """Counter for an answer that is collected in steps: ends a step after QUEUES_PER_STEP queues or
    groups, and detects when the answer has become too long before its encoding: a peer may ask for
    gigabytes."""

    def __init__(self) -> None:
        self._count = 0
        self._size = 0

    def add_size(self, size: int) -> None:
        """Add `size`, a lower bound of the bytes just collected for the body."""
        self._size += size

    @property
    def is_too_long(self) -> bool:
        """Whether the collected bytes exceed MAX_BODY, the maximum body of a frame."""
        return self._size > MAX_BODY

    def count_and_check(self) -> bool:
        """Count one more queue or group, and return whether the step ends with it: the caller
        yields. Call it once for each."""
        self._count += 1
        return self._count % QUEUES_PER_STEP == 0


def queue_key(topic: str, broker_name: str, queue_id: int) -> str:
    """The JSON text of a queue's MessageQueue bean, for a key of RawKeys."""
    return MessageQueue(topic, broker_name, queue_id).bean_key()


def queue_map_in_steps(
    topic: str, broker_name: str, values: Mapping[int, Any]
) -> bodies.Steps[RawKeys]:
    """Return `values`, by queue id of a topic on this broker, as a map by `queue_key`; yields after
    each `bodies.READ` values."""
    found = RawKeys()
    for queue_id, value in values.items():
        found[queue_key(topic, broker_name, queue_id)] = value
        if len(found) % bodies.READ == 0:
            yield
    return found


def topic_list(topics: Iterable[str], broker_address: str | None = None) -> dict[str, Any]:
    """Build the JSON form of RocketMQ's TopicList, its topics sorted."""
    return {"brokerAddr": broker_address, "topicList": sorted(topics)}


def page_of_names(
    names: Iterable[str],
    first: int | None,
    limit: int | None,
    asked_version: str | None,
    version: DataVersion,
) -> list[str]:
    """Return, sorted, at most `limit` (and MAX_PAGE) of the names, from index `first` on; all names
    if `first` or `limit` is None. A limit of 0 or less means MAX_PAGE.

    If `asked_version`, the DataVersion of the request as JSON, is given and differs from `version`,
    the table has changed since the first page, and the pages begin again at 0 (RocketMQ:
    splitMetadataSize).
    """
    everything = sorted(names)
    if first is None or limit is None:
        return everything
    begin = 0 if _is_other_version(asked_version, version) else max(first, 0)
    size = min(limit, MAX_PAGE) if limit > 0 else MAX_PAGE
    return everything[begin : begin + size]


def _is_other_version(asked: str | None, current: DataVersion) -> bool:
    """Whether `asked`, a DataVersion as JSON, differs from `current`; True if it is malformed,
    False without it."""
    if not asked:
        return False  # a first page, which begins at 0 anyway
    try:
        return DataVersion.decode(asked.encode()) != current
    except bodies.BadBody:
        return True
