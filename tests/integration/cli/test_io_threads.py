"""Commands whose brokers have I/O threads: by the key, and by the switch of the tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import io_threads
from tests.io_threads.sitecustomize import VARIABLE

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(("key", "expected"), [("", "3"), ("ioThreads=2\n", "2")])
def test_the_switch_gives_threads_to_brokers_without_the_key(
    key: str,
    expected: str,
    launch: Callable[..., Any],
    command: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """3 threads are asked for: half of the processors that the broker finds then."""
    monkeypatch.setenv(VARIABLE, "3")
    monkeypatch.setenv("PYTHONPATH", io_threads.FOLDER)
    config = tmp_path / "broker.conf"
    config.write_text(
        f"brokerIP1=127.0.0.1\nlistenPort=0\nstorePathRootDir={tmp_path}/store\n"
        f"mappedFileSizeCommitLog=8388608\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n{key}"
    )
    broker = launch("broker", "-c", str(config), "--json")
    shown = command("admin", "brokerStatus", "-b", broker.ready["address"], "--json").json[0]
    assert shown["table"]["ioThreads"] == expected
    assert broker.stop().code == 0
