"""Timers and transactions at a broker, and the lateness of timers at a consumer.

Owns the frames of `later_load.c` and the consumer. It must never know the broker's kind. To run it
by hand: `python -m bench.versus.later_load PORT`.
"""

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, decode, encode, new_request
from turbopump.net.wire.headers.pull import SUBSCRIPTION_FLAG, SUSPEND_FLAG, PullMessageRequest
from turbopump.net.wire.headers.send import SendMessageRequestV2
from turbopump.net.wire.headers.transactions import EndTransactionRequest

SOURCE: Final = Path(__file__).resolve().with_suffix(".c")
TOPIC: Final = "Later"
GROUP: Final = "versus"
QUEUES: Final = 8
CONNECTIONS: Final = 64
BODY: Final = b"x" * 128
UNIQUE: Final = "7F0000010000558C0000"
PULL_SIZE: Final = 32
PULL_MS: Final = 1_000
_FOUND, _NOTHING = 0, (19, 20)
_DUE = re.compile(rb"TIMER_DELIVER_MS\x01([0-9]{13})")
_ZEROS: Final = "0" * 12
_NUMBER: Final = "0" * 19


@dataclass(frozen=True)
class Sent:
    """Result of a load."""

    messages_per_s: float
    taken: int
    refused: int
    p50_us: float
    p99_us: float


@dataclass(frozen=True)
class Lateness:
    """Lateness of timers at consumers, in ms."""

    seen: int
    p50_ms: float
    p99_ms: float
    worst_ms: float
    early: int


def build(folder: Path) -> Path:
    """Compile the load."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "later_load"
    command = ["gcc", "-O2", "-o", program, SOURCE]
    subprocess.run(list(map(str, command)), check=True)
    return program


def _frame(request: Command, *parts: tuple[bytes, int]) -> tuple[bytes, list[str]]:
    """Return the frame, and the position of each part (text, bytes after its start)."""
    frame = b"".join(map(bytes, encode(request)))
    return frame, [str(frame.index(text) + behind) for text, behind in parts]


def _send(properties: str, sys_flag: int) -> Command:
    text = f"UNIQ_KEY\x01{UNIQUE}{_ZEROS}\x02WAIT\x01true\x02{properties}"
    header = SendMessageRequestV2(
        GROUP, TOPIC, "TBW102", 4, 0, sys_flag, int(time.time() * 1000), 0, text
    )
    return new_request(RequestCode.SEND_MESSAGE_V2, header, BODY)


_UNIQUE_PART = (UNIQUE.encode(), len(UNIQUE))
_QUEUE_PART = (b'"e":"0"', 5)
_BORN_PART = (b'"g":"', 5)


def _run(program: Path, port: int, count: int, send: list[str], files: dict[str, bytes]) -> Sent:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            Path(folder, name).write_bytes(content)
        line = [str(program), str(port), str(CONNECTIONS), str(count), *send]
        done = subprocess.run(line, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout)
    rate = found["taken"] / found["seconds"]
    return Sent(rate, found["taken"], found["refused"], found["p50_us"], found["p99_us"])


def send_timers(program: Path, port: int, count: int, due_ms: int, spread_ms: int) -> Sent:
    """Send `count` timers, due at each millisecond from `due_ms` in turn, for `spread_ms`."""
    due = (b"TIMER_DELIVER_MS", len("TIMER_DELIVER_MS") + len("\\u0001"))
    request = _send(f"TIMER_DELIVER_MS\x01{'0' * 13}\x02", 0)
    frame, at = _frame(request, _UNIQUE_PART, _QUEUE_PART, _BORN_PART, due)
    send = ["send", *at, str(due_ms), str(spread_ms)]
    return _run(program, port, count, send, {"send": frame})


def transact(program: Path, port: int, count: int) -> Sent:
    """Send `count` transactions: a half message, and its commit, which is not answered."""
    request = _send(f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02", 4)
    frame, at = _frame(request, _UNIQUE_PART, _QUEUE_PART, _BORN_PART)
    header = EndTransactionRequest(GROUP, 0, 0, 8, UNIQUE + _ZEROS, False, None, TOPIC, "broker")
    end = new_request(RequestCode.END_TRANSACTION, header, oneway=True)
    end.fields["commitLogOffset"] = end.fields["tranStateTableOffset"] = _NUMBER
    end_frame, end_at = _frame(
        end,
        (b'"commitLogOffset":"', len('"commitLogOffset":"')),
        (b'"tranStateTableOffset":"', len('"tranStateTableOffset":"')),
        (b'"msgId":"' + UNIQUE.encode(), len('"msgId":"') + len(UNIQUE)),
    )
    send = ["send", *at, "0", "0", "1", "end", *end_at]
    return _run(program, port, count, send, {"send": frame, "end": end_frame})


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, request: Command) -> Command:
        """Send a request and return its answer."""
        self._writer.write(b"".join(map(bytes, encode(request))))
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return decode(size.to_bytes(4, "big") + await self._reader.readexactly(size))


async def _connect(port: int) -> _Connection:
    return _Connection(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 22))


async def _make_topic(port: int) -> None:
    fields = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": str(QUEUES)}
    fields |= {"writeQueueNums": str(QUEUES), "perm": "6", "topicFilterType": "SINGLE_TAG"}
    fields |= {"topicSysFlag": "0", "order": "false"}
    connection = await _connect(port)
    made = await connection.ask(new_request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields=fields))
    assert made.code == 0, made.remark


async def _stored(port: int, topic: str, queues: int) -> int:
    connection, count = await _connect(port), 0
    for queue_id in range(queues):
        fields = {"topic": topic, "queueId": str(queue_id), "committed": "true"}
        response = await connection.ask(new_request(RequestCode.GET_MAX_OFFSET, fields=fields))
        assert response.code == 0, response.remark
        count += int(response.fields["offset"])
    return count


async def _consume(
    port: int, queue_id: int, late_ms: list[float], until: float, count: int
) -> None:
    connection, at = await _connect(port), 0
    while time.time() < until and len(late_ms) < count:
        flags = SUBSCRIPTION_FLAG | SUSPEND_FLAG
        header = PullMessageRequest(
            GROUP, TOPIC, queue_id, at, PULL_SIZE, flags, 0, PULL_MS, 0, "*", "TAG"
        )
        response = await connection.ask(new_request(RequestCode.PULL_MESSAGE, header))
        now_ms = time.time() * 1000
        if response.code == _FOUND:
            assert not isinstance(response.body, list), "a decoded body is one buffer"
            late_ms += [now_ms - int(due) for due in _DUE.findall(response.body)]
        else:
            assert response.code in _NOTHING, response.remark
        at = int(response.fields["nextBeginOffset"])


async def _watch(port: int, until: float, count: int) -> list[float]:
    late_ms: list[float] = []
    each = (_consume(port, one, late_ms, until, count) for one in range(QUEUES))
    await asyncio.gather(*each)
    return sorted(late_ms)


def make_topic(port: int) -> None:
    """Make the topic for timers and transactions."""
    asyncio.run(_make_topic(port))


def stored(port: int, topic: str = TOPIC, queues: int = QUEUES) -> int:
    """Return the number of messages in the queues of a topic."""
    return asyncio.run(_stored(port, topic, queues))


def watch(port: int, until: float, count: int) -> Lateness:
    """Consume the topic until `count` timers were seen, or until a time (epoch seconds)."""
    late = asyncio.run(_watch(port, until, count)) or [0.0]
    p50, p99 = late[len(late) // 2], late[len(late) * 99 // 100]
    return Lateness(len(late), p50, p99, late[-1], sum(one < -1 for one in late))


def main() -> None:
    """Measure by hand."""
    port = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        make_topic(port)
        print(transact(program, port, 50_000))
        hour_ms = int(time.time() * 1000) + 3_600_000
        print(send_timers(program, port, 50_000, hour_ms, 3_600_000))
        print("stored", stored(port))
        begin = time.time() + 8
        print(send_timers(program, port, 100_000, int(begin * 1000), 5_000))
        print(watch(port, begin + 15, 100_000))


if __name__ == "__main__":
    main()
