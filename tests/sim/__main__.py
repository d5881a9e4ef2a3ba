"""`make sim SUITE=store SEEDS=20000 FIRST=0` or `SEED=n`: play seeds, a process for each core.

Suites: store, config, ha, raft, group, transactions, payments, reminders, timers, assignment, pops,
acting, elected, escapes, halves, popped, poppers, ordered.

A failing seed prints the command that replays it. Seeds share nothing: a run depends on its seed
alone, in whichever process and order it is played.
"""

import argparse
import gc
import hashlib
import heapq
import logging
import multiprocessing
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from tests.failures import logged
from tests.sim import config_suite, store_suite
from tests.sim.acting import elected as elected_suite
from tests.sim.acting import suite as acting_suite
from tests.sim.assignment import suite as assignment_suite
from tests.sim.escapes import halves as half_suite
from tests.sim.escapes import popped as popped_suite
from tests.sim.escapes import suite as escape_suite
from tests.sim.group import suite as group_suite
from tests.sim.ha import suite as ha_suite
from tests.sim.payments import suite as payment_suite
from tests.sim.poppers import ordered as ordered_suite
from tests.sim.poppers import suite as popper_suite
from tests.sim.pops import suite as pop_suite
from tests.sim.raft import suite as raft_suite
from tests.sim.reminders import suite as reminder_suite
from tests.sim.timers import suite as timer_suite
from tests.sim.transactions import suite as transaction_suite


class Played(Protocol):
    """Counts of a played seed."""

    acked: int
    ends: int


class Digest(Protocol):
    """A disk, or all disks of a group."""

    def digest(self) -> str:
        """Hash of the disk's content."""


class Run(Protocol):
    """A seed of any suite."""

    disk: Digest
    rng: random.Random

    def play(self) -> Played:
        """Play the whole seed; raise for a finding."""


SUITES: dict[str, Callable[[int], Run]] = {
    "store": store_suite.Run,
    "config": config_suite.Run,
    "ha": ha_suite.Run,
    "raft": raft_suite.Run,
    "group": group_suite.Run,
    "timers": timer_suite.Run,
    "transactions": transaction_suite.Run,
    "assignment": assignment_suite.Run,
    "payments": payment_suite.Payments,
    "reminders": reminder_suite.Reminders,
    "pops": pop_suite.Run,
    "acting": acting_suite.Run,
    "elected": elected_suite.ActingGroup,
    "escapes": escape_suite.Run,
    "halves": half_suite.Run,
    "popped": popped_suite.Run,
    "poppers": popper_suite.Poppers,
    "ordered": ordered_suite.OrderedPoppers,
}
# At most a few seconds' work: the cores end together, and none waits for the next piece.
CHUNK = 20
# Maximum number of failing seeds that are kept and shown; a bug that fails every seed need not fail
# a million.
FAILURES_SHOWN = 3
FAILURES_MAX = 1000
# A seed leaves some hundred objects in cycles: collecting after each of them took a twentieth of
# the time, after some hundreds some MiB.
COLLECT_AFTER = 100_000


@dataclass(slots=True)
class Tally:
    """Counts of played seeds, and the first failing seeds with their tracebacks."""

    seeds: int = 0
    acked: int = 0
    ends: int = 0
    failed: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Add the counts of another process."""
        self.seeds += other.seeds
        self.acked += other.acked
        self.ends += other.ends
        self.failed += other.failed
        self.failures = heapq.nsmallest(FAILURES_SHOWN, self.failures + other.failures)


def play_chunk(task: tuple[str, int, int]) -> Tally:
    """Play seeds [first, last) of a suite."""
    suite, first, last = task
    run = SUITES[suite]
    tally = Tally()
    for seed in range(first, last):
        tally.seeds += 1
        try:
            played = run(seed).play()
            logged.check()
        except Exception:
            logged.FAILURES.take()
            tally.failed += 1
            if len(tally.failures) < FAILURES_SHOWN:
                tally.failures.append((seed, traceback.format_exc()))
        else:
            tally.acked += played.acked
            tally.ends += played.ends
    return tally


def prepare() -> None:
    """Prepare a worker process.

    Log lines are off, but exceptions that nodes catch are counted. The time zone is the same
    everywhere (it names index files), and objects from before the first seed are never
    garbage-collected. SIGTERM ends the process, also if its parent ignores that signal: a pool
    waits for its processes without a limit.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    logging.disable(logging.WARNING)
    logging.getLogger("turbopump").propagate = False
    logged.watch()
    os.environ["TZ"] = "UTC"
    time.tzset()
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)


def play_all(suite: str, first: int, end: int, jobs: int, show: Callable[[Tally], None]) -> Tally:
    """Play seeds [first, end) in `jobs` processes; `show` is called after each chunk."""
    tasks = ((suite, at, min(at + CHUNK, end)) for at in range(first, end, CHUNK))
    total = Tally()
    with multiprocessing.get_context("fork").Pool(jobs, prepare) as pool:
        for tally in pool.imap_unordered(play_chunk, tasks):
            total.add(tally)
            show(total)
            if total.failed >= FAILURES_MAX:
                break
    return total


def trace(suite: str, seed: int) -> str:
    """Play a seed in this process; return its counts and a hash of its random state and
    its disk.
    """
    run = SUITES[suite](seed)
    played = run.play()
    logged.check()
    drawn = hashlib.sha256(repr(run.rng.getstate()).encode()).hexdigest()[:16]
    return f"{played.acked} acknowledged, {played.ends} ends, {drawn} {run.disk.digest()}"


def main() -> int:
    """Exit code 1 if a seed fails."""
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--suite", choices=SUITES, default="store")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="play this one alone, in this process")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    if options.seed is not None:
        prepare()
        print(f"{options.suite}: seed {options.seed} holds: {trace(options.suite, options.seed)}")
        return 0
    started = time.monotonic()
    is_terminal = sys.stderr.isatty()

    def summary(tally: Tally) -> str:
        seconds = max(time.monotonic() - started, 0.001)
        return f"{tally.seeds} seeds in {seconds:.0f} s ({tally.seeds / seconds:.0f}/s)"

    def show(tally: Tally) -> None:
        if is_terminal:
            text = f"\r{options.suite}: {summary(tally)} of {options.seeds}, {tally.failed} failed "
            print(text, end="", file=sys.stderr, flush=True)

    end = options.first + options.seeds
    total = play_all(options.suite, options.first, end, options.jobs, show)
    if is_terminal:
        print(file=sys.stderr)
    for seed, text in total.failures:
        print(text)
        print(f"replay: make sim SUITE={options.suite} SEED={seed}\n")
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime * 1000 / max(1, total.seeds)
    print(
        f"{options.suite}: {summary(total)}, {used:.1f} ms of CPU each, from seed {options.first} "
        f"on: {total.acked} messages acknowledged, {total.ends} power cuts and kills, "
        f"{total.failed} seeds failed"
    )
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
