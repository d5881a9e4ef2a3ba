"""`turbopump top` at running nodes: once, again and again, as lines, as JSON, on a terminal."""

import os
import pty
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from turbopump.testing import RunningCluster

pytestmark = pytest.mark.integration

TIMEOUT_S = 60
ONE = ("--from", "first", "--count", "1", "--timeout", "20")


def test_a_look_at_a_group_without_controllers(
    cli: Callable[..., Any], cluster: RunningCluster
) -> None:
    (broker,) = cluster.brokers
    done = cli("top", "-n", cluster.namesrv, "--once", "--json")
    assert (done.code, done.err) == (0, "")
    (sample,) = done.json
    assert (sample["controllers"], sample["errors"], sample["changes"]) == ([], [], [])
    (group,) = sample["groups"]
    assert (group["broker_name"], group["master_id"], group["epoch"]) == (broker.name, 0, None)
    (seen,) = group["brokers"]
    assert (seen["broker_id"], seen["address"], seen["role"]) == (0, broker.address, "master")
    assert seen["log_end"] >= 0 and seen["error"] == ""

    done = cli("top", "-n", cluster.namesrv, "--once", "-b", broker.name)
    assert f"{broker.name} of DefaultCluster: master 0" in done.out
    assert (
        cli("top", "-n", cluster.namesrv, "--once", "-b", "other", "--json").json[0]["groups"] == []
    )


def test_messages_that_wait_for_a_time_or_an_end(
    cli: Callable[..., Any], cluster: RunningCluster
) -> None:
    """`top` counts half messages that a command left open, and a timer; consumers get the committed
    ones.
    """
    for body, *words in (
        ("later", "--delay", "1h"),
        ("open", "--transaction", "unknown"),
        ("hidden", "--transaction", "roll-back"),
        ("shown", "--transaction", "commit"),
    ):
        done = cli("send", "-n", cluster.namesrv, "-t", "Waiting", "-p", body, *words)
        assert (done.code, done.err) == (0, ""), body
    (sample,) = cli("top", "-n", cluster.namesrv, "--once", "--json").json
    waiting = sample["groups"][0]["waiting"]
    assert (waiting["timers"], waiting["halves"]) == (1, 1), waiting
    assert sum(waiting["backlog"].values()) == 1 and waiting["next_due_ms"] > sample["at_ms"]
    lines = cli("top", "-n", cluster.namesrv, "--once").out
    assert "timers: 1 wait, next in " in lines and "transactions: 1 open; " in lines
    read = cli("consume", "-n", cluster.namesrv, "-t", "Waiting", *ONE)
    assert "shown" in read.out and "hidden" not in read.out


def test_no_server_is_there(cli: Callable[..., Any]) -> None:
    done = cli("top", "-n", "127.0.0.1:1", "--once")
    assert (done.code, done.out) == (1, "")
    assert "127.0.0.1:1" in done.err and done.err.count("\n") == 1
    assert cli("top", "-n", "127.0.0.1:1", "--interval", "0").code == 2
    assert cli("top", "-a", "x").code == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_looks_until_it_is_stopped(
    program: list[str], cluster: RunningCluster, number: signal.Signals
) -> None:
    watching = subprocess.Popen(
        [*program, "top", "-n", cluster.namesrv, "--interval", "0.05"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert watching.stdout is not None
        titles = 0
        while titles < 3:
            line = watching.stdout.readline()
            assert line, "it ended"
            titles += "master 0" in line
        watching.send_signal(number)
        _, err = watching.communicate(timeout=TIMEOUT_S)
        assert (watching.returncode, err) == (0, "")
    finally:
        watching.kill()
        watching.communicate()


def test_a_screen_on_a_terminal(program: list[str], cluster: RunningCluster) -> None:
    """The terminal's other screen, and the first one again at the end."""
    ours, its = pty.openpty()
    watching = subprocess.Popen(
        [*program, "top", "-n", cluster.namesrv, "--interval", "0.05"],
        stdout=its,
        stderr=subprocess.PIPE,
        stdin=its,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"},
    )
    os.close(its)
    shown = b""
    try:
        while b"What happened" not in shown:
            shown += os.read(ours, 1 << 16)
        watching.send_signal(signal.SIGINT)
        try:
            while more := os.read(ours, 1 << 16):
                shown += more
        except OSError:  # a terminal that was closed
            pass
        assert watching.wait(TIMEOUT_S) == 0
    finally:
        os.close(ours)
        watching.kill()
        watching.communicate()
    assert b"\x1b[?1049h" in shown and b"\x1b[?1049l" in shown
    assert b"master" in shown and b"broker-a" in shown
