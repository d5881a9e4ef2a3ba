"""`python -m bench.idle_clients --clients 10000`: a broker's memory for idle gRPC clients.

Owns the clients: each has a connection, a Telemetry stream with settings like a real client's, and
a heartbeat; half of them produce, half consume. It must never measure its own memory: the broker is
another process, and its anonymous memory is read before and after. Meanwhile another client sends.
The exit status is 1 if a client is not served, or if all of them take more than 200 MB.
"""

import argparse
import asyncio
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.versus.connections import connect
from interop.support.ports import free_port

from turbopump import Message, Producer
from turbopump.net.grpc.codes import ClientType
from turbopump.net.grpc.framing import frame_message
from turbopump.net.grpc.messages import SERVICE, message_class
from turbopump.net.grpc.server import why_no_grpc
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.headers.admin import CreateTopicRequest
from turbopump.pyx.h2 import DATA, H2Session, pairs

MEMORY_MAX_MB: Final = 200.0
WINDOW: Final = 65_535
CONNECTING: Final = 200
"""Clients that connect at the same time."""
SENDS: Final = 500
TOPIC: Final = "topic-0"
SETTLE_S: Final = 3.0
RESPONSE_S: Final = 30.0
TURBOPUMP: Final = str(Path(sys.executable).with_name("turbopump"))


def _call_header(method: str, client_id: str) -> bytes:
    """Encode the header fields of a call of this method, as RocketMQ's Java client sends them."""
    return pairs(
        [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", f"/{SERVICE}/{method}".encode()),
            (b":authority", b"broker"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
            (b"user-agent", b"grpc-java-netty/1.53.0"),
            (b"x-mq-client-id", client_id.encode()),
            (b"x-mq-language", b"JAVA"),
            (b"x-mq-client-version", b"5.2.0"),
            (b"x-mq-protocol", b"v2"),
        ]
    )


def _encode_settings(number: int) -> bytes:
    """Encode a client's settings for its stream."""
    agent = message_class("UA")(language=1, version="5.2.0", platform="Linux", hostname="host")
    topic = {"name": f"topic-{number % 50}"}
    if number % 2:
        fields = {"client_type": ClientType.PRODUCER, "publishing": {"topics": [topic]}}
    else:
        entry = {"topic": topic, "expression": {"type": 1, "expression": "*"}}
        subscription = {"group": {"name": f"group-{number % 100}"}, "subscriptions": [entry]}
        fields = {"client_type": ClientType.SIMPLE_CONSUMER, "subscription": subscription}
    settings = message_class("Settings")(user_agent=agent, **fields)
    settings.request_timeout.seconds = 3
    return frame_message(message_class("TelemetryCommand")(settings=settings).SerializeToString())


class IdleClient:
    """A client that waits on its stream."""

    def __init__(self, port: int, number: int) -> None:
        self._session = H2Session(8, 8_192, WINDOW, WINDOW, client=True)
        self.socket = socket.create_connection(("127.0.0.1", port))
        client_id = f"host@{number}@1@abcdefghij"
        self._stream = self._session.request(
            _call_header("Telemetry", client_id), _encode_settings(number), False
        )
        kind = ClientType.PRODUCER if number % 2 else ClientType.SIMPLE_CONSUMER
        beat = message_class("HeartbeatRequest")(client_type=kind).SerializeToString()
        self._session.request(_call_header("Heartbeat", client_id), frame_message(beat), True)
        self.socket.sendall(self._session.take()[0])
        self.socket.setblocking(False)
        self.responses: set[int] = set()

    def read(self) -> bool:
        """Read the available data; return whether both the Telemetry stream and the
        heartbeat are answered."""
        data = self.socket.recv(WINDOW)
        if not data:
            raise ConnectionError("the broker closed a client")
        for kind, stream, _ in self._session.receive(data)[1]:
            if kind == DATA:
                self.responses.add(stream)
        out = self._session.take()[0]
        if out:
            self.socket.sendall(out)
        return len(self.responses) == 2


def _connect_clients(port: int, count: int) -> list[IdleClient]:
    """Connect `count` clients and wait until they have their settings."""
    clients: list[IdleClient] = []
    for first in range(0, count, CONNECTING):
        waiting = selectors.DefaultSelector()
        some = [IdleClient(port, number) for number in range(first, min(first + CONNECTING, count))]
        for one in some:
            waiting.register(one.socket, selectors.EVENT_READ, one)
        until = time.monotonic() + RESPONSE_S
        while waiting.get_map():
            if time.monotonic() > until:
                raise TimeoutError(f"{len(waiting.get_map())} clients are not answered")
            for key, _ in waiting.select(1):
                if key.data.read():
                    waiting.unregister(key.fileobj)
        waiting.close()
        clients += some
    return clients


@contextmanager
def _start_broker() -> Iterator[tuple[int, int]]:
    """Start a broker; return its port and process id.

    It has its own process, and so the whole limit of open files. Its name server does not exist,
    and the broker keeps trying to reach it.
    """
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        properties = Path(folder, "broker.conf")
        properties.write_text(
            f"brokerName=broker-a\nbrokerIP1=127.0.0.1\nlistenPort={port}\n"
            f"storePathRootDir={folder}/store\nnamesrvAddr=127.0.0.1:1\n"
            "mappedFileSizeCommitLog=16777216\n"
        )
        with Path(folder, "log").open("w") as log:
            command = [TURBOPUMP, "broker", "-c", str(properties)]
            running = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                _await_listening(port)
                yield port, running.pid
            finally:
                running.terminate()
                running.wait()


def _await_listening(port: int) -> None:
    """Wait until the broker accepts connections; raises OSError after ANSWER_S."""
    until = time.monotonic() + RESPONSE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def _anonymous_mb(pid: int) -> float:
    """Anonymous memory of a process in MB (RssAnon)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no RssAnon")


async def _make_topic(port: int) -> None:
    """Make the topic at the broker. Raises RuntimeError."""
    header = CreateTopicRequest(TOPIC, 8, 8, 6, "SINGLE_TAG")
    made = new_request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    response = await (await connect(f"127.0.0.1:{port}")).ask(made)
    if response.code:
        raise RuntimeError(f"the topic is refused: {response.remark}")


async def _send(port: int) -> list[float]:
    """Return the milliseconds of each send of an active client."""
    found = []
    async with Producer(endpoints=f"127.0.0.1:{port}") as producer:
        for number in range(SENDS):
            begun = time.perf_counter()
            await producer.send(Message(TOPIC, b"%d" % number))
            found.append((time.perf_counter() - begun) * 1_000)
    return sorted(found)


def main() -> int:
    """Run the measurement; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.idle_clients")
    parser.add_argument("--clients", type=int, default=10_000)
    count = parser.parse_args().clients
    reason = why_no_grpc()
    if reason is not None:
        sys.exit(reason)
    with _start_broker() as (port, pid):
        asyncio.run(_make_topic(port))
        asyncio.run(_send(port))
        before_mb = _anonymous_mb(pid)
        clients = _connect_clients(port, count)
        time.sleep(SETTLE_S)
        after_mb = _anonymous_mb(pid)
        times_ms = asyncio.run(_send(port))
        for one in clients:
            one.socket.close()
    taken_mb = after_mb - before_mb
    print(
        f"{count} clients with a Telemetry stream each: {after_mb:.0f} MB of anonymous memory,"
        f" {before_mb:.0f} before, {taken_mb * 1024 / count:.1f} KiB each; an honest client's"
        f" {SENDS} sends: p50 {times_ms[SENDS // 2]:.2f} ms, slowest {times_ms[-1]:.1f} ms"
    )
    return int(after_mb > MEMORY_MAX_MB)


if __name__ == "__main__":
    sys.exit(main())
