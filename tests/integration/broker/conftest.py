"""Brokers on real sockets: in this process, and as processes of their own that can be killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from turbopump.broker.config.config import load_config
from turbopump.broker.node import BrokerNode
from turbopump.net.transport.client import Client
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.pull import (
    SUBSCRIPTION_FLAG,
    SUSPEND_FLAG,
    PullMessageRequest,
)
from turbopump.net.wire.headers.send import SendMessageRequestV2
from turbopump.net.wire.message import MessageView, decode_messages
from turbopump.net.wire.properties import encode_properties

TIMEOUT_MS = 10_000
STOP_S = 60
SMALL_FILES = (
    "mappedFileSizeCommitLog=8388608\nmappedFileSizeConsumeQueue=200000\n"
    "maxHashSlotNum=1000\nmaxIndexNum=10000\n"
)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Caller:
    """A client that speaks in requests."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.client = Client(now_ms)

    async def ask(
        self, code: int, header: object = None, body: bytes = b"", **fields: str
    ) -> Command:
        """Send one request and return the response."""
        request = new_request(code, header, body, fields=fields)
        return await self.client.call(self.address, request, TIMEOUT_MS * 3)

    async def send(
        self, body: bytes, topic: str = "T", queue_id: int = 0, **properties: str
    ) -> Command:
        """Send a message by SEND_MESSAGE_V2."""
        text = encode_properties(properties).decode()
        header = SendMessageRequestV2(
            "PG", topic, "TBW102", 4, queue_id, 0, now_ms(), 0, properties=text
        )
        return await self.ask(310, header, body)

    async def pull(
        self,
        queue_offset: int = 0,
        topic: str = "T",
        queue_id: int = 0,
        *,
        wait_ms: int = 0,
        group: str = "G",
    ) -> Command:
        """PULL_MESSAGE with its own subscription; a long poll with `wait_ms`."""
        flags = SUBSCRIPTION_FLAG | (SUSPEND_FLAG if wait_ms else 0)
        header = PullMessageRequest(
            group, topic, queue_id, queue_offset, 32, flags, 0, wait_ms, 0, "*"
        )
        return await self.ask(11, header)

    async def read(self, topic: str = "T", queue_id: int = 0) -> list[MessageView]:
        """Everything a queue holds."""
        found: list[MessageView] = []
        at = 0
        while True:
            response = await self.pull(at, topic, queue_id)
            if response.code not in (0, 20):
                return found
            assert isinstance(response.body, bytes)
            found += decode_messages(response.body)
            at = int(response.fields["nextBeginOffset"])

    async def close(self) -> None:
        await self.client.close()


@contextlib.asynccontextmanager
async def serving(folder: Path, properties: str = "") -> AsyncIterator[tuple[BrokerNode, Caller]]:
    """A broker in this process on a free port, and a client of it."""
    text = (
        f"storePathRootDir={folder}\nbrokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nlistenPort=0\n"
        f"{SMALL_FILES}{properties}"
    )
    config, warnings = load_config(text)
    assert not warnings
    node = BrokerNode(config)
    await node.start()
    caller = Caller(node.address)
    try:
        yield node, caller
    finally:
        await caller.close()
        await node.stop()


class BrokerProcess:
    """A broker that can be killed."""

    def __init__(self, folder: Path, properties: str, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.config = folder / "broker.conf"
        self.config.write_text(
            f"storePathRootDir={folder}/store\nbrokerIP1=127.0.0.1\nbindAddress=127.0.0.1\n"
            f"listenPort=0\n{SMALL_FILES}{properties}"
        )
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        """Run it until it serves; returns its address."""
        self.launch()
        assert self.process is not None
        assert self.process.stdout is not None
        address = self.process.stdout.readline().strip()
        assert address, "the broker did not start"
        return address

    def launch(self) -> None:
        """Start the process."""
        program = Path(__file__).with_name("broker_program.py")
        self.process = subprocess.Popen(
            [sys.executable, str(program), str(self.config)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | self._environment,
        )

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and wait for the clean end."""
        self._end(signal.SIGTERM)

    def terminate(self, timeout_s: float) -> int:
        """SIGTERM, and wait for the end; the exit code."""
        return self._end(signal.SIGTERM, timeout_s)

    def _end(self, number: int, timeout_s: float = STOP_S) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            process.wait(timeout_s)
        finally:
            process.kill()
            process.communicate()
        return process.returncode


@pytest.fixture
def make_process(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Factory of BrokerProcesses with properties and variables of their own; all are killed at the
    end.
    """
    made: list[BrokerProcess] = []

    def make(properties: str = "", environment: Mapping[str, str] | None = None) -> BrokerProcess:
        made.append(BrokerProcess(tmp_path, properties, environment or {}))
        return made[-1]

    yield make
    for broker in made:
        broker.kill()


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., Any]:
    """`async with serve(properties)`: a broker on this test's store folder, and a client."""
    return lambda properties="": serving(tmp_path / "store", properties)


@pytest.fixture
def connect() -> type[Caller]:
    """`connect(address)`: one more client."""
    return Caller
