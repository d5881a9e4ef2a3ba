"""Failover with controllers: Apache RocketMQ's and ours in turn, kill -9 of the master under load.

    python -m bench.failover [--kills 20] [--pauses 5] [--leaders 10] [--only NAME] [--write]

Three controllers, three brokers and a name server are processes on one machine. A client sends all
the time, one message at a time on each connection, and requests the route after every error. In a
round the master is killed. Measured is the time from the kill to the first acknowledged send that
began after it. Then the broker is started again, and the time, including the start, is measured
until all are in the SyncStateSet. The same follows in a new group with a master that is suspended
(SIGSTOP) and continues. At the end every acknowledged message is searched at the last master, and
all stores are audited (spark/audit). Last come three controllers alone, of which the leader is
killed. `--write` puts the table into docs/results/tables.md; other rows
come from the last run (bench/.out/failover.json).
"""

import argparse
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.versus.__main__ import write
from interop.support import toolchain
from interop.support.audit import audited
from interop.support.controlled import METADATA_INFO, Controlled, Member, NotReadyError
from interop.support.groups import Kind, RocketMQ, Turbopump, ask
from interop.support.kills import (
    SETTLED_S,
    UNDER_LOAD_S,
    KillTimes,
    Limits,
    judge,
    kill_masters,
    make_topic,
    spread,
)
from interop.support.senders import BODY_SIZE, Found, Ledger, Senders, body_of

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "bench" / ".out" / "failover.json"
FOLDER = ROOT / "bench" / ".out" / f"failover-{os.getpid()}"
BEGIN, END = "<!-- failover: begin -->", "<!-- failover: end -->"
TOPIC = "Failover"
KILLED, STOPPED = "kill -9 of the master", "the master stands still"
LEADER = "kill -9 of the leading controller"
FAULTS = (KILLED, STOPPED, LEADER)
LIMITS = Limits(first_s=60.0, whole_s=180.0)
"""RocketMQ was seen to take 90 s until all are in sync."""


@dataclass(frozen=True)
class Case:
    """A system to measure, with the settings of its brokers."""

    name: str
    title: str
    kind: Kind
    settings: dict[str, str]


SAFEST = {
    "allAckInSyncStateSet": "true",
    "minInSyncReplicas": "1",
    "inSyncReplicas": "2",
    "totalReplicas": "3",
}
"""Settings with which RocketMQ 5.5.0 loses least."""
CASES = (
    Case("rocketmq", "RocketMQ, defaults", RocketMQ(), {}),
    Case("rocketmq-safest", "RocketMQ, allAckInSyncStateSet", RocketMQ(), SAFEST),
    Case("turbopump", "Turbopump, defaults", Turbopump(), {}),
)


@dataclass
class Result:
    """The measurements of a fault at a system: a row of the table."""

    title: str
    fault: str
    seen: KillTimes
    ended: str = ""
    """Reason of an early end."""
    broken: bool = False
    """Whether the audit of all stores found a broken promise."""

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> "Result":
        """Make a result from the JSON values of `to_json`."""
        seen = KillTimes(row["kills"], {TOPIC: row["first_s"]}, row["whole_s"])
        if row["found"] is not None:
            seen.found[TOPIC] = Found(**row["found"])
        return cls(row["title"], row["fault"], seen, row["ended"])

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values, for `from_json` in a later run."""
        found = self.seen.found.get(TOPIC)
        return {
            "title": self.title,
            "fault": self.fault,
            "kills": self.seen.kills,
            "first_s": self.seen.first_s.get(TOPIC, []),
            "whole_s": self.seen.whole_s,
            "found": found and vars(found),
            "ended": self.ended,
        }


def merge_saved(results: list[Result]) -> list[Result]:
    """Return these results and the results of earlier runs for other cases, in the order of the
    cases, and save all of them."""
    rows = json.loads(KEPT.read_text()) if KEPT.exists() else []
    known = {(row["title"], row["fault"]): row for row in rows}
    known |= {(one.title, one.fault): one.to_json() for one in results}
    order = [(case.title, fault) for fault in FAULTS for case in CASES]
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    KEPT.write_text(json.dumps(list(known.values()), indent=1))
    return [Result.from_json(known[key]) for key in order if key in known]


def measure_fault(
    case: Case, fault: str, times: int, senders: int, say: Callable[[str], None]
) -> Result:
    """Measure `times` repetitions of a fault ("kill" or "pause") in a new group under load, then
    search all acknowledged messages."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    group = Controlled(FOLDER, case.kind, [case.kind] * 3, [case.kind] * 3, case.settings)
    result = Result(case.title, fault, KillTimes())
    ledger = Ledger(TOPIC)
    load = Senders(group.namesrv_address, ledger, senders)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, FOLDER, ignore_errors=True)
        stack.callback(group.abandon)
        stack.callback(load.stop)
        group.start()
        make_topic(group, TOPIC)
        say(f"{case.name}: ready")
        load.start()
        time.sleep(SETTLED_S)
        try:
            kill_masters(group, [ledger], times, LIMITS, result.seen, say, pause=fault == STOPPED)
        except NotReadyError as error:
            result.ended = str(error).partition(";")[0]
            say(f"{case.name}: {error}")
        load.stop()
        judge(group, [ledger], result.seen, is_whole=not result.ended)
        say(f"{case.name}: {result.seen.found[TOPIC]}, refusals {ledger.errors}")
        if not result.ended:
            result.broken, report = audited(group, [ledger], FOLDER, body_of)
            for line in report:
                say(f"{case.name}: {line}")
    return result


def measure_leaders(case: Case, times: int, say: Callable[[str], None]) -> Result:
    """Measure three controllers alone.

    Times are from the kill of the leader to the next leader, and from the start of the killed one
    until it knows the leader.
    """
    shutil.rmtree(FOLDER, ignore_errors=True)
    group = Controlled(FOLDER, case.kind, [case.kind] * 3, [])
    result = Result(case.title, LEADER, KillTimes())
    row = result.seen.first_s.setdefault(TOPIC, [])
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, FOLDER, ignore_errors=True)
        stack.callback(group.abandon)
        group.start_rulers()
        for _ in range(times):
            time.sleep(UNDER_LOAD_S)
            dead = group.leader()
            assert dead is not None
            begun = time.monotonic()
            dead.kill()
            group.until("another leads", partial(_leads_another, group, dead))
            row.append(time.monotonic() - begun)
            result.seen.kills, begun = result.seen.kills + 1, time.monotonic()
            dead.start()
            group.until("it knows the leader", partial(_knows_leader, dead))
            result.seen.whole_s.append(time.monotonic() - begun)
            say(f"{case.name}: {row[-1]:.2f} s to the next leading controller")
    return result


def _leads_another(group: Controlled, dead: Member) -> bool:
    """Whether a controller other than `dead` leads."""
    return group.leader() not in (None, dead)


def _knows_leader(one: Member) -> bool:
    """Whether a controller reports the leader's address."""
    return bool(ask(one.port, METADATA_INFO, {}).fields.get("controllerLeaderAddress"))


def format_tables(results: list[Result], senders: int) -> str:
    """Return the results as Markdown tables, for the page docs/results/tables.md."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    lines = [
        f"`python -m bench.failover` on {os.cpu_count()} cores ({model}), all processes on this"
        f" machine, JVMs of 512 MB",
        f"(controllers 128 MB), {senders} connections with one send of {BODY_SIZE} bytes each at a"
        " time, which ask for the route at every error.",
        "Seconds: p50 / p99 / max. The return of a killed process includes its start. Of"
        " controllers alone: to the next",
        "that leads, and until the restarted controller knows it.",
        "",
        "| | fault | times | fault to first success | return to all in sync | acknowledged"
        " | of these lost | at another place | queue offsets given twice |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        seen, found = result.seen, result.seen.found.get(TOPIC)
        counts = ["-"] * 4
        if found is not None:
            counts = [f"{n:,}" for n in (found.acked, found.lost, found.moved, found.twice)]
        cells = [
            result.title + (f" (ended early: {result.ended})" if result.ended else ""),
            result.fault,
            str(seen.kills),
            spread(seen.first_s.get(TOPIC, [])),
            spread(seen.whole_s),
            *counts,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    """Measure, print, write; return 1 if ours lost a message or did not recover."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.failover",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--senders", type=int, default=4)
    parser.add_argument("--pauses", type=int, default=5)
    parser.add_argument("--leaders", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=[case.name for case in CASES], default=[])
    parser.add_argument("--write", action="store_true", help="into docs/results/tables.md")
    given = parser.parse_args()
    missing = toolchain.missing_tools()
    if missing:
        sys.exit("the comparison cannot run: " + "; ".join(missing))
    toolchain.build_java()
    begin = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - begin:6.0f} s  {line}", flush=True)

    cases = [case for case in CASES if not given.only or case.name in given.only]
    results = [
        measure_fault(case, fault, times, given.senders, say)
        for fault, times in ((KILLED, given.kills), (STOPPED, given.pauses))
        for case in cases
        if times
    ]
    if given.leaders:
        results += [
            measure_leaders(case, given.leaders, say) for case in cases if not case.settings
        ]
    text = format_tables(merge_saved(results), given.senders)
    print(f"\n{text}")
    if given.write:
        write(text, BEGIN, END)
    ours = [one for one in results if one.title.startswith("Turbopump")]
    is_good = not any(
        one.ended or one.broken or found.lost or found.twice
        for one in ours
        for found in one.seen.found.values()
    )
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
