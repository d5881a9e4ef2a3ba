"""The client of DLedger 0.3.2 (io.openmessaging.storage) at the port of three controllers.

`--target rocketmq` tests the same with RocketMQ's own controllers, except for requests that they
never answer.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from interop.support import processes, toolchain
from interop.support.controlled import Controlled
from interop.support.groups import Kind
from interop.support.processes import Process

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

GROUP = "interop"
HEAP_MB = 128
SUCCESS, UNEXPECTED_ARGUMENT, INDEX_OUT_OF_RANGE = 200, 411, 410
NEXT_BROKER_ID = 1012
APPLY_BROKER_ID = 2
TRIES = 40
"""Greatest number of appends until there is a new leader; the client itself waits and asks for
metadata in each."""


def event(number: int, name: str = "of-a-ledger-client") -> bytes:
    """The entry that registers a broker's id, as RocketMQ writes it."""
    address = f"10.0.0.{number}:10911"
    members = {
        "brokerAddress": address,
        "brokerName": name,
        "clusterName": "C",
        "eventType": "APPLY_BROKER_ID_EVENT",
        "newBrokerId": number,
        "registerCheckCode": f"{address};{number}",
    }
    return APPLY_BROKER_ID.to_bytes(2) + json.dumps(members).encode()


@dataclass(frozen=True)
class Appended:
    """The result of append."""

    code: int
    index: int
    term: int
    leader: str


@dataclass(frozen=True)
class Got:
    """The result of get."""

    code: int
    index: int = -1
    term: int = -1
    body: bytes = b""


class Ledger:
    """A running Ledger.java."""

    def __init__(self, group: Controlled, folder: Path) -> None:
        peers = ";".join(f"{one.name}-{one.address}" for one in group.controllers)
        self.process: Process = processes.java(
            "ledger",
            "turbopump.interop.Ledger",
            toolchain.classpath("server"),
            [GROUP, peers],
            folder,
            heap_mb=HEAP_MB,
            talks=True,
        )

    def _ask(self, line: str) -> list[str]:
        child = self.process.child
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(line.encode() + b"\n")
        child.stdin.flush()
        while True:
            printed = child.stdout.readline().decode()
            assert printed, self.process.tail()
            if printed.startswith("= "):  # a line of the program, not of a logger
                return printed.removeprefix("= ").split()

    def append(self, body: bytes) -> Appended:
        """Append one entry."""
        code, index, term, leader = self._ask(f"append {base64.b64encode(body).decode()}")
        return Appended(int(code), int(index), int(term), leader)

    def get(self, index: int) -> Got:
        """Get one entry."""
        code, *entry = self._ask(f"get {index}")
        if not entry:
            return Got(int(code))
        body = base64.b64decode(entry[2].removesuffix("."))
        return Got(int(code), int(entry[0]), int(entry[1]), body)


@pytest.fixture
def group(
    kind: Kind, built: None, work: Path, request: pytest.FixtureRequest
) -> Iterator[Controlled]:
    """Start three controllers with a leader."""
    made = Controlled(work / request.node.name, kind, [kind] * 3, [])
    try:
        made.start_rulers()
        yield made
    finally:
        made.abandon()


@pytest.fixture
def ledger(group: Controlled) -> Iterator[Ledger]:
    """Start the client."""
    made = Ledger(group, group.folder / "client")
    try:
        yield made
    finally:
        made.process.stop()


def test_entries_are_appended_and_got(group: Controlled, ledger: Ledger) -> None:
    bodies = [event(number) for number in range(1, 21)]
    done = [ledger.append(body) for body in bodies]
    assert {one.code for one in done} == {SUCCESS}
    leader = group.leader()
    assert leader is not None
    assert {one.leader for one in done} == {leader.name}
    indexes = [one.index for one in done]
    assert indexes == sorted(set(indexes))
    for one, body in zip(done, bodies, strict=True):
        assert ledger.get(one.index) == Got(SUCCESS, one.index, one.term, body)
    assert ledger.get(0).body == b""  # the first entry of a leader
    assert ledger.get(indexes[-1] + 1_000).code == INDEX_OUT_OF_RANGE
    # The entries were applied, too.
    fields = {"clusterName": "C", "brokerName": "of-a-ledger-client"}
    response = group.to_leader(NEXT_BROKER_ID, fields)
    assert response is not None
    assert (response.code, response.fields["nextBrokerId"]) == (0, "21")


def test_the_leader_is_killed_between_appends(group: Controlled, ledger: Ledger) -> None:
    first = ledger.append(event(1))
    assert first.code == SUCCESS
    leader = group.leader()
    assert leader is not None
    leader.kill()
    for _ in range(TRIES):
        second = ledger.append(event(1, "after-the-kill"))
        if second.code == SUCCESS:
            break
    assert second.code == SUCCESS
    assert second.term > first.term
    assert second.leader != leader.name
    assert ledger.get(first.index) == Got(SUCCESS, first.index, first.term, event(1))
    assert ledger.get(second.index).body == event(1, "after-the-kill")


def test_an_invalid_event_is_refused(kind: Kind, group: Controlled, ledger: Ledger) -> None:
    if kind.name == "rocketmq":
        pytest.skip("RocketMQ's controllers never answer this")
    for body in (b"hello", b"\0\4{}", b"\0\x65{}", b"\0\2{}", b"\0\1\xff"):
        assert ledger.append(body).code == UNEXPECTED_ARGUMENT
    assert ledger.append(event(1)).code == SUCCESS
    assert all(one.running for one in group.controllers)
