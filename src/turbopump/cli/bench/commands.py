"""`turbopump bench`: a native load for any RocketMQ broker, with RocketMQ's own flags.

Owns the commands and the progress shown; bench/run.py runs the load.
"""

import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from turbopump.cli.bench import options
from turbopump.cli.errors import UserError
from turbopump.cli.options import DEFAULT_NAMESRV, Json, Namesrv, Switch, split_addresses
from turbopump.cli.output import print_json, print_lines
from turbopump.cli.run_command import client_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from turbopump.cli.bench.frames import Shape
    from turbopump.cli.bench.plan import Plan
    from turbopump.pyx.load import Load

TOPIC = "BenchmarkTest"
"""Default topic, as of RocketMQ's benchmark."""
ASYNC_IN_FLIGHT = 256
"""Requests in flight with `-y true`. RocketMQ's benchmark has no such limit but its client's
queue."""

app = typer.Typer(no_args_is_help=True, help="Load for any RocketMQ broker, measured.")


@app.command()
def producer(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    topic: options.Topic = TOPIC,
    threads: options.Threads = 64,
    size: options.Size = 128,
    key_enable: options.KeyEnable = Switch.FALSE,
    property_size: options.PropertySize = 0,
    tag_count: options.TagCount = 0,
    messages: options.Messages = 0,
    delay_enable: options.DelayEnable = Switch.FALSE,
    delay_level: options.DelayLevel = 1,
    async_enable: options.AsyncEnable = Switch.FALSE,
    trace_enable: options.TraceEnable = Switch.FALSE,
    acl_enable: options.AclEnable = Switch.FALSE,
    batch: options.Batch = 1,
    in_flight: options.InFlight = None,
    rate: options.Rate = 0.0,
    duration_s: options.Duration = 0.0,
    warmup_s: options.Warmup = 0.0,
    encoding: options.Header = options.HeaderEncoding.ROCKETMQ,
    no_unique_key: options.NoUniqueKey = False,
    queues: options.Queues = 8,
    topics: options.Topics = 1,
    workload: options.WorkloadFile = None,
    replay: options.Replay = None,
    plot: options.Plot = None,
    as_json: Json = False,
) -> None:
    """Send messages, and measure throughput and latency."""
    from turbopump.cli.bench.plan import Plan

    _refuse_unsupported(trace_enable, acl_enable)
    shape = _message_shape(
        encoding,
        no_unique_key,
        size=size,
        batch=batch,
        keys=bool(key_enable),
        tag_count=tag_count,
        property_size=property_size,
        delay_level=delay_level if delay_enable else 0,
    )
    plan = Plan(
        split_addresses(namesrv),
        topic,
        topics,
        queues,
        shape,
        send_connections=1 if async_enable else threads,
        in_flight=in_flight or (ASYNC_IN_FLIGHT if async_enable else 1),
        rate=rate,
        messages=messages,
        duration_s=duration_s,
        warmup_s=warmup_s,
    )
    plan = _with_corpus(_with_file(plan, workload), replay)
    _run(replace(plan, pull_connections=0), plot, as_json)


@app.command()
def consumer(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    topic: options.Topic = TOPIC,
    threads: options.PullConnections = 20,
    group: options.Group = "benchmark_consumer",
    suffix: options.Suffix = Switch.FALSE,
    messages: options.Messages = 0,
    trace_enable: options.TraceEnable = Switch.FALSE,
    acl_enable: options.AclEnable = Switch.FALSE,
    pull_size: options.PullSize = 32,
    begin: options.From = options.BenchBegin.FIRST,
    follow: options.Follow = False,
    check_crc: options.CheckCrc = False,
    duration_s: options.Duration = 0.0,
    warmup_s: options.Warmup = 0.0,
    encoding: options.Header = options.HeaderEncoding.ROCKETMQ,
    topics: options.Topics = 1,
    plot: options.Plot = None,
    as_json: Json = False,
) -> None:
    """Read the messages of a topic, from all its queues at once, and count them."""
    from turbopump.cli.bench.plan import Plan

    _refuse_unsupported(trace_enable, acl_enable)
    plan = Plan(
        split_addresses(namesrv),
        topic,
        topics,
        shape=_message_shape(encoding, True),
        pull_connections=threads,
        pull_size=pull_size,
        group=f"{group}_{_group_suffix()}" if suffix else group,
        from_end=begin is options.BenchBegin.LAST,
        follow=follow or begin is options.BenchBegin.LAST,
        check_crc=check_crc,
        messages=messages,
        duration_s=duration_s,
        warmup_s=warmup_s,
    )
    _run(plan, plot, as_json)


@app.command()
def mixed(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    topic: options.Topic = TOPIC,
    threads: options.Threads = 64,
    consumers: options.Consumers = 8,
    size: options.Size = 128,
    messages: options.Messages = 0,
    batch: options.Batch = 1,
    in_flight: options.InFlight = None,
    rate: options.Rate = 0.0,
    pull_size: options.PullSize = 32,
    check_crc: options.CheckCrc = False,
    duration_s: options.Duration = 0.0,
    warmup_s: options.Warmup = 0.0,
    encoding: options.Header = options.HeaderEncoding.ROCKETMQ,
    queues: options.Queues = 8,
    topics: options.Topics = 1,
    workload: options.WorkloadFile = None,
    plot: options.Plot = None,
    as_json: Json = False,
) -> None:
    """Send and read at once, and measure also the time from a message's creation to its
    delivery."""
    from turbopump.cli.bench.plan import Plan

    plan = Plan(
        split_addresses(namesrv),
        topic,
        topics,
        queues,
        _message_shape(encoding, False, size=size, batch=batch),
        send_connections=threads,
        in_flight=in_flight or 1,
        rate=rate,
        pull_connections=consumers,
        pull_size=pull_size,
        from_end=True,
        follow=True,
        check_crc=check_crc,
        messages=messages,
        duration_s=duration_s,
        warmup_s=warmup_s,
    )
    _run(_with_file(plan, workload), plot, as_json)


def _message_shape(encoding: options.HeaderEncoding, no_unique_key: bool, **fields: Any) -> "Shape":
    """The form of a load's messages, with new UNIQ_KEYs unless `no_unique_key`."""
    from turbopump.cli.bench.frames import Shape
    from turbopump.cli.bench.run import unique_prefix
    from turbopump.net.wire.command import Codec

    prefix = "" if no_unique_key else unique_prefix()
    return Shape(codec=Codec[encoding.name], unique_prefix=prefix, **fields)


def _refuse_unsupported(trace_enable: Switch, acl_enable: Switch) -> None:
    """Raise UserError if traces are requested, or signatures without credentials."""
    if trace_enable:
        raise UserError("-m true: traces are not part of a load")
    if acl_enable and client_options().credentials is None:
        raise UserError("-a true needs the credentials that sign: --access-key or --credentials")


def _group_suffix() -> int:
    """Suffix of the group as in RocketMQ: the last two digits of the milliseconds."""
    from turbopump.net.client.options import wall_clock_ms

    return wall_clock_ms() % 100


def _with_file(plan: "Plan", path: Path | None) -> "Plan":
    """Apply a workload file to a plan; unknown keys are named in a warning."""
    if path is None:
        return plan
    from turbopump.cli.bench.workload import Workload

    workload = Workload(path)
    if workload.ignored:
        names = ", ".join(workload.ignored)
        print(f"turbopump: {path}: these keys are ignored: {names}", file=sys.stderr)
    body = workload.read_body()
    shape = replace(plan.shape, **workload.shape_fields())
    if body is not None:
        shape = replace(shape, size=len(body))
    fields = workload.plan_fields()
    if not plan.send_connections:
        fields.pop("send_connections", None)
    return replace(plan, shape=shape, body=body, **fields)


def _with_corpus(plan: "Plan", path: Path | None) -> "Plan":
    """Add a dataset's bodies to a plan; the message size is that of the largest body."""
    if path is None:
        return plan
    from turbopump.cli.bench.corpus import open_corpus

    corpus = open_corpus(path)
    return replace(plan, corpus=corpus, shape=replace(plan.shape, size=corpus.size_max))


def _run(plan: "Plan", picture: Path | None, as_json: bool) -> None:
    """Run the plan, show its progress, print the report."""
    from turbopump.cli.bench.report import draw_plot
    from turbopump.cli.bench.run import run_load

    if picture is not None:
        _check_picture(picture)
    with _Progress() if sys.stderr.isatty() else nullcontext(_show_nothing) as watch:
        report = run_load(plan, watch)
    if as_json:
        print_json(report.to_json())
    else:
        print_lines(report.lines())
    if picture is not None:
        draw_plot(report, picture)
    report.check_measured()


def _check_picture(path: Path) -> None:
    """Check that a picture can be drawn, before the load runs rather than after it."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise UserError("--plot needs matplotlib: pip install 'matplotlib>=3.8'")
    if not path.absolute().parent.is_dir():
        raise UserError(f"{path.absolute().parent} is no folder")


def _show_nothing(load: "Load") -> None:
    """No-op, in place of `_Progress` if stderr is no terminal."""


class _Progress:
    """A line on the terminal with the load's progress."""

    def __enter__(self) -> "Callable[[Load], None]":
        """Begin the line; returns the function that updates it from a load."""
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
        self._live.start()
        self._before = (0.0, 0, 0)
        return self._print_progress

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _print_progress(self, load: "Load") -> None:
        seconds, sent, read, errors = load.progress()
        before_s, before_sent, before_read = self._before
        passed = max(seconds - before_s, 1e-3)
        parts = [f"{seconds:6.1f} s"]
        for name, now, then in (("sent", sent, before_sent), ("read", read, before_read)):
            if now:
                parts.append(f"{name} {now:,} ({(now - then) / passed:,.0f}/s)")
        rows = load.rows()
        if rows:
            last = rows[-1][0] if sent else rows[-1][1]
            parts.append(f"p50 {last[1] / 1000:,.0f} us  p99 {last[2] / 1000:,.0f} us")
        if errors:
            parts.append(f"errors {errors:,}")
        self._live.update("  ".join(parts), refresh=True)
        self._before = (seconds, sent, read)
