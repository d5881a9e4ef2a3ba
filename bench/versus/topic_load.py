"""Creates topics at a broker, at a fixed rate or as fast as possible.

It uses updateTopic, or a send to an unknown topic. Owns the frames and the connections of that
load. It must never know the broker's kind. To run it by hand: `python -m bench.versus.topic_load
--help`.
"""

import argparse
import asyncio
import itertools
import json
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

UPDATE_TOPIC, UPDATE_TOPICS, SEND = 17, 18, 10
LISTED = 500
"""Topics in a request that makes many."""
QUEUES = 4
VERSION = 493  # MQVersion V5_5_0
BODY = b"x" * 128
KINDS = ("update", "send")


@dataclass(frozen=True)
class Created:
    """Result of making some topics; latencies in milliseconds."""

    topics_per_s: float
    p50_ms: float
    p99_ms: float
    worst_ms: float


def frame(kind: str, topic: str, opaque: int) -> bytes:
    """Encode the request that makes a topic."""
    if kind == "list":
        code, fields = UPDATE_TOPICS, {}
        body = json.dumps(
            {
                "topicConfigList": [
                    {
                        "topicName": f"{topic}_{one}",
                        "readQueueNums": QUEUES,
                        "writeQueueNums": QUEUES,
                        "perm": 6,
                        "topicFilterType": "SINGLE_TAG",
                        "topicSysFlag": 0,
                        "order": False,
                    }
                    for one in range(LISTED)
                ]
            }
        ).encode()
    elif kind == "update":
        code, body = UPDATE_TOPIC, b""
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(QUEUES),
            "writeQueueNums": str(QUEUES),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
    else:
        code, body = SEND, BODY
        fields = {
            "producerGroup": "versus",
            "topic": topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": str(QUEUES),
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": str(int(time.time() * 1000)),
            "flag": "0",
            "properties": "",
            "reconsumeTimes": "0",
            "unitMode": "false",
            "batch": "false",
        }
    header = json.dumps(
        {
            "code": code,
            "language": "JAVA",
            "version": VERSION,
            "opaque": opaque,
            "flag": 0,
            "extFields": fields,
            "serializeTypeCurrentRPC": "JSON",
        }
    ).encode()
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


class _Maker(asyncio.Protocol):
    """A connection that makes the next topic once the last request was answered."""

    def __init__(
        self,
        next_frame: Callable[[], bytes | None],
        begin_s: Callable[[], float],
        done: asyncio.Future[None],
    ) -> None:
        self.took_s: list[float] = []
        self._next = next_frame
        self._begin_s = begin_s
        self._done = done
        self._got = bytearray()
        self._begun = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._got += data
        while len(self._got) >= 4 and len(self._got) >= (
            size := 4 + int.from_bytes(self._got[:4], "big")
        ):
            header_size = int.from_bytes(self._got[5:8], "big")
            response = json.loads(self._got[8 : 8 + header_size])
            del self._got[:size]
            if response["code"] != 0:
                self._fail(RuntimeError(f"{response['code']} {response.get('remark')}"))
                return
            self.took_s.append(time.perf_counter() - self._begun)
            self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error or ConnectionError("the broker closed the connection"))

    def _ask(self) -> None:
        wait_s = self._begin_s() - time.perf_counter()
        if wait_s > 0:
            asyncio.get_running_loop().call_later(wait_s, self._ask_now)
        else:
            self._ask_now()

    def _ask_now(self) -> None:
        self._begun = time.perf_counter()
        request = self._next()
        if request is not None:
            self._transport.write(request)
        elif not self._done.done():
            self._done.set_result(None)

    def _fail(self, error: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(error)


async def _create(
    address: str, kind: str, first: int, count: int, connections: int, rate: float, limit_s: float
) -> Created:
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    numbers = iter(range(first, first + count))

    def next_frame() -> bytes | None:
        late = limit_s and time.perf_counter() - begin > limit_s
        number = None if late else next(numbers, None)
        return None if number is None else frame(kind, f"Created_{number}", number)

    begin = time.perf_counter()
    turns = itertools.count()

    def begin_s() -> float:
        return begin + next(turns) / rate if rate else 0.0

    makers, waited = [], []
    for _ in range(connections):
        done = loop.create_future()
        make = partial(_Maker, next_frame, begin_s, done)
        _, maker = await loop.create_connection(make, host, int(port))
        makers.append(maker)
        waited.append(done)
    await asyncio.gather(*waited)
    took_s = time.perf_counter() - begin
    latencies = sorted(one for maker in makers for one in maker.took_s)
    for maker in makers:
        maker._transport.abort()
    return Created(
        len(latencies) / took_s,
        latencies[len(latencies) // 2] * 1e3,
        latencies[len(latencies) * 99 // 100] * 1e3,
        latencies[-1] * 1e3,
    )


def create(
    address: str,
    kind: str,
    first: int,
    count: int,
    connections: int,
    rate: float = 0.0,
    limit_s: float = 0.0,
) -> Created:
    """Make the topics `Created_<first>` and following.

    With `rate`, that many per second; with `limit_s`, at most for that time. Each connection waits
    for its answer.
    """
    return asyncio.run(_create(address, kind, first, count, connections, rate, limit_s))


def fill(address: str, count: int) -> None:
    """Make `count` topics before the measurement, many per request."""
    create(address, "list", 10_000_000, -(-count // LISTED), 1)


def main() -> None:
    """Measure by hand."""
    parser = argparse.ArgumentParser(prog="python -m bench.versus.topic_load")
    parser.add_argument("address", help="host:port of a broker")
    parser.add_argument("--kind", choices=KINDS, default="update")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument(
        "--rate", type=float, default=0.0, help="topics a second; 0: as fast as possible"
    )
    chosen = parser.parse_args()
    print(
        create(
            chosen.address, chosen.kind, chosen.first, chosen.count, chosen.connections, chosen.rate
        )
    )


if __name__ == "__main__":
    main()
