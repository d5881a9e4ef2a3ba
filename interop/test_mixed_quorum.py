"""Two controllers of ours and RocketMQ's in one quorum: elections, and the log lines of Java.

Such a quorum is not recommended (README: RocketMQ's controllers sync neither votes nor entries),
but members of both kinds elect each other, and our question before an election, a vote request of
term -1, does a Java member no harm (docs/internals/controllers.md, "Elections of the quorum").
"""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from interop.support.controlled import METADATA_INFO, Controlled, Member
from interop.support.groups import Kind, RocketMQ, Turbopump, ask

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
JAVA = 2
"""Number of RocketMQ's controller."""
LED_S = 10.0
ELECTIONS = 3
ERRORS_MAX = 40
"""Greatest number of lines of ERROR or WARN that Java writes for each leader that dies, including
its connections."""
LONG_S = 60.0
"""Seconds for the start of a JVM on a busy machine."""


@pytest.fixture
def group(
    kind: Kind, built: None, work: Path, request: pytest.FixtureRequest
) -> Iterator[Controlled]:
    """Start three controllers with a leader, the last one RocketMQ's."""
    kinds: list[Kind] = [Turbopump(), Turbopump(), RocketMQ()]
    made = Controlled(work / request.node.name, kind, kinds, [])
    try:
        made.start_rulers()
        yield made
    finally:
        made.abandon()


def troubles(member: Member) -> list[str]:
    """Return the lines of its logs with ERROR or WARN."""
    found = []
    for path in member.folder.rglob("*"):
        if path.is_file() and path.suffix in (".log", ".out", ".txt"):
            lines = path.read_text(errors="replace").splitlines()
            found += [one for one in lines if " ERROR " in one or " WARN " in one]
    return found


def test_a_leader_that_dies_is_replaced_and_java_writes_no_storm(group: Controlled) -> None:
    java = group.controllers[JAVA]
    for _ in range(ELECTIONS):
        for one in group.controllers:
            group.until("it knows the leader", partial(knows, group, one), LONG_S)
        old = group.leader()
        assert old is not None
        before = len(troubles(java))
        old.kill()
        since = time.monotonic()
        new = another_leader(group, old)
        took_s = time.monotonic() - since
        written = troubles(java)[before:]
        print(
            f"{old.name} died, {new.name} leads after {took_s:.2f} s, "
            f"{len(written)} lines of trouble at the Java member"
        )
        assert took_s < LED_S
        assert len(written) <= ERRORS_MAX, written
        old.start()


def another_leader(group: Controlled, old: Member) -> Member:
    """Return the next leader."""
    found: list[Member] = []

    def is_there() -> bool:
        one = group.leader()
        if one is not None and one is not old:
            found.append(one)
        return bool(found)

    group.until("another leader", is_there, LONG_S)
    return found[-1]


def knows(group: Controlled, one: Member) -> bool:
    """Whether a controller names the leader."""
    leader, response = group.leader(), ask(one.port, METADATA_INFO, {})
    named = response.fields.get("controllerLeaderId")
    return response.code == 0 and leader is not None and named == leader.name
