"""Clients of gRPC: RocketMQ's of Java, Python, Node.js, Go and Rust, as published in their
registries, and ours.

Our broker serves them at its own port, our proxy in front of two brokers; RocketMQ's proxy 5.5.0
serves them in front of our broker, which receives requests from it that no other client sends.
`--target rocketmq` has RocketMQ's proxy 5.5.0 in front of RocketMQ's broker, and ours in front of
two. Each client runs all its scenarios at once, on its own topics; Java's and Go's use TLS, their
default.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import TimeoutExpired

import pytest

from interop.support import groups, processes, proxies, toolchain
from interop.support.groups import Group, Kind, Ports
from interop.support.mqadmin import Admin
from interop.support.processes import Process
from interop.support.suites import Checks, parse

pytestmark = [pytest.mark.interop, pytest.mark.timeout(540)]
JAVA = ("push", "simple", "fifo", "delay", "transaction")
PYTHON = ("simple", "push", "tags", "sql", "fifo", "delay", "transaction", "dead")
NODE = ("simple", "push", "tags", "fifo", "delay", "transaction")
GO = ("simple", "push", "tags", "sql", "fifo", "delay", "transaction")
RUST = ("simple", "tags", "sql", "fifo", "delay", "transaction")
OURS = ("simple", "tags", "fifo", "delay")
TYPES = {"fifo": "FIFO", "delay": "DELAY", "transaction": "TRANSACTION"}
"""Message types of the scenarios' topics; other topics are NORMAL."""
QUEUES = 4
"""Queues of a topic at each broker; one for simple consumers. These ask one queue after the other
and wait 5 s for each empty one: with four queues of a second broker they reach a new message up to
20 s later, with any server."""
DEAD = "%DLQ%python-dead"
OWN, PROXY, FOREIGN = "own", "proxy", "foreign"
"""Servers that clients connect to: the target's own, our proxy in front of the target's brokers, or
RocketMQ's in front of ours."""
HEAP_MB = 256
RUN_TIMEOUT_S = 150
# The first check of a transaction comes soon, but after RocketMQ has written the ended ones
# (transactionOpBatchInterval, 3 s).
SETTINGS = {
    "transactionTimeOut": "6000",
    "transactionCheckInterval": "2000",
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    # A busy machine should not refuse sends here.
    "waitTimeMillsInSendQueue": "10000",
}
Results = dict[str, dict[str, Checks]]


@pytest.fixture(scope="module", params=[OWN, PROXY, FOREIGN])
def results(
    request: pytest.FixtureRequest, kind: Kind, built: None, work: Path
) -> Iterator[Results]:
    """A run of all clients."""
    front = str(request.param)
    if front == FOREIGN and kind.name == "rocketmq":
        pytest.skip("that is its own")
    folder = work / f"grpc-{front}"
    python_program, packages = toolchain.build_python(), toolchain.build_node()
    rust_program = toolchain.build_rust()
    group = groups.start(kind, Ports.free(), folder, folder / "store", SETTINGS)
    try:
        brokers = [group.ports.broker_address]
        if front == PROXY:
            brokers.append(_second_broker(kind, group, folder / "second"))
        admin = Admin(group, folder / "admin")
        try:
            for broker in brokers:
                _make_topics(admin, broker, "", JAVA)
                _make_topics(admin, broker, "python-", PYTHON)
                _make_topics(admin, broker, "node-", NODE)
                _make_topics(admin, broker, "go-", GO)
                _make_topics(admin, broker, "rust-", RUST)
                _make_topics(admin, broker, "ours-", OURS)
            with _serving(kind, front, group, folder) as endpoints:
                java = _java(endpoints, folder)
                python = _python(python_program, endpoints, folder)
                node = _node(packages, endpoints, folder)
                go = _go(endpoints, folder)
                rust = _rust(rust_program, endpoints, folder)
                ours = _ours(endpoints, folder)
                found = {
                    "java": _end(java, JAVA),
                    "python": _end(python, PYTHON),
                    "node": _end(node, NODE),
                    "go": _end(go, GO),
                    "rust": _end(rust, RUST),
                    "ours": _end(ours, OURS),
                }
            found["python"]["dead"].add(_dead(admin))
            yield found
        finally:
            admin.close()
    finally:
        group.stop()


def _second_broker(kind: Kind, group: Group, folder: Path) -> str:
    """Start a further broker of the cluster, with its own group; returns its address."""
    ports = Ports(group.ports.namesrv, Ports.free().broker)
    settings = {**SETTINGS, "brokerName": "broker-b"}
    broker = kind.broker(ports, folder, folder / "store", settings)
    group.members.append(broker)
    groups.wait_listening(ports.broker, broker)
    return ports.broker_address


@contextmanager
def _serving(kind: Kind, front: str, group: Group, folder: Path) -> Iterator[str]:
    """Return the address for clients."""
    if front == OWN and kind.name == "turbopump":
        yield group.ports.broker_address
        return
    start = proxies.start_ours if front == PROXY else proxies.start
    proxy, endpoints = start(group, folder / "home")
    try:
        yield endpoints
    finally:
        if front == PROXY:
            proxy.stop()
        else:
            proxy.kill()  # RocketMQ's takes long to stop, and has nothing to lose


def _java(endpoints: str, folder: Path) -> Process:
    return processes.java(
        "java",
        "turbopump.interop.Proxied",
        toolchain.classpath("client-grpc"),
        [endpoints, *JAVA],
        folder / "java",
        heap_mb=HEAP_MB,
        options=[*processes.JAVA_SMALL, "-Dturbopump.tls=true"],  # the client's own default
    )


def _python(interpreter: Path, endpoints: str, folder: Path) -> Process:
    program = Path(__file__).parent / "python_client.py"
    command = [str(interpreter), str(program), endpoints, *PYTHON]
    home = {"HOME": str(folder / "python"), "PYTHONPATH": ""}
    return Process("python", command, folder / "python", environment=home)


def _node(packages: Path, endpoints: str, folder: Path) -> Process:
    program = Path(__file__).parent / "node_client.cjs"
    home = {"HOME": str(folder / "node"), "NODE_PATH": str(packages)}
    return Process(
        "node", ["node", str(program), endpoints, *NODE], folder / "node", environment=home
    )


def _go(endpoints: str, folder: Path) -> Process:
    return Process("go", [str(toolchain.build_go()), "grpc", endpoints, *GO], folder / "go")


def _rust(program: Path, endpoints: str, folder: Path) -> Process:
    return Process("rust", [str(program), endpoints, *RUST], folder / "rust")


def _ours(endpoints: str, folder: Path) -> Process:
    program = Path(__file__).parent / "our_client.py"
    command = [sys.executable, str(program), endpoints, *OURS]
    return Process("ours", command, folder / "ours")


def _end(process: Process, scenarios: tuple[str, ...]) -> dict[str, Checks]:
    try:
        process.wait(RUN_TIMEOUT_S)
    except TimeoutExpired:
        pass  # the scenarios that did not end are failures of their own
    finally:
        process.stop()
    return parse(process.out.read_text(), scenarios)


def _make_topics(admin: Admin, broker: str, prefix: str, names: tuple[str, ...]) -> None:
    for name in names:
        topic = prefix + name
        attribute = f"+message.type={TYPES.get(name, 'NORMAL')}"
        queues = 1 if topic.endswith("simple") or prefix == "rust-" else QUEUES
        made = admin.run(
            "updateTopic", "-b", broker, "-t", topic, "-r", queues, "-w", queues, "-a", attribute
        )
        assert "success" in made, made
        ordered = str(name == "fifo").lower()
        retries = 1 if name == "dead" else 16
        made = admin.run("updateSubGroup", "-b", broker, "-g", topic, "-o", ordered, "-r", retries)
        assert "success" in made, made


def _dead(admin: Admin) -> dict[str, object]:
    """Whether the message that was always refused is a dead letter."""
    rows = admin.rows("topicStatus", "-t", DEAD)
    ends = [int(row[3]) for row in rows]
    return {
        "kind": "check",
        "what": "then it is a dead letter",
        "ok": sum(ends) == 1,
        "after_ms": 0,
        "detail": str(rows),
    }


@pytest.mark.parametrize(
    ("client", "scenario"),
    [
        *(("java", name) for name in JAVA),
        *(("python", name) for name in PYTHON),
        *(("node", name) for name in NODE),
        *(("go", name) for name in GO),
        *(("rust", name) for name in RUST),
        *(("ours", name) for name in OURS),
    ],
)
def test_a_client_of_grpc(results: Results, client: str, scenario: str) -> None:
    """All checks of the scenario pass."""
    checks = results[client][scenario]
    assert not checks.failed, "\n".join(checks.failed)
    assert checks.ended, f"it stopped after {checks.passed[-1:]}"
