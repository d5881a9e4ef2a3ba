"""Scripted peers, and the loads that connect to them."""

import json
import select
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from turbopump.pyx.load import Load

MAGIC = 0xDAA320A7
BODY = b"body"
SECOND_NS = 1_000_000_000
NEVER_NS = 15 * SECOND_NS  # a test that comes here has failed


def framed(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def answer(opaque: int, code: int = 0, next_offset: int | None = None, body: bytes = b"") -> bytes:
    fields = {} if next_offset is None else {"nextBeginOffset": str(next_offset)}
    return answer_with(opaque, code, fields, body)


def answer_with(opaque: int, code: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    header = {"code": code, "extFields": fields, "flag": 1, "opaque": opaque, "remark": f"r{code}"}
    return framed(json.dumps(header, separators=(",", ":")).encode(), body)


def records(count: int) -> bytes:
    head = struct.pack(">IIiiqqi", MAGIC, 0, 0, 0, 0, 0, 0)
    rest = head + struct.pack(">q8sq8siqi", 5, b"", 0, b"", 0, 0, 1) + b"x\x01T\x00\x00"
    return (struct.pack(">i", 4 + len(rest)) + rest) * count


SEND_HEADER = (
    b'{"code":310,"extFields":{"g":"1000000000000","i":"000000000000"},"opaque":1000000000}'
)
PULL_HEADER = b'{"code":11,"extFields":{"queueOffset":"0"},"opaque":1000000000}'


def row_of(texts: bytes, at: int, header: bytes) -> tuple[int, int, int, int, int, int, int, int]:
    born, serial = header.find(b"1000000000000"), header.find(b"000000000000")
    offset = header.find(b'"0"')
    places = (header.rfind(b"1000000000"), born, -8, serial if born >= 0 else -8)
    if born >= 0:
        places = (*places[:3], header.find(b'"i":"') + 5)
    offset = -8 if offset < 0 else offset + 1
    found = [0 if place < 0 else place + 8 for place in (*places, offset)]
    return (at, len(header) + 8, found[0], found[1], found[2], found[3], found[4], 0)


SEND_TEXT = framed(SEND_HEADER + b"")
SEND_TEXT = struct.pack(">i", len(SEND_TEXT) - 4 + len(BODY)) + SEND_TEXT[4:]
TEXTS = SEND_TEXT + framed(PULL_HEADER)
ROWS = [row_of(TEXTS, 0, SEND_HEADER), row_of(TEXTS, len(SEND_TEXT), PULL_HEADER)]


@dataclass
class Request:
    code: int
    opaque: int
    queue_offset: int
    number: int
    body: bytes
    fields: dict[str, str]


Script = Callable[[Request], bytes | None]


@dataclass
class Peer:
    """A server that answers requests from a script; a None closes the connection and sets
    `gone`."""

    script: Script
    chunk: int = 1 << 20
    requests: list[Request] = field(default_factory=list)
    gone: threading.Event = field(default_factory=threading.Event)

    def serve(self, end: socket.socket) -> None:
        data = b""
        try:
            while received := end.recv(self.chunk):
                data += received
                while len(data) >= 4 and len(data) - 4 >= int.from_bytes(data[:4], "big"):
                    size = int.from_bytes(data[:4], "big") + 4
                    frame, data = data[:size], data[size:]
                    reply = self.script(self._request(frame))
                    if reply is None:
                        end.shutdown(socket.SHUT_RDWR)
                        self.gone.set()
                        return
                    for at in range(0, len(reply), self.chunk):
                        end.sendall(reply[at : at + self.chunk])
        except OSError:
            pass  # the load ended first

    def _request(self, frame: bytes) -> Request:
        size = int.from_bytes(frame[5:8], "big")
        header = json.loads(frame[8 : 8 + size])
        offset = int(header["extFields"].get("queueOffset", -1))
        number, body, fields = len(self.requests), frame[8 + size :], header["extFields"]
        made = Request(header["code"], header["opaque"], offset, number, body, fields)
        self.requests.append(made)
        return made


class Stage:
    """A load and its peers; `run` plays it to the end."""

    def __init__(self, stack: ExitStack, *, texts: bytes = TEXTS, body: bytes = BODY) -> None:
        self._stack = stack
        self._threads: list[threading.Thread] = []
        self.load = Load(texts, ROWS, body, connections=8, queues=8, rows=4)

    def pair(self, peer: Peer) -> socket.socket:
        ours, theirs = socket.socketpair()
        self._stack.enter_context(ours)
        self._stack.enter_context(theirs)
        ours.setblocking(False)
        thread = threading.Thread(target=peer.serve, args=(theirs,))
        self._threads.append(thread)
        self._stack.callback(thread.join)
        self._stack.callback(ours.close)
        return ours

    def send(self, script: Script, window: int = 1, chunk: int = 1 << 20) -> Peer:
        peer = Peer(script, chunk)
        self.load.add_sender(self.pair(peer).fileno(), window, 0, 1)
        return peer

    def pull(self, script: Script, *queues: tuple[int, int], chunk: int = 1 << 20) -> Peer:
        peer = Peer(script, chunk)
        wanted = [(1, begin, end) for begin, end in queues]
        self.load.add_puller(self.pair(peer).fileno(), wanted)
        return peer

    def run(self, **limits: int) -> int:
        self.load.set_limits(
            **{"drain_ns": NEVER_NS, "silence_ns": NEVER_NS, "duration_ns": NEVER_NS, **limits}
        )
        for thread in self._threads:
            thread.start()
        with select.epoll() as epoll:
            return self.load.run(epoll.fileno())

    def errors(self, kind: int) -> dict[int, int]:
        return {code: count for code, count, _ in self.load.counters(kind)["errors"]}


def fine(request: Request) -> bytes:
    return answer(request.opaque)


def backlog(end: int) -> Script:
    """A script of a queue with `end` messages, ten a pull."""

    def script(request: Request) -> bytes:
        count = min(10, end - request.queue_offset)
        if count <= 0:
            return answer(request.opaque, 19, request.queue_offset)
        return answer(request.opaque, 0, request.queue_offset + count, records(count))

    return script
