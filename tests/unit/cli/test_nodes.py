"""`turbopump namesrv`, `controller` and `broker`: the settings that reach the node, and the
messages."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.unit.cli.conftest import Command, Ran

from turbopump.broker import node as broker_node
from turbopump.broker.container import node as container_node
from turbopump.cli import logs, run_command, serve
from turbopump.controller import node as controller_node
from turbopump.namesrv import node as namesrv_node
from turbopump.proxy import node as proxy_node


class Made:
    """Stands for a node, which is not started."""

    all: ClassVar[list["Made"]] = []

    def __init__(self, config: Any, **more: Any) -> None:
        self.config, self.more = config, more
        self.unclean: list[str] = []
        port = getattr(config, "listen_port", None) or config.grpc_server_port
        self.address = f"127.0.0.1:{port}"
        Made.all.append(self)


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> list[Made]:
    """The nodes that commands make; each is ready at once, and stopped then."""
    Made.all = []
    monkeypatch.setattr(namesrv_node, "NameServerNode", Made)
    monkeypatch.setattr(controller_node, "ControllerNode", Made)
    monkeypatch.setattr(broker_node, "BrokerNode", Made)
    monkeypatch.setattr(proxy_node, "ProxyNode", Made)
    monkeypatch.setattr(container_node, "ContainerNode", Made)
    monkeypatch.setattr(logs, "name_brokers", lambda current: None)
    monkeypatch.setattr(serve, "serve_until_signal", lambda node, ready: ready)
    monkeypatch.setattr(run_command, "run", lambda ready: ready())
    monkeypatch.setattr(logs, "configure_logging", lambda folder, level: None)
    return Made.all


@pytest.fixture
def started(configured: list[Made], command: Command, tmp_path: Path) -> Callable[..., Ran]:
    """A command with a configuration file of that text."""

    def run(what: str, text: str, *words: object) -> Ran:
        (tmp_path / "node.conf").write_text(text)
        return command(what, "-c", tmp_path / "node.conf", *words)

    return run


def test_a_name_server_by_its_file(started: Any, configured: list[Made], tmp_path: Path) -> None:
    lines = started("namesrv", "listenPort=9870\n").lines
    assert lines == ["Turbopump name server is ready at 127.0.0.1:9870. Ctrl-C stops it."]
    (node,) = configured
    assert node.config.config_store_path == str(tmp_path / "node.conf"), "changes go into it"
    assert (
        started("namesrv", "listenPort=9870\n", "-p", 9871)
        .lines[0]
        .endswith("9871. Ctrl-C stops it.")
    )
    started("namesrv", "configStorePath=/data/n\n")
    assert configured[-1].config.config_store_path == "/data/n"


def test_a_proxy_by_rocketmqs_file(started: Any, configured: list[Made]) -> None:
    text = '{"namesrvAddr": "a:9876", "grpcServerPort": 8082}'
    ready = "Turbopump proxy is ready at 127.0.0.1:8082. Ctrl-C stops it."
    assert started("proxy", text).lines == [ready]
    assert configured[-1].config.namesrv_addr == ["a:9876"]
    ready, stopped = started("proxy", text, "-n", "b:9876", "-p", 8083, "--json").json
    assert ready == {"event": "ready", "node": "proxy", "address": "127.0.0.1:8083"}
    assert stopped == {"event": "stopped"}
    assert configured[-1].config.namesrv_addr == ["b:9876"]
    _code, sentence = started("proxy", '{"grpcServerPort": "x"}').failure
    assert "grpcServerPort=x: expected a whole number" in sentence


def test_events_for_programs(started: Any) -> None:
    ready, stopped = started("namesrv", "listenPort=9870\n", "--json").json
    assert ready == {"event": "ready", "node": "name server", "address": "127.0.0.1:9870"}
    assert stopped == {"event": "stopped"}


QUORUM = "controllerDLegerPeers=n0-127.0.0.1:9877\ncontrollerDLegerSelfId=n0\n"


def test_a_controller_in_a_name_server(started: Any, configured: list[Made]) -> None:
    text = f"listenPort=9870\nenableControllerInNamesrv=true\n{QUORUM}"
    lines = started("namesrv", text).lines
    assert [line.partition(" is ready")[0] for line in lines] == [
        *("Turbopump name server", "Turbopump controller n0")
    ]
    _namesrv, controller = configured
    assert controller.config.listen_port != 9870, "it is of its own entry, not the name server's"
    assert controller.config.members == {"n0": "127.0.0.1:9877"}
    assert controller.config.config_store_path == configured[0].config.config_store_path


def test_keys_of_a_controller_that_is_none(
    started: Any, configured: list[Made], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        started("namesrv", f"listenPort=9870\n{QUORUM}")
    assert len(configured) == 1
    assert "enableControllerInNamesrv is not true, so controllerDLegerPeers has no effect" in (
        caplog.text
    )


def test_a_controller(started: Any, configured: list[Made]) -> None:
    lines = started("controller", QUORUM).lines
    assert lines[0].startswith("Turbopump controller n0 is ready at ")
    assert configured[0].config.members == {"n0": "127.0.0.1:9877"}


def test_a_broker(started: Any, configured: list[Made]) -> None:
    lines = started("broker", "brokerName=b\nlistenPort=10915\nnamesrvAddr=a:1\n").lines
    assert lines[0].startswith("Turbopump broker b is ready at 127.0.0.1:10915.")
    assert list(configured[0].config.namesrv_addr) == ["a:1"]
    started("broker", "brokerName=b\nnamesrvAddr=a:1\n", "-n", "c:2;d:3")
    assert list(configured[-1].config.namesrv_addr) == ["c:2", "d:3"], "the command line's"
    started("broker", "")
    assert configured[-1].config.broker_name, "a file may be empty"


def test_a_container(started: Any, configured: list[Made], capsys: Any) -> None:
    text = "listenPort=10812\nbrokerConfigPaths=a.conf:b.conf\nnamesrvAddr=a:1\n"
    lines = started("container", text).lines
    assert lines == ["Turbopump container is ready at 127.0.0.1:10812. Ctrl-C stops it."]
    assert configured[0].config.broker_config_paths == ["a.conf", "b.conf"]
    lines = started("container", text, "-b", "c.conf", "-n", "b:2", "--json").lines
    config = configured[-1].config
    assert (config.broker_config_paths, config.namesrv_addr) == (["c.conf"], ["b:2"])
    assert config.path.endswith("node.conf"), "changes go into it"
    on_event = configured[-1].more["on_event"]
    on_event(container_node.BrokerEvent("ready", "C_a_0", "h:1"))
    on_event(container_node.BrokerEvent("failed", "b.conf", "no such file"))
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"event": "ready", "node": "broker C_a_0", "address": "h:1"},
        {"event": "failed", "node": "broker b.conf", "reason": "no such file"},
    ]
    started("container", text)
    on_event = configured[-1].more["on_event"]
    on_event(container_node.BrokerEvent("failed", "b.conf", "no such file"))
    on_event(container_node.BrokerEvent("removed", "C_a_0", ""))
    assert capsys.readouterr().out.splitlines() == [
        "The broker of b.conf does not run: no such file",
        "Turbopump broker C_a_0 has stopped.",
    ]


@pytest.mark.parametrize("what", ["namesrv", "controller", "broker", "container"])
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("listenPort=many\n", "listenPort"),
        ("listenPort=70000\n", "listenPort"),
        ("listenPort=\\u00\n", "line 1"),
    ],
)
def test_a_file_that_cannot_be_used(
    started: Any, configured: list[Made], tmp_path: Path, what: str, text: str, sentence: str
) -> None:
    code, error = started(what, text).failure
    assert code == 2 and error.startswith(f"{tmp_path / 'node.conf'}: ") and sentence in error
    assert not configured


@pytest.mark.parametrize("what", ["namesrv", "controller", "broker", "container"])
def test_a_file_that_cannot_be_read(
    configured: list[Made], command: Command, tmp_path: Path, what: str
) -> None:
    path = tmp_path / "none.conf"
    assert command(what, "-c", path).failure == (2, f"{path}: No such file or directory")
    assert command(what, "-c", tmp_path).failure == (2, f"{tmp_path}: Is a directory")
    path.write_bytes(b"brokerName=\xff\xfe")
    assert command(what, "-c", path).failure == (2, f"{path} is not UTF-8 text")
    assert not configured


@pytest.mark.parametrize("what", ["namesrv", "controller", "broker", "container"])
def test_unknown_keys_are_warned_of(
    started: Any, what: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.WARNING):
        started(what, f"{QUORUM if what == 'controller' else ''}notAKey=1\n")
    assert f"{tmp_path / 'node.conf'}: " in caplog.text and "notAKey" in caplog.text


def test_a_log_folder_that_is_a_file(command: Command, tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("")
    code, error = command("namesrv", "--log-dir", tmp_path / "logs").failure
    assert (code, error) == (2, f"the log folder cannot be used: {tmp_path / 'logs'}: File exists")


def test_a_level_that_is_none(command: Command) -> None:
    for what in ("namesrv", "controller", "broker", "up"):
        ran = command(what, "--log-level", "loud")
        assert ran.code == 2 and "is not debug, info, warning or error" in " ".join(ran.err.split())
