"""Five controllers and two brokers as processes: a quorum that loses its leaders one after another
until no majority is left, and comes back.
"""

import asyncio
import random
import time
from pathlib import Path

import pytest
import uvloop
from interop.support.controlled import Controlled, Member
from interop.support.groups import Turbopump
from tests.integration.failover.test_failover import LOOK_S, SOON_S, Route, compare, progress
from tests.integration.ha.load import Load

pytestmark = pytest.mark.integration
TIMEOUT_MS = 3000
"""controllerHeartBeatTimeoutMills: a master's lease is 0.8 of that."""
LEASE_S = 0.8 * TIMEOUT_MS / 1000
LATE_S = 3.0
"""Margin for the last heartbeat's response, and a busy machine.

No other master can be elected meanwhile.
"""
STILL_S = 4.0


async def until(what: str, holds: object) -> None:
    """Something comes to pass."""
    deadline = time.monotonic() + SOON_S
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < deadline, what
        await asyncio.sleep(LOOK_S)


async def leader_dies(group: Controlled) -> Member:
    """kill -9 of the leading controller."""
    leader = await asyncio.to_thread(group.leader)
    assert leader is not None
    await asyncio.to_thread(leader.kill)
    return leader


async def still(load: Load) -> None:
    """Check that no message is acknowledged after the end of the lease."""
    killed = time.monotonic()
    await asyncio.sleep(LEASE_S + LATE_S)
    count = load.acked
    await asyncio.sleep(STILL_S)
    load.check()
    assert load.acked == count, f"acknowledged {time.monotonic() - killed:.1f} s without a quorum"


async def play(group: Controlled) -> None:
    """Kill the leaders one after the other, and bring them back."""
    route = Route(group)
    load = Load(random.Random(1), [one.address for one in group.brokers], lambda: route.address)
    load.start()
    following = asyncio.ensure_future(route.follow())
    try:
        await progress(load)
        dead: list[Member] = []
        for _ in range(2):
            dead.append(await leader_dies(group))
            await until("another broker leads", lambda: group.leader() not in (None, *dead))
            await progress(load)
        master = group.master
        assert master is not None
        await asyncio.to_thread(master.kill)
        await until("three of five elect", lambda: group.master not in (None, master))
        await progress(load)
        master.start()
        await asyncio.to_thread(group.wait_whole, SOON_S)

        dead.append(await leader_dies(group))
        await still(load)
        assert await asyncio.to_thread(group.leader) is None, "two of five lead"
        assert await asyncio.to_thread(group.sync) is None, "two of five decide"

        for one in dead:
            one.start()
        await progress(load)
        await asyncio.to_thread(group.wait_whole, SOON_S)
        await load.stop()
    finally:
        following.cancel()
        await load.abandon()
    await asyncio.to_thread(group.wait_alike)
    await compare(group, load)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_five_controllers_lose_their_leaders_one_by_one(tmp_path: Path) -> None:
    ours = Turbopump()
    settings = {
        "slaveReadEnable": "true",
        "controllerHeartBeatTimeoutMills": str(TIMEOUT_MS),
        "brokerHeartbeatInterval": "500",
    }
    group = Controlled(tmp_path, ours, [ours] * 5, [ours] * 2, settings)
    try:
        group.start()
        uvloop.run(play(group))
    finally:
        group.abandon()
