"""A group that accepts only TLS, and the commands that reach it all the same."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turbopump.net.transport.tls import _make_self_signed

pytestmark = pytest.mark.integration

Command = Callable[..., Any]
Ready = Callable[..., Any]

RENEWED_S = 30


def renew(folder: Path) -> None:
    """Replace the certificate and the key, each in one step."""
    for name, content in zip(("cert.pem", "key.pem"), _make_self_signed(), strict=True):
        (folder / f"{name}.new").write_bytes(content)
        os.replace(folder / f"{name}.new", folder / name)


@pytest.fixture
def certificate(tmp_path: Path) -> dict[str, str]:
    """The properties of a server with a certificate and key of its own."""
    renew(tmp_path)
    return {
        "tls.test.mode.enable": "false",
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(tmp_path / "cert.pem"),
        "tls.server.keyPath": str(tmp_path / "key.pem"),
    }


@pytest.fixture
def trust(tmp_path: Path) -> dict[str, str]:
    """The properties of a client that trusts that certificate and no other."""
    return {
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(tmp_path / "cert.pem"),
    }


def write(path: Path, *properties: dict[str, str]) -> str:
    path.write_text("".join(f"{k}={v}\n" for some in properties for k, v in some.items()))
    return str(path)


def test_a_group_by_tls_alone(
    up: Ready,
    command: Command,
    tmp_path: Path,
    certificate: dict[str, str],
    trust: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open(tmp_path / "small.conf", "a") as config:
        config.write("".join(f"{key}={value}\n" for key, value in certificate.items()))
    running = up()
    (namesrv,) = running.ready["namesrv"]
    plain = command("send", "-n", namesrv, "-t", "T", "-p", "plain")
    assert (plain.code, plain.out) == (1, "")
    monkeypatch.setenv("TURBOPUMP_TLS", write(tmp_path / "client.conf", trust))
    assert command("send", "-n", namesrv, "-t", "T", "-p", "by tls").code == 0
    got = command("consume", "-n", namesrv, "-t", "T", "--count", "1", "--json")
    assert [message["body"] for message in got.json] == ["by tls"]
    assert len(command("admin", "clusterList", "-n", namesrv, "--json").json[0]["brokers"]) == 1
    # Both renew it without a restart; the commands trust the new one alone.
    renew(tmp_path)
    deadline = time.monotonic() + RENEWED_S
    while command("send", "-n", namesrv, "-t", "T", "-p", "renewed").code != 0:
        assert time.monotonic() < deadline
    done = running.stop()
    assert (done.code, done.json) == (0, [{"event": "stopped"}])


def test_a_broker_registers_by_tls_where_it_is_told_to(
    launch: Command,
    command: Command,
    tmp_path: Path,
    certificate: dict[str, str],
    trust: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key_values = f"{tmp_path}/kv/kvConfig.json"
    place = {"listenPort": "0", "bindAddress": "127.0.0.1", "kvConfigPath": key_values}
    namesrv = launch("namesrv", "-c", write(tmp_path / "ns.conf", place, certificate), "--json")
    address = namesrv.ready["address"]
    own = {
        "listenPort": "0",
        "brokerIP1": "127.0.0.1",
        "storePathRootDir": f"{tmp_path}/store",
        "mappedFileSizeCommitLog": "8388608",
        "namesrvAddr": address,
        "tls.enable": "true",
    }
    broker = launch("broker", "-c", write(tmp_path / "broker.conf", own, trust), "--json")
    monkeypatch.setenv("TURBOPUMP_TLS", write(tmp_path / "client.conf", trust))
    found = command("admin", "clusterList", "-n", address, "--json").json[0]["brokers"]
    assert [line["address"] for line in found] == [broker.ready["address"]]
    assert broker.stop().code == 0
    assert command("admin", "clusterList", "-n", address, "--json").json[0]["brokers"] == []
    assert namesrv.stop().code == 0


def test_a_tls_file_that_cannot_be_used_is_named(
    cli: Command, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_trust = {"tls.test.mode.enable": "false", "tls.client.authServer": "true"}
    for path, word in (
        (str(tmp_path / "none.conf"), "No such file"),
        (write(tmp_path / "a.conf", no_trust), "tls.client.trustCertPath"),
        (write(tmp_path / "b.conf", {"tls.test.mode.enable": "maybe"}), "maybe"),
    ):
        monkeypatch.setenv("TURBOPUMP_TLS", path)
        done = cli("admin", "topicList", "-n", "127.0.0.1:1")
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert path in done.err
        assert word in done.err
    place = {"listenPort": "0", "storePathRootDir": f"{tmp_path}/store", "tls.enable": "true"}
    done = command("broker", "-c", write(tmp_path / "broker.conf", place, no_trust))
    assert done.code == 2
    assert "tls.client.trustCertPath" in done.err.splitlines()[-1]
    assert not (tmp_path / "store" / "abort").exists()
