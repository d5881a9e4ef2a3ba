"""The group under test: its processes and links, and the part that names the masters.

It names honestly: a master is only taken from `safe`, the brokers that surely have every
acknowledged message. A new file narrows it to the members that were safe before; it becomes all of
the file's members once the master reports that their set is in force and that it confirmed a byte
of its own term, which all members have.
"""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from interop.support.ports import BROKER, free_ports
from tests.integration.ha.ledger import Ledger
from tests.integration.ha.load import TOPIC, Finding, Load
from tests.integration.ha.processes import HOST, Broker, Process, Seen
from tests.integration.ha.proxy import Link

NUMBERS = (1, 2, 3)
LOOK_S = 0.05
"""Pause between two checks of a wait."""
WATCH_S = 0.15
"""Pause between two requests for a broker's state."""
SOON_S = 40.0
"""Time limit of waits; a look at the group file takes 1 s, a heartbeat 5 s, a restart 1 s, all on a
busy machine.
"""


class Group:
    """Group of processes (see the module)."""

    def __init__(self, folder: Path, seed: int, more: str = "") -> None:
        self.rng = random.Random(seed)
        ports, ha_ports = free_ports(3, BROKER), free_ports(3)
        (folder / "namesrv.conf").write_text(
            f"listenPort=0\nbindAddress=127.0.0.1\nkvConfigPath={folder}/kv/kvConfig.json\n"
        )
        self._namesrv = Process(folder, "namesrv", ["namesrv", "-c", str(folder / "namesrv.conf")])
        self._folder, self._more, self._ports = folder, more, (ports, ha_ports)
        self.brokers: dict[int, Broker] = {}
        self.epoch, self.master = 0, 1
        self.safe = frozenset(NUMBERS)
        self.members = frozenset(NUMBERS)
        addresses = [f"{HOST}:{port}" for port in ports]
        self.ledger = Ledger(folder / "told.jsonl", TOPIC)
        rng = random.Random(f"load {seed}")
        self.load = Load(rng, addresses, self._master_address, self.ledger)
        self.story: list[str] = []
        self.seen: dict[int, Seen] = {}
        self.starts: dict[int, int] = {}
        """Log offset at which each epoch began."""
        self._confirmed_in: dict[int, int] = {}
        """Greatest confirmOffset that a broker reported in each epoch."""
        self._masters_of: dict[int, int] = {}
        self._lives: dict[int, tuple[int, int]] = {}
        self._watchers: list[asyncio.Task[None]] = []

    # Life

    async def start(self) -> None:
        """Start all processes, one master, and the load."""
        address = await self._namesrv.start()
        ports, ha_ports = self._ports
        for number, port, ha_port in zip(NUMBERS, ports, ha_ports, strict=True):
            more = f"namesrvAddr={address}\n{self._more}"
            self.brokers[number] = Broker(self._folder, number, port, ha_port, more)
        for one in self.brokers.values():
            for other in self.brokers.values():
                if other is not one:
                    one.links[other.number] = Link(other.ha_port)
                    await one.links[other.number].start()
        self.name(1, NUMBERS)
        async with asyncio.TaskGroup() as starts:
            for one in self.brokers.values():
                starts.create_task(one.start())
        self.load.start()
        self._watchers = [asyncio.ensure_future(self._watch(n)) for n in NUMBERS]

    async def stop(self) -> None:
        """Stop every process, even if some stops fail: a loop of uvloop waits for its child
        processes before it closes, without a limit. Raises no findings of the load.
        """
        async with AsyncExitStack() as ends:
            ends.callback(self.ledger.close)
            ends.push_async_callback(self._namesrv.end)
            for one in self.brokers.values():
                ends.push_async_callback(one.close)
                for link in one.links.values():
                    ends.push_async_callback(link.stop)
            await self.load.abandon()
            for task in self._watchers:
                task.cancel()
            await asyncio.gather(*self._watchers, return_exceptions=True)

    async def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for it; raises Finding if it does not come to pass soon, or something broke."""
        if not await self.came(condition, SOON_S):
            raise Finding(f"not within {SOON_S:.0f} s: {what}; {self.seen}")

    async def came(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Whether it came to pass in that time."""
        deadline = time.monotonic() + seconds
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(LOOK_S)
        return True

    def check(self) -> None:
        """Raise the findings so far."""
        self.load.check()
        for task in self._watchers:
            if task.done():
                task.result()

    # The master

    def _master_address(self) -> str:
        return self.brokers[self.master].address

    def name(
        self, master: int, members: tuple[int, ...], informed: tuple[int, ...] = NUMBERS
    ) -> None:
        """A newer group file, for all that are to get it; the others keep theirs."""
        assert master in self.safe and master in members, f"{master} of {sorted(self.safe)}"
        self.epoch, self.master = self.epoch + 1, master
        self.members, self.safe = frozenset(members), self.safe & frozenset(members)
        for number in informed:
            self.brokers[number].tell(self.epoch, master, list(members))
        self.note(f"epoch {self.epoch}: {master} of {sorted(members)}, given to {informed}")

    def master_of(self, epoch: int) -> int:
        """Number of the broker that was master in an epoch."""
        return self._masters_of[epoch]

    def note(self, line: str) -> None:
        """Add one line to the story, which is shown when it ends badly."""
        self.story.append(line)

    @property
    def has_master(self) -> bool:
        """Whether the master that was named is one."""
        seen = self.seen.get(self.master)
        return seen is not None and seen.epoch == self.epoch and seen.members is not None

    @property
    def running(self) -> frozenset[int]:
        """Brokers that can do something."""
        return frozenset(n for n, one in self.brokers.items() if one.runs)

    async def progress(self, count: int = 100) -> None:
        """Wait until `count` more messages are acknowledged."""
        wanted = self.load.acked + count
        await self.until(f"{count} more messages", lambda: self.load.acked >= wanted)

    # Reports of brokers

    async def _watch(self, number: int) -> None:
        broker = self.brokers[number]
        while True:
            life = broker.lives
            seen = await broker.seen()
            if seen is None or life != broker.lives:
                self.seen.pop(number, None)
            else:
                self.seen[number] = seen
                await self._judge(number, life, seen)
            await asyncio.sleep(WATCH_S)

    async def _judge(self, number: int, life: int, seen: Seen) -> None:
        last_life, last = self._lives.get(number, (0, 0))
        if life == last_life and seen.confirm < last:
            raise Finding(f"confirmOffset of {number} went back from {last} to {seen.confirm}")
        self._lives[number] = (life, seen.confirm)
        if seen.confirm > seen.end:
            raise Finding(f"{number} confirmed more than it has: {seen}")
        self._confirmed_in[seen.epoch] = max(self._confirmed_in.get(seen.epoch, 0), seen.confirm)
        if seen.members is None:
            return
        if self._masters_of.setdefault(seen.epoch, number) != number:
            raise Finding(f"{number} and {self._masters_of[seen.epoch]} lead in {seen.epoch}")
        if seen.epoch not in self.starts:
            epochs = await self.brokers[number].epochs()
            if not epochs or epochs[-1][0] != seen.epoch:
                return
            self.starts[seen.epoch] = epochs[-1][1]
            self.complete()
        is_latest = number == self.master and seen.epoch == self.epoch == seen.set_epoch
        if is_latest and seen.members == self.members and self.starts[seen.epoch] < seen.confirm:
            self.safe = self.members

    def complete(self) -> None:
        """Check that no term begins before bytes that an earlier one confirmed."""
        for epoch, start in self.starts.items():
            for earlier, confirm in self._confirmed_in.items():
                if earlier < epoch and confirm > start:
                    raise Finding(f"epoch {epoch} began at {start}, {earlier} confirmed {confirm}")
