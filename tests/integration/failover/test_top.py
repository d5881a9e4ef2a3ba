"""`turbopump top` beside a group of processes: it shows each trouble as it happens, and goes on."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from interop.support.controlled import Controlled, Member
from interop.support.groups import BROKER_NAME, TURBOPUMP, Turbopump

pytestmark = pytest.mark.integration
SOON_S = 120.0
"""Time limit of waits, on a busy machine."""
TIMED_OUT = "did not answer request 28 in time"

Sample = dict[str, Any]


class Watch:
    """A running `top --json`, and its output."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.texts: list[str] = []

    def until(self, what: str, holds: Callable[[Sample], object]) -> Sample:
        """The first sample for which that is true."""
        deadline = time.monotonic() + SOON_S
        assert self._process.stdout is not None
        while True:
            line = self._process.stdout.readline()
            assert line, "it ended"
            sample: Sample = json.loads(line)
            self.texts += [change["text"] for change in sample["changes"]]
            if holds(sample):
                return sample
            assert time.monotonic() < deadline, (what, self.texts, sample)

    def printed(self, *texts: str) -> Sample:
        """The sample by which all that was printed."""
        found = self.until(
            str(texts),
            lambda _: all(any(text in printed for printed in self.texts) for text in texts),
        )
        self.texts.clear()
        return found


@contextmanager
def watching(group: Controlled) -> Iterator[Watch]:
    process = subprocess.Popen(
        [TURBOPUMP, "top", "-n", group.namesrv_address, "--interval", "0.05", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Watch(process)
    finally:
        process.kill()
        process.communicate()


def is_whole(sample: Sample) -> bool:
    """Whether three brokers are in sync without a lag, and all nodes answer."""
    groups = sample["groups"]
    if sample["errors"] or not groups or groups[0]["sync_state_set"] != [1, 2, 3]:
        return False
    lines = [*sample["controllers"], *groups[0]["brokers"]]
    return not any(each["error"] for each in lines)


def seen(sample: Sample, member: Member) -> dict[str, Any]:
    """A broker in a sample."""
    brokers = sample["groups"][0]["brokers"]
    found = next(each for each in brokers if each["address"] == member.address)
    assert isinstance(found, dict)
    return found


def troubles(group: Controlled, watch: Watch) -> None:
    before = watch.until("whole", is_whole)
    master, leader = group.master, group.leader()
    assert master is not None and leader is not None
    old, epoch = seen(before, master), before["groups"][0]["epoch"]
    assert (old["role"], old["alive"], old["lag"]) == ("master", True, None)

    master.kill()
    number = old["broker_id"]
    sample = watch.printed(
        f"in epoch {epoch + 1} (was {number})",
        "now master (was slave)",
        f"{BROKER_NAME} {number}: {master.address} cannot be reached",
    )
    assert seen(sample, master)["role"] == ""
    master.start()
    watch.printed(f"{BROKER_NAME} {number}: answers again")
    watch.until("whole", is_whole)

    leader.kill()
    watch.printed(f"(was {leader.name})", f"controller {leader.name}: ", " leads in term ")
    leader.start()
    watch.printed(f"controller {leader.name}: answers again")

    whole = watch.until("whole", is_whole)
    replica = next(one for one in group.brokers if seen(whole, one)["role"] == "slave")
    assert replica.process is not None
    replica.process.child.send_signal(signal.SIGSTOP)
    watch.printed(TIMED_OUT)
    replica.process.child.send_signal(signal.SIGCONT)
    watch.until("whole", is_whole)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_everything_that_happens_is_told(tmp_path: Path) -> None:
    ours = Turbopump()
    group = Controlled(tmp_path, ours, [ours] * 3, [ours] * 3)
    try:
        group.start()
        with watching(group) as watch:
            troubles(group, watch)
    finally:
        group.abandon()
