"""The properties files of a group's nodes: DATA/conf/NAME.properties.

Owns their names, their ports, and the choice of an earlier file's keys to keep. It must never start
a process. Each file is complete: `turbopump broker -c FILE` (`namesrv`, `controller`) runs that
node without `turbopump up`, here or, with other addresses and folders, on another machine.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from turbopump.cli.errors import UserError, sentence_of
from turbopump.cli.group.ports import free_port
from turbopump.cluster import (
    CHANGES,
    LOOPBACK,
    NAMESRV_OWN,
    SUPPORT_ACTING,
    WILDCARDS,
    Cluster,
    ClusterError,
    changed_before,
)
from turbopump.controller.config import format_peers
from turbopump.engine.disk.real_files import RealFiles
from turbopump.net.wire.hosts import join
from turbopump.net.wire.java_properties import (
    PropertiesError,
    format_properties,
    parse_properties,
)

FOLDER: Final = "conf"
"""Name of the folder of properties files in the data folder."""
NAMESRV: Final = "namesrv"
"""Kind of a name server, and its name."""
CONTROLLER: Final = "controller"
"""Kind of a controller; names are this, a dash and its id."""
BROKER: Final = "broker"
"""Kind of a broker."""

OF_THE_GROUP: Final = NAMESRV_OWN | frozenset(
    (
        "brokerId",
        "brokerRole",
        "controllerAddr",
        "controllerDLegerPeers",
        "enableControllerMode",
        "enableSlaveActingMaster",
        "haListenPort",
        "haMasterAddress",
        "inSyncReplicas",
        "namesrvAddr",
        "storePathRootDir",
        SUPPORT_ACTING,
        "totalReplicas",
        "vipPortEnable",
    )
)
"""Keys that define the group.

Their values in an earlier file are replaced, because that file may belong to another group. Other
keys are kept: an operator may have changed them at run time.
"""


@dataclass(frozen=True, slots=True)
class NodeFile:
    """A node: `kind` is the command that runs it, `path` its properties file, `address` its
    `host:port`."""

    name: str
    kind: str
    path: Path
    address: str


def write_files(cluster: Cluster, host: str, controllers: int) -> list[NodeFile]:
    """Write the properties files of all nodes of a cluster that is not started, and return the
    nodes in the order of their start: name server, controllers, brokers.

    A port of 0 is replaced by a free port here, because a node must keep its port after a restart.
    Raises UserError.
    """
    folder = cluster.data / FOLDER
    node_host = LOOPBACK if host in WILDCARDS else host
    nodes: list[NodeFile] = []

    def add(name: str, kind: str, properties: dict[str, str], changes: str) -> None:
        """Write one node's file.

        `changes` is the file in which a run with --one-process keeps an operator's changes.
        """
        path = folder / f"{name}.properties"
        _write(path, properties, changes)
        nodes.append(NodeFile(name, kind, path, join(node_host, int(properties["listenPort"]))))

    try:
        folder.mkdir(exist_ok=True)
        taken: set[int] = set()
        properties = _with_port(cluster.namesrv_properties(), node_host, taken, 1)
        add(NAMESRV, NAMESRV, properties, str(cluster.data / "namesrv" / "namesrv.properties"))
        given = [
            _with_port(cluster.controller_properties(number), node_host, taken, 1)
            for number in range(controllers)
        ]
        members = {
            each["controllerDLegerSelfId"]: join(node_host, int(each["listenPort"]))
            for each in given
        }
        for properties in given:
            own = {**properties, "controllerDLegerPeers": format_peers(members)}
            own_id = own["controllerDLegerSelfId"]
            changes = str(cluster.data / "controller" / f"{own_id}.properties")
            add(f"{CONTROLLER}-{own_id}", CONTROLLER, own, changes)
        for number in range(cluster.broker_count):
            properties = cluster.broker_properties(number, nodes[0].address, list(members.values()))
            properties = _with_port(properties, node_host, taken, 2)
            root = properties["storePathRootDir"]
            add(os.path.basename(root), BROKER, properties, f"{root}{CHANGES}")
    except ClusterError as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(f"configuration files cannot be written: {sentence_of(error)}") from None
    return nodes


def _with_port(
    properties: dict[str, str], host: str, taken: set[int], count: int
) -> dict[str, str]:
    """Return properties with a free port in place of 0, followed by `count` - 1 free ports."""
    if properties["listenPort"] != "0":
        return properties
    port = free_port(host, taken, count)
    taken.update(range(port, port + count))
    # the VIP port would be two below, and is not known to be free
    vip = {"vipPortEnable": "false"} if count > 1 else {}
    return {**properties, "listenPort": str(port), **vip}


def _write(path: Path, properties: dict[str, str], changes: str) -> None:
    """Replace a file, durably; an operator's later changes stay.

    A copy of the text written last, NAME.written, shows which keys an operator has changed.
    """
    files, written = RealFiles(), path.with_suffix(".written")
    kept = {item.key: item.value for item in changed_before(changes)}
    before, first = _read(path), _read(written)
    kept |= {key: value for key, value in before.items() if first.get(key) != value}
    kept = {key: value for key, value in kept.items() if key not in OF_THE_GROUP}
    for to, values in ((written, properties), (path, {**properties, **kept})):
        files.write(f"{to}.tmp", format_properties(values).encode())
        files.sync(f"{to}.tmp")
        files.rename(f"{to}.tmp", str(to))
    files.sync_folder(str(path.parent))


def _read(path: Path) -> dict[str, str]:
    """The properties of a file; empty if the file is missing. Raises OSError, UserError."""
    if not path.exists():
        return {}
    try:
        text = path.read_bytes().decode("utf-8", "replace")
        return {item.key: item.value for item in parse_properties(text)}
    except PropertiesError as error:
        raise UserError(f"{path}: {error}") from None
