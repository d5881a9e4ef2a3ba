"""`turbopump up` as a process: ready, used, stopped, and its errors when it cannot start."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turbopump import Message, Producer, SimpleConsumer
from turbopump.net.grpc.server import why_no_grpc

pytestmark = pytest.mark.integration

Command = Callable[..., Any]
Ready = Callable[..., Any]


def test_up_is_ready_used_and_stopped(up: Ready, command: Command, tmp_path: Path) -> None:
    running = up()
    data = tmp_path / "data"
    (namesrv,) = running.ready["namesrv"]
    (broker,) = running.ready["brokers"]
    assert running.ready == {
        "event": "ready",
        "namesrv": [namesrv],
        "controllers": [],
        "brokers": [
            {
                "name": "broker-a",
                "id": 0,
                "address": broker["address"],
                "pid": running.process.pid,
                "role": "master",
                "grpc": broker["address"] if why_no_grpc() is None else "",
            }
        ],
        "data": str(data),
    }
    sent = command(
        "send",
        "-n",
        namesrv,
        "-t",
        "T",
        "-p",
        "one",
        "-c",
        "TagA",
        "-k",
        "k1 k2",
        "--property",
        "colour=red",
        "--json",
    )
    assert (sent.code, sent.json[0]["status"], sent.json[0]["queue_offset"]) == (0, "SEND_OK", 0)
    more = command(
        "send", "-n", namesrv, "-t", "T", "--sharding-key", "s", stdin="two\n\nthree 中\n"
    )
    assert (more.code, more.out.count("SEND_OK")) == (0, 2)
    got = command("consume", "-n", namesrv, "-t", "T", "--count", "3", "--json")
    assert got.code == 0
    assert sorted(message["body"] for message in got.json) == ["one", "three 中", "two"]
    (one,) = [message for message in got.json if message["body"] == "one"]
    assert (one["tags"], one["keys"], one["properties"]["colour"]) == ("TagA", ["k1", "k2"], "red")
    assert (data / "broker-a" / "abort").exists()
    done = running.stop()
    assert (done.code, done.json) == (0, [{"event": "stopped"}])
    assert not (data / "broker-a" / "abort").exists()
    assert "Traceback" not in done.err
    assert "name server listens" in done.err
    assert "name server listens" in (data / "logs" / "turbopump.log").read_text()

    again = up()
    (namesrv,) = again.ready["namesrv"]
    got = command("consume", "-n", namesrv, "-t", "T", "-g", "other", "--count", "3", "--json")
    assert sorted(message["body"] for message in got.json) == ["one", "three 中", "two"]
    ours = command("consume", "-n", namesrv, "-t", "T", "--timeout", "1")
    assert (ours.code, ours.out) == (0, "")  # the first group's offsets were kept
    assert again.stop(signal.SIGINT).code == 0


def test_up_with_replicas_answers_when_one_has_the_message(
    up: Ready, command: Command, tmp_path: Path
) -> None:
    running = up("--replicas", "2")
    (namesrv,) = running.ready["namesrv"]
    brokers = running.ready["brokers"]
    assert [(each["id"], each["role"]) for each in brokers] == [
        (0, "master"),
        (1, "slave"),
        (2, "slave"),
    ]
    for _ in range(60):  # the replicas connect within the first second
        if command("send", "-n", namesrv, "-t", "T", "-p", "twice").code == 0:
            break
    copies = [
        b"twice" in (tmp_path / "data" / name / "commitlog" / ("0" * 20)).read_bytes()
        for name in ("broker-a", "broker-a-replica-1", "broker-a-replica-2")
    ]
    assert copies[0]
    assert sum(copies) >= 2
    assert running.stop().code == 0


def test_up_comes_back_after_a_kill(up: Ready, command: Command, tmp_path: Path) -> None:
    running = up()
    (namesrv,) = running.ready["namesrv"]
    assert command("send", "-n", namesrv, "-t", "T", "-p", "kept", "--count", "5").code == 0
    running.stop(signal.SIGKILL)
    assert (tmp_path / "data" / "broker-a" / "abort").exists()
    again = up()
    (namesrv,) = again.ready["namesrv"]
    got = command("consume", "-n", namesrv, "-t", "T", "--count", "5", "--json")
    assert [message["body"] for message in got.json] == ["kept"] * 5
    assert again.stop().code == 0


def test_up_tells_people_where_to_connect(tmp_path: Path, program: list[str]) -> None:
    process = subprocess.Popen(
        [
            *program,
            "up",
            "--data",
            str(tmp_path / "data"),
            "--namesrv-port",
            "0",
            "--broker-port",
            "0",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(8)]
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert lines[0].startswith("Turbopump is ready. Name server 127.0.0.1:")
    assert any("turbopump send" in line for line in lines)
    assert "written down" in out
    assert process.returncode == 0


def test_a_signal_during_the_start_stops_it_cleanly(tmp_path: Path, program: list[str]) -> None:
    process = subprocess.Popen(
        [
            *program,
            "up",
            "--data",
            str(tmp_path / "data"),
            "--namesrv-port",
            "0",
            "--broker-port",
            "0",
            "--json",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    log = tmp_path / "data" / "logs" / "turbopump.log"
    try:
        while not (log.exists() and "name server listens" in log.read_text()):
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1]) == {"event": "stopped"}
    assert not (tmp_path / "data" / "broker-a" / "abort").exists()


def refused(done: Any, *words: str) -> None:
    """Exit code 2 and one clear sentence, nothing else that is not log."""
    assert done.code == 2, done.err
    assert "Traceback" not in done.err
    lines = [line for line in done.err.splitlines() if line.startswith("turbopump: ")]
    assert len(lines) == 1, done.err
    for word in words:
        assert word in lines[0]


@pytest.fixture
def up_once(tmp_path: Path, command: Command) -> Command:
    """An `up` that is expected to end by itself."""

    def run(*more: str) -> Any:
        given = {"--data": str(tmp_path / "data"), "--namesrv-port": "0", "--broker-port": "0"}
        pairs = dict(zip(more[::2], more[1::2], strict=True))
        return command("up", *(part for pair in {**given, **pairs}.items() for part in pair))

    return run


def test_a_port_in_use_is_named(tmp_path: Path, up_once: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused(up_once("--namesrv-port", port), f"127.0.0.1:{port}", "in use")
        refused(up_once("--broker-port", port), port, "in use")
    assert not (tmp_path / "data" / "broker-a" / "abort").exists()


def test_a_locked_data_folder_is_named(
    up: Ready, up_once: Command, command: Command, tmp_path: Path
) -> None:
    running = up()
    refused(up_once(), str(tmp_path / "data"), "in use")
    (namesrv,) = running.ready["namesrv"]
    assert command("send", "-n", namesrv, "-t", "T", "-p", "unharmed").code == 0
    assert running.stop().code == 0


@pytest.mark.parametrize("text", ['{"layout": 99}', "no json", "{}", "[]"])
def test_a_data_folder_of_another_version_is_named(
    tmp_path: Path, up_once: Command, text: str
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "layout.json").write_text(text)
    refused(up_once(), str(tmp_path / "data"), "another version")
    assert (tmp_path / "data" / "layout.json").read_text() == text
    assert os.listdir(tmp_path / "data") == ["layout.json"]


def test_a_data_folder_that_cannot_be_made_is_named(tmp_path: Path, up_once: Command) -> None:
    (tmp_path / "data").write_text("a file")
    refused(up_once(), str(tmp_path / "data"), "Not a directory")
    refused(up_once("--data", "/proc/turbopump"), "/proc/turbopump")


@pytest.mark.parametrize(
    ("size", "more"),
    [
        ("4k", ()),
        ("40m", ()),
        ("68m", ()),
        ("40m", ("--processes", "--brokers", "2", "--controllers", "1", "--controller-port", "0")),
    ],
)
def test_a_full_disk_is_named(
    tmp_path: Path, program: list[str], size: str, more: tuple[str, ...]
) -> None:
    """A full disk is named in the error: a file system of one page, of less than a log file, or of
    little more, mounted only for the test.
    """
    disk = tmp_path / "disk"
    disk.mkdir()
    inner = [
        *program,
        "up",
        "--data",
        str(disk / "data"),
        "--namesrv-port",
        "0",
        "--broker-port",
        "0",
        *more,
    ]
    script = (
        f"mount -t tmpfs -o size={size} tmpfs {disk} || exit 77; "
        f'echo full > {disk}/taken; exec "$@"'
    )
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", *inner],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    assert done.returncode == 2, done.stderr
    words = "would be used to 9" if size == "68m" else "the disk is full"
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr and "ready" not in done.stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x=1\nflushDiskType=SOMETIMES\n", ("flushDiskType=SOMETIMES", "line 2")),
        ("brokerId=-2\n", ("brokerId=-2", "line 1")),
        ("brokerId=-1\n", ("brokerId=-1", "only a controller gives ids")),
        ("a=\\u12\n", ("line 1",)),
    ],
)
def test_a_bad_broker_setting_is_named(
    tmp_path: Path, up_once: Command, text: str, words: tuple[str, ...]
) -> None:
    config = tmp_path / "bad.conf"
    config.write_text(text)
    refused(up_once("-c", str(config)), str(config), *words)
    assert not (tmp_path / "data").exists()


def test_bad_arguments_end_with_2(tmp_path: Path, up_once: Command, command: Command) -> None:
    refused(up_once("-c", str(tmp_path / "none.conf")), "none.conf")
    for arguments in (
        ["up", "--namesrv-port", "70000"],
        ["up", "--no-such"],
        ["nonsense"],
        ["up", "--log-level", "loud"],
    ):
        done = command(*arguments, cwd=tmp_path)
        assert done.code == 2
        assert "Traceback" not in done.err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "arguments", [["--help"], ["up", "--help"], ["admin", "--help"], ["inspect", "log", "--help"]]
)
def test_help_imports_no_node(arguments: list[str]) -> None:
    """Help does not import modules of nodes, so that it is fast; a benchmark measures the time."""
    code = (
        "import atexit, sys; "
        "heavy = {'asyncio', 'uvloop', 'ssl', 'turbopump.cluster', 'turbopump.engine.store', "
        "'turbopump.net.client.admin.client'}; "
        "atexit.register(lambda: print(sorted(heavy & set(sys.modules)), file=sys.stderr)); "
        f"sys.argv = ['turbopump', *{arguments!r}]; "
        "from turbopump.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "Usage:" in done.stdout
    assert done.stderr.strip() == "[]"


def test_importing_the_command_line_imports_no_node() -> None:
    code = (
        "import sys, turbopump, turbopump.testing, turbopump.cli.app; "
        "heavy = {'asyncio', 'uvloop', 'rich', 'turbopump.cluster', 'turbopump.engine.store', "
        "'turbopump.net.client.admin.client', 'ssl'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_reader_that_goes_away_ends_a_command_quietly(program: list[str], tmp_path: Path) -> None:
    queue = tmp_path / "consumequeue" / "T" / "0" / ("0" * 20)
    queue.parent.mkdir(parents=True)
    queue.write_bytes(
        b"".join(n.to_bytes(8, "big") + b"\0\0\0\1" + bytes(8) for n in range(50_000))
    )
    with subprocess.Popen(
        [*program, "inspect", "queue", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("cq topic=T queue=0 index=0 ")
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.skipif(why_no_grpc() is not None, reason="libnghttp2 is not installed")
@pytest.mark.parametrize("apart", [[], ["--processes"]])
def test_a_proxy_beside_the_group(up: Ready, command: Command, apart: list[str]) -> None:
    running = up("--proxy-port", "0", *apart)
    ready, output = running.ready, running.process.stdout
    while ready["event"] != "ready":  # each process has a line of its own before
        ready = json.loads(output.readline())
    proxy, (namesrv,), (broker,) = ready["proxy"], ready["namesrv"], ready["brokers"]
    made = command("admin", "updateTopic", "-n", namesrv, "-b", broker["address"], "-t", "T")
    assert made.code == 0, made

    async def go_round() -> list[bytes]:
        async with (
            Producer(endpoints=proxy) as producer,
            SimpleConsumer("G", endpoints=proxy) as consumer,
        ):
            consumer.subscribe("T")
            await producer.send(Message("T", b"by the proxy"))
            return [one.body for one in await consumer.receive()]

    assert asyncio.run(go_round()) == [b"by the proxy"]
    assert running.stop().code == 0
