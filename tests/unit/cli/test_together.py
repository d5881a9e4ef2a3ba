"""Several nodes of a single process."""

import asyncio

import pytest

from turbopump.cli.serve import NodeGroup


class Node:
    """A node that records its start and stop."""

    def __init__(self, name: str, journal: list[str], fails: str = "") -> None:
        self._name = name
        self._journal = journal
        self._fails = fails

    async def start(self) -> None:
        self._do("start")

    async def stop(self) -> None:
        self._do("stop")

    def _do(self, what: str) -> None:
        self._journal.append(f"{what} {self._name}")
        if what == self._fails:
            raise RuntimeError(self._name)


def test_they_stop_in_the_opposite_order() -> None:
    journal: list[str] = []
    nodes = NodeGroup(Node("a", journal), Node("b", journal))

    async def run() -> None:
        await nodes.start()
        await nodes.stop()

    asyncio.run(run())
    assert journal == ["start a", "start b", "stop b", "stop a"]


def test_one_that_cannot_start_leaves_none() -> None:
    journal: list[str] = []
    nodes = NodeGroup(Node("a", journal), Node("b", journal, "start"), Node("c", journal))
    with pytest.raises(RuntimeError, match="b"):
        asyncio.run(nodes.start())
    assert journal == ["start a", "start b", "stop a"]


def test_one_that_cannot_stop_does_not_keep_the_others() -> None:
    journal: list[str] = []
    nodes = NodeGroup(Node("a", journal), Node("b", journal, "stop"))

    async def run() -> None:
        await nodes.start()
        await nodes.stop()

    with pytest.raises(RuntimeError, match="b"):
        asyncio.run(run())
    assert journal[-2:] == ["stop b", "stop a"]
