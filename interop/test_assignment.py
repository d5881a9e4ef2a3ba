"""Unmodified Java 5.5 consumers ask two brokers for their queues (`clientRebalance=false`).

Members come and go while messages are sent, and the mode in which brokers assign queues is changed
meanwhile: to the other mode and back, without a restart or a loss. RocketMQ skips the change, and
has to pass everything else.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from interop.support import groups
from interop.support.groups import Kind
from interop.support.suites import java_client, parse

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
SCENARIO = "assigned"
RUN_TIMEOUT_S = 240


def test_members_ask_two_brokers_through_changes_of_mode(
    kind: Kind, built: None, work: Path
) -> None:
    """Both brokers return the same assignment, and each message is consumed."""
    folder = work / "assignment"
    ports = [groups.Ports.free()]
    members = [kind.namesrv(ports[0], folder / "namesrv")]
    try:
        groups.wait_listening(ports[0].namesrv, members[0])
        ports.append(replace(groups.Ports.free(), namesrv=ports[0].namesrv))
        for name, own in zip(("broker-a", "broker-b"), ports, strict=True):
            place = folder / name
            members.append(kind.broker(own, place, place / "store", {"brokerName": name}))
            groups.wait_listening(own.broker, members[-1])
        groups.wait_ready(groups.Group(ports[0], members), ("broker-a", "broker-b"))
        addresses = ",".join(own.broker_address for own in ports)
        arguments = [ports[0].namesrv_address, "assignment", f"{SCENARIO}:{addresses}"]
        client = java_client("client-5.5", arguments, folder / "client")
        try:
            client.wait(RUN_TIMEOUT_S)
        finally:
            client.stop()
    finally:
        groups.Group(ports[0], members).stop()
    checks = parse(client.out.read_text(), [SCENARIO])[SCENARIO]
    assert not checks.failed, "\n".join(checks.failed)
    assert checks.ended, f"it stopped after {checks.passed[-1:]}"
