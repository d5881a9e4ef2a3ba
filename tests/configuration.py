"""Generator of docs/CONFIGURATION.md from the declarations of the keys.

`python -m tests.configuration` writes the page; `tests/test_configuration.py` fails if it is stale.
"""

import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from turbopump.broker.config.auth_config import AuthConfig
from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.config.replication_config import ReplicationConfig
from turbopump.broker.container.config import ContainerConfig
from turbopump.controller.config import ControllerConfig
from turbopump.engine.config import StoreConfig
from turbopump.engine.keys import Key, keys_of
from turbopump.namesrv.config import NamesrvConfig
from turbopump.net.config.idle import IdleKey
from turbopump.net.config.node_config import NodeConfig
from turbopump.net.transport.options import CLIENT_TLS_KEYS, SERVER_TLS_KEYS
from turbopump.proxy.config import ProxyConfig

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "CONFIGURATION.md"
NODES: Final[dict[str, type[NodeConfig]]] = {
    "broker": BrokerConfig,
    "name server": NamesrvConfig,
    "controller": ControllerConfig,
    "proxy": ProxyConfig,
    "container": ContainerConfig,
}
TABLES: Final = {
    "Broker": keys_of(BrokerConfig).values(),
    "Store": keys_of(StoreConfig).values(),
    "Replication": keys_of(ReplicationConfig).values(),
    "Users and rights": keys_of(AuthConfig).values(),
    "Name server": keys_of(NamesrvConfig).values(),
    "Controller": keys_of(ControllerConfig).values(),
    "Proxy": keys_of(ProxyConfig).values(),
    "Container": keys_of(ContainerConfig).values(),
    "TLS": (SERVER_TLS_KEYS | CLIENT_TLS_KEYS).values(),
}
BEFORE: Final = {
    "Broker": "Services of a broker. Its file has the keys of the store and of replication, too.",
    "Store": "The files of a broker, how often they are synced, and how long they are kept.",
    "Replication": "Which broker of a group is the master, and how many copies a message has"
    " before it is acknowledged. [replication.md](internals/replication.md) describes it.",
    "Users and rights": "Keys of a broker: the signatures of requests, and the rights of users."
    " [auth.md](internals/auth.md) describes them. No answer shows a credential, and no request"
    " changes these keys.",
    "Name server": "Routes of clients to brokers.",
    "Controller": "Election of masters. [controllers.md](internals/controllers.md) describes it.",
    "Proxy": "gRPC for a whole cluster. RocketMQ's rmq-proxy.json is read, too; its `tlsCertPath`,"
    " `tlsKeyPath`, `tlsKeyPassword` and `tlsTestModeEnable` are other names of keys of TLS."
    " A proxy has no port for administrators: it reads its file again every"
    " fetchNamesrvAddrInterval, for the keys that can change while it runs, unless name servers"
    " were given by `-n`."
    " [grpc.md](internals/grpc.md#a-proxy) describes it.",
    "Container": "Several brokers in one process. Each has a file of its own with the keys above."
    " [OPERATIONS.md](OPERATIONS.md) describes its use.",
    "TLS": "Keys of brokers, controllers and proxies; name servers and containers have only the"
    " server's keys. RocketMQ reads them from system properties or `tls.config.file`. No answer"
    " shows the password.",
}
INTRO: Final = """\
# Configuration

Brokers, name servers, controllers, proxies and containers of brokers read RocketMQ's properties
files: `key=value` lines. This page lists each key that does something here. It is written by
`python -m tests.configuration` from the declarations in the code, which the parser,
`getBrokerConfig` and the parts of a node use, too; do not edit it.

A value that a key cannot have is an error, and the node does not start. A key that no RocketMQ has
is named in a warning, and so is a key [without effect](#keys-without-effect) if its value differs
from RocketMQ's default. A key is [refused](#keys-that-are-refused) if ignoring its value would do
harm.

Live keys change while the node runs, by mqadmin's `updateBrokerConfig` and its like. The others are
read at the start, and a request that changes one is refused. Milliseconds, seconds, hours and
percent are RocketMQ's units. Where a default differs, the last column has RocketMQ's.
"""


def rows(keys: Iterable[Key]) -> Iterator[str]:
    """The rows of a table of keys, the first two its head."""
    yield "| key | value | default | live | meaning | in RocketMQ |"
    yield "|---|---|---|---|---|---|"
    for key in keys:
        names = " or ".join(f"`{name}`" for name in (key.name, *key.aliases))
        value = key.kind.expected.removeprefix("a whole number from ").replace("|", "\\|")
        shown = "" if key.default is None else key.kind.to_text(key.default)
        default = f"`{shown}`" if shown else ""
        live = "yes" if key.live else ""
        yield f"| {names} | {value} | {default} | {live} | {key.meaning} | {key.rocketmq} |"


def refused() -> Iterator[str]:
    """The rows of the table of refused keys, by reason."""
    nodes_of: dict[tuple[str, str], list[str]] = defaultdict(list)
    for node, config in NODES.items():
        for name, one in config.IDLE.items():
            if one.harm:
                nodes_of[name, one.harm].append(node)
    by_reason: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (name, harm), nodes in nodes_of.items():
        by_reason[harm, ", ".join(nodes)].append(f"`{name}`")
    yield "| key | of | why any value but the default is refused |"
    yield "|---|---|---|"
    for (harm, nodes), names in sorted(by_reason.items(), key=lambda one: (one[0][1], one[1])):
        yield f"| {', '.join(sorted(names))} | {nodes} | {harm} |"


def without_effect(keys: dict[str, IdleKey]) -> str:
    """The names of keys that do nothing, and the value in force where that is not the default."""
    names = (
        f"`{name}`" if one.here == (one.default or "") else f"`{name}` (`{one.here}`)"
        for name, one in sorted(keys.items())
        if not one.harm
    )
    return textwrap.fill(", ".join(names), 140, break_on_hyphens=False, break_long_words=False)


def page() -> str:
    """Text of the whole page."""
    parts = [INTRO]
    for title, keys in TABLES.items():
        table = "\n".join(rows(keys))
        parts.append(f"## {title}\n\n{textwrap.fill(BEFORE[title], 140)}\n\n{table}\n")
    table = "\n".join(refused())
    parts.append(f"## Keys that are refused\n\nIgnoring them would harm.\n\n{table}\n")
    parts.append(
        "## Keys without effect\n\nThey are accepted and shown, so that RocketMQ's files and tools"
        " work unchanged. In brackets: what holds\nhere, where that is not RocketMQ's default.\n"
    )
    for node, config in NODES.items():
        parts.append(f"### Of a {node}\n\n{without_effect(dict(config.IDLE))}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
