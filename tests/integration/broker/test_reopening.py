"""A broker alone whose disk fails for a while: it refuses sends with the reason, and opens its
store again.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.integration.broker.conftest import SMALL_FILES
from tests.unit.engine.conftest import TroubledFiles

from turbopump.broker.config.config import load_config
from turbopump.broker.node import BrokerNode
from turbopump.net.transport.errors import RemotingError
from turbopump.net.wire.codes import RequestCode, ResponseCode

pytestmark = pytest.mark.integration

WAIT_S = 0.05
TIMEOUT_S = 60


@contextlib.asynccontextmanager
async def serving(
    folder: Path, files: TroubledFiles, connect: Any
) -> AsyncIterator[tuple[BrokerNode, Any]]:
    """A broker on that disk, which is healthy in the end, and a client."""
    text = (
        f"storePathRootDir={folder}\nbrokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nlistenPort=0\n"
        f"flushDiskType=SYNC_FLUSH\n{SMALL_FILES}"
    )
    node = BrokerNode(load_config(text)[0], files=files)
    await node.start()
    caller = connect(node.address)
    try:
        yield node, caller
    finally:
        await caller.close()
        await node.stop()


async def runtime_info(caller: Any) -> dict[str, str]:
    response = await caller.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    table: dict[str, str] = json.loads(bytes(response.body))["table"]
    return table


async def taken(caller: Any, body: bytes) -> None:
    """Send until the message is acknowledged."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            with contextlib.suppress(RemotingError):  # it is being opened
                if (await caller.send(body)).code == 0:
                    return
            await asyncio.sleep(WAIT_S)


def test_writes_are_refused_while_the_disk_fails_and_taken_again_behind(
    tmp_path: Path, connect: Any
) -> None:
    async def run() -> None:
        files = TroubledFiles()
        async with serving(tmp_path, files, connect) as (node, caller):
            address = node.address
            assert (await caller.send(b"first")).code == 0
            assert [one.body for one in await caller.read()] == [b"first"]
            assert "storeUnfit" not in await runtime_info(caller)
            files.fail_sync = True
            failed = await caller.send(b"second")
            assert failed.code == ResponseCode.FLUSH_DISK_TIMEOUT, "its outcome is unknown"
            for _ in range(30):
                refused = await caller.send(b"third")
                assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
                await asyncio.sleep(WAIT_S)
            assert "input/output error" in refused.remark
            assert "input/output error" in (await runtime_info(caller))["storeUnfit"]
            assert [one.body for one in await caller.read()] == [b"first"], "reads go on"
            files.fail_sync = False
            await taken(caller, b"fourth")
            assert node.address == address
            assert "storeUnfit" not in await runtime_info(caller)
            bodies = [one.body for one in await caller.read()]
            assert bodies in ([b"first", b"fourth"], [b"first", b"second", b"fourth"])
        assert not (tmp_path / "abort").exists()

    uvloop.run(run())


@pytest.mark.parametrize("healed", [False, True])
def test_a_stop_meanwhile(tmp_path: Path, connect: Any, healed: bool) -> None:
    """A stop works before the store is opened again, and while it is being opened."""

    async def run() -> None:
        files = TroubledFiles()
        expected = (
            contextlib.nullcontext() if healed else pytest.raises(OSError, match="input/output")
        )
        with expected:
            async with serving(tmp_path, files, connect) as (node, caller):
                assert (await caller.send(b"first")).code == 0
                files.fail_sync = True
                assert (await caller.send(b"second")).code != 0
                if healed:
                    files.fail_sync = False
                    while node._store_reopen._task is None:
                        await asyncio.sleep(0)
        files.fail_sync = False
        async with serving(tmp_path, files, connect) as (_, caller):
            assert (await caller.send(b"third")).code == 0
            assert b"first" in [one.body for one in await caller.read()]

    uvloop.run(run())


@pytest.mark.parametrize("turns", [0, 1, 20])
def test_a_stop_that_is_cancelled_while_the_store_is_reopened(
    tmp_path: Path, connect: Any, turns: int
) -> None:
    """It closes the store, if the reopening has not closed it, before it raises."""

    async def run() -> None:
        files = TroubledFiles()
        async with serving(tmp_path, files, connect) as (node, caller):
            assert (await caller.send(b"first")).code == 0
            files.fail_sync = True
            assert (await caller.send(b"second")).code != 0
            files.fail_sync = False
            while node._store_reopen._task is None:
                await asyncio.sleep(0)
            for _ in range(turns):
                await asyncio.sleep(0)
            stopping = asyncio.create_task(node.stop())
            await asyncio.sleep(0)
            stopping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stopping
            assert not node._runs and node._store_reopen._task.done()
            async with serving(tmp_path, files, connect) as (_, other):
                assert (await other.send(b"third")).code == 0

    uvloop.run(run())


def test_a_store_that_cannot_be_opened_yet_is_tried_again(
    tmp_path: Path, connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Half(TroubledFiles):
        """The log takes syncs again, the folders do not."""

        folders_fail = False

        def sync_folder(self, path: str) -> None:
            if self.folders_fail and path.endswith("commitlog"):
                raise OSError(5, "the folder fails")
            super().sync_folder(path)

    async def run() -> None:
        files = Half()
        async with serving(tmp_path, files, connect) as (_, caller):
            assert (await caller.send(b"first")).code == 0
            files.fail_sync = files.folders_fail = True
            assert (await caller.send(b"second")).code != 0
            files.fail_sync = False
            async with asyncio.timeout(TIMEOUT_S):
                while "cannot be opened again" not in caplog.text:
                    await asyncio.sleep(WAIT_S)
                files.folders_fail = False
                await taken(caller, b"third")

    uvloop.run(run())
