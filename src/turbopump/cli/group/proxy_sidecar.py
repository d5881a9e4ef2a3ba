"""The proxy that `turbopump up --proxy-port` runs beside a group.

Owns the time of its creation: after the group has started, because only then is the name server's
address known.

Tests: tests/unit/cli/group/test_up_processes.py
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from turbopump.cli.errors import UserError

if TYPE_CHECKING:
    from turbopump.cluster import Cluster
    from turbopump.proxy.config import ProxyConfig
    from turbopump.proxy.node import ProxyNode


class ProxySidecar:
    """A proxy in this process, for the brokers of the name server whose `host:port` `namesrv`
    returns when the proxy starts; `tls` are properties."""

    def __init__(
        self, namesrv: Callable[[], str], host: str, port: int, tls: dict[str, str]
    ) -> None:
        self._namesrv = namesrv
        self._host = host
        self._port = port
        self._tls = tls
        self._node: ProxyNode | None = None

    @property
    def address(self) -> str:
        """The `host:port` at which gRPC clients connect; only after `start`."""
        assert self._node is not None, "it is started"
        return self._node.address

    async def start(self) -> None:
        """Start the proxy on the running loop, and return when it listens; it may not know the
        cluster yet. Raises ConfigError if a property is wrong or the port cannot be opened,
        UserError if protobuf is missing."""
        from turbopump.proxy.config import ProxyConfig

        config = ProxyConfig(
            namesrv_addr=[self._namesrv()],
            bind_address=self._host,
            grpc_server_port=self._port,
            tls_properties=self._tls,
        )
        self._node = proxy_node(config)
        await self._node.start()

    async def stop(self) -> None:
        """Stop the proxy if it was started."""
        if self._node is not None:
            await self._node.stop()


def sidecar_of(
    cluster: "Cluster", host: str, port: int, namesrv: Callable[[], str] | None = None
) -> ProxySidecar:
    """Make the proxy that runs beside a cluster, not started, with the cluster's certificates, and
    by TLS if the brokers require it.

    `namesrv` returns the name server's address if it runs in another process.
    """
    properties = cluster.broker_properties(0, "", [])
    tls = {key: value for key, value in properties.items() if key.startswith("tls.")}
    return ProxySidecar(namesrv or (lambda: cluster.namesrv), host, port, tls)


def proxy_node(config: "ProxyConfig") -> "ProxyNode":
    """Build a proxy, not started; raises UserError if a package is missing."""
    try:
        from turbopump.proxy.node import ProxyNode
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("google"):
            raise
        raise UserError(f"a proxy needs protobuf: {error}; install protobuf") from None
    return ProxyNode(config)
