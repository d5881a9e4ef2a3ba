"""Seven nodes are stopped and started again, one after the other, under clients that send on.

Prints the longest time without an acknowledgement. A master that is asked to stop hands its lead
over first, so no client waits for a failover.
"""

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from interop.support.controlled import METADATA_INFO, Controlled, Member
from interop.support.groups import Turbopump, ask
from interop.support.senders import master_by_route
from tests.integration.ha.load import read_all

from turbopump.net.client.errors import ClientError
from turbopump.net.client.messages import Message, SendStatus
from turbopump.net.client.options import ClientOptions, ProducerOptions
from turbopump.net.client.producer import Producer
from turbopump.net.transport.errors import RemotingError

pytestmark = pytest.mark.integration

TOPIC = "Chaos"
"""Topic that load.py reads."""
SENDERS = 4
PATIENT = ProducerOptions(timeout_ms=30_000, retries=100)
"""A client that tries again, as often as it takes."""
GAP_S = 0.5
BUSY_S = 2.0
"""Margin of a gap on a busy machine."""
AGAIN_S = 0.002


@dataclass
class Sending:
    """Clients of their own thread and loop, one message after the other each."""

    namesrv: str
    acked_at: list[float] = field(default_factory=list)
    places: dict[tuple[int, int], bytes] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        self.progress(200)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        assert self._thread is not None
        self._thread.join()

    def progress(self, count: int = 100) -> None:
        """Wait until `count` more messages are acknowledged."""
        wanted, ends = len(self.acked_at) + count, time.monotonic() + 60
        while len(self.acked_at) < wanted:
            assert time.monotonic() < ends, self.failed
            time.sleep(0.005)

    def gap_s(self, since: float) -> float:
        """The longest time without an acknowledgement."""
        times = [since, *sorted(at for at in list(self.acked_at) if at > since)]
        return max(after - before for before, after in pairwise(times))

    async def _run(self) -> None:
        async with Producer(
            "Rolling", [self.namesrv], options=PATIENT, client_options=ClientOptions()
        ) as producer:
            await asyncio.gather(*(self._send(producer, number) for number in range(SENDERS)))

    async def _send(self, producer: Producer, number: int) -> None:
        count = 0
        while not self._over.is_set():
            body = b"%d-%d" % (number, count)
            count += 1
            try:
                result = await producer.send(Message(TOPIC, body))
            except (ClientError, RemotingError) as error:
                self.failed.append(f"{type(error).__name__}: {error}")
                continue
            if result.status is not SendStatus.SEND_OK:
                self.failed.append(result.status.value)
                continue
            self.acked_at.append(time.monotonic())
            self.places[result.queue.queue_id, result.queue_offset] = body
            await asyncio.sleep(AGAIN_S)


def epoch_of(group: Controlled) -> int:
    """Epoch of the master, as soon as a controller has one."""
    found: list[int] = []

    def is_named() -> bool:
        sync = group.sync()
        if sync is not None:
            found.append(sync.master_epoch)
        return bool(found)

    group.until("a controller names the master", is_named)
    return found[-1]


def restart(group: Controlled, member: Member) -> None:
    """Restart a member as an operator does; return when it serves, and the group is whole again."""
    member.stop()
    member.start()
    if member in group.controllers:
        group.until(f"{member.name} knows the leader", lambda: knows_leader(member))
    if member is group.namesrv:
        group.until("routes", lambda: master_by_route(member.address, TOPIC))
    group.wait_whole()


def knows_leader(controller: Member) -> bool:
    """Whether it takes part in the quorum again."""
    response = ask(controller.port, METADATA_INFO, {})
    return bool(response.fields.get("controllerLeaderAddress"))


def restarted(group: Controlled, sending: Sending, members: Sequence[Member]) -> None:
    """Restart members one after the other, and check the gap of each."""
    began = time.monotonic()
    for member in members:
        before, was_master = epoch_of(group), member is group.master
        restart(group, member)
        sending.progress()
        gap_s, began = sending.gap_s(began), time.monotonic()
        what = "the master" if was_master else member.name
        print(f"{what} is restarted: no acknowledgement for {gap_s:.2f} s")
        assert gap_s < GAP_S + BUSY_S, what
        assert epoch_of(group) - before == was_master, f"elections: {what}"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_seven_nodes_are_restarted_one_by_one(tmp_path: Path) -> None:
    ours = Turbopump()
    group = Controlled(tmp_path, ours, [ours] * 3, [ours] * 3, {"slaveReadEnable": "true"})
    try:
        group.start()
        with Sending(group.namesrv_address) as sending:
            began = time.monotonic()
            restarted(group, sending, [group.namesrv, *group.controllers, *group.brokers])
            print(
                f"seven restarts: no acknowledgement for {sending.gap_s(began):.2f} s,"
                f" {len(sending.places)} acknowledged"
            )
        assert sending.failed == []
        handed = [one for one in group.brokers if "the lead is handed over" in logged(one)]
        assert handed, "no master let another broker lead before it stopped"
        check(group, sending)
    finally:
        group.abandon()


def logged(member: Member) -> str:
    """All log lines of a member's lives."""
    return "".join(one.read_text() for one in sorted(member.folder.glob("*.err")))


def check(group: Controlled, sending: Sending) -> None:
    """Check that each acknowledged message is at the offset of its response."""
    master = group.master
    assert master is not None
    there: dict[int, list[bytes]] = {}
    for queue, offset in sending.places:
        if queue not in there:
            there[queue] = asyncio.run(read_all(master.address, queue, time.monotonic() + 60))
        assert there[queue][offset] == sending.places[queue, offset]
