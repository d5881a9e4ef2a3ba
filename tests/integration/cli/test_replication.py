"""A pair of brokers that switches, as an operator sees it: haStatus, getBrokerEpoch, metrics."""

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from interop.support.ports import free_ports

pytestmark = pytest.mark.integration

Command = Callable[..., Any]
Launch = Callable[..., Any]
TIMEOUT_S = 60


def until(what: Callable[[], Any]) -> Any:
    """The first result that is true; brokers do things in their own time."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


class Pair:
    """A name server and brokers 1 and 2, as processes; the master is named in a file."""

    def __init__(self, launch: Launch, cli: Command, folder: Path) -> None:
        self._launch, self._cli, self._folder = launch, cli, folder
        self.ha_ports, self.metrics_ports = free_ports(2), free_ports(2)
        (folder / "namesrv.conf").write_text(
            f"listenPort=0\nbindAddress=127.0.0.1\nkvConfigPath={folder}/kv/kvConfig.json\n"
        )
        self._namesrv = launch("namesrv", "-c", str(folder / "namesrv.conf"), "--json")
        self.elect(1, 1)
        self.addresses = [self._start(1), self._start(2)]

    def elect(self, epoch: int, master: int) -> None:
        """Write the group file with the master of an epoch."""
        brokers = {str(n): f"127.0.0.1:{port}" for n, port in enumerate(self.ha_ports, 1)}
        text = json.dumps({"epoch": epoch, "master": master, "brokers": brokers})
        (self._folder / "group.tmp").write_text(text)
        (self._folder / "group.tmp").rename(self._folder / "group.json")

    def _start(self, number: int) -> str:
        folder, file = self._folder, self._folder / f"broker-{number}.conf"
        file.write_text(
            f"brokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nlistenPort=0\nbrokerId={number}\n"
            f"storePathRootDir={folder}/{number}\nhaGroupFile={folder}/group.json\n"
            f"haListenPort={self.ha_ports[number - 1]}\nmetricsExporterType=PROM\n"
            f"metricsPromExporterPort={self.metrics_ports[number - 1]}\n"
            "mappedFileSizeCommitLog=8388608\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n"
        )
        namesrv = self._namesrv.ready["address"]
        return str(
            self._launch("broker", "-c", str(file), "-n", namesrv, "--json").ready["address"]
        )

    def ask(self, *command: str) -> list[Any]:
        """The JSON documents that a command prints."""
        found = self._cli(*command, "-n", self._namesrv.ready["address"], "--json").json
        assert isinstance(found, list)
        return found

    def status(self, address: str) -> Any:
        """Output of haStatus for one broker."""
        return self.ask("admin", "haStatus", "-b", address)[0]

    def metrics(self, number: int) -> dict[str, float]:
        """The metrics of a broker's replication, labels apart."""
        url = f"http://127.0.0.1:{self.metrics_ports[number - 1]}/metrics"
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
            lines = response.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line.startswith("turbopump_ha_"))
        return {name.partition("{")[0]: float(value) for name, value in pairs}


@pytest.fixture
def pair(launch: Launch, cli: Command, tmp_path: Path) -> Pair:
    """A pair after a message under each of two masters, 1 and then 2: both have everything."""
    pair = Pair(launch, cli, tmp_path)
    for epoch, master in enumerate(pair.addresses, 1):
        pair.elect(epoch, epoch)
        until(lambda master=master: pair.status(master)["in_sync_replicas"] == 1)
        until(lambda: pair.ask("send", "-t", "T", "-p", "x"))
        until(lambda master=master: [e["diff"] for e in pair.status(master)["replicas"]] == [0])
    return pair


def test_a_pair_that_switched(pair: Pair) -> None:
    replica, master = pair.addresses
    shown, followed = pair.status(master), pair.status(replica)
    (one,) = shown["replicas"]
    assert one["in_sync"] and one["acked"] == one["next"] == shown["log_end"] > 0
    assert (shown["is_master"], followed["is_master"]) == (True, False)
    assert followed["master_address"] == f"127.0.0.1:{pair.ha_ports[1]}"
    assert followed["log_end"] == shown["log_end"] and followed["last_read_ms"] > 0

    # A former master is in the route again once it registered as a replica.
    epochs = ("admin", "getBrokerEpoch", "-b", "broker-a")
    until(lambda: sorted(e["address"] for e in pair.ask(*epochs)) == sorted(pair.addresses))
    of_master, of_replica = sorted(pair.ask(*epochs), key=lambda metrics: metrics["broker_id"])
    assert of_master["epochs"] == of_replica["epochs"]
    assert [span["epoch"] for span in of_master["epochs"]] == [1, 2]
    assert of_master["epochs"][1]["end"] == shown["log_end"]
    assert (of_master["broker_id"], of_replica["broker_id"]) == (0, 1)

    metrics, other = pair.metrics(2), pair.metrics(1)
    assert (metrics["turbopump_ha_is_master"], other["turbopump_ha_is_master"]) == (1, 0)
    assert metrics["turbopump_ha_epoch"] == other["turbopump_ha_epoch"] == 2
    assert metrics["turbopump_ha_replica_lag_bytes"] == 0
    assert metrics["turbopump_ha_replica_lag_milliseconds"] == 0
    assert metrics["turbopump_ha_replica_in_sync"] == other["turbopump_ha_following"] == 1
    assert metrics["turbopump_ha_confirm_gap_bytes"] == 0
    (table,) = pair.ask("admin", "brokerStatus", "-b", master)
    assert table["table"]["haSyncStateSet"] == "1,2"
