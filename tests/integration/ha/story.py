"""The events of a group, round by round, and the checks at its end.

A round: all is well; one kind of trouble of links and processes happens under load; a new master is
named meanwhile, perhaps one more; then links are healed, dead processes are started, every broker
is a member again. The seed decides the story; the exact times depend on the machine.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from tests.integration.ha.group import NUMBERS, SOON_S, Group
from tests.integration.ha.load import QUEUES, Finding, read_all
from tests.integration.ha.processes import Broker
from tests.integration.ha.proxy import Link
from tests.shortcuts.verdicts import find_verdict

FILE_SIZE = 1 << 20
TROUBLE_S = 1.5
"""Time that a trouble lasts before the next master is named, unless something else ends it."""


@dataclass
class Totals:
    """Results of a story."""

    rounds: int = 0
    kills: int = 0
    epochs: int = 0
    acked: int = 0
    sent: int = 0
    read: int = 0
    log_end: int = 0
    cuts: int = 0
    audited: int = 0
    """Acknowledgements and reads that the audit found at their places."""
    seconds: float = 0.0


class Story:
    """Story of a group (see the module)."""

    def __init__(self, group: Group) -> None:
        self.group, self.rng, self.totals = group, group.rng, Totals()
        self._troubles: list[Callable[[], Awaitable[None]]] = [
            self._kill_master, self._kill_replica, self._kill_two, self._kill_all, self._switch,
            self._cut, self._stall, self._slow, self._pause, self._elections, self._unheard,
            self._kill_in_a_row,
        ]  # fmt: skip

    async def play(self, rounds: int) -> Totals:
        """Play `rounds` rounds, each trouble once before one is repeated; raises Finding."""
        group, began = self.group, time.monotonic()
        await group.until("a first master", lambda: group.has_master)
        waiting: list[Callable[[], Awaitable[None]]] = []
        for number in range(rounds):
            await self._all_well()
            waiting = waiting or self.rng.sample(self._troubles, len(self._troubles))
            trouble = waiting.pop()
            group.note(f"round {number}: {trouble.__name__}")
            await trouble()
            await self._recover()
            self.totals.rounds += 1
        await self._all_well()
        await self._end()
        self.totals.epochs, self.totals.seconds = group.epoch, time.monotonic() - began
        return self.totals

    # Troubles

    async def _kill_master(self) -> None:
        await self._kill(self.group.master)
        self._elect()
        await self.group.progress()

    async def _kill_replica(self) -> None:
        number = self.rng.choice(self._replicas())
        await self._kill(number)
        if self.rng.random() < 0.5:
            # No file is written: the sends wait for it, and it comes back by itself.
            await self.group.brokers[number].start()
        else:
            self._elect()
        await self.group.progress()

    async def _kill_two(self) -> None:
        await asyncio.gather(self._kill(self.group.master), self._kill(self._replicas()[0]))
        self._elect()
        await self.group.progress()

    async def _kill_all(self) -> None:
        await asyncio.gather(*(self._kill(number) for number in NUMBERS))
        await self._start_the_dead()
        self._elect()
        await self.group.progress()

    async def _kill_in_a_row(self) -> None:
        """Kill each new master as soon as it leads, or before."""
        for _ in range(2):
            await self._kill(self.group.master)
            if not self.group.safe & self.group.running:
                await self._start_the_dead()
            self._elect()
            if self.rng.random() < 0.7:
                await self.group.until("a term", lambda: self.group.has_master)
        await self.group.progress()

    async def _switch(self) -> None:
        """A master that lives becomes a replica, under load."""
        self._elect(self.rng.choice(sorted(self.group.safe - {self.group.master})))
        await self.group.progress()

    async def _elections(self) -> None:
        """Several, sooner than the group can follow."""
        for _ in range(3):
            self._elect()
            await self.group.came(lambda: self.group.has_master, self.rng.random() * 2)
        await self.group.progress()

    async def _unheard(self) -> None:
        """Name a new master without notice to the old one, which goes on as far as it can."""
        old = self.group.master
        others = sorted(set(NUMBERS) - {old})
        self.group.name(self.rng.choice(others), tuple(others), tuple(others))
        await self.group.progress()

    async def _cut(self) -> None:
        for link in self._some_links():
            link.cut()
        await self._under_trouble()

    async def _stall(self) -> None:
        """Block one direction or both, without a close on any side."""
        for link in self._some_links():
            ways = self.rng.choice(((link.there,), (link.back,), (link.there, link.back)))
            for way in ways:
                way.open.clear()
        await self._under_trouble()

    async def _slow(self) -> None:
        """Late, and in small pieces; with connections that end in the midst of it."""
        links = self._some_links()
        for link in links:
            link.there.delay_s = self.rng.random() / 20
            link.back.delay_s = self.rng.random() / 20
            link.back.small_until = 2000
        await self._under_trouble()
        for link in links:
            link.reset()

    async def _pause(self) -> None:
        """A process stands still, and wakes up in another time."""
        number = self.rng.choice(NUMBERS)
        self.group.brokers[number].pause(True)
        self.group.seen.pop(number, None)
        self.group.note(f"{number} stands still")
        await self._under_trouble()
        if self.rng.random() < 0.5:
            await self._kill(number)

    # Building blocks

    def _replicas(self) -> list[int]:
        numbers = [number for number in NUMBERS if number != self.group.master]
        return self.rng.sample(numbers, len(numbers))

    def _some_links(self) -> list[Link]:
        links = [link for one in self.group.brokers.values() for link in one.links.values()]
        return self.rng.sample(links, self.rng.randint(1, len(links)))

    async def _kill(self, number: int) -> None:
        self.group.note(f"kill -9 of {number}")
        self.totals.kills += 1
        await self.group.brokers[number].end()
        self.group.seen.pop(number, None)

    async def _under_trouble(self) -> None:
        group, wanted = self.group, self.group.load.acked + 200
        await group.came(lambda: group.load.acked >= wanted, TROUBLE_S)
        if self.rng.random() < 0.7:
            self._elect()
            await group.came(lambda: group.has_master, TROUBLE_S)
        if self.rng.random() < 0.3:
            await self._kill(group.master)

    def _elect(self, master: int | None = None) -> None:
        """The brokers that are safe and run, with all or some of the others that run."""
        group = self.group
        running = group.running
        if master is None:
            master = self.rng.choice(sorted(group.safe & running) or sorted(group.safe))
        others = sorted(running - {master})
        members = self.rng.sample(others, self.rng.randint(0, len(others)))
        group.name(master, (master, *members))

    async def _start_the_dead(self) -> None:
        async def start(one: Broker) -> None:
            one.pause(False)
            if not one.runs:
                await one.start()

        await asyncio.gather(*(start(one) for one in self.group.brokers.values()))

    async def _recover(self) -> None:
        """End all trouble; every broker becomes a member."""
        group = self.group
        for one in group.brokers.values():
            for link in one.links.values():
                link.heal()
        await self._start_the_dead()
        master = group.master if group.master in group.safe else min(group.safe)
        group.name(master, NUMBERS)

    async def _all_well(self) -> None:
        group = self.group
        await group.until("a term", lambda: group.has_master)
        await group.progress()
        await group.until("all are safe", lambda: group.safe == frozenset(NUMBERS))
        group.complete()

    # The end

    async def _end(self) -> None:
        """No load; each in turn is master and read from its beginning; then all files are held
        against each other."""
        group = self.group
        await group.load.stop()
        history = group.load.history
        masters = [number for number in NUMBERS if number != group.master]
        for master in [group.master, *masters]:
            if master != group.master:
                await group.until("all are alike", self._alike)
                # No message is written from here: equal logs stay equal.
                group.safe = frozenset(NUMBERS)
                group.name(master, NUMBERS)
                await group.until("a term", lambda: group.has_master)
            address = group.brokers[master].address
            for queue in range(QUEUES):
                bodies = await read_all(address, queue, time.monotonic() + SOON_S)
                history.compare(queue, bodies, f"master {master}")
        await group.until("all are alike", self._alike)
        lists = [await one.epochs() for one in group.brokers.values()]
        if lists[1:] != lists[:-1]:
            raise Finding(f"epoch lists differ: {lists}")
        # A replica's file follows its list by a write, and that is another thread's.
        await group.until("all epoch files are alike", lambda: len(self._epoch_files()) == 1)
        self.totals.log_end = group.seen[group.master].end
        self.totals.acked, self.totals.read = len(history.acked), len(history.read)
        self.totals.sent = history.sent
        self._compare_files([one.folder for one in group.brokers.values()])
        self._audit()

    def _alike(self) -> bool:
        seen = list(self.group.seen.values())
        ends = {at for one in seen for at in (one.end, one.confirm)}
        return len(seen) == len(NUMBERS) and len(ends) == 1 and len({s.epoch for s in seen}) == 1

    def _audit(self) -> None:
        """Compare all responses with the files alone."""
        group = self.group
        for number, one in group.brokers.items():
            self.totals.cuts += group.ledger.cuts(str(number), [one.log])
        for epoch, start in group.starts.items():
            group.ledger.elected(epoch, str(group.master_of(epoch)), start)
        audit = group.ledger.audit({str(n): one.folder for n, one in group.brokers.items()})
        if audit.is_broken:
            raise Finding("\n".join(audit.lines()))
        self.totals.audited += sum(
            find_verdict(audit, name).counts["found"]
            for name in ("acked-survives", "consumed-survives")
        )

    def _epoch_files(self) -> set[bytes]:
        folders = [one.folder for one in self.group.brokers.values()]
        return {(folder / "epochFileCheckpoint").read_bytes() for folder in folders}

    def _compare_files(self, folders: list[Path]) -> None:
        epochs = self._epoch_files()
        if len(epochs) != 1:
            raise Finding(f"epoch files differ: {epochs}")
        for base in range(0, self.totals.log_end, FILE_SIZE):
            size = min(FILE_SIZE, self.totals.log_end - base)
            parts = [(f / "commitlog" / f"{base:020d}").read_bytes()[:size] for f in folders]
            if len(set(parts)) != 1 or len(parts[0]) != size:
                at = [
                    next((i for i in range(size) if p[i : i + 1] != parts[0][i : i + 1]), None)
                    for p in parts
                ]
                raise Finding(f"logs differ in the file {base}, first at {at}")
