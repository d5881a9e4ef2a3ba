"""A replica acts for its killed master, and the master comes back (RIP-32), with a Java consumer.

An unmodified ordered consumer goes on at the replica, commits there, and goes on at the master. Of
RocketMQ 5.5.0 only the first half is asked: its master does not come back (observed.md).
"""

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from interop.support.groups import (
    BROKER_NAME,
    Answer,
    Group,
    Kind,
    Ports,
    ask,
    wait_listening,
    wait_ready,
)
from interop.support.ports import BROKER_AND_HA, free_port
from interop.support.suites import java_client, parse

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
TIMEOUT_S = 90
"""RocketMQ's replica asks for topics after a minute."""
QUEUES = 2
COUNT = 20
"""Messages of a queue, each time."""
TOPIC, READERS = "acting-standing-topic", "acting-standing"
SETTINGS = {
    "enableSlaveActingMaster": "true",
    "totalReplicas": "2",
    "slaveReadEnable": "true",
    "mappedFileSizeCommitLog": str(16 << 20),
    "brokerIP2": "127.0.0.1",
}


class Pair:
    """A master and its replica behind one name server."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.master = Ports.free()
        self.replica = Ports(self.master.namesrv, free_port(BROKER_AND_HA))
        self.group = Group(self.master, [kind.namesrv(self.master, folder)])
        wait_listening(self.master.namesrv, self.group.members[0])
        ask(self.master.namesrv, 318, {}, b"supportActingMaster=true\n")
        self.start_master()
        replica = {**SETTINGS, "brokerRole": "SLAVE", "brokerId": "1"}
        place = folder / "replica"
        self.group.members.append(kind.broker(self.replica, place, place / "store", replica))
        wait_ready(self.group)

    def start_master(self) -> None:
        """A process on its store."""
        place = self.folder / "master"
        self.group.members.append(self.kind.broker(self.master, place, place / "store", SETTINGS))

    def route(self) -> tuple[dict[str, str], int]:
        """Addresses by id, and the permission of the topic's queues."""
        fields = {"topic": TOPIC, "acceptStandardJsonOnly": "true"}
        answer = ask(self.master.namesrv, 105, fields)
        if answer.code:
            return {}, 0
        found: dict[str, Any] = json.loads(answer.body)
        return found["brokerDatas"][0]["brokerAddrs"], found["queueDatas"][0]["perm"]

    def leads(self, ports: Ports) -> bool:
        """Whether clients are led to that broker as the master."""
        return self.route()[0].get("0") == ports.broker_address

    def send(self, first: int) -> None:
        """COUNT numbered messages to each queue."""
        for number in range(first, first + COUNT):
            for queue_id in range(QUEUES):
                fields = {
                    "a": "senders",
                    "b": TOPIC,
                    "c": "TBW102",
                    "d": str(QUEUES),
                    "e": str(queue_id),
                    "f": "0",
                    "g": str(int(time.time() * 1000)),
                    "h": "0",
                }
                body = b"%d" % number
                until("it is stored", partial(self._stores, fields, body))

    def _stores(self, fields: dict[str, str], body: bytes) -> bool:
        """Whether the master takes a message: it may not serve yet."""
        return ask(self.master.broker, 310, fields, body).code == 0

    def queue_ends(self, ports: Ports) -> list[int]:
        """Where a broker's queues end."""
        return [self._offset(ports, 30, {}, queue_id) for queue_id in range(QUEUES)]

    def committed(self, ports: Ports) -> list[int]:
        """How far a broker knows the group."""
        fields = {"consumerGroup": READERS}
        return [self._offset(ports, 14, fields, queue_id) for queue_id in range(QUEUES)]

    def has_topic(self, ports: Ports) -> bool:
        """Whether a broker serves it."""
        return ask(ports.broker, 351, {"topic": TOPIC}).code == 0

    def locks(self, ports: Ports) -> int:
        """How many queues of another group a stranger gets; -1: the broker gives none."""
        queues = [
            {"topic": TOPIC, "brokerName": BROKER_NAME, "queueId": queue_id}
            for queue_id in range(QUEUES)
        ]
        body = {"consumerGroup": "strangers", "clientId": "stranger", "mqSet": queues}
        answer = ask(ports.broker, 41, {}, json.dumps(body).encode())
        return len(json.loads(answer.body)["lockOKMQSet"]) if answer.code == 0 else -1

    def _offset(self, ports: Ports, code: int, fields: dict[str, str], queue_id: int) -> int:
        asked = {**fields, "topic": TOPIC, "queueId": str(queue_id)}
        try:
            answer: Answer = ask(ports.broker, code, asked)
        except OSError:
            return -1
        return int(answer.fields["offset"]) if answer.code == 0 else -1


@pytest.fixture
def pair(kind: Kind, built: None, work: Path) -> Iterator[Pair]:
    found = Pair(kind, work / "acting")
    yield found
    found.group.stop()


def until(what: str, holds: Callable[[], bool]) -> float:
    """Seconds until something is so."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < TIMEOUT_S, f"{what}: not in {TIMEOUT_S} s"
        time.sleep(0.05)
    return time.monotonic() - began


def test_a_consumer_goes_on_at_a_replica_and_back(pair: Pair, kind: Kind) -> None:
    folder = pair.folder
    out, held, stop = folder / "consumed", folder / "held", folder / "stop"
    ours = kind.name == "turbopump"
    pair.send(0)
    until("the topic is registered", lambda: pair.leads(pair.master))
    scenario = f"standing:{out},{held},{stop}"
    arguments = [pair.master.namesrv_address, "acting", scenario]
    client = java_client("client-5.5", arguments, folder / "client")

    def consumed() -> list[tuple[int, int]]:
        lines = out.read_text().splitlines() if out.exists() else []
        return [(int(one[0]), int(one[2])) for one in map(str.split, lines)]

    try:
        until("it consumes", lambda: len(consumed()) >= QUEUES * COUNT)
        held.touch()
        pair.send(COUNT)
        until("the replica has all", lambda: pair.queue_ends(pair.replica) == [2 * COUNT] * QUEUES)
        until("the replica has the topic", lambda: pair.has_topic(pair.replica))
        if ours:
            assert pair.locks(pair.replica) == -1, "its master gives locks"
            until("it knows how far the group is", lambda: min(pair.committed(pair.replica)) > 0)
        pair.group.members[1].kill()
        acts_s = until("the replica acts", lambda: pair.leads(pair.replica))
        assert pair.route()[1] == 4
        held.unlink()
        goes_on_s = until("it goes on", lambda: len(set(consumed())) == 2 * QUEUES * COUNT)
        ends = [2 * COUNT] * QUEUES
        until("offsets are committed there", lambda: pair.committed(pair.replica) == ends)
        print(f"{kind.name}: acts after {acts_s:.2f} s, consumed {goes_on_s:.2f} s later")
        if ours:
            _master_returns(pair, consumed)
    finally:
        stop.touch()
        try:
            client.wait(TIMEOUT_S)
        finally:
            client.stop()
    checks = parse(client.out.read_text(), ["standing"])["standing"]
    assert checks.ended and not checks.failed, "\n".join([*checks.failed, client.tail()])
    for queue_id in range(QUEUES):
        numbers = [number for queue, number in consumed() if queue == queue_id]
        firsts = list(dict.fromkeys(numbers))
        assert firsts == sorted(firsts), "in order"
        assert len(numbers) - len(firsts) <= COUNT, f"{len(numbers) - len(firsts)} came twice"


def _master_returns(pair: Pair, consumed: Callable[[], list[tuple[int, int]]]) -> None:
    """No offset goes back, and no queue has two holders."""
    pair.start_master()
    granted = []

    def is_back() -> bool:
        try:
            granted.append((pair.locks(pair.master), pair.locks(pair.replica)))
        except OSError:
            pass
        return pair.leads(pair.master)

    back_s = until("the master is back", is_back)
    assert pair.route()[1] == 6
    assert pair.committed(pair.master) == [2 * COUNT] * QUEUES, "what was committed to its replica"
    assert not any(min(one) >= 0 for one in granted), f"two brokers give locks: {granted}"
    assert pair.locks(pair.master) == QUEUES
    pair.send(2 * COUNT)
    goes_on_s = until("it goes on there", lambda: len(set(consumed())) == 3 * QUEUES * COUNT)
    print(f"back after {back_s:.2f} s, consumed {goes_on_s:.2f} s later")
