"""The nodes of a group: the order of their start and end, and the messages about failed ones.

The processes are scripted, the time is virtual, and the name server is the scripted cluster's.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.unit.net.client.cluster import ScriptedCluster, options, play

from turbopump.cli.errors import BAD_INPUT, FAILED
from turbopump.cli.group.files import NodeFile
from turbopump.cli.group.processes import GROUP_TIMEOUT_S, READY_S, STOP_S, GroupError, Processes
from turbopump.net.client import client_instance
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.route import BrokerData, ClusterInfo

NAMESRV = "127.0.0.1:9876"
MASTER, REPLICA = "127.0.0.1:11000", "127.0.0.1:11001"
READY = b'{"event": "ready"}\n'


class Scripted:
    """A process: its output at the start, and its reaction to signals."""

    def __init__(self, pid: int, *lines: bytes, is_deaf: bool = False) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = asyncio.StreamReader()
        self.signals: list[int] = []
        self._is_deaf = is_deaf
        for line in lines:
            self.stdout.feed_data(line)

    def end(self, code: int) -> None:
        self.returncode = code
        self.stdout.feed_eof()

    async def wait(self) -> int:
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        self.signals.append(number)
        if number == signal.SIGKILL or not self._is_deaf:
            self.end(-number if number == signal.SIGKILL else 0)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Machine:
    """Starts scripted processes, and records their start and end."""

    def __init__(self, folder: Path) -> None:
        self.journal: list[str] = []
        self.made: dict[str, Scripted] = {}
        self.words: tuple[str, ...] = ()
        self.errors: dict[str, bytes] = {}
        self.plays: dict[str, Callable[[Scripted], Any]] = {}
        self.deaf: set[str] = set()
        self._folder = folder

    async def start(self, *words: str, stderr: Any, **more: Any) -> Scripted:
        assert more["start_new_session"], "Ctrl-C is the parent's"
        name = Path(words[words.index("-c") + 1]).stem
        self.words = words
        self.journal.append(f"start {name}")
        made = Scripted(100 + len(self.journal), is_deaf=name in self.deaf)
        self.made[name] = made
        stderr.write(self.errors.get(name, b""))
        stderr.flush()
        self.plays.get(name, lambda one: one.stdout.feed_data(READY))(made)
        return made


class Group:
    """Nodes, the reported events, and the machine that runs them."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.machine = Machine(folder)
        self.events: list[dict[str, Any]] = []
        addresses = {"namesrv": NAMESRV, "broker-a": MASTER, "broker-a-2": REPLICA}
        files = [
            NodeFile(
                name,
                name.partition("-")[0],
                folder / f"{name}.properties",
                addresses.get(name, f"127.0.0.1:{9_880 + number}"),
            )
            for number, name in enumerate(names)
        ]
        self.logs = folder / "logs"
        self.processes = Processes(files, self.logs, "warning", self._notify, options())

    def _notify(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        if event["event"] == "node" and event["state"] != "running":
            self.machine.journal.append(f"{event['state']} {event['node']}")


NAMES = "namesrv", "controller-n0", "controller-n1", "broker-a", "broker-a-2"


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Group:
    """A name server, two controllers and two brokers, of which the first is the master."""
    known = ScriptedCluster()
    table = {"a": BrokerData("C", "a", {0: MASTER, 1: REPLICA})}
    known.set_response(
        NAMESRV, RequestCode.GET_BROKER_CLUSTER_INFO, ClusterInfo(table, {"C": ["a"]}).encode()
    )
    monkeypatch.setattr(client_instance, "Client", known)
    made = Group(tmp_path, *NAMES)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", made.machine.start)
    return made


def running(group: Group, story: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a story while the group runs; returns the story's result."""

    async def main() -> Any:
        await group.processes.start()
        try:
            return await story()
        finally:
            await group.processes.stop()

    return play(main())


async def nothing() -> None:
    """A story without any action."""


def failure(group: Group) -> GroupError:
    with pytest.raises(GroupError) as raised:
        play(group.processes.start())
    return raised.value


def test_the_order_of_starts_and_stops(group: Group) -> None:
    running(group, nothing)
    journal = group.machine.journal
    assert journal[:4] == [f"start {name}" for name in NAMES[:4]], "one broker has the first id"
    assert journal[4] == "start broker-a-2"
    ended = [line.partition(" ")[2] for line in journal[5:]]
    assert set(ended[:2]) == {"broker-a", "broker-a-2"}, "brokers record the news of controllers"
    assert set(ended[2:4]) == {"controller-n0", "controller-n1"} and ended[4] == "namesrv"


def test_the_files_a_node_is_started_with(group: Group) -> None:
    running(group, nothing)
    assert group.machine.words[:3] == (sys.executable, "-m", "turbopump.cli.group.child")
    assert group.machine.words[4] == "broker"
    words = " ".join(group.machine.words[5:])
    assert words.endswith(f"--log-dir {group.logs / 'broker-a-2'} --log-level warning --json")


def test_one_that_does_not_start_leaves_none(group: Group) -> None:
    group.machine.errors["controller-n1"] = b"at first\nturbopump: the port is taken\n\n"
    group.machine.plays["controller-n1"] = lambda one: one.end(BAD_INPUT)
    error = failure(group)
    assert str(error) == "controller-n1 did not start: the port is taken"
    assert error.exit_code == BAD_INPUT, "the given value cannot be used"
    assert {"stopped namesrv", "stopped controller-n0"} <= set(group.machine.journal)
    assert "start broker-a" not in group.machine.journal


def test_one_that_says_nothing_leads_to_its_log(group: Group) -> None:
    group.machine.plays["namesrv"] = lambda one: one.end(7)
    error = failure(group)
    assert str(error) == f"namesrv did not start: see {group.logs / 'namesrv'}"
    assert error.exit_code == FAILED


def test_one_that_is_silent_is_killed(group: Group) -> None:
    group.machine.plays["broker-a"] = lambda one: None
    assert str(failure(group)) == "broker-a did not start: it did not get ready in time"
    assert group.machine.made["broker-a"].signals == [signal.SIGKILL]


def test_a_recovery_that_is_told_of_has_all_the_time(group: Group) -> None:
    async def recover(one: Scripted) -> None:
        for _ in range(5):
            await asyncio.sleep(READY_S - 1)
            one.stdout.feed_data(b'{"event": "recovering", "done": 1}\n')
        one.stdout.feed_data(READY)

    tasks = []
    group.machine.plays["broker-a"] = lambda one: tasks.append(asyncio.ensure_future(recover(one)))
    running(group, nothing)
    events = [event for event in group.events if event["event"] == "recovering"]
    assert events == [{"event": "recovering", "done": 1, "node": "broker-a"}] * 5


@pytest.mark.parametrize(
    "line",
    [b"no json\n", b"5\n", b"[]\n", b"null\n", b"\xff\n", b"[" * 9_000 + b"\n", b"x" * 200_000],
    ids=lambda line: f"{line[:4]!r}{len(line)}",
)
def test_an_invalid_event_is_passed_over(group: Group, line: bytes) -> None:
    """A node's line that is overlong or no object must not end the watch of its process: the
    process would seem to run forever, and the group could not be stopped."""
    group.machine.plays["namesrv"] = lambda one: one.stdout.feed_data(line + b"\n" + READY)
    running(group, nothing)
    assert "stopped namesrv" in group.machine.journal


def test_a_node_that_ends_by_itself_is_told(group: Group) -> None:
    async def story() -> None:
        group.machine.made["broker-a-2"].end(9)
        await asyncio.sleep(1)
        states = {line["node"]: line["state"] for line in await group.processes.node_states()}
        assert states == {**dict.fromkeys(NAMES, "running"), "broker-a-2": "failed"}

    running(group, story)
    (failed,) = [event for event in group.events if event.get("state") == "failed"]
    assert (failed["node"], failed["code"]) == ("broker-a-2", 9)


def test_a_node_that_does_not_stop_is_killed(group: Group) -> None:
    group.machine.deaf.add("broker-a")
    took: list[float] = []

    async def story() -> None:
        begin_s = asyncio.get_running_loop().time()
        done = await group.processes.act_on_node("stop", "broker-a")
        took.append(asyncio.get_running_loop().time() - begin_s)
        assert done["state"] == "killed" and done["pid"] == group.machine.made["broker-a"].pid

    running(group, story)
    assert took == [STOP_S]
    assert group.machine.made["broker-a"].signals == [signal.SIGTERM, signal.SIGKILL]


def test_killed_and_started_again(group: Group) -> None:
    async def story() -> None:
        first = group.machine.made["broker-a"]
        done = await group.processes.act_on_node("kill", "master")
        assert (done["node"], done["state"], done["pid"]) == ("broker-a", "killed", first.pid)
        assert first.signals == [signal.SIGKILL], "it writes nothing down"
        with pytest.raises(GroupError, match=r"^there is no master now$"):
            await group.processes.act_on_node("stop", "master")
        with pytest.raises(GroupError, match=r"^broker-a does not run$"):
            await group.processes.act_on_node("stop", "broker-a")
        again = await group.processes.act_on_node("start", "broker-a")
        assert again["state"] == "running" and again["pid"] != first.pid
        with pytest.raises(GroupError, match=r"^broker-a runs already, pid \d+$"):
            await group.processes.act_on_node("start", "broker-a")

    running(group, story)


def test_a_name_that_is_none(group: Group) -> None:
    async def story() -> None:
        await group.processes.act_on_node("stop", "broker-b")

    with pytest.raises(GroupError) as raised:
        running(group, story)
    assert str(raised.value) == f"there is no node broker-b; there are {', '.join(NAMES)}, master"


def test_questions_while_the_group_is_stopped(group: Group) -> None:
    running(group, nothing)
    with pytest.raises(GroupError, match=r"^the group is being stopped$"):
        play(group.processes.act_on_node("start", "broker-a"))


def test_roles_are_those_of_the_name_server(group: Group) -> None:
    async def story() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        await group.processes.act_on_node("stop", "broker-a")
        return await group.processes.node_states(), await group.processes.registered_brokers()

    lines, brokers = running(group, story)
    roles = {line["node"]: line["role"] for line in lines}
    assert roles == {**dict.fromkeys(NAMES, ""), "broker-a-2": "slave"}, (
        "a process that is gone has none"
    )
    assert [(one["node"], one["id"], one["role"]) for one in brokers] == [
        *(("broker-a", 0, "master"), ("broker-a-2", 1, "slave"))
    ]


def test_without_an_elected_master_nothing_runs(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = ScriptedCluster()
    table = {"a": BrokerData("C", "a", {1: MASTER, 2: REPLICA})}
    cluster.set_response(
        NAMESRV, RequestCode.GET_BROKER_CLUSTER_INFO, ClusterInfo(table, {"C": ["a"]}).encode()
    )
    monkeypatch.setattr(client_instance, "Client", cluster)
    error = failure(group)
    assert str(error) == "the brokers did not register, or none of them was elected"
    asked = cluster.times(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert len(asked) > 100 and max(asked) <= 1_000 * GROUP_TIMEOUT_S + 10_000
    assert all(one.returncode is not None for one in group.machine.made.values())


def test_the_events_are_json(group: Group) -> None:
    running(group, nothing)
    first = group.events[0]
    assert first["event"] == "node" and first["node"] == "namesrv" and first["state"] == "running"
    json.dumps(group.events)
