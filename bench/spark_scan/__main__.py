"""`python -m bench.spark_scan`: the log as a table of Spark, beside the same rows as Parquet.

Makes a store with the load generator (stored in --folder, with the Parquet files and all counts, so
that an interrupted run continues there), compares Spark's results with the broker's counts, and
measures. With --write the tables go into docs/results/tables.md.
"""

import argparse
import json
import platform
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.spark_scan import scans
from bench.spark_scan.filled import Counts, fill_store
from bench.versus.__main__ import write

BEGIN, END = "<!-- spark: begin -->", "<!-- spark: end -->"
WANTED_SHARE = 0.8
WANTED_BYTES_PER_S = 1e9
_UNITS = {"": 1, "MB": 10**6, "GB": 10**9}


def parse_size(text: str) -> int:
    """Parse a size such as `10GB`, `500MB` or a number of bytes, into bytes."""
    found = re.fullmatch(r"(\d+)(MB|GB|)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text} is no size like 10GB")
    return int(found[1]) * _UNITS[found[2]]


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_scan", description=__doc__)
    parser.add_argument(
        "--bytes", type=parse_size, default=10**9, help="size of the log, like 10GB"
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 1024], help="sizes of bodies")
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3, help="runs; the best counts")
    parser.add_argument("--folder", type=Path, help="keep store and Parquet files here")
    parser.add_argument("--write", action="store_true", help="into docs/results/tables.md")
    return parser.parse_args()


def find_differences(counts: Counts, sums: dict[str, int]) -> list[str]:
    """Return the differences between the counts of Spark and the broker; there must not be any."""
    pairs = {
        "rows, by the generator": (sums["rows"], counts.sent),
        "rows, by the broker": (sums["rows"], counts.put),
        "rows, by the ends of queues": (sums["rows"], counts.queued),
        "ends of queues": (sums["queued"], counts.queued),
        "bytes of bodies": (sums["body_bytes"], counts.body_bytes),
        "bytes of records": (sums["record_bytes"], counts.put_bytes),
        "end of the log": (sums["log_end"], counts.log_end),
    }
    return [
        f"{name}: {ours} is not {theirs}"
        for name, (ours, theirs) in pairs.items()
        if ours != theirs
    ]


def _scan_cells(rows: int, sides: dict[str, dict[str, float]]) -> str:
    """The cells of a row: rows per second of our source, of Parquet, their ratio, CPU
    us per row."""
    ours, parquet = sides["ours"], sides.get("parquet")
    micros = [f"{ours[name] / rows * 1e6:.2f}" for name in ("jvm_s", "workers_s")]
    theirs = ["", "", ""]
    if parquet is not None:
        theirs = [
            f"{rows / parquet['seconds']:,.0f}",
            f"{parquet['seconds'] / ours['seconds']:.0%}",
            f"{parquet['jvm_s'] / rows * 1e6:.2f}",
        ]
    cells = [f"{rows / ours['seconds']:,.0f}", *theirs[:2], ", ".join(micros), theirs[2]]
    return " | ".join(cells)


def format_report(counts: Counts, plain: dict[str, float], found: list[dict[str, Any]]) -> str:
    """Return the tables as Markdown."""
    rows = found[0]["sums"]["rows"]
    sizes = " and ".join(f"{size:,} B" for size in counts.sizes)
    lines = [
        f"A store of {counts.log_end / 1e9:,.2f} GB, {rows:,} messages of {sizes} with keys and"
        f" tags, made by `turbopump bench producer` in {counts.seconds:.0f} s. Spark"
        f" {found[0]['version']} on this machine, Linux {platform.release()}, Python"
        f" {platform.python_version()}; best run of each, by turns; rows go to the sink `noop`.",
        "Rows, bytes of records and of bodies, the ends of all queues and of the log equal the"
        " counts of broker and generator.",
        "",
        "| Spark, local | columns | turbopump rows/s | Parquet rows/s | of Parquet | CPU us a row:"
        " JVM, Python | of Parquet: JVM |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in found:
        lines += [
            f"| {one['cores']} | {kind} | {_scan_cells(rows, sides)} |"
            for kind, sides in one["scans"].items()
        ]
    lines += ["", "| one core, without Spark | GB/s of log | million rows/s |", "|---|---|---|"]
    for name, rate in plain.items():
        lines.append(f"| {name} | {rate / 1e9:.2f} | {rate * rows / counts.put_bytes / 1e6:.1f} |")
    lines += [
        "",
        "| Spark, local | one Python worker, at most | all of them | JVM |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {one['cores']} | {one['worker_mb']:,.0f} MB | {one['workers_mb']:,.0f} MB |"
        f" {one['jvm_mb']:,.0f} MB |"
        for one in found
    ]
    return "\n".join(lines)


def run(chosen: argparse.Namespace, folder: Path) -> int:
    """Run the comparison and print the progress."""
    begin = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - begin:5.0f} s  {line}", flush=True)

    counts = fill_store(folder, chosen.bytes, chosen.sizes)
    say(f"store: {json.dumps(vars(counts))}")
    plain = scans.measure_without_spark(folder, chosen.rounds)
    say(", ".join(f"{name}: {rate / 1e9:.2f} GB/s" for name, rate in plain.items()))
    found = []
    for cores in chosen.cores:
        found.append(scans.measure_in_process(folder, cores, chosen.rounds))
        say(json.dumps(found[-1]))
        wrong = find_differences(counts, found[-1]["sums"])
        if wrong:
            print("\n".join(wrong), file=sys.stderr)
            return 1
    tables = format_report(counts, plain, found)
    print(tables)
    if chosen.write:
        write(tables, BEGIN, END)
    return 0


def main() -> int:
    """Run the comparison as a program."""
    chosen = parse_arguments()
    if chosen.folder is not None:
        chosen.folder.mkdir(parents=True, exist_ok=True)
        return run(chosen, chosen.folder)
    with tempfile.TemporaryDirectory() as folder:
        return run(chosen, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
