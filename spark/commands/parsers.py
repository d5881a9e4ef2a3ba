"""The command line of each job, for `turbopump analyze`, `python -m` and spark-submit alike.

Owns names, defaults and help of all options. It must never import the modules that a job needs to
run, because help must work without them.
"""

import argparse
from collections.abc import Callable

from turbopump.spark.commands.times import time_ms

LOCAL = "local[*]"
"""Default of --master."""
STALL_S = 5
"""Default of --stall-seconds: whole seconds. Shorter silences are normal for many producers, and
would hide the others."""


def _make_parser(job: str, description: str, epilog: str | None = None) -> argparse.ArgumentParser:
    """Make the parser of `turbopump analyze JOB`, without arguments."""
    return argparse.ArgumentParser(
        f"turbopump analyze {job}", description=description, epilog=epilog
    )


def throughput_parser() -> argparse.ArgumentParser:
    """Make the parser of `turbopump analyze throughput`."""
    made = _make_parser(
        "throughput",
        "Report traffic, sizes, latencies, gaps, stalls and replication delay of stores.",
    )
    add_selection(made)
    made.add_argument("--output", metavar="DIR", help="Folder for Parquet tables and report.html.")
    made.add_argument("--html", metavar="FILE", help="File for the report, on this machine.")
    made.add_argument("--overwrite", action="store_true", help="Replace the tables in --output.")
    made.add_argument(
        "--stall-seconds",
        type=int,
        default=STALL_S,
        metavar="N",
        help=f"Report silences of at least N whole seconds as stalls; {STALL_S}.",
    )
    made.add_argument(
        "--with-ports", action="store_true", help="Distinguish producers by port, too."
    )
    made.add_argument(
        "--replica",
        action="append",
        default=[],
        metavar="STORE",
        help="Another store of the first store's group: report its lag. Repeatable.",
    )
    made.add_argument(
        "--copy",
        metavar="STORE",
        help="A store of another group with copies of the messages: delays by unique key.",
    )
    made.add_argument(
        "--local",
        action="store_true",
        help="Without Spark and Java, for small stores: no tables, no --replica, no --copy.",
    )
    made.add_argument("--json", action="store_true", help="Print everything as JSON.")
    add_spark(made)
    return made


def truncation_parser() -> argparse.ArgumentParser:
    """Make the parser of `turbopump analyze truncation`."""
    made = _make_parser(
        "truncation",
        "Prove or refute that a group of brokers kept its promises.",
        "Exit code 1 if a promise was broken, 2 if the input cannot be used.",
    )
    add = made.add_argument
    add(
        "stores",
        nargs="+",
        metavar="[NAME=]STORE",
        help="The stores of a group, or the data folder of `turbopump up`.",
    )
    add(
        "--ledger",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="Messages that clients received: JSON lines, or a folder of them.",
    )
    add("--leader", default="", metavar="NAME", help="Name of the leader's store.")
    add(
        "--epoch-file",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help="A store's epoch list where storePathEpochFile moved it.",
    )
    add("--local", action="store_true", help="Run without Spark.")
    add("--workers", type=int, default=1, metavar="N", help="Number of processes, with --local.")
    add("--json", action="store_true", help="Print the verdicts as JSON.")
    add_spark(made)
    return made


def rebalance_parser() -> argparse.ArgumentParser:
    """Make the parser of `turbopump analyze rebalance`."""
    made = _make_parser(
        "rebalance", "Report how even, sticky and slow the rebalances of consumer groups were."
    )
    add = made.add_argument
    add("histories", nargs="+", metavar="HISTORY", help="Files or folders of JSON lines, or URIs.")
    add("-o", "--output", metavar="FOLDER", help="Folder for Parquet and the verdict.")
    add("--window", type=int, default=60, metavar="MINUTES", help="Width of figures over time; 60.")
    add("--max-balance-degree", type=float, metavar="QUEUES", help="Fail if a rebalance has more.")
    add("--min-stickiness", type=float, metavar="SHARE", help="Fail if a group has less.")
    add("--max-time-ms", type=float, metavar="MS", help="Fail if a group's p99 is greater.")
    add("--min-evenness", type=float, metavar="SHARE", help="Fail if a rebalance has less.")
    add("--min-retention", type=float, metavar="SHARE", help="Fail if a group has less.")
    add("--overwrite", action="store_true", help="Replace an existing report.")
    add("--json", action="store_true", help="Print the verdict as JSON.")
    add_spark(made)
    return made


def export_parser() -> argparse.ArgumentParser:
    """Make the parser of `turbopump analyze export`."""
    made = _make_parser("export", "Export topics as Parquet, or as an mmap-ninja dataset.")
    add_selection(made)
    add = made.add_argument
    add("-o", "--output", required=True, metavar="TARGET", help="Folder to create, or a URI.")
    add(
        "--format",
        choices=("parquet", "ninja"),
        default="parquet",
        help="Parquet, or an mmap-ninja dataset (needs no Java).",
    )
    add("--all-topics", action="store_true", help="All topics, the system's too.")
    add("--columns", metavar="NAMES", help="Columns of Parquet, separated by commas; all.")
    add("--plain-bodies", action="store_true", help="Decompress compressed bodies.")
    add("--overwrite", action="store_true", help="Replace an existing export.")
    add("--json", action="store_true", help="Print the result as JSON.")
    add_spark(made)
    return made


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that `selection.selection_of` reads: stores, topics, queues and limits."""
    add = parser.add_argument
    add(
        "stores",
        nargs="+",
        metavar="STORE",
        help="Stores, URIs of them, or the data folder of `turbopump up`.",
    )
    add(
        "-t",
        "--topic",
        action="append",
        default=[],
        dest="topics",
        metavar="TOPIC",
        help="Only this topic; may be repeated.",
    )
    add(
        "--queue",
        action="append",
        default=[],
        type=int,
        dest="queue_ids",
        metavar="ID",
        help="Only this queue; may be repeated.",
    )
    add(
        "--since",
        dest="from_ms",
        type=time_of,
        metavar="TIME",
        help="Records stored at or after: ISO 8601 (UTC without a zone), or epoch ms.",
    )
    add("--until", dest="until_ms", type=time_of, metavar="TIME", help="Records stored before.")
    add(
        "--prune-by-time",
        action="store_true",
        help="Do not read files whose first and last record lie more than ten minutes outside of"
        " --since and --until: records stored there after a clock was set back are missed.",
    )
    add("--min-log-offset", type=int, metavar="OFFSET", help="Records at or after this log offset.")
    add("--max-log-offset", type=int, metavar="OFFSET", help="Records up to this log offset.")
    add("--unconfirmed", action="store_true", help="Include unconfirmed records.")


def add_spark(parser: argparse.ArgumentParser) -> None:
    """Add the options that all jobs have: --master, --conf and --verbose."""
    parser.add_argument(
        "--master",
        metavar="URL",
        help=f"Spark's master; {LOCAL}, or the setting of spark-submit.",
    )
    parser.add_argument(
        "--conf",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="A setting of Spark; may be repeated.",
    )
    parser.add_argument("--verbose", action="store_true", help="Show Spark's output, too.")


def time_of(text: str) -> int:
    """Parse ISO 8601 (UTC if it names no zone) or a number of ms as epoch ms, for argparse.

    Raises ArgumentTypeError for any other text.
    """
    try:
        return time_ms(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is neither ISO 8601 nor epoch ms") from None


PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "throughput": throughput_parser,
    "truncation": truncation_parser,
    "rebalance": rebalance_parser,
    "export": export_parser,
}
"""The function that makes a job's parser, by the job's name."""
