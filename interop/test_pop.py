"""Java consumers that pop, and unacknowledged messages on a store that goes from broker to broker.

The consumers are unmodified push consumers; their broker assigns the queues in mode POP.
"""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from interop.support import groups
from interop.support.groups import Group, Kind, Ports, RocketMQ, Turbopump
from interop.support.processes import Process
from interop.support.suites import java_client, parse

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
COUNT = 60
STEP_TIMEOUT_S = 150
DIED = 3
"""Exit code of a consumer that dies with popped messages."""
SETTINGS = {"flushConsumerOffsetInterval": "500"}
SAVED_S = 20
KINDS: dict[str, Kind] = {"rocketmq": RocketMQ(), "turbopump": Turbopump()}
ENDINGS: dict[str, Callable[[Group], None]] = {"stopped": Group.stop, "killed": Group.kill}


def client(ports: Ports, folder: Path, scenario: str) -> Process:
    """Run one scenario of the Java client to its end."""
    process = java_client("client-5.5", [ports.namesrv_address, "pops", scenario], folder)
    process.wait(STEP_TIMEOUT_S)
    return process


def judge(process: Process, scenario: str) -> None:
    """All checks of the scenario pass."""
    checks = parse(process.out.read_text(), [scenario])[scenario]
    assert checks.ended and not checks.failed, "\n".join([*checks.failed, process.tail()])


def wait_saved(store: Path) -> None:
    """Wait until the saved offsets include all popped messages: after a kill a RocketMQ broker has
    no other record of the messages that it or another broker delivered. It saves from 10 s after
    its start."""
    deadline, saved = time.monotonic() + SAVED_S, store / "config" / "consumerOffset.json"
    while True:
        # RocketMQ does not quote queue ids, so the file is not JSON.
        text = saved.read_text() if saved.exists() else ""
        queues = re.findall(r'"(?!%RETRY%)[^"]*pop-move-group"\s*:\s*\{([^}]*)\}', text)
        if sum(int(at) for at in re.findall(r":\s*(\d+)", " ".join(queues))) == COUNT:
            return
        assert time.monotonic() < deadline, text
        time.sleep(0.1)


def test_two_members_pop(kind: Kind, built: None, work: Path) -> None:
    """A refused message, and one whose handling takes too long, arrive once more; the others arrive
    once."""
    folder = work / "pop"
    group = groups.start(kind, Ports.free(), folder, folder / "store")
    try:
        judge(client(group.ports, folder / "client", "pop"), "pop")
    finally:
        group.stop()


@pytest.mark.parametrize(
    ("first", "then", "ending"),
    [
        ("turbopump", "turbopump", "stopped"),
        ("turbopump", "turbopump", "killed"),
        ("turbopump", "rocketmq", "stopped"),
        ("rocketmq", "turbopump", "stopped"),
        ("turbopump", "rocketmq", "killed"),
        ("rocketmq", "turbopump", "killed"),
    ],
)
def test_unacknowledged_messages_go_from_broker_to_broker(
    kind: Kind, built: None, work: Path, first: str, then: str, ending: str
) -> None:
    """A consumer dies with half of its popped messages, its broker is stopped or killed; another
    broker takes over the store: the other half is redelivered, and no acknowledged message."""
    if kind.name == "rocketmq":
        first = then = "rocketmq"
    folder, ports = work / f"open-{first}-{then}-{ending}", Ports.free()
    group = groups.start(KINDS[first], ports, folder / "first", folder / "store", SETTINGS)
    try:
        left = client(ports, folder / "leave", f"pop-leave:{COUNT}")
        assert left.child.returncode == DIED, left.tail()
        if KINDS[then].name == "rocketmq":
            wait_saved(folder / "store")
    finally:
        ENDINGS[ending](group)
    group = groups.start(KINDS[then], ports, folder / "then", folder / "store", SETTINGS)
    try:
        judge(client(ports, folder / "go-on", f"pop-go-on:{COUNT}"), "pop-go-on")
    finally:
        group.stop()
