"""A master and a replica that may act for it, and the Java client that consumes from them.

Owns their settings, and the queries sent to them by hand.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from interop.support.groups import (
    BROKER_NAME,
    Group,
    Kind,
    OldRocketMQ,
    Ports,
    Response,
    RocketMQ,
    ask,
    wait_listening,
    wait_ready,
)
from interop.support.ports import BROKER_AND_HA, free_port

TIMEOUT_S = 90
QUEUES = 2
COUNT = 20
"""Messages sent to each queue at a time."""
TOPIC, READERS, SHARERS = "acting-standing-topic", "acting-standing", "acting-shared"
SETTINGS = {
    "enableSlaveActingMaster": "true",
    "totalReplicas": "2",
    "slaveReadEnable": "true",
    "mappedFileSizeCommitLog": str(16 << 20),
    "brokerIP2": "127.0.0.1",
}


@dataclass(frozen=True)
class Kinds:
    """The makers of name server, master and replica."""

    namesrv: Kind
    master: Kind
    replica: Kind

    @property
    def is_java(self) -> bool:
        """Whether no member of the pair is Turbopump's."""
        return all(isinstance(one, RocketMQ) for one in (self.namesrv, self.master, self.replica))

    @property
    def is_old(self) -> bool:
        """Whether the name server is RocketMQ 4's."""
        return isinstance(self.namesrv, OldRocketMQ)


class Pair:
    """A master and its replica at a common name server."""

    def __init__(
        self, kinds: Kinds, folder: Path, topic: str = TOPIC, queues: int = QUEUES
    ) -> None:
        self.kinds, self.folder, self.topic, self.queues = kinds, folder, topic, queues
        self.master = Ports.free()
        self.replica = Ports(self.master.namesrv, free_port(BROKER_AND_HA))
        self.group = Group(self.master, [kinds.namesrv.namesrv(self.master, folder)])
        wait_listening(self.master.namesrv, self.group.members[0])
        ask(self.master.namesrv, 318, {}, b"supportActingMaster=true\n")
        self.start_master()
        wait_ready(self.group)  # before the replica, for which RocketMQ's waits half a minute
        replica = {**SETTINGS, "brokerRole": "SLAVE", "brokerId": "1"}
        place = folder / "replica"
        self.group.members.append(
            kinds.replica.broker(self.replica, place, place / "store", replica)
        )

    def start_master(self) -> None:
        """Start a process on its store."""
        place = self.folder / "master"
        made = self.kinds.master.broker(self.master, place, place / "store", SETTINGS)
        self.group.members.append(made)
        self._master = made

    def kill_master(self) -> None:
        """Kill a process with SIGKILL."""
        self._master.kill()

    def make_topic(self) -> None:
        """Create the topic at both brokers: RocketMQ's replica asks for topics only after a
        minute."""
        for ports in (self.master, self.replica):
            fields = {
                "topic": self.topic,
                "defaultTopic": "TBW102",
                "readQueueNums": str(self.queues),
                "writeQueueNums": str(self.queues),
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
            }
            until("the topic is made", partial(self._answers, ports, 17, fields))

    def queries(self) -> dict[str, int]:
        """Return the codes of the replica's answers to queries, by name."""
        queue = {"topic": self.topic, "queueId": "0"}
        key = {"key": "k1", "maxNum": "9", "beginTimestamp": "0", "endTimestamp": str(1 << 60)}
        return {
            name: ask(self.replica.broker, code, fields).code
            for name, code, fields in (
                ("key", 12, {"topic": self.topic, **key}),
                ("time", 29, {**queue, "timestamp": "1000"}),
                ("most", 30, queue),
                ("least", 31, queue),
                ("earliest", 32, queue),
            )
        }

    def _answers(self, ports: Ports, code: int, fields: dict[str, str]) -> bool:
        try:
            return ask(ports.broker, code, fields).code == 0
        except OSError:
            return False

    def route(self) -> tuple[dict[str, str], int]:
        """Return the broker addresses by id, and the permission of the topic's queues."""
        fields = {"topic": self.topic, "acceptStandardJsonOnly": "true"}
        response = ask(self.master.namesrv, 105, fields)
        if response.code:
            return {}, 0
        found: dict[str, Any] = json.loads(response.body)
        return found["brokerDatas"][0]["brokerAddrs"], found["queueDatas"][0]["perm"]

    def acts(self) -> bool:
        """Whether the replica acts: name servers show it, RocketMQ 4's do not, and our replica
        reports it."""
        if not self.kinds.is_old:
            return self.leads(self.replica)
        return b"actingSince" in ask(self.replica.broker, 28, {}).body

    def leads(self, ports: Ports) -> bool:
        """Whether the route shows that broker as the master."""
        return self.route()[0].get("0") == ports.broker_address

    def send(self, first: int) -> None:
        """Send COUNT numbered messages to each queue."""
        for number in range(first, first + COUNT):
            for queue_id in range(self.queues):
                fields = {
                    "a": "senders",
                    "b": self.topic,
                    "c": "TBW102",
                    "d": str(self.queues),
                    "e": str(queue_id),
                    "f": "0",
                    "g": str(int(time.time() * 1000)),
                    "h": "0",
                    "i": f"KEYS\1k{number}\2",
                }
                body = b"%d" % number
                until("it is stored", partial(self._stores, fields, body))

    def _stores(self, fields: dict[str, str], body: bytes) -> bool:
        """Whether the master accepts a message: it may not serve yet."""
        return ask(self.master.broker, 310, fields, body).code == 0

    def queue_ends(self, ports: Ports) -> list[int]:
        """Return the max offsets of a broker's queues."""
        return [self._offset(ports, 30, {}, queue_id) for queue_id in range(self.queues)]

    def committed(self, ports: Ports) -> list[int]:
        """Return the groups' offsets at a broker."""
        return [
            self._offset(ports, 14, {"consumerGroup": group}, queue_id)
            for group in (READERS, SHARERS)
            for queue_id in range(self.queues)
        ]

    def locks(self, ports: Ports) -> int:
        """Return the number of queues that a stranger of another group gets; -1: the broker gives
        none."""
        queues = [
            {"topic": self.topic, "brokerName": BROKER_NAME, "queueId": queue_id}
            for queue_id in range(self.queues)
        ]
        body = {"consumerGroup": "strangers", "clientId": "stranger", "mqSet": queues}
        response = ask(ports.broker, 41, {}, json.dumps(body).encode())
        return len(json.loads(response.body)["lockOKMQSet"]) if response.code == 0 else -1

    def _offset(self, ports: Ports, code: int, fields: dict[str, str], queue_id: int) -> int:
        asked = {**fields, "topic": self.topic, "queueId": str(queue_id)}
        try:
            response: Response = ask(ports.broker, code, asked)
        except OSError:
            return -1
        return int(response.fields["offset"]) if response.code == 0 else -1


def until(what: str, holds: Callable[[], bool]) -> float:
    """Wait for a condition; returns the seconds that it took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < TIMEOUT_S, f"{what}: not in {TIMEOUT_S} s"
        time.sleep(0.05)
    return time.monotonic() - began


class Consumed:
    """Messages that the two groups of the Java client received: queue and number, in this order."""

    def __init__(self, folder: Path) -> None:
        self.in_order, self.shared = folder / "consumed", folder / "shared"
        self.files = [self.in_order, self.shared]

    def received(self, file: Path) -> list[tuple[int, int]]:
        """Return all messages of a group."""
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(one[0]), int(one[2])) for one in map(str.split, lines) if len(one) > 2]

    def has(self, count: int) -> bool:
        """Whether both groups received `count` messages of each queue."""
        return all(len(set(self.received(one))) == QUEUES * count for one in self.files)
