"""`turbopump namesrv`, `controller` and `broker` from RocketMQ's own properties files."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

Command = Callable[..., Any]
Launch = Callable[..., Any]


def test_a_group_of_two_processes(launch: Launch, command: Command, tmp_path: Path) -> None:
    namesrv_file, broker_file = tmp_path / "namesrv.conf", tmp_path / "broker.conf"
    namesrv_file.write_text(
        f"listenPort=0\nbindAddress=127.0.0.1\nkvConfigPath={tmp_path}/kv/kvConfig.json\n"
        "serverWorkerThreads=8\nnoSuchKey=1\n"
    )
    namesrv = launch("namesrv", "-c", str(namesrv_file), "--json")
    address = namesrv.ready["address"]
    assert namesrv.ready == {"event": "ready", "node": "name server", "address": address}
    broker_file.write_text(
        f"brokerName=mine\nbrokerIP1=127.0.0.1\nlistenPort=0\nstorePathRootDir={tmp_path}/store\n"
        "mappedFileSizeCommitLog=8388608\nmaxHashSlotNum=1000\nmaxIndexNum=4000\nlistnPort=3\n"
    )
    broker = launch(
        "broker",
        "-c",
        str(broker_file),
        "-n",
        address,
        "--log-dir",
        str(tmp_path / "logs"),
        "--json",
    )
    assert broker.ready["node"] == "broker mine"
    sent = command("send", "-n", address, "-t", "T", "-p", "x", "--json")
    assert (sent.code, sent.json[0]["broker_name"]) == (0, "mine")
    listed = command("admin", "clusterList", "-n", address, "--json").json[0]["brokers"]
    assert [line["address"] for line in listed] == [broker.ready["address"]]

    done = broker.stop(signal.SIGINT)
    assert (done.code, done.json) == (0, [{"event": "stopped"}])
    assert "unknown key listnPort" in done.err
    assert "unknown key listnPort" in (tmp_path / "logs" / "turbopump.log").read_text()
    assert not (tmp_path / "store" / "abort").exists()
    assert command("admin", "clusterList", "-n", address, "--json").json[0]["brokers"] == []
    done = namesrv.stop()
    assert (done.code, done.json) == (0, [{"event": "stopped"}])
    assert f"{namesrv_file}: unknown key noSuchKey ignored (line 5)" in done.err


@pytest.mark.parametrize(
    ("node", "text", "words"),
    [
        ("namesrv", "bindAddress=127.0.0.1\nlistenPort=many\n", ("listenPort=many", "line 2")),
        ("broker", "\nlistenPort=many\n", ("listenPort=many", "line 2")),
        ("controller", "\ncontrollerDLegerPeers=n0\n", ("controllerDLegerPeers=n0", "line 2")),
        ("controller", "controllerDLegerPeers=n1-a:1\n", ("controllerDLegerSelfId=n0",)),
        ("controller", "listenPort=0\ncontrollerStorePath=/proc/none\n", ("/proc/none",)),
        (
            "namesrv",
            "enableControllerInNamesrv=true\nscanInactiveMasterInterval=1\n",
            ("scanInactiveMasterInterval=1", "line 2"),
        ),
        ("broker", "mappedFileSizeCommitLog=1\n", ("mappedFileSizeCommitLog", "line 1")),
        (
            "namesrv",
            "bindAddress=127.0.0.1\nlistenPort=0\nkvConfigPath=/proc/none/kv.json\n",
            ("kvConfigPath=/proc/none/kv.json",),
        ),
        ("broker", "storePathRootDir=/proc/none\nlistenPort=0\n", ("/proc/none",)),
        ("broker", "listenPort=0\nbrokerIP1=no.such.host.invalid\n", ("no.such.host.invalid",)),
        ("broker", "listenPort=0\nbrokerIP1=300.1.1.1\n", ("300.1.1.1",)),
        ("broker", "listenPort=0\ntls.enable=perhaps\n", ("tls.enable", "line 2")),
        ("broker", "listenPort=0\ntls.server.mode=sometimes\n", ("tls.server.mode", "line 2")),
        (
            "namesrv",
            "bindAddress=no.such.host.invalid\nlistenPort=0\nkvConfigPath=kv.json\n",
            ("no.such.host.invalid",),
        ),
    ],
)
def test_a_bad_file_is_named(
    node: str, text: str, words: tuple[str, ...], command: Command, tmp_path: Path
) -> None:
    path = tmp_path / "bad.conf"
    path.write_text(text)
    done = command(node, "-c", str(path), cwd=tmp_path)
    assert done.code == 2, done.err
    (error,) = [line for line in done.err.splitlines() if line.startswith("turbopump: ")]
    for word in words:
        assert word in error
    assert "Traceback" not in done.err


@pytest.mark.parametrize("node", ["namesrv", "controller", "broker"])
def test_a_file_that_cannot_be_read_is_named(node: str, command: Command, tmp_path: Path) -> None:
    path = tmp_path / "binary.conf"
    path.write_bytes(b"\xff\xfe\xff")
    for file, word in (
        (tmp_path / "none", "No such file"),
        (tmp_path, "directory"),
        (path, "UTF-8"),
    ):
        done = command(node, "-c", str(file))
        assert (done.code, done.out) == (2, "")
        assert word in done.err
        assert done.err.count("\n") == 1


def test_a_name_server_without_a_controller_names_keys_that_say_nothing(
    launch: Launch, tmp_path: Path
) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text(
        f"listenPort=0\nbindAddress=127.0.0.1\nkvConfigPath={tmp_path}/kv.json\n"
        "controllerDLegerGroup=g\n"
    )
    done = launch("namesrv", "-c", str(path), "--json").stop()
    assert done.code == 0
    assert "enableControllerInNamesrv is not true, so controllerDLegerGroup has" in done.err


def test_a_broker_needs_an_address(command: Command) -> None:
    done = command("broker", "-n", "nowhere")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "host:port" in done.err
