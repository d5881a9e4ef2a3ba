"""`turbopump namesrv`, `controller`, `broker`, `container`, `proxy`: nodes with RocketMQ's files.

Owns the reading of the configuration file and the warnings about it.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turbopump.cli import logs
from turbopump.cli.errors import CommandFailed, UserError, sentence_of
from turbopump.cli.files import properties_text, read_text
from turbopump.cli.options import Json, LogLevel, port_option, split_addresses
from turbopump.cli.output import print_json, print_lines

if TYPE_CHECKING:
    from turbopump.broker.container.config import ContainerConfig
    from turbopump.broker.container.node import BrokerEvent
    from turbopump.cli.serve import Node
    from turbopump.controller.config import ControllerConfig
    from turbopump.controller.node import ControllerNode
    from turbopump.namesrv.config import NamesrvConfig
    from turbopump.net.wire.java_properties import Property

ConfigFile = Annotated[
    Path | None,
    typer.Option("-c", "--configFile", metavar="FILE", help="RocketMQ's properties file."),
]
NameServers = Annotated[
    str | None,
    typer.Option(
        "-n", "--namesrvAddr", metavar="HOST:PORT", help="Overrides namesrvAddr of the file."
    ),
]
NO_NAME_SERVER = (
    "there is no namesrvAddr, and no -n: the broker registers at no name server, so only gRPC "
    "clients that are given its address find it"
)
"""Warning of a broker without name servers."""
LogFolder = Annotated[
    Path | None,
    typer.Option("--log-dir", metavar="DIR", help="Folder for log files, besides stderr."),
]


def namesrv(
    config_file: ConfigFile = None,
    port: Annotated[
        int | None, port_option("-p", "--port", help="Overrides listenPort of the file.")
    ] = None,
    log_folder: LogFolder = None,
    log_level: LogLevel = "info",
    as_json: Json = False,
) -> None:
    """Run one name server until Ctrl-C; with a controller if enableControllerInNamesrv=true."""
    from turbopump.cli.serve import NodeGroup
    from turbopump.controller.config import ControllerConfig
    from turbopump.namesrv.config import NamesrvConfig
    from turbopump.namesrv.node import NameServerNode

    _begin_logging(log_folder, log_level)
    config, quorum = NamesrvConfig(), ControllerConfig()
    given = _properties_of(config_file)
    foreign = {
        item.key for item in given if quorum.has_key(item.key) and not config.has_key(item.key)
    }
    warnings = _set_properties(
        config, [item for item in given if item.key not in foreign], config_file
    )
    if config_file is not None and not config.config_store_path:
        config.config_store_path = str(config_file)
    if port is not None:
        config.listen_port = port
    node = NameServerNode(config)
    nodes: list[NameServerNode | ControllerNode] = [node]
    if config.enable_controller_in_namesrv:
        # listenPort is the name server's; the controller's port is in its entry of the peers.
        own = [item for item in given if quorum.has_key(item.key) and item.key != "listenPort"]
        _set_properties(quorum, own, config_file)
        quorum.config_store_path = config.config_store_path
        nodes.append(_controller_node(quorum))
    elif foreign:
        warnings.append(f"enableControllerInNamesrv is not true, so {min(foreign)} has no effect")
    _log_warnings(config_file, warnings)

    def ready() -> None:
        _print_ready("name server", node.address, as_json)
        for each in nodes[1:]:
            _print_ready(f"controller {quorum.self_id}", each.address, as_json)

    _run_node(NodeGroup(*nodes), ready)
    _print_stopped(as_json)


def controller(
    config_file: ConfigFile = None,
    log_folder: LogFolder = None,
    log_level: LogLevel = "info",
    as_json: Json = False,
) -> None:
    """Run one controller until Ctrl-C; with a majority of its peers it elects masters."""
    from turbopump.controller.config import ControllerConfig

    _begin_logging(log_folder, log_level)
    config = ControllerConfig()
    warnings = _set_properties(config, _properties_of(config_file), config_file)
    if config_file is not None and not config.config_store_path:
        config.config_store_path = str(config_file)
    _log_warnings(config_file, warnings)
    node = _controller_node(config)
    _run_node(node, lambda: _print_ready(f"controller {config.self_id}", node.address, as_json))
    _print_stopped(as_json)


def broker(
    config_file: ConfigFile = None,
    name_servers: NameServers = None,
    log_folder: LogFolder = None,
    log_level: LogLevel = "info",
    as_json: Json = False,
) -> None:
    """Run one broker until Ctrl-C."""
    from turbopump.broker.config.config import load_config
    from turbopump.broker.node import BrokerNode
    from turbopump.cli.progress import Recovering

    _begin_logging(log_folder, log_level)
    with _errors_of(config_file):
        config, warnings = load_config(_file_text(config_file), str(config_file or ""))
    if name_servers is not None:
        config.namesrv_addr = split_addresses(name_servers)
    _log_warnings(config_file, warnings)
    if not config.namesrv_addr:
        logging.getLogger(__name__).warning(NO_NAME_SERVER)
    recovering = Recovering(as_json)
    node = BrokerNode(config, on_progress=recovering.show_progress)

    def ready() -> None:
        recovering.remove_bar()
        _print_ready(f"broker {config.broker_name}", node.address, as_json)

    try:
        _run_node(node, ready)
    finally:
        recovering.remove_bar()
    _print_stopped(as_json)


def proxy(
    config_file: Annotated[
        Path | None,
        typer.Option(
            "-c", "--configFile", metavar="FILE", help="RocketMQ's rmq-proxy.json, or properties."
        ),
    ] = None,
    name_servers: NameServers = None,
    port: Annotated[
        int | None, port_option("-p", "--port", help="Overrides grpcServerPort of the file.")
    ] = None,
    log_folder: LogFolder = None,
    log_level: LogLevel = "info",
    as_json: Json = False,
) -> None:
    """Run one proxy until Ctrl-C: gRPC for a whole cluster, at one address."""
    from turbopump.cli.group.proxy_sidecar import proxy_node
    from turbopump.proxy.config import ProxyConfig, read_file

    _begin_logging(log_folder, log_level)
    config = ProxyConfig()
    with _errors_of(config_file):
        warnings = config.update_keys(
            read_file("" if config_file is None else read_text(config_file))
        )
    if name_servers is not None:
        config.namesrv_addr = split_addresses(name_servers)
    elif config_file is not None:
        config.path = str(config_file)
    if port is not None:
        config.grpc_server_port = port
    _log_warnings(config_file, warnings)
    node = proxy_node(config)
    _run_node(node, lambda: _print_ready("proxy", node.address, as_json))
    _print_stopped(as_json)


def container(
    config_file: ConfigFile = None,
    broker_files: Annotated[
        str | None,
        typer.Option(
            "-b",
            "--brokerConfigFiles",
            metavar="FILE:FILE",
            help="The brokers' files; overrides brokerConfigPaths of the file.",
        ),
    ] = None,
    name_servers: NameServers = None,
    log_folder: LogFolder = None,
    log_level: LogLevel = "info",
    as_json: Json = False,
) -> None:
    """Run several brokers in one process until Ctrl-C, each with its own file and store.

    `admin addBroker` and `removeBroker` start and stop single brokers.
    """
    from turbopump.broker.container.config import ContainerConfig
    from turbopump.broker.container.node import BROKER, ContainerNode
    from turbopump.net.wire.java_properties import Property

    _begin_logging(log_folder, log_level)
    logs.name_brokers(BROKER.get)
    config = ContainerConfig(path=str(config_file or ""))
    given = _properties_of(config_file)
    if broker_files is not None:
        given.append(Property("brokerConfigPaths", broker_files))
    _log_warnings(config_file, _set_properties(config, given, config_file))
    if name_servers is not None:
        config.namesrv_addr = split_addresses(name_servers)
    node = ContainerNode(config, on_event=lambda event: _print_broker_event(event, as_json))
    _run_node(node, lambda: _print_ready("container", node.address, as_json))
    if node.unclean:
        raise CommandFailed("; ".join(node.unclean))
    _print_stopped(as_json)


def _print_broker_event(event: "BrokerEvent", as_json: bool) -> None:
    """Print that a broker of a container is ready, has failed or has stopped."""
    if event.kind == "ready":
        _print_ready(f"broker {event.name}", event.text, as_json)
    elif as_json:
        print_json({"event": event.kind, "node": f"broker {event.name}", "reason": event.text})
    elif event.kind == "failed":
        print_lines([f"The broker of {event.name} does not run: {event.text}"], flush=True)
    else:
        print_lines([f"Turbopump broker {event.name} has stopped."], flush=True)


def _controller_node(config: "ControllerConfig") -> "ControllerNode":
    # imported only if used: most name servers run no controller
    from turbopump.controller.node import ControllerNode

    return ControllerNode(config)


def _properties_of(path: Path | None) -> "list[Property]":
    """Parse the configuration file; no properties without a file. Raises UserError."""
    from turbopump.net.wire.java_properties import parse_properties

    with _errors_of(path):
        return parse_properties(_file_text(path))


def _set_properties(
    config: "NamesrvConfig | ControllerConfig | ContainerConfig",
    properties: "list[Property]",
    path: Path | None,
) -> list[str]:
    """Set the properties in `config`; returns warnings. Raises UserError that names the file."""
    with _errors_of(path):
        return config.update_keys(properties)


@contextmanager
def _errors_of(path: Path | None) -> Iterator[None]:
    """Raise an error about properties inside the block as a UserError that names the
    configuration file."""
    from turbopump.net.wire.java_properties import PropertiesError

    try:
        yield
    except PropertiesError as error:
        raise UserError(f"{path}: {error}") from None


def _file_text(path: Path | None) -> str:
    """Text of the configuration file; "" without a file. Raises UserError."""
    return "" if path is None else properties_text(path)


def _begin_logging(folder: Path | None, level: str) -> None:
    try:
        logs.configure_logging(folder, level)
    except OSError as error:
        raise UserError(f"the log folder cannot be used: {sentence_of(error)}") from None


def _log_warnings(path: Path | None, warnings: list[str]) -> None:
    for warning in warnings:
        logging.getLogger(__name__).warning("%s: %s", path, warning)


def _run_node(node: "Node", ready: Callable[[], None]) -> None:
    """Run a node until a signal stops it."""
    from turbopump.cli.run_command import run
    from turbopump.cli.serve import serve_until_signal

    run(serve_until_signal(node, ready))


def _print_ready(what: str, address: str, as_json: bool) -> None:
    if as_json:
        print_json({"event": "ready", "node": what, "address": address})
    else:
        print_lines([f"Turbopump {what} is ready at {address}. Ctrl-C stops it."], flush=True)


def _print_stopped(as_json: bool) -> None:
    """Print the event that the node has stopped, with --json only."""
    if as_json:
        print_json({"event": "stopped"})
