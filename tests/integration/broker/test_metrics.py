"""Metrics of a running broker over HTTP, as Prometheus reads them."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from turbopump.broker.config.config import load_config
from turbopump.broker.node import BrokerNode, StartError
from turbopump.net.wire.codes import RequestCode

pytestmark = pytest.mark.integration

PROM = "metricsExporterType=PROM\nmetricsPromExporterHost=127.0.0.1\nmetricsPromExporterPort={}\n"


async def scrape(address: str) -> dict[str, float]:
    """name -> sum over all labels."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0) + sample.value
    return sums


def test_metrics_count_natively_served_requests_too(serve: Callable[..., Any]) -> None:
    async def run() -> None:
        async with serve(PROM.format(0)) as (node, caller):
            for number in range(5):
                assert (await caller.send(b"%d" % number, UNIQ_KEY=f"{number:032X}")).code == 0
            assert len(await caller.read()) == 5
            found = await scrape(node._metrics.address)
            assert found["rocketmq_messages_in_total"] == 5
            assert found["rocketmq_messages_out_total"] == 5
            assert found["turbopump_ha_is_master"] == 1
            assert found["turbopump_ha_confirm_gap_bytes"] == 0
            assert found["process_resident_memory_bytes"] > 0
        with pytest.raises(OSError):
            await scrape(node._metrics.address)

    uvloop.run(run())


def test_cpu_time_of_io_threads(serve: Callable[..., Any]) -> None:
    """A scrape and the runtime table have the time of each thread; the thread of the client's only
    connection has used some."""

    async def run() -> None:
        async with serve(PROM.format(0) + "ioThreads=2\n") as (node, caller):
            name = "turbopump_io_thread_cpu_seconds_total"
            idle_s = (await scrape(node._metrics.address))[name]
            for number in range(100):
                assert (await caller.send(b"%d" % number)).code == 0
            response = await caller.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
            table = json.loads(response.body)["table"]
            assert (table["ioThreads"], len(table["ioThreadsCpuMs"].split())) == ("2", 2)
            assert idle_s < (await scrape(node._metrics.address))[name] < 10
            threads = node.context.io_threads
        assert (threads.cpu_ns, node.context.io_threads) == ([], None)
        async with serve(PROM.format(0) + "ioThreads=0\n") as (node, caller):
            response = await caller.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
            table = json.loads(response.body)["table"]
            assert (table["ioThreads"], table["ioThreadsCpuMs"]) == ("0", "")
            assert name not in await scrape(node._metrics.address)

    uvloop.run(run())


def test_by_default_there_are_none(serve: Callable[..., Any]) -> None:
    async def run() -> None:
        async with serve() as (node, _):
            assert node._metrics.address == ""

    uvloop.run(run())


def test_an_advertised_host_is_not_listened_at(tmp_path: Any) -> None:
    """The exporter listens at bindAddress: with a NAT brokerIP1 is no address of this machine."""
    config, _ = load_config(
        f"storePathRootDir={tmp_path}/store\nmappedFileSizeCommitLog=65536\nlistenPort=0\n"
        "bindAddress=127.0.0.1\nbrokerIP1=203.0.113.9\nmetricsExporterType=PROM\n"
        "metricsPromExporterPort=0\n"
    )

    async def run() -> None:
        node = BrokerNode(config)
        await node.start()
        try:
            assert node.address.startswith("203.0.113.9:")
            assert node._metrics.address.startswith("127.0.0.1:")
            assert (await scrape(node._metrics.address))["turbopump_ha_is_master"] == 1
        finally:
            await node.stop()

    uvloop.run(run())


def test_a_port_in_use(serve: Callable[..., Any], tmp_path: Any) -> None:
    """A broker whose port is in use does not start, and leaves no socket open."""

    async def run() -> None:
        taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = taken.sockets[0].getsockname()[1]
        with pytest.raises(StartError, match=f"metrics .*127.0.0.1:{port}: Address already in use"):
            async with serve(PROM.format(port)):
                pass
        taken.close()
        async with serve(PROM.format(port)) as (_, caller):
            assert (await caller.send(b"x")).code == 0

    uvloop.run(run())
