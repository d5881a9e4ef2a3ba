"""`turbopump up` of a group whose nodes are processes.

Owns the output.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from turbopump.cli.errors import UserError
from turbopump.cli.group.control import Control
from turbopump.cli.group.files import write_files
from turbopump.cli.group.processes import Processes
from turbopump.cli.group.proxy_sidecar import sidecar_of
from turbopump.cli.output import format_columns, print_json, print_lines
from turbopump.cli.run_command import client_options, run
from turbopump.cli.serve import NodeGroup, serve_until_signal
from turbopump.cluster import Cluster, ClusterError

if TYPE_CHECKING:
    from turbopump.net.client.options import ClientOptions

NODE_LINE = "  {:<20} {:>8}  {:<24} {}"
"""Layout of a node's line, for `output.format_columns`."""


def up_processes(
    cluster: Cluster,
    host: str,
    controllers: int,
    proxy_port: int | None,
    log_level: str,
    as_json: bool,
) -> None:
    """Run the group, with a proxy unless `proxy_port` is None, and block until a signal; raises
    UserError if it cannot start. Prints the ready event and changes."""
    group = _Group(cluster, host, controllers, log_level, as_json)
    if proxy_port is None:
        run(serve_until_signal(group, group.print_addresses))
        return
    beside = sidecar_of(cluster, host, proxy_port, lambda: group.namesrv)
    run(serve_until_signal(NodeGroup(group, beside), lambda: group.print_addresses(beside.address)))


class _Group:
    """The processes and their control socket as one node."""

    def __init__(
        self, cluster: Cluster, host: str, controllers: int, log_level: str, as_json: bool
    ) -> None:
        self._cluster = cluster
        self._size = host, controllers
        self._log_level = log_level
        self._json = as_json
        self._is_ready = False
        self._nodes: list[dict[str, Any]] = []
        self._brokers: list[dict[str, Any]] = []
        self._processes: Processes | None = None
        self._control = Control(cluster.data, self._answer_request)

    async def start(self) -> None:
        """Start the control socket and all processes; after an error nothing runs."""
        try:
            self._cluster.check()
        except ClusterError as error:
            raise UserError(str(error)) from None
        await self._control.start()
        try:
            host, controllers = self._size
            files = write_files(self._cluster, host, controllers)
            logs = self._cluster.data / "logs"
            self._processes = Processes(
                files, logs, self._log_level, self._print_event, _options_of(self._cluster)
            )
            await self._processes.start()
            self._nodes = await self._processes.node_states()
            self._brokers = await self._processes.registered_brokers()
        except BaseException:
            await self._control.stop()
            raise

    async def stop(self) -> None:
        """Stop brokers first, the name server last, then the control socket."""
        self._is_ready = False
        try:
            if self._processes is not None:
                await self._processes.stop()
        finally:
            await self._control.stop()

    async def _answer_request(self, question: dict[str, Any]) -> Any:
        """Execute a request of `turbopump node`, and return its result. Raises UserError."""
        what, name = question.get("do"), question.get("node")
        if self._processes is None:
            raise UserError("the group is being started")
        if what == "list":
            return await self._processes.node_states()
        if what not in ("start", "stop", "kill") or not isinstance(name, str):
            raise UserError("start, stop or kill a node, or list them")
        return await self._processes.act_on_node(what, name)

    def _print_event(self, event: dict[str, Any]) -> None:
        """Print an event of the processes; without --json only changes of nodes after the start."""
        if self._json:
            print_json(event)
        elif self._is_ready and event["event"] == "node":
            print_lines([f"{event['node']} (pid {event['pid']}): {event['state']}"], flush=True)

    @property
    def namesrv(self) -> str:
        """The name server's `host:port`."""
        return str(self._nodes[0]["address"])

    def print_addresses(self, proxy: str = "") -> None:
        """Print that the group serves clients, and its addresses."""
        self._is_ready = True
        cluster, nodes = self._cluster, self._nodes
        namesrv = self.namesrv
        if self._json:
            print_json(
                {
                    "event": "ready",
                    "namesrv": [namesrv],
                    "controllers": [
                        each["address"] for each in nodes if each["node"].startswith("controller-")
                    ],
                    "brokers": self._brokers,
                    "nodes": nodes,
                    **({"proxy": proxy} if proxy else {}),
                    "data": str(cluster.data.absolute()),
                }
            )
            return
        where = _data_option(cluster.data)
        last = next(each["node"] for each in reversed(nodes) if _is_broker(each, self._brokers))
        print_lines(
            [
                f"Turbopump is ready. Name server {namesrv}, "
                f"{f'proxy at {proxy}, ' if proxy else ''}data in {cluster.data}.",
                "",
                format_columns(NODE_LINE, "node", "pid", "address", "configuration"),
                *(
                    format_columns(
                        NODE_LINE, each["node"], each["pid"], each["address"], each["config"]
                    )
                    for each in nodes
                ),
                "",
                f"  Point any RocketMQ client at {namesrv}; topics are created by sending.",
                f"  turbopump bench producer -n {namesrv} -t hello",
                f"  turbopump top     -n {namesrv}",
                f"  turbopump node kill master{where}",
                f"  turbopump node start {last}{where}",
                "",
                "Ctrl-C stops all of them.",
            ],
            flush=True,
        )


def _is_broker(node: dict[str, Any], brokers: list[dict[str, Any]]) -> bool:
    return any(each["node"] == node["node"] for each in brokers)


def _data_option(data: Path) -> str:
    """The option --data for a command line, "" for the default folder."""
    return "" if data == Path("turbopump-data").absolute() else f" --data {data}"


def _options_of(cluster: Cluster) -> "ClientOptions":
    """Client options for queries of the own brokers: by TLS if they require it."""
    options = client_options()
    properties = cluster.broker_properties(0, "", [])
    if options.tls or properties["tls.enable"] != "true":
        return options
    from turbopump.net.client.options import ClientOptions
    from turbopump.net.transport.options import ClientTlsSettings

    settings = ClientTlsSettings.from_properties(
        {key: value for key, value in properties.items() if key.startswith("tls.")}
    )
    return ClientOptions(tls=settings or True)
