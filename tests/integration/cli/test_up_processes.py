"""A group whose nodes are processes: broken and repaired by `turbopump node`, ended as one."""

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from turbopump.net.transport.tls import _make_self_signed

# Many processes start one after the other: on a busy machine that takes its time.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

EVENT_S = 120.0
SMALL_FILES = (
    "mappedFileSizeCommitLog=8388608\nmappedFileSizeConsumeQueue=200000\n"
    "maxHashSlotNum=1000\nmaxIndexNum=4000\n"
)
Command = Callable[..., Any]


class Group:
    """`turbopump up --json` with two brokers and a controller, and its events."""

    def __init__(self, program: list[str], folder: Path, properties: str = "") -> None:
        self.data = folder / "data"
        config = folder / "small.conf"
        config.write_text(SMALL_FILES + properties)
        words = [
            *program,
            "up",
            "--json",
            "--data",
            str(self.data),
            "-c",
            str(config),
            "--brokers",
            "2",
            "--controllers",
            "1",
        ]
        for port in ("namesrv", "broker", "controller"):
            words += [f"--{port}-port", "0"]
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder
        )
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.ready = self.wait("ready")
        except BaseException:
            self.end()
            raise
        (self.namesrv,) = self.ready["namesrv"]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._events.put(json.loads(line))
        self._events.put(None)

    def wait(self, event: str, **members: str) -> dict[str, Any]:
        """The next event with these members; those before it are passed over."""
        passed = []
        while found := self._next(passed):
            if found["event"] == event and members.items() <= found.items():
                return found
            passed.append(found)
        raise AssertionError(f"it ended before {event}: {passed}, {self.end()}")

    def _next(self, passed: list[dict[str, Any]]) -> dict[str, Any] | None:
        try:
            return self._events.get(timeout=EVENT_S)
        except queue.Empty:
            logs = {
                str(path.relative_to(self.data)): path.read_text()[-2_000:]
                for path in self.data.glob("logs/*/*.log")
            }
            raise AssertionError(f"nothing happened in time after {passed}: {logs}") from None

    def end(self) -> str:
        """Kill it; return its stderr."""
        self.process.kill()
        self._reader.join()
        return self.process.communicate()[1]

    def pids(self) -> dict[str, int]:
        return {node["node"]: node["pid"] for node in self.ready["nodes"]}


@pytest.fixture
def group(program: list[str], tmp_path: Path) -> Iterator[Group]:
    made = Group(program, tmp_path)
    yield made
    made.end()
    for pid in made.pids().values():
        gone(pid)


def gone(pid: int, within_s: float = 60.0) -> bool:
    """Whether a process ends in time."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        try:
            # A zombie has ended: its new parent has not waited for it yet.
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


class Bench:
    """`turbopump bench producer` until it is ended."""

    def __init__(self, program: list[str], command: Command, namesrv: str) -> None:
        words = [*program, "bench", "producer", "-n", namesrv, "-t", "Load", "-w", "4"]
        self.process = subprocess.Popen(
            [*words, "--rate", "500", "--duration", "200", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._command, self._namesrv = command, namesrv

    def stored(self) -> int:
        """Number of messages in the topic; 0 while no broker reports it."""
        done = self._command("admin", "topicStatus", "-n", self._namesrv, "-t", "Load", "--json")
        return sum(each["max_queue_offset"] for each in done.json[0]["queues"]) if done.out else 0

    def wait_for(self, stored: int) -> int:
        """Wait until more than `stored` messages are in the topic."""
        until_s = time.monotonic() + EVENT_S
        while (found := self.stored()) <= stored:
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < until_s, found
        return found

    def end(self) -> dict[str, Any]:
        """Interrupt it with SIGINT; return its result."""
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, err
        found: dict[str, Any] = json.loads(out)
        return found


@pytest.fixture
def bench(group: Group, program: list[str], command: Command) -> Iterator[Bench]:
    made = Bench(program, command, group.namesrv)
    yield made
    made.process.kill()
    made.process.communicate()


@pytest.mark.long
def test_a_master_is_killed_and_comes_back(group: Group, command: Command, bench: Bench) -> None:
    """A command kills a node, another restarts it; the files and logs of each node are there.

    A load goes on, and reports the interruption.
    """
    data = "--data", str(group.data)
    nodes = {node["node"]: node for node in group.ready["nodes"]}
    assert list(nodes) == ["namesrv", "controller-n0", "broker-a", "broker-a-2"]
    assert len(set(group.pids().values()) | {group.process.pid}) == 5, "each its own process"
    assert [each["role"] for each in group.ready["brokers"]] == ["master", "slave"]
    bench.wait_for(100)

    master = group.ready["brokers"][0]["node"]
    killed = command("node", "kill", "master", *data, "--json")
    assert killed.code == 0, killed.err
    assert killed.json[0]["node"] == master
    assert killed.json[0]["state"] == group.wait("node", node=master)["state"] == "killed"
    assert gone(nodes[master]["pid"])
    (other,) = {"broker-a", "broker-a-2"} - {master}
    until_s = time.monotonic() + EVENT_S
    while "master" not in (roles := _roles(command, data)).values():
        assert time.monotonic() < until_s, roles
    assert roles[other] == "master"
    bench.wait_for(bench.stored())

    started = command("node", "start", master, *data, "--json")
    assert (started.code, started.json[0]["state"]) == (0, "running"), started.err
    assert started.json[0]["address"] == nodes[master]["address"], "where it was before"
    found = bench.end()
    assert bench.stored() >= found["all_messages"] > 200, "nothing acknowledged is missing"
    outage = found["outages"][0]
    assert outage["gap_ms"] > 0 and outage["resumed_ms"] > 0, outage
    failed = sum(count for code, count in found["errors"].items())
    assert sum(each["failed_sends"] for each in found["outages"]) <= failed
    for words, text in (
        (("start", master), "runs already"),
        (("kill", "none"), "there is no node none"),
    ):
        refused = command("node", *words, *data)
        assert (refused.code, refused.err.count("\n")) == (1, 1)
        assert text in refused.err
    for name, node in nodes.items():
        assert Path(node["config"]).is_absolute()
        assert "listenPort=" in Path(node["config"]).read_text()
        assert (group.data / "logs" / name / "turbopump.log").stat().st_size

    group.process.send_signal(signal.SIGINT)
    ended = [group.wait("node", state="stopped")["node"] for _ in nodes]
    assert ended[-2:] == ["controller-n0", "namesrv"], "brokers write down first"
    group.wait("stopped")
    assert group.process.wait(60) == 0
    assert not list(group.data.glob("*/abort")), "every store was closed"
    assert not (group.data / "up.sock").exists()
    assert command("node", "list", *data).code == 2

    # The files are for a real deployment: each runs its node by itself.
    config = nodes["broker-a"]["config"]
    assert "enableControllerMode=true" in Path(config).read_text()


@pytest.mark.long
def test_a_load_goes_on_while_the_master_stands_still(
    group: Group, command: Command, bench: Bench
) -> None:
    """The load generator copes with a suspended master: no connection closes, no response comes."""
    bench.wait_for(100)
    master = group.ready["brokers"][0]["node"]
    pid = group.pids()[master]
    os.kill(pid, signal.SIGSTOP)
    try:
        data = "--data", str(group.data)
        until_s = time.monotonic() + EVENT_S
        while _roles(command, data)[master] == "master":
            assert time.monotonic() < until_s
        bench.wait_for(bench.stored())
    finally:
        os.kill(pid, signal.SIGCONT)
    found = bench.end()
    assert bench.stored() >= found["all_messages"] > 100, "nothing acknowledged is missing"
    assert max(each["gap_ms"] for each in found["outages"]) > 1_000, found["outages"]


@pytest.mark.long
def test_the_files_that_up_wrote_run_each_node_alone(
    program: list[str],
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    launch: Callable[..., Any],
) -> None:
    """The written files start each node alone, as on machines of their own; with TLS between all of
    them.
    """
    for name, content in zip(("cert.pem", "key.pem"), _make_self_signed(), strict=True):
        (tmp_path / name).write_bytes(content)
    group = Group(
        program,
        tmp_path,
        "tls.server.mode=enforcing\ntls.test.mode.enable=false\n"
        f"tls.server.certPath={tmp_path}/cert.pem\ntls.server.keyPath={tmp_path}/key.pem\n",
    )
    trust = tmp_path / "client.conf"
    trust.write_text(
        "tls.test.mode.enable=false\ntls.client.authServer=true\n"
        f"tls.client.trustCertPath={tmp_path}/cert.pem\n"
    )
    monkeypatch.setenv("TURBOPUMP_TLS", str(trust))
    try:
        sent = command("send", "-n", group.namesrv, "-t", "T", "-p", "before")
        assert sent.code == 0, sent.err
        group.process.send_signal(signal.SIGINT)
        assert group.process.wait(EVENT_S) == 0
    finally:
        group.end()
    kinds = {"namesrv": "namesrv", "controller-n0": "controller"}
    for node in group.ready["nodes"]:
        alone = launch(kinds.get(node["node"], "broker"), "-c", node["config"], "--json")
        assert alone.ready["address"] == node["address"]
    until_s = time.monotonic() + EVENT_S
    while (sent := command("send", "-n", group.namesrv, "-t", "T", "-p", "behind")).code:
        assert time.monotonic() < until_s, sent.err
    got = command("consume", "-n", group.namesrv, "-t", "T", "--count", "2", "--json")
    assert {message["body"] for message in got.json} == {"before", "behind"}


def _roles(command: Command, data: tuple[str, str]) -> dict[str, str]:
    return {each["node"]: each["role"] for each in command("node", "list", *data, "--json").json}


def test_nodes_end_with_a_parent_that_is_killed(
    group: Group, command: Command, program: list[str]
) -> None:
    second = subprocess.run(
        [*program, "up", "--processes", "--data", str(group.data), "--namesrv-port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (second.returncode, second.stderr.count("\n")) == (2, 1)
    assert "runs already" in second.stderr
    os.kill(group.process.pid, signal.SIGKILL)
    assert all(gone(pid) for pid in group.pids().values())
    assert not list(group.data.glob("*/abort")), "every store was closed"
    refused = command("node", "kill", "master", "--data", str(group.data))
    assert (refused.code, refused.err.count("\n")) == (2, 1)
