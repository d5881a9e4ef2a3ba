"""Offsets that a broadcasting consumer stores: in RocketMQ's file, replaced atomically."""

import asyncio
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from turbopump.engine import fastjson
from turbopump.engine.types import QueueOffset
from turbopump.net.client.consuming.membership import ConsumerMembership
from turbopump.net.client.consuming.offsets import LocalOffsets
from turbopump.net.wire.queues import MessageQueue

FIRST = MessageQueue("T", "broker-a", 0)
SECOND = MessageQueue("T", "broker-a", 1)


def test_offsets_outlive_the_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        offsets = LocalOffsets("g", tmp_path)
        assert await offsets.read(FIRST) is None
        await offsets.commit({FIRST: QueueOffset(7)}, confirmed=False)
        await offsets.commit({SECOND: QueueOffset(9)}, confirmed=True)
        again = LocalOffsets("g", tmp_path)
        assert await again.read(FIRST) == 7 and await again.read(SECOND) == 9
        assert await LocalOffsets("other", tmp_path).read(FIRST) is None

    asyncio.run(scenario())


def test_file_is_rocketmqs(tmp_path: Path) -> None:
    async def scenario() -> None:
        await LocalOffsets("g", tmp_path).commit({FIRST: QueueOffset(7)}, confirmed=True)
        table = fastjson.loads((tmp_path / "g" / "offsets.json").read_bytes())
        assert table == {"offsetTable": {FIRST.bean_key(): 7}}
        java = '{"offsetTable":{{"topic":"T","brokerName":"broker-a","queueId":1}:12}}'
        (tmp_path / "g" / "offsets.json").write_text(java)
        assert await LocalOffsets("g", tmp_path).read(SECOND) == 12

    asyncio.run(scenario())


def test_without_a_folder_nothing_is_kept() -> None:
    async def scenario() -> None:
        offsets = LocalOffsets("g", None)
        await offsets.commit({FIRST: QueueOffset(7)}, confirmed=True)
        assert await offsets.read(FIRST) == 7

    asyncio.run(scenario())


def test_file_that_is_no_offset_table_is_said(tmp_path: Path) -> None:
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / "offsets.json").write_text('{"offsetTable":[1]}')
    with pytest.raises(ValueError, match="object"):
        LocalOffsets("g", tmp_path)


class SlowFiles:
    """Stands for the folder of a group on a disk that writes when the test lets it."""

    def __init__(self, offsets: LocalOffsets, loop: asyncio.AbstractEventLoop) -> None:
        self._files, offsets._files = offsets._files, cast(Any, self)
        self._loop = loop
        self.threads: list[int] = []
        self.written: list[list[int]] = []
        self.began = asyncio.Event()
        self.may_write = threading.Semaphore(0)
        self.error: OSError | None = None

    def save(self, name: str, value: dict[str, Any]) -> None:
        self.threads.append(threading.get_ident())
        self._loop.call_soon_threadsafe(self.began.set)
        assert self.may_write.acquire(timeout=20)
        self.written.append(sorted(value["offsetTable"].values()))
        if self.error is not None:
            raise self.error
        assert self._files is not None
        self._files.save(name, value)

    async def writes(self) -> None:
        """Wait until a write has begun."""
        await self.began.wait()
        self.began.clear()


def test_a_slow_disk_does_not_hold_the_loop_and_the_last_offsets_win(tmp_path: Path) -> None:
    async def scenario() -> None:
        offsets = LocalOffsets("g", tmp_path)
        disk = SlowFiles(offsets, asyncio.get_running_loop())
        first = asyncio.create_task(offsets.commit({FIRST: QueueOffset(1)}, confirmed=False))
        await disk.writes()
        assert await offsets.read(FIRST) == 1 and not first.done()
        later = [
            asyncio.create_task(offsets.commit({FIRST: QueueOffset(at)}, confirmed=True))
            for at in (2, 3, 4)
        ]
        same = asyncio.create_task(offsets.commit({FIRST: QueueOffset(4)}, confirmed=True))
        await asyncio.sleep(0)
        disk.may_write.release()
        await disk.writes()
        assert disk.written == [[1]] and not any(one.done() for one in (*later, same))
        disk.may_write.release()
        await asyncio.gather(first, *later, same)
        assert disk.written == [[1], [4]], "one write for all commits during the first"
        assert threading.get_ident() not in disk.threads
        assert await LocalOffsets("g", tmp_path).read(FIRST) == 4

    asyncio.run(scenario())


def test_a_close_waits_for_the_write_of_a_cancelled_commit(tmp_path: Path) -> None:
    async def scenario() -> None:
        offsets = LocalOffsets("g", tmp_path)
        disk = SlowFiles(offsets, asyncio.get_running_loop())
        commit = asyncio.create_task(offsets.commit({FIRST: QueueOffset(1)}, confirmed=False))
        await disk.writes()
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        membership = ConsumerMembership.__new__(ConsumerMembership)
        membership.offsets, membership.running = offsets, {}
        closing = asyncio.create_task(membership.commit_offsets(confirmed=True))
        await asyncio.sleep(0)
        assert not closing.done()
        disk.may_write.release()
        await closing
        assert await LocalOffsets("g", tmp_path).read(FIRST) == 1

    asyncio.run(scenario())


def test_the_end_of_all_tasks_leaves_the_last_offsets_in_the_file(tmp_path: Path) -> None:
    async def consume(offsets: LocalOffsets, disk: SlowFiles) -> None:
        try:
            await offsets.commit({FIRST: QueueOffset(1)}, confirmed=False)
        finally:
            disk.may_write.release(2)
            await offsets.commit({FIRST: QueueOffset(9)}, confirmed=True)

    async def scenario() -> asyncio.Task[None]:
        offsets = LocalOffsets("g", tmp_path)
        disk = SlowFiles(offsets, asyncio.get_running_loop())
        consumer = asyncio.create_task(consume(offsets, disk))
        await disk.writes()
        return consumer

    consumer = asyncio.run(scenario())
    assert consumer.cancelled()
    assert asyncio.run(LocalOffsets("g", tmp_path).read(FIRST)) == 9


def test_a_failed_write_is_logged_and_the_next_one_has_all_offsets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        offsets = LocalOffsets("g", tmp_path)
        disk = SlowFiles(offsets, asyncio.get_running_loop())
        disk.error = OSError("no space left")
        disk.may_write.release(2)
        await offsets.commit({FIRST: QueueOffset(7)}, confirmed=True)
        assert "offsets were not saved: no space left" in caplog.text
        disk.error = None
        await offsets.commit({SECOND: QueueOffset(9)}, confirmed=True)
        assert await LocalOffsets("g", tmp_path).read(FIRST) == 7

    asyncio.run(scenario())
