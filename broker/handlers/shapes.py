"""Shapes that several admin answers share: maps by queue, topic lists, bodies that must fit.

Owns their RocketMQ forms (maps whose keys are MessageQueue beans are written raw, as every Java
peer expects them). It must never read a table of the broker. Called by the admin handlers.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from turbopump.engine.fastjson import RawKeys
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import FRAME_MAX, Command, response
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.topics import DataVersion

MAX_BODY: Final = FRAME_MAX - (64 << 10)
"""Bytes of an answer's body: a frame less a header, so that a too large answer becomes an error
that says so instead of a closed connection."""

MAX_PAGE: Final = 2_000
"""Entries of one page (RocketMQ: splitMetadataSize); some 300 KB of topics."""

QUEUES_OF_STEP: Final = 64
"""Queues that are looked at in one step, some 30 us each."""

MAX_LISTED: Final = 10_000
"""Topics or groups that one request creates: what is done with all of them at once takes 20 ms."""


def answer_json(request: Command, value: Any, header: Any = None) -> Command:
    """Success with a JSON body; error 1 where the body does not fit into a frame."""
    body = bodies.dump(value)
    if len(body) > MAX_BODY:
        remark = f"the answer of {len(body)} bytes does not fit into one frame"
        return response(request, ResponseCode.SYSTEM_ERROR, remark)
    return response(request, ResponseCode.SUCCESS, header=header, body=body)


def answer_in_steps(
    request: Command,
    value: Any,
    header: Any = None,
    *,
    kept: bodies.KeptBody | None = None,
    key: object = None,
) -> bodies.Steps[Command]:
    """As `answer_json`, in steps; with `kept` the body is made once for each `key`."""
    body = yield from (kept or bodies.KeptBody()).dump_in_steps(key, value, MAX_BODY)
    if body is None:
        return too_long(request)
    return response(request, ResponseCode.SUCCESS, header=header, body=body)


def too_long(request: Command) -> Command:
    """Error 1: the body does not fit into a frame."""
    remark = f"the answer of over {MAX_BODY} bytes does not fit into one frame"
    return response(request, ResponseCode.SYSTEM_ERROR, remark)


class Pace:
    """Says when a step has looked at QUEUES_OF_STEP queues, or groups, and when an answer that is
    gathered before it is written has become too long: a peer may ask for gigabytes."""

    def __init__(self) -> None:
        self._count = 0
        self._size = 0

    def writes(self, size: int) -> None:
        """The body has so many bytes more, at least."""
        self._size += size

    @property
    def is_too_long(self) -> bool:
        """Whether the body cannot fit into a frame."""
        return self._size > MAX_BODY

    def is_over(self) -> bool:
        """One more is looked at; whether the step ends with it."""
        self._count += 1
        return self._count % QUEUES_OF_STEP == 0


def queue_key(topic: str, broker_name: str, queue_id: int) -> str:
    """The key of a queue in such a map."""
    return MessageQueue(topic, broker_name, queue_id).bean_key()


def by_queue_in_steps(
    topic: str, broker_name: str, values: Mapping[int, Any]
) -> bodies.Steps[RawKeys]:
    """A map MessageQueue -> value of one topic on this broker, from one by queue id."""
    found = RawKeys()
    for queue_id, value in values.items():
        found[queue_key(topic, broker_name, queue_id)] = value
        if len(found) % bodies.READ == 0:
            yield
    return found


def topic_list(topics: Iterable[str], broker_address: str | None = None) -> dict[str, Any]:
    """The bean of RocketMQ's TopicList."""
    return {"brokerAddr": broker_address, "topicList": sorted(topics)}


def page(
    names: Iterable[str],
    first: int | None,
    limit: int | None,
    asked_version: str | None,
    version: DataVersion,
) -> list[str]:
    """The names of one page of a sorted table; `first` and `limit` None mean the whole table.

    An asker that names another DataVersion than the table's begins again at 0: the table changed
    since its first page (RocketMQ: splitMetadataSize).
    """
    everything = sorted(names)
    if first is None or limit is None:
        return everything
    begin = 0 if _is_other(asked_version, version) else max(first, 0)
    size = min(limit, MAX_PAGE) if limit > 0 else MAX_PAGE
    return everything[begin : begin + size]


def _is_other(asked: str | None, current: DataVersion) -> bool:
    if not asked:
        return False  # a first page, which begins at 0 by itself
    try:
        return DataVersion.decode(asked.encode()) != current
    except bodies.BadBody:
        return True
