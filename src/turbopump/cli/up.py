"""`turbopump up`: a name server, a broker or a group of them, and controllers in this process.

Owns the options, the ready event and the hint for people.

Tests: tests/integration/cli/test_up.py
"""

import dataclasses
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turbopump.cli.errors import UserError, sentence_of
from turbopump.cli.files import properties_text
from turbopump.cli.options import Json, LogLevel, port_option
from turbopump.cli.output import print_json, print_lines

if TYPE_CHECKING:
    from turbopump.cli.group.proxy_sidecar import ProxySidecar
    from turbopump.cli.progress import Recovering
    from turbopump.cluster import Cluster

Replicas = Annotated[
    int,
    typer.Option(
        "--replicas",
        min=0,
        max=8,
        help="Replicas of the broker; a send is answered once one has it. Their ports "
        "follow, 10 apart.",
    ),
]
ActingMaster = Annotated[
    bool,
    typer.Option(
        "--acting-master",
        help="With --replicas: while no master runs the lowest replica serves consumers. With "
        "--controllers: while they cannot elect a master.",
    ),
]
Brokers = Annotated[
    int,
    typer.Option(
        "--brokers",
        min=1,
        max=9,
        help="Brokers of the group, with --controllers. Their ports follow, 10 apart.",
    ),
]
Controllers = Annotated[
    int,
    typer.Option(
        "--controllers",
        min=0,
        max=9,
        help="Controllers that elect the brokers' master; 1, 3 or 5.",
    ),
]
ControllerPort = Annotated[
    int,
    port_option(
        "--controller-port", help="The first controller's port, others follow; 0 for free ones."
    ),
]
Processes = Annotated[
    bool | None,
    typer.Option(
        "--processes/--one-process",
        help="Each node in its own process, which `turbopump node` kills and starts. Default "
        "with controllers and with --acting-master.",
    ),
]
ProxyPort = Annotated[
    int | None,
    port_option(
        "--proxy-port",
        help="Also run a proxy: gRPC for all brokers at this port; 0 for a free one.",
    ),
]
MoreProperties = Annotated[
    Path | None,
    typer.Option("-c", "--config", metavar="FILE", help="Additional broker properties."),
]


def up(
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="Folder for all data and logs.")
    ] = Path("turbopump-data"),
    namesrv_port: Annotated[
        int, port_option("--namesrv-port", help="The name server's port; 0 for a free one.")
    ] = 9876,
    broker_port: Annotated[
        int, port_option("--broker-port", help="The broker's port; 0 for a free one.")
    ] = 10911,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            help="Address to listen at and to give to clients; 0.0.0.0 listens at all and gives "
            "this machine's.",
        ),
    ] = "127.0.0.1",
    replicas: Replicas = 0,
    acting_master: ActingMaster = False,
    brokers: Brokers = 1,
    controllers: Controllers = 0,
    controller_port: ControllerPort = 9877,
    proxy_port: ProxyPort = None,
    processes: Processes = None,
    config: MoreProperties = None,
    log_level: LogLevel = "info",
    as_json: Json = False,
) -> None:
    """Run a name server and a broker until Ctrl-C, and print where to connect.

    `--brokers 3 --controllers 3` is a whole group that elects another master when one is lost,
    `--replicas 2 --acting-master` one whose replicas serve consumers until it is back: break it
    with `turbopump node kill master`.
    """
    from turbopump.cli.group.proxy_sidecar import sidecar_of
    from turbopump.cli.progress import Recovering
    from turbopump.cluster import Cluster
    from turbopump.engine.keys import bare_host

    host = bare_host(host)
    if not host:
        raise UserError("no address to listen at is given: --host HOST")
    properties = {} if config is None else read_properties(config)
    _create_data_folder(data, log_level)
    recovering = Recovering(as_json)
    apart = controllers > 0 or acting_master if processes is None else processes
    cluster = Cluster(
        # Other processes read the files from other folders: they need the absolute path.
        data.absolute() if apart else data,
        host=host,
        namesrv_port=namesrv_port,
        broker_port=broker_port,
        replicas=replicas,
        acting_master=acting_master,
        brokers=brokers,
        controllers=controllers,
        controller_port=controller_port,
        broker_properties=properties,
        on_progress=recovering.show_progress,
    )
    if apart:
        from turbopump.cli.group.up_processes import up_processes

        up_processes(cluster, host, controllers, proxy_port, log_level, as_json)
        _print_stopped(as_json)
        return
    beside = None if proxy_port is None else sidecar_of(cluster, host, proxy_port)
    _run_here(cluster, beside, recovering, config, as_json)
    _print_stopped(as_json)


def _run_here(
    cluster: "Cluster",
    beside: "ProxySidecar | None",
    recovering: "Recovering",
    config: Path | None,
    as_json: bool,
) -> None:
    """Run all nodes on one loop of this process, until a signal."""
    from turbopump.cli.run_command import run
    from turbopump.cli.serve import NodeGroup, serve_until_signal

    def ready() -> None:
        recovering.remove_bar()
        for warning in cluster.warnings:
            logging.getLogger(__name__).warning("%s: %s", config, warning)
        _print_ready(cluster, "" if beside is None else beside.address, as_json)

    try:
        run(serve_until_signal(cluster if beside is None else NodeGroup(cluster, beside), ready))
    finally:
        recovering.remove_bar()


def _print_stopped(as_json: bool) -> None:
    if as_json:
        print_json({"event": "stopped"})
    else:
        print_lines(["Stopped; everything is written down."])


def _create_data_folder(data: Path, log_level: str) -> None:
    """Create the data folder and its log; raises UserError."""
    from turbopump.cli import logs
    from turbopump.cluster import prepare_data
    from turbopump.engine.types import StoreError

    try:
        prepare_data(data)
        logs.configure_logging(data / "logs", log_level)
    except OSError as error:
        raise UserError(f"the data folder cannot be used: {sentence_of(error)}") from None
    except StoreError as error:
        raise UserError(str(error)) from None


def read_properties(path: Path) -> dict[str, str]:
    """Read and check the broker properties of a file, and return them by key, as texts; warnings
    are logged. Raises UserError, which names the file."""
    from turbopump.broker.config.config import BrokerConfig
    from turbopump.net.wire.java_properties import PropertiesError, parse_properties

    try:
        found = parse_properties(properties_text(path))
        for warning in BrokerConfig().update_keys(found):
            logging.getLogger(__name__).warning("%s: %s", path, warning)
    except PropertiesError as error:
        raise UserError(f"{path}: {error}") from None
    return {item.key: item.value for item in found}


def _print_ready(cluster: "Cluster", proxy: str, as_json: bool) -> None:
    """Print that clients can connect, and all addresses."""
    if as_json:
        print_json(
            {
                "event": "ready",
                "namesrv": [cluster.namesrv],
                "controllers": cluster.controllers,
                "brokers": [dataclasses.asdict(broker) for broker in cluster.brokers],
                **({"proxy": proxy} if proxy else {}),
                "data": str(cluster.data.absolute()),
            }
        )
        return
    broker, *replicas = cluster.brokers
    copies = f", replicas at {', '.join(each.address for each in replicas)}" if replicas else ""
    found = cluster.controllers
    quorum = f", controllers {', '.join(found)}" if found else ""
    quorum += f", proxy at {proxy}" if proxy else ""
    print_lines(
        [
            f"Turbopump is ready. Name server {cluster.namesrv}, broker {broker.name} at "
            f"{broker.address}{copies}{quorum}, data in {cluster.data}.",
            "",
            f"  Point any RocketMQ client at {cluster.namesrv}; topics are created by sending.",
            f"  turbopump send    -n {cluster.namesrv} -t hello -p 'a first message'",
            f"  turbopump consume -n {cluster.namesrv} -t hello",
            f"  turbopump admin clusterList -n {cluster.namesrv}",
            f"  turbopump top     -n {cluster.namesrv}",
            "",
            "Ctrl-C stops it.",
        ],
        flush=True,
    )
