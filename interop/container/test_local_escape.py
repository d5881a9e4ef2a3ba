"""A replica that acts for its master, in one container with a master of another group (RIP-31)."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from interop.support.acting import SETTINGS, until
from interop.support.groups import Kind, Ports, ask, broker_properties, wait_listening
from interop.support.ports import BROKER, BROKER_AND_HA, free_port
from interop.support.processes import Process

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC = "escape-letters"
COUNT = 10
DELAY = "3"
"""Delay level of 10 s."""
SEND_MESSAGE, MAX_OFFSET, MAKE_TOPIC, SET_CONFIG = 10, 30, 17, 318


@dataclass
class Cluster:
    """The group "led": its master alone, its replica in a container with the master "beside"."""

    master: Process
    ports: dict[str, Ports]

    def send(self, body: bytes) -> bool:
        """Send a timer to the group's master; whether it was stored."""
        fields = {
            "producerGroup": "P",
            "topic": TOPIC,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "1",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": str(round(time.time() * 1_000)),
            "flag": "0",
            "properties": f"DELAY\x01{DELAY}\x02",
            "reconsumeTimes": "0",
            "unitMode": "false",
            "batch": "false",
        }
        return ask(self.ports["master"].broker, SEND_MESSAGE, fields, body).code == 0

    def count(self, name: str, topic: str = TOPIC, queue_id: int = 0) -> int:
        """Return the number of messages in a queue."""
        fields = {"topic": topic, "queueId": str(queue_id)}
        response = ask(self.ports[name].broker, MAX_OFFSET, fields)
        return int(response.fields["offset"]) if response.code == 0 else -1


def _make_topic(port: int) -> bool:
    fields = {
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    return ask(port, MAKE_TOPIC, fields).code == 0


@pytest.fixture
def cluster(kind: Kind, built: None, work: Path) -> Iterator[Cluster]:
    """Start brokers of the kind under test."""
    folder = work / "local-escape"
    namesrv, port = free_port(), free_port(BROKER)
    names = ("master", "replica", "beside")
    ports = {name: Ports(namesrv, free_port(BROKER_AND_HA)) for name in names}
    led = {**SETTINGS, "brokerName": "led"}
    if kind.name == "turbopump":  # RocketMQ's does not need the key
        led["enableRemoteEscape"] = "true"
    settings = {
        "replica": {**led, "brokerRole": "SLAVE", "brokerId": "1"},
        "beside": {"brokerName": "beside", "mappedFileSizeCommitLog": str(16 << 20)},
    }
    with ExitStack() as stack:
        space = kind.namesrv(Ports(namesrv, 0), folder)
        stack.callback(space.stop)
        wait_listening(namesrv, space)
        ask(namesrv, SET_CONFIG, {}, b"supportActingMaster=true\n")
        place = folder / "master"
        master = kind.broker(ports["master"], place, place / "store", led)
        stack.callback(master.kill)
        wait_listening(ports["master"].broker, master)
        files = [
            broker_properties(ports[name], folder / name, folder / name / "store", settings[name])
            for name in names[1:]
        ]
        container = kind.container(port, f"127.0.0.1:{namesrv}", files, folder / "container")
        stack.callback(container.stop)
        for name in names[1:]:
            wait_listening(ports[name].broker, container)
        for one in ports.values():
            until("the topic is made", partial(_make_topic, one.broker))
        yield Cluster(master, ports)


def test_delayed_messages_of_a_dead_master_go_to_the_one_beside(cluster: Cluster) -> None:
    until("the master serves", lambda: cluster.send(b"later"))
    for _ in range(COUNT - 1):
        assert cluster.send(b"later")
    level = ("SCHEDULE_TOPIC_XXXX", int(DELAY) - 1)
    until("they are copied", lambda: cluster.count("replica", *level) == COUNT)
    cluster.master.kill()
    until("they are delivered", lambda: cluster.count("beside") >= COUNT)
    assert cluster.count("beside") == COUNT, "each of them once, as nothing fails"
    assert cluster.count("replica") <= 0, "a replica writes nothing"
