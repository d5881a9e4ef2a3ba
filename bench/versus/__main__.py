"""`python -m bench.versus`: compare, print, and write the tables into docs/results/tables.md.

The tables go between two marker lines; the rest of the page stays.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from pathlib import Path

from bench.versus.report import format_markdown
from bench.versus.runs import SIDES, Plan, Rounds
from bench.versus.servers import KINDS
from bench.versus.targets import BESIDE
from bench.versus.workloads import LOADS
from interop.support import groups, toolchain

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/results/tables.md"
BEGIN, END = "<!-- versus: begin -->", "<!-- versus: end -->"
NAMES = [
    *(load.name for load in LOADS),
    "backlog",
    "recovery",
    "queues",
    "creation",
    "filter",
    "later",
    "pop",
    "unacknowledged",
    "topics",
    "append",
    "grpc",
]


def parse_arguments(line: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line (None: that of this process). --beside adds another tree of Turbopump,
    which must have an environment."""
    parser = argparse.ArgumentParser(prog="python -m bench.versus")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--duration", type=float, default=3.0, help="seconds of a load")
    parser.add_argument("--warmup", type=float, default=2.0, help="seconds before it")
    parser.add_argument("--backlog", type=int, default=5_000_000, help="messages")
    parser.add_argument("--recovery-mb", type=int, default=3_000)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=[], metavar="NAME")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES, metavar="SIDE")
    parser.add_argument(
        "--program",
        help="the turbopump program to measure, as of a tree before"
        " a change, under the load of this tree",
    )
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="TREE",
        help="another tree, with its own environment: measured in turn with the others,"
        " and compared with this one",
    )
    parser.add_argument("--write", action="store_true", help="into docs/results/tables.md")
    parser.add_argument("--values", type=Path, help="all values as JSON")
    found = parser.parse_args(line)
    if found.beside is not None:
        found.beside = found.beside.absolute() / ".venv" / "bin" / "turbopump"
        if not found.beside.is_file():
            parser.error(f"--beside: {found.beside} does not exist (make run makes it)")
        found.sides = (*found.sides, BESIDE)
    return found


def rocketmq_version() -> str:
    """Return the release that the interop suite pins."""
    tree = xml.parse(ROOT / "interop" / "java" / "pom.xml")
    found = tree.find(".//{*}rocketmq5.version")
    assert found is not None and found.text
    return found.text


def describe_commit() -> str:
    """Return the abbreviated commit of this tree; its suffix names uncommitted changes."""
    command = ["git", "describe", "--always", "--abbrev=8", "--dirty=-changed"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def write(tables: str, begin: str, end: str) -> None:
    """Replace the text between two markers of the page."""
    before, _, rest = PAGE.read_text().partition(begin)
    _, found, after = rest.partition(end)
    assert found, f"{PAGE} lacks {begin} or {end}"
    recorded = f"Recorded at commit {describe_commit()}."
    PAGE.write_text(f"{before}{begin}\n{recorded}\n\n{tables}\n{end}{after}")


def print_elapsed(begin: float, line: str) -> None:
    """Print a line with the elapsed time."""
    print(f"{time.monotonic() - begin:6.0f} s  {line}", flush=True)


def main() -> None:
    """Run the comparison as a program."""
    chosen = parse_arguments()
    plan = Plan(
        chosen.rounds,
        chosen.duration,
        chosen.warmup,
        chosen.backlog,
        chosen.recovery_mb,
        chosen.topics,
        frozenset(chosen.only),
        tuple(chosen.sides),
    )
    if chosen.program is not None:
        KINDS["turbopump"] = groups.Turbopump(program=chosen.program)
    if chosen.beside is not None:
        KINDS[BESIDE] = groups.Turbopump(program=str(chosen.beside))
    missing = toolchain.missing_tools()
    if missing:
        sys.exit("versus cannot run: " + "; ".join(missing))
    toolchain.build_java()
    folder = ROOT / "bench" / ".out" / "versus"
    begin = time.monotonic()
    try:
        results = Rounds(plan, folder, lambda line: print_elapsed(begin, line)).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if chosen.values is not None:
        values = {f"{figure} {side}": value for (figure, side), value in results.values.items()}
        chosen.values.write_text(json.dumps(values, indent=1, sort_keys=True))
    tables = format_markdown(results, plan, rocketmq_version(), "make versus")
    print(f"\n{(time.monotonic() - begin) / 60:.1f} minutes\n\n" + tables)
    if chosen.write:
        write(tables, BEGIN, END)


if __name__ == "__main__":
    main()
