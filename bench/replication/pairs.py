"""A master of default HA and its replicas as processes: Apache RocketMQ's, or ours.

Owns two measurements: how fast empty replicas copy a log, and sends that wait for each replica.
Both kinds go through the same steps and are observed in the same way, by requests of RocketMQ's
protocol.
"""

import json
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.versus.servers import KINDS
from interop.support import groups
from interop.support.groups import Kind, Ports
from interop.support.mqadmin import RAW_KEY
from interop.support.ports import BROKER_AND_HA, free_port
from interop.support.processes import Process

BODY = 1024
UPDATE_CONFIG, RUNTIME_INFO, HA_STATUS = 25, 28, 907
LOOK_S = 0.02
COPY_S = 120.0
READY_S = 120.0
PATIENT = {"haHousekeepingInterval": "120000"}
"""Settings that keep the connection of a replica that is suspended while the log is filled."""
WARM_UP_S = 2.0
"""Seconds of sends before the loads, for brokers that compile while they run."""
LOADS = {"64 x 1": ("-w", "64"), "8 x 32": ("-w", "8", "--in-flight", "32"), "1 x 1": ("-w", "1")}
"""Connections x requests in flight."""


@dataclass(frozen=True)
class Copied:
    """Result of copying a log to all replicas."""

    bytes_per_s: float
    """Rate of each replica."""
    master_cpu_s: float
    replica_cpu_s: float
    """Per gigabyte and replica, both."""
    messages_per_s: float = 0.0
    """Rate of each replica; the loop has no messages."""


@dataclass(frozen=True)
class Sent:
    """Result of a load of sends that wait for all replicas."""

    messages_per_s: float
    p50_us: float
    p99_us: float
    master_cpu_us: float
    replica_cpu_us: float
    """Per message, of a single replica."""
    refused: float
    """Share of the requests that were answered with an error."""


@dataclass(frozen=True)
class Measured:
    """All results of a kind with a given number of replicas."""

    copied: Copied
    sent: dict[str, Sent]
    """Results by the name of the load."""


@dataclass(frozen=True)
class ProgressSample:
    """A sample: the replicas' acknowledged log offsets and the CPU time used up to then."""

    at_s: float
    ends: tuple[int, ...]
    master_cpu_s: float
    replicas_cpu_s: float


def ask_broker(port: int, code: int) -> dict[str, Any] | None:
    """Return the JSON of a broker's answer; None without one."""
    try:
        response = groups.ask(port, code, {}, timeout_s=5)
    except (OSError, struct.error):
        return None
    if response.code:
        return None
    found = json.loads(RAW_KEY.sub(r'\1"\2"\3', response.body.decode()))
    assert isinstance(found, dict)
    return found


def log_end(port: int) -> int:
    """Return the end of a broker's log; 0 if unknown."""
    response = ask_broker(port, RUNTIME_INFO)
    return int(response["table"].get("commitLogMaxOffset", 0)) if response else 0


def acked_offsets(port: int) -> list[int]:
    """Return the log offset that each replica has acknowledged, from the master."""
    response = ask_broker(port, HA_STATUS) or {}
    return [int(replica["slaveAckOffset"]) for replica in response.get("haConnectionInfo") or []]


def cpu_s(process: Process) -> float:
    """Return the processor time of a child and all its threads, ended ones included."""
    return time.clock_gettime(~process.child.pid << 3 | 2)  # its CLOCK_PROCESS_CPUTIME_ID


class Pair:
    """The processes of a group: a name server, a master, and later its replicas."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self._kind, self._folder = kind, folder
        self.ports = Ports.free()
        self._namesrv = kind.namesrv(self.ports, folder / "namesrv")
        groups.wait_listening(self.ports.namesrv, self._namesrv)
        self.master = self._start_master({"brokerRole": "ASYNC_MASTER"})
        self.replicas: list[tuple[int, Process]] = []
        """Port and process."""

    def _start_master(self, settings: dict[str, str]) -> Process:
        """Start the master with these broker properties, and wait until it answers."""
        folder = self._folder / "master"
        settings = {"brokerIP2": "127.0.0.1", **PATIENT, **settings}
        master = self._kind.broker(self.ports, folder, folder / "store", settings)
        groups.wait_ready(groups.Group(self.ports, [self._namesrv, master]))
        # The name server may still have the broker that was there before.
        self._wait_until(
            "the master answers", lambda: ask_broker(self.ports.broker, RUNTIME_INFO) is not None
        )
        return master

    def _wait_until(self, what: str, holds: Callable[[], bool], timeout_s: float = READY_S) -> None:
        """Wait until `holds` returns True; raises RuntimeError after `timeout_s`, with `what` and
        the ends of the logs."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline:
                tails = "\n".join(one.tail() for one in [self.master, *self._processes])
                raise RuntimeError(f"{what}: not within {timeout_s:g} s\n{tails}")
            time.sleep(LOOK_S)

    @property
    def _processes(self) -> list[Process]:
        return [process for _, process in self.replicas]

    def add(self, count: int) -> None:
        """Add empty replicas, and suspend them as soon as the master knows all.

        Otherwise they would begin seconds apart, and the first would have much of the log before
        the last.
        """
        for _ in range(count):
            self._start_replica()
        self._wait_until(
            "all are connected", lambda: len(acked_offsets(self.ports.broker)) == count
        )
        for _, process in self.replicas:
            process.child.send_signal(signal.SIGSTOP)

    def _start_replica(self) -> None:
        number = len(self.replicas) + 1
        ports = Ports(self.ports.namesrv, free_port(BROKER_AND_HA))
        folder = self._folder / f"replica-{number}"
        # The master's address comes from the name server: RocketMQ ignores haMasterAddress.
        settings = {"brokerRole": "SLAVE", "brokerId": str(number), **PATIENT}
        process = self._kind.broker(ports, folder, folder / "store", settings)
        self.replicas.append((ports.broker, process))

    def stop(self) -> None:
        """Kill all processes; the files are no longer needed."""
        for process in [*self._processes, self.master, self._namesrv]:
            process.kill()

    def load(self, *options: str) -> dict[str, Any]:
        """Run the generator with a load of sends and return its result."""
        command = [
            groups.TURBOPUMP,
            "bench",
            "producer",
            "-n",
            self.ports.namesrv_address,
            "-t",
            "Replicated",
            "-s",
            str(BODY),
            "--json",
            *options,
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if not done.stdout:
            raise RuntimeError(f"the load did not run\n{done.stderr}")
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found

    def fill_log(self, size: int) -> float:
        """Fill the log to about that size without replicas; return the bytes per message."""
        count = size // (BODY + 200) // 32 * 32
        messages = self.load("-b", "32", "-w", "8", "-q", str(count))["all_messages"]
        end = log_end(self.ports.broker)
        if end <= 0 or not messages:
            raise RuntimeError(f"the master's log is not filled\n{self.master.tail()}")
        return float(end / messages)

    def _sample_progress(self) -> ProgressSample:
        """The replicas' acknowledged log offsets and the CPU time of both sides, now."""
        ends = acked_offsets(self.ports.broker)
        missing = len(self.replicas) - len(ends)
        return ProgressSample(
            time.perf_counter(),
            tuple(max(0, end) for end in ends) + (0,) * missing,
            cpu_s(self.master),
            sum(cpu_s(process) for process in self._processes),
        )

    def measure_copying(self, message_size: float) -> Copied:
        """Resume the suspended replicas and measure how they copy the log.

        The time ends when the first replica has all of it.
        """
        os.sync()  # so that the disk has finished the filling
        count, end = len(self.replicas), log_end(self.ports.broker)
        first = last = self._sample_progress()
        for _, process in self.replicas:
            process.child.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + COPY_S
        while max(last.ends) < end and time.monotonic() < deadline:
            time.sleep(LOOK_S)
            last = self._sample_progress()
        moved = sum(last.ends) - sum(first.ends)
        if max(last.ends) < end or moved * 2 < end * count:
            raise RuntimeError(
                f"replicas began at {first.ends} and were at {last.ends} when the first of them"
                f" had all {end}: no time in which all of them copied most of it"
            )
        self._wait_until("all have the log", lambda: self._have_log(end), COPY_S)
        seconds = last.at_s - first.at_s
        rate = moved / count / seconds
        return Copied(
            rate,
            (last.master_cpu_s - first.master_cpu_s) / moved * 1e9,
            (last.replicas_cpu_s - first.replicas_cpu_s) / moved * 1e9,
            rate / message_size,
        )

    def _have_log(self, end: int) -> bool:
        """Whether the master and the replicas report that all replicas have the log up to `end`."""
        own = [log_end(port) for port, _ in self.replicas]
        return min([*acked_offsets(self.ports.broker), *own]) >= end

    def make_sync(self) -> None:
        """Let each later send wait for all replicas (SYNC_MASTER, inSyncReplicas); returns when all
        are in sync."""
        count = len(self.replicas)
        settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": str(count + 1)}
        if self._kind.name == "rocketmq":
            # It accepts this at run time; a restart would cost a minute and the compiled code.
            body = "".join(f"{key}={value}\n" for key, value in settings.items()).encode()
            response = groups.ask(self.ports.broker, UPDATE_CONFIG, {}, body)
            assert response.code == 0, response
        else:
            self.master.stop()
            self.master = self._start_master(settings)
        end = log_end(self.ports.broker)
        self._wait_until(
            "all are in sync",
            lambda: len(self._sample_progress().ends) == count and self._have_log(end),
        )

    def measure_sends(self, *options: str) -> Sent:
        """Run a load; return its result with the processor time of both sides."""
        cpus = [cpu_s(self.master), sum(map(cpu_s, self._processes))]
        load = self.load(*options)
        spent = [cpu_s(self.master), sum(map(cpu_s, self._processes))]
        each = 1e6 / max(load["all_messages"], 1)
        refused = sum(load["errors"].values())
        return Sent(
            load["messages_per_s"],
            load["latency_us"]["p50"],
            load["latency_us"]["p99"],
            (spent[0] - cpus[0]) * each,
            (spent[1] - cpus[1]) * each / max(len(self.replicas), 1),
            refused / max(load["messages"] + refused, 1),
        )


@contextmanager
def run_pair(kind: Kind) -> Iterator[Pair]:
    """Run a name server and a master of this kind in a temporary folder, which is removed
    afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="replication-"))
    try:
        running = Pair(kind, folder)
        try:
            yield running
        finally:
            running.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure_side(
    side: str, replicas: int, size: int, seconds: float, warm_up_s: float = WARM_UP_S
) -> Measured:
    """Measure catch-up and waiting sends of a master with that many replicas."""
    with run_pair(KINDS[side]) as group:
        group.add(replicas)
        copied = group.measure_copying(group.fill_log(size))
        group.make_sync()
        timed = ("--warmup", "0.5", "--duration", str(seconds))
        if warm_up_s:
            group.load("-w", "64", "--duration", str(warm_up_s))
        return Measured(
            copied, {name: group.measure_sends(*options, *timed) for name, options in LOADS.items()}
        )
