"""A client of gRPC whose broker stops and comes back, and a client that handles a message for
longer than it is hidden.

RocketMQ's own Python client, unmodified, at the broker's own port; `--target rocketmq` has
RocketMQ's proxy in front of a broker that stops and comes back.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from interop.support import groups, proxies, toolchain
from interop.support.groups import Group, Kind, Ports
from interop.support.mqadmin import Admin
from interop.support.processes import Process

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]
TOPIC, LONG = "grpc-restarts", "grpc-long"
AGAIN_S = 90.0
WORK_S = 130.0
END_S = 90.0
QUIET_S = 10.0
"""Seconds without messages; a message that was not acknowledged would come again sooner."""


@dataclass
class Played:
    """The output of the two clients, and how long sends failed at each return, in seconds."""

    lines: list[str]
    long_lines: list[str]
    gaps_s: list[float] = field(default_factory=list)

    def numbers(self, word: str) -> set[int]:
        """Return the rest of the lines that begin with a word."""
        return {int(line.split()[1]) for line in self.lines if line.startswith(f"{word} ")}


def _until(what: str, condition: Callable[[], bool], limit_s: float) -> float:
    """Wait for a condition; returns the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < limit_s, f"{what}: not within {limit_s} s"
        time.sleep(0.02)
    return time.monotonic() - began


def _client(endpoints: str, folder: Path) -> Process:
    program = str(Path(__file__).with_name("restarted.py"))
    stop = folder / "stop"
    command = [str(toolchain.build_python()), program, endpoints, TOPIC, LONG, str(stop)]
    home = {"HOME": str(folder / "client"), "PYTHONPATH": ""}
    return Process("restarted", command, folder / "client", environment=home)


def _lines(client: Process) -> list[str]:
    return client.out.read_text().splitlines()


class _Side:
    """Start a group, the server of gRPC in front of it, and a client."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.group = groups.start(kind, Ports.free(), folder, folder / "store")
        self.running: list[Process] = []
        admin = Admin(self.group, folder / "admin")
        try:
            for name in (TOPIC, LONG):
                broker = self.group.ports.broker_address
                made = admin.run("updateTopic", "-b", broker, "-t", name, "-r", 2, "-w", 2)
                assert "success" in made, made
                made = admin.run("updateSubGroup", "-b", broker, "-g", name)
                assert "success" in made, made
        finally:
            admin.close()
        endpoints = self.group.ports.broker_address
        if kind.name == "rocketmq":
            proxy, endpoints = proxies.start(self.group, folder / "home")
            self.running.append(proxy)
        self.client = _client(endpoints, folder)
        self.running.append(self.client)

    def come_back(self, leave: Callable[[Process], None]) -> None:
        """Stop the broker, and start it again on its store."""
        group: Group = self.group
        leave(group.members.pop())
        ports, folder = group.ports, self.folder / f"again-{time.monotonic_ns()}"
        group.members.append(self.kind.broker(ports, folder, self.folder / "store", {}))

    def end(self) -> None:
        for process in reversed(self.running):
            process.kill()
        self.group.kill()


@pytest.fixture(scope="module")
def played(kind: Kind, built: None, work: Path) -> Iterator[Played]:
    """A client handles its message while the other client's broker restarts."""
    sides = [_Side(kind, work / "restarts")]
    try:
        sides.append(_Side(kind, work / "long"))
        restarted, steady = sides
        seen = Played([], [])

        def sends_again() -> bool:
            return len(_lines(restarted.client)) > before and _lines(restarted.client)[
                -1
            ].startswith(("sent", "came"))

        before = 0
        _until("it sends", sends_again, AGAIN_S)
        for leave in (Process.stop, Process.kill, Process.stop):
            time.sleep(2.0)
            restarted.come_back(leave)
            before = len(_lines(restarted.client))
            seen.gaps_s.append(_until("it sends again", sends_again, AGAIN_S))
        (restarted.folder / "stop").touch()
        restarted.client.wait(END_S)
        _until("the work ends", lambda: "ended 1" in _lines(steady.client), WORK_S)
        time.sleep(QUIET_S)
        seen.lines, seen.long_lines = _lines(restarted.client), _lines(steady.client)
        yield seen
    finally:
        for side in sides:
            side.end()


def test_a_client_goes_on_when_its_broker_comes_back(played: Played) -> None:
    sent, came = played.numbers("sent"), played.numbers("came")
    assert len(sent) > 100
    assert sent <= came, f"lost: {sorted(sent - came)[:10]}"
    print(f"{len(sent)} acknowledged; seconds until it goes on: {played.gaps_s}")


def test_messages_in_work_for_long_come_once(played: Played) -> None:
    words = ("began", "ended")
    found = [line for line in played.long_lines if line.startswith(words)]
    assert found == ["began 1", "ended 1"]
