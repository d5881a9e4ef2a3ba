"""The sides of the gRPC rows: our broker as it is, and RocketMQ's proxy with its broker inside.

Owns the start of RocketMQ's proxy in local mode: one process, so that its processor time is all
that a call costs. It must never load anything.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.versus.servers import HEAP_MB, JAVA_OPTIONS, KINDS, RocketMQ, Server
from bench.versus.targets import THEIRS
from interop.support import groups, processes, toolchain
from interop.support.groups import CLUSTER, Ports
from interop.support.ports import free_ports
from interop.support.processes import Process

PROXIED: Final = "rocketmq-proxy"
"""The kind of server that replaces `rocketmq`."""


@dataclass(frozen=True)
class LocalProxy(RocketMQ):
    """RocketMQ's proxy in local mode, with 2 GB of heap as its broker has."""

    ports: list[int] = field(default_factory=list)
    """Ports of the last started proxy: gRPC, remoting."""

    def broker(self, ports: Ports, folder: Path, store: Path, settings: dict[str, str]) -> Process:
        """Start RocketMQ's proxy with its broker inside, on this store, with these broker
        properties; return the process."""
        broker = groups.broker_properties(ports, folder, store, settings)
        self.ports[:] = free_ports(2)
        config = {
            "rocketMQClusterName": CLUSTER,
            "proxyMode": "LOCAL",
            "namesrvAddr": ports.namesrv_address,
            "grpcServerPort": self.ports[0],
            "remotingListenPort": self.ports[1],
        }
        file = folder / "proxy.json"
        file.write_text(json.dumps(config))
        return processes.java(
            "proxy",
            "org.apache.rocketmq.proxy.ProxyStartup",
            toolchain.classpath("proxy"),
            ["-pm", "local", "-pc", str(file), "-bc", str(broker)],
            folder,
            heap_mb=HEAP_MB,
            options=JAVA_OPTIONS,
        )


_PROXY: Final = LocalProxy()
KINDS[PROXIED] = _PROXY


def kind_of(side: str) -> str:
    """Return the kind of server that a side has for gRPC."""
    return PROXIED if side == THEIRS else side


def port_of(server: Server) -> int:
    """Return the port for a server's gRPC clients."""
    return _PROXY.ports[0] if server.kind == PROXIED else server.ports.broker
