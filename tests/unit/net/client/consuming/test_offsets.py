"""Offsets that a broadcasting consumer stores: in RocketMQ's file, replaced atomically."""

import asyncio
from pathlib import Path

import pytest

from turbopump.engine import fastjson
from turbopump.engine.types import QueueOffset
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
