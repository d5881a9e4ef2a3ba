"""Brokers whose master is elected, all of it real: processes that are killed and restarted."""

import asyncio
import signal
from pathlib import Path

import pytest
from tests.integration.broker.electing import BROKER, Elections, elections
from tests.integration.controller.quorum import CLUSTER

from turbopump.controller.node import ControllerNode
from turbopump.net.wire.codes import RequestCode

pytestmark = pytest.mark.integration

SHORT = "controllerHeartBeatTimeoutMills=3000\nbrokerHeartbeatInterval=300\n"
"""A lease of 2.4 s."""


async def master(group: Elections) -> str:
    """Address of the master, as soon as the name server has one."""
    found = await group.until("there is a master", lambda: at_zero(group))
    assert found is not None
    return found


async def at_zero(group: Elections) -> str | None:
    return (await group.route()).get(0)


def test_masters_are_killed_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """R08, R26, R30: each comes back at another port, with its id, and is in sync again."""

    async def run() -> None:
        async with elections(tmp_path) as group:
            took = []
            for number in range(4):
                await asyncio.gather(*(group.send(f"{number}-{each}") for each in range(20)))
                before = await group.whole()
                killed = group.at_member(await master(group))
                await killed.end()
                took.append(await group.send(f"{number}-after"))
                after = await group.info()
                assert after is not None
                assert after.master_epoch > before.master_epoch
                assert after.master_broker_id != before.master_broker_id
                await killed.start()
                whole = await group.whole()
                ids = {one.broker_id for one in whole.in_sync}
                assert ids == {1, 2, 3}
                await group.check()
            print("from the kill to the first acknowledgement:", [f"{one:.3f} s" for one in took])

    asyncio.run(run())


def test_a_joiner_is_never_shown_as_master(tmp_path: Path) -> None:
    """The name server never shows a joining broker as master (R32)."""

    async def run() -> None:
        async with elections(tmp_path, brokers=1) as group:
            first = await master(group)
            seen: set[str | None] = set()
            joined = asyncio.gather(group.add(), group.add())
            while not joined.done():
                seen.add((await group.route()).get(0))
                await asyncio.sleep(0.001)
            await group.whole()
            assert seen == {first}
            assert sorted(await group.route()) == [0, 2, 3]

    asyncio.run(run())


def test_all_go_and_come_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with elections(tmp_path) as group:
            await group.send("before")
            for member in group.members:
                await member.end(signal.SIGTERM)
            for member in group.members:
                await member.start()
            await group.whole()
            await group.send("after")
            await group.check()

    asyncio.run(run())


def test_without_controllers_the_master_stops_and_with_them_it_goes_on(tmp_path: Path) -> None:
    """A master refuses sends without controllers, and goes on with them (R27)."""

    async def run() -> None:
        async with elections(tmp_path, more=SHORT) as group:
            at = await master(group)
            await group.send("before")
            for node in group.nodes:
                await node.stop()

            async def refused() -> bool:
                return not await group.try_send(at, f"alone {len(group.acked)}")

            await group.until("it stops", refused)
            assert len(await group.read(at)) >= 1, "readers are served"

    asyncio.run(run())


def test_a_master_that_stood_still_acknowledges_nothing(tmp_path: Path) -> None:
    """A master that was suspended past its lease acknowledges nothing after another was elected
    (F12).
    """

    async def run() -> None:
        async with elections(tmp_path, more=SHORT) as group:
            old = group.at_member(await master(group))
            await group.send("before")
            old.tell(signal.SIGSTOP)

            async def another() -> bool:
                return (await group.route()).get(0) not in (None, old.address)

            await group.until("another is elected", another)
            await group.send("between")
            old.tell(signal.SIGCONT)
            assert not await group.try_send(old.address, "late")
            await group.whole()
            await group.check()

    asyncio.run(run())


def test_a_cleaned_broker_registers_anew(tmp_path: Path) -> None:
    """Observed: with 5.5.0 it never does."""

    async def run() -> None:
        async with elections(tmp_path) as group:
            info = await group.whole()
            gone = next(one for one in info.in_sync if one.broker_id != info.master_broker_id)
            member = group.at_member(gone.broker_address)
            await member.end(signal.SIGTERM)
            await group.whole(2)
            response = await group.admin.to_leader(
                RequestCode.CLEAN_BROKER_DATA,
                clusterName=CLUSTER,
                brokerName=BROKER,
                brokerControllerIdsToClean=gone.broker_id,
            )
            assert response.code == 0, response
            await member.start()
            whole = await group.whole()
            assert gone.broker_id not in {one.broker_id for one in whole.in_sync}
            await group.send("after")
            await group.check()

    asyncio.run(run())


def test_master_and_leading_controller_die_together(tmp_path: Path) -> None:
    async def run() -> None:
        async with elections(tmp_path) as group:
            await group.send("before")
            old = group.at_member(await master(group))
            leader = next(node for node in group.nodes if node.is_leader)
            group.admin.addresses.remove(leader.address)
            await asyncio.gather(old.end(), leader.stop())
            await group.send("after")
            await old.start()
            await group.whole()
            await group.check()

    asyncio.run(run())


def test_a_replica_acts_while_no_master_can_be_elected(tmp_path: Path) -> None:
    """Without controllers and master a replica acts; the next master has the offsets that were
    committed to it.
    """
    more = f"{SHORT}enableSlaveActingMaster=true\n"

    async def run() -> None:
        async with elections(tmp_path, more=more, acting=True) as group:
            for number in range(5):
                await group.send(f"{number}")
            old = group.at_member(await master(group))
            await group.read(old.address)  # which makes the group
            assert await group.commit(old.address, 1) == 0
            for node in group.nodes:
                await node.stop()
            await old.end()
            replicas = [one for one in group.members if one is not old]

            async def committed() -> str | None:
                for one in replicas:
                    if await group.commit(one.address, 4) == 0:
                        return one.address
                return None

            for one in replicas:
                await group.read(one.address)
            acting = await group.until("a replica acts", committed)
            assert acting is not None
            assert not await group.try_send(acting, "to the acting replica"), "it writes nothing"
            assert [await group.commit(one.address, 5) for one in replicas].count(0) == 1
            assert await group.committed(acting) == 5
            group.nodes[:] = [ControllerNode(node._config) for node in group.nodes]
            for node in group.nodes:
                await node.start()
            await group.send("after")
            assert await group.committed(await master(group)) == 5
            await old.start()
            await group.whole()
            assert await group.committed(await master(group)) == 5
            await group.check()

    asyncio.run(run())
