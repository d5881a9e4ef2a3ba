"""A broker on a machine whose clock is wrong, or whose disk hangs: a preloaded library."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.machine.shim import Machine, build

pytestmark = pytest.mark.integration

HOUR_MS = 3_600_000
BODY = bytes(1 << 20)
WRONG_S = 0.4
RESPONSE_S = 20
"""Time in which a broker has to respond while its disk hangs, for the whole test."""


@pytest.fixture
def machine(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A healthy machine of the broker's own."""
    return Machine(build(tmp_path_factory.getbasetemp()), tmp_path / "rules")


def played(run: Callable[[], Coroutine[Any, Any, None]], broker: Any) -> None:
    """Play it; a loop does not end while a process that began within it runs."""

    async def ending() -> None:
        try:
            await run()
        finally:
            broker.kill()

    uvloop.run(ending())


async def arrival_s(caller: Any, body: bytes, timeout_s: float = 8) -> float:
    """Seconds until queue 0 of T holds a message."""
    begin = time.monotonic()
    while all(one.body != body for one in await caller.read()):
        assert time.monotonic() - begin < timeout_s, "it does not come"
        await asyncio.sleep(0.02)
    return time.monotonic() - begin


def test_delays_behind_a_clock_that_was_wrong_for_a_moment(
    make_process: Any, connect: Any, machine: Machine
) -> None:
    broker = make_process(environment=machine.environment())

    async def run() -> None:
        caller = connect(broker.start())
        machine.shift_clock(HOUR_MS)
        await asyncio.sleep(WRONG_S)
        assert (await caller.send(b"in another hour")).code == 0
        machine.shift_clock(0)
        await asyncio.sleep(0.1)  # the library looks at its rules every 20 ms
        assert (await caller.send(b"first", DELAY="1")).code == 0
        assert await arrival_s(caller, b"first") > 0.9
        await caller.close()
        broker.kill()
        caller = connect(broker.start())
        assert (await caller.send(b"second", DELAY="1")).code == 0
        assert await arrival_s(caller, b"second") > 0.9
        (ahead, *others) = await caller.read()
        assert all(other.store_timestamp_ms >= ahead.store_timestamp_ms for other in others)
        await caller.close()
        broker.stop()

    played(run, broker)


def test_a_roll_to_a_log_file_that_is_not_made_stops_no_reader(
    make_process: Any, connect: Any, machine: Machine
) -> None:
    """The second file's sync hangs: sends are refused as busy, and nothing else waits for it."""
    machine.hang("00000000000008388608")
    broker = make_process(environment=machine.environment())

    async def run() -> None:
        caller = connect(broker.start())
        sent = []
        while (response := await asyncio.wait_for(caller.send(BODY), RESPONSE_S)).code == 0:
            sent.append(response)
            assert len(sent) < 10
        assert (len(sent), response.code) == (7, 2)
        for _ in range(5):
            assert len(await asyncio.wait_for(caller.read(), RESPONSE_S)) >= 7
            assert (await asyncio.wait_for(caller.send(BODY), RESPONSE_S)).code == 2
            assert (await caller.send(b"there is room for this")).code == 0
        machine.heal()
        begin = time.monotonic()
        while (await asyncio.wait_for(caller.send(BODY), RESPONSE_S)).code:
            assert time.monotonic() - begin < RESPONSE_S
            await asyncio.sleep(0.02)
        assert [len(one.body) for one in await caller.read()].count(len(BODY)) == 8
        await caller.close()

    played(run, broker)


STOP = "syncTimeoutMs=1000\n"
PATIENCE_S = 2.0
"""A stop waits twice as long for a sync."""


@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_broker_whose_disk_hangs_ends_all_the_same(
    make_process: Any, connect: Any, machine: Machine, tmp_path: Path, mode: str
) -> None:
    """SIGTERM waited for the disk, for ever: an operator had to kill it."""
    broker = make_process(f"{STOP}flushDiskType={mode}\n", environment=machine.environment())
    abort = tmp_path / "store" / "abort"

    async def run() -> None:
        caller = connect(broker.start())
        bodies = [b"body %d" % number for number in range(50)]
        assert {(await caller.send(body)).code for body in bodies} == {0}
        machine.hang()
        began = time.monotonic()
        await caller.send(b"no answer relies on this")
        code = await asyncio.to_thread(broker.terminate, 20)
        took_s = time.monotonic() - began
        assert (code, abort.exists()) == (1, True)
        assert took_s < 5 * PATIENCE_S
        await caller.close()
        machine.heal()
        caller = connect(broker.start())
        found = [one.body for one in await caller.read()]
        assert found[: len(bodies)] == bodies
        await caller.close()
        broker.stop()
        assert not abort.exists()

    played(run, broker)


def test_a_broker_that_recovers_on_a_disk_that_hangs_ends_all_the_same(
    make_process: Any, connect: Any, machine: Machine
) -> None:
    """Regression: a start waited for the recovery, and that for the hanging disk, without end."""
    broker = make_process(STOP, environment=machine.environment())

    async def run() -> None:
        caller = connect(broker.start())
        assert (await caller.send(b"before")).code == 0
        await caller.close()
        broker.kill()
        machine.hang("commitlog")  # recovery syncs the data that it reads first
        broker.launch()
        begin = time.monotonic()
        while not machine.hangs:
            assert time.monotonic() - begin < 20, "it recovers nothing"
            await asyncio.sleep(0.02)
        began = time.monotonic()
        assert await asyncio.to_thread(broker.terminate, 30) == 1
        assert time.monotonic() - began < 5 * PATIENCE_S
        machine.heal()
        caller = connect(broker.start())
        assert [one.body for one in await caller.read()] == [b"before"]
        await caller.close()
        broker.stop()

    played(run, broker)


def test_a_broker_whose_disk_is_slow_ends_in_order(
    make_process: Any, connect: Any, machine: Machine, tmp_path: Path
) -> None:
    """However long that takes in all: syncs return."""
    broker = make_process(STOP, environment=machine.environment())
    abort = tmp_path / "store" / "abort"

    async def run() -> None:
        caller = connect(broker.start())
        for number in range(8):
            assert (await caller.send(b"body", queue_id=number % 4, topic=f"T{number}")).code == 0
        await caller.close()
        machine.slow(200)
        began = time.monotonic()
        assert await asyncio.to_thread(broker.terminate, 60) == 0
        assert time.monotonic() - began > 1.5 * PATIENCE_S
        assert not abort.exists()

    played(run, broker)
