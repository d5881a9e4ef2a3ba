"""Controllers as processes: killed, started again, and inside a name server."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from interop.support.ports import free_ports
from tests.integration.controller.quorum import CLUSTER, GROUP, Asker, asker

from turbopump.net.wire.codes import RequestCode

# Many processes start one after the other: on a busy machine that takes its time.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

STOP_S = 60


class Member:
    """A controller process that dies and comes back with the same files."""

    def __init__(self, folder: Path, number: int, ports: list[int]) -> None:
        self.address = f"127.0.0.1:{ports[number]}"
        peers = ";".join(f"n{each}-127.0.0.1:{port}" for each, port in enumerate(ports))
        self.config = folder / f"n{number}.conf"
        self.config.write_text(
            f"controllerDLegerGroup=g\ncontrollerDLegerPeers={peers}\n"
            f"controllerDLegerSelfId=n{number}\ncontrollerStorePath={folder}/store\n"
            "bindAddress=127.0.0.1\n"
        )
        self.environment: Mapping[str, str] = {}
        """Variables beside the test's own environment."""
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Returns when it listens."""
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "turbopump",
                "controller",
                "-c",
                str(self.config),
                "--json",
                "--log-level",
                "warning",
            ],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.environment},
        )
        assert self.process.stdout is not None
        assert '"ready"' in self.process.stdout.readline()

    def end(self, number: signal.Signals) -> int:
        """Signal the process and return its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        try:
            self.process.communicate(timeout=STOP_S)
        finally:
            self.process.kill()
            self.process.communicate()
        return self.process.returncode


@asynccontextmanager
async def group(folder: Path) -> AsyncIterator[tuple[dict[str, Member], Asker]]:
    """Three of them, by address, and a broker."""
    ports = free_ports(3)
    members = [Member(folder, number, ports) for number in range(3)]
    try:
        for member in members:
            member.start()
        async with asker([member.address for member in members]) as broker:
            yield {member.address: member for member in members}, broker
    finally:
        for member in members:
            if member.process is not None:
                member.end(signal.SIGKILL)


def test_the_leader_is_killed_again_and_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with group(tmp_path) as (members, broker):
            for broker_id in (1, 2, 3, 4):
                await broker.register(broker_id)
                leader = await broker.leader()
                killed_at = time.monotonic()
                members[leader].end(signal.SIGKILL)
                broker.addresses.remove(leader)
                fresh = await broker.leader()
                print(f"a new leader after {time.monotonic() - killed_at:.3f} s")
                assert fresh != leader
                members[leader].start()
                broker.addresses.append(leader)
            found = await broker.to_leader(
                RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, clusterName=CLUSTER, brokerName=GROUP
            )
            assert found.fields["nextBrokerId"] == "5"
            for member in members.values():
                assert member.end(signal.SIGTERM) == 0

    asyncio.run(run())


@pytest.mark.long
def test_all_are_killed_and_nothing_is_forgotten(tmp_path: Path) -> None:
    async def run() -> None:
        async with group(tmp_path) as (members, broker):
            await broker.register(1)
            assert (await broker.elect(1)).fields["masterEpoch"] == "1"
            for member in members.values():
                member.end(signal.SIGKILL)
            for member in members.values():
                member.start()
            response, found = await broker.replicas()
            assert (response.fields["masterEpoch"], found.members) == ("1", {1})

    asyncio.run(run())


def test_one_that_was_away_catches_up_and_can_lead(tmp_path: Path) -> None:
    async def run() -> None:
        async with group(tmp_path) as (members, broker):
            leader = await broker.leader()
            away, other = (one for one in members if one != leader)
            members[away].end(signal.SIGKILL)
            broker.addresses.remove(away)
            for broker_id in range(1, 6):
                await broker.register(broker_id)
            members[away].start()
            broker.addresses.append(away)
            await broker.register(6)
            # Another member is killed: decisions need the ones that were away before.
            members[other].end(signal.SIGKILL)
            broker.addresses.remove(other)
            await broker.register(7)
            members[other].start()
            broker.addresses.append(other)
            members[leader].end(signal.SIGKILL)
            broker.addresses.remove(leader)
            await broker.register(8)

    asyncio.run(run())


def test_a_name_server_with_a_controller_in_it(tmp_path: Path) -> None:
    namesrv, own = free_ports(2)
    config = tmp_path / "namesrv.conf"
    config.write_text(
        f"listenPort={namesrv}\nbindAddress=127.0.0.1\nkvConfigPath={tmp_path}/kv.json\n"
        "enableControllerInNamesrv=true\ncontrollerDLegerGroup=inside\n"
        f"controllerDLegerPeers=n0-127.0.0.1:{own}\ncontrollerDLegerSelfId=n0\n"
        f"controllerStorePath={tmp_path}/store\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "turbopump", "namesrv", "-c", str(config), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    async def run() -> None:
        async with asker([f"127.0.0.1:{own}"]) as broker:
            await broker.register(1)
            found = await broker.metadata(f"127.0.0.1:{own}")
            assert found is not None
            assert (found["group"], found["isLeader"]) == ("inside", "true")
            at_namesrv = f"127.0.0.1:{namesrv}"
            shown = await broker.ask(at_namesrv, RequestCode.GET_NAMESRV_CONFIG)
            assert b"enableControllerInNamesrv=true" in bytes(shown.body)  # type: ignore[arg-type]
            # Either process changes the file, and keeps the other's keys.
            change = b"enableElectUncleanMaster=true\n"
            at_controller = f"127.0.0.1:{own}"
            assert (
                await broker.ask(at_controller, RequestCode.UPDATE_CONTROLLER_CONFIG, change)
            ).code == 0
            change = b"orderMessageEnable=true\n"
            assert (
                await broker.ask(at_namesrv, RequestCode.UPDATE_NAMESRV_CONFIG, change)
            ).code == 0
            lines = config.read_text().splitlines()
            for line in (
                f"listenPort={namesrv}",
                "enableElectUncleanMaster=true",
                "orderMessageEnable=true",
                "controllerDLegerGroup=inside",
            ):
                assert line in lines

    try:
        assert process.stdout is not None
        assert '"name server"' in process.stdout.readline()
        assert '"controller n0"' in process.stdout.readline()
        asyncio.run(run())
    finally:
        process.terminate()
        try:
            _, err = process.communicate(timeout=STOP_S)
        finally:
            process.kill()
            process.communicate()
    assert process.returncode == 0
    assert "unknown key" not in err
    assert "Traceback" not in err
