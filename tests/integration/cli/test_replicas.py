"""A master and its replica as processes: answers to a sender, and reading without the master."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli.conftest import SMALL_FILES, TIMEOUT_S, Up

pytestmark = pytest.mark.integration

Command = Callable[..., Any]
SLAVE_TIMEOUT_MS = 1_000
LOG_FILE = "0" * 20


class Group:
    """A name server, a master whose sends wait for one replica, and that replica."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes: dict[str, Up] = {}
        self.namesrv = self.start(
            "namesrv", "namesrv", f"kvConfigPath={folder}/kvConfig.json\n", "-p", "0"
        )

    def start(self, kind: str, name: str, properties: str, *arguments: str) -> str:
        """Run a node; returns its address."""
        file = self.folder / f"{name}.properties"
        file.write_text(properties)
        self.nodes[name] = node = Up(kind, "-c", str(file), *arguments, "--json")
        return str(node.ready["address"])

    def broker(self, name: str, properties: str) -> str:
        """Run a broker of the group."""
        own = (
            f"storePathRootDir={self.folder}/{name}\nbrokerName=group\nbrokerIP1=127.0.0.1\n"
            f"bindAddress=127.0.0.1\nlistenPort=0\nnamesrvAddr={self.namesrv}\n{SMALL_FILES}"
        )
        return self.start("broker", name, own + properties)

    def master(self) -> str:
        """Start the master."""
        waits = f"inSyncReplicas=2\nslaveTimeout={SLAVE_TIMEOUT_MS}\n"
        return self.broker("master", f"brokerRole=SYNC_MASTER\n{waits}")

    def replica(self) -> str:
        """Start the replica."""
        return self.broker("replica", "brokerRole=SLAVE\nbrokerId=1\n")

    def log(self, name: str) -> bytes:
        """A broker's first log file, as far as it is written."""
        return (self.folder / name / "commitlog" / LOG_FILE).read_bytes().rstrip(b"\0")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """A group whose name server runs."""
    made = Group(tmp_path)
    yield made
    for node in reversed(made.nodes.values()):
        node.process.send_signal(signal.SIGCONT)
        node.process.kill()
        node.process.communicate(timeout=TIMEOUT_S)


def send(command: Command, group: Group, body: str) -> str:
    """The status that a sender gets."""
    done = command("send", "-n", group.namesrv, "-t", "T", "-p", body, "--json")
    return str(done.json[0]["status"]) if done.out else str(done.err)


def until_sent(command: Command, group: Group, body: str) -> None:
    """Send until the replica is there."""
    deadline = time.monotonic() + TIMEOUT_S
    while send(command, group, body) != "SEND_OK":
        assert time.monotonic() < deadline, "no replica came"


def until_known(topics: Path) -> None:
    """A replica takes over topics every few seconds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (topics.exists() and '"T"' in topics.read_text()):
        assert time.monotonic() < deadline, "the topic does not come"
        time.sleep(0.05)


def test_a_sender_receives_the_replicas_state(group: Group, command: Command) -> None:
    group.replica()  # before there is a master
    group.master()
    until_sent(command, group, "first")
    assert send(command, group, "second") == "SEND_OK"
    log = group.log("master")
    assert b"second" in log
    assert group.log("replica") == log, "a sender that got this answer has its message twice"

    replica = group.nodes["replica"].process
    replica.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    assert "FLUSH_SLAVE_TIMEOUT" in send(command, group, "third")
    assert time.monotonic() - began >= SLAVE_TIMEOUT_MS / 1_000
    replica.send_signal(signal.SIGCONT)
    until_sent(command, group, "fourth")
    assert group.log("replica") == group.log("master")


def test_messages_the_master_acknowledged_are_read_from_the_replica(
    group: Group, command: Command
) -> None:
    group.master()
    replica = group.replica()
    until_sent(command, group, "kept")
    until_known(group.folder / "replica" / "config" / "topics.json")
    group.nodes["master"].stop(signal.SIGKILL)
    got = command("consume", "-n", group.namesrv, "-t", "T", "-g", "G", "--count", "1", "--json")
    assert [message["body"] for message in got.json] == ["kept"]
    refused = send(command, group, "refused")
    assert "SEND_OK" not in refused
    listed = command("admin", "clusterList", "-n", group.namesrv)
    assert replica in listed.out

    group.master()
    until_sent(command, group, "again")
    assert b"again" in group.log("replica")
