"""`admin clusterList`, `brokerStatus` and `deleteExpiredCommitLog`.

Owns their options and columns (RocketMQ: ClusterListSubCommand, BrokerStatusSubCommand,
DeleteExpiredCommitLogSubCommand); net/client/admin/client.py sends the requests.

Tests: tests/unit/cli/admin/test_commands.py
"""

from typing import TYPE_CHECKING, Annotated

import typer

from turbopump.cli.options import (
    DEFAULT_NAMESRV,
    Interval,
    Json,
    Namesrv,
    OneBroker,
    one_place,
)
from turbopump.cli.output import format_columns, format_table, print_json, print_lines, print_result
from turbopump.cli.run_command import repeat_call, run_with_admin

if TYPE_CHECKING:
    from turbopump.net.client.admin.results import BrokerLine, ClusterList

BASE = "{:<22}  {:<22}  {:<4}  {:<22} {:<16}  {:>16}  {:>30}  {:<22}  {:>11}  {:<12}  {:<8}  {:>10}"
"""Layout of a line of clusterList, for `output.format_columns`."""
MORE = "{:<16}  {:<32} {:>14} {:>14} {:>14} {:>14}"
"""Layout of a line of clusterList with -m."""

WholeCluster = Annotated[
    str | None, typer.Option("-c", "--clusterName", help="Every broker of a cluster.")
]


def register(app: typer.Typer) -> None:
    """Add clusterList, brokerStatus and deleteExpiredCommitLog to `app`."""
    app.command("clusterList")(cluster_list)
    app.command("brokerStatus")(broker_status)
    app.command("deleteExpiredCommitLog")(delete_expired_commit_log)


def cluster_list(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    more: Annotated[
        bool, typer.Option("-m", "--moreStats", help="Messages of yesterday and today.")
    ] = False,
    interval: Interval = None,
    cluster: Annotated[
        str | None, typer.Option("-c", "--clusterName", help="One cluster only.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List every broker of every cluster with its load."""

    def once() -> None:
        found = run_with_admin(namesrv, lambda admin: admin.cluster_list(cluster))
        print_result(found, as_json, _total_lines(found) if more else _load_lines(found))

    repeat_call(interval, once)


def _load_lines(found: "ClusterList") -> list[str]:
    """The columns of clusterList without -m: a line for each broker, and its error below it."""
    head = format_columns(
        BASE,
        "#Cluster Name",
        "#Broker Name",
        "#BID",
        "#Addr",
        "#Version",
        "#InTPS(LOAD)",
        "#OutTPS(LOAD)",
        "#Timer(Progress)",
        "#PCWait(ms)",
        "#Hour",
        "#SPACE",
        "#ACTIVATED",
    )
    lines = [head]
    for broker in found.brokers:
        lines.append(_broker_line(broker))
        if broker.error:
            lines.append(f"  {broker.address}: {broker.error}")
    return lines


def _broker_line(broker: "BrokerLine") -> str:
    """A broker's line of clusterList, in mqadmin's forms of numbers."""
    timer = (
        f"{broker.timer_read_behind}-{broker.timer_offset_behind}"
        f"({broker.timer_congest_num / 10_000:.1f}w, {broker.timer_enqueue_tps:.1f}, "
        f"{broker.timer_dequeue_tps:.1f})"
    )
    return format_columns(
        BASE,
        broker.cluster,
        broker.broker_name,
        broker.broker_id,
        broker.address,
        broker.version,
        f"{broker.in_tps:9.2f}({broker.send_queue_size},{broker.send_queue_wait_ms}ms)",
        f"{broker.out_tps:9.2f}({broker.pull_queue_size},{broker.pull_queue_wait_ms}ms|N,Nms)",
        timer,
        broker.page_cache_wait_ms,
        f"{broker.hours:2.2f}",
        f"{broker.space:.4f}",
        broker.active,
    )


def _total_lines(found: "ClusterList") -> list[str]:
    """The columns of clusterList -m: messages of yesterday and today."""
    head = (
        "#Cluster Name",
        "#Broker Name",
        "#InTotalYest",
        "#OutTotalYest",
        "#InTotalToday",
        "#OutTotalToday",
    )
    rows = (
        (
            broker.cluster,
            broker.broker_name,
            broker.in_total_yesterday,
            broker.out_total_yesterday,
            broker.in_total_today,
            broker.out_total_today,
        )
        for broker in found.brokers
    )
    return format_table(MORE, head, rows)


def broker_status(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    broker: OneBroker = None,
    cluster: WholeCluster = None,
    as_json: Json = False,
) -> None:
    """Print the runtime figures that a broker reports."""
    one_place(broker, cluster)
    for status in run_with_admin(
        namesrv, lambda admin: admin.broker_status(broker=broker, cluster=cluster)
    ):
        whose = f"{status.address:<24} " if cluster else ""
        rows = sorted(status.table.items())
        print_result(status, as_json, [f"{whose}{key:<32}: {value}" for key, value in rows])


def delete_expired_commit_log(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    broker: OneBroker = None,
    cluster: WholeCluster = None,
    as_json: Json = False,
) -> None:
    """Delete log files older than fileReservedTime now, at any hour."""
    one_place(broker, cluster)
    brokers = run_with_admin(
        namesrv, lambda admin: admin.delete_expired_commit_log(broker=broker, cluster=cluster)
    )
    if as_json:
        print_json({"brokers": brokers})
    else:
        print_lines(["success"])
