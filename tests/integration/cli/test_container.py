"""`turbopump container`: masters of two groups in one process, one of which goes and returns."""

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.broker.conftest import Caller
from tests.integration.cli.conftest import SMALL_FILES

import turbopump

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

Command = Callable[..., Any]
QUEUES = 8
"""Number of the topic's queues at each broker."""
STOP_S = 20


def ready(container: Any, count: int) -> dict[str, str]:
    """The addresses of brokers by name, of the next events; all must start."""
    events = [json.loads(container.process.stdout.readline()) for _ in range(count)]
    assert {one["event"] for one in events} == {"ready"}, events
    return {one["node"]: one["address"] for one in events}


class Load:
    """Producers, with each acknowledged message and the broker that took it."""

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv
        self.acknowledged: dict[bytes, str] = {}
        self.failures: list[Exception] = []
        self.over = False

    async def run(self, name: str) -> None:
        options = turbopump.ClientOptions(route_refresh_ms=500)
        async with turbopump.Producer(f"P{name}", self.namesrv, client_options=options) as producer:
            number = 0
            while not self.over:
                body = f"{name} {number}".encode()
                number += 1
                try:
                    result = await producer.send(turbopump.Message("T", body))
                except Exception as error:
                    self.failures.append(error)
                else:
                    assert result.status is turbopump.SendStatus.SEND_OK
                    self.acknowledged[body] = result.queue.broker_name
                await asyncio.sleep(0.002)

    async def more(self, broker: str, count: int) -> None:
        """Wait until that broker has acknowledged `count` more messages."""
        wanted = Counter(self.acknowledged.values())[broker] + count
        while Counter(self.acknowledged.values())[broker] < wanted:
            await asyncio.sleep(0.05)


async def stored(address: str) -> list[bytes]:
    caller = Caller(address)
    try:
        return [bytes(one.body) for queue in range(QUEUES) for one in await caller.read("T", queue)]
    finally:
        await caller.close()


def test_a_broker_goes_and_returns_under_load(
    launch: Callable[..., Any], command: Command, tmp_path: Path
) -> None:
    (tmp_path / "namesrv.conf").write_text(
        f"listenPort=0\nbindAddress=127.0.0.1\nkvConfigPath={tmp_path}/kv.json\n"
    )
    namesrv = launch("namesrv", "-c", str(tmp_path / "namesrv.conf"), "--json").ready["address"]
    files = {name: tmp_path / f"{name}.conf" for name in ("a", "b")}
    for name, path in files.items():
        path.write_text(
            f"brokerName={name}\nbrokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nlistenPort=0\n"
            f"storePathRootDir={tmp_path / name}\n{SMALL_FILES}"
        )
    (tmp_path / "container.conf").write_text(
        f"listenPort=0\nbindAddress=127.0.0.1\nbrokerContainerIP=127.0.0.1\n"
        f"namesrvAddr={namesrv}\nbrokerConfigPaths={files['a']}:{files['b']}\n"
    )
    container = launch("container", "-c", str(tmp_path / "container.conf"), "--json")
    addresses = ready(container, 2)
    at = container.ready["address"]
    words = ("-n", namesrv, "-c", "DefaultCluster", "-t", "T", "-r", str(QUEUES), "-w", str(QUEUES))
    assert command("admin", "updateTopic", *words).code == 0
    identity = "DefaultCluster:b:0"

    async def story() -> Load:
        load = Load(namesrv)
        tasks = [asyncio.create_task(load.run(name)) for name in "xyz"]
        await load.more("b", 50)
        removed = await asyncio.to_thread(
            command, "admin", "removeBroker", "-c", at, "-b", identity
        )
        assert (removed.code, removed.out) == (0, f"remove broker from {at} success\n")
        assert json.loads(container.process.stdout.readline())["event"] == "removed"
        await load.more("a", 100)
        added = await asyncio.to_thread(
            command, "admin", "addBroker", "-c", at, "-b", str(files["b"])
        )
        assert (added.code, added.out) == (0, f"add broker to {at} success\n")
        addresses.update(ready(container, 1))
        await load.more("b", 50)
        load.over = True
        await asyncio.gather(*tasks)
        return load

    load = asyncio.run(asyncio.wait_for(story(), 120))
    assert not load.failures, "the other broker takes messages that a stopping broker refuses"
    for name in "ab":
        bodies = asyncio.run(stored(addresses[f"broker DefaultCluster_{name}_0"]))
        here = {body for body, broker in load.acknowledged.items() if broker == name}
        assert here <= set(bodies), "acknowledged messages are there"
    began_s = time.monotonic()
    done = container.stop(signal.SIGTERM)
    assert (done.code, done.json[-1]) == (0, {"event": "stopped"}), done
    assert time.monotonic() - began_s < STOP_S
    assert not list(tmp_path.glob("*/abort")), "all stores were closed in order"
    assert "[DefaultCluster_b_0]" in done.err, "each line of the log names its broker"
