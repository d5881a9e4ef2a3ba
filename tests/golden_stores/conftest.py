"""Stores that a real RocketMQ 5.5.0 wrote, unpacked from tests/golden/stores, and their truth."""

import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from turbopump.broker.config import config as broker_config
from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.store import Store
from turbopump.engine.types import NewMessage

GOLDEN = Path(__file__).parents[1] / "golden" / "stores"
DELAY_SECONDS = (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
)  # fmt: skip
# After everything in the stores, so that new records follow the old ones in time.
NOW_MS = 1_800_000_000_000


def read_lines(name: str) -> list[dict[str, Any]]:
    """The objects of a compressed file of JSON lines."""
    data = (GOLDEN / f"{name}.jsonl.zst").read_bytes()
    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)) as reader:
        return [json.loads(line) for line in reader.read().splitlines()]


@dataclass
class Golden:
    """A store, unpacked into a folder of its own."""

    name: str
    config: StoreConfig

    @property
    def root(self) -> Path:
        return Path(self.config.root)

    def truth(self, kind: str) -> list[dict[str, Any]]:
        """The files as they lie."""
        return [line for line in read_lines(f"{self.name}.truth") if line["t"] == kind]

    def recovered(self, kind: str) -> list[dict[str, Any]]:
        """Objects of a kind that Java has after it opened a copy."""
        return [line for line in read_lines(f"{self.name}.recovered") if line["t"] == kind]

    def data(self, name: str) -> bytes:
        """Content of another file of the golden folder."""
        return (GOLDEN / name).read_bytes()

    def batch_topics(self) -> set[str]:
        """Topics with queue.type=BatchCQ in its topics.json."""
        value = ConfigFiles(RealFiles(), str(self.root / "config")).load("topics.json")
        return {
            topic
            for topic, config in (value or {})["topicConfigTable"].items()
            if config.get("attributes", {}).get("queue.type") == "BatchCQ"
        }

    def open(self, batch_topics: set[str] | None = None) -> Store:
        """Open it as our broker does."""
        topics = self.batch_topics() if batch_topics is None else batch_topics
        return Store.open(
            RealFiles(),
            self.config,
            InlineDisk(),
            NOW_MS,
            delay_levels_ms=[seconds * 1000 for seconds in DELAY_SECONDS],
            is_batch_topic=lambda topic: topic in topics,
        )

    def emptied(self, folder: Path, *kept: str) -> "Golden":
        """The same store in another folder, with only the named files in it."""
        folder.mkdir()
        for name in kept:
            os.rename(self.root / name, folder / name)
        return Golden(self.name, replace(self.config, root=str(folder)))


def load_config(name: str, root: Path) -> StoreConfig:
    """The configuration that the store was written with."""
    lines = (GOLDEN / f"{name}.conf").read_text()
    return replace(broker_config.load_config(lines)[0].store, root=str(root))


@pytest.fixture
def unpack(tmp_path: Path) -> Iterator[Callable[[str], Golden]]:
    """Unpack a store by name."""

    def run(name: str) -> Golden:
        compressed = (GOLDEN / "stores.tar.zst").read_bytes()
        window = 1 << 27
        reader = zstandard.ZstdDecompressor(max_window_size=window).stream_reader(compressed)
        with tarfile.open(fileobj=io.BytesIO(reader.read())) as archive:
            members = [item for item in archive if item.name.split("/")[0] == name]
            archive.extractall(tmp_path, members, filter="data")
        return Golden(name, load_config(name, tmp_path / name))

    yield run


@pytest.fixture
def message() -> Callable[..., NewMessage]:
    """Make a plain message."""
    return lambda topic, queue_id, body: NewMessage(topic, queue_id, body, b"KEYS\x01more\x02")
