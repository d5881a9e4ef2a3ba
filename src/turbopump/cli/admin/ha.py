"""`admin haStatus` and `getBrokerEpoch`: the progress of each replica, and the epochs of its log.

Owns their options and columns (RocketMQ: HAStatusSubCommand, GetBrokerEpochSubCommand);
net/client/admin/client.py sends the requests.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from turbopump.cli.errors import UserError
from turbopump.cli.options import (
    DEFAULT_NAMESRV,
    Interval,
    Json,
    Namesrv,
    OneBroker,
    one_place,
)
from turbopump.cli.output import format_columns, local_time, print_result
from turbopump.cli.run_command import repeat_call, run_with_admin

if TYPE_CHECKING:
    from turbopump.net.client.admin.results import BrokerEpochs, HaStatus

REPLICAS = "{:<32}  {:<16} {:>16} {:>16} {:>16} {:>16}"
"""Layout of a replica's line, for `output.format_columns`."""


def register(app: typer.Typer) -> None:
    """Add haStatus and getBrokerEpoch to `app`."""
    app.command("haStatus")(ha_status)
    app.command("getBrokerEpoch")(broker_epoch)


def ha_status(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    broker: OneBroker = None,
    cluster: Annotated[
        str | None, typer.Option("-c", "--clusterName", help="Every master of a cluster.")
    ] = None,
    interval: Interval = None,
    as_json: Json = False,
) -> None:
    """Show a master's replicas and their progress, or a replica's connection to its master."""
    one_place(broker, cluster)

    def once() -> None:
        for status in run_with_admin(
            namesrv, lambda admin: admin.ha_status(broker=broker, cluster=cluster)
        ):
            lines = master_lines if status.is_master else replica_lines
            print_result(status, as_json, lines(status))

    repeat_call(interval, once)


def master_lines(status: "HaStatus") -> list[str]:
    """Format the haStatus of a master, as mqadmin prints it, with a line for each replica."""
    lines = [
        "",
        f"#MasterAddr\t{status.address}",
        f"#MasterCommitLogMaxOffset\t{status.log_end}",
        f"#SlaveNum\t{len(status.replicas)}",
        f"#InSyncSlaveNum\t{status.in_sync_replicas}",
        format_columns(
            REPLICAS,
            "#SlaveAddr",
            "#SlaveAckOffset",
            "#Diff",
            "#TransferSpeed(KB/s)",
            "#Status",
            "#TransferFromWhere",
        ),
    ]
    for replica in status.replicas:
        speed = f"{replica.bytes_per_second / 1024:.2f}"
        state = "OK" if replica.in_sync else "Fall Behind"
        row = (replica.address, replica.acked, replica.diff, speed, state, replica.next)
        lines.append(format_columns(REPLICAS, *row))
    return lines


def replica_lines(status: "HaStatus") -> list[str]:
    """Format the haStatus of a replica, as mqadmin prints it; times are local."""
    return [
        "",
        f"#MasterAddr\t{status.master_address}",
        f"#CommitLogMaxOffset\t{status.log_end}",
        f"#TransferSpeed(KB/s)\t{status.bytes_per_second / 1024:.2f}",
        f"#LastReadTime\t{local_time(status.last_read_ms)}",
        f"#LastWriteTime\t{local_time(status.last_write_ms)}",
        f"#MasterFlushOffset\t{status.master_flushed}",
    ]


def broker_epoch(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    broker_name: Annotated[
        str | None,
        typer.Option("-b", "--brokerName", metavar="NAME", help="Every replica of a broker."),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("-c", "--clusterName", help="Every broker of a cluster.")
    ] = None,
    interval: Interval = None,
    as_json: Json = False,
) -> None:
    """Show which master wrote which part of the log, for the log of each replica."""
    if (broker_name is None) == (cluster is None):
        raise UserError("give either a broker's name with -b or a cluster with -c")

    def once() -> None:
        for found in run_with_admin(
            namesrv, lambda admin: admin.broker_epochs(broker_name=broker_name, cluster=cluster)
        ):
            print_result(found, as_json, epoch_lines(found))

    repeat_call(interval, once)


def epoch_lines(found: "BrokerEpochs") -> list[str]:
    """Format a broker's epochs as mqadmin prints them."""
    return [
        "",
        f"#clusterName\t{found.cluster}",
        f"#brokerName\t{found.broker_name}",
        f"#brokerAddr\t{found.address}",
        f"#brokerId\t{found.broker_id}",
        *(
            f"#Epoch: EpochEntry{{epoch={span.epoch}, startOffset={span.start}, "
            f"endOffset={span.end}}}"
            for span in found.epochs
        ),
    ]
