"""Pairs of a RocketMQ broker and ours: one log on both, with a master of either kind."""

import json
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from interop.support import logs
from interop.support.groups import Kind, Ports, Response, RocketMQ, ask, wait_listening
from interop.support.mqadmin import RAW_KEY
from interop.support.ports import BROKER_AND_HA, free_port
from interop.support.processes import Process
from interop.support.scripted_controller import Controller
from interop.support.suites import java_client, parse

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]
# All waits end with their condition; these limits are for a busy machine.
STEP_TIMEOUT_S = 180
LOAD_TIMEOUT_S = 1800
WAIT_S = 90
FILE_SIZE = 5 << 20
COUNT, MORE = 2400, 400
LOG_TAIL = 4000
"""Characters of each RocketMQ log that a failed wait shows."""
UNSEEN = 200
"""Messages sent while the replica is away, so that no send waits for copies."""
KINDS = ["send-sync", "send-batch", "send-oneway", "big-message", "chinese"]
SEND_MESSAGE, PULL_MESSAGE, HA_STATUS = 10, 11, 907
TOPICS, GROUPS, OFFSETS = 21, 201, 43
FLUSH_SLAVE_TIMEOUT = 12
SETTINGS = {
    "mappedFileSizeCommitLog": str(FILE_SIZE),
    "brokerIP2": "127.0.0.1",
    "slaveReadEnable": "true",
    "haSendHeartbeatInterval": "1000",
}
MASTER = {
    "brokerRole": "SYNC_MASTER",
    "brokerId": "0",
    "inSyncReplicas": "2",
    "slaveTimeout": "6000",
}
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}


def until(what: str, holds: Callable[[], object], *brokers: "Broker") -> None:
    """Return when a condition holds; a refused connection counts as no.

    Fail immediately if one of the brokers concerned has ended, with their last output.
    """
    deadline = time.monotonic() + WAIT_S
    last: object = None
    while True:
        try:
            if last := holds():
                return
        except OSError as error:
            last = error
        seen = f"last: {last!r}" + "".join(
            f"\n{broker.words()}"
            for broker in brokers
            if not broker.running or time.monotonic() > deadline
        )
        assert all(broker.running for broker in brokers), f"{what}: a broker ended; {seen}"
        assert time.monotonic() < deadline, f"{what}: not within {WAIT_S} s; {seen}"
        time.sleep(0.1)


@dataclass
class Broker:
    """A broker of the pair: its address and files stay, its role changes from start to start."""

    kind: Kind
    ports: Ports
    folder: Path
    processes: list[Process] = field(default_factory=list)

    @property
    def store(self) -> Path:
        """Folder of its files."""
        return self.folder / "store"

    @property
    def end(self) -> int:
        """Log offset of the end of its records."""
        return logs.log_end(self.store, FILE_SIZE)

    def start(self, role: dict[str, str]) -> None:
        """Start the broker; returns when it listens."""
        folder = self.folder / str(len(self.processes) + 1)
        process = self.kind.broker(self.ports, folder, self.store, {**SETTINGS, **role})
        self.processes.append(process)
        wait_listening(self.ports.broker, process)

    def stop(self) -> None:
        """Stop the broker as an operator does."""
        self.processes[-1].stop()

    def kill(self) -> None:
        """Kill the broker."""
        self.processes[-1].kill()

    @property
    def running(self) -> bool:
        """Whether its process is running, if this object started it."""
        return not self.processes or self.processes[-1].running

    def words(self) -> str:
        """Return its report of its replication, and the last lines of its logs."""
        try:
            status = repr(self.ask(HA_STATUS))
        except (OSError, struct.error) as error:
            status = repr(error)
        folder = self.folder / str(len(self.processes)) / "logs" / "rocketmqlogs"
        ends = [
            (folder / name).read_text(errors="replace")[-LOG_TAIL:]
            for name in ("broker.log", "store.log")
            if (folder / name).exists()
        ]
        return "\n".join([status, *(one.tail() for one in self.processes[-1:]), *ends])

    def ask(self, code: int, **fields: object) -> Response:
        """Send one request."""
        return ask(self.ports.broker, code, {name: str(value) for name, value in fields.items()})

    def json(self, code: int) -> dict[str, Any]:
        """Parse the body of an answer, after quoting its raw number keys."""
        response = self.ask(code)
        assert response.code == 0, response
        return dict(json.loads(RAW_KEY.sub(r'\1"\2"\3', response.body.decode())))

    def send(self, topic: str, body: bytes, properties: str = "") -> int:
        """Send one message; returns the code of the answer."""
        fields = {
            "producerGroup": "interop",
            "topic": topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "0",
            "sysFlag": "0",
            "flag": "0",
            "bornTimestamp": str(time.time_ns() // 1_000_000),
            "properties": properties,
            "reconsumeTimes": "0",
            "unitMode": "false",
            "batch": "false",
        }
        return ask(self.ports.broker, SEND_MESSAGE, fields, body).code

    def pull(self, topic: str, queue: int) -> bytes:
        """Return all records of a queue as readers receive them."""
        found, at = bytearray(), 0
        while True:
            response = self.ask(
                PULL_MESSAGE,
                consumerGroup="move-reader",
                topic=topic,
                queueId=queue,
                queueOffset=at,
                maxMsgNums=32,
                sysFlag=4,
                commitOffset=0,
                suspendTimeoutMillis=0,
                subscription="*",
                subVersion=0,
                expressionType="TAG",
            )
            if response.code != 0:
                return bytes(found)
            found += response.body
            at = int(response.fields["nextBeginOffset"])

    @property
    def in_sync(self) -> int:
        """Return the number of replicas that a master counts as in sync."""
        return int(self.json(HA_STATUS)["inSyncSlaveNums"])


@dataclass
class Pair:
    """Two brokers with a common name at a common name server."""

    folder: Path
    brokers: list[Broker]
    steps: int = 0
    master: int = 0
    """Number of the broker that is the master now."""

    @property
    def namesrv_address(self) -> str:
        """Address of the name server for clients."""
        return self.brokers[0].ports.namesrv_address

    def run(self, prefix: str, *specs: str) -> None:
        """Run scenarios of the Java client; all their checks must pass."""
        self.steps += 1
        folder = self.folder / f"client-{self.steps}"
        client = java_client("client-5.5", [self.namesrv_address, prefix, *specs], folder)
        client.wait(STEP_TIMEOUT_S)
        scenarios = [spec.split(":")[0] for spec in specs]
        for name, checks in parse(client.out.read_text(), scenarios).items():
            assert checks.ended and not checks.failed, "\n".join(
                [name, *checks.failed, client.tail()]
            )

    def load(self, messages: int) -> None:
        """Send messages and batches on four connections; prints the time that both brokers took."""
        command = [
            sys.executable,
            "-m",
            "turbopump",
            "bench",
            "producer",
            "-n",
            self.namesrv_address,
            "-t",
            "load",
            "-q",
            str(messages),
            "-b",
            "20",
            "-w",
            "4",
            "-s",
            "500",
            "--json",
        ]
        begun = time.monotonic()
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stderr
        sent, took = json.loads(done.stdout), time.monotonic() - begun
        one, other = self.brokers
        until("the logs end alike", lambda: one.end == other.end, one, other)
        behind = time.monotonic() - begun - took
        print(
            f"{sent['messages']} messages in {took:.1f} s, logs of {one.end} bytes alike "
            f"{behind:.1f} s later; refused: {sent['errors']}"
        )
        assert sent["messages"] + 20 * sum(sent["errors"].values()) == messages
        assert set(sent["errors"]) <= {"2"}, "only a busy broker refuses"

    def lead(self, master: int) -> tuple[Broker, Broker]:
        """Start both with their roles; returns the master and the replica once it follows."""
        self.master = master
        first, second = self.brokers[master], self.brokers[1 - master]
        first.start(MASTER)
        second.start(SLAVE)
        until("the replica follows", lambda: first.in_sync == 1, first, second)
        return first, second

    def same_log(self) -> None:
        """Check that both logs have the same bytes and the same end."""
        one, other = self.brokers
        until("the logs end alike", lambda: one.end == other.end, one, other)
        found = logs.difference(one.store, other.store, one.end)
        assert found is None, f"the logs differ from {found} on"

    def same(self) -> None:
        """Check that the logs, the records that readers receive, and the tables are the same."""
        self.same_log()
        try:
            until("the tables follow", self._tables_follow)
        except AssertionError as error:
            ahead, behind = tables(self.brokers[self.master]), tables(self.brokers[1 - self.master])
            raise AssertionError(f"{error}; master and replica:\n{ahead}\n{behind}") from None
        for topic, (queues, *_) in tables(self.brokers[0])[0].items():
            for queue in range(queues if topic != "load" else 0):
                self._reads_alike(topic, queue)

    @property
    def copies_offsets(self) -> bool:
        """RocketMQ 5.5.0 writes the queue ids of offsets without quotes, and its own replica's
        parser refuses this ("SyncConsumerOffset Exception ... not support unquoted name"): no
        offset is copied between two RocketMQ brokers."""
        return any(broker.kind.name != "rocketmq" for broker in self.brokers)

    @property
    def kept(self) -> str:
        """State of committed offsets that the clients' scenarios may expect after a switch."""
        return "committed" if self.copies_offsets else "lost"

    def _tables_follow(self) -> bool:
        """A killed master has lost the offsets of its last seconds, its replica has not."""
        ahead, behind = tables(self.brokers[self.master]), tables(self.brokers[1 - self.master])
        if not self.copies_offsets:
            return ahead[:2] == behind[:2]
        return ahead[:2] == behind[:2] and all(
            behind[2].get(name, {}).get(queue, -1) >= offset
            for name, row in ahead[2].items()
            for queue, offset in row.items()
        )

    def _reads_alike(self, topic: str, queue: int) -> None:
        one, other = self.brokers
        until(
            f"{topic}/{queue} reads alike",
            lambda: one.pull(topic, queue) == other.pull(topic, queue),
        )


def tables(broker: Broker) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the topics, groups and offsets that the clients made."""
    topics = {
        name: [row["readQueueNums"], row["writeQueueNums"], row["perm"]]
        for name, row in broker.json(TOPICS)["topicConfigTable"].items()
        if name.startswith(("move", "kinds", "load", "raw"))
    }
    groups = {
        name: [row["consumeEnable"], row["retryMaxTimes"], row["retryQueueNums"]]
        for name, row in broker.json(GROUPS)["subscriptionGroupTable"].items()
        if name.startswith(("move", "kinds"))
    }
    offsets = {
        name: row
        for name, row in broker.json(OFFSETS)["offsetTable"].items()
        if name.startswith(("move", "kinds"))
    }
    return topics, groups, offsets


@contextmanager
def pair(kinds: list[Kind], folder: Path) -> Iterator[Pair]:
    """Start a name server of the second kind, and prepare two brokers; all are ended at the end."""
    ports = Ports.free()
    places = [ports, Ports(ports.namesrv, free_port(BROKER_AND_HA))]
    made = Pair(
        folder,
        [
            Broker(kind, place, folder / f"{number}-{kind.name}")
            for number, (kind, place) in enumerate(zip(kinds, places, strict=True))
        ],
    )
    namesrv = kinds[1].namesrv(ports, folder)
    try:
        wait_listening(ports.namesrv, namesrv)
        yield made
    finally:
        for broker in made.brokers:
            for process in broker.processes:
                process.stop()
        namesrv.stop()


@pytest.mark.parametrize("first", [0, 1], ids=["java-leads", "java-follows"])
def test_plain_pair(
    kind: Kind, built: None, work: Path, first: int, pytestconfig: pytest.Config
) -> None:
    """Default HA: both acknowledge, the logs and tables are equal; a replica dies, returns and then
    leads."""
    with pair([RocketMQ(), kind], work / f"plain-{first}") as mixed:
        master, replica = mixed.lead(first)
        mixed.run("move", f"exchange-write:0,{COUNT}")
        mixed.run("kinds", *KINDS)
        mixed.load(pytestconfig.getoption("--messages"))
        mixed.same_log()
        assert master.end > FILE_SIZE, "the log did not roll"

        replica.kill()
        until("the master noticed", lambda: master.in_sync == 0, master)
        assert master.send("raw", b"no replica has this yet") == FLUSH_SLAVE_TIMEOUT
        for number in range(UNSEEN):
            assert master.send("raw", bytes(number + 1), "WAIT\1false\2") == 0
        replica.start(SLAVE)
        until("the replica follows again", lambda: master.in_sync == 1, master, replica)
        until("both have it", lambda: master.send("raw", b"both have this") == 0, master, replica)
        mixed.same()

        replica.stop()
        master.stop()
        assert logs.difference(master.store, replica.store, master.end) is None
        mixed.lead(1 - first)
        # RocketMQ does not rebuild its index after a kill: only ours finds all messages by key
        # again.
        mixed.run(
            "move",
            f"exchange-write:{COUNT},{COUNT + MORE}"
            if first
            else f"exchange-continue:{COUNT},{COUNT + MORE},{mixed.kept}",
        )
        mixed.same()


OURS, THEIRS = 1, 2
"""Ids in the group that switches."""


@dataclass
class Switching:
    """A pair that switches: ours by its group file, RocketMQ's by its controller."""

    mixed: Pair
    controller: Controller
    group_file: Path

    @property
    def epoch(self) -> int:
        """The epoch that began last."""
        return self.controller.epoch

    @property
    def ours(self) -> Broker:
        """Turbopump's broker."""
        return self.mixed.brokers[OURS - 1]

    @property
    def theirs(self) -> Broker:
        """RocketMQ's broker."""
        return self.mixed.brokers[THEIRS - 1]

    def start(self, number: int) -> None:
        """Start one of the brokers."""
        own: dict[int, dict[str, str]] = {
            OURS: {"haGroupFile": str(self.group_file), "brokerId": "1"},
            THEIRS: {
                "enableControllerMode": "true",
                "controllerAddr": self.controller.address,
                "allAckInSyncStateSet": "true",
            },
        }
        self.mixed.brokers[number - 1].start({**own[number], "slaveTimeout": "6000"})

    def elect(self, master: int) -> None:
        """Begin a new epoch with both in the SyncStateSet; running brokers are notified."""
        self.mixed.master = master - 1
        self.controller.elect(master, [OURS, THEIRS])
        addresses = {
            str(number): f"127.0.0.1:{broker.ports.broker + 1}"
            for number, broker in enumerate(self.mixed.brokers, 1)
        }
        beside = self.group_file.with_suffix(".tmp")
        beside.write_text(json.dumps({"epoch": self.epoch, "master": master, "brokers": addresses}))
        beside.rename(self.group_file)

    def until_master_serves(self, master: int) -> Broker:
        """Return the new master, once it accepts sends and the other broker copies them."""
        broker = self.mixed.brokers[master - 1]
        both = self.mixed.brokers
        until("the other follows", lambda: broker.in_sync == 1, *both)
        until("both have a message", lambda: broker.send("raw", b"of a new epoch") == 0, *both)
        return broker

    def same(self) -> None:
        """Compare as in any pair, and compare the lists of epochs."""
        self.mixed.same()
        until("the epochs are the same", lambda: epochs(self.ours) == epochs(self.theirs))
        found = [int(line.split("-")[0]) for line in epochs(self.ours)]
        assert found == list(range(1, self.epoch + 1)), found


def epochs(broker: Broker) -> list[str]:
    """Return the lines of an epoch file after its count and checksum, which must be correct."""
    count, checksum, *entries = (broker.store / "epochFileCheckpoint").read_text().splitlines()
    text = "".join(f"{entry}\n" for entry in entries).encode()
    assert (int(count), int(checksum)) == (len(entries), zlib.crc32(text) & 0x7FFFFFFF)
    return entries


def test_pair_that_switches(kind: Kind, built: None, work: Path) -> None:
    """AutoSwitch HA: masters of either kind follow each other, and each loses its own tail."""
    if kind.name != "turbopump":
        pytest.skip("there is no group file in RocketMQ")
    folder = work / "switching"
    with pair([kind, RocketMQ()], folder) as mixed:
        ports = mixed.brokers
        controller = Controller(
            THEIRS, {number: broker.ports.broker_address for number, broker in enumerate(ports, 1)}
        )
        switching = Switching(mixed, controller, folder / "group.json")
        try:
            _switch(switching)
        finally:
            controller.close()


def _switch(pair: Switching) -> None:
    pair.elect(OURS)
    pair.start(OURS)
    pair.start(THEIRS)
    pair.until_master_serves(OURS)
    pair.mixed.run("move", f"exchange-write:0,{COUNT}")
    pair.same()

    pair.elect(THEIRS)
    pair.controller.notify(pair.theirs.ports.broker)
    pair.until_master_serves(THEIRS)
    pair.mixed.run("move", f"exchange-continue:{COUNT},{COUNT + MORE},{pair.mixed.kept}")
    pair.mixed.run("kinds", *KINDS)
    pair.same()

    pair.theirs.kill()
    pair.elect(THEIRS)
    pair.start(THEIRS)
    pair.until_master_serves(THEIRS)
    pair.same()

    _tail(pair, THEIRS, OURS)
    _tail(pair, OURS, THEIRS)

    # RocketMQ does not rebuild its index after a kill: only ours finds all messages by key again.
    pair.elect(OURS)
    pair.controller.notify(pair.theirs.ports.broker)
    pair.until_master_serves(OURS)
    pair.mixed.run("move", f"exchange-continue:{COUNT + MORE},{COUNT + 2 * MORE},{pair.mixed.kept}")
    pair.same()


def _tail(pair: Switching, old: int, new: int) -> None:
    """The master writes records that its replica never receives, dies, and follows that replica."""
    master, replica = pair.mixed.brokers[old - 1], pair.mixed.brokers[new - 1]
    replica.kill()
    agreed = replica.end
    for number in range(UNSEEN):
        assert master.send("raw", bytes(number + 1), "WAIT\1false\2") == 0
    assert master.end > agreed == replica.end
    master.kill()
    pair.elect(new)
    pair.start(new)
    pair.start(old)
    pair.until_master_serves(new)
    pair.same()
