"""Pulls with an expression of SQL92 that matches 1 % of the messages.

Owns the pulls of that load. It must never know the broker's kind. To run it by hand:
`python -m bench.versus.filter_load HOST:PORT`.
"""

import asyncio
import sys
import time
from dataclasses import dataclass
from typing import Final

from bench.versus import connections
from bench.versus.connections import BATCH, QUEUES, connect

from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.headers.pull import SUBSCRIPTION_FLAG, PullMessageRequest

TOPIC: Final = "Filtered"
EVERY: Final = 100
PROPERTIES: Final = [f"price\x01{at}\x02region\x01north\x02" for at in range(EVERY)]
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


async def _read_queue(address: str, queue_id: int, end: int) -> tuple[int, int]:
    """Read a queue up to queue offset `end` through the filter: (number of examined messages,
    number of matching messages)."""
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


async def _read_filtered(address: str, count: int) -> Scanned:
    """Read all queues at the same time, see `read_filtered`."""
    begin = time.perf_counter()
    each = count // BATCH // QUEUES * BATCH
    parts = await asyncio.gather(*(_read_queue(address, one, each) for one in range(QUEUES)))
    took_s = time.perf_counter() - begin
    looked_at = sum(part[0] for part in parts)
    return Scanned(looked_at / took_s, looked_at, sum(part[1] for part in parts))


def fill_topic(address: str, count: int) -> None:
    """Send `count` messages, in batches, to all queues of the topic."""
    connections.fill_topic(address, TOPIC, count, PROPERTIES)


def read_filtered(address: str, count: int) -> Scanned:
    """Read `count` messages through the filter, with a connection for each queue."""
    return asyncio.run(_read_filtered(address, count))


if __name__ == "__main__":
    fill_topic(sys.argv[1], 400_000)
    print(read_filtered(sys.argv[1], 400_000))
