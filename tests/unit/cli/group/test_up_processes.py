"""`turbopump up` of a group as processes: its answers to `turbopump node`, and its output."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from turbopump.cli.errors import CommandFailed, UserError
from turbopump.cli.group import commands, control, up_processes
from turbopump.cli.group.control import Control
from turbopump.cluster import Cluster
from turbopump.net.client.options import ClientOptions

NODES = [
    {"node": "namesrv", "pid": 1, "address": "127.0.0.1:9876", "config": "c/namesrv.properties"},
    {"node": "controller-n0", "pid": 2, "address": "127.0.0.1:9877", "config": "c/n0.properties"},
    {"node": "broker-a", "pid": 3, "address": "127.0.0.1:10911", "config": "c/a.properties"},
    {"node": "broker-a-2", "pid": 4, "address": "127.0.0.1:10921", "config": "c/a2.properties"},
]
BROKERS = [{"node": "broker-a", "id": 0}, {"node": "broker-a-2", "id": 1}]


class Nodes:
    """Stands for the group's processes."""

    fails = False

    def __init__(self, files: list[Any], logs: Path, level: str, notify: Any, options: Any) -> None:
        self.files, self.logs, self.level, self.notify = files, logs, level, notify
        self.journal: list[Any] = []

    async def start(self) -> None:
        if self.fails:
            raise CommandFailed("broker-a did not start: the disk is full")
        self.journal.append("start")

    async def stop(self) -> None:
        self.journal.append("stop")

    async def node_states(self) -> list[dict[str, Any]]:
        return NODES

    async def registered_brokers(self) -> list[dict[str, Any]]:
        return BROKERS

    async def act_on_node(self, what: str, name: str) -> dict[str, Any]:
        self.journal.append((what, name))
        return {"node": name, "pid": 7, "state": "killed"}


RUNNING = {"event": "node", "node": "broker-a", "pid": 3, "state": "running"}


class NoSocket(Control):
    """A control socket that is not opened."""

    open = 0

    async def start(self) -> None:
        NoSocket.open += 1

    async def stop(self) -> None:
        NoSocket.open -= 1


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up_processes, "Processes", Nodes)
    monkeypatch.setattr(up_processes, "Control", NoSocket)
    monkeypatch.setattr(NoSocket, "open", 0)
    monkeypatch.setattr(Nodes, "fails", False)


def cluster(data: Path, **properties: str) -> Cluster:
    return Cluster(
        data,
        namesrv_port=9876,
        broker_port=10911,
        controller_port=9877,
        brokers=2,
        controllers=1,
        broker_properties=properties,
    )


def group(data: Path, as_json: bool = False) -> Any:
    return up_processes._Group(cluster(data), "127.0.0.1", 1, "info", as_json)


async def asked(asked_group: Any, **question: Any) -> str:
    with pytest.raises(UserError) as raised:
        await asked_group._answer_request(question)
    return str(raised.value)


@pytest.mark.usefixtures("scripted")
def test_questions_are_passed_on(tmp_path: Path) -> None:
    async def story() -> None:
        asked_group = group(tmp_path)
        assert await asked(asked_group, do="list") == "the group is being started"
        await asked_group.start()
        assert await asked_group._answer_request({"do": "list"}) == NODES
        done = await asked_group._answer_request({"do": "kill", "node": "broker-a"})
        assert done == {"node": "broker-a", "pid": 7, "state": "killed"}
        for bad in ({"do": "burn", "node": "a"}, {"do": "kill"}, {"do": "kill", "node": 5}, {}):
            assert await asked(asked_group, **bad) == "start, stop or kill a node, or list them"
        assert asked_group._processes.journal == ["start", ("kill", "broker-a")]
        await asked_group.stop()
        assert asked_group._processes.journal[-1] == "stop" and NoSocket.open == 0

    asyncio.run(story())


@pytest.mark.usefixtures("scripted")
def test_a_group_that_does_not_start_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Nodes, "fails", True)
    with pytest.raises(CommandFailed, match="the disk is full"):
        asyncio.run(group(tmp_path).start())
    assert NoSocket.open == 0
    asked_group = up_processes._Group(
        Cluster(tmp_path, brokers=2, controllers=0), "127.0.0.1", 0, "info", False
    )
    with pytest.raises(UserError, match="controllers"):
        asyncio.run(asked_group.start())
    assert NoSocket.open == 0


@pytest.mark.usefixtures("scripted")
def test_lines_shown_to_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        asked_group = group(tmp_path)
        await asked_group.start()
        asked_group._print_event(RUNNING)
        assert not capsys.readouterr().out, "a sentence reports it when all of them run"
        asked_group.print_addresses()
        asked_group._print_event({"event": "node", "node": "broker-a", "pid": 3, "state": "killed"})
        asked_group._print_event({"event": "recovering", "node": "broker-a"})

    asyncio.run(story())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"Turbopump is ready. Name server 127.0.0.1:9876, data in {tmp_path}."
    rows = [line.split() for line in lines[2:7]]
    assert rows[1:] == [[n["node"], str(n["pid"]), n["address"], n["config"]] for n in NODES]
    assert f"  turbopump node start broker-a-2 --data {tmp_path}" in lines, (
        "a replica to begin with"
    )
    assert lines[-1] == "broker-a (pid 3): killed"


@pytest.mark.usefixtures("scripted")
def test_lines_shown_to_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        asked_group = group(tmp_path, as_json=True)
        await asked_group.start()
        asked_group._print_event(RUNNING)
        asked_group.print_addresses()

    asyncio.run(story())
    first, ready = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert first["state"] == "running"
    assert ready["controllers"] == ["127.0.0.1:9877"] and ready["namesrv"] == ["127.0.0.1:9876"]
    assert (ready["brokers"], ready["nodes"], ready["data"]) == (BROKERS, NODES, str(tmp_path))


def test_brokers_that_take_tls_alone_are_asked_by_it(tmp_path: Path) -> None:
    plain = up_processes._options_of(cluster(tmp_path))
    assert plain == ClientOptions() or not plain.tls
    ciphered = up_processes._options_of(cluster(tmp_path, **{"tls.enable": "true"}))
    assert ciphered.tls


def test_the_default_folder_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert up_processes._data_option(tmp_path / "turbopump-data") == ""
    assert up_processes._data_option(tmp_path / "other") == f" --data {tmp_path / 'other'}"


def test_nodes_are_listed(monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path) -> None:
    questions: list[Any] = []

    def answer(data: Path, question: dict[str, Any]) -> Any:
        questions.append((data, question))
        more = {"state": "running", "role": ""}
        gone = {"state": "killed", "role": "", "pid": 0}
        return [{**NODES[0], **more}, {**NODES[2], **more, "role": "master"}, {**NODES[3], **gone}]

    monkeypatch.setattr(control, "ask_running_group", answer)
    commands.list_nodes(tmp_path)
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["#Node", "#State", "#Pid", "#Address", "#Role", "#Config"]
    assert rows[0].split() == [
        "namesrv",
        "running",
        "1",
        "127.0.0.1:9876",
        "-",
        NODES[0]["config"],
    ]
    assert rows[1].split()[4] == "master"
    assert rows[2].split()[1:3] == ["killed", "-"], "a process that is gone has no pid"
    commands.list_nodes(tmp_path, as_json=True)
    assert [json.loads(line)["node"] for line in capsys.readouterr().out.splitlines()] == [
        *("namesrv", "broker-a", "broker-a-2")
    ]
    assert questions == [(tmp_path, {"do": "list", "node": ""})] * 2


@pytest.mark.parametrize("what", ["kill", "stop", "start"])
def test_one_node_is_asked_for(
    what: str, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    def answer(_data: Path, question: dict[str, Any]) -> Any:
        return {"node": question["node"], "pid": 5, "state": f"{question['do']}ed"}

    monkeypatch.setattr(control, "ask_running_group", answer)
    getattr(commands, what)("master", tmp_path)
    assert capsys.readouterr().out == f"master (pid 5): {what}ed\n"
    getattr(commands, what)("master", tmp_path, as_json=True)
    assert json.loads(capsys.readouterr().out)["state"] == f"{what}ed"


@pytest.mark.parametrize("lost", [BrokenPipeError, ConnectionResetError])
def test_a_group_that_ends_meanwhile_is_a_sentence(
    lost: type[OSError], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A broken pipe to the group must not count as a closed standard output, which ends
    silently."""

    class Lost:
        def __enter__(self) -> "Lost":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def settimeout(self, _seconds: float) -> None:
            pass

        def sendall(self, _line: bytes) -> None:
            raise lost

    monkeypatch.setattr(control, "_connect", lambda data: Lost())
    with pytest.raises(CommandFailed, match="turbopump up ended before it answered"):
        control.ask_running_group(tmp_path, {"do": "list"})
