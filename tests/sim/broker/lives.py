"""A broker without replicas over the simulated disk, with several lives.

Owns the common part of the suites of pops, timers and transactions: the parts of a broker, its
lives and their ends, its time, its loop's turns and the requests of a connection. Requests, their
times, and the invariants are the suite's; they must never be known here.
"""

import random
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Self

from tests.shortcuts.addresses import pack_host
from tests.sim.broker.parts import ROOT, SimParts, open_store
from tests.sim.disk import PowerCut, SimDisk
from tests.sim.work import QueuedDisk
from turbopump.broker.config.config import load_config
from turbopump.broker.context import BrokerContext
from turbopump.engine.deferred import Deferred
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.command import Command, new_request

START_MS = 1_800_000_000_000
TICK_MS = 100
LIVES = 4
SAVE_MS = 1_500
BETWEEN_LIVES_MS = 1_000
FLUSHES = {True: "SYNC_FLUSH", False: "ASYNC_FLUSH"}
SMALL = {
    "storePathRootDir": ROOT,
    "brokerIP1": "127.0.0.1",
    "mappedFileSizeCommitLog": 16_384,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 16,
    "maxIndexNum": 40,
    "mappedFileSizeTimerLog": 65_536,
}
"""Configuration with small files, so that files roll and cost little."""


class SilentLink:
    """Connection of a client that receives no requests."""

    def send(self, command: Command) -> None:
        raise AssertionError(f"the broker asks {command.code}")

    def close(self) -> None:
        pass


class BrokerLives(ABC):
    """Run of a seed: lives that end by power cuts and kills, anywhere, and one without
    trouble.
    """

    steps_max = 60
    timer_slots = 8_000
    saves_offsets = True
    pauses_ms: tuple[int, ...] = (0, 0, 5, 100, 100, 400, 1_000, 3_000)

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.steady_ms, self.skew_ms = 0, START_MS
        self.disk = SimDisk(rng, lambda: self.now_ms)
        self.disk.torn_pages = rng.random() < 0.3
        self.work = QueuedDisk(rng)
        self.text = ""
        self.ends = 0
        self._context: BrokerContext | None = None
        self._saved_ms = 0
        self._soon: list[Callable[[], None]] = []
        self._cut: PowerCut | None = None
        """End of a life inside a step; None if it ended between two steps."""

    def configure(self, *, is_sync: bool, **keys: Any) -> None:
        """Set the broker's configuration file for all its lives."""
        values = {**SMALL, "flushDiskType": FLUSHES[is_sync], **keys}
        self.text = "".join(f"{key}={value}\n" for key, value in values.items())

    @property
    def now_ms(self) -> int:
        """Time of the wall clock, which may be set."""
        return self.steady_ms + self.skew_ms

    @property
    def broker(self) -> BrokerContext:
        """The parts of the broker, while it lives."""
        assert self._context is not None, "it is up"
        return self._context

    # For suites

    @property
    @abstractmethod
    def acked(self) -> int:
        """Number of acknowledged requests or messages."""

    @abstractmethod
    def _act(self) -> None:
        """Do one step: a request, or work of the disk."""

    @abstractmethod
    def _serve(self) -> None:
        """Do the broker's periodic work."""

    @abstractmethod
    def _settle(self) -> None:
        """Play and check the last life, without trouble."""

    def _new_link(self) -> Any:
        """The connection of a life."""
        return SilentLink()

    @abstractmethod
    def _ended(self, *, power: bool) -> None:
        """Note the end of a life."""

    # Lives

    @abstractmethod
    def _opened(self) -> None:
        """Note the beginning of a life."""

    def play(self) -> Self:
        """Play all lives; AssertionError is a finding."""
        for _ in range(self.rng.randrange(1, LIVES + 1)):
            self.disk.kill = self.rng.random() < 0.5
            try:
                self._life()
            except PowerCut as end:
                self.ends += 1
                self._cut = end
            self._ended(power=not self.disk.kill)
            self.disk.restart()
            self._cut = None
            self._context, self.work = None, QueuedDisk(self.rng)
            self._pass(BETWEEN_LIVES_MS)
        self._settle()
        return self

    def _was_in(self, function: Callable[..., Any]) -> bool:
        """Whether the life's end came in the midst of that function."""
        frames = traceback.extract_tb(self._cut.__traceback__) if self._cut is not None else []
        return any(frame.name == function.__name__ for frame in frames)

    def _life(self) -> None:
        rng = self.rng
        if rng.random() < 0.3:
            self.disk.cut_after = rng.randrange(60)
        self._open()
        self.disk.cut_after = rng.randrange(300) if rng.random() < 0.5 else None
        for _ in range(rng.randrange(self.steps_max)):
            self._pause()
            self._act()
        self.disk.end()

    def _open(self) -> None:
        config, _ = load_config(self.text)
        self._soon = []
        self._parts = SimParts(
            config,
            partial(open_store, config, self.disk, self.work, self.now_ms, self.steady_ms),
            self.disk,
            self.work,
            self.rng,
            wall_ms=lambda: self.now_ms,
            steady_ms=lambda: self.steady_ms,
            call_soon=self._soon.append,
            timer_slots=self.timer_slots,
        )
        self._context = self._parts.context
        self.peer = Peer("127.0.0.1:4711", pack_host("127.0.0.1:4711"), self._new_link())
        self._opened()

    # Time

    def _pass(self, duration_ms: int) -> None:
        self.steady_ms += duration_ms

    def _pause(self) -> None:
        pause_ms = self.pauses_ms[self.rng.randrange(len(self.pauses_ms))]
        for _ in range(pause_ms // TICK_MS):
            self._tick()
        if pause_ms < TICK_MS:
            self._pass(pause_ms)

    def _tick(self, tick_ms: int = TICK_MS) -> None:
        self._pass(tick_ms)
        self.broker.store.tick(self.now_ms, self.steady_ms)
        for _ in range(3):
            self.work.step()
        self._serve()
        self._turn()
        is_due = self.steady_ms - self._saved_ms >= SAVE_MS and not self._parts.is_saving_offsets
        if self.saves_offsets and is_due:
            self._saved_ms = self.steady_ms
            self._parts.save_offsets()

    def _turn(self) -> None:
        """The loop's turn ends."""
        due, self._soon[:] = list(self._soon), []
        for work in due:
            work()

    def _deliver_timers(self) -> None:
        for _ in range(20):
            if self.broker.timers.step(self.now_ms, self.steady_ms) != 0:
                break

    def _work_some(self) -> None:
        for _ in range(self.rng.randrange(6)):
            self.work.step()

    # Requests

    def _ask(self, code: int, header: object, body: bytes = b"") -> Deferred[Command | None]:
        return self._by_handlers(new_request(code, header, body))

    def _by_handlers(self, request: Command) -> Deferred[Command | None]:
        response = self._parts.dispatch(request, self.peer)
        if isinstance(response, Deferred):
            return response
        return Deferred.resolved(response)
