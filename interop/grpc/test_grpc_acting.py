"""What a client of gRPC popped and did not acknowledge comes again, though its master is gone: a
replica acts for that, and gives it to the master of another group (enableRemoteEscape).

RocketMQ's own Python client, unmodified, through our proxy.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from interop.support import proxies, toolchain
from interop.support.acting import SETTINGS, until
from interop.support.groups import Group, Kind, Ports, ask, wait_listening
from interop.support.ports import BROKER_AND_HA, free_port
from interop.support.processes import Process

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]
TOPIC = "grpc-acting"
COUNT = 20
COPIED_S = 2.0
END_S = 200.0
SEND_MESSAGE, MAKE_TOPIC, SET_CONFIG = 10, 17, 318


class Cluster:
    """The group "led" with its replica, and "beside", a master alone."""

    def __init__(self, kind: Kind, folder: Path, stack: ExitStack) -> None:
        namesrv = free_port()
        names = ("led", "replica", "beside")
        self.ports = {name: Ports(namesrv, free_port(BROKER_AND_HA)) for name in names}
        led = {**SETTINGS, "brokerName": "led", "enableRemoteEscape": "true"}
        settings = {
            "led": led,
            "replica": {**led, "brokerRole": "SLAVE", "brokerId": "1"},
            "beside": {"brokerName": "beside", "mappedFileSizeCommitLog": str(16 << 20)},
        }
        space = kind.namesrv(Ports(namesrv, 0), folder)
        stack.callback(space.kill)
        wait_listening(namesrv, space)
        ask(namesrv, SET_CONFIG, {}, b"supportActingMaster=true\n")
        self.brokers: dict[str, Process] = {}
        for name, of in settings.items():
            place = folder / name
            broker = kind.broker(self.ports[name], place, place / "store", of)
            stack.callback(broker.kill)
            wait_listening(self.ports[name].broker, broker)
            self.brokers[name] = broker
        for ports in self.ports.values():
            until("the topic is made", partial(_make_topic, ports.broker))
        self.group = Group(self.ports["led"], [space, *self.brokers.values()])

    def send(self, number: int) -> bool:
        """To "led"; whether it took it."""
        fields = {
            "producerGroup": "P",
            "topic": TOPIC,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "1",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": str(round(time.time() * 1_000)),
            "flag": "0",
            "properties": f"UNIQ_KEY\x01number-{number}\x02",
            "reconsumeTimes": "0",
            "unitMode": "false",
            "batch": "false",
        }
        return ask(self.ports["led"].broker, SEND_MESSAGE, fields, b"%d" % number).code == 0


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
        "attributes": "+message.type=NORMAL",
    }
    return ask(port, MAKE_TOPIC, fields).code == 0


@pytest.fixture
def cluster(kind: Kind, built: None, work: Path) -> Iterator[Cluster]:
    if kind.name == "rocketmq":
        pytest.skip("its replica gives the other master what was acknowledged, too")
    with ExitStack() as stack:
        yield Cluster(kind, work / TOPIC, stack)


def test_what_was_left_comes_again_from_another_master(cluster: Cluster, work: Path) -> None:
    for number in range(COUNT):
        until("it is stored", partial(cluster.send, number))
    folder = work / "grpc-acting-client"
    proxy, endpoints = proxies.start_ours(cluster.group, folder / "proxy")
    program = str(Path(__file__).with_name("leaving.py"))
    command = [str(toolchain.build_python()), program, endpoints, TOPIC, str(COUNT)]
    home = {"HOME": str(folder / "client"), "PYTHONPATH": ""}
    client = Process("leaving", command, folder / "client", environment=home)
    try:
        until("all are popped", lambda: "popped" in client.out.read_text())
        time.sleep(COPIED_S)
        cluster.brokers["led"].kill()
        client.wait(END_S)
    finally:
        client.kill()
        proxy.kill()
    lines = client.out.read_text().splitlines()
    assert lines[-1] == "over", lines
    again = [int(line.split()[1]) for line in lines if line.startswith("again")]
    assert sorted(again) == list(range(1, COUNT, 2)), "each that was left, once, and no other"
