"""Three controllers, three brokers, a name server as processes: masters and leaders die under load.

The short version of `python -m bench.failover` and of interop/support/failover.py: our own client,
which also reads at all brokers while it goes on (tests/integration/ha/load.py).
"""

import asyncio
import random
import struct
import time
from pathlib import Path

import pytest
import uvloop
from interop.support import logs
from interop.support.controlled import FILE_SIZE, Controlled
from interop.support.groups import Turbopump
from interop.support.senders import master_by_route
from tests.integration.ha.ledger import Ledger
from tests.integration.ha.load import QUEUES, TOPIC, Load, read_all

from turbopump.spark.audit.verdicts import PromiseOutcome

pytestmark = pytest.mark.integration
SOON_S = 60.0
"""Time limit of waits, on a busy machine."""
LOOK_S = 0.01
PROGRESS = 100
"""Number of messages that are acknowledged before and after each trouble."""
TROUBLES = (("master",), ("leader",), ("master", "leader"), ("master",))


class Route:
    """Address of the master at the name server."""

    def __init__(self, group: Controlled) -> None:
        self._group = group
        self.address = group.brokers[0].address

    async def follow(self) -> None:
        """Ask all the time."""
        while True:
            try:
                found = await asyncio.to_thread(master_by_route, self._group.namesrv_address, TOPIC)
                self.address = found or self.address
            except (OSError, struct.error):
                pass  # it is asked again
            await asyncio.sleep(LOOK_S)


async def progress(load: Load, count: int = PROGRESS) -> None:
    """Wait until `count` more messages are acknowledged."""
    wanted, deadline = load.acked + count, time.monotonic() + SOON_S
    while load.acked < wanted:
        load.check()
        assert time.monotonic() < deadline, f"{load.acked} of {wanted}"
        await asyncio.sleep(LOOK_S)


def note_master(group: Controlled, ledger: Ledger) -> None:
    """Record the present master in the ledger."""
    found = group.sync()
    assert found is not None
    master = next(one for one in group.brokers if one.address == found.master)
    ledger.elected(found.master_epoch, master.name)


async def play(group: Controlled, ledger: Ledger) -> None:
    """Make each trouble in turn, under load."""
    route = Route(group)
    addresses = [one.address for one in group.brokers]
    load = Load(random.Random(1), addresses, lambda: route.address, ledger)
    load.start()
    following = asyncio.ensure_future(route.follow())
    try:
        for trouble in TROUBLES:
            await progress(load)
            await asyncio.to_thread(group.wait_whole, SOON_S)
            await asyncio.to_thread(note_master, group, ledger)
            members = {"master": group.master, "leader": group.leader()}
            dead = [member for name in trouble if (member := members[name]) is not None]
            assert len(dead) == len(trouble)
            for member in dead:
                await asyncio.to_thread(member.kill)
            await progress(load)
            for member in dead:
                member.start()
        await progress(load)
        await asyncio.to_thread(group.wait_whole, SOON_S)
        await asyncio.to_thread(note_master, group, ledger)
        await load.stop()
    finally:
        following.cancel()
        await load.abandon()
    await asyncio.to_thread(group.wait_alike)
    await compare(group, load)
    assert len(load.history.acked) > PROGRESS * 2 * len(TROUBLES)


async def compare(group: Controlled, load: Load) -> None:
    """Check that the master's queues equal the responses to senders and readers."""
    master = group.master
    assert master is not None
    for queue in range(QUEUES):
        bodies = await read_all(master.address, queue, time.monotonic() + SOON_S)
        load.history.compare(queue, bodies, f"the master {master.name}")


def check_audit(group: Controlled, ledger: Ledger) -> None:
    """Audit the brokers' stores while they run, and after they were stopped."""
    for one in group.brokers:
        ledger.cuts(one.name, sorted(one.folder.glob("*.err")) + sorted(one.folder.glob("*.out")))
    stores = {one.name: one.store for one in group.brokers}
    running = ledger.audit(stores)
    assert not running.is_broken, "\n".join(running.lines())
    for one in group.brokers:
        one.stop()
    stopped = ledger.audit(stores)
    outcomes = {one.name: one.outcome for one in stopped.verdicts}
    assert set(outcomes.values()) == {PromiseOutcome.HOLDS}, "\n".join(stopped.lines())
    counts = {one.name: one.counts for one in stopped.verdicts}
    assert counts["acked-survives"]["found"] > PROGRESS * 2 * len(TROUBLES)
    assert counts["consumed-survives"]["found"] > 0
    assert counts["truncation"]["consistent points"] == len(stores) - 1
    assert counts["one-writer"]["epochs elected in"] > 1


@pytest.mark.timeout(600)
def test_masters_and_leaders_die(tmp_path: Path) -> None:
    ours = Turbopump()
    settings = {"slaveReadEnable": "true"}
    group = Controlled(tmp_path, ours, [ours] * 3, [ours] * 3, settings)
    try:
        with Ledger(tmp_path / "told.jsonl", TOPIC) as ledger:
            group.start()
            uvloop.run(play(group, ledger))
            stores = [one.store for one in group.brokers]
            end = logs.log_end(stores[0], FILE_SIZE)
            for store in stores[1:]:
                assert logs.log_end(store, FILE_SIZE) == end
                assert logs.difference(stores[0], store, end) is None
            assert len({(store / "epochFileCheckpoint").read_bytes() for store in stores}) == 1
            check_audit(group, ledger)
    finally:
        group.abandon()
