"""The embedded cluster and the pytest fixture: a real broker in this process."""

import asyncio
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import uvloop

import turbopump
from turbopump.cluster import SMALL_FILES, BrokerAddress, Cluster
from turbopump.engine.types import StoreError
from turbopump.net.client.options import ConsumeFrom, ConsumerOptions
from turbopump.net.transport.client import Client
from turbopump.net.wire.command import new_request
from turbopump.net.wire.java_properties import PropertiesError
from turbopump.testing import RunningCluster, running_cluster

pytestmark = pytest.mark.integration


async def round_trip(namesrv: str, topic: str, body: bytes) -> bytes:
    async with turbopump.Producer("PG", [namesrv]) as producer:
        await producer.send(turbopump.Message(topic, body))
    options = ConsumerOptions(consume_from=ConsumeFrom.FIRST)
    consumer = turbopump.Consumer(f"G_{topic}", [namesrv], options=options)
    consumer.subscribe(topic)
    async with consumer:
        message = await consumer.receive()
        assert message is not None
        await consumer.ack(message)
        return message.body


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_cluster_on_the_running_loop(loop: Any, tmp_path: Path) -> None:
    async def run() -> None:
        async with turbopump.Cluster(tmp_path / "data", broker_properties=SMALL_FILES) as cluster:
            (broker,) = cluster.brokers
            assert isinstance(broker, BrokerAddress)
            assert (broker.name, broker.id, broker.role) == ("broker-a", 0, "master")
            assert await round_trip(cluster.namesrv, "T", b"embedded") == b"embedded"
            async with turbopump.Admin([cluster.namesrv]) as admin:
                (line,) = (await admin.cluster_list()).brokers
                assert line.address == broker.address
        assert not (tmp_path / "data" / "broker-a" / "abort").exists()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


def test_data_is_kept_and_found_again(tmp_path: Path) -> None:
    async def first() -> None:
        async with Cluster(tmp_path, broker_properties=SMALL_FILES) as cluster:
            assert await round_trip(cluster.namesrv, "T", b"kept") == b"kept"

    async def second() -> int:
        async with (
            Cluster(tmp_path, broker_properties=SMALL_FILES) as cluster,
            turbopump.Admin([cluster.namesrv]) as admin,
        ):
            status = await admin.topic_status("T")
            return sum(queue.max_queue_offset for queue in status.queues)

    asyncio.run(first())
    assert asyncio.run(second()) == 1


def test_a_cluster_without_a_folder_leaves_none() -> None:
    async def run() -> Path:
        async with Cluster(broker_properties=SMALL_FILES) as cluster:
            assert cluster.data.is_dir()
            return cluster.data

    assert not asyncio.run(run()).exists()


def test_many_clusters_in_one_process(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            Cluster(tmp_path / "1", broker_properties=SMALL_FILES) as one,
            Cluster(tmp_path / "2", broker_properties=SMALL_FILES) as other,
        ):
            assert one.namesrv != other.namesrv
            assert await round_trip(one.namesrv, "T", b"1") == b"1"
            assert await round_trip(other.namesrv, "T", b"2") == b"2"

    asyncio.run(run())


def test_a_failed_start_leaves_nothing_running(tmp_path: Path) -> None:
    async def run() -> None:
        async with Cluster(tmp_path / "1", broker_properties=SMALL_FILES):
            locked = Cluster(tmp_path / "1", broker_properties=SMALL_FILES)
            with pytest.raises(StoreError):
                await locked.start()
        wrong = Cluster(tmp_path / "2", broker_properties={"flushDiskType": "NEVER"})
        with pytest.raises(PropertiesError):
            await wrong.start()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        assert not tasks

    asyncio.run(run())


def test_an_operators_changes_are_there_after_a_restart(tmp_path: Path) -> None:
    """Configuration changes survive a restart: without a file given, they are in the data folder,
    beside the cluster's own settings.
    """
    changes = {25: b"fileReservedTime=7\n", 318: b"orderMessageEnable=true\n"}

    async def run(*, change: bool) -> dict[int, bytes]:
        async with Cluster(tmp_path, broker_properties=SMALL_FILES) as cluster:
            client = Client(lambda: time.monotonic_ns() // 1_000_000)
            asked = {25: cluster.brokers[0].address, 318: cluster.namesrv}
            shown: dict[int, bytes] = {}
            for code, address in asked.items():
                if change:
                    request = new_request(code, body=changes[code])
                    response = await client.call(address, request, 10_000)
                    assert (response.code, response.remark) == (0, None)
                response = await client.call(address, new_request(code + 1), 10_000)
                shown[code] = bytes(response.body)  # type: ignore[arg-type]
            await client.close()
            return shown

    for change in (True, False):
        shown = asyncio.run(run(change=change))
        for code, line in changes.items():
            assert line in shown[code]
    assert (tmp_path / "broker-a.properties").read_text() == "fileReservedTime=7\n"
    assert (tmp_path / "namesrv" / "namesrv.properties").read_text() == "orderMessageEnable=true\n"
    (tmp_path / "broker-a.properties").write_text("fileReservedTime=never\n")
    with pytest.raises(PropertiesError, match="fileReservedTime=never"):
        asyncio.run(run(change=False))


def test_warnings_name_unknown_keys(tmp_path: Path) -> None:
    async def run() -> list[str]:
        given = {**SMALL_FILES, "brokerColour": "red"}
        async with Cluster(
            tmp_path, broker_properties=given, namesrv_properties={"colour": "blue"}
        ) as cluster:
            return cluster.warnings

    warnings = " ".join(asyncio.run(run()))
    assert "brokerColour" in warnings
    assert "unknown key colour" in warnings


def test_the_fixture_serves_synchronous_tests(turbopump_cluster: RunningCluster) -> None:
    assert asyncio.run(round_trip(turbopump_cluster.namesrv, "T", b"sync")) == b"sync"
    assert turbopump_cluster.run(round_trip(turbopump_cluster.namesrv, "U", b"in")) == b"in"
    (broker,) = turbopump_cluster.brokers
    assert broker.role == "master"
    assert turbopump_cluster.data.is_dir()


def test_pytest_finds_the_fixture_by_itself(tmp_path: Path) -> None:
    """pytest loads the plugin by the package's entry point; here plugins are named."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_user.py").write_text(
        "def test_it(pytestconfig):\n"
        "    assert pytestconfig.pluginmanager.has_plugin('turbopump')\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_fixture_is_empty_for_each_test(turbopump_cluster: RunningCluster) -> None:
    async def topics() -> list[str]:
        async with turbopump.Admin([turbopump_cluster.namesrv]) as admin:
            return [line.topic for line in (await admin.topic_list()).topics]

    found = asyncio.run(topics())
    assert "T" not in found
    assert "TBW102" in found


def test_a_cluster_for_any_scope(tmp_path: Path) -> None:
    with running_cluster(tmp_path, {"brokerName": "mine"}) as cluster:
        assert cluster.brokers[0].name == "mine"
        assert asyncio.run(round_trip(cluster.namesrv, "T", b"x")) == b"x"


def test_the_plugin_loads_nothing_heavy(tmp_path: Path) -> None:
    """pytest loads it in every project that has turbopump installed."""
    (tmp_path / "test_nothing.py").write_text(
        "import sys\n\n\ndef test_nothing():\n"
        "    loaded = {name for name in sys.modules if name.startswith('turbopump')}\n"
        "    assert loaded == {'turbopump', 'turbopump.testing'}, loaded\n"
        "    assert 'uvloop' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_public_names_are_there_and_lazy() -> None:
    code = (
        "import sys, turbopump\n"
        "assert not [name for name in sys.modules if name.startswith('turbopump.')]\n"
        "classes = [name for name in turbopump.__all__ if name != '__version__']\n"
        "for name in classes: assert getattr(turbopump, name).__name__ == name\n"
        "assert turbopump.__version__[0].isdigit()\n"
        "assert set(turbopump.__all__) <= set(dir(turbopump))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = turbopump.nothing


def mib_taken(folder: Path) -> float:
    """Blocks used, as `du` counts them."""
    return sum(path.stat().st_blocks for path in folder.rglob("*")) / 2048


def test_a_new_data_folder_is_small(tmp_path: Path) -> None:
    async def run() -> None:
        async with Cluster(tmp_path) as cluster:
            assert mib_taken(tmp_path) < 66
            assert await round_trip(cluster.namesrv, "T", b"first") == b"first"
            assert mib_taken(tmp_path) < 90, "no second log file, some blocks of an index file"

    asyncio.run(run())


def test_a_log_goes_on_with_the_files_it_has(tmp_path: Path) -> None:
    """A log keeps the size of its files, at a replica, too, while another broker lost its log."""

    async def run(properties: dict[str, str], text: bytes) -> None:
        async with Cluster(tmp_path, replicas=1, broker_properties=properties) as cluster:
            assert await round_trip(cluster.namesrv, text.decode(), text) == text

    others = {key: SMALL_FILES[key] for key in SMALL_FILES if key != "mappedFileSizeCommitLog"}
    asyncio.run(run(SMALL_FILES, b"one"))
    asyncio.run(run(others, b"two"))
    sizes = {path.stat().st_size for path in tmp_path.glob("*/commitlog/*")}
    assert sizes == {int(SMALL_FILES["mappedFileSizeCommitLog"])}
    shutil.rmtree(tmp_path / "broker-a-replica-1")
    asyncio.run(run(others, b"three"))
    sizes = {path.stat().st_size for path in tmp_path.glob("*/commitlog/*")}
    assert sizes == {int(SMALL_FILES["mappedFileSizeCommitLog"])}
