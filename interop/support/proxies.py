"""Proxies in front of groups, in the mode that serves a whole cluster: RocketMQ's 5.5.0, or
ours."""

import json
from collections.abc import Mapping
from pathlib import Path

from interop.support import groups, processes, toolchain
from interop.support.groups import CLUSTER, Group
from interop.support.ports import free_ports
from interop.support.processes import Process

HEAP_MB = 256


def _config(
    group: Group, home: Path, grpc: int, remoting: int, settings: Mapping[str, object]
) -> Path:
    """Write the file that RocketMQ's proxy and ours are started with."""
    config = {
        "rocketMQClusterName": CLUSTER,
        "proxyClusterName": CLUSTER,
        "namesrvAddr": group.ports.namesrv_address,
        "grpcServerPort": grpc,
        "remotingListenPort": remoting,
        **settings,
    }
    home.mkdir(parents=True)
    file = home / "proxy.json"
    file.write_text(json.dumps(config))
    return file


def start_ours(
    group: Group, home: Path, settings: Mapping[str, object] | None = None
) -> tuple[Process, str]:
    """Start our proxy; returns it and its address for clients when it listens."""
    grpc, remoting = free_ports(2)
    file = _config(group, home, grpc, remoting, settings or {})
    proxy = Process("proxy", [groups.TURBOPUMP, "proxy", "-c", str(file)], home)
    groups.wait_listening(grpc, proxy)
    return proxy, f"127.0.0.1:{grpc}"


def start(
    group: Group, home: Path, settings: Mapping[str, object] | None = None
) -> tuple[Process, str]:
    """Start RocketMQ's proxy; returns it and its address for gRPC clients when it listens."""
    grpc, remoting = free_ports(2)
    file = _config(group, home, grpc, remoting, settings or {})
    proxy = processes.java(
        "proxy",
        "org.apache.rocketmq.proxy.ProxyStartup",
        toolchain.classpath("proxy"),
        ["-pc", str(file)],
        home,
        heap_mb=HEAP_MB,
    )
    groups.wait_listening(grpc, proxy)
    return proxy, f"127.0.0.1:{grpc}"
