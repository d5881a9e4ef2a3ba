"""RocketMQ's proxy 5.5.0 in front of a broker, and its gRPC client in front of the proxy.

The proxy speaks RocketMQ's protocol with the broker as no other client does: pop for all
consumers, batches of acknowledgements, changes of times, questions about topics and groups.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.support import groups, processes, proxies, toolchain
from interop.support.groups import Group, Kind, Ports
from interop.support.mqadmin import Admin
from interop.support.suites import Checks, parse

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
SCENARIOS = ("push", "simple", "fifo", "delay", "transaction")
TYPES = {"fifo": "FIFO", "delay": "DELAY", "transaction": "TRANSACTION"}
"""Of the scenarios' topics; the others' are NORMAL."""
HEAP_MB = 256
RUN_TIMEOUT_S = 150
# The first question about a transaction comes soon, but not before RocketMQ has written down
# which ones are ended (transactionOpBatchInterval, 3 s).
SETTINGS = {"transactionTimeOut": "6000", "transactionCheckInterval": "2000"}


@pytest.fixture(scope="module")
def proxied(kind: Kind, built: None, work: Path) -> Iterator[dict[str, Checks]]:
    """One run of all scenarios."""
    folder = work / "proxy"
    group = groups.start(kind, Ports.free(), folder, folder / "store", SETTINGS)
    try:
        _make_topics(group, folder)
        proxy, endpoints = proxies.start(group, folder / "home")
        try:
            client = processes.java(
                "client",
                "turbopump.interop.Proxied",
                toolchain.classpath("client-grpc"),
                [endpoints, *SCENARIOS],
                folder / "client",
                heap_mb=HEAP_MB,
            )
            try:
                client.wait(RUN_TIMEOUT_S)
            finally:
                client.stop()
        finally:
            proxy.kill()  # it takes long to stop, and has nothing to lose
        yield parse(client.out.read_text(), SCENARIOS)
    finally:
        group.stop()


def _make_topics(group: Group, folder: Path) -> None:
    admin = Admin(group, folder / "admin")
    broker = group.ports.broker_address
    try:
        for name in SCENARIOS:
            attribute = f"+message.type={TYPES.get(name, 'NORMAL')}"
            made = admin.run(
                "updateTopic", "-b", broker, "-t", name, "-r", 4, "-w", 4, "-a", attribute
            )
            assert "success" in made, made
            ordered = str(name == "fifo").lower()
            made = admin.run("updateSubGroup", "-b", broker, "-g", name, "-o", ordered)
            assert "success" in made, made
    finally:
        admin.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_grpc_client_through_the_proxy(proxied: dict[str, Checks], scenario: str) -> None:
    """All of its checks hold."""
    checks = proxied[scenario]
    assert not checks.failed, "\n".join(checks.failed)
    assert checks.ended, f"it stopped after {checks.passed[-1:]}"
