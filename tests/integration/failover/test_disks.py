"""Disks of real brokers fail and hang: another broker leads at once, and the broker recovers by
itself. Each broker has a preloaded library that wraps the syncs of its log (tests/machine/shim.py).
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.integration.broker.electing import Elections, Member, elections
from tests.machine.shim import Machine, build

pytestmark = pytest.mark.integration

LOG = "commitlog"
SYNC_TIMEOUT_MS = 1_000
MORE = f"flushDiskType=SYNC_FLUSH\nsyncTimeoutMs={SYNC_TIMEOUT_MS}\n"
WAIT_MS = 1_500
PATIENT = f"flushDiskType=SYNC_FLUSH\nhaMaxTimeSendsWait={WAIT_MS}\n"
"""A sync does not hang within the time of the test: the replica leaves for the pending sends."""
SENDERS = 4
BUSY_S = 2.0
"""Margin of a gap on a busy machine; on an idle one the gap is below 0.5 s."""


class Load:
    """Clients that send on, one message after the other, and when answers came."""

    def __init__(self, group: Elections) -> None:
        self._group = group
        self._tasks: list[asyncio.Task[None]] = []
        self.acked_at: list[float] = []

    async def __aenter__(self) -> "Load":
        self._tasks = [asyncio.create_task(self._send(number)) for number in range(SENDERS)]
        await self.goes_on(20)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def goes_on(self, count: int) -> None:
        """Wait until `count` more messages are acknowledged."""
        wanted = len(self.acked_at) + count

        async def there() -> bool:
            return len(self.acked_at) >= wanted

        await self._group.until(f"{count} more messages", there)

    async def gap_behind(self, began: float) -> float:
        """The longest time without an acknowledgement since then."""
        await self.goes_on(20 * SENDERS)
        times = [began, *(at for at in self.acked_at if at > began)]
        return max(after - before for before, after in pairwise(times))

    async def _send(self, number: int) -> None:
        for count in range(1 << 30):
            await self._group.send(f"{number}-{count}")
            self.acked_at.append(time.monotonic())


@contextlib.asynccontextmanager
async def group_of_machines(
    folder: Path, more: str = MORE
) -> AsyncIterator[tuple[Elections, list[Machine]]]:
    """Three brokers in sync, each with a disk of its own."""
    library = build(folder)
    machines = []
    async with elections(folder, brokers=0) as group:
        for number in range(3):
            machines.append(Machine(library, folder / f"rules-{number}"))
            await group.add(more, machines[-1].environment())
        await group.whole()
        try:
            yield group, machines
        finally:
            for machine in machines:
                machine.heal()


async def master(group: Elections) -> Member:
    return group.at_member((await group.route())[0])


def test_a_failing_and_a_hanging_disk_of_the_master(tmp_path: Path) -> None:
    async def run() -> None:
        async with group_of_machines(tmp_path) as (group, machines), Load(group) as load:
            for trouble, allowed_s in (("fail", 0.0), ("hang", SYNC_TIMEOUT_MS / 1_000)):
                before = await group.whole()
                troubled = await master(group)
                machine = machines[group.members.index(troubled)]
                began = time.monotonic()
                getattr(machine, trouble)(LOG)
                gap = await load.gap_behind(began)
                print(f"the master's syncs {trouble}: no acknowledgement for {gap:.2f} s")
                assert gap < allowed_s + BUSY_S
                after = await group.info()
                assert after is not None
                assert after.master_epoch == before.master_epoch + 1, "one election"
                assert after.master_broker_id != before.master_broker_id
                assert troubled.runs, "the process lives, and serves readers"
                machine.heal()
                await group.whole()
                assert troubled.runs, "it came back by itself"
            await load.goes_on(20)
            await group.check()

    asyncio.run(run())


TROUBLES = {
    "fails": (lambda machine: machine.fail(LOG), MORE, 0.0),
    "hangs": (lambda machine: machine.hang(LOG), MORE, SYNC_TIMEOUT_MS / 1_000),
    "hangs for long": (lambda machine: machine.hang(LOG), PATIENT, WAIT_MS / 1_000),
    "is slow": (lambda machine: machine.slow(2 * WAIT_MS, LOG), PATIENT, WAIT_MS / 1_000),
}
"""Troubles of a disk, each with its settings and the intended part of a gap."""


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_disk_of_a_replica(tmp_path: Path, trouble: str) -> None:
    """A replica with a bad disk leaves the set, and comes back by itself."""
    begin, more, allowed_s = TROUBLES[trouble]

    async def run() -> None:
        async with group_of_machines(tmp_path, more) as (group, machines), Load(group) as load:
            before = await group.whole()
            leading = await master(group)
            troubled = next(one for one in group.members if one is not leading)
            machine = machines[group.members.index(troubled)]
            began = time.monotonic()
            begin(machine)
            gap = await load.gap_behind(began)
            print(f"a replica's disk {trouble}: no acknowledgement for {gap:.2f} s")
            assert gap < allowed_s + BUSY_S
            machine.heal()
            after = await group.whole()
            assert after.master_epoch == before.master_epoch, "no broker was elected"
            assert troubled.runs
            await load.goes_on(20)
            await group.check()

    asyncio.run(run())
