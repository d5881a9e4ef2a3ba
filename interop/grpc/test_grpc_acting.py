"""A message that a gRPC client popped and did not acknowledge is redelivered although its master
died: a replica acts for the master. It sends the message to the master of another group
(enableRemoteEscape), or pops it itself, and the master continues from there when it is back.

RocketMQ's own Python client, unmodified, through our proxy.
"""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
SEND_MESSAGE, MAKE_TOPIC, MAX_OFFSET, GET_ROUTE, SET_CONFIG = 10, 17, 30, 105, 318
AWAY = (
    "its master cannot read what its replica answers, and does not come back (test_acting_group.py)"
)


class Cluster:
    """The group "led" with its replica, and optionally "beside", a lone master that receives
    escaped messages."""

    def __init__(self, kind: Kind, folder: Path, stack: ExitStack, *, escapes: bool) -> None:
        namesrv = free_port()
        names = ("led", "replica", "beside") if escapes else ("led", "replica")
        self.ports = {name: Ports(namesrv, free_port(BROKER_AND_HA)) for name in names}
        led = {**SETTINGS, "brokerName": "led", "enableRemoteEscape": str(escapes).lower()}
        self._settings = {
            "led": led,
            "replica": {**led, "brokerRole": "SLAVE", "brokerId": "1"},
            "beside": {"brokerName": "beside", "mappedFileSizeCommitLog": str(16 << 20)},
        }
        self._kind, self._folder, self._stack = kind, folder, stack
        space = kind.namesrv(Ports(namesrv, 0), folder)
        stack.callback(space.kill)
        wait_listening(namesrv, space)
        ask(namesrv, SET_CONFIG, {}, b"supportActingMaster=true\n")
        self.brokers: dict[str, Process] = {}
        for name in names:
            self.start(name)
        for ports in self.ports.values():
            until("the topic is made", partial(_make_topic, ports.broker))
        self.group = Group(self.ports["led"], [space, *self.brokers.values()])

    def start(self, name: str) -> None:
        """Start a broker, or start it again."""
        place = self._folder / name
        settings = self._settings[name]
        broker = self._kind.broker(self.ports[name], place, place / "store", settings)
        self._stack.callback(broker.kill)
        wait_listening(self.ports[name].broker, broker)
        self.brokers[name] = broker

    def is_copied(self) -> bool:
        """Whether the replica has the whole log."""
        queue = {"topic": TOPIC, "queueId": "0"}
        response = ask(self.ports["replica"].broker, MAX_OFFSET, queue)
        return response.code == 0 and response.fields["offset"] == str(COUNT)

    def leads(self, name: str) -> bool:
        """Whether the route shows that broker as the group's master."""
        fields = {"topic": TOPIC, "acceptStandardJsonOnly": "true"}
        response = ask(self.ports[name].namesrv, GET_ROUTE, fields)
        if response.code:
            return False
        brokers = json.loads(response.body)["brokerDatas"]
        return self.ports[name].broker_address in [one["brokerAddrs"].get("0") for one in brokers]

    def send(self, number: int) -> bool:
        """Send to "led"; whether the message was stored."""
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


@contextmanager
def leaving(cluster: Cluster, folder: Path) -> Iterator[Process]:
    """Start the client, through our proxy."""
    proxy, endpoints = proxies.start_ours(cluster.group, folder / "proxy")
    program = str(Path(__file__).with_name("leaving.py"))
    command = [str(toolchain.build_python()), program, endpoints, TOPIC, str(COUNT)]
    home = {"HOME": str(folder / "client"), "PYTHONPATH": ""}
    client = Process("leaving", command, folder / "client", environment=home)
    try:
        yield client
    finally:
        client.kill()
        proxy.kill()


def check_came_again(client: Process) -> None:
    """Check that each unacknowledged message was redelivered once, and no other."""
    lines = client.out.read_text().splitlines()
    assert lines[-1] == "over", lines
    again = [int(line.split()[1]) for line in lines if line.startswith("again")]
    assert sorted(again) == list(range(1, COUNT, 2)), "each that was left, once, and no other"


def test_the_rest_is_redelivered_by_another_master(kind: Kind, built: None, work: Path) -> None:
    if kind.name == "rocketmq":
        pytest.skip("its replica gives acknowledged messages to the other master, too")
    with ExitStack() as stack:
        cluster = Cluster(kind, work / TOPIC, stack, escapes=True)
        for number in range(COUNT):
            until("it is stored", partial(cluster.send, number))
        with leaving(cluster, work / "grpc-acting-client") as client:
            until("all are popped", lambda: "popped" in client.out.read_text())
            time.sleep(COPIED_S)
            cluster.brokers["led"].kill()
            client.wait(END_S)
        check_came_again(client)


def test_a_replica_pops_and_its_master_goes_on_with_that(
    kind: Kind, built: None, work: Path
) -> None:
    if kind.name == "rocketmq":
        pytest.skip(AWAY)
    with ExitStack() as stack:
        cluster = Cluster(kind, work / f"{TOPIC}-popping", stack, escapes=False)
        for number in range(COUNT):
            until("it is stored", partial(cluster.send, number))
        until("the replica has all", cluster.is_copied)
        cluster.brokers["led"].kill()
        until("the replica acts", partial(cluster.leads, "replica"))
        with leaving(cluster, work / "grpc-popping-client") as client:
            until("all are popped", lambda: "popped" in client.out.read_text())
            cluster.start("led")
            until("the master is back", partial(cluster.leads, "led"))
            client.wait(END_S)
        check_came_again(client)
