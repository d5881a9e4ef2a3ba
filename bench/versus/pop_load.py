"""Pops and acknowledgements: messages of any queue, each acknowledged by a separate request.

Owns the frames of `pop_load.c`, and the messages that it pops. It must never know the broker's
kind. To run it by hand: `python -m bench.versus.pop_load PORT`.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.versus.filter_load import Connection, connect

from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, encode, new_request
from turbopump.net.wire.headers.pop import PopMessageRequest
from turbopump.net.wire.headers.send import SendMessageRequestV2
from turbopump.net.wire.message import encode_batch

SOURCE: Final = Path(__file__).resolve().with_suffix(".c")
TOPIC: Final = "Popped"
GROUP: Final = "versus-pop"
QUEUES: Final = 8
CONNECTIONS: Final = 16
BATCH: Final = 500
TRIES, RETRY_S = 1_000, 0.02
"""Attempts of each request of the fill, and their interval."""
BODY: Final = b"x" * 128
BORN: Final = "0" * 13
ACK: Final = (
    '{"code":200051,"flag":0,"language":"JAVA","opaque":%u,"serializeTypeCurrentRPC":"JSON",'
    '"version":513,"extFields":{"consumerGroup":"' + GROUP + '","topic":"' + TOPIC + '",'
    '"queueId":"%s","extraInfo":"%s %s","offset":"%s"}}'
)
"""A format of opaque, queue id, handle without offset, and offset twice."""


@dataclass(frozen=True)
class Handled:
    """Result of a run; latencies of pops."""

    messages_per_s: float
    messages: int
    refused: int
    p50_us: float
    p99_us: float


def build(folder: Path) -> Path:
    """Compile the load."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "pop_load"
    command = ["gcc", "-O2", "-o", program, SOURCE]
    subprocess.run(list(map(str, command)), check=True)
    return program


class _Asked:
    """Sends requests to a broker, each until it succeeds.

    A connection that the broker closes is opened again; its last request may then be executed
    twice.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._connection: Connection | None = None
        self.cuts = 0

    async def ask(self, make: Callable[[], Command]) -> None:
        last: object = None
        for _ in range(TRIES):
            try:
                self._connection = self._connection or await connect(self._address)
                last = await self._connection.ask(make())
                if last.code == 0:
                    return
            except (OSError, asyncio.IncompleteReadError) as error:
                last, self._connection = error, None
                self.cuts += 1
            await asyncio.sleep(RETRY_S)  # RocketMQ is sometimes busy
        raise RuntimeError(f"{self._address} refuses the messages to be popped: {last}")


async def _fill(port: int, count: int) -> int:
    broker = _Asked(f"127.0.0.1:{port}")
    fields = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": str(QUEUES)}
    fields |= {"writeQueueNums": str(QUEUES), "perm": "6", "topicFilterType": "SINGLE_TAG"}
    fields |= {"topicSysFlag": "0", "order": "false"}
    await broker.ask(lambda: new_request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields=fields))
    body = encode_batch((0, BODY, f"UNIQ_KEY\x01{at:032d}\x02".encode()) for at in range(BATCH))
    for number in range(count // BATCH):
        header = SendMessageRequestV2(
            "versus", TOPIC, "TBW102", 4, number % QUEUES, 0, 1, 0, batch=True
        )
        await broker.ask(partial(new_request, RequestCode.SEND_BATCH_MESSAGE, header, body))
    return broker.cuts


def fill(port: int, count: int) -> int:
    """Send `count` messages, in batches, to all queues of the topic.

    Returns how often the broker closed the connection. Raises RuntimeError if it keeps refusing.
    """
    return asyncio.run(_fill(port, count))


def handle(
    program: Path,
    port: int,
    size: int,
    duration_s: float,
    invisible_ms: int,
    *,
    acks: bool = True,
    broker: str = "broker-a",
) -> Handled:
    """Pop `size` messages at a time and acknowledge each (`acks`).

    It ends after some seconds, or when no message is left.
    """
    header = PopMessageRequest(
        GROUP, TOPIC, -1, size, invisible_ms, 0, 0, 0, "TAG", "*", order=False
    )
    request = new_request(RequestCode.POP_MESSAGE, header)
    request.fields["bornTime"] = BORN
    frame = b"".join(map(bytes, encode(request)))
    born_at = frame.index(b'"bornTime":"') + len('"bornTime":"')
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pop").write_bytes(frame)
        Path(folder, "ack").write_text(ACK if acks else "")
        line = [program, port, CONNECTIONS, "pop", "ack", born_at, duration_s, broker]
        done = subprocess.run(
            list(map(str, line)), cwd=folder, check=True, stdout=subprocess.PIPE, text=True
        )
    found = json.loads(done.stdout)
    rate = found["messages"] / found["seconds"]
    return Handled(rate, found["messages"], found["refused"], found["p50_us"], found["p99_us"])


def main() -> None:
    """Measure by hand."""
    port = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        fill(port, 400_000)
        for size in (32, 1):
            print(size, handle(program, port, size, 5.0, 60_000))


if __name__ == "__main__":
    main()
