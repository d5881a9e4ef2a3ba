"""`turbopump bench` against a real node: its counts equal the stored messages."""

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mmap_ninja import RaggedMmap

from turbopump.cli.bench.setup import Place
from turbopump.cli.load import failover
from turbopump.net.client.admin.client import Admin
from turbopump.net.client.consuming.pull_consumer import PullConsumer
from turbopump.testing import RunningCluster

pytestmark = pytest.mark.integration

Cli = Callable[..., Any]


async def count_of(cluster: RunningCluster, topic: str) -> int:
    async with Admin([cluster.namesrv]) as admin:
        queues = (await admin.topic_status(topic)).queues
    return sum(queue.max_queue_offset for queue in queues)


def in_store(cluster: RunningCluster, topic: str) -> int:
    return cluster.run(count_of(cluster, topic))


def bench(cli: Cli, cluster: RunningCluster, *arguments: str) -> dict[str, Any]:
    """Run it, see that it succeeds, return its JSON."""
    kind, *rest = arguments
    done = cli("bench", kind, "-n", cluster.namesrv, "--json", *rest)
    assert (done.code, done.err) == (0, "")
    (result,) = done.json
    return dict(result)


@pytest.mark.parametrize("encoding", ["json", "rocketmq"])
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("OneByOne", ["-w", "7"]),
        ("Pipelined", ["-w", "2", "--in-flight", "50", "-s", "3000"]),
        ("Async", ["-y", "true", "-k", "true", "-l", "3", "-p", "40"]),
        ("Batches", ["-w", "3", "-b", "10"]),
        ("Scheduled", ["-w", "4", "--rate", "5000"]),
        ("Anonymous", ["--no-unique-key", "-w", "4"]),
    ],
)
def test_sent_messages_can_be_read(
    name: str, shape: list[str], encoding: str, cli: Cli, cluster: RunningCluster
) -> None:
    at = ["-t", f"{name}-{encoding}", "--encoding", encoding]
    sent = bench(cli, cluster, "producer", *at, *shape, "-q", "1000", "--queues", "3")
    assert (sent["messages"], sent["errors"]) == (1000, {})
    assert sent["bytes"] >= 1000 * (3000 if name == "Pipelined" else 128)
    assert in_store(cluster, at[1]) == 1000
    latency = list(sent["latency_us"].values())
    assert latency == sorted(latency) and latency[0] > 0
    read = bench(cli, cluster, "consumer", *at, "--check-crc", "-w", "2")
    assert (read["messages"], read["errors"], read["connections"]) == (1000, {}, 2)
    assert read["bytes"] > sent["bytes"]


def test_messages_are_those_of_a_real_client(cli: Cli, cluster: RunningCluster) -> None:
    bench(cli, cluster, "producer", "-t", "Real", "-q", "20", "-k", "true", "-l", "2", "-s", "50")

    async def read() -> list[Any]:
        found: list[Any] = []
        async with PullConsumer("real", [cluster.namesrv]) as consumer:
            await consumer.assign(await consumer.queues("Real"))
            for queue in consumer.assigned:
                await consumer.seek(queue, 0)
            while len(found) < 20:
                found += await consumer.poll(1000)
        return found

    messages = cluster.run(read())
    assert len({message.message_id for message in messages}) == 20
    assert {message.tags for message in messages} == {"tag0", "tag1"}
    assert all(len(message.body) == 50 and message.keys for message in messages)


@pytest.mark.parametrize("kind", ["ninja", "parquet"])
@pytest.mark.parametrize("shape", [["-w", "3"], ["-w", "2", "-b", "4"]])
def test_a_replay_sends_the_bodies_of_a_dataset(
    kind: str, shape: list[str], cli: Cli, cluster: RunningCluster, tmp_path: Path
) -> None:
    bodies = [f"{number}".encode() * (1 + number % 50 * 40) for number in range(100)]
    if kind == "ninja":
        dataset = tmp_path / "dataset"
        RaggedMmap.from_lists(dataset, [np.frombuffer(body, np.uint8) for body in bodies])
    else:
        dataset = tmp_path / "one.parquet"
        pq.write_table(pa.table({"body": pa.array(bodies, pa.binary())}), dataset)
    topic = f"Replay-{kind}-{len(shape)}"
    sent = bench(
        cli, cluster, "producer", "-t", topic, "--replay", str(dataset), "-q", "200", *shape
    )
    assert (sent["messages"], sent["errors"]) == (200, {})
    assert sent["workload"]["replay"] == str(dataset)
    found = cluster.run(bodies_of(cluster, topic, 200))
    assert sorted(found) == sorted(bodies * 2)


async def bodies_of(cluster: RunningCluster, topic: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with PullConsumer("replayed", [cluster.namesrv]) as consumer:
        await consumer.assign(await consumer.queues(topic))
        for queue in consumer.assigned:
            await consumer.seek(queue, 0)
        while len(found) < count:
            found += [message.body for message in await consumer.poll(1000)]
    return found


def test_many_topics(cli: Cli, cluster: RunningCluster) -> None:
    many = ["-t", "Many", "--topics", "5"]
    bench(cli, cluster, "producer", *many, "--queues", "2", "-q", "100", "-w", "1")
    assert [in_store(cluster, f"Many-{number}") for number in range(5)] == [20] * 5
    assert bench(cli, cluster, "consumer", *many)["messages"] == 100


def test_mixed_reads_its_own_messages(cli: Cli, cluster: RunningCluster) -> None:
    bench(cli, cluster, "producer", "-t", "Mixed", "-q", "50")  # not to be read
    found = bench(cli, cluster, "mixed", "-t", "Mixed", "-q", "2000", "--rate", "4000", "-w", "4")
    assert found["producer"]["messages"] == found["consumer"]["messages"] == 2000
    assert found["consumer"]["delivery_us"]["p50"] > 0


def test_a_fixed_rate_is_kept_and_seconds_are_listed(cli: Cli, cluster: RunningCluster) -> None:
    found = bench(
        cli,
        cluster,
        "producer",
        "-t",
        "Paced",
        "--rate",
        "500",
        "-w",
        "8",
        "--warmup",
        "0.2",
        "--duration",
        "2.1",
    )
    assert found["all_messages"] == pytest.approx(2.3 * 500, abs=60)
    assert found["unsent"] < 60
    assert len(found["series"]) == 2
    assert sum(row["messages"] for row in found["series"]) <= found["messages"]
    assert found["messages"] < found["all_messages"]


def test_a_refusal_is_counted_by_its_code(cli: Cli, cluster: RunningCluster) -> None:
    at = "-n", cluster.namesrv, "-t", "SELF_TEST_TOPIC", "-q", "5"
    done = cli("bench", "producer", *at, "--json")
    assert done.code == 1
    assert "nothing but errors, 16 NO_PERMISSION" in done.err
    assert done.json[0]["errors"] == {"16": 5}
    assert "is forbidden" in done.json[0]["error_texts"]["16"]


@contextmanager
def proxy(target: str, responses: int, connections: int) -> Iterator[str]:
    """A relay to a broker that cuts every connection after some responses: all of them together, or
    the first new connection could send the rest before the last one is cut.
    """
    host, _, port = target.rpartition(":")
    listener = socket.create_server(("127.0.0.1", 0))
    served = threading.Barrier(connections)

    def relay(client: socket.socket) -> None:
        with client, socket.create_connection((host, int(port))) as server:
            for _ in range(responses):
                data = client.recv(65_536)
                if not data:
                    return
                server.sendall(data)
                client.sendall(server.recv(65_536))
            with contextlib.suppress(threading.BrokenBarrierError):
                served.wait(timeout=60)

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=relay, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_lost_connections_end_it_with_a_sentence(
    cli: Cli, cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench(cli, cluster, "producer", "-t", "Cut", "-q", "1")
    from turbopump.cli.bench import run as bench_run

    connect = bench_run._connect_to
    monkeypatch.setattr(bench_run, "SILENCE_NS", 300_000_000)
    monkeypatch.setattr(failover.Links, "_query_addresses", lambda links: {})
    with proxy(cluster.brokers[0].address, responses=10, connections=3) as cutting:
        monkeypatch.setattr(
            bench_run,
            "_connect_to",
            lambda links, place, is_sender: connect(
                links, replace(place, address=cutting), is_sender
            ),
        )
        done = cli("bench", "producer", "-n", cluster.namesrv, "-t", "Cut", "-w", "3")
    assert done.code == 1
    assert "the broker closed 3 of 3 connections, after 30 messages" in done.err


def test_lost_connections_are_made_anew(
    cli: Cli, cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost connections are opened again to the broker's present address, and the count goes on."""
    bench(cli, cluster, "producer", "-t", "Anew", "-q", "1")
    from turbopump.cli.bench import run as bench_run

    connect = bench_run._connect_to
    with proxy(cluster.brokers[0].address, responses=10, connections=3) as cutting:
        monkeypatch.setattr(
            bench_run,
            "_connect_to",
            lambda links, place, is_sender: connect(
                links, replace(place, address=cutting), is_sender
            ),
        )
        found = bench(cli, cluster, "producer", "-t", "Anew", "-w", "3", "-q", "300")
    failed = found["errors"]["connection lost"]
    assert found["connections_lost"] == 3
    assert 1 <= failed <= 3
    assert found["messages"] == 300 - failed
    assert sum(outage["failed_sends"] for outage in found["outages"]) == failed
    for outage in found["outages"]:
        assert outage["gap_ms"] > 0
        assert outage["resumed_ms"] > 0


def test_it_goes_on_while_a_connection_is_left(
    cli: Cli, cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench(cli, cluster, "producer", "-t", "Half", "-q", "1")
    from turbopump.cli.bench import run as bench_run

    connect, made = bench_run._connect_to, []
    with proxy(cluster.brokers[0].address, responses=0, connections=1) as cutting:

        def one_is_cut(links: failover.Links, place: Place, is_sender: bool) -> int:
            made.append(place)
            cut = replace(place, address=cutting)
            return connect(links, cut if len(made) == 1 else place, is_sender)

        monkeypatch.setattr(bench_run, "_connect_to", one_is_cut)
        monkeypatch.setattr(failover.Links, "_query_addresses", lambda links: {})
        found = bench(cli, cluster, "producer", "-t", "Half", "-w", "2", "-q", "500")
    assert found["connections_lost"] == 1
    assert (found["messages"], found["errors"]) == (499, {"connection lost": 1})


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["producer", "-t", "no topic"], "topic"),
        (["producer", "-s", "0"], "--messageSize"),
        (["producer", "-w", "none"], "integer"),
        (["producer", "--rate", "1e12"], "rate"),
        (["producer", "--in-flight", "100000"], "in flight"),
        (["producer", "-m", "true"], "traces"),
        (["producer", "-a", "true"], "needs the credentials"),
        (["producer", "--workload", "/proc/none"], "No such file"),
        (["producer", "--replay", "/proc/none"], "neither"),
        (["producer", "-n", "nowhere"], "no address"),
        (["consumer", "-g", "no group"], "group"),
        (["consumer", "--plot", "/proc/none/x.png"], "p"),
        (["mixed", "--encoding", "xml"], "xml"),
    ],
)
def test_bad_input_ends_with_two_and_a_sentence(arguments: list[str], word: str, cli: Cli) -> None:
    done = cli("bench", *arguments)
    assert (done.code, done.out) == (2, "")
    assert word in done.err
    assert "Traceback" not in done.err


def test_no_cluster_there(cli: Cli, cluster: RunningCluster) -> None:
    done = cli("bench", "producer", "-n", "127.0.0.1:1", "-q", "1")
    assert done.code == 1 and done.err.startswith("turbopump: ")
    done = cli("bench", "consumer", "-n", cluster.namesrv, "-t", "Nothing-here")
    assert done.code == 1 and "Nothing-here" in done.err


def test_an_interrupt_ends_it_with_the_figures_so_far(
    program: list[str], cli: Cli, cluster: RunningCluster
) -> None:
    bench(cli, cluster, "producer", "-t", "Long", "-q", "1")
    command = [
        *program,
        "bench",
        "producer",
        "-n",
        cluster.namesrv,
        "-t",
        "Long",
        "--json",
        "--duration",
        "600",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        while in_store(cluster, "Long") < 2:
            pass
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=30)
    assert (running.returncode, err) == (0, b"")
    assert json.loads(out)["messages"] > 0


def test_help_does_not_load_the_generator() -> None:
    script = (
        "import sys; sys.argv = ['turbopump', '--help']\n"
        "import turbopump.cli.app\n"
        "print([name for name in sys.modules if 'bench_run' in name or 'pyx.load' in name])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ},
        check=True,
    )
    assert done.stdout == "[]\n"


def test_a_workload_file_decides_and_a_picture_shows_it(
    cli: Cli, cluster: RunningCluster, tmp_path: Path
) -> None:
    file, picture = tmp_path / "load.yaml", tmp_path / "load.png"
    file.write_text(
        "topics: 2\npartitionsPerTopic: 3\nmessageSize: 77\nproducersPerTopic: 2\n"
        "consumerPerSubscription: 1\nproducerRate: 2000\nsomethingElse: 5\n"
    )
    done = cli(
        "bench",
        "mixed",
        "-n",
        cluster.namesrv,
        "-t",
        "Omb",
        "--workload",
        str(file),
        "--plot",
        str(picture),
        "-q",
        "300",
        "--json",
    )
    assert done.code == 0
    assert done.err == f"turbopump: {file}: these keys are ignored: somethingElse\n"
    (found,) = done.json
    assert found["producer"]["bytes"] == 300 * 77
    assert found["consumer"]["messages"] == 300
    assert found["workload"]["send_connections"] == 4
    assert [in_store(cluster, f"Omb-{number}") for number in range(2)] != [0, 0]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_terminal_sees_it_run(program: list[str], cluster: RunningCluster) -> None:
    ours, theirs = pty.openpty()
    command = [
        *program,
        "bench",
        "producer",
        "-n",
        cluster.namesrv,
        "-t",
        "Seen",
        "--rate",
        "100",
        "--duration",
        "1",
        "--json",
    ]
    shown = b""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs) as running:
        os.close(theirs)
        with contextlib.suppress(OSError):  # the other end is closed: all was read
            while part := os.read(ours, 65_536):
                shown += part
        out, _ = running.communicate(timeout=30)
    os.close(ours)
    assert running.returncode == 0
    assert b"sent" in shown
    assert json.loads(out)["messages"] >= 100
