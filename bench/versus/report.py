"""The comparison as Markdown: medians of the rounds, ratios, and the method.

Owns the tables. It must never measure.
"""

import os
import platform
import statistics
from importlib.metadata import version
from pathlib import Path

from bench.versus import targets
from bench.versus.runs import POP_SIZES, UNACKNOWLEDGED, Plan, Results
from bench.versus.targets import BESIDE, BOUND, OURS, THEIRS
from bench.versus.workloads import LOADS

_GRPC = (
    ("grpc-64x1-1k", "sends by gRPC, 64 connections x 1, 1 KB"),
    ("grpc-8x32-1k", "sends by gRPC, 8 connections x 32, 1 KB"),
    ("grpc-receive", "received by gRPC, 32 a call, and acknowledged one by one"),
)
_GRPC_ROWS = tuple(
    row
    for name, title in _GRPC
    for row in (
        (f"{title}, a second", f"{name}.messages_per_s"),
        ("CPU us of each", f"{name}.cpu_us"),
    )
)
_PAGES = ("SC_PHYS_PAGES", "SC_PAGE_SIZE")


class Table:
    """Medians of a comparison's results, as cells of its tables."""

    def __init__(self, results: Results) -> None:
        self._values = results.values

    def median(self, figure: str, side: str) -> float | None:
        """Return the median; None if the figure was not measured."""
        values = self._values.get((figure, side))
        return statistics.median(values) if values else None

    def spread_text(self, figure: str, side: str) -> str:
        """Return the lowest and highest value of a figure in all rounds of a side, as text."""
        values = self._values.get((figure, side))
        return f"{format_number(min(values))} - {format_number(max(values))}" if values else "-"

    def ratio_text(self, figure: str, side: str, to: str, *, inverted: bool = False) -> str:
        """Return the ratio of a figure's medians of `side` and `to` as text; `inverted`
        if less is better."""
        mine, other = self.median(figure, side), self.median(figure, to)
        if not mine or not other:
            return "-"
        return f"{other / mine if inverted else mine / other:.1f}x"

    def change_text(self, figure: str, *, inverted: bool = False) -> str:
        """Return this tree's value in percent of the other tree's: median of the rounds, lowest and
        highest.

        `inverted` if less is better. The two values of a round were measured one right after the
        other.
        """
        mine, other = (self._values.get((figure, side), []) for side in (OURS, BESIDE))
        pairs = [(new, old) for new, old in zip(mine, other, strict=False) if new and old]
        if not pairs:
            return "-"
        shares = [old / new if inverted else new / old for new, old in pairs]
        return f"{statistics.median(shares):.0%} ({min(shares):.0%} - {max(shares):.0%})"

    def share_of_bound(self, figure: str) -> str:
        """Return Turbopump's median of a figure in percent of the bound."""
        mine, bound = self.median(figure, OURS), self.median(figure, BOUND)
        return f"{mine / bound:.0%}" if mine and bound else "-"

    def multiple_of_bound(self, figure: str) -> str:
        """Return Turbopump's median of a figure as a multiple of the bound; for figures of which
        less is better."""
        mine, bound = self.median(figure, OURS), self.median(figure, BOUND)
        return f"{mine / bound:.1f}x" if mine and bound else "-"

    def median_text(self, figure: str, side: str) -> str:
        """Return the median of a figure of a side as text."""
        return format_number(self.median(figure, side))


def format_number(value: float | None) -> str:
    """Format a number with its significant digits."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


def format_markdown(results: Results, plan: Plan, rocketmq: str, command: str) -> str:
    """Return all tables of a comparison and its method as Markdown, for docs/results/tables.md."""
    table = Table(results)
    parts = [
        _method_text(plan, rocketmq, command),
        targets.format_table(table),
        _throughput_table(table),
        _other_figures_table(table, plan),
        _grpc_floor_text(table),
    ]
    if BESIDE in plan.sides:
        parts.append(_other_tree_table(table))
    return "\n".join(parts)


def _method_text(plan: Plan, rocketmq: str, command: str) -> str:
    """The method of measurement and the machine, as Markdown."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    pages, size = (os.sysconf(name) for name in _PAGES)
    java = "its published jars, JVM heap 2 GB (G1), its defaults otherwise"
    return f"""Measured with `{command}`: {plan.rounds} rounds, the sides in turn and changing places, each load {plan.duration_s:g} s
after {plan.warmup_s:g} s of warm-up, medians of the rounds. A broker's store is fresh and it has served 200,000 messages (50,000 with
sync flush) before the first load; the loads of 64 connections share a broker, and the loads with sync flush another.

- Machine: {os.cpu_count()} cores ({model}), {pages * size / 2**30:.0f} GiB, Linux {platform.release()}
- Apache RocketMQ {rocketmq}: {java}, Java 17
- Turbopump {version("turbopump")}: its defaults, Python {platform.python_version()}, uvloop {version("uvloop")}
- Load: `turbopump bench` (one thread), name server, broker and load on the same machine
- TLS: the same load, encrypted in the same process (`bench/tls_load.c`); each broker takes TLS on its one port and makes its
  own certificate
- Bound: a bare epoll loop in C that finds frames, copies each once into a warm mapping and gives a
  fixed answer, under the same load in the same rounds (`bench/bound.c`); for pulls it sends the same
  bytes; for sync flush with one connection the bare rate of msyncs of a page
"""  # noqa: E501


def _throughput_table(table: Table) -> str:
    """The table of throughput and CPU time of each load, as Markdown."""
    lines = [
        "| load | RocketMQ msg/s | Turbopump msg/s | times | RocketMQ CPU us | Turbopump CPU us"
        " | per CPU second | bound msg/s | of the bound | p99 us, RocketMQ / Turbopump |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    named = [(load.name, load.title) for load in LOADS]
    for name, title in [*named, ("backlog", "consume a backlog, 8 queues, 32 a pull, 128 B")]:
        speed, cpu, p99 = f"{name}.messages_per_s", f"{name}.cpu_us", f"{name}.p99_us"
        lines.append(
            f"| {title} | {table.median_text(speed, THEIRS)} | {table.median_text(speed, OURS)}"
            f" | {table.ratio_text(speed, OURS, THEIRS)}"
            f" | {table.median_text(cpu, THEIRS)} | {table.median_text(cpu, OURS)}"
            f" | {table.ratio_text(cpu, OURS, THEIRS, inverted=True)}"
            f" | {table.median_text(speed, BOUND)} | {table.share_of_bound(speed)}"
            f" | {table.median_text(p99, THEIRS)} / {table.median_text(p99, OURS)} |"
        )
    lines.append("")
    lines.append("Lowest and highest round, messages a second:")
    lines.append("")
    lines.append("| load | RocketMQ | Turbopump | bound |")
    lines.append("|---|---|---|---|")
    for name, title in [*named, ("backlog", "consume a backlog")]:
        figure = f"{name}.messages_per_s"
        cells = " | ".join(table.spread_text(figure, side) for side in (THEIRS, OURS, BOUND))
        lines.append(f"| {title} | {cells} |")
    refusals = [
        f"{title}: {side} refused {share:.2%}"
        for name, title in named
        for side in (THEIRS, OURS)
        if (share := table.median(f"{name}.refused", side))
    ]
    if refusals:
        lines += ["", "Requests answered with an error (SYSTEM_BUSY): " + "; ".join(refusals) + "."]
    return "\n".join([*lines, ""])


def _other_tree_table(table: Table) -> str:
    """The table that compares this tree with another tree of Turbopump, as Markdown."""
    lines = [
        "This tree beside the other, medians; the two of a round are of the same minutes."
        " 100 %: as many messages a second, or a CPU second.",
        "",
        "| load | RocketMQ msg/s | other msg/s | this msg/s | of the other (rounds)"
        " | other CPU us | this CPU us | messages a CPU second, of the other (rounds) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    names = [*((load.name, load.title) for load in LOADS), ("backlog", "consume a backlog")]
    for name, title in [*names, ("transactions", "transactions"), ("timers", "timers sent")]:
        speed, cpu = f"{name}.messages_per_s", f"{name}.cpu_us"
        if table.median(speed, OURS) is not None:
            sides = (THEIRS, BESIDE, OURS)
            cells = [*(table.median_text(speed, side) for side in sides), table.change_text(speed)]
            cells += [*(table.median_text(cpu, side) for side in sides[1:])]
            cells.append(table.change_text(cpu, inverted=True))
            lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _grpc_floor_text(table: Table) -> str:
    """A sentence that compares our gRPC calls with the minimal C server; "" if not measured."""
    shares = [
        f"{title}: {table.share_of_bound(f'{name}.messages_per_s')} of its calls a second,"
        f" {table.multiple_of_bound(f'{name}.cpu_us')} its processor time"
        for name, title in _GRPC
        if table.median(f"{name}.cpu_us", BOUND)
    ]
    text = "Beside a C loop on libnghttp2 that answers, gRPC: " + "; ".join(shares) + ".\n"
    return text if shares else ""


def _other_figures_table(table: Table, plan: Plan) -> str:
    """The table of start times, memory, and loads of topics, timers, pops and
    transactions, as Markdown."""
    rows: tuple[tuple[str, str], ...] = (
        ("p99 at 10,000 messages a second, 64 connections, us", "fixed-10k.p99_us"),
        ("ready after start on an empty store, s", "start.ready_s"),
        (f"ready after kill -9 with {plan.recovery_mb:,} MB of log, s", "recovery.ready_s"),
        ("RSS at start, MB", "start.rss_mb"),
        ("anonymous memory at start, MB", "start.anonymous_mb"),
        (f"RSS after {plan.backlog:,} messages, MB", "backlog.rss_mb"),
        (f"anonymous memory after {plan.backlog:,} messages, MB", "backlog.anonymous_mb"),
    )
    rows += (
        ("sends over 4,000 queues in turn, messages a second", "queues-4000.messages_per_s"),
        ("CPU us a message", "queues-4000.cpu_us"),
        ("sends over 12,000 queues in turn, messages a second", "queues-12000.messages_per_s"),
        ("CPU us a message", "queues-12000.cpu_us"),
        ("new topics a second, 64 at a time, on a fresh broker", "creation.topics_per_s"),
        ("CPU us a topic", "creation.cpu_us"),
        ("new topics a second beside 10,000", "creation-many.topics_per_s"),
        ("CPU us a topic", "creation-many.cpu_us"),
        ("p99 of that, ms", "creation-many.p99_ms"),
        ("p99 of 10,000 sends a second beside that, us", "creation-beside.p99_us"),
        ("and beside 3,000 new topics a second, us", "creation-3000-beside.p99_us"),
    )
    rows += (
        (
            "messages looked at by SQL92 pulls, of which 1 % match, a second",
            "filter.messages_per_s",
        ),
        ("CPU us a message", "filter.cpu_us"),
        ("transactions (half message, oneway commit) a second", "transactions.messages_per_s"),
        ("CPU us a transaction", "transactions.cpu_us"),
        ("timers sent a second", "timers.messages_per_s"),
        ("CPU us a timer, the wheel included", "timers.cpu_us"),
        ("anonymous memory with 1,000,000 timers, MB", "timers.anonymous_mb"),
        ("20,000 due a second, p50 of lateness at consumers, ms", "lateness.p50_ms"),
        ("p99 of that, ms", "lateness.p99_ms"),
    )
    for size in POP_SIZES:
        rows += (
            (f"popped, {size} a pop, and acknowledged, a second", f"pop-{size}.messages_per_s"),
            ("CPU us a message", f"pop-{size}.cpu_us"),
            ("CPU us a message when its invisible time has passed", f"pop-{size}.behind_cpu_us"),
        )
    rows += _GRPC_ROWS
    title = f"anonymous memory with {UNACKNOWLEDGED:,} messages popped, MB"
    rows += ((title, "unacknowledged.anonymous_mb"),)
    lines = ["| what | RocketMQ | Turbopump | RocketMQ's is |", "|---|---|---|---|"]
    for title, figure in rows:
        lines.append(
            f"| {title} | {table.median_text(figure, THEIRS)} | {table.median_text(figure, OURS)}"
            f" | {table.ratio_text(figure, OURS, THEIRS, inverted=True)} |"
        )
    many = table.median("topics.messages_per_s", OURS)
    if many:
        lines += [
            "",
            f"Sends over {plan.topics:,} topics instead of a single topic, 64 connections x 1,"
            f" 128 B: {format_number(many)} messages a second (not measured with RocketMQ).",
        ]
    native, copied = (table.median("append.messages_per_s", side) for side in (OURS, BOUND))
    if native and copied:
        lines += [
            "",
            f"Engine append of 1 KB records: {format_number(native)} a second; a C loop that copies"
            f" the same bytes into a warm mapping: {format_number(copied)}.",
        ]
    return "\n".join([*lines, ""])
