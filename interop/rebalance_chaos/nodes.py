"""A run: brokers of a side, nodes that consume, a producer, and the faults of a plan.

A node is a process with some members of the group; after a kill it starts as another process with
other members, as an application does.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from interop.rebalance_chaos.faults import CALM_S, Fault
from interop.rebalance_chaos.history import (
    Down,
    Ended,
    Happened,
    Heard,
    History,
    gathered,
    noticed,
)
from interop.rebalance_chaos.lossy import LossyNetwork
from interop.support import groups, processes, toolchain
from interop.support.groups import Group, Kind, Ports
from interop.support.processes import Process

BROKERS: Final = ("broker-a", "broker-b")
NODES: Final = ("n1", "n2", "n3")
MEMBERS: Final = 2
"""Members of each node."""
QUEUES: Final = 8
"""Queues of the topic on each broker; OpenMessaging-Chaos has as many in total."""
TOPIC: Final = "chaos"
PREFIX: Final = "chaos"
SEND_PAUSE_MS: Final = 20
LOSS: Final = 0.8
DETECTOR_MS: Final = 4_000
"""Milliseconds without a heartbeat after which a member is removed; members send one each
second."""
HEAP_MB: Final = 64
BUFFERS: Final = tuple(
    f"-Dcom.rocketmq.remoting.socket.{name}.size=65535" for name in ("sndbuf", "rcvbuf")
)
"""Without these the client of 5.5.0 asks for buffers of 0 bytes, and cannot use SOCKS."""
START_S: Final = 60.0
SETTLED_S: Final = 6.0
"""Seconds at the beginning, before the first fault."""
DRAIN_S: Final = 12.0
STRATEGIES: Final = ("client-AVG", "broker-AVG", "broker-STICKY")


@dataclass
class _Node:
    """A node and its processes, of which only the last one may run."""

    name: str
    network: LossyNetwork
    started: int = 0
    process: Process | None = None
    files: list[Path] = field(default_factory=list)

    @property
    def process_name(self) -> str:
        """Client id of the last process."""
        return f"{self.name}.{self.started}"


class Run:
    """A side and a strategy under the faults of a plan."""

    def __init__(self, kind: Kind, strategy: str, folder: Path, seed: int) -> None:
        self._kind = kind
        self._strategy = strategy
        self._folder = folder
        self._ports = Ports.free()
        self._group = Group(self._ports, [])
        self._nodes = [_Node(name, LossyNetwork(seed + at)) for at, name in enumerate(NODES)]
        self._sender: Process | None = None
        self._happened: list[Happened | Down | Ended | Heard] = []

    def play(self, faults: Sequence[Fault], say: Callable[[str], None]) -> History:
        """Play the run, from the start of the brokers to the messages left in queues."""
        sent, stop = self._folder / "producer", self._folder / "stop"
        try:
            self._start_brokers()
            self._sender = self._java("send", sent, [TOPIC, QUEUES, QUEUES * len(BROKERS),
                                                     SEND_PAUSE_MS, stop])  # fmt: skip
            _until("messages are sent", START_S, lambda: sent.exists() and sent.stat().st_size > 0)
            for node in self._nodes:
                self._start(node)
            self._await_started(self._nodes)
            time.sleep(SETTLED_S)
            for fault in faults:
                say(f"{fault.name} {' '.join(fault.nodes)}")
                self._inflict(fault)
            self._happened.append(Ended(now_ms()))
            stop.touch()
            self._sender.wait(START_S)
            self._await_drained(sent)
        finally:
            self._stop()
        files = [sent, *(file for node in self._nodes for file in node.files)]
        # RocketMQ's brokers keep no such histories.
        kept = sorted(self._folder.glob("broker-*/store/rebalance/*.jsonl"))
        happened = [*self._happened, *noticed(kept)]
        return gathered([file for file in files if file.exists()], happened)

    def _start_brokers(self) -> None:
        members = self._group.members
        members.append(self._kind.namesrv(self._ports, self._folder / "namesrv"))
        groups.wait_listening(self._ports.namesrv, members[0])
        settings = {"channelExpiredTimeout": str(DETECTOR_MS)}
        if self._strategy == "broker-STICKY":
            settings["rebalanceStrategy"] = "STICKY"
        for name in BROKERS:
            own = replace(Ports.free(), namesrv=self._ports.namesrv)
            place = self._folder / name
            named = {**settings, "brokerName": name}
            members.append(self._kind.broker(own, place, place / "store", named))
            groups.wait_listening(own.broker, members[-1])
        groups.wait_ready(self._group, BROKERS)

    def _java(self, what: str, file: Path, arguments: Sequence[object]) -> Process:
        spec = ",".join(map(str, [file, *arguments]))
        return processes.java(
            f"{what}-{file.name}",
            "turbopump.interop.Main",
            toolchain.classpath("client-5.5"),
            [self._ports.namesrv_address, PREFIX, f"chaos-{what}:{spec}"],
            self._folder,
            heap_mb=HEAP_MB,
            options=[*processes.JAVA_SMALL, *BUFFERS],
        )

    def _start(self, node: _Node) -> None:
        node.started += 1
        file = self._folder / node.process_name
        node.files.append(file)
        sharing = self._strategy.partition("-")[0]
        node.process = self._java("consume", file, [TOPIC, MEMBERS, sharing, node.network.address])

    def _await_started(self, nodes: Sequence[_Node]) -> None:
        def have_started() -> bool:
            for node in nodes:
                assert node.process is not None and node.process.running, node.process
                if not node.files[-1].exists():
                    return False
                if node.files[-1].read_text().count("started\t") < MEMBERS:
                    return False
            return True

        _until("members start", START_S, have_started)

    def _inflict(self, fault: Fault) -> None:
        nodes = [node for node in self._nodes if node.name in fault.nodes]
        self._happened.append(Happened(fault.name, True, now_ms(), fault.nodes))
        for node in nodes:
            self._hit(fault.kind, node)
        time.sleep(fault.lasts_s)
        self._happened.append(Happened(fault.name, False, now_ms(), fault.nodes))
        for node in nodes:
            self._recover(fault.kind, node)
        if fault.kind == "kill":
            self._await_started(nodes)
        time.sleep(CALM_S)
        if fault.kind == "loss":
            self._happened += [Heard(node.name, node.network.heard_ms) for node in nodes]

    def _hit(self, kind: str, node: _Node) -> None:
        if kind == "loss":
            node.network.lose(LOSS)
            return
        assert node.process is not None
        os.kill(node.process.child.pid, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        self._happened.append(Down(node.process_name, now_ms(), True))

    def _recover(self, kind: str, node: _Node) -> None:
        assert node.process is not None
        if kind == "loss":
            node.network.lose(0.0)
        elif kind == "kill":
            node.process.kill()
            self._start(node)
        else:
            self._happened.append(Down(node.process_name, now_ms(), False))
            os.kill(node.process.child.pid, signal.SIGCONT)

    def _await_drained(self, sent: Path) -> None:
        """Wait until all acknowledged messages were received, or the time limit."""
        wanted = {
            line.split("\t")[4]
            for line in sent.read_text().splitlines()
            if "RESPONSE\tSUCCESS" in line
        }
        deadline = time.monotonic() + DRAIN_S
        while wanted and time.monotonic() < deadline:
            time.sleep(0.5)
            for node in self._nodes:
                for file in node.files:
                    lines = (line.split("\t") for line in file.read_text().splitlines())
                    wanted -= {line[4] for line in lines if len(line) > 4}

    def _stop(self) -> None:
        running = [node.process for node in self._nodes] + [self._sender]
        for process in running:
            if process is not None and process.running:
                process.kill()
        self._group.stop()
        for node in self._nodes:
            node.network.close()


def now_ms() -> int:
    """Write a properties text as Java does."""
    return time.time_ns() // 1_000_000


def _until(what: str, timeout_s: float, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.05)
