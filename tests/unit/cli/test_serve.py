"""A node's start, and a signal that arrives before it is complete."""

import asyncio
import os
import resource
import signal

import pytest

from turbopump.cli import serve as serve_module
from turbopump.cli.errors import UserError
from turbopump.cli.serve import raise_open_files, serve_until_signal
from turbopump.engine.types import StoreError


class SlowNode:
    """A node whose start never completes."""

    def __init__(self, number: signal.Signals | None) -> None:
        self.events: list[str] = []
        self._number = number

    async def start(self) -> None:
        if self._number is None:
            raise StoreError("it does not open")
        os.kill(os.getpid(), self._number)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.events.append("cancelled")
            raise

    async def stop(self) -> None:
        self.events.append("stopped")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_start_that_takes_long(number: signal.Signals) -> None:
    node = SlowNode(number)
    asyncio.run(asyncio.wait_for(serve_until_signal(node, lambda: node.events.append("ready")), 60))
    assert node.events == ["cancelled"], "a node that did not start is not stopped"


def test_a_start_that_fails_is_one_sentence() -> None:
    with pytest.raises(UserError, match="it does not open"):
        asyncio.run(serve_until_signal(SlowNode(None), lambda: None))


class OneOfSeveral(SlowNode):
    """A running container in which the disk of a broker failed."""

    def __init__(self) -> None:
        super().__init__(None)

    async def start(self) -> None:
        self.events.append("started")

    async def stop(self) -> None:
        self.events.append("stopped")


def test_an_abandoned_disk_does_not_end_a_running_node(monkeypatch: pytest.MonkeyPatch) -> None:
    node = OneOfSeveral()

    def ready() -> None:
        node.events.append("ready")
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(serve_module, "ABANDONED", [object()])
    monkeypatch.setattr(serve_module, "exit_at_once", lambda: node.events.append("left"))
    asyncio.run(asyncio.wait_for(serve_until_signal(node, ready), 60))
    assert node.events == ["started", "ready", "stopped", "left"]


def test_the_soft_limit_of_open_files_is_raised() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        raise_open_files()
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert soft > 256 or before[1] == 256
        raise_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == soft
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
