"""Sends the rows of a partition as messages, and waits for the brokers; runs in Spark's workers.

Owns this room's only access to brokers: no other module of spark/ imports net.client. It must never
lose a row: it returns when each row is stored as safely as the broker promises, and raises
otherwise.

Delivery is at least once: a task that Spark repeats sends all of its rows again.

Tests: tests/unit/spark/sink/test_writer.py
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from turbopump.net.client.credentials import Credentials
from turbopump.net.client.errors import InvalidArgument
from turbopump.net.client.messages import Message, SendResult, SendStatus
from turbopump.net.client.options import ClientOptions, ProducerOptions
from turbopump.net.client.producer import Producer
from turbopump.net.wire.properties import RESERVED

BATCH_MESSAGES, BATCH_BYTES = 64, 64 << 10
"""Messages and bytes of bodies in a batch of small messages, at most; they share the cost of a
request."""
ALONE_BYTES = 4 << 10
"""Bytes of a body that is sent alone, at least, because only single messages are compressed."""
RETRIES = 1 << 30
"""Tries of a send: no limit, so that only the timeout ends it: a master's stop or death costs
several."""
TRY_TIMEOUT_MS = 3_000
"""Timeout per try: a master that hangs has a successor before the timeout of the whole send."""


@dataclass(frozen=True, slots=True)
class Target:
    """Destination and limits of a write; picklable."""

    namesrv: str
    """`host:port` of the name servers, separated by ";"."""
    topic: str | None
    """Topic of all rows; None: each row has it in the column `topic`."""
    group: str
    """Producer group."""
    tls: bool | str
    """See ClientOptions.tls."""
    timeout_ms: int
    """Timeout per send with all its tries; a failover must fit."""
    in_flight: int
    """Unanswered requests per task, at most."""
    credentials: Credentials | None = None
    """Name and secret that sign the requests; None: requests are unsigned."""


class BadCredentials(Exception):
    """Credentials that cannot be used; the text names their file or variable."""


def credentials_of(path: str) -> Credentials | None:
    """Return the credentials of the file `path`; if it is empty, of this process's environment (see
    Credentials.from_environment), None without them. Raises BadCredentials."""
    try:
        return Credentials.from_file(path) if path else Credentials.from_environment()
    except InvalidArgument as error:
        raise BadCredentials(str(error)) from None
    except OSError as error:
        raise BadCredentials(f"{path}: {error.strerror or error}") from None


class NotSafe(Exception):
    """A message was stored less safely than the broker is configured to keep it."""


def send_rows(target: Target, batches: Iterable[pa.RecordBatch]) -> int:
    """Send all rows as messages, wait until all are stored, and return their number; blocks, with
    an event loop of its own.

    Raises InvalidArgument for a row that is no message, NotSafe, and a producer's BrokerError,
    RouteNotFound and RemotingError.
    """
    return asyncio.run(_send_rows(target, batches))


async def _send_rows(target: Target, batches: Iterable[pa.RecordBatch]) -> int:
    """Send all rows, batch by batch, and return their number."""
    sent = 0
    producer: Producer | None = None
    async with AsyncExitStack() as stack:
        # No request is in flight while the next batch is fetched, because that blocks this thread
        # for as long as Spark needs to compute it.
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
                        client_options=ClientOptions(
                            tls=target.tls, credentials=target.credentials
                        ),
                    )
                )
            await _send_messages(
                producer, list(make_messages(batch, target.topic)), target.in_flight
            )
            sent += batch.num_rows
    return sent


async def _send_messages(producer: Producer, rows: Sequence[Message], in_flight: int) -> None:
    """Send messages, at most `in_flight` requests at a time; raises the first failure."""
    gate = asyncio.Semaphore(in_flight)

    async def run(requests: Sequence[Sequence[Message]]) -> None:
        """Send the requests of a chain one after another."""
        for request in requests:
            async with gate:
                alone = len(request) == 1
                sending = producer.send(request[0]) if alone else producer.send_batch(request)
                _check_safe(await sending)

    try:
        async with asyncio.TaskGroup() as tasks:
            for requests in request_chains(rows):
                tasks.create_task(run(requests))
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


def _check_safe(result: SendResult) -> None:
    """Raises NotSafe unless the message was stored as safely as configured."""
    if result.status is not SendStatus.SEND_OK:
        raise NotSafe(
            f"a message of {result.queue.topic} was stored by {result.queue.broker_name}, which"
            f" answered {result.status.value}"
        )


def request_chains(rows: Iterable[Message]) -> Iterator[list[list[Message]]]:
    """Yield chains of requests, each a list of messages; a chain's requests are sent in sequence.

    Messages with the same sharding key form a chain, so they are stored in order. Other chains have
    one request: a batch of small messages to one topic, or a single message.
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


def make_messages(batch: pa.RecordBatch, topic: str | None) -> Iterator[Message]:
    """Yield a message for each row, in order; `topic` None: the row names it. Raises
    InvalidArgument, with the row in its text."""
    for row in batch.to_pylist():
        try:
            yield _make_message(row, topic)
        except InvalidArgument as error:
            shown = {name: value for name, value in row.items() if name != "body"}
            raise InvalidArgument(f"{error}: the row {shown}") from None


def _make_message(row: Mapping[str, Any], topic: str | None) -> Message:
    """Make the message of a row; raises InvalidArgument."""
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
        # RocketMQ's own properties describe the message that was read, not the new one.
        properties={
            name: value for name, value in row.get("properties") or () if name not in RESERVED
        },
        delay_level=row.get("delay_level") or 0,
        flag=row.get("flag") or 0,
        sharding_key=row.get("sharding_key") or "",
    )
