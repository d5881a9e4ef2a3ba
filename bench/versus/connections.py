"""Requests to a broker beside the measured load: topics, messages to consume, offsets.

Owns the connections of these requests. It must never measure anything.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, decode, encode, new_request
from turbopump.net.wire.headers.send import SendMessageRequestV2
from turbopump.net.wire.message import encode_batch

QUEUES: Final = 8
"""Queues of each topic that a load makes."""
BATCH: Final = 500
BODY: Final = b"x" * 128
TRIES, RETRY_S = 1_000, 0.02
"""Attempts of each request of `fill_topic`, and their interval."""


class Connection:
    """A connection to a broker, with one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, request: Command) -> Command:
        """Send a request and return its answer."""
        self._writer.write(b"".join(map(bytes, encode(request))))
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return decode(size.to_bytes(4, "big") + await self._reader.readexactly(size))


async def connect(address: str) -> Connection:
    """Connect to HOST:PORT. Raises OSError."""
    host, _, port = address.rpartition(":")
    return Connection(*await asyncio.open_connection(host, int(port), limit=1 << 22))


class _RetryingConnection:
    """Sends requests to a broker, each until it succeeds.

    A connection that the broker closes is opened again; its last request may then be executed
    twice.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._connection: Connection | None = None
        self.cuts = 0

    async def ask_until_success(self, make: Callable[[], Command]) -> Command:
        """Send the request that `make` makes until it succeeds, at most TRIES times.
        Raises RuntimeError."""
        last: object = None
        for _ in range(TRIES):
            try:
                self._connection = self._connection or await connect(self._address)
                last = await self._connection.ask(make())
                if last.code == 0:
                    return last
            except (OSError, asyncio.IncompleteReadError) as error:
                last, self._connection = error, None
                self.cuts += 1
            await asyncio.sleep(RETRY_S)  # RocketMQ is sometimes busy
        raise RuntimeError(f"{self._address} refuses a request: {last}")


def topic_request(topic: str, queues: int = QUEUES) -> Command:
    """The request that makes a topic."""
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues)}
    fields |= {"writeQueueNums": str(queues), "perm": "6", "topicFilterType": "SINGLE_TAG"}
    fields |= {"topicSysFlag": "0", "order": "false"}
    return new_request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields=fields)


def ask_until_success(address: str, make: Callable[[], Command]) -> Command:
    """Send the requests that `make` makes until one succeeds, and return its answer.

    Raises RuntimeError if the broker keeps refusing.
    """
    return asyncio.run(_RetryingConnection(address).ask_until_success(make))


async def _fill_topic(address: str, topic: str, count: int, properties: Sequence[str]) -> int:
    """Make the topic and send the messages, see `fill_topic`; return the number of lost
    connections."""
    broker = _RetryingConnection(address)
    await broker.ask_until_success(partial(topic_request, topic))
    body = encode_batch(
        (0, BODY, f"UNIQ_KEY\x01{at:032d}\x02{properties[at % len(properties)]}".encode())
        for at in range(BATCH)
    )
    for number in range(count // BATCH):
        header = SendMessageRequestV2(
            "versus", topic, "TBW102", 4, number % QUEUES, 0, 1, 0, batch=True
        )
        await broker.ask_until_success(
            partial(new_request, RequestCode.SEND_BATCH_MESSAGE, header, body)
        )
    return broker.cuts


def fill_topic(address: str, topic: str, count: int, properties: Sequence[str] = ("",)) -> int:
    """Make a topic and send `count` messages, in batches, to all its queues; their further
    properties are `properties` in turn.

    Returns how often the broker closed the connection. Raises RuntimeError if it keeps refusing.
    """
    return asyncio.run(_fill_topic(address, topic, count, properties))


async def _count_stored(address: str, topic: str, queues: int) -> int:
    connection, count = await connect(address), 0
    for queue_id in range(queues):
        fields = {"topic": topic, "queueId": str(queue_id), "committed": "true"}
        response = await connection.ask(new_request(RequestCode.GET_MAX_OFFSET, fields=fields))
        assert response.code == 0, response.remark
        count += int(response.fields["offset"])
    return count


def count_stored(address: str, topic: str, queues: int = QUEUES) -> int:
    """Return the number of messages in the queues of a topic."""
    return asyncio.run(_count_stored(address, topic, queues))
