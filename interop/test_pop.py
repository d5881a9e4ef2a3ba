"""Java consumers that pop, and unacknowledged messages on a store that goes from broker to broker.

The consumers are unmodified push consumers whose broker shares the queues out and says POP.
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
"""The exit code of a consumer that dies with what it popped."""
SETTINGS = {"flushConsumerOffsetInterval": "500"}
SAVED_S = 20
KINDS: dict[str, Kind] = {"rocketmq": RocketMQ(), "turbopump": Turbopump()}
ENDINGS: dict[str, Callable[[Group], None]] = {"stopped": Group.stop, "killed": Group.kill}


def client(ports: Ports, folder: Path, scenario: str) -> Process:
    """Runs one scenario of the Java client to its end."""
    process = java_client("client-5.5", [ports.namesrv_address, "pops", scenario], folder)
    process.wait(STEP_TIMEOUT_S)
    return process


def judge(process: Process, scenario: str) -> None:
    """All of its checks hold."""
    checks = parse(process.out.read_text(), [scenario])[scenario]
    assert checks.ended and not checks.failed, "\n".join([*checks.failed, process.tail()])


def wait_saved(store: Path) -> None:
    """All that was popped is in the saved offsets: a RocketMQ broker knows nothing else of what
    another one, or itself, handed out before a kill. It begins to save 10 s after its start."""
    deadline, saved = time.monotonic() + SAVED_S, store / "config" / "consumerOffset.json"
    while True:
        # RocketMQ's queue ids are not quoted, so it is no JSON.
        text = saved.read_text() if saved.exists() else ""
        queues = re.findall(r'"(?!%RETRY%)[^"]*pop-move-group"\s*:\s*\{([^}]*)\}', text)
        if sum(int(at) for at in re.findall(r":\s*(\d+)", " ".join(queues))) == COUNT:
            return
        assert time.monotonic() < deadline, text
        time.sleep(0.1)


def test_two_members_pop(kind: Kind, built: None, work: Path) -> None:
    """A letter that is refused, and one whose handling lasts too long, come once more; the rest
    comes once."""
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
def test_what_is_not_acknowledged_goes_from_broker_to_broker(
    kind: Kind, built: None, work: Path, first: str, then: str, ending: str
) -> None:
    """A consumer dies with half of what it popped, its broker is stopped or killed; another broker
    goes on with the store: the other half comes, and nothing that was acknowledged."""
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
