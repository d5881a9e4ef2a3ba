"""The command line of the evaluation: runs, the table, the report page, and the missed criteria."""

import argparse
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from interop.rebalance_chaos import __doc__ as about
from interop.rebalance_chaos.faults import NAMES, plan
from interop.rebalance_chaos.history import read, written
from interop.rebalance_chaos.nodes import NODES, STRATEGIES, Run
from interop.rebalance_chaos.report import broken, kept, outcome, paged, table, windows_table
from interop.support import toolchain
from interop.support.groups import TURBOPUMP, Kind, RocketMQ, Turbopump
from interop.support.tracebacks import tracebacks

SIDES: dict[str, Kind] = {"rocketmq": RocketMQ(), "turbopump": Turbopump()}
WITHOUT = {("rocketmq", "broker-STICKY")}
"""RocketMQ's brokers have no such strategy."""


def main() -> int:
    """Run the evaluation and print; 1 if a run of ours misses a criterion."""
    given = _arguments()
    missing = toolchain.missing_tools()
    if missing:
        sys.exit("the run is not possible: " + "; ".join(missing))
    toolchain.build_java()
    if not given.keep:
        shutil.rmtree(given.output, ignore_errors=True)
    given.output.mkdir(parents=True, exist_ok=True)
    faults = plan(given.faults, NODES, given.seconds, random.Random(given.seed))
    begin = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - begin:6.0f} s  {line}", flush=True)

    for side in given.sides:
        for strategy in given.strategies:
            if (side, strategy) not in WITHOUT:
                say(f"{side} {strategy}, seed {given.seed}")
                folder = given.output / f"{side}-{strategy}"
                shutil.rmtree(folder, ignore_errors=True)
                history = Run(SIDES[side], strategy, folder, given.seed).play(faults, say)
                written(history, _kept_at(given.output, side, strategy))
    outcomes = [
        outcome(side, strategy, read(_kept_at(given.output, side, strategy)))
        for side in sorted(SIDES)
        for strategy in STRATEGIES
        if _kept_at(given.output, side, strategy).exists()
    ]
    files = kept(outcomes, given.output)
    print("\n".join([*table(outcomes), "", *windows_table(outcomes)]))
    if given.page is not None:
        cores, date = os.cpu_count(), time.strftime("%Y-%m-%d")
        heading = f"`make rebalance`, seed {given.seed}, {date}, {cores} cores:"
        given.page.write_text(paged(given.page.read_text(), heading, outcomes))
    if not given.without_page:
        report = given.output / "report"
        command = [TURBOPUMP, "analyze", "rebalance", *map(str, files), "-o", str(report)]
        subprocess.run([*command, "--overwrite"], check=False)
    flaws = [
        f"{one.name}: {flaw}"
        for one in outcomes
        if one.side == "turbopump"
        for flaw in broken(one, outcomes)
    ]
    flaws += logged(given.output)
    print("\n".join(flaws or ["all is reached"]))
    return int(bool(flaws))


def logged(output: Path) -> list[str]:
    """Return the tracebacks in the logs of our nodes, of all runs in the folder."""
    folders = sorted(output.glob("turbopump-*"))
    found = [one for folder in folders for one in tracebacks(folder)]
    print(f"tracebacks in nodes' logs: {len(found)}")
    return found


def _kept_at(output: Path, side: str, strategy: str) -> Path:
    return output / f"{side}-{strategy}-history"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m interop.rebalance_chaos",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--seed", type=int, default=1, help="Of the faults, their nodes and the loss.")
    add("--seconds", type=float, default=70, help="Of faults and recoveries in each run.")
    add("--sides", nargs="+", choices=sorted(SIDES), default=sorted(SIDES))
    add("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    add("--faults", nargs="+", choices=NAMES, default=list(NAMES))
    add("--output", type=Path, default=toolchain.CACHE / "rebalance-chaos", metavar="FOLDER")
    add("--keep", action="store_true", help="Runs that lie in the folder count, too.")
    add("--page", type=Path, metavar="FILE", help="Write the tables into it (docs/EVALUATION.md).")
    add("--without-page", action="store_true", help="No report.html, which needs Spark.")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
