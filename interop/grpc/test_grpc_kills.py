"""A client of gRPC sends through a proxy while the masters of a group with controllers are killed:
no acknowledged message is lost, and the client follows by itself.

RocketMQ's own Python client, unmodified. `python -m interop.grpc.test_grpc_kills --kills 30` plays
more kills, and prints the times.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from interop.support import proxies, toolchain
from interop.support.controlled import Controlled
from interop.support.groups import Kind, Turbopump
from interop.support.kills import (
    SETTLED_S,
    KillTimes,
    Limits,
    judge,
    kill_masters,
    make_topic,
    spread,
)
from interop.support.processes import Process
from interop.support.senders import Ledger

pytestmark = [pytest.mark.interop, pytest.mark.timeout(540)]
TOPIC = "grpc-kills"
KILLS = 3
LIMITS = Limits(first_s=30.0, whole_s=40.0)
START_S = END_S = 60.0


def play(kind: Kind, kills: int, folder: Path, say: Callable[[str], None]) -> KillTimes:
    """Start a new group, play its kills and end it."""
    interpreter = toolchain.build_python()
    group = Controlled(folder, kind, [kind] * 3, [kind] * 3)
    seen, running = KillTimes(), list[Process]()
    try:
        group.start()
        make_topic(group, TOPIC)
        proxy, endpoints = proxies.start_ours(group.as_group, folder / "proxy")
        running.append(proxy)
        acks, stop = folder / "acks", folder / "stop"
        program = str(Path(__file__).with_name("enduring.py"))
        command = [str(interpreter), program, endpoints, TOPIC, str(acks), str(stop)]
        home = {"HOME": str(folder / "client"), "PYTHONPATH": ""}
        client = Process("enduring", command, folder / "client", environment=home)
        running.append(client)
        ledger = Ledger(TOPIC, acks)

        def sends() -> bool:
            assert client.running, client.tail()
            ledger.refresh()
            return bool(ledger.numbers)

        group.until("the client sends", sends, START_S)
        time.sleep(SETTLED_S)
        kill_masters(group, [ledger], kills, LIMITS, seen, say)
        stop.touch()
        client.wait(END_S)
        judge(group, [ledger], seen)
    finally:
        for process in reversed(running):
            process.kill()
        group.abandon()
    return seen


def test_a_client_sends_through_kills(kind: Kind, built: None, work: Path) -> None:
    if kind.name != "turbopump":
        pytest.skip("RocketMQ loses messages: python -m interop.support.failover --target rocketmq")
    seen = play(kind, KILLS, work / TOPIC, print)
    found = seen.found[TOPIC]
    assert found.acked > 100 and found.lost == 0, found
    print(f"{found.acked} acknowledged; first success (s) {spread(seen.first_s[TOPIC])}")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m interop.grpc.test_grpc_kills")
    parser.add_argument("--kills", type=int, default=30)
    kills = parser.parse_args().kills
    with tempfile.TemporaryDirectory() as folder:
        seen = play(Turbopump(), kills, Path(folder), lambda line: print(line, flush=True))
    found = seen.found[TOPIC]
    print(
        f"{seen.kills} kills, {found.acked} acknowledged, {found.lost} lost; seconds (p50 / p99 /"
        f" max) to the first success {spread(seen.first_s[TOPIC])}, until all are in sync again"
        f" {spread(seen.whole_s)}"
    )
    if found.lost:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
