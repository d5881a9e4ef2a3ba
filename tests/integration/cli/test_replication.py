"""A pair of brokers that switches, as an operator sees it: haStatus, getBrokerEpoch, metrics."""

import json
import socket
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

Command = Callable[..., Any]
Launch = Callable[..., Any]
TIMEOUT_S = 30


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [one.getsockname()[1] for one in sockets]


def until(what: Callable[[], Any]) -> Any:
    """The first result that is true; both sides run on their own."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_a_pair_that_switches(
    launch: Launch, command: Command, cli: Command, tmp_path: Path
) -> None:
    (tmp_path / "namesrv.conf").write_text(
        f"listenPort=0\nbindAddress=127.0.0.1\nkvConfigPath={tmp_path}/kv/kvConfig.json\n"
    )
    namesrv = launch("namesrv", "-c", str(tmp_path / "namesrv.conf"), "--json").ready["address"]
    ha_ports, metrics_ports = free_ports(2), free_ports(2)

    def elect(epoch: int, master: int) -> None:
        brokers = {str(n): f"127.0.0.1:{port}" for n, port in enumerate(ha_ports, 1)}
        text = json.dumps({"epoch": epoch, "master": master, "brokers": brokers})
        (tmp_path / "group.tmp").write_text(text)
        (tmp_path / "group.tmp").rename(tmp_path / "group.json")

    def start(number: int) -> str:
        file = tmp_path / f"broker-{number}.conf"
        file.write_text(
            f"brokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nlistenPort=0\nbrokerId={number}\n"
            f"storePathRootDir={tmp_path}/{number}\nhaGroupFile={tmp_path}/group.json\n"
            f"haListenPort={ha_ports[number - 1]}\nmetricsExporterType=PROM\n"
            f"metricsPromExporterPort={metrics_ports[number - 1]}\n"
            "mappedFileSizeCommitLog=8388608\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n"
        )
        return str(launch("broker", "-c", str(file), "-n", namesrv, "--json").ready["address"])

    def status(address: str) -> dict[str, Any]:
        found = cli("admin", "haStatus", "-n", namesrv, "-b", address, "--json").json[0]
        assert isinstance(found, dict)
        return found

    def metrics(number: int) -> dict[str, float]:
        url = f"http://127.0.0.1:{metrics_ports[number - 1]}/metrics"
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line.startswith("turbopump_ha_"))
        return {name.partition("{")[0]: float(value) for name, value in pairs}

    elect(1, 1)
    addresses = [start(1), start(2)]
    for epoch in (1, 2):
        elect(epoch, epoch)
        master, replica = addresses if epoch == 1 else addresses[::-1]
        until(lambda master=master: status(master)["in_sync_replicas"] == 1)
        until(lambda: cli("send", "-n", namesrv, "-t", "T", "-p", "x", "--json").code == 0)
        shown = until(lambda master=master: _caught_up(status(master)))
        (one,) = shown["replicas"]
        assert one["in_sync"] and one["acked"] == one["next"] == shown["log_end"] > 0
        followed = status(replica)
        assert not followed["is_master"]
        assert followed["master_address"] == f"127.0.0.1:{ha_ports[epoch - 1]}"
        assert followed["log_end"] == shown["log_end"] and followed["last_read_ms"] > 0

    def registered() -> Any:
        told = cli("admin", "getBrokerEpoch", "-n", namesrv, "-b", "broker-a", "--json").json
        return told if sorted(one["address"] for one in told) == sorted(addresses) else None

    told = until(registered)
    first, second = told
    assert first["epochs"] == second["epochs"]
    assert [span["epoch"] for span in first["epochs"]] == [1, 2]
    assert first["epochs"][1]["end"] == shown["log_end"]
    assert sorted(one["broker_id"] for one in told) == [0, 1]

    of_master, of_replica = metrics(2), metrics(1)
    assert (of_master["turbopump_ha_is_master"], of_replica["turbopump_ha_is_master"]) == (1, 0)
    assert of_master["turbopump_ha_epoch"] == of_replica["turbopump_ha_epoch"] == 2
    assert of_master["turbopump_ha_replica_lag_bytes"] == 0
    assert of_master["turbopump_ha_replica_lag_milliseconds"] == 0
    assert of_master["turbopump_ha_replica_in_sync"] == of_replica["turbopump_ha_following"] == 1
    assert of_master["turbopump_ha_confirm_gap_bytes"] == 0
    table = cli("admin", "brokerStatus", "-n", namesrv, "-b", addresses[1], "--json").json[0]
    assert table["table"]["haSyncStateSet"] == "1,2"


def _caught_up(status: dict[str, Any]) -> dict[str, Any] | None:
    return status if all(one["diff"] == 0 for one in status["replicas"]) else None
