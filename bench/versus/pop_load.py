"""Pops and acknowledgements: messages of any queue, each acknowledged by a request of its own.

Owns the frames and the connections of that load; an answer is looked at no more than is needed to
acknowledge what it has. It must never know which broker it loads. Called by the runs, and by hand:
`python -m bench.versus.pop_load HOST:PORT`.
"""

import asyncio
import itertools
import json
import struct
import sys
import time
from dataclasses import dataclass
from typing import Any, Final

from bench.versus.filter_load import connect

from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.headers.send import SendMessageRequestV2
from turbopump.net.wire.message import encode_batch

TOPIC: Final = "Popped"
GROUP: Final = "versus-pop"
QUEUES: Final = 8
CONNECTIONS: Final = 16
BATCH: Final = 500
BODY: Final = b"x" * 128
INVISIBLE_MS: Final = 60_000
_NOTHING: Final = {209, 210, 19}
"""Codes of pops that found nothing."""


@dataclass(frozen=True)
class Handled:
    """What a run gave."""

    messages_per_s: float
    messages: int


async def _fill(address: str, count: int) -> None:
    connection = await connect(address)
    fields = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": str(QUEUES)}
    fields |= {"writeQueueNums": str(QUEUES), "perm": "6", "topicFilterType": "SINGLE_TAG"}
    fields |= {"topicSysFlag": "0", "order": "false"}
    made = await connection.ask(new_request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields=fields))
    assert made.code == 0, made.remark
    body = encode_batch((0, BODY, f"UNIQ_KEY\x01{at:032d}\x02".encode()) for at in range(BATCH))
    for number in range(count // BATCH):
        header = SendMessageRequestV2(
            "versus", TOPIC, "TBW102", 4, number % QUEUES, 0, 1, 0, batch=True
        )
        while True:  # RocketMQ says now and then that it is busy
            request = new_request(RequestCode.SEND_BATCH_MESSAGE, header, body)
            if (await connection.ask(request)).code == 0:
                break
            await asyncio.sleep(0.01)


def _frame(code: int, opaque: int, fields: str) -> bytes:
    header = (
        f'{{"code":{code},"flag":0,"language":"JAVA","opaque":{opaque},'
        f'"serializeTypeCurrentRPC":"JSON","version":513,"extFields":{{{fields}}}}}'
    ).encode()
    return struct.pack(">II", 4 + len(header), len(header)) + header


class _Consumer:
    """One connection, which has one pop or its acknowledgements under way."""

    def __init__(self, address: str, count: int) -> None:
        self._address = address
        self._count = count
        self._opaques = itertools.count(1)
        self.handled = 0

    async def run(self, end_s: float, acks: bool) -> None:
        """Until that time of the steady clock, or until nothing is left."""
        host, _, port = self._address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 22)
        while time.perf_counter() < end_s:
            writer.write(self._pop())
            header, _ = await self._answer(reader)
            if header["code"] in _NOTHING:
                break
            assert header["code"] == 0, header
            frames = self._acks(header["extFields"])
            if acks:
                writer.write(b"".join(frames))
                for _ in frames:
                    answered, _ = await self._answer(reader)
                    assert answered["code"] == 0, answered
            self.handled += len(frames)
        writer.close()

    def _pop(self) -> bytes:
        return _frame(
            200050,
            next(self._opaques),
            f'"consumerGroup":"{GROUP}","topic":"{TOPIC}","queueId":"-1",'
            f'"maxMsgNums":"{self._count}","invisibleTime":"{INVISIBLE_MS}",'
            f'"pollTime":"0","bornTime":"{int(time.time() * 1000)}",'
            f'"initMode":"0","exp":"*","expType":"TAG","order":"false"',
        )

    def _acks(self, fields: dict[str, str]) -> list[bytes]:
        starts = {}
        for part in fields["startOffsetInfo"].split(";"):
            kind, queue_id, start = part.split(" ")
            starts[kind, queue_id] = start
        name = fields.get("brokerName", "broker-a")
        found = []
        for part in fields["msgOffsetInfo"].split(";"):
            kind, queue_id, offsets = part.split(" ")
            handle = (
                f"{starts[kind, queue_id]} {fields['popTime']} {fields['invisibleTime']}"
                f" {fields['reviveQid']} {kind} {name} {queue_id}"
            )
            found += [
                _frame(
                    200051,
                    next(self._opaques),
                    f'"consumerGroup":"{GROUP}","topic":"{TOPIC}","queueId":"{queue_id}",'
                    f'"extraInfo":"{handle} {offset}","offset":"{offset}"',
                )
                for offset in offsets.split(",")
            ]
        return found

    @staticmethod
    async def _answer(reader: asyncio.StreamReader) -> tuple[dict[str, Any], bytes]:
        size = int.from_bytes(await reader.readexactly(4), "big")
        frame = await reader.readexactly(size)
        header_size = int.from_bytes(frame[1:4], "big")
        return json.loads(frame[4 : 4 + header_size]), frame[4 + header_size :]


async def _handle(address: str, count: int, duration_s: float, acks: bool) -> Handled:
    consumers = [_Consumer(address, count) for _ in range(CONNECTIONS)]
    begin_s = time.perf_counter()
    await asyncio.gather(*(one.run(begin_s + duration_s, acks) for one in consumers))
    took_s = time.perf_counter() - begin_s
    handled = sum(one.handled for one in consumers)
    return Handled(handled / took_s, handled)


def fill(address: str, count: int) -> None:
    """Send so many messages, in batches, to all queues of the topic."""
    asyncio.run(_fill(address, count))


def handle(address: str, count: int, duration_s: float, *, acks: bool = True) -> Handled:
    """Pop `count` messages at a time for some seconds, and acknowledge each (`acks`)."""
    return asyncio.run(_handle(address, count, duration_s, acks))


if __name__ == "__main__":
    fill(sys.argv[1], 400_000)
    for size in (32, 1):
        print(size, handle(sys.argv[1], size, 5.0))
