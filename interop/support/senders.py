"""Senders that ask for the route after every error, the acknowledgements, and the stored messages.

Owns the frames, sockets and threads of the senders, without any client library, so that the load is
the same for RocketMQ and for ours. `Ledger` also reads the files that programs in Java and Go
write.
"""

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from interop.support.groups import Response
from interop.support.mqadmin import RAW_KEY

QUEUES = 4
NEW_TOPICS = "TBW102"
SEND, PULL, ROUTE, SUCCESS = 310, 11, 105, 0
SEND_S = 1.0
"""Timeout of a send in seconds. RocketMQ's clients wait 3 s (sendMsgTimeout); a shorter one gives
exact times while a master hangs."""
PAUSE_S = 0.002
"""Pause in seconds after each acknowledged send: without it the load takes most of the processor
time, and shows nothing else."""
AGAIN_S = 0.01
"""Seconds from an error to the next request for the route."""
READ_MAX = 32
"""Greatest number of messages that RocketMQ returns from memory in one pull."""
BODY_SIZE = 128


def now_ms() -> float:
    """Return the clock that the Java and Go clients also use."""
    return time.time_ns() / 1e6


@dataclass
class Found:
    """The result of comparing a ledger with the stored messages."""

    acked: int
    lost: int
    """Acknowledged messages that are nowhere stored."""
    moved: int
    """Messages acknowledged at a place that now holds another message, and found at another
    place."""
    twice: int
    """Places that were acknowledged for two messages."""


@dataclass
class Ledger:
    """The acknowledgements that senders of a topic received: a place is (queue, offset)."""

    topic: str
    file: Path | None = None
    """File with lines of `begun acked queue offset number`, which a program writes at each
    acknowledgement."""
    places: dict[tuple[int, int], int] = field(default_factory=dict)
    numbers: dict[int, tuple[int, int]] = field(default_factory=dict)
    twice: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    first_ms: float | None = None
    """Time of the acknowledgement of the first send that began after `since_ms`."""
    since_ms: float = float("inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _read: int = 0

    def watch(self, since_ms: float) -> None:
        """Forget the last first success, and watch for an acknowledged send that began after
        this."""
        with self._lock:
            self.first_ms, self.since_ms = None, since_ms

    def add(self, begun_ms: float, acked_ms: float, place: tuple[int, int], number: int) -> None:
        """Note an acknowledged send."""
        with self._lock:
            if self.places.setdefault(place, number) != number:
                self.twice += 1
            self.numbers[number] = place
            if self.first_ms is None and begun_ms > self.since_ms:
                self.first_ms = acked_ms

    def refused(self, why: str) -> None:
        """Note a failed send."""
        with self._lock:
            self.errors[why] = self.errors.get(why, 0) + 1

    def refresh(self) -> None:
        """Read the lines that the program wrote since the last call."""
        if self.file is None or not self.file.exists():
            return
        with self.file.open("rb") as opened:
            opened.seek(self._read)
            data = opened.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            begun, acked, queue, offset, number = map(int, line.split())
            self.add(begun, acked, (queue, offset), number)

    def compare(self, there: dict[tuple[int, int], int]) -> Found:
        """Compare with all messages of the topic at a broker."""
        self.refresh()
        numbers = set(there.values())
        lost = sum(number not in numbers for number in self.numbers)
        moved = sum(
            there.get(place) != number and number in numbers
            for number, place in self.numbers.items()
        )
        return Found(len(self.numbers), lost, moved, self.twice)


class Connection:
    """Consecutive requests on one connection; every failure raises OSError or struct.error."""

    def __init__(self, address: str, timeout_s: float = SEND_S) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")
        self._opaque = 0

    def call(self, code: int, fields: dict[str, str], body: bytes = b"") -> Response:
        """Send a request and return the answer."""
        self._opaque += 1
        header = json.dumps(
            {
                "code": code,
                "language": "OTHER",
                "version": 513,
                "opaque": self._opaque,
                "flag": 0,
                "serializeTypeCurrentRPC": "JSON",
                "extFields": fields,
            }
        ).encode()
        size = 4 + len(header) + len(body)
        self._socket.sendall(struct.pack(">II", size, len(header)) + header + body)
        while True:
            size, header_size = struct.unpack(">II", self._exactly(8))
            header_size &= 0xFFFFFF
            response = json.loads(self._exactly(header_size))
            body = self._exactly(size - 4 - header_size)
            if response["flag"] & 1 and response["opaque"] == self._opaque:
                return Response(
                    int(response["code"]),
                    response.get("extFields") or {},
                    body,
                    response.get("remark") or "",
                )

    def _exactly(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise ConnectionResetError("the end of the stream")
        return data

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._socket.close()


@contextmanager
def connected(address: str, timeout_s: float = SEND_S) -> Iterator[Connection]:
    """Open a connection for a block."""
    connection = Connection(address, timeout_s)
    try:
        yield connection
    finally:
        connection.close()


def master_by_route(namesrv: str, topic: str) -> str | None:
    """Return the address of the topic's master by the name server. Raises OSError, struct.error."""
    with connected(namesrv) as connection:
        response = connection.call(ROUTE, {"topic": topic})
    if response.code != SUCCESS:
        return None
    route = json.loads(RAW_KEY.sub(r'\1"\2"\3', response.body.decode()))
    addresses = [row["brokerAddrs"].get("0") for row in route.get("brokerDatas") or []]
    return next((one for one in addresses if one), None)


def send(connection: Connection, topic: str, queue: int, number: int) -> Response:
    """Return the frame of a message."""
    fields = {
        "a": "failover",
        "b": topic,
        "c": NEW_TOPICS,
        "d": str(QUEUES),
        "e": str(queue),
        "f": "0",
        "g": str(time.time_ns() // 1_000_000),
        "h": "0",
        "i": "",
        "j": "0",
        "k": "false",
        "l": "16",
        "m": "false",
    }
    return connection.call(SEND, fields, body_of(number))


def body_of(number: int) -> bytes:
    """Return the body of the message with that number."""
    return b"%d " % number + bytes(BODY_SIZE)


class Senders:
    """Threads, each with one send in flight, until `stop`."""

    def __init__(self, namesrv: str, ledger: Ledger, count: int, timeout_s: float = SEND_S) -> None:
        """`timeout_s` limits the wait for a broker's answer."""
        self._namesrv, self.ledger, self._count = namesrv, ledger, count
        self._timeout_s = timeout_s
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(count)
        ]
        self._crash: BaseException | None = None

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads; raises the error with which a thread ended."""
        self._stopped.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        if self._crash is not None:
            raise self._crash

    def _run(self, own: int) -> None:
        try:
            number = own
            while not self._stopped.is_set():
                number = self._send_on(own, number)
                time.sleep(AGAIN_S)
        except BaseException as error:
            self._crash = error

    def _send_on(self, own: int, number: int) -> int:
        """Send to the master of the route until an error; returns the next number to send."""
        try:
            # As clients do: a topic without a route takes the route of new topics.
            address = master_by_route(self._namesrv, self.ledger.topic) or master_by_route(
                self._namesrv, NEW_TOPICS
            )
            if address is None:
                self.ledger.refused("no route")
                return number
            with connected(address, self._timeout_s) as connection:
                while not self._stopped.is_set():
                    begun, used, number = now_ms(), number, number + self._count
                    response = send(connection, self.ledger.topic, own % QUEUES, used)
                    if response.code != SUCCESS:
                        self.ledger.refused(str(response.code))
                        break
                    place = (int(response.fields["queueId"]), int(response.fields["queueOffset"]))
                    self.ledger.add(begun, now_ms(), place, used)
                    time.sleep(PAUSE_S)
        except (OSError, struct.error) as error:
            self.ledger.refused(type(error).__name__)
        return number


def read_all(address: str, topic: str, timeout_s: float = 120.0) -> dict[tuple[int, int], int]:
    """Read all places of a topic. Raises AssertionError for a gap."""
    there: dict[tuple[int, int], int] = {}
    deadline = time.monotonic() + timeout_s
    # The first pull of a group waits for a disk; other tests measure how long.
    with connected(address, timeout_s) as connection:
        for queue in range(QUEUES):
            at, end = 0, 1
            while at < end:
                assert time.monotonic() < deadline, f"{topic}: {queue}/{at} of {end}"
                response = connection.call(
                    PULL,
                    {
                        "consumerGroup": "failover-reader",
                        "topic": topic,
                        "queueId": str(queue),
                        "queueOffset": str(at),
                        "maxMsgNums": str(READ_MAX),
                        "sysFlag": "4",
                        "commitOffset": "0",
                        "suspendTimeoutMillis": "0",
                        "subscription": "*",
                        "subVersion": "0",
                        "expressionType": "TAG",
                    },
                )
                if response.code != SUCCESS:
                    time.sleep(AGAIN_S)
                for offset, body in records(response.body) if response.code == SUCCESS else ():
                    assert offset == at, f"{topic}: {queue}/{offset} where {at} comes"
                    there[queue, offset] = int(body.split(b" ", 1)[0])
                    at += 1
                end = int(response.fields["maxOffset"])
    return there


def records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Return the queue offset and body of each record in a pull's answer."""
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        (offset,) = struct.unpack_from(">Q", data, at + 20)
        (flag,) = struct.unpack_from(">I", data, at + 36)
        born = 20 if flag & 0x10 else 8
        stored = 20 if flag & 0x20 else 8
        head = at + 48 + born + 8 + stored + 4 + 8
        (length,) = struct.unpack_from(">I", data, head)
        yield offset, data[head + 4 : head + 4 + length]
        at += size
