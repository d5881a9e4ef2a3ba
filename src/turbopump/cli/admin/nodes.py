"""`admin` commands about brokers and name servers: `getBrokerConfig`, `updateBrokerConfig`,
`getNamesrvConfig`, `updateNamesrvConfig`, `wipeWritePerm`, `addWritePerm`, `cleanUnusedTopic`,
`cleanExpiredCQ`, `topicClusterList` and `statsAll`.

Owns their options and columns (RocketMQ: tools/command/broker, namesrv, stats);
net/client/admin/nodes.py sends the requests.

Tests: tests/unit/cli/admin/test_more_commands.py
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from turbopump.cli.admin.brokers import WholeCluster
from turbopump.cli.admin.controller import config_lines
from turbopump.cli.options import DEFAULT_NAMESRV, Json, Namesrv, OneBroker, Topic, one_place
from turbopump.cli.output import format_table, print_json, print_lines, print_result, shorten_text
from turbopump.cli.run_command import run_with_admin

if TYPE_CHECKING:
    from turbopump.net.client.admin.client import Admin
    from turbopump.net.client.admin.results import NodeProperties, WritePerm

T = TypeVar("T")

STATS = "{:<64}  {:<64} {:>12} {:>11} {:>11} {:>14} {:>14}"
"""Layout of a line of statsAll, for `output.format_table`."""

Key = Annotated[str, typer.Option("-k", "--key", metavar="KEY", help="The property.")]
Value = Annotated[str, typer.Option("-v", "--value", metavar="VALUE", help="Its new value.")]
BrokerName = Annotated[
    str, typer.Option("-b", "--brokerName", metavar="NAME", help="The broker's name.")
]


def register(app: typer.Typer) -> None:
    """Add the commands about brokers and name servers to `app`."""
    app.command("getBrokerConfig")(broker_config)
    app.command("updateBrokerConfig")(update_broker_config)
    app.command("getNamesrvConfig")(namesrv_config)
    app.command("updateNamesrvConfig")(update_namesrv_config)
    app.command("wipeWritePerm")(wipe_write_perm)
    app.command("addWritePerm")(add_write_perm)
    app.command("cleanUnusedTopic")(clean_unused_topics)
    app.command("cleanExpiredCQ")(clean_expired_queues)
    app.command("topicClusterList")(topic_clusters)
    app.command("statsAll")(stats_all)


def broker_config(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    broker: OneBroker = None,
    cluster: WholeCluster = None,
    as_json: Json = False,
) -> None:
    """Print the properties of a broker, or of every broker of a cluster."""
    found = _ask_at(namesrv, broker, cluster, lambda admin: admin.broker_config)
    _show_properties(found, as_json)


def update_broker_config(
    key: Key,
    value: Value,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    broker: OneBroker = None,
    cluster: WholeCluster = None,
    as_json: Json = False,
) -> None:
    """Change one property of a broker, or of every broker of a cluster, while it runs."""
    done = _ask_at(
        namesrv, broker, cluster, lambda admin: partial(admin.update_broker_config, key, value)
    )
    print_result(
        done, as_json, [f"update broker config success, {each}" for each in done.addresses]
    )


def namesrv_config(namesrv: Namesrv = DEFAULT_NAMESRV, as_json: Json = False) -> None:
    """Print the properties of each name server."""
    _show_properties(run_with_admin(namesrv, lambda admin: admin.namesrv_config()), as_json)


def update_namesrv_config(
    key: Key, value: Value, namesrv: Namesrv = DEFAULT_NAMESRV, as_json: Json = False
) -> None:
    """Change one property of each name server while it runs."""
    done = run_with_admin(namesrv, lambda admin: admin.update_namesrv_config(key, value))
    where = ", ".join(done.addresses)
    print_result(
        done, as_json, [f"update name server config success![{where}]", f"{key} : {value}"]
    )


def _show_properties(found: "list[NodeProperties]", as_json: bool) -> None:
    for node in found:
        print_result(node, as_json, config_lines(node))


def _ask_at(
    namesrv: str,
    broker: str | None,
    cluster: str | None,
    command: "Callable[[Admin], Callable[..., Awaitable[T]]]",
) -> T:
    """Run a command at one broker, or at every broker of a cluster, and return its result."""
    one_place(broker, cluster)
    return run_with_admin(namesrv, lambda admin: command(admin)(broker=broker, cluster=cluster))


def wipe_write_perm(
    broker_name: BrokerName, namesrv: Namesrv = DEFAULT_NAMESRV, as_json: Json = False
) -> None:
    """Stop clients from sending to a broker, before it is stopped; they can still read from it."""
    done = run_with_admin(namesrv, lambda admin: admin.wipe_write_perm(broker_name))
    _show_perm("wipe", done, as_json)


def add_write_perm(
    broker_name: BrokerName, namesrv: Namesrv = DEFAULT_NAMESRV, as_json: Json = False
) -> None:
    """Let clients send to a broker again after wipeWritePerm."""
    done = run_with_admin(namesrv, lambda admin: admin.add_write_perm(broker_name))
    _show_perm("add", done, as_json)


def _show_perm(verb: str, done: "WritePerm", as_json: bool) -> None:
    """Print, for each name server, the number of topics whose write permission changed."""
    lines = [
        f"{verb} write perm of broker[{done.broker_name}] in name server[{address}] OK, {count}"
        for address, count in done.topics.items()
    ]
    print_result(done, as_json, lines)


def clean_unused_topics(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    broker: OneBroker = None,
    cluster: WholeCluster = None,
    as_json: Json = False,
) -> None:
    """Remove the queue files of topics that no longer exist."""
    done = _ask_at(namesrv, broker, cluster, lambda admin: admin.clean_unused_topics)
    _print_success(done, as_json)


def clean_expired_queues(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    broker: OneBroker = None,
    cluster: WholeCluster = None,
    as_json: Json = False,
) -> None:
    """Remove queue files whose messages have left the log."""
    done = _ask_at(namesrv, broker, cluster, lambda admin: admin.clean_expired_queues)
    _print_success(done, as_json)


def _print_success(addresses: list[str], as_json: bool) -> None:
    """Print `success`, or as JSON the addresses of the brokers that succeeded."""
    if as_json:
        print_json({"brokers": addresses})
    else:
        print_lines(["success"])


def topic_clusters(topic: Topic, namesrv: Namesrv = DEFAULT_NAMESRV, as_json: Json = False) -> None:
    """List the clusters that have a topic."""
    found = run_with_admin(namesrv, lambda admin: admin.topic_clusters(topic))
    if as_json:
        print_json({"topic": topic, "clusters": found})
    else:
        print_lines(found)


def stats_all(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="One topic only.")
    ] = None,
    active: Annotated[
        bool, typer.Option("-a", "--activeTopic", help="Only topics with traffic.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show each topic with its groups: unconsumed messages, messages per second and in 24 hours."""
    found = run_with_admin(namesrv, lambda admin: admin.stats_all(topic))
    if active:
        found = [line for line in found if line.in_24_hours or line.out_24_hours]
    if as_json:
        print_json({"topics": [line.to_json() for line in found]})
        return
    head = "#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS"
    rows = (
        (
            shorten_text(line.topic, 64),
            shorten_text(line.group, 64),
            line.behind if line.group else "NO_CONSUMER",
            f"{line.in_tps:.2f}",
            f"{line.out_tps:.2f}",
            line.in_24_hours,
            line.out_24_hours,
        )
        for line in found
    )
    print_lines(format_table(STATS, (*head, "#InMsg24Hour", "#OutMsg24Hour"), rows))
