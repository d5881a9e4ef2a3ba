"""Send and pull over a real socket, beside a bare uvloop echo with the same frames and answers.

Back of the envelope: a bare uvloop server answers one connection some 15,000 times a second one at
a time and several 100,000 times pipelined; our request costs a Command, a header dataclass and the
store on top, in Python until the native path takes over. Both sides are driven by the same plain
blocking client, and both servers are processes of their own.
"""

import json
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import encode, new_request
from turbopump.net.wire.headers.pull import PullMessageRequest
from turbopump.net.wire.headers.send import SendMessageRequestV2

HERE = Path(__file__).resolve().parent
ROUNDS = 500
IN_FLIGHT = 32
BODY = b"x" * 128


def send_frame(opaque: int) -> bytes:
    """The frame of a send with this opaque."""
    header = SendMessageRequestV2(
        producer_group="bench",
        topic="BenchTrips",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1_800_000_000_000,
        flag=0,
        properties="UNIQ_KEY\x017F0000010000558C00000000000000EF\x02WAIT\x01true\x02",
    )
    command = new_request(RequestCode.SEND_MESSAGE_V2, header, BODY)
    command.opaque = opaque
    return b"".join(bytes(part) for part in encode(command))


def pull_frame(opaque: int) -> bytes:
    """The frame of a pull of 32 messages with this opaque."""
    header = PullMessageRequest(
        consumer_group="bench",
        topic="BenchTrips",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )
    command = new_request(RequestCode.PULL_MESSAGE, header)
    command.opaque = opaque
    return b"".join(bytes(part) for part in encode(command))


class Driver:
    """A blocking client: writes frames, counts the frames that come back."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def exchange(self, frames: bytes, count: int) -> bytes:
        """Send `frames`, wait for `count` answers and return the first."""
        self._socket.sendall(frames)
        received = bytearray()
        first = b""
        at = 0
        while count:
            received += self._socket.recv(1 << 20)
            while count and len(received) - at >= 4:
                size = struct.unpack_from(">i", received, at)[0] + 4
                if len(received) - at < size:
                    break
                first = first or bytes(received[at : at + size])
                at += size
                count -= 1
        return first

    def close(self) -> None:
        self._socket.close()


def stop(process: subprocess.Popen[str]) -> None:
    """Terminate a process and wait for its end."""
    process.terminate()
    process.wait(20)
    if process.stdout is not None:
        process.stdout.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A broker in a process of its own, used over one connection."""
    folder = tmp_path_factory.mktemp("broker")
    command = [
        sys.executable,
        "-m",
        "turbopump",
        "up",
        "--json",
        "--data",
        str(folder / "data"),
        "--namesrv-port",
        "0",
        "--broker-port",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        driver = Driver(int(ready["brokers"][0]["address"].rpartition(":")[2]))
        driver.exchange(send_frame(1) * 40, 40)
        yield driver
        driver.close()
        stop(process)


def echo(reply: bytes) -> tuple[subprocess.Popen[str], Driver]:
    """Start a bare echo server that answers each frame with `reply`."""
    command = [sys.executable, str(HERE / "bare_echo.py"), reply.hex()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Driver(int(process.stdout.readline()))


def one_at_a_time(driver: Driver, frame: bytes) -> None:
    """Exchange the frame ROUNDS times, each after the answer to the previous frame."""
    for _ in range(ROUNDS):
        driver.exchange(frame, 1)


def exchange_pipelined(driver: Driver, frame: bytes) -> None:
    """Exchange the frame with IN_FLIGHT frames on their way at a time."""
    for _ in range(ROUNDS // IN_FLIGHT * 4):
        driver.exchange(frame * IN_FLIGHT, IN_FLIGHT)


SHAPES = [
    ("send 128 B, one at a time", send_frame(7), one_at_a_time, ROUNDS),
    (
        "send 128 B, 32 in flight",
        send_frame(7),
        exchange_pipelined,
        ROUNDS // IN_FLIGHT * 4 * IN_FLIGHT,
    ),
    ("pull 32, one at a time", pull_frame(7), one_at_a_time, ROUNDS),
]


@pytest.mark.parametrize(("group", "frame", "drive", "operations"), SHAPES, ids=range(3))
def test_trips(
    measure: Any, broker: Driver, group: str, frame: bytes, drive: Any, operations: int
) -> None:
    """Measure requests per second at Turbopump's broker, with these frames and this way
    to send them."""
    response = broker.exchange(frame, 1)
    assert b'"code":0' in response
    measure(group, lambda: drive(broker, frame), operations)


@pytest.mark.parametrize(("group", "frame", "drive", "operations"), SHAPES, ids=range(3))
def test_trips_limit(
    measure: Any, broker: Driver, group: str, frame: bytes, drive: Any, operations: int
) -> None:
    """Measure the same requests at a bare echo with the broker's answer."""
    process, bare = echo(broker.exchange(frame, 1))
    try:
        measure(group, lambda: drive(bare, frame), operations)
    finally:
        bare.close()
        stop(process)
