"""`turbopump up --brokers 3 --controllers 3`: a whole group in one command."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.controller.quorum import asker

import turbopump
from turbopump.cluster import SMALL_FILES, Cluster, ClusterError

# Many processes start one after the other: on a busy machine that takes its time.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

Command = Callable[..., Any]
Ready = Callable[..., Any]


def test_a_whole_group_in_one_command(up: Ready, command: Command, tmp_path: Path) -> None:
    running = up("--brokers", "3", "--controllers", "3", "--one-process")
    (namesrv,) = running.ready["namesrv"]
    brokers, controllers = running.ready["brokers"], running.ready["controllers"]
    assert [each["role"] for each in brokers] == ["master", "slave", "slave"]
    assert len({each["address"] for each in brokers}) == 3
    assert len(set(controllers)) == 3
    sent = command("send", "-n", namesrv, "-t", "T", "-p", "for all", "--count", "5", "--json")
    assert (sent.code, [one["status"] for one in sent.json]) == (0, ["SEND_OK"] * 5)
    found = command("admin", "getSyncStateSet", "-a", controllers[0], "-b", "broker-a", "--json")
    assert found.code == 0, found.err
    assert len({each["id"] for each in brokers}) == 3
    done = running.stop()
    assert (done.code, done.json) == (0, [{"event": "stopped"}])
    assert "Traceback" not in done.err
    # The same again: ids, epochs and messages are kept.
    again = up("--brokers", "3", "--controllers", "3", "--one-process")
    (namesrv,) = again.ready["namesrv"]
    got = command("consume", "-n", namesrv, "-t", "T", "--count", "5", "--json")
    assert [message["body"] for message in got.json] == ["for all"] * 5
    assert again.stop().code == 0


def test_brokers_without_controllers_are_a_sentence(command: Command, tmp_path: Path) -> None:
    for more in (
        ("--brokers", "3"),
        ("--controllers", "1", "--replicas", "1"),
        ("--brokers", "3", "--controllers", "2"),
    ):
        done = command(
            "up",
            "--data",
            str(tmp_path / "data"),
            "--namesrv-port",
            "0",
            "--broker-port",
            "0",
            "--controller-port",
            "0",
            *more,
        )
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "controllers" in done.err


def test_a_replica_that_acts_inside_a_program(tmp_path: Path) -> None:
    """Without its master a consumer goes on there; `up --acting-master` has the same cluster."""

    async def run() -> None:
        cluster = Cluster(tmp_path, replicas=1, acting_master=True, broker_properties=SMALL_FILES)
        async with cluster:
            topics = tmp_path / "broker-a-replica-1" / "config" / "topics.json"
            async with turbopump.Producer("PG", [cluster.namesrv]) as producer:
                await producer.send(turbopump.Message("T", b"one"))
            while not (topics.exists() and '"T"' in topics.read_text()):
                await asyncio.sleep(0.05)
            await cluster.stop_broker(cluster.brokers[0])
            async with turbopump.Admin([cluster.namesrv]) as admin:
                watch = admin.watch([], None)
                group = (await watch.sample()).groups[0]
                while group.brokers[0].role != "acting":
                    await asyncio.sleep(0.1)
                    group = (await watch.sample()).groups[0]
                assert (group.master_id, group.brokers[0].broker_id) == (None, 1)
            consumer = turbopump.Consumer("G", [cluster.namesrv])
            consumer.subscribe("T")
            async with consumer:
                message = await consumer.receive()
                assert message is not None and message.body == b"one"
                await consumer.ack(message)

    asyncio.run(run())


def test_a_replica_that_acts_beside_controllers(tmp_path: Path) -> None:
    """Without controllers and master a consumer continues at a replica."""

    async def run() -> None:
        properties = {**SMALL_FILES, "controllerHeartBeatTimeoutMills": "3000"}
        cluster = Cluster(
            tmp_path, brokers=2, controllers=1, acting_master=True, broker_properties=properties
        )
        async with cluster:
            async with turbopump.Producer("PG", [cluster.namesrv]) as producer:
                await producer.send(turbopump.Message("T", b"one"))
            (controller,) = cluster._controllers
            await controller.stop()
            await cluster.stop_broker(cluster.brokers[0])
            async with turbopump.Admin([cluster.namesrv]) as admin:
                watch = admin.watch([], None)
                group = (await watch.sample()).groups[0]
                while group.brokers[0].role != "acting":
                    await asyncio.sleep(0.1)
                    group = (await watch.sample()).groups[0]
            consumer = turbopump.Consumer("G", [cluster.namesrv])
            consumer.subscribe("T")
            async with consumer:
                message = await consumer.receive()
                assert message is not None and message.body == b"one"
                await consumer.ack(message)

    asyncio.run(run())


def test_a_group_inside_a_program(tmp_path: Path) -> None:
    async def run() -> None:
        cluster = Cluster(tmp_path, brokers=3, controllers=1, broker_properties=SMALL_FILES)
        async with cluster:
            (controller,) = cluster.controllers
            async with asker([controller]) as admin:
                response, members = await admin.replicas()
                assert response.fields["masterAddress"] == cluster.brokers[0].address
                assert members.members <= {1, 2, 3}
            async with turbopump.Producer("PG", [cluster.namesrv]) as producer:
                await producer.send(turbopump.Message("T", b"one"))

    asyncio.run(run())


def test_a_group_that_speaks_tls_only(tmp_path: Path) -> None:
    async def run() -> None:
        properties = {**SMALL_FILES, "tls.server.mode": "enforcing"}
        async with Cluster(tmp_path, brokers=2, controllers=3, broker_properties=properties) as one:
            assert [broker.role for broker in one.brokers] == ["master", "slave"]

    asyncio.run(run())


def test_a_cluster_refuses_impossible_arguments(tmp_path: Path) -> None:
    async def run() -> None:
        with pytest.raises(ClusterError, match="need controllers"):
            await Cluster(tmp_path, brokers=2).start()
        with pytest.raises(ClusterError, match="use 1, 3 or 5"):
            await Cluster(tmp_path, controllers=2).start()
        with pytest.raises(ClusterError, match="not with controllers"):
            await Cluster(tmp_path, replicas=1, controllers=1).start()
        with pytest.raises(ClusterError, match="must be a replica: --replicas 1 or more"):
            await Cluster(tmp_path, acting_master=True).start()

    asyncio.run(run())
