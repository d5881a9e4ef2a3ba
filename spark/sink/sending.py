"""Rows to messages, sent and awaited: what a Python worker of Spark does with its partition.

Owns the one place of this room that talks to brokers: of all of spark/ only this module imports
net.client. It must never leave a row unanswered: it returns when each of its rows is stored as
safely as the broker promises, and raises otherwise. Called by `writer`, in workers.

At least once: a task that is tried again sends all of its rows again.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from turbopump.net.client.errors import InvalidArgument
from turbopump.net.client.messages import Message, SendResult, SendStatus
from turbopump.net.client.options import ClientOptions
from turbopump.net.client.producer import Producer, ProducerOptions
from turbopump.net.wire.properties import RESERVED

BATCH_MESSAGES, BATCH_BYTES = 64, 64 << 10
"""Of small messages that travel as one request: what a request costs is shared."""
ALONE_BYTES = 4 << 10
"""A body from here on travels alone, for alone it is compressed."""
RETRIES = 1 << 30
"""The time alone decides: a master that stops, or dies under a send, costs several tries."""
TRY_TIMEOUT_MS = 3_000
"""A master that stands still has a successor before the time of a send is over."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go; a plain value."""

    namesrv: str
    topic: str | None
    """None: each row names its own."""
    group: str
    tls: bool | str
    timeout_ms: int
    """Bound of one send with all its tries: a failover must fit."""
    in_flight: int
    """Requests of a task that wait for their answers, at most."""


class NotSafe(Exception):
    """A message was stored, but not as safely as the broker is set to keep it."""


def send_rows(target: Target, batches: Iterable[pa.RecordBatch]) -> int:
    """Send all rows; how many. Raises InvalidArgument for a row that is no message, BrokerError,
    RouteNotFound and RemotingError as a producer does, NotSafe."""
    return asyncio.run(_send_rows(target, batches))


async def _send_rows(target: Target, batches: Iterable[pa.RecordBatch]) -> int:
    sent = 0
    producer: Producer | None = None
    async with AsyncExitStack() as stack:
        # Nothing is in flight while Spark is asked for rows: that blocks this thread for as long as
        # Spark needs to make them.
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if producer is None:
                producer = await stack.enter_async_context(
                    Producer(
                        target.group,
                        target.namesrv,
                        options=ProducerOptions(
                            target.timeout_ms,
                            retries=RETRIES,
                            retries_to_queue=RETRIES,
                            try_timeout_ms=min(TRY_TIMEOUT_MS, target.timeout_ms),
                        ),
                        client_options=ClientOptions(tls=target.tls),
                    )
                )
            await _send_messages(producer, list(messages(batch, target.topic)), target.in_flight)
            sent += batch.num_rows
    return sent


async def _send_messages(producer: Producer, rows: Sequence[Message], in_flight: int) -> None:
    gate = asyncio.Semaphore(in_flight)

    async def run(requests: Sequence[Sequence[Message]]) -> None:
        """One behind the other."""
        for request in requests:
            async with gate:
                alone = len(request) == 1
                sending = producer.send(request[0]) if alone else producer.send_batch(request)
                _check(await sending)

    try:
        async with asyncio.TaskGroup() as tasks:
            for requests in chains(rows):
                tasks.create_task(run(requests))
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


def _check(result: SendResult) -> None:
    if result.status is not SendStatus.SEND_OK:
        raise NotSafe(
            f"a message of {result.queue.topic} was stored by {result.queue.broker_name}, which"
            f" answered {result.status.value}"
        )


def chains(rows: Iterable[Message]) -> Iterator[list[list[Message]]]:
    """Requests, each a list of messages; those of one chain are sent one behind the other.

    Messages of one sharding key are a chain, so that they are stored in their order. Others are
    chains of one request: small ones of a topic together, else alone.
    """
    keyed: dict[tuple[str, str], list[list[Message]]] = {}
    small: dict[str, list[Message]] = {}
    room: dict[str, int] = {}
    for row in rows:
        if row.sharding_key:
            keyed.setdefault((row.topic, row.sharding_key), []).append([row])
            continue
        size = len(row.body)
        if size >= ALONE_BYTES or row.delay_level or row.topic.startswith("%"):
            yield [[row]]
            continue
        waiting = small.setdefault(row.topic, [])
        if waiting and (len(waiting) == BATCH_MESSAGES or room[row.topic] < size):
            yield [waiting]
            waiting = small[row.topic] = []
        if not waiting:
            room[row.topic] = BATCH_BYTES
        waiting.append(row)
        room[row.topic] -= size
    for waiting in small.values():
        yield [waiting]
    yield from keyed.values()


def messages(batch: pa.RecordBatch, topic: str | None) -> Iterator[Message]:
    """A message of each row. Raises InvalidArgument."""
    for row in batch.to_pylist():
        try:
            yield _message(row, topic)
        except InvalidArgument as error:
            shown = {name: value for name, value in row.items() if name != "body"}
            raise InvalidArgument(f"{error}: the row {shown}") from None


def _message(row: Mapping[str, Any], topic: str | None) -> Message:
    body, keys = row["body"], row.get("keys") or ()
    own = row.get("topic") if topic is None else topic
    if not own:
        raise InvalidArgument("a row names no topic")
    if not body:
        raise InvalidArgument("a message needs a body")
    return Message(
        own,
        body.encode() if isinstance(body, str) else body,
        tags=row.get("tags") or "",
        keys=keys.split() if isinstance(keys, str) else tuple(keys),
        # RocketMQ's own tell of the message that was read, not of the one that is sent.
        properties={
            name: value for name, value in row.get("properties") or () if name not in RESERVED
        },
        delay_level=row.get("delay_level") or 0,
        flag=row.get("flag") or 0,
        sharding_key=row.get("sharding_key") or "",
    )
