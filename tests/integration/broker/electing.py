"""Fixtures of test_elected.py: a name server, three controllers, brokers as processes that are
killed, and a client that requests the route after every error.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

from tests.integration.controller.quorum import CLUSTER, Asker, asker, controllers, until

from turbopump.controller.node import ControllerNode
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.node import NameServerNode
from turbopump.net.transport.client import Client
from turbopump.net.transport.errors import RemotingError
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.controller import BrokerReplicasInfo, ReplicasInfo, encode_names
from turbopump.net.wire.headers.offsets import (
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from turbopump.net.wire.headers.pull import SUBSCRIPTION_FLAG, PullMessageRequest
from turbopump.net.wire.headers.routes import GetBrokerMemberGroupRequest
from turbopump.net.wire.headers.send import SendMessageRequestV2
from turbopump.net.wire.message import decode_messages

T = TypeVar("T")

BROKER = "elected"
TOPIC = "T"
SMALL_FILES = (
    "mappedFileSizeCommitLog=8388608\nmappedFileSizeConsumeQueue=200000\n"
    "maxHashSlotNum=1000\nmaxIndexNum=10000\n"
)
STOP_S = 60
CALL_MS = 2_000


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Member:
    """A broker process; it has another port after each start."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder / f"broker-{number}"
        self.folder.mkdir()
        self.config = self.folder / "broker.conf"
        self.address = ""
        self.environment: Mapping[str, str] = {}
        """Beside the test's own; see tests/machine/shim.py."""
        self._process: subprocess.Popen[str] | None = None

    def configure(self, namesrv: str, addresses: list[str], more: str) -> None:
        self.config.write_text(
            f"storePathRootDir={self.folder}/store\nbrokerIP1=127.0.0.1\nbindAddress=127.0.0.1\n"
            f"listenPort=0\nhaListenPort=0\nbrokerName={BROKER}\nenableControllerMode=true\n"
            f"controllerAddr={';'.join(addresses)}\nnamesrvAddr={namesrv}\n{SMALL_FILES}{more}"
        )

    @property
    def runs(self) -> bool:
        """Whether the process that was started still lives."""
        return self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        """Returns when it listens."""
        program = Path(__file__).with_name("broker_program.py")
        self._process = subprocess.Popen(
            [sys.executable, str(program), str(self.config)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.environment},
        )
        assert self._process.stdout is not None
        self.address = (await asyncio.to_thread(self._process.stdout.readline)).strip()
        assert self.address, "the broker did not start"

    def tell(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal the process and wait for its end."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            try:
                await asyncio.to_thread(process.communicate, timeout=STOP_S)
            finally:
                process.kill()
                process.communicate()


class Elections:
    """The whole group: name server, controllers, brokers and a client."""

    def __init__(
        self, folder: Path, nodes: list[ControllerNode], admin: Asker, namesrv: NameServerNode
    ) -> None:
        self.folder = folder
        self.nodes = nodes
        self.admin = admin
        self.namesrv = namesrv
        self.members: list[Member] = []
        self.client = Client(wall_ms)
        self.acked: dict[str, int] = {}
        """Queue offsets of acknowledged messages, by body."""
        self.errors = 0

    async def add(self, more: str = "", environment: Mapping[str, str] | None = None) -> Member:
        """Start one more broker, on an empty disk."""
        member = Member(self.folder, len(self.members) + 1)
        member.environment = environment or {}
        self.members.append(member)
        member.configure(self.namesrv.address, self.admin.addresses, more)
        await member.start()
        return member

    async def info(self) -> ReplicasInfo | None:
        """State of the group at the controllers."""
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        response = await self.admin.to_leader(code, encode_names([BROKER]))
        assert response.code == 0, response
        return BrokerReplicasInfo.decode(response.body).groups.get(BROKER)

    async def whole(self, count: int = 3) -> ReplicasInfo:
        """Wait until `count` brokers are in sync."""

        async def found() -> ReplicasInfo | None:
            info = await self.info()
            return info if info is not None and len(info.in_sync) == count else None

        result = await until(f"{count} brokers are in sync", found)
        assert result is not None
        return result

    async def route(self) -> dict[int, str]:
        """Addresses by broker id, from a name server."""
        header = GetBrokerMemberGroupRequest(CLUSTER, BROKER)
        request = new_request(RequestCode.GET_BROKER_MEMBER_GROUP, header)
        response = await self.client.call(self.namesrv.address, request, CALL_MS)
        assert response.code == 0, response
        group = json.loads(bytes(response.body))["brokerMemberGroup"]["brokerAddrs"]  # type: ignore[arg-type]
        return {int(key): address for key, address in group.items()}

    async def send(self, body: str) -> float:
        """Send until the message is acknowledged; return the time that took."""
        began = time.monotonic()

        async def sent() -> bool:
            master = (await self.route()).get(0)
            return master is not None and await self.try_send(master, body)

        await until(f"{body} is acknowledged", sent)
        return time.monotonic() - began

    async def try_send(self, address: str, body: str) -> bool:
        """Send once; return whether the message was acknowledged."""
        header = SendMessageRequestV2("PG", TOPIC, "TBW102", 4, 0, 0, wall_ms(), 0, properties="")
        request = new_request(RequestCode.SEND_MESSAGE_V2, header, body.encode())
        try:
            response = await self.client.call(address, request, CALL_MS)
        except RemotingError:
            self.errors += 1
            return False
        if response.code == 0:
            self.acked[body] = int(response.fields["queueOffset"])
        return response.code == 0

    async def read(self, address: str) -> dict[int, str]:
        """Bodies by queue offset."""
        found: dict[int, str] = {}
        at = 0
        while True:
            header = PullMessageRequest("G", TOPIC, 0, at, 32, SUBSCRIPTION_FLAG, 0, 0, 0, "*")
            request = new_request(RequestCode.PULL_MESSAGE, header)
            response = await self.client.call(address, request, CALL_MS)
            if response.code != 0:
                return found
            for message in decode_messages(bytes(response.body)):  # type: ignore[arg-type]
                assert message.queue_offset not in found
                found[message.queue_offset] = bytes(message.body).decode()
            at = int(response.fields["nextBeginOffset"])

    async def commit(self, address: str, at: int) -> int:
        """Reports to a broker how far the group G is; the code of its answer."""
        header = UpdateConsumerOffsetRequest("G", TOPIC, 0, at)
        request = new_request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        try:
            return (await self.client.call(address, request, CALL_MS)).code
        except RemotingError:
            return -1

    async def committed(self, address: str) -> int:
        """Offset of the group G at a broker."""
        header = QueryConsumerOffsetRequest("G", TOPIC, 0)
        request = new_request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        response = await self.client.call(address, request, CALL_MS)
        return int(response.fields["offset"]) if response.code == 0 else -1

    def at_member(self, address: str) -> Member:
        """The broker that listens there."""
        return next(member for member in self.members if member.address == address)

    async def check(self) -> None:
        """Check that each acknowledged message is at the offset of its response."""
        master = (await self.route())[0]
        found = await self.read(master)
        lost = {body: at for body, at in self.acked.items() if found.get(at) != body}
        assert not lost, f"acknowledged, and not there: {lost}"
        assert len(set(self.acked.values())) == len(self.acked), "a queue offset was given twice"

    async def until(self, what: str, holds: Callable[[], Awaitable[T]]) -> T:
        return await until(what, holds)


@contextlib.asynccontextmanager
async def elections(
    folder: Path, brokers: int = 3, more: str = "", *, acting: bool = False
) -> AsyncIterator[Elections]:
    """A group in which all brokers are in sync.

    `acting`: name servers show the acting replica as master.
    """
    config = NamesrvConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        kv_config_path=str(folder / "kvConfig.json"),
        support_acting_master=acting,
    )
    namesrv = NameServerNode(config)
    await namesrv.start()
    async with controllers(folder) as nodes, asker([node.address for node in nodes]) as admin:
        group = Elections(folder, nodes, admin, namesrv)
        try:
            for _ in range(brokers):
                await group.add(more)
            if brokers:
                await group.whole(brokers)
            yield group
        finally:
            for member in group.members:
                await member.end()
            await group.client.close()
            await namesrv.stop()
