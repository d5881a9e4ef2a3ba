"""kill -9 of a real process in the middle of appends under SYNC_FLUSH."""

import importlib.util
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.store import Store

APPENDER = Path(__file__).with_name("appender.py")
LIVES = 3
NOW_MS = 1_900_000_000_000


def appender() -> Any:
    spec = importlib.util.spec_from_file_location("appender", APPENDER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_and_kill(folder: Path, seed: str, lines: int) -> list[list[str]]:
    """Let the appender acknowledge `lines` messages, kill it, and return all acknowledged ones."""
    command = [sys.executable, str(APPENDER), str(folder), seed]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        seen = [process.stdout.readline() for _ in range(lines)]
        process.send_signal(signal.SIGKILL)
        seen += process.stdout.readlines()
    assert process.returncode == -signal.SIGKILL
    return [line.split() for line in seen if line.endswith("\n")]


def derived(root: Path) -> dict[str, bytes]:
    found = {
        str(path.relative_to(root)): path.read_bytes()
        for path in (root / "consumequeue").rglob("*")
        if path.is_file()
    }
    for number, path in enumerate(sorted((root / "index").iterdir())):
        found[f"index/{number}"] = path.read_bytes()
    return found


@pytest.mark.parametrize("seed", range(4))
def test_everything_acknowledged_survives(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    root = tmp_path / "store"
    config = appender().config(str(root))
    acknowledged: list[list[str]] = []
    for life in range(LIVES):
        acknowledged += run_and_kill(root, f"{seed}/{life}", rng.randrange(1, 1500))
        assert (root / "abort").exists()
    store = Store.open(RealFiles(), config, InlineDisk(), NOW_MS)
    for topic, queue_id, queue_offset, log_offset, number in acknowledged:
        (unit,) = store.units(topic, int(queue_id), int(queue_offset), 1)
        assert unit.log_offset == int(log_offset)
        record = store.record(unit.log_offset)
        assert record is not None
        assert record.queue_offset == int(queue_offset)
        assert record.body.split(b" ")[0] == number.encode()
    for topic in store.topics():
        for queue_id in store.queue_ids(topic):
            count = store.max_queue_offset(topic, queue_id)
            units = store.units(topic, queue_id, 0, count)
            assert len(units) == count
            for number, unit in enumerate(units):
                record = store.record(unit.log_offset)
                assert record is not None, f"{topic}/{queue_id} {number}"
                assert (record.queue_offset, record.topic) == (number, topic.encode())
    store.close(NOW_MS)
    check_equals_rebuild(root, tmp_path / "rebuilt", config)


def check_equals_rebuild(root: Path, other: Path, config: Any) -> None:
    """Check that queues and index equal those built from the log alone."""
    other.mkdir()
    shutil.copytree(root / "commitlog", other / "commitlog")
    rebuilt = replace(config, root=str(other))
    Store.open(RealFiles(), rebuilt, InlineDisk(), NOW_MS).close(NOW_MS)
    assert derived(root) == derived(other)
