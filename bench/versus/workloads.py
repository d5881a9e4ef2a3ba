"""Workloads: loads of `turbopump bench`, which treats every broker the same.

Owns their list and how a load is run against an address. It must never know the broker's kind.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUEUES = 8
QUEUES_OF_TOPIC = 4
ROUND = ("-w", "1", "--in-flight", "64", "-s", "128")
"""A single connection, which sends to the queues in turn."""
PULL_SIZE = 32
FILL_CONNECTIONS = 8
FILL_BATCH = 32
TIMEOUT_S = 900
TOPIC = "Versus"
WARMING = ("-w", "8", "--in-flight", "32", "-s", "128", "--messages")
WARMING_READS = 200_000
PROGRAM = str(Path(sys.executable).parent / "turbopump")


@dataclass(frozen=True)
class Load:
    """Arguments of the load generator for a load of sends."""

    name: str
    title: str
    arguments: tuple[str, ...]
    is_bounded: bool = True
    """Whether the bare loop is measured, too: not if the rate is fixed, nor if a disk decides."""


@dataclass(frozen=True)
class Life:
    """Loads that a broker serves in sequence, on a store that was fresh before them.

    They share a broker where possible: starting a JVM and letting it compile takes longer than a
    load. Loads that write most have their own, or their dirty pages would slow the next load.
    """

    loads: tuple[Load, ...]
    warming: int
    """Messages before the first load, for which a JVM compiles its paths; equal for all sides."""
    flush: str = "ASYNC_FLUSH"
    tls: bool = False
    """Whether the load uses TLS, also before the first load: both brokers accept it on their only
    port, with a certificate that they made themselves."""


def _make_load(name: str, title: str, arguments: str, **more: Any) -> Load:
    return Load(name, title, tuple(arguments.split()), **more)


LIVES = (
    Life(
        (
            _make_load("send-64x1-128", "send, 64 connections x 1, 128 B", "-w 64 -s 128"),
            _make_load(
                "fixed-10k",
                "send 10,000 a second, 64 connections, 128 B",
                "-w 64 -s 128 --rate 10000",
                is_bounded=False,
            ),
            _make_load("send-64x1-1k", "send, 64 connections x 1, 1 KB", "-w 64 -s 1024"),
        ),
        200_000,
    ),
    Life(
        (
            _make_load(
                "send-8x32-128", "send, 8 connections x 32, 128 B", "-w 8 --in-flight 32 -s 128"
            ),
        ),
        200_000,
    ),
    Life(
        (
            _make_load(
                "send-8x32-1k", "send, 8 connections x 32, 1 KB", "-w 8 --in-flight 32 -s 1024"
            ),
        ),
        200_000,
    ),
    Life(
        (_make_load("batch-128", "batches of 32 x 128 B, 8 connections x 1", "-w 8 -b 32 -s 128"),),
        200_000,
    ),
    Life(
        (
            _make_load(
                "sync-64x1",
                "sync flush, 64 connections x 1, 128 B",
                "-w 64 -s 128",
                is_bounded=False,
            ),
            _make_load(
                "sync-1x1", "sync flush, 1 connection x 1, 128 B", "-w 1 -s 128", is_bounded=False
            ),
        ),
        50_000,
        "SYNC_FLUSH",
    ),
    Life(
        (
            _make_load(
                "tls-64x1-128",
                "send over TLS, 64 connections x 1, 128 B",
                "-w 64 -s 128",
                is_bounded=False,
            ),
        ),
        200_000,
        tls=True,
    ),
    Life(
        (
            _make_load(
                "tls-8x32-128",
                "send over TLS, 8 connections x 32, 128 B",
                "-w 8 --in-flight 32 -s 128",
                is_bounded=False,
            ),
        ),
        200_000,
        tls=True,
    ),
)
LOADS = tuple(load for life in LIVES for load in life.loads)


@dataclass(frozen=True)
class Measured:
    """Result of a load; `cpu_us` is the broker's processor time for a message."""

    messages_per_s: float
    cpu_us: float
    p50_us: float
    p99_us: float
    refused: float
    """Requests that were refused or not answered, per accepted message."""


@dataclass(frozen=True)
class Target:
    """The server under load: its name server, and the processor time it has used."""

    namesrv: str
    cpu_s: Callable[[], float]
    topic: str = TOPIC
    preload: Path | None = None
    """Library that makes the load use TLS (bench/tls_load.c)."""

    def measure_sends(
        self,
        arguments: tuple[str, ...],
        duration_s: float,
        warmup_s: float,
        *,
        topics: int = 1,
        queues: int = QUEUES,
    ) -> Measured:
        """Send for `duration_s` seconds after a warm-up, with these options of `turbopump bench`;
        return the measurements."""
        return self._measure_command(
            "producer",
            (
                *arguments,
                "--queues",
                str(queues),
                "--topics",
                str(topics),
                "--duration",
                str(duration_s),
                "--warmup",
                str(warmup_s),
            ),
        )

    def warm_up(self, messages: int) -> None:
        """Send a number of messages before a measurement, so that a JVM compiles its code."""
        self._measure_command("producer", (*WARMING, str(messages), "--queues", str(QUEUES)))

    def fill_queues(self, topics: int) -> None:
        """Send two messages to each queue of `topics` topics."""
        messages = 2 * topics * QUEUES_OF_TOPIC
        self._measure_command(
            "producer",
            (
                *ROUND,
                "--queues",
                str(QUEUES_OF_TOPIC),
                "--topics",
                str(topics),
                "--messages",
                str(messages),
            ),
        )

    def fill_topic(self, messages: int, size: int) -> None:
        """Send a number of messages, as fast as the broker accepts them."""
        self._measure_command(
            "producer",
            (
                "-w",
                str(FILL_CONNECTIONS),
                "-b",
                str(FILL_BATCH),
                "-s",
                str(size),
                "--queues",
                str(QUEUES),
                "--messages",
                str(messages),
            ),
        )

    def measure_reads(self, messages: int) -> Measured:
        """Read a number of messages, with a connection for each queue."""
        return self._measure_command(
            "consumer",
            (
                "-w",
                str(QUEUES),
                "--pull-size",
                str(PULL_SIZE),
                "--messages",
                str(messages),
            ),
        )

    def _measure_command(self, command: str, arguments: tuple[str, ...]) -> Measured:
        """Run `turbopump bench COMMAND`, and measure it with the broker's CPU time."""
        line = [
            PROGRAM,
            "bench",
            command,
            "-n",
            self.namesrv,
            "-t",
            self.topic,
            "--json",
            *arguments,
        ]
        more = {} if self.preload is None else {"LD_PRELOAD": str(self.preload)}
        before_s = self.cpu_s()
        done = subprocess.run(
            line,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            env={**os.environ, **more},
        )
        used_s = self.cpu_s() - before_s
        if done.returncode:
            raise RuntimeError(f"{' '.join(line[1:])} failed:\n{done.stderr}{done.stdout}")
        given = json.loads(done.stdout)
        latency = given["latency_us"]
        return Measured(
            given["messages_per_s"],
            used_s * 1e6 / given["all_messages"],
            latency["p50"],
            latency["p99"],
            sum(given["errors"].values()) / given["all_messages"],
        )
