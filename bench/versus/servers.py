"""The two compared brokers as processes, and their resources as the kernel reports them.

Starts Apache RocketMQ with the comparison's heap (2 GB, G1) and its defaults otherwise; ours with
its defaults. Both get the same properties file.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import bound
from bench.versus.workloads import Target
from interop.support import groups, processes, toolchain
from interop.support.groups import Group, Kind, Ports
from interop.support.processes import Process

HEAP_MB = 2048
GET_BROKER_RUNTIME_INFO = 28
READY_TIMEOUT_S = 120
POLL_S = 0.01
JAVA_OPTIONS = ["-XX:+UseG1GC"]


class RocketMQ(groups.RocketMQ):
    """RocketMQ as an operator with 2 GB of heap runs it."""

    def broker(self, ports: Ports, folder: Path, store: Path, settings: dict[str, str]) -> Process:
        """Start RocketMQ's broker on this store with a heap of 2 GB and these properties;
        return the process."""
        config = groups.broker_properties(ports, folder, store, settings)
        return processes.java(
            "broker",
            "org.apache.rocketmq.broker.BrokerStartup",
            toolchain.classpath("server"),
            ["-c", str(config)],
            folder,
            heap_mb=HEAP_MB,
            options=JAVA_OPTIONS,
        )


KINDS: dict[str, Kind] = {"rocketmq": RocketMQ(), "turbopump": groups.Turbopump()}


@dataclass(frozen=True)
class Usage:
    """CPU time (s) and memory (MB) that a process has used."""

    cpu_s: float
    rss_mb: float
    anonymous_mb: float


class Server:
    """A running name server and broker with their store in one folder."""

    def __init__(self, kind: str, folder: Path, settings: dict[str, str]) -> None:
        self.kind = kind
        self.folder = folder
        self.settings = settings
        self.ports = Ports.free()
        self._namesrv = KINDS[kind].namesrv(self.ports, folder / "namesrv")
        groups.wait_listening(self.ports.namesrv, self._namesrv)
        self.ready_s = 0.0
        self._group: Group | None = None
        self.start_broker()

    @property
    def namesrv(self) -> str:
        """Address of the name server."""
        return self.ports.namesrv_address

    def start_broker(self) -> None:
        """Start the broker on the existing store; `ready_s` is the time until a route is served."""
        begin = time.perf_counter()
        broker = KINDS[self.kind].broker(
            self.ports, self.folder / "broker", self.folder / "store", self.settings
        )
        self._group = Group(self.ports, [self._namesrv, broker])
        # The name server may still have the former broker's route: check the new one as well.
        deadline = begin + READY_TIMEOUT_S
        while not groups.succeeds(self.ports.broker, GET_BROKER_RUNTIME_INFO, {}):
            if not broker.running or time.perf_counter() > deadline:
                self.stop()
                raise RuntimeError(f"the broker did not become ready:\n{broker.tail()}")
            time.sleep(POLL_S)
        groups.wait_ready(self._group)
        self.ready_s = time.perf_counter() - begin

    def load_target(self) -> Target:
        """Return the running broker as the target of loads."""
        return Target(self.namesrv, lambda: self.read_usage().cpu_s)

    def kill_broker(self) -> None:
        """Kill the broker (kill -9); the name server drops its route when it returns."""
        assert self._group is not None
        self._group.members[1].kill()

    def read_usage(self) -> Usage:
        """Return the resources of the broker's process."""
        assert self._group is not None
        proc = Path("/proc") / str(self._group.members[1].child.pid)
        status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        return Usage(
            bound.cpu_s(self._group.members[1].child.pid),
            int(status["VmRSS"].split()[0]) / 1024,
            int(status["RssAnon"].split()[0]) / 1024,
        )

    def stop(self) -> None:
        """Kill both at once: the store is no longer needed, and a JVM takes seconds to stop."""
        if self._group is not None:
            self._group.kill()
        else:
            self._namesrv.kill()


@contextmanager
def run_server(kind: str, folder: Path, settings: dict[str, str]) -> Iterator[Server]:
    """Run a server on an empty store; its files are removed afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    server = Server(kind, folder, settings)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
