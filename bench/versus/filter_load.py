"""Pulls with an expression of SQL92 that matches 1 % of the messages.

Owns the frames and the connections of that load. It must never know the broker's kind. To run it by
hand: `python -m bench.versus.filter_load HOST:PORT`.
"""

import asyncio
import sys
import time
from dataclasses import dataclass
from typing import Final

from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, decode, encode, new_request
from turbopump.net.wire.headers.pull import SUBSCRIPTION_FLAG, PullMessageRequest
from turbopump.net.wire.headers.send import SendMessageRequestV2
from turbopump.net.wire.message import encode_batch

TOPIC: Final = "Filtered"
QUEUES: Final = 8
BATCH: Final = 500
BODY: Final = b"x" * 128
EVERY: Final = 100
EXPRESSION: Final = "price = 7 AND region IS NOT NULL"
PULL_RETRY_IMMEDIATELY: Final = 20
LATE_MAX: Final = 500
"""Pulls of a queue for messages that it does not have yet, at most."""


@dataclass(frozen=True)
class Scanned:
    """Result of reading everything: messages that were examined, and that matched."""

    messages_per_s: float
    looked_at: int
    matched: int


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


async def _fill(address: str, count: int) -> None:
    connection = await connect(address)
    fields = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": str(QUEUES)}
    fields |= {"writeQueueNums": str(QUEUES), "perm": "6", "topicFilterType": "SINGLE_TAG"}
    fields |= {"topicSysFlag": "0", "order": "false"}
    made = await connection.ask(new_request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields=fields))
    assert made.code == 0, made.remark
    batches = [
        encode_batch(
            (
                0,
                BODY,
                f"UNIQ_KEY\x01{at:032d}\x02price\x01{at % EVERY}\x02region\x01north\x02".encode(),
            )
            for at in range(first, first + BATCH)
        )
        for first in range(0, EVERY * BATCH, BATCH)
    ]
    for number in range(count // BATCH):
        header = SendMessageRequestV2(
            "versus", TOPIC, "TBW102", 4, number % QUEUES, 0, 1, 0, batch=True
        )
        body = batches[number % len(batches)]
        response = await connection.ask(new_request(RequestCode.SEND_BATCH_MESSAGE, header, body))
        while response.code:  # RocketMQ is sometimes busy
            await asyncio.sleep(0.01)
            response = await connection.ask(
                new_request(RequestCode.SEND_BATCH_MESSAGE, header, body)
            )


async def _read(address: str, queue_id: int, end: int) -> tuple[int, int]:
    """Return (examined messages, found messages) for a queue."""
    connection, at, found, late = await connect(address), 0, 0, 0
    while at < end:
        header = PullMessageRequest(
            "versus", TOPIC, queue_id, at, 32, SUBSCRIPTION_FLAG, 0, 0, 0, EXPRESSION, "SQL92"
        )
        response = await connection.ask(new_request(RequestCode.PULL_MESSAGE, header))
        if response.code == ResponseCode.PULL_NOT_FOUND and late < LATE_MAX:
            late += 1  # RocketMQ fills its queues after it answers senders
            await asyncio.sleep(0.01)
            continue
        assert response.code in (0, PULL_RETRY_IMMEDIATELY), response.remark
        following = int(response.fields["nextBeginOffset"])
        assert following > at, f"queue {queue_id} stays at {at}"
        found += response.code == 0
        at = following
    return at, found


async def _scan(address: str, count: int) -> Scanned:
    begin = time.perf_counter()
    each = count // BATCH // QUEUES * BATCH
    parts = await asyncio.gather(*(_read(address, one, each) for one in range(QUEUES)))
    took_s = time.perf_counter() - begin
    looked_at = sum(part[0] for part in parts)
    return Scanned(looked_at / took_s, looked_at, sum(part[1] for part in parts))


def fill(address: str, count: int) -> None:
    """Send `count` messages, in batches, to all queues of the topic."""
    asyncio.run(_fill(address, count))


def scan(address: str, count: int) -> Scanned:
    """Read `count` messages through the filter, with a connection for each queue."""
    return asyncio.run(_scan(address, count))


if __name__ == "__main__":
    fill(sys.argv[1], 400_000)
    print(scan(sys.argv[1], 400_000))
