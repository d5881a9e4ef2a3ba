"""Effects of slow, failing and hanging disks on a group: a table, ours and RocketMQ's.

    python -m tests.integration.failover.table [--rows NAME ..] [--who turbopump rocketmq]
    [--write]

A row is one trouble in a new group of processes (troubles.py), some 40 s each, at most a few
minutes; `--list` names them. `--write` puts the table into docs/results/disks.md, with the last
results (bench/.out/disks.json) of rows that were not measured now. Exit code 1 if our group
lost a message or missed an aim.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from interop.support import toolchain
from interop.support.groups import Kind, RocketMQ, Turbopump
from tests.integration.failover.troubles import NEVER, SEND_S, TROUBLES, Seen, Trouble, measured

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "results" / "disks.md"
KEPT = ROOT / "bench" / ".out" / "disks.json"
BEGIN, END = "<!-- disks: begin -->", "<!-- disks: end -->"
OURS, JAVA = "turbopump", "rocketmq"
SAFEST: Final = {
    "allAckInSyncStateSet": "true",
    "minInSyncReplicas": "1",
    "inSyncReplicas": "2",
    "totalReplicas": "3",
}
"""Settings that RocketMQ 5.5.0 accepts for the least loss."""
NONE: Final[Mapping[str, str]] = {}
JAVA_ROWS: Final = (
    "25-the-master",
    "300-the-master",
    "1000-the-master",
    "300-all-controllers",
    "fail-the-master",
)
"""Rows that are measured with RocketMQ, unless rows are named."""


@dataclass(frozen=True)
class Case:
    """The broker that is measured."""

    title: str
    kind: Callable[[Mapping[str, str]], Kind]
    settings: Mapping[str, str]
    rows: tuple[str, ...]


CASES: Final[Mapping[str, Case]] = {
    OURS: Case("Turbopump", Turbopump, NONE, tuple(TROUBLES)),
    JAVA: Case("RocketMQ 5.5.0", RocketMQ, SAFEST, JAVA_ROWS),
}


def with_kept(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Save these rows and the rows of earlier runs; returns all in the order of the cases."""
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    known |= found
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    KEPT.write_text(json.dumps(known, indent=1))
    order = [key_of(who, trouble) for who in CASES for trouble in TROUBLES.values()]
    return {key: known[key] for key in order if key in known}


def key_of(who: str, trouble: Trouble) -> str:
    """Key of a saved row."""
    return f"{who} {trouble.name}"


def cells_of(key: str, row: dict[str, Any]) -> list[str]:
    """A row of the table."""
    who, name = key.split(" ", 1)
    trouble, seen = TROUBLES[name], Seen(**row["seen"])

    def shown(value: float | None) -> str:
        if value is None:
            return "-"
        return "none: the set was the master alone" if value == NEVER else f"{value:.2f}"

    aim = f" (aim {trouble.aim_s:.0f})" if trouble.aim_s and who == OURS else ""
    what = f"{CASES[who].title}: {trouble.what}"
    return [
        f"{what} (ended early: {seen.ended})" if seen.ended else what,
        trouble.where,
        shown(seen.gap_s) + aim,
        shown(seen.first_s),
        shown(seen.leads_s),
        str(seen.elections),
        str(seen.leads_lost),
        f"{seen.acked:,} / {seen.lost}",
    ]


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Text between the markers of the page."""
    loads = [row["load"] for row in rows.values()]
    lines = [
        "`python -m tests.integration.failover.table`: SYNC_FLUSH, all limits as they are by"
        " default, four senders with one message at a",
        f"time, which wait up to {SEND_S:.0f} s for an answer; {os.cpu_count()} cores, load"
        f" {min(loads):.0f} to {max(loads):.0f}. A row names the duration or the failure of each"
        " sync of a process",
        "(fsync, fdatasync, msync). Times are in seconds.",
        "",
        "| disk | of | longest gap in acknowledgements | master killed meanwhile: first success"
        " | leading controller killed meanwhile: the next | elections without a cause"
        " | leads of controllers lost | acknowledged / lost |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += ["| " + " | ".join(cells_of(key, row)) + " |" for key, row in rows.items()]
    return "\n".join(lines)


def write(text: str) -> None:
    """Write the table between the markers of the page, and keep the text around them."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def is_good(who: str, trouble: Trouble, seen: Seen) -> bool:
    """Whether a row meets our aims; RocketMQ's rows have no aims."""
    is_late = trouble.aim_s is not None and (seen.gap_s is None or seen.gap_s > trouble.aim_s)
    return who != OURS or not (is_late or seen.lost or seen.ended)


def measure(who: str, trouble: Trouble, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure one row."""
    case = CASES[who]
    base = Path(tempfile.mkdtemp(prefix="disks-"))
    try:
        seen = measured(trouble, base / "group", case.kind, case.settings, say)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return {"seen": asdict(seen), "load": round(os.getloadavg()[0], 1)}


def main() -> int:
    """Measure, print, and write the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.integration.failover.table",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", nargs="+", choices=list(TROUBLES), metavar="NAME")
    parser.add_argument("--who", nargs="+", choices=list(CASES), default=[OURS])
    parser.add_argument("--write", action="store_true", help="into docs/results/disks.md")
    parser.add_argument("--list", action="store_true", help="the names of the rows")
    given = parser.parse_args()
    if given.list:
        print("\n".join(TROUBLES))
        return 0
    if JAVA in given.who:
        if missing := toolchain.missing_tools():
            sys.exit("RocketMQ cannot run: " + "; ".join(missing))
        toolchain.build_java()
    begin, rows, good = time.monotonic(), dict[str, dict[str, Any]](), True
    for who in given.who:
        for name in given.rows or CASES[who].rows:
            key = key_of(who, TROUBLES[name])

            def say(line: str, key: str = key) -> None:
                print(f"{time.monotonic() - begin:6.0f} s  {key}: {line}", flush=True)

            row = measure(who, TROUBLES[name], say)
            rows = with_kept({key: row})
            good &= is_good(who, TROUBLES[name], Seen(**row["seen"]))
            say(" | ".join(cells_of(key, row)))
    text = table(rows)
    print(f"\n{text}")
    if given.write:
        write(text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
