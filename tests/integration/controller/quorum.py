"""Three controllers on loopback, and their clients, for the tests of this folder."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from turbopump.controller.config import ControllerConfig, format_peers
from turbopump.controller.node import ControllerNode
from turbopump.net.transport.client import Client
from turbopump.net.transport.errors import RemotingError
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.controller import SyncStateSet

T = TypeVar("T")

TIMEOUT_MS = 3_000
UNTIL_S = 60.0
LOOK_S = 0.01
CLUSTER, GROUP = "DefaultCluster", "broker-a"


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


async def until(what: str, holds: Callable[[], Awaitable[T]]) -> T:
    """Wait until the result of `holds` is true, and return it."""
    deadline = time.monotonic() + UNTIL_S
    while True:
        found = await holds()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {UNTIL_S} s: {what}"
        await asyncio.sleep(LOOK_S)


class Asker:
    """A broker or an administrator, with a connection to each controller."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = list(addresses)
        self.client = Client(now_ms)
        self.ports: dict[int, int] = {}
        """Ports of brokers that listen, by id; the others have a made-up one."""

    async def ask(self, address: str, code: int, body: bytes = b"", **fields: Any) -> Command:
        """Send a request and return the response; raises RemotingError."""
        texts = {key: str(value) for key, value in fields.items()}
        request = new_request(code, body=body, fields=texts)
        return await self.client.call(address, request, TIMEOUT_MS)

    async def metadata(self, address: str) -> dict[str, str] | None:
        """1005; None if there is no answer."""
        try:
            response = await self.ask(address, RequestCode.CONTROLLER_GET_METADATA_INFO)
        except RemotingError:
            return None
        return response.fields

    async def leader(self) -> str:
        """The address that all answers call the leader's, as soon as they agree."""

        async def agreed() -> str:
            found = [await self.metadata(address) for address in self.addresses]
            known = [one.get("controllerLeaderAddress", "") for one in found if one is not None]
            leads = [one for one in found if one is not None and one.get("isLeader") == "true"]
            return known[0] if known and leads and len(set(known)) == 1 else ""

        return await until("the controllers agree on a leader", agreed)

    async def to_leader(self, code: int, body: bytes = b"", **fields: Any) -> Command:
        """Send a request until a controller answers as the leader."""
        responses: list[Command] = []

        async def answered() -> bool:
            try:
                responses.append(await self.ask(await self.leader(), code, body, **fields))
            except RemotingError:
                return False
            return responses[-1].code != ResponseCode.CONTROLLER_NOT_LEADER

        await until(f"{code} is answered", answered)
        return responses[-1]

    def broker_address(self, broker_id: int) -> str:
        """Address at which that broker registers."""
        return f"127.0.0.1:{self.ports.get(broker_id, 30_000 + broker_id)}"

    async def register(self, broker_id: int, name: str = GROUP) -> Command:
        """The three steps of a broker, and the election of the first."""
        address = self.broker_address(broker_id)
        whose = {"clusterName": CLUSTER, "brokerName": name}
        found = await self.to_leader(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, **whose)
        assert (found.code, found.fields["nextBrokerId"]) == (0, str(broker_id))
        applied = await self.to_leader(
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            **whose,
            appliedBrokerId=broker_id,
            registerCheckCode=f"{address};1",
        )
        assert applied.code == 0, applied.remark
        registered = await self.to_leader(
            RequestCode.CONTROLLER_REGISTER_BROKER,
            **whose,
            brokerId=broker_id,
            brokerAddress=address,
        )
        assert registered.code == 0, registered.remark
        await self.beat(broker_id, name)
        return registered

    async def beat(self, broker_id: int, name: str = GROUP) -> None:
        """A heartbeat to every controller that is there."""
        fields = {
            "clusterName": CLUSTER,
            "brokerName": name,
            "brokerId": str(broker_id),
            "brokerAddr": self.broker_address(broker_id),
            "epoch": "0",
            "maxOffset": "0",
            "confirmOffset": "0",
            "heartbeatTimeoutMills": "60000",
        }
        for address in self.addresses:
            try:
                await self.ask(address, RequestCode.BROKER_HEARTBEAT, **fields)
            except RemotingError:
                continue

    async def elect(self, broker_id: int, name: str = GROUP) -> Command:
        """Request an election by the broker itself."""
        return await self.to_leader(
            RequestCode.CONTROLLER_ELECT_MASTER,
            clusterName=CLUSTER,
            brokerName=name,
            brokerId=broker_id,
        )

    async def replicas(self, name: str = GROUP) -> tuple[Command, SyncStateSet]:
        """Request CONTROLLER_GET_REPLICA_INFO (1004)."""
        response = await self.to_leader(RequestCode.CONTROLLER_GET_REPLICA_INFO, brokerName=name)
        assert response.code == 0, response.remark
        return response, SyncStateSet.decode(response.body)


def config(folder: Path, number: int, peers: str = "", **more: Any) -> ControllerConfig:
    """Configuration of a controller."""
    return ControllerConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        group="g",
        peers=peers,
        self_id=f"n{number}",
        store_path=str(folder),
        **more,
    )


@asynccontextmanager
async def controllers(folder: Path, count: int = 3) -> AsyncIterator[list[ControllerNode]]:
    """Start `count` controllers in this process; controllers that still run stop at the end."""
    configs = [config(folder, number) for number in range(count)]
    nodes = [ControllerNode(one, seed=number) for number, one in enumerate(configs)]
    peers = {f"n{number}": f"127.0.0.1:{await node.listen()}" for number, node in enumerate(nodes)}
    try:
        for one, node in zip(configs, nodes, strict=True):
            one.peers = format_peers(peers)
            await node.start()
        yield nodes
    finally:
        for node in nodes:
            await node.stop()


@asynccontextmanager
async def asker(addresses: Sequence[str]) -> AsyncIterator[Asker]:
    """Open an asker, closed at the end."""
    made = Asker(addresses)
    try:
        yield made
    finally:
        await made.client.close()
