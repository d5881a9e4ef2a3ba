"""Backlogs that are due when a broker starts, for attacks.py.

Owns how each backlog is made: which configuration, which messages, how long until all of them are
due, and how many of them the broker has delivered. It must never measure anything. A backlog is
made by a broker that is stopped after that, so that all of it is due at once when the next broker
starts.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Final, Self

from turbopump.net.transport.client import Client
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, encode, new_request
from turbopump.net.wire.headers.offsets import GetMaxOffsetRequest
from turbopump.net.wire.headers.pop import PopMessageRequest
from turbopump.net.wire.headers.send import SendMessageRequest
from turbopump.net.wire.message import encode_batch
from turbopump.net.wire.properties import encode_properties

GROUP: Final = "attackers"
TOPIC: Final = "Waiting"
RETRY: Final = "%RETRY%{}_Filled"
_AT_ONCE: Final = 1_000
"""Requests that are sent before their answers are read."""
_POPPED: Final = 32
_CALLERS: Final = 32
"""Clients that pop at a time."""
_INVISIBLE_MS: Final = 90_000


@dataclass(frozen=True, slots=True)
class Backlog:
    """`fill` makes a share of it at a broker's address; `due_s` later all of it is due. `conf` are
    lines of the brokers' file. `arrive` are the topics that receive the messages when they are
    delivered, each with the number of messages, for a share; without topics it stays a backlog."""

    fill: Callable[[str, float], Coroutine[None, None, None]]
    due_s: float
    conf: str = ""
    arrive: Callable[[float], dict[str, int]] = lambda share: {}

    async def left(self, address: str, share: float) -> int:
        """Number of messages that are not delivered yet."""
        left = 0
        async with _Caller(address) as caller:
            for topic, count in self.arrive(share).items():
                left += count
                for queue_id in range(4):
                    response = await caller.ask(
                        RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequest(topic, queue_id)
                    )
                    left -= int((response.fields or {}).get("offset", 0))
        return left


class _Caller(Client):
    """A client of a broker."""

    def __init__(self, address: str) -> None:
        super().__init__(lambda: time.time_ns() // 1_000_000)
        self._address = address

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def ask(self, code: int, header: object, body: bytes = b"") -> Command:
        """The answer to a request."""
        return await self.call(self._address, new_request(code, header, body), 60_000)


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
            response = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            assert b'"code":0' in response, response[:500]
    writer.close()
    await writer.wait_closed()


def _messages(count: int, **properties: str) -> Callable[[str, float], Coroutine[None, None, None]]:
    return lambda address, share: ask_all(address, _sends(int(count * share), **properties))


def _groups(count: int, share: float) -> list[str]:
    return [f"popper{at}" for at in range(max(1, int(count * share)))]


def _popped(messages: int, groups: int) -> Callable[[str, float], Coroutine[None, None, None]]:
    """Messages of a topic that each group pops and never acknowledges; the share is one of the
    messages for one group, else one of the groups.
    """

    async def fill(address: str, share: float) -> None:
        async with _Caller(address) as caller:
            count = _count(messages, groups, share)
            body = encode_batch((0, b"x" * 100, b"") for _ in range(min(500, count)))
            for at in range(max(1, count // 500)):
                header = SendMessageRequest(
                    GROUP, "Filled", "TBW102", 4, at % 4, 0, 0, 0, properties="", batch=True
                )
                response = await caller.ask(RequestCode.SEND_MESSAGE, header, body)
                assert response.code == ResponseCode.SUCCESS, response.remark
            names = iter(_groups(groups, share) * (_CALLERS if groups == 1 else 1))
            await asyncio.gather(*(_pop_all(caller, names) for _ in range(_CALLERS)))

    return fill


async def _pop_all(caller: _Caller, groups: Iterator[str]) -> None:
    """Pop for each group until nothing is left."""
    for group in groups:
        code: int = ResponseCode.SUCCESS
        while code == ResponseCode.SUCCESS:
            header = PopMessageRequest(group, "Filled", -1, _POPPED, _INVISIBLE_MS, 0, 0, 0)
            code = (await caller.ask(RequestCode.POP_MESSAGE, header)).code


def _count(messages: int, groups: int, share: float) -> int:
    return max(500, int(messages * share) // 500 * 500) if groups == 1 else messages


def _revived(messages: int, groups: int) -> Callable[[float], dict[str, int]]:
    return lambda share: {
        RETRY.format(group): _count(messages, groups, share) for group in _groups(groups, share)
    }


BACKLOGS: Final[dict[str, Backlog]] = {
    "halves": Backlog(
        _messages(100_000, TRAN_MSG="true", PGROUP=GROUP),
        due_s=4,
        conf="transactionTimeOut=3000\ntransactionCheckInterval=1000\n",
    ),
    "delays": Backlog(
        _messages(150_000, DELAY="1"),
        due_s=121,
        conf="messageDelayLevel=2m\n",
        arrive=lambda share: {TOPIC: int(150_000 * share)},
    ),
    # A group that acknowledges nothing, and new groups that each need a retry topic.
    "pops": Backlog(_popped(400_000, 1), due_s=90, arrive=_revived(400_000, 1)),
    "groups": Backlog(_popped(_POPPED, 1_000), due_s=90, arrive=_revived(_POPPED, 1_000)),
}
"""Backlogs by the name of the attack."""
