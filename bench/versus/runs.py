"""The rounds: RocketMQ and Turbopump in turn at each load, each life on a fresh store.

Owns the order, and the measurements around a load: memory, start-up, bounds. It must never run two
servers at a time.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from bench import bound, engine_append, tls_load
from bench.versus import (
    connections,
    filter_load,
    grpc_load,
    grpc_targets,
    later_load,
    pop_load,
    topic_load,
)
from bench.versus.native_load import Result
from bench.versus.servers import Server, run_server
from bench.versus.targets import BOUND, OURS, THEIRS
from bench.versus.workloads import (
    LIVES,
    LOADS,
    QUEUES_OF_TOPIC,
    ROUND,
    WARMING_READS,
    Life,
    Load,
    Measured,
    Target,
)

SIDES = (THEIRS, OURS)
SIZE = 128
RECOVERY_SIZE = 1000
APPEND_SIZE = 1024
BOUND_WARMUP_S = 0.5
"""Short, because a C loop compiles nothing at run time."""
QUEUE_TOPICS = (1_000, 3_000)
EXISTING_TOPICS = 10_000
CREATED, CREATORS = 2_000, 64
CREATED_AIM = 3_000.0
"""New topics per second during which sends are measured."""
BESIDE_S, MOST_A_SECOND = 4.0, 20_000.0
"""Duration of making topics while a load starts, warms up and runs; and the greatest rate."""
FILTERED, FILTER_WARMING = 800_000, 2
"""Filtered messages, and passes before the measured one, in which a JVM compiles its paths."""
LATER_WARMING, TRANSACTIONS, TIMERS = 50_000, 200_000, 1_000_000
DUE, DUE_RATE, DUE_BEHIND_S = 100_000, 20_000, 12.0
"""Timers that become due, their rate per second, and the delay from their send to the first."""
POP_FILLED, POP_SIZES, POP_WARMING_S, POP_HIDDEN_MS = 2_000_000, (32, 1), 2.0, 20_000
"""Messages that are popped, messages per pop, warm-up, and invisible time."""
UNACKNOWLEDGED = 1_000_000
GRPC_FILLED, GRPC_WARMING_S = 1_500_000, 6.0
"""Messages that are received by gRPC, and the warm-up of each load, in which a JVM compiles its
paths."""
RESTS_MAX, RESTS_BELOW = 60, 0.08
SETTLE_S = 1.0
"""Pause between a load and reading memory, in which the broker finishes its work."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """Extent of a run; no names mean all of them."""

    rounds: int
    duration_s: float
    warmup_s: float
    backlog: int
    recovery_mb: int
    topics: int
    names: frozenset[str] = frozenset()
    sides: tuple[str, ...] = SIDES

    def has_part(self, name: str) -> bool:
        """Whether the part of the comparison with this name is to be measured."""
        return not self.names or name in self.names


@dataclass
class Results:
    """Measured values of all rounds by (figure, side)."""

    values: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, figure: str, side: str, value: float) -> None:
        """Add the value that a figure of a side has in a round."""
        self.values.setdefault((figure, side), []).append(value)

    def add_load(self, name: str, side: str, measured: Measured) -> None:
        """Add rate, CPU time, latencies and refusals of the load `name` at a side."""
        for figure in ("messages_per_s", "cpu_us", "p50_us", "p99_us", "refused"):
            self.add(f"{name}.{figure}", side, getattr(measured, figure))


class Rounds:
    """A comparison of the sides over all rounds."""

    def __init__(self, plan: Plan, folder: Path, say: Say) -> None:
        self.results = Results()
        self._plan = plan
        self._folder = folder
        self._say = say

    def run(self) -> Results:
        """Run all rounds; the sides change places every round.

        Compared values are measured one right after the other, because a shared machine changes
        within minutes.
        """
        parts: list[Callable[[str], None]] = [
            *(partial(self._run_life, life) for life in LIVES),
            self._measure_backlog,
            self._measure_recovery,
            self._measure_queues,
            self._measure_creation,
            self._measure_filter,
            self._measure_later,
            self._measure_pops,
            self._measure_unacknowledged,
            self._measure_grpc_calls,
        ]
        for number in range(self._plan.rounds):
            self._say(f"round {number + 1} of {self._plan.rounds}")
            sides = self._plan.sides
            for part in parts:
                for side in sides if number % 2 == 0 else sides[::-1]:
                    part(side)
            self._measure_bounds()
            self._topics()
        return self.results

    def _add_load(self, name: str, side: str, measured: Measured) -> None:
        """Add the measurements of a load to the results, and print them."""
        self.results.add_load(name, side, measured)
        self._say(
            f"  {name}, {side}: {measured.messages_per_s:,.0f}/s, {measured.cpu_us:.2f} us of CPU,"
            f" p50 {measured.p50_us:,.0f} us, p99 {measured.p99_us:,.0f} us"
            + (f", refused {measured.refused:.2%}" if measured.refused else "")
        )

    def _run_life(self, life: Life, side: str) -> None:
        """Start a server of this side, and measure the wanted loads of a life on it."""
        loads = [load for load in life.loads if self._plan.has_part(load.name)]
        if not loads:
            return
        with run_server(side, self._folder, {"flushDiskType": life.flush}) as server:
            self._add_start(server)
            target = server.load_target()
            if life.tls:
                target = replace(target, preload=tls_load.compile_library(self._folder / "tls"))
            target.warm_up(life.warming)
            for load in loads:
                self._add_load(load.name, side, self._measure_sends(target, load))

    def _measure_sends(self, target: Target, load: Load, *, topics: int = 1) -> Measured:
        """Run a load of sends for the plan's time, and return its measurements."""
        return target.measure_sends(
            load.arguments, self._plan.duration_s, self._plan.warmup_s, topics=topics
        )

    def _add_start(self, server: Server) -> None:
        """Add the server's start time and memory to the results."""
        usage = server.read_usage()
        self.results.add("start.ready_s", server.kind, server.ready_s)
        self.results.add("start.rss_mb", server.kind, usage.rss_mb)
        self.results.add("start.anonymous_mb", server.kind, usage.anonymous_mb)

    def _measure_backlog(self, side: str) -> None:
        """Measure the memory after many messages, and reading them."""
        if not self._plan.has_part("backlog"):
            return
        with run_server(side, self._folder, {}) as server:
            server.load_target().fill_topic(self._plan.backlog, SIZE)
            time.sleep(SETTLE_S)
            usage = server.read_usage()
            self.results.add("backlog.rss_mb", side, usage.rss_mb)
            self.results.add("backlog.anonymous_mb", side, usage.anonymous_mb)
            server.load_target().measure_reads(min(WARMING_READS, self._plan.backlog))
            self._add_load("backlog", side, server.load_target().measure_reads(self._plan.backlog))

    def _measure_queues(self, side: str) -> None:
        """Measure sends to all queues in turn, with a thousand topics and with three thousand."""
        if not self._plan.has_part("queues"):
            return
        with run_server(side, self._folder, {}) as server:
            for topics in QUEUE_TOPICS:
                target = replace(server.load_target(), topic=f"Queues{topics}")
                target.fill_queues(topics)
                measured = target.measure_sends(
                    ROUND, self._plan.duration_s, 0.0, topics=topics, queues=QUEUES_OF_TOPIC
                )
                self._add_load(f"queues-{topics * QUEUES_OF_TOPIC}", side, measured)

    def _measure_creation(self, side: str) -> None:
        """Measure the creation of topics, and sends during it.

        Topics are made one by one, 64 at a time, on a fresh broker and beside many.
        """
        if not self._plan.has_part("creation"):
            return
        with run_server(side, self._folder, {}) as server:
            address, target, made = server.ports.broker_address, server.load_target(), 0
            target.warm_up(WARMING_READS)
            for name in ("creation", "creation-many"):
                before_s = server.read_usage().cpu_s
                found = topic_load.create(address, "update", made, CREATED, CREATORS)
                cpu_us = (server.read_usage().cpu_s - before_s) * 1e6 / CREATED
                made += CREATED
                self.results.add(f"{name}.topics_per_s", side, found.messages_per_s)
                self.results.add(f"{name}.cpu_us", side, cpu_us)
                self.results.add(f"{name}.p99_ms", side, found.p99_us / 1000)
                self._say(
                    f"  {name}, {side}: {found.messages_per_s:,.0f}/s, {cpu_us:,.0f} us of CPU,"
                    f" p99 {found.p99_us / 1000:,.1f} ms"
                )
                if name == "creation":
                    topic_load.make_topics(address, EXISTING_TOPICS)
            for name, rate in (("creation-beside", 0.0), ("creation-3000-beside", CREATED_AIM)):
                self._add_load(name, side, self._measure_beside(target, address, made, rate))
                made += int(BESIDE_S * MOST_A_SECOND)

    def _measure_filter(self, side: str) -> None:
        """Measure pulls with an expression that matches 1 % of the messages."""
        if not self._plan.has_part("filter"):
            return
        with run_server(side, self._folder, {"enablePropertyFilter": "true"}) as server:
            address = server.ports.broker_address
            filter_load.fill_topic(address, FILTERED)
            time.sleep(SETTLE_S)
            for _ in range(FILTER_WARMING):
                filter_load.read_filtered(address, FILTERED)
            before_s = server.read_usage().cpu_s
            found = filter_load.read_filtered(address, FILTERED)
            cpu_us = (server.read_usage().cpu_s - before_s) * 1e6 / found.looked_at
            self.results.add("filter.messages_per_s", side, found.messages_per_s)
            self.results.add("filter.cpu_us", side, cpu_us)
            self._say(f"  filter, {side}: {found.messages_per_s:,.0f}/s, {cpu_us:.3f} us of CPU")

    def _measure_later(self, side: str) -> None:
        """Measure transactions, and timers that are sent, that wait, and that become due."""
        if not self._plan.has_part("later"):
            return
        with run_server(side, self._folder, {}) as server:
            address = server.ports.broker_address
            later_load.make_topic(address)
            later_load.send_transactions(address, LATER_WARMING)
            self._wait_until_idle(server)
            before_s, had = (
                server.read_usage().cpu_s,
                connections.count_stored(address, later_load.TOPIC),
            )
            sent = later_load.send_transactions(address, TRANSACTIONS)
            self._wait_until_idle(server)
            stored = connections.count_stored(address, later_load.TOPIC)
            lost = sent.messages - (stored - had)
            self._add_grpc_result("transactions", side, sent, server.read_usage().cpu_s - before_s)
            self._say(f"  transactions, {side}: {lost} commits are missing")
        with run_server(side, self._folder, {}) as server:
            address = server.ports.broker_address
            later_load.make_topic(address)
            hour_ms = int(time.time() * 1000) + 3_600_000
            later_load.send_timers(address, LATER_WARMING, hour_ms, 3_600_000)
            self._wait_until_idle(server)
            before_s = server.read_usage().cpu_s
            sent = later_load.send_timers(address, TIMERS - LATER_WARMING, hour_ms, 3_600_000)
            self._wait_until_idle(server)
            self._add_grpc_result("timers", side, sent, server.read_usage().cpu_s - before_s)
            anonymous_mb = server.read_usage().anonymous_mb
            self.results.add("timers.anonymous_mb", side, anonymous_mb)
            begin_s = time.time() + DUE_BEHIND_S
            later_load.send_timers(address, DUE, int(begin_s * 1000), 1000 * DUE // DUE_RATE)
            late = later_load.watch_timers(address, begin_s + 2 * DUE_BEHIND_S, DUE)
            self.results.add("lateness.p50_ms", side, late.p50_ms)
            self.results.add("lateness.p99_ms", side, late.p99_ms)
            self._say(
                f"  {side}: {TIMERS:,} timers wait: {anonymous_mb:.0f} MB of anonymous memory"
            )
            self._say(f"  {side}: {late}")

    def _measure_pops(self, side: str) -> None:
        """Measure pops of 32 messages and of 1, each message acknowledged by a separate request.

        The broker's work when the messages would have come again is measured apart.
        """
        if not self._plan.has_part("pop"):
            return
        for size in POP_SIZES:
            with run_server(side, self._folder, {}) as server:
                address, name = server.ports.broker_address, f"pop-{size}"
                cuts = pop_load.fill_topic(address, POP_FILLED)
                if cuts:
                    self._say(f"  {name}, {side}: {cuts} connections were cut while it was filled")
                warmed = pop_load.measure_pops(address, size, POP_WARMING_S, POP_HIDDEN_MS)
                if warmed.messages > POP_FILLED // 4:
                    pop_load.fill_topic(address, warmed.messages)
                self._wait_until_revived(server)
                before_s = server.read_usage().cpu_s
                found = pop_load.measure_pops(address, size, self._plan.duration_s, POP_HIDDEN_MS)
                used_s = server.read_usage().cpu_s - before_s
                self._add_grpc_result(name, side, found, used_s)
                before_s = server.read_usage().cpu_s
                self._wait_until_revived(server)
                behind_us = (server.read_usage().cpu_s - before_s) * 1e6 / found.messages
                self.results.add(f"{name}.behind_cpu_us", side, behind_us)
                self._say(f"  {name}, {side}: {behind_us:.2f} us of CPU a message afterwards")

    def _wait_until_revived(self, server: Server) -> None:
        """Wait until all popped messages would have come again, and the broker is idle."""
        time.sleep(POP_HIDDEN_MS / 1000)
        self._wait_until_idle(server)

    def _measure_unacknowledged(self, side: str) -> None:
        """Measure the memory with UNACKNOWLEDGED messages popped and not acknowledged."""
        if not self._plan.has_part("unacknowledged"):
            return
        hour_ms = 3_600_000
        with run_server(side, self._folder, {}) as server:
            address = server.ports.broker_address
            pop_load.fill_topic(address, UNACKNOWLEDGED)
            found = pop_load.measure_pops(address, 32, 600.0, hour_ms, acks=False)
            time.sleep(SETTLE_S)
            anonymous_mb = server.read_usage().anonymous_mb
            self.results.add("unacknowledged.anonymous_mb", side, anonymous_mb)
            self._say(
                f"  {side}: {found.messages:,} messages popped and not acknowledged:"
                f" {anonymous_mb:.0f} MB of anonymous memory"
            )

    def _measure_grpc_calls(self, side: str) -> None:
        """Measure gRPC calls: sends, and receives with an acknowledgement of each message."""
        if not self._plan.has_part("grpc"):
            return
        program = grpc_load.compile_program(self._folder.parent / "grpc")
        kind = grpc_targets.kind_of(side)
        with run_server(kind, self._folder, {}) as server:
            port = grpc_targets.port_of(server)
            pop_load.fill_topic(server.ports.broker_address, connections.BATCH)  # makes the topic
            for name, load in grpc_load.LOADS.items():
                self._measure_grpc(
                    server, name, side, partial(grpc_load.send, program, port, *load)
                )
        with run_server(kind, self._folder, {}) as server:
            port = grpc_targets.port_of(server)
            pop_load.fill_topic(server.ports.broker_address, GRPC_FILLED)
            grpc_load.make_group(server.ports.broker)
            receive = partial(grpc_load.receive, program, port)
            self._measure_grpc(server, grpc_load.RECEIVES, side, receive)

    def _measure_grpc(
        self, server: Server, name: str, side: str, load: Callable[[float], Result]
    ) -> None:
        """Measure a gRPC load, which gets its duration in s, after a warm-up."""
        load(GRPC_WARMING_S)
        self._wait_until_idle(server)
        before_s = server.read_usage().cpu_s
        found = load(self._plan.duration_s)
        self._add_grpc_result(name, side, found, server.read_usage().cpu_s - before_s)

    def _grpc_floor(self) -> None:
        """Measure the cost of libnghttp2 and the kernel alone, under the same sends."""
        program = grpc_load.compile_program(self._folder.parent / "grpc")
        with grpc_load.minimal_server(program) as least:
            for name, load in grpc_load.LOADS.items():
                before_s = bound.cpu_s(least.pid)
                found = grpc_load.send(program, least.port, *load, self._plan.duration_s)
                used_s = bound.cpu_s(least.pid) - before_s
                self._add_grpc_result(name, BOUND, found, used_s)

    def _add_grpc_result(self, name: str, side: str, found: Result, used_s: float) -> None:
        """Add the result of a gRPC load, for which the server used `used_s` seconds of CPU time."""
        cpu_us, refused = used_s * 1e6 / found.messages, found.refused / found.messages
        measured = Measured(found.messages_per_s, cpu_us, found.p50_us, found.p99_us, refused)
        self._add_load(name, side, measured)

    def _wait_until_idle(self, server: Server) -> None:
        """Wait until the broker has processed all messages: its processor is idle."""
        before_s = server.read_usage().cpu_s
        for _ in range(RESTS_MAX):
            time.sleep(SETTLE_S)
            now_s = server.read_usage().cpu_s
            if now_s - before_s < RESTS_BELOW * SETTLE_S:
                return
            before_s = now_s

    def _measure_beside(self, target: Target, address: str, made: int, rate: float) -> Measured:
        """Measure sends at a fixed rate while topics are made, at a rate or as fast as possible.

        The first second is not measured: sends that are due while the load connects wait for the
        connections, whatever the broker does. Topics are made to the end of the measurement.
        """
        maker = threading.Thread(
            target=topic_load.create,
            args=(address, "update", made, int(BESIDE_S * MOST_A_SECOND), CREATORS, rate, BESIDE_S),
        )
        maker.start()
        try:
            return target.measure_sends(("-w", "64", "-s", str(SIZE), "--rate", "10000"), 1.5, 1.0)
        finally:
            maker.join()

    def _measure_recovery(self, side: str) -> None:
        """Measure the start of a broker after kill -9, with `recovery_mb` of log."""
        if not self._plan.has_part("recovery"):
            return
        with run_server(side, self._folder, {}) as server:
            server.load_target().fill_topic(self._plan.recovery_mb * 1000, RECOVERY_SIZE)
            server.kill_broker()
            server.start_broker()
            self.results.add("recovery.ready_s", side, server.ready_s)
            self._say(f"  recovery, {side}: ready {server.ready_s:.2f} s after kill -9")

    def _topics(self) -> None:
        """Measure the first load over many topics; RocketMQ takes minutes to make them."""
        if self._plan.has_part("topics"):
            with run_server(OURS, self._folder, {}) as server:
                measured = self._measure_sends(
                    server.load_target(), LOADS[0], topics=self._plan.topics
                )
                self._add_load("topics", OURS, measured)

    def _measure_bounds(self) -> None:
        """Measure the bound of each load: bare responder, gRPC floor, msync, copies."""
        plan = self._plan
        with bound.run_responder(SIZE) as responder:
            target = Target(responder.address, responder.cpu_s, bound.TOPIC)
            for load in LOADS:
                if plan.has_part(load.name) and load.is_bounded:
                    self._add_load(
                        load.name,
                        BOUND,
                        target.measure_sends(
                            load.arguments, plan.duration_s, min(plan.warmup_s, BOUND_WARMUP_S)
                        ),
                    )
            if plan.has_part("backlog"):
                self._add_load("backlog", BOUND, target.measure_reads(plan.backlog))
        if plan.has_part("grpc"):
            self._grpc_floor()
        self._folder.mkdir(parents=True, exist_ok=True)
        program = bound.compile_program(self._folder)
        if plan.has_part("sync-1x1"):
            rate = bound.msync_rate(program, self._folder, plan.duration_s)
            self._add_rate("sync-1x1", BOUND, rate)
        if plan.has_part("append"):
            size = engine_append.record_size(APPEND_SIZE)
            self._add_rate("append", BOUND, bound.copy_rate(program, self._folder, size, 1.0))
            rate = engine_append.appends_per_s(self._folder / "store", APPEND_SIZE)
            self._add_rate("append", OURS, rate)

    def _add_rate(self, name: str, side: str, rate: float) -> None:
        """Add a rate per second to the results, and print it."""
        self.results.add(f"{name}.messages_per_s", side, rate)
        self._say(f"  {name}, {side}: {rate:,.0f}/s")
