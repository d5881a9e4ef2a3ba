"""`python -m bench.replication`: compare, print, and write the tables into docs/results/tables.md.

A run has a bare `sendfile` loop, Apache RocketMQ's master with its replicas, and ours. With --write
the tables go between two marker lines of the page; the rest stays.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from bench.replication.loop import compile_program, measure_bare
from bench.replication.pairs import Copied, Measured, measure_side
from bench.replication.report import Results, format_markdown
from bench.versus.__main__ import rocketmq_version, write
from bench.versus.targets import BOUND, OURS, THEIRS
from interop.support import toolchain

BEGIN, END = "<!-- replication: begin -->", "<!-- replication: end -->"


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.replication", description=__doc__)
    parser.add_argument("--mb", type=int, default=512, help="size of the log to copy")
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of a load")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument("--only", nargs="+", choices=(BOUND, THEIRS, OURS), default=[])
    parser.add_argument("--write", action="store_true", help="into docs/results/tables.md")
    return parser.parse_args()


def _copied_line(copied: Copied) -> str:
    """The result of a catch-up as a line for people."""
    return (
        f"{copied.bytes_per_s / 1e6:7,.0f} MB/s a replica; CPU a GB:"
        f" master {copied.master_cpu_s:5.2f} s, replica {copied.replica_cpu_s:5.2f} s"
    )


def _result_lines(found: Measured) -> list[str]:
    """The result of a side as lines for people."""
    return [
        _copied_line(found.copied),
        *(
            f"{load:8} {sent.messages_per_s:9,.0f} messages/s, p50 {sent.p50_us:7,.0f} us,"
            f" p99 {sent.p99_us:7,.0f} us; CPU a message: master {sent.master_cpu_us:6.2f} us,"
            f" replica {sent.replica_cpu_us:6.2f} us; refused {sent.refused:.2%}"
            for load, sent in found.sent.items()
        ),
    ]


def run(chosen: argparse.Namespace, folder: Path) -> Results:
    """Run the comparison and print the progress."""
    results, begin = Results(), time.monotonic()
    size, sides = chosen.mb << 20, chosen.only or [BOUND, THEIRS, OURS]
    program = compile_program(folder)
    for _ in range(chosen.rounds):
        for replicas in chosen.replicas:
            for side in sides:
                if side == BOUND:
                    loop = measure_bare(program, folder, size, replicas)
                    results.loops.setdefault(replicas, []).append(loop)
                    lines = [_copied_line(loop)]
                else:
                    found = measure_side(side, replicas, size, chosen.seconds)
                    results.pairs.setdefault((replicas, side), []).append(found)
                    lines = _result_lines(found)
                for line in lines:
                    took = time.monotonic() - begin
                    print(f"{took:5.0f} s  {side:9} {replicas}  {line}", flush=True)
    return results


def main() -> None:
    """Run the comparison as a program."""
    chosen = parse_arguments()
    if THEIRS in (chosen.only or [THEIRS]):
        missing = toolchain.missing_tools()
        if missing:
            sys.exit("the comparison cannot run: " + "; ".join(missing))
        toolchain.build_java()
    with tempfile.TemporaryDirectory() as place:
        results = run(chosen, Path(place))
    tables = format_markdown(
        results, chosen.mb << 20, rocketmq_version(), chosen.rounds, chosen.seconds
    )
    print("\n" + tables)
    if chosen.write:
        write(tables, BEGIN, END)


if __name__ == "__main__":
    main()
