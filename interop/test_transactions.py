"""Transactions of each client, and open ones on a store that goes from broker to broker."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from interop.support import groups, living, toolchain
from interop.support.controlled import Controlled
from interop.support.groups import Group, Kind, Ports, RocketMQ, Turbopump, wait_listening
from interop.support.living import LivingProducer
from interop.support.processes import Process
from interop.support.suites import java_client, parse

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
SETTINGS = {**living.SETTINGS, "messageIndexSafe": "true"}
COUNT = 41
STEP_TIMEOUT_S = 120
TABLE_TIMEOUT_S = 30
DIED = 3
"""Exit code of a client that dies within a transaction."""
KINDS: dict[str, Kind] = {"rocketmq": RocketMQ(), "turbopump": Turbopump()}
CLIENTS = {"stopped": "java-4.9", "killed": "java-5.5"}
ENDINGS: dict[str, Callable[[Group], None]] = {"stopped": Group.stop, "killed": Group.kill}


def client(suite: str, ports: Ports, folder: Path, scenario: str) -> Process:
    """Run one scenario of a client to its end."""
    if suite == "go":
        command = [str(toolchain.CACHE / "go-client"), ports.namesrv_address, ports.broker_address]
        process = Process(
            "client", [*command, "tx", scenario], folder, environment={"HOME": str(folder)}
        )
    else:
        arguments = [ports.namesrv_address, "tx", scenario]
        process = java_client(suite.replace("java", "client"), arguments, folder)
    process.wait(STEP_TIMEOUT_S)
    return process


def judge(process: Process, scenario: str) -> None:
    """All checks of the scenario pass."""
    checks = parse(process.out.read_text(), [scenario])[scenario]
    assert checks.ended and not checks.failed, "\n".join([*checks.failed, process.tail()])


def wait_for_topic(store: Path) -> None:
    """Wait until RocketMQ's own file has the topic: ours appends a new topic to a file beside it
    first."""
    table = store / "config" / "topics.json"
    until_s = time.monotonic() + TABLE_TIMEOUT_S
    while '"tx-left"' not in table.read_text():
        assert time.monotonic() < until_s, "topics.json does not name the topic"
        time.sleep(0.1)


@pytest.mark.parametrize("suite", ["java-5.5", "java-4.9", "go"])
def test_each_way_to_end_one(kind: Kind, built: None, work: Path, suite: str) -> None:
    folder = work / f"transactions-{suite}"
    group = groups.start(kind, Ports.free(), folder, folder / "store", SETTINGS)
    try:
        judge(client(suite, group.ports, folder / "client", "transactions"), "transactions")
    finally:
        group.stop()


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    ("first", "then"),
    [("turbopump", "turbopump"), ("turbopump", "rocketmq"), ("rocketmq", "turbopump")],
)
def test_open_ones_go_from_broker_to_broker(
    kind: Kind, built: None, work: Path, first: str, then: str, ending: str
) -> None:
    """A producer dies within its transaction, its broker is stopped or killed; another broker opens
    the store, and another producer of the group answers the broker's checks."""
    if kind.name == "rocketmq":
        first = then = "rocketmq"
    folder, ports = work / f"open-{first}-{then}-{ending}", Ports.free()
    group = groups.start(KINDS[first], ports, folder / "first", folder / "store", SETTINGS)
    try:
        left = client(CLIENTS[ending], ports, folder / "leave", f"transactions-leave:{COUNT}")
        assert left.child.returncode == DIED, left.tail()
        wait_for_topic(folder / "store")
    finally:
        ENDINGS[ending](group)
    group = groups.start(KINDS[then], ports, folder / "then", folder / "store", SETTINGS)
    try:
        spec = f"transactions-answer:{COUNT}"
        judge(client(CLIENTS[ending], ports, folder / "answer", spec), "transactions-answer")
    finally:
        group.stop()


def test_a_living_producer_is_asked_by_its_broker_after_a_kill(
    kind: Kind, built: None, work: Path
) -> None:
    """The broker is killed between half and end, and started again on its store. A producer of Java
    and one of Go live through it side by side."""
    folder, ports, times = work / "living-restart", Ports.free(), living.times(kind)
    group = groups.start(kind, ports, folder, folder / "store", SETTINGS)
    producers = [
        LivingProducer(ports.namesrv_address, folder / "java", times),
        LivingProducer(ports.namesrv_address, folder / "go", times, broker=ports.broker_address),
    ]
    try:
        for producer in producers:
            producer.wait_stored()
        group.members.pop().kill()
        for producer in producers:
            producer.broker_is_dead()
        broker = kind.broker(ports, folder / "again", folder / "store", SETTINGS)
        group.members.append(broker)
        wait_listening(ports.broker, broker)
        for producer in producers:
            producer.broker_is_back()
        for producer in producers:
            producer.judge()
    finally:
        group.stop()
        for producer in producers:
            producer.process.kill()


def test_a_living_producer_is_asked_by_the_master_that_is_elected(
    kind: Kind, built: None, work: Path
) -> None:
    """The master is killed between half and end, and does not come back."""
    folder = work / "living-elected"
    group = Controlled(folder, kind, [kind], [kind, kind], SETTINGS)
    try:
        group.start()
        producer = LivingProducer(group.namesrv_address, folder / "client", living.times(kind))
        try:
            producer.wait_stored()
            living.wait_known(group, group.brokers[1].port, (living.TOPIC,))
            group.wait_alike()
            group.brokers[0].kill()
            producer.broker_is_dead()
            group.until("another master", lambda: group.master is group.brokers[1])
            producer.broker_is_back()
            producer.judge()
        finally:
            producer.process.kill()
    finally:
        group.abandon()
