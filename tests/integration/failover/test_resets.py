"""Connections of brokers to the leading controller are reset, under load: no election.

Between all nodes and each controller stands a link (tests/integration/ha/proxy.py) that has its
address; the controller itself listens at another loopback address.
"""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from interop.support.controlled import Controlled
from interop.support.groups import Turbopump
from interop.support.senders import Ledger, Senders, read_all
from tests.integration.ha.proxy import Link

pytestmark = pytest.mark.integration

TOPIC = "Resets"
HOST, BEHIND = "127.0.0.2", "127.0.0.1"
"""Public host of the controllers' links, and host at which the controllers listen."""
SENDERS = 4
ROUNDS = 6
BACK_S = 3
ROUND_S = 0.7
"""Time limit of a round: an election takes at most 0.3 s, after a last probe of 0.5 s to a host
that does not answer.
"""


class Links:
    """A link before each controller, on a loop and a thread of their own."""

    def __init__(self, ports: list[int]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.before = {port: Link(port, HOST, port) for port in ports}

    def start(self) -> None:
        """Open the ports of all links."""
        self._thread.start()
        for link in self.before.values():
            asyncio.run_coroutine_threadsafe(link.start(), self._loop).result(10)

    def reset(self, port: int) -> int:
        """Reset all connections to one controller; return how many there had been before."""
        self._loop.call_soon_threadsafe(self.before[port].reset)
        return self.before[port].connections

    def wait_for_more(self, port: int, had: int) -> None:
        """Wait until a node has connected again: each does with its next heartbeat, once
        a second.
        """
        until = time.monotonic() + BACK_S
        while self.before[port].connections <= had:
            assert time.monotonic() < until, "no node came back"
            time.sleep(0.02)

    def stop(self) -> None:
        """Close all links and the loop."""
        for link in self.before.values():
            asyncio.run_coroutine_threadsafe(link.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def linked_group(folder: Path) -> Iterator[tuple[Controlled, Links]]:
    """A group in sync, with its links."""
    ours = Turbopump()
    group = Controlled(folder, ours, [ours] * 3, [ours] * 3)
    ports = [one.port for one in group.controllers]
    peers = ";".join(f"n{number}-{HOST}:{port}" for number, port in enumerate(ports))
    group.controller_settings |= {"controllerDLegerPeers": peers, "bindAddress": BEHIND}
    group.settings["controllerAddr"] = ";".join(f"{HOST}:{port}" for port in ports)
    links = Links(ports)
    links.start()
    try:
        group.start()
        yield group, links
    finally:
        group.abandon()
        links.stop()


@pytest.mark.long
@pytest.mark.timeout(180)
def test_reset_connections_cause_no_election(tmp_path: Path) -> None:
    with linked_group(tmp_path) as (group, links):
        ledger = Ledger(TOPIC)
        senders = Senders(group.namesrv_address, ledger, SENDERS)
        senders.start()
        try:
            before, leader = group.sync(), group.leader()
            assert before is not None and leader is not None
            for _ in range(ROUNDS):
                had = links.reset(leader.port)
                time.sleep(ROUND_S)
                links.wait_for_more(leader.port, had)
            after = group.sync()
            assert after is not None
            assert after.master_epoch == before.master_epoch, "a reset connection elected"
            assert after.in_sync == before.in_sync
        finally:
            senders.stop()
        print(f"{ROUNDS} resets, {len(ledger.numbers)} acknowledged, none elected")
        master = group.master
        assert master is not None
        found = ledger.compare(read_all(master.address, TOPIC))
        assert (found.lost, found.moved, found.twice) == (0, 0, 0)
        assert found.acked > 0
