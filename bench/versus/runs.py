"""The rounds: RocketMQ and Turbopump in turn, each load on a fresh store.

Owns the order of things and what is measured around a load: memory, start-up, bounds. It must
never run two servers at a time. Called by `python -m bench.versus`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench import bound
from bench.versus.servers import Server, running
from bench.versus.workloads import LOADS, Measured, Target

SIDES = ("rocketmq", "turbopump")
BOUND = "bound"
SIZE = 128
RECOVERY_SIZE = 1000
SETTLE_S = 1.0
"""Between the end of a load and the look at memory: what the broker does behind it ends."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """How much is run; no names are all of them."""

    rounds: int
    duration_s: float
    warmup_s: float
    backlog: int
    recovery_mb: int
    topics: int
    names: frozenset[str] = frozenset()

    def wants(self, name: str) -> bool:
        """Whether a part was asked for."""
        return not self.names or name in self.names


@dataclass
class Results:
    """(figure, side) -> the values of all rounds."""

    values: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, figure: str, side: str, value: float) -> None:
        """Note one round's value."""
        self.values.setdefault((figure, side), []).append(value)

    def add_load(self, name: str, side: str, measured: Measured) -> None:
        """Note all that a load gave."""
        for figure in ("messages_per_s", "cpu_us", "p50_us", "p99_us", "refused"):
            self.add(f"{name}.{figure}", side, getattr(measured, figure))


class Rounds:
    """One comparison."""

    def __init__(self, plan: Plan, folder: Path, say: Say) -> None:
        self.results = Results()
        self._plan = plan
        self._folder = folder
        self._say = say

    def run(self) -> Results:
        """All rounds; the sides change places every round."""
        for number in range(self._plan.rounds):
            for side in SIDES if number % 2 == 0 else SIDES[::-1]:
                self._say(f"round {number + 1} of {self._plan.rounds}, {side}")
                self._loads(side)
                self._backlog(side)
                self._recovery(side)
            self._say(f"round {number + 1} of {self._plan.rounds}, {BOUND}")
            self._bounds()
        self._topics()
        return self.results

    def _note(self, name: str, side: str, measured: Measured) -> None:
        self.results.add_load(name, side, measured)
        self._say(
            f"  {name}: {measured.messages_per_s:,.0f}/s, {measured.cpu_us:.2f} us of CPU,"
            f" p50 {measured.p50_us:,.0f} us, p99 {measured.p99_us:,.0f} us"
            + (f", refused {measured.refused:.2%}" if measured.refused else "")
        )

    def _loads(self, side: str) -> None:
        for load in LOADS:
            if self._plan.wants(load.name):
                with running(side, self._folder, {"flushDiskType": load.flush}) as server:
                    self._note_start(server)
                    server.target().warm()
                    self._note(
                        load.name,
                        side,
                        server.target().produce(
                            load.arguments, self._plan.duration_s, self._plan.warmup_s
                        ),
                    )

    def _note_start(self, server: Server) -> None:
        usage = server.usage()
        self.results.add("start.ready_s", server.kind, server.ready_s)
        self.results.add("start.rss_mb", server.kind, usage.rss_mb)
        self.results.add("start.anonymous_mb", server.kind, usage.anonymous_mb)

    def _backlog(self, side: str) -> None:
        if not self._plan.wants("backlog"):
            return
        with running(side, self._folder, {}) as server:
            server.target().warm()
            server.target().fill(self._plan.backlog, SIZE)
            time.sleep(SETTLE_S)
            usage = server.usage()
            self.results.add("backlog.rss_mb", side, usage.rss_mb)
            self.results.add("backlog.anonymous_mb", side, usage.anonymous_mb)
            self._note("backlog", side, server.target().consume(self._plan.backlog))

    def _recovery(self, side: str) -> None:
        if not self._plan.wants("recovery"):
            return
        with running(side, self._folder, {}) as server:
            server.target().fill(self._plan.recovery_mb * 1000, RECOVERY_SIZE)
            server.kill_broker()
            server.start_broker()
            self.results.add("recovery.ready_s", side, server.ready_s)
            self._say(f"  ready {server.ready_s:.2f} s after kill -9")

    def _topics(self) -> None:
        """The same load on one topic and on many. RocketMQ takes minutes to make that many."""
        if not self._plan.wants("topics"):
            return
        arguments = LOADS[0].arguments
        for _ in range(self._plan.rounds):
            for name, count in (("topics-one", 1), ("topics-many", self._plan.topics)):
                with running("turbopump", self._folder, {}) as server:
                    self._note(
                        name,
                        "turbopump",
                        server.target().produce(
                            arguments, self._plan.duration_s, self._plan.warmup_s, topics=count
                        ),
                    )

    def _bounds(self) -> None:
        plan = self._plan
        with bound.responder(SIZE) as responder:
            target = Target(responder.address, responder.cpu_s, bound.TOPIC)
            for load in LOADS:
                if load.flush == "ASYNC_FLUSH" and plan.wants(load.name):
                    self._note(
                        load.name,
                        BOUND,
                        target.produce(load.arguments, plan.duration_s, plan.warmup_s),
                    )
            if plan.wants("backlog"):
                self._note("backlog", BOUND, target.consume(plan.backlog))
        if plan.wants("sync-1x1"):
            self._folder.mkdir(parents=True, exist_ok=True)
            rate = bound.msync_rate(bound.build(self._folder), self._folder, plan.duration_s)
            self.results.add("sync-1x1.messages_per_s", BOUND, rate)
            self._say(f"  msync of one page: {rate:,.0f}/s")
