"""Controllers as processes on disks whose syncs take 100 ms and 1 s: the leader, and the time of an
election.

A preloaded library makes each sync slow (tests/machine/shim.py). The simulator checks the same for
any syncs (tests/sim/raft/slow.py); here are real files, sockets and clocks.
"""

import asyncio
import signal
import time
from pathlib import Path

import pytest
from interop.support.ports import free_ports
from tests.integration.controller.quorum import CLUSTER, Asker, asker
from tests.integration.controller.test_processes import Member
from tests.machine import shim

from turbopump.net.wire.codes import RequestCode

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

STAYS_S = 4.0
LOOK_S = 0.1


async def leads_on(broker: Asker, leader: str) -> None:
    """No other controller leads for a while, in which entries are written."""
    ends = time.monotonic() + STAYS_S
    while time.monotonic() < ends:
        name = f"broker-{time.monotonic_ns()}"
        applied = await broker.ask(
            leader,
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            clusterName=CLUSTER,
            brokerName=name,
            appliedBrokerId=1,
            registerCheckCode="127.0.0.1:1;1",
        )
        assert applied.code == 0, applied.remark
        found = await broker.metadata(leader)
        assert found is not None
        assert found["isLeader"] == "true", "the lead is lost"
        await asyncio.sleep(LOOK_S)


@pytest.mark.long
@pytest.mark.parametrize(("sync_ms", "bound_s"), [(100, 2.0), (1000, 10.0)])
def test_a_leader_on_slow_disks(tmp_path: Path, sync_ms: int, bound_s: float) -> None:
    """A new leader with a quorum serves within the bound after the kill of the leader."""
    library = shim.build(tmp_path)
    ports = free_ports(3)
    members = {}
    machines = []
    for number in range(3):
        member = Member(tmp_path, number, ports)
        machine = shim.Machine(library, tmp_path / f"rules-{number}")
        machine.heal()
        member.environment = machine.environment()
        members[member.address] = member
        machines.append(machine)

    async def run() -> None:
        async with asker(list(members)) as broker:
            leader = await broker.leader()
            for machine in machines:
                machine.slow(sync_ms)
            await leads_on(broker, leader)
            began = time.monotonic()
            members[leader].end(signal.SIGKILL)
            broker.addresses.remove(leader)
            fresh = await broker.leader()
            took_s = time.monotonic() - began
            print(f"a new leader after {took_s:.2f} s at {sync_ms} ms")
            assert fresh != leader
            assert took_s < bound_s
            await leads_on(broker, fresh)

    try:
        for member in members.values():
            member.start()
        asyncio.run(run())
    finally:
        for member in members.values():
            if member.process is not None and member.process.poll() is None:
                member.end(signal.SIGKILL)
