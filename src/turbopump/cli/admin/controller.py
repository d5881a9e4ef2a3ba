"""`admin getSyncStateSet`, `electMaster`, `cleanBrokerMetadata` and other commands of controllers.

Owns their options and columns (RocketMQ: tools/command/controller, GetSyncStateSetSubCommand);
net/client/admin/controller.py sends the requests.
"""

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from turbopump.cli.errors import CommandFailed, UserError
from turbopump.cli.options import (
    DEFAULT_NAMESRV,
    INT64_MAX,
    Interval,
    Json,
    Namesrv,
    split_addresses,
)
from turbopump.cli.output import format_columns, print_result
from turbopump.cli.run_command import repeat_call, run_with_admin

if TYPE_CHECKING:
    from turbopump.net.client.admin.client import Admin
    from turbopump.net.client.admin.controller import ControllerAdmin
    from turbopump.net.client.admin.results import (
        ControllerMetadata,
        ElectedMaster,
        NodeProperties,
        ReplicaLine,
        SyncStateLine,
    )

T = TypeVar("T")

CONFIG_LINE = "{:<50}=  {}"
"""Layout of a property's line, for `output.format_columns`."""

Controllers = Annotated[
    str,
    typer.Option(
        "-a",
        "--controllerAddress",
        metavar="HOST:PORT",
        help="Any of the controllers, several separated by ';': the leader is found.",
    ),
]
EachController = Annotated[
    str,
    typer.Option(
        "-a",
        "--controllerAddress",
        metavar="HOST:PORT",
        help="The controllers, separated by ';'; each is asked.",
    ),
]
BrokerName = Annotated[
    str, typer.Option("-bn", "--brokerName", metavar="NAME", help="The broker group.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of controllers to `app`."""
    app.command("getSyncStateSet")(sync_state_set)
    app.command("electMaster")(elect_master)
    app.command("getControllerMetaData")(controller_metadata)
    app.command("getControllerConfig")(controller_config)
    app.command("updateControllerConfig")(update_controller_config)
    app.command("cleanBrokerMetadata")(clean_broker_metadata)


def sync_state_set(
    controllers: Controllers,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    broker_name: Annotated[
        str | None, typer.Option("-b", "--brokerName", metavar="NAME", help="One broker group.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("-c", "--clusterName", help="Every group of a cluster of the name server."),
    ] = None,
    interval: Interval = None,
    as_json: Json = False,
) -> None:
    """Show the master of a broker group, and which replicas are in sync."""
    if (broker_name is None) == (cluster is None):
        raise UserError("give either a broker's name with -b or a cluster with -c")
    addresses = controller_addresses(controllers)

    async def found(admin: "Admin") -> "list[SyncStateLine]":
        names = [broker_name or ""]
        if cluster is not None:
            names = await admin.broker_names(cluster)
        return await admin.controllers(addresses).sync_state_sets(names)

    def once() -> None:
        groups = run_with_admin(namesrv, found)
        if not groups:
            raise CommandFailed(f"the controllers do not know {broker_name or cluster}")
        for group in groups:
            print_result(group, as_json, sync_state_lines(group))

    repeat_call(interval, once)


def sync_state_lines(group: "SyncStateLine") -> list[str]:
    """Format a broker group's master and replicas as mqadmin prints them."""
    lines = [
        "",
        f"#brokerName\t{group.broker_name}",
        f"#MasterBrokerId\t{_or_null(group.master_id)}",
        f"#MasterAddr\t{_or_null(group.master_address)}",
        f"#MasterEpoch\t{group.master_epoch}",
        f"#SyncStateSetEpoch\t{group.set_epoch}",
        f"#SyncStateSetNums\t{len(group.in_sync)}",
    ]
    for title, replicas in (
        ("InSyncReplica", group.in_sync),
        ("NotInSyncReplica", group.not_in_sync),
    ):
        for replica in replicas:
            lines += ["", f"{title}:\t{_replica_text(replica)}"]
    return lines


def elect_master(
    controllers: Controllers,
    broker_id: Annotated[
        int,
        typer.Option(
            "-b", "--brokerId", min=1, max=INT64_MAX, metavar="N", help="The replica to elect."
        ),
    ],
    broker_name: BrokerName,
    cluster: Annotated[str, typer.Option("-c", "--clusterName", help="The group's cluster.")],
    as_json: Json = False,
) -> None:
    """Make one replica of a group its master; the controllers refuse a replica that is not
    eligible."""
    elected = ask_controllers(
        controllers, lambda asked: asked.elect_master(cluster, broker_name, broker_id)
    )
    print_result(elected, as_json, elected_lines(elected))


def elected_lines(elected: "ElectedMaster") -> list[str]:
    """Format the outcome of an election as mqadmin prints it."""
    return [
        "",
        f"#ClusterName\t{elected.cluster}",
        f"#BrokerName\t{elected.broker_name}",
        f"#BrokerMasterAddr\t{elected.master_address}",
        f"#MasterEpoch\t{elected.master_epoch}",
        f"#SyncStateSetEpoch\t{elected.set_epoch}",
        *(f"\t#Broker\t{number}\t{address}" for number, address in elected.members.items()),
    ]


def controller_metadata(controllers: Controllers, as_json: Json = False) -> None:
    """Show the leader of the controllers, and their addresses."""
    metadata = ask_controllers(controllers, lambda asked: asked.metadata())
    print_result(metadata, as_json, metadata_lines(metadata))


def metadata_lines(metadata: "ControllerMetadata") -> list[str]:
    """Format the controllers' leader and members as mqadmin prints them."""
    return [
        "",
        f"#ControllerGroup\t{metadata.group}",
        f"#ControllerLeaderId\t{_or_null(metadata.leader_id)}",
        f"#ControllerLeaderAddress\t{_or_null(metadata.leader_address)}",
        *(f"#Peer:\t{number}:{address}" for number, address in metadata.peers.items()),
    ]


def controller_config(controllers: EachController, as_json: Json = False) -> None:
    """Print the properties of each controller."""
    for found in ask_controllers(controllers, lambda asked: asked.config()):
        print_result(found, as_json, config_lines(found))


def config_lines(found: "NodeProperties") -> list[str]:
    """Format a node's properties as mqadmin prints them."""
    return [
        f"============{found.address}============",
        *(format_columns(CONFIG_LINE, key, value) for key, value in found.table.items()),
    ]


def update_controller_config(
    controllers: EachController,
    key: Annotated[str, typer.Option("-k", "--key", metavar="KEY", help="The property.")],
    value: Annotated[str, typer.Option("-v", "--value", metavar="VALUE", help="Its new value.")],
    as_json: Json = False,
) -> None:
    """Change one property of each controller while it runs."""
    updated = ask_controllers(controllers, lambda asked: asked.update_config(key, value))
    where = ", ".join(updated.addresses)
    lines = [f"update controller config success![{where}]", f"{key} : {value}"]
    print_result(updated, as_json, lines)


def clean_broker_metadata(
    controllers: Controllers,
    broker_name: BrokerName,
    broker_ids: Annotated[
        str | None,
        typer.Option(
            "-b",
            "--brokerControllerIdsToClean",
            metavar="IDS",
            help="The replicas to remove, as in 1;2;3; the whole group if not given.",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("-c", "--clusterName", help="The group's cluster; needed without -l."),
    ] = None,
    living: Annotated[
        bool,
        typer.Option(
            "-l",
            "--cleanLivingBroker",
            help="Also remove living replicas. RocketMQ's controllers then remove the group, "
            "whatever -b names.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove replicas that will not come back from the controllers' metadata."""
    if cluster is None and not living:
        raise UserError("give the broker's cluster with -c; only -l works without it")
    numbers = broker_numbers(broker_ids)
    cleaned = ask_controllers(
        controllers,
        lambda asked: asked.clean_broker(
            broker_name, cluster=cluster, broker_ids=numbers, living=living
        ),
    )
    print_result(
        cleaned, as_json, [f"clear broker {broker_name} metadata from controller success! "]
    )


def ask_controllers(controllers: str, call: "Callable[[ControllerAdmin], Awaitable[T]]") -> T:
    """Run `call` with a client of the controllers (`host:port;host:port`), block, and return its
    result. Raises UserError for a bad address, CommandFailed if no controller answers or one
    refuses.

    An admin client is made with name servers' addresses; here it sends them no request, so it gets
    the controllers' addresses in their place.
    """
    addresses = controller_addresses(controllers)
    return run_with_admin(";".join(addresses), lambda admin: call(admin.controllers(addresses)))


def controller_addresses(text: str) -> list[str]:
    """Split `host:port;host:port` into addresses; raises UserError for an invalid or empty list."""
    if not text.strip(" ;,"):
        raise UserError("no controller address is given: -a host:port")
    return split_addresses(text)


def broker_numbers(text: str | None) -> list[int]:
    """Parse `1;2;3` into sorted numbers without duplicates; raises UserError for any other text."""
    parts = [part.strip() for part in (text or "").split(";") if part.strip()]
    for part in parts:
        if not re.fullmatch("[0-9]{1,18}", part):
            raise UserError(f"{part} is no broker id: numbers as in 1;2;3 are expected")
    if text is not None and not parts:
        raise UserError("no broker id is given: numbers as in 1;2;3 are expected")
    return sorted({int(part) for part in parts})


def _replica_text(replica: "ReplicaLine") -> str:
    """A replica as RocketMQ's ReplicaIdentity.toString prints it."""
    return (
        f"ReplicaIdentity{{brokerName='{replica.broker_name}', brokerId={replica.broker_id}, "
        f"brokerAddress='{replica.address}', alive={str(replica.alive).lower()}}}"
    )


def _or_null(value: object) -> object:
    """Convert a missing value to `null`, as Java prints it."""
    return "null" if value in (None, "") else value
