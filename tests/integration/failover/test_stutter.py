"""A leading controller that stands still for most of each second misses a silent master in time."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from interop.support.controlled import Controlled, Member
from interop.support.groups import Turbopump

pytestmark = pytest.mark.integration
STOPPED_S, RUNS_S = 1.1, 0.15
REPLACED_S = 40.0
"""Time limit for another master.

With every pause credited to all brokers it took 80 s. The heartbeat's timeout is 10 s, and an idle
machine needs 11 s; a busy one may take longer.
"""
LOOK_S = 0.05


def send(member: Member, number: signal.Signals) -> None:
    """A signal to its process."""
    assert member.process is not None
    member.process.child.send_signal(number)


@contextmanager
def stuttering(member: Member) -> Iterator[None]:
    """Suspend a member's process for 1.1 s of each 1.25 s."""
    over = threading.Event()

    def stutter() -> None:
        while not over.is_set():
            send(member, signal.SIGSTOP)
            over.wait(STOPPED_S)
            send(member, signal.SIGCONT)
            over.wait(RUNS_S)

    thread = threading.Thread(target=stutter)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_leader_that_stutters_misses_a_silent_master(tmp_path: Path) -> None:
    ours = Turbopump()
    group = Controlled(tmp_path, ours, [ours] * 3, [ours] * 3)
    try:
        group.start()
        leader, before = group.leader(), group.sync()
        master = group.master
        assert leader is not None and before is not None and master is not None
        with stuttering(leader):
            time.sleep(2 * STOPPED_S)
            send(master, signal.SIGSTOP)
            stopped = time.monotonic()
            took_s = replaced_after(group, before.master_epoch, stopped)
        send(master, signal.SIGCONT)
        print(f"replaced after {took_s:.1f} s")
        assert took_s < REPLACED_S
        group.wait_whole()
    finally:
        group.abandon()


def replaced_after(group: Controlled, epoch: int, since_s: float) -> float:
    """Time until a later epoch has a master."""
    while True:
        took_s = time.monotonic() - since_s
        found = group.sync()
        if (found is not None and found.master and found.master_epoch > epoch) or took_s > 60:
            return took_s
        time.sleep(LOOK_S)
