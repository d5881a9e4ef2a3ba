"""`admin` commands about a group's members: `consumerConnection`, `producerConnection`,
`consumerStatus`, `deleteSubGroup`, `skipAccumulatedMessage` and `cloneGroupOffset`.

Owns their options and columns (RocketMQ: tools/command/connection, consumer, offset);
net/client/admin/members.py sends the requests.

Tests: tests/integration/cli/test_container.py
"""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from turbopump.cli.admin.groups import Group, GroupName, reset_lines
from turbopump.cli.options import (
    DEFAULT_NAMESRV,
    Json,
    Namesrv,
    OneBroker,
    Switch,
    Topic,
    check_address,
    one_place,
)
from turbopump.cli.output import format_table, print_json, print_lines, print_result
from turbopump.cli.run_command import run_with_admin

if TYPE_CHECKING:
    from turbopump.net.client.admin.results import ClientConnection

CLIENTS = "{:<36} {:<22} {:<10} {}"
"""Layout of a client's line, for `output.format_table`."""
SUBSCRIPTIONS = "{:<20} {}"
"""Layout of a subscription's line."""
MEMBERS = "{:<48}  {:<20} {}"
"""Layout of a member's line of consumerStatus."""

ConsumerGroup = Annotated[str, typer.Option("-g", "--consumerGroup", help="The consumer group.")]


def register(app: typer.Typer) -> None:
    """Add the commands about members to `app`."""
    app.command("consumerConnection")(consumer_connection)
    app.command("producerConnection")(producer_connection)
    app.command("consumerStatus")(consumer_status)
    app.command("deleteSubGroup")(delete_group)
    app.command("skipAccumulatedMessage")(skip_accumulated)
    app.command("cloneGroupOffset")(clone_offset)


def consumer_connection(
    group: ConsumerGroup,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    broker: OneBroker = None,
    as_json: Json = False,
) -> None:
    """List the members of a consumer group, and its subscriptions."""
    if broker is not None:
        check_address(broker)
    found = run_with_admin(namesrv, lambda admin: admin.consumer_connection(group, broker=broker))
    lines = [
        *_client_lines(found.clients),
        "",
        "Below is subscription:",
        *format_table(SUBSCRIPTIONS, ("#Topic", "#SubExpression"), found.subscriptions.items()),
        "",
        f"ConsumeType: {found.consume_type}",
        f"MessageModel: {found.message_model}",
        f"ConsumeFromWhere: {found.consume_from_where}",
    ]
    print_result(found, as_json, lines)


def producer_connection(
    group: Annotated[str, typer.Option("-g", "--producerGroup", help="The producer group.")],
    topic: Topic,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """List the members of a producer group that are connected to the brokers of a topic."""
    found = run_with_admin(namesrv, lambda admin: admin.producer_connection(group, topic))
    print_result(found, as_json, _client_lines(found.clients))


def _client_lines(found: "list[ClientConnection]") -> list[str]:
    rows = ((one.client_id, one.address, one.language, one.version) for one in found)
    return format_table(CLIENTS, ("#ClientId", "#ClientAddr", "#Language", "#Version"), rows)


def consumer_status(
    group: ConsumerGroup,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    client_id: Annotated[
        str | None,
        typer.Option("-i", "--clientId", metavar="ID", help="The whole report of this member."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the queues of each member of a group; with -i the whole report of that member."""
    found = run_with_admin(namesrv, lambda admin: admin.consumer_status(group, client_id=client_id))
    if as_json:
        for member in found:
            print_json(member.to_json())
        return
    if client_id is not None and not found[0].error:
        text = json.dumps(found[0].info, ensure_ascii=False, indent="\t", sort_keys=True)
        print_lines(text.splitlines())
        return
    rows = (
        (member.client_id, member.info.get("properties", {}).get("PROP_CLIENT_VERSION", ""), queue)
        for member in found
        for queue in member.queues or [member.error or "no queue"]
    )
    print_lines(format_table(MEMBERS, ("#ClientId", "#Version", "#Topic, broker, queue"), rows))


def delete_group(
    group: GroupName,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    broker: Annotated[
        str | None, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="At one broker.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("-c", "--clusterName", help="At every master of a cluster.")
    ] = None,
    clean_offset: Annotated[
        Switch,
        typer.Option("-r", "--removeOffset", case_sensitive=False, help="Also delete its offsets."),
    ] = Switch.FALSE,
    as_json: Json = False,
) -> None:
    """Delete a consumer group's configuration."""
    one_place(broker, cluster)
    done = run_with_admin(
        namesrv,
        lambda admin: admin.delete_subscription_group(
            group, broker=broker, cluster=cluster, clean_offset=bool(clean_offset)
        ),
    )
    if as_json:
        print_json({"group": group, "brokers": done})
    else:
        print_lines(
            [f"delete subscription group [{group}] from broker [{one}] success." for one in done]
        )


def skip_accumulated(
    group: Group,
    topic: Topic,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    force: Annotated[
        Switch, typer.Option("-f", "--force", case_sensitive=False, help="Also move offsets back.")
    ] = Switch.TRUE,
    as_json: Json = False,
) -> None:
    """Set a group's offsets to the end of each queue: it skips the waiting messages."""
    done = run_with_admin(
        namesrv, lambda admin: admin.reset_offset_by_time(group, topic, -1, force=bool(force))
    )
    print_result(done, as_json, reset_lines(done))


def clone_offset(
    source: Annotated[str, typer.Option("-s", "--srcGroup", help="The group that is copied.")],
    target: Annotated[str, typer.Option("-d", "--destGroup", help="The group that is changed.")],
    topic: Topic,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    offline: Annotated[
        Switch,
        typer.Option("-o", "--offline", case_sensitive=False, help="The source may be offline."),
    ] = Switch.TRUE,
    as_json: Json = False,
) -> None:
    """Copy one group's offsets in a topic to another group."""
    done = run_with_admin(
        namesrv,
        lambda admin: admin.clone_group_offset(source, target, topic, offline=bool(offline)),
    )
    if as_json:
        print_json({"source": source, "target": target, "topic": topic, "brokers": done})
    else:
        groups = f"srcGroup[{source}], destGroup=[{target}]"
        print_lines([f"clone group offset success. {groups}, topic[{topic}]"])
