"""Backlogs: what a broker finds due when it starts, for attacks.py.

Owns how each backlog is made: which configuration, which messages, and how long until all of them
are due. It must never measure anything. A backlog is made by a broker that is stopped after that,
so that all of it is due at once when the next broker starts.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

from turbopump.net.wire.command import Command, encode
from turbopump.net.wire.properties import encode_properties

GROUP: Final = "attackers"
TOPIC: Final = "Waiting"
_AT_ONCE: Final = 1_000
"""Requests that are sent before their answers are read."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """`fill` makes it at a broker's address; `due_s` later all of it is due. `conf` are lines of
    the brokers' file."""

    fill: Callable[[str], Awaitable[None]]
    due_s: float
    conf: str = ""


def _sends(count: int, **properties: str) -> Iterator[bytes]:
    fields = {
        "producerGroup": GROUP,
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "flag": "0",
    }
    for number in range(count):
        keyed = {"UNIQ_KEY": f"7F000001{number:024X}", **properties}
        more = {
            "bornTimestamp": str(time.time_ns() // 1_000_000),
            "properties": encode_properties(keyed).decode(),
        }
        yield b"".join(encode(Command(10, opaque=7, fields={**fields, **more}, body=b"x" * 100)))


async def ask_all(address: str, requests: Iterator[bytes]) -> None:
    """Send requests over one connection, and read an answer of success to each."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    while some := list(itertools.islice(requests, _AT_ONCE)):
        writer.write(b"".join(some))
        for _ in some:
            answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            assert b'"code":0' in answer, answer[:500]
    writer.close()
    await writer.wait_closed()


def _messages(count: int, **properties: str) -> Callable[[str], Awaitable[None]]:
    return lambda address: ask_all(address, _sends(count, **properties))


BACKLOGS: Final[dict[str, Backlog]] = {
    "halves": Backlog(
        _messages(100_000, TRAN_MSG="true", PGROUP=GROUP),
        due_s=4,
        conf="transactionTimeOut=3000\ntransactionCheckInterval=1000\n",
    ),
    "delays": Backlog(_messages(150_000, DELAY="1"), due_s=121, conf="messageDelayLevel=2m\n"),
}
"""By the name of the attack."""
