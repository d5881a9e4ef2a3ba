"""Failover with controllers: Apache RocketMQ's and ours in turn, kill -9 of the master under load.

    python -m bench.failover [--kills 20] [--pauses 5] [--senders 4] [--only turbopump] [--write]

Three controllers, three brokers, a name server, all processes of one machine. A client that asks
the route at every error sends all the time, one message at a time on each of its connections. In a
round the master is killed; the time to the first acknowledged send that began after its death is
measured from the kill; then it is started again, and measured is how long it takes, start of the
process included, until all are in the SyncStateSet. Then the same in a new group with a master that
stands still (SIGSTOP) and goes on. At the end everything acknowledged is looked for at the master
of that time. `--write` puts the table into docs/PERFORMANCE.md.
"""

import argparse
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from interop import toolchain
from interop.controlled import Controlled, NotReadyError
from interop.groups import Kind, RocketMQ, Turbopump
from interop.kills import SETTLED_S, Limits, Told, judge, kill_masters, make_topic, spread
from interop.senders import BODY_SIZE, Ledger, Senders

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "PERFORMANCE.md"
BEGIN, END = "<!-- failover: begin -->", "<!-- failover: end -->"
TOPIC = "Failover"
LIMITS = Limits(first_s=60.0, whole_s=180.0)
"""RocketMQ was seen to take 90 s until all are in sync."""


@dataclass(frozen=True)
class Case:
    """Who is measured, with which settings of its brokers."""

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
"""What RocketMQ 5.5.0 accepts for the least loss."""
CASES = (
    Case("rocketmq", "RocketMQ, defaults", RocketMQ(), {}),
    Case("rocketmq-safest", "RocketMQ, allAckInSyncStateSet", RocketMQ(), SAFEST),
    Case("turbopump", "Turbopump, defaults", Turbopump(), {}),
)


@dataclass
class Result:
    """One case's row."""

    case: Case
    pause: bool
    told: Told
    ended: str = ""
    """Why it ended early."""


def measured(case: Case, pause: bool, times: int, senders: int,
             say: Callable[[str], None]) -> Result:  # fmt: skip
    """A new group, its faults, its end."""
    folder = ROOT / "bench" / ".out" / "failover"
    shutil.rmtree(folder, ignore_errors=True)
    group = Controlled(folder, case.kind, [case.kind] * 3, [case.kind] * 3, case.settings)
    result = Result(case, pause, Told())
    ledger = Ledger(TOPIC)
    load = Senders(group.namesrv_address, ledger, senders)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(group.abandon)
        stack.callback(load.stop)
        group.start()
        make_topic(group, TOPIC)
        say(f"{case.name}: ready")
        load.start()
        time.sleep(SETTLED_S)
        try:
            kill_masters(group, [ledger], times, LIMITS, result.told, say, pause=pause)
        except NotReadyError as error:
            result.ended = str(error).partition(";")[0]
            say(f"{case.name}: {error}")
        load.stop()
        judge(group, [ledger], result.told)
        say(f"{case.name}: {result.told.found[TOPIC]}, refusals {ledger.errors}")
    return result


def table(results: list[Result], senders: int) -> str:
    """What goes between the markers."""
    model = next((line.partition(":")[2].strip()
                  for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())  # fmt: skip
    lines = [
        f"`python -m bench.failover` on {os.cpu_count()} cores ({model}), all processes on this"
        f" machine, JVMs of 512 MB",
        f"(controllers 128 MB), {senders} connections with one send of {BODY_SIZE} bytes each at a"
        " time, which ask for the route at every error.",
        "Seconds: p50 / p99 / max. The return of a killed master includes its start.",
        "",
        "| | the master | times | fault to first success | return to all in sync | acknowledged"
        " | of these lost | at another place | queue offsets given twice |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        told, found = result.told, result.told.found.get(TOPIC)
        counts = ["-"] * 4
        if found is not None:
            counts = [f"{n:,}" for n in (found.acked, found.lost, found.moved, found.twice)]
        cells = [
            result.case.title + (f" (ended early: {result.ended})" if result.ended else ""),
            "stands still" if result.pause else "is killed",
            str(told.kills),
            spread(told.first_s.get(TOPIC, [])),
            spread(told.whole_s),
            *counts,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write(text: str) -> None:
    """Between the markers of the page; what a person wrote around them stays."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main() -> int:
    """Measure, print, write; 1 if ours lost something or did not come back."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.failover", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--senders", type=int, default=4)
    parser.add_argument("--pauses", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=[case.name for case in CASES], default=[])
    parser.add_argument("--write", action="store_true", help="into docs/PERFORMANCE.md")
    given = parser.parse_args()
    missing = toolchain.missing_tools()
    if missing:
        sys.exit("the comparison cannot run: " + "; ".join(missing))
    toolchain.build_java()
    begin = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - begin:6.0f} s  {line}", flush=True)

    results = [
        measured(case, pause, times, given.senders, say)
        for case in CASES
        if not given.only or case.name in given.only
        for pause, times in ((False, given.kills), (True, given.pauses))
        if times
    ]
    text = table(results, given.senders)
    print(f"\n{text}")
    if given.write:
        write(text)
    ours = [one for one in results if isinstance(one.case.kind, Turbopump)]
    is_good = all(not one.ended and one.told.found[TOPIC].lost == 0
                  and one.told.found[TOPIC].twice == 0 for one in ours)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
