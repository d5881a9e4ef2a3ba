"""Filters by SQL92 of each client, and message traces as RocketMQ's tools show them."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from interop.support import groups, toolchain
from interop.support.groups import Group, Kind, Ports
from interop.support.mqadmin import Admin
from interop.support.processes import Process
from interop.support.suites import Checks, java_client, parse

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
SETTINGS = {"enablePropertyFilter": "true", "traceTopicEnable": "true"}
STEP_TIMEOUT_S = 150


@pytest.fixture(scope="module")
def filtering(kind: Kind, built: None, work: Path) -> Iterator[Group]:
    """Start a broker with filters, which RocketMQ disables by default."""
    folder = work / "filters"
    started = groups.start(kind, Ports.free(), folder, folder / "store", SETTINGS)
    yield started
    started.stop()


def checked(suite: str, group: Group, folder: Path, scenario: str) -> Checks:
    """Run one scenario of a client; all its checks must pass."""
    ports, prefix = group.ports, f"{suite.replace('.', '')}-filters"
    if suite == "go":
        addresses = [ports.namesrv_address, ports.broker_address]
        command = [str(toolchain.CACHE / "go-client"), *addresses, prefix, scenario]
        process = Process("client", command, folder, environment={"HOME": str(folder)})
    else:
        arguments = [ports.namesrv_address, prefix, scenario]
        process = java_client(suite.replace("java", "client"), arguments, folder)
    process.wait(STEP_TIMEOUT_S)
    checks = parse(process.out.read_text(), [scenario])[scenario]
    assert checks.ended and not checks.failed, "\n".join([*checks.failed, process.tail()])
    return checks


@pytest.mark.parametrize("suite", ["java-5.5", "java-4.9", "go"])
def test_expressions(filtering: Group, work: Path, suite: str) -> None:
    """Types, nulls, BETWEEN, IN and refused expressions; another expression of the same group."""
    checked(suite, filtering, work / f"filters-{suite}", "sql-filter")


@pytest.mark.parametrize("suite", ["java-5.5", "java-4.9"])
def test_traces(kind: Kind, filtering: Group, work: Path, suite: str) -> None:
    """mqadmin and our command find a client's traces by the message's id."""
    checks = checked(suite, filtering, work / f"traces-{suite}", "trace")
    (message_id,) = [what.removeprefix("id ") for what in checks.passed if what.startswith("id ")]
    with closing(Admin(filtering, work / f"traces-admin-{suite}")) as admin:
        printed = admin.run("queryMsgTraceById", "-i", message_id)
    words = [line.split() for line in printed.splitlines() if line.strip()]
    kinds = [line[0] for line in words if line[0] in ("Pub", "Sub")]
    assert kinds == ["Pub", "Sub"], printed
    assert [line[-1] for line in words if line[0] in ("Pub", "Sub")] == ["success", "success"]
    command = [groups.TURBOPUMP, "admin", "queryMsgTrace", "-i", message_id, "--json"]
    done = subprocess.run(
        [*command, "-n", filtering.ports.namesrv_address],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)["records"]
    assert [one["kind"] for one in records] == ["Pub", "SubBefore", "SubAfter"], done.stdout
    assert {one["message_id"] for one in records} == {message_id}
    assert all(one["is_success"] in (True, None) for one in records)
