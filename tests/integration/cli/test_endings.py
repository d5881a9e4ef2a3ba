"""Ends of commands with unusable arguments, or whose output is closed."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turbopump.testing import RunningCluster

pytestmark = pytest.mark.integration

Cli = Callable[..., Any]
Ready = Callable[..., Any]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["send", "-t", "not a topic", "-p", "x"], "no topic name"),
        (["send", "-t", "T", "-p", ""], "body"),
        (["send", "-t", "T", "-p", "x", "--property", "KEYS=k"], "KEYS"),
        (["send", "-t", "T", "-p", "x", "--property", "half"], "NAME=VALUE"),
        (["send", "-t", "T", "-p", "x", "-f", "x"], "twice"),
        (["send", "-t", "T", "-f", "/proc/none"], "/proc/none: No such file"),
        (["consume", "-t", "not a topic"], "no topic name"),
        (["consume", "-t", "T", "-g", "not a group"], "no group name"),
    ],
)
def test_messages_no_broker_would_take_are_bad_input(
    arguments: list[str], word: str, cli: Cli, cluster: RunningCluster
) -> None:
    done = cli(*arguments, "-n", cluster.namesrv)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("turbopump: ")
    assert done.err.count("\n") == 1
    assert word in done.err


def test_a_command_a_broker_refuses_has_no_effect(cli: Cli, cluster: RunningCluster) -> None:
    done = cli("send", "-t", "SCHEDULE_TOPIC_XXXX", "-p", "x", "-n", cluster.namesrv)
    assert (done.code, done.out) == (1, "")
    assert "is forbidden" in done.err


def test_a_topic_that_is_not_there_is_not_waited_for(cli: Cli, cluster: RunningCluster) -> None:
    done = cli("consume", "-t", "TYPO", "-n", cluster.namesrv)
    assert (done.code, done.out, done.err) == (1, "", "turbopump: the topic TYPO does not exist\n")


def test_last_is_now(cli: Cli, cluster: RunningCluster) -> None:
    at = "-n", cluster.namesrv, "-t", "Young"
    assert cli("send", *at, "-p", "before", "--count", "4").code == 0
    assert cli("consume", *at, "-g", "late", "--from", "last", "--timeout", "0.5").out == ""
    assert cli("send", *at, "-p", "after").code == 0
    done = cli("consume", *at, "-g", "late", "--from", "last", "--count", "1", "--json")
    assert [message["body"] for message in done.json] == ["after"]
    first = cli("consume", *at, "-g", "early", "--count", "5", "--json")
    assert sorted(message["body"] for message in first.json) == ["after"] + ["before"] * 4


def test_a_reader_that_goes_away_ends_consume_quietly_and_nothing_unread_is_acknowledged(
    cli: Cli, cluster: RunningCluster, program: list[str]
) -> None:
    at = "-n", cluster.namesrv, "-t", "Gone", "-g", "gone"
    assert cli("send", *at[:4], "-p", "x" * 100_000, "--count", "3").code == 0
    # Unbuffered, Python itself drops bytes that a write to a closing pipe did not take.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        [*program, "consume", *at],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=buffered,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1
    done = cli("consume", *at, "--count", "3", "--timeout", "20")
    assert [len(line) for line in done.out.splitlines()[1::2]] == [100_000] * 3


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_command_runs_without_a_standard_stream(
    closed: str, program: list[str], cluster: RunningCluster
) -> None:
    line = f'exec "$@" {closed}'
    command = [*program, "admin", "topicList", "-n", cluster.namesrv]
    done = subprocess.run(["sh", "-c", line, "sh", *command], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_node_whose_output_cannot_be_written_stops_cleanly(
    tmp_path: Path, program: list[str]
) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
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
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "turbopump: the disk is full"
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data" / "broker-a" / "abort").exists()


def test_a_log_file_that_cannot_be_written_stops_no_command(
    tmp_path: Path, up: Ready, command: Cli
) -> None:
    log = tmp_path / "data" / "logs" / "turbopump.log"
    log.parent.mkdir(parents=True)
    log.symlink_to("/dev/full")
    running = up()
    (namesrv,) = running.ready["namesrv"]
    assert command("send", "-n", namesrv, "-t", "T", "-p", "x").code == 0
    done = running.stop(signal.SIGTERM)
    assert done.code == 0
    assert "name server listens" in done.err
    assert "Traceback" not in done.err
    assert "Logging error" not in done.err


def test_every_address_is_listened_at_but_a_real_one_is_told(up: Ready, command: Cli) -> None:
    running = up("--host", "0.0.0.0")
    (namesrv,), (broker,) = running.ready["namesrv"], running.ready["brokers"]
    assert not broker["address"].startswith("0.0.0.0")
    assert command("send", "-n", namesrv, "-t", "T", "-p", "x").code == 0
    assert running.stop().code == 0


def test_a_host_may_be_a_name(up: Ready, command: Cli) -> None:
    running = up("--host", "localhost")
    (namesrv,), (broker,) = running.ready["namesrv"], running.ready["brokers"]
    assert broker["address"].startswith("localhost:")
    sent = command("send", "-n", namesrv, "-t", "T", "-p", "x", "--json").json[0]
    assert sent["offset_message_id"].startswith(("7F000001", "0" * 31 + "1"))
    found = command("admin", "queryMsgById", "-n", namesrv, "-t", "T", "-i", sent["message_id"])
    assert found.code == 0
    assert running.stop().code == 0


def test_a_host_is_needed(command: Cli, tmp_path: Path) -> None:
    done = command("up", "--host", "", cwd=tmp_path)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "--host" in done.err
    assert os.listdir(tmp_path) == []


def test_a_closed_terminal_stops_a_broker_in_order(program: list[str], tmp_path: Path) -> None:
    """SIGHUP ended it like kill -9."""
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathRootDir={tmp_path}/store\nlistenPort=0\nbrokerIP1=127.0.0.1\n")
    process = subprocess.Popen(
        [*program, "broker", "-c", str(config)],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    try:
        assert process.stdout is not None and process.stdout.readline()
        assert (tmp_path / "store/abort").exists()
        process.send_signal(signal.SIGHUP)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()
    assert not (tmp_path / "store/abort").exists()
