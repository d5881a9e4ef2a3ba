"""A master with one and two replicas, all processes, beside what the least of it costs.

    python -m bench.replication [--mb 512] [--seconds 5]

First `sendfile`: a bare loop in C that sends a file of the same size in pieces of the same size to
as many receivers (bench/sendfile.c). Then default HA: how fast replicas that begin with nothing get
a log, and sends that wait until each replica has them, their rate and latency. Processor time is
per gigabyte of log and replica, and per message, of master and replicas apart. Ratios of one run
are what counts.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop import groups, processes
from interop.groups import Kind, Ports
from interop.processes import Process

HERE = Path(__file__).resolve().parent
PIECE = 32_768
"""haTransferBatchSize's default."""
BODY = 1024
RUNTIME_INFO = 28
LOOK_S = 0.005
CATCH_UP_S = 300
READY_S = 120.0
LOADS = {"64 x 1": ("-w", "64"), "8 x 32": ("-w", "8", "--in-flight", "32"), "1 x 1": ("-w", "1")}
"""Connections x requests in flight."""


def build(folder: Path) -> Path:
    """The compiled loop."""
    program = folder / "sendfile"
    command = ["gcc", "-O3", "-std=gnu11", "-o", str(program), str(HERE / "sendfile.c")]
    subprocess.run(command, check=True)
    return program


@dataclass(frozen=True)
class Copied:
    """A log that came to all replicas."""

    bytes_per_s: float
    """Of each replica."""
    master_cpu_s: float
    replica_cpu_s: float
    """Per gigabyte and replica, both."""


def bare(program: Path, folder: Path, size: int, replicas: int) -> Copied:
    """What the loop in C reaches."""
    source, target = folder / "source", folder / "target"
    try:
        with source.open("wb") as file:
            for _ in range(size >> 20):
                file.write(os.urandom(1 << 20))
        command = [str(program), str(source), str(PIECE), str(replicas), str(target)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    finally:
        for path in folder.glob("target.*"):
            path.unlink()
        source.unlink(missing_ok=True)
    found = json.loads(done.stdout)
    sent = found["bytes"] * replicas / 1e9
    return Copied(
        found["bytes"] / found["seconds"],
        found["sender_cpu_s"] / sent,
        found["receivers_cpu_s"] / sent,
    )


def ask(port: int, code: int) -> dict[str, Any] | None:
    """The JSON that a broker answers with, None if it does not."""
    header = json.dumps(
        {"code": code, "language": "OTHER", "version": 513, "opaque": 1, "flag": 0, "extFields": {}}
    ).encode()
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as connection:
            connection.sendall(struct.pack(">II", 4 + len(header), len(header)) + header)
            with connection.makefile("rb") as stream:
                size, header_size = struct.unpack(">II", stream.read(8))
                stream.read(header_size & 0xFFFFFF)
                found = json.loads(stream.read(size - 4 - (header_size & 0xFFFFFF)) or b"{}")
                assert isinstance(found, dict)
                return found
    except (OSError, struct.error):
        return None


def log_end(port: int) -> int:
    """Where a broker's log ends; 0 while it does not say."""
    answer = ask(port, RUNTIME_INFO)
    return int(answer["table"].get("commitLogMaxOffset", 0)) if answer else 0


def cpu_s(process: Process) -> float:
    """Processor time of all its threads so far."""
    tasks = Path(f"/proc/{process.child.pid}/task")
    return sum(int((one / "schedstat").read_text().split()[0]) for one in tasks.iterdir()) / 1e9


class Pair:
    """A name server, a master whose sends wait for all replicas, and later those."""

    def __init__(self, kind: Kind, folder: Path, replicas: int) -> None:
        self._kind, self._folder = kind, folder
        self.ports = Ports.free()
        self._namesrv = kind.namesrv(self.ports, folder / "namesrv")
        groups.wait_listening(self.ports.namesrv, self._namesrv)
        self._sync = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": str(replicas + 1)}
        self.master = self._start_master({})
        self.replicas: list[tuple[int, Process]] = []
        self._wait_ready()

    def _start_master(self, settings: dict[str, str]) -> Process:
        folder = self._folder / "master"
        return self._kind.broker(self.ports, folder, folder / "store", settings)

    def _wait_ready(self) -> None:
        groups.wait_ready(groups.Group(self.ports, [self._namesrv, self.master]))
        deadline = time.monotonic() + READY_S
        while ask(self.ports.broker, RUNTIME_INFO) is None and time.monotonic() < deadline:
            time.sleep(LOOK_S)

    def add(self) -> None:
        """One more replica, with nothing."""
        number = len(self.replicas) + 1
        ports = Ports(self.ports.namesrv, processes.free_ports((-2, 0, 1)))
        folder = self._folder / f"replica-{number}"
        settings = {
            "brokerRole": "SLAVE",
            "brokerId": str(number),
            "haMasterAddress": f"127.0.0.1:{self.ports.broker + 1}",
        }
        process = self._kind.broker(ports, folder, folder / "store", settings)
        self.replicas.append((ports.broker, process))

    def stop(self) -> None:
        """All of it."""
        for _, process in self.replicas:
            process.kill()
        self.master.kill()
        self._namesrv.kill()

    def load(self, *options: str) -> dict[str, Any]:
        """What the generator says of a load of sends."""
        command = [
            groups.TURBOPUMP, "bench", "producer", "-n", self.ports.namesrv_address,
            "-t", "Replicated", "-s", str(BODY), "--json", *options,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found

    def fill(self, size: int) -> int:
        """A log of that size, while there is nobody to wait for; returns its end."""
        count = size // (BODY + 200) // 32 * 32
        self.load("-b", "32", "-w", "8", "-q", str(count))
        self.master.stop()
        self.master = self._start_master(self._sync)
        self._wait_ready()
        end = log_end(self.ports.broker)
        if end <= 0:
            raise RuntimeError(f"the master does not say where its log ends\n{self.master.tail()}")
        return end

    def wait_for(self, port: int, end: int) -> None:
        """Until a broker's log ends there."""
        deadline = time.monotonic() + CATCH_UP_S
        while log_end(port) < end:
            if time.monotonic() > deadline:
                raise RuntimeError(f"a replica ends at {log_end(port)}, not {end}")
            time.sleep(LOOK_S)

    def copied(self, end: int, replicas: int) -> Copied:
        """How that many replicas, all of them new, get all of the log: they start while the master
        stands still, so the time begins when it goes on."""
        self.master.child.send_signal(signal.SIGSTOP)
        for _ in range(replicas):
            self.add()
        for port, process in self.replicas:
            groups.wait_listening(port, process)
            deadline = time.monotonic() + READY_S
            while ask(port, RUNTIME_INFO) is None and time.monotonic() < deadline:
                time.sleep(LOOK_S)
        began, master = time.perf_counter(), cpu_s(self.master)
        used = sum(cpu_s(process) for _, process in self.replicas)
        self.master.child.send_signal(signal.SIGCONT)
        for port, _ in self.replicas:
            self.wait_for(port, end)
        seconds, moved = time.perf_counter() - began, end * replicas / 1e9
        return Copied(
            end / seconds,
            (cpu_s(self.master) - master) / moved,
            (sum(cpu_s(process) for _, process in self.replicas) - used) / moved,
        )


@contextmanager
def pair(kind: Kind, replicas: int) -> Iterator[Pair]:
    """A master; nothing is left of it."""
    folder = Path(tempfile.mkdtemp(prefix="replication-"))
    try:
        running = Pair(kind, folder, replicas)
        try:
            yield running
        finally:
            running.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measured(kind: Kind, replicas: int, size: int, seconds: float) -> dict[str, Any]:
    """Catch-up, and sends that wait, of one master with so many replicas."""
    with pair(kind, replicas) as group:
        end = group.fill(size)
        copied = group.copied(end, replicas)
        found: dict[str, Any] = {"copied": copied}
        for name, options in LOADS.items():
            cpus = [cpu_s(group.master), sum(cpu_s(one) for _, one in group.replicas)]
            load = group.load(*options, "--warmup", "0.2", "--duration", str(seconds))
            assert not load["errors"], load["errors"]
            spent = [cpu_s(group.master), sum(cpu_s(one) for _, one in group.replicas)]
            each = 1e6 / load["all_messages"]
            found[name] = {
                "messages_per_s": load["messages_per_s"],
                "p50_us": load["latency_us"]["p50"],
                "p99_us": load["latency_us"]["p99"],
                "master_cpu_us": (spent[0] - cpus[0]) * each,
                "replica_cpu_us": (spent[1] - cpus[1]) * each / replicas,
            }
    return found


def _copied_line(name: str, copied: Copied, limit: Copied) -> str:
    return (
        f"{name:32} {copied.bytes_per_s / 1e6:7,.0f} MB/s a replica"
        f" ({copied.bytes_per_s / limit.bytes_per_s:4.0%} of the loop);"
        f" CPU a GB: master {copied.master_cpu_s:5.2f} s, replica {copied.replica_cpu_s:5.2f} s"
    )


def main() -> int:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    kind: Kind = groups.Turbopump()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        program = build(folder)
        for replicas in (1, 2):
            limit = bare(program, folder, given.mb << 20, replicas)
            print(_copied_line(f"sendfile, {replicas}", limit, limit), flush=True)
            found = measured(kind, replicas, given.mb << 20, given.seconds)
            name = f"{kind.name}, {replicas}"
            print(_copied_line(name, found.pop("copied"), limit), flush=True)
            for load, told in found.items():
                print(
                    f"{name:20} {load:11} {told['messages_per_s']:9,.0f} messages/s,"
                    f" p50 {told['p50_us']:7,.0f} us, p99 {told['p99_us']:7,.0f} us; CPU a"
                    f" message: master {told['master_cpu_us']:6.2f} us,"
                    f" replica {told['replica_cpu_us']:6.2f} us",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
