"""`admin topicList`, `topicRoute`, `topicStatus`, `updateTopic` and `deleteTopic`.

Owns their options and columns (RocketMQ: tools/command/topic); net/client/admin/client.py sends the
requests.

Tests: tests/unit/cli/admin/test_commands.py
"""

from typing import Annotated, Any

import typer

from turbopump.cli.options import (
    DEFAULT_NAMESRV,
    INT32_MAX,
    Json,
    Namesrv,
    Switch,
    Topic,
    one_place,
)
from turbopump.cli.output import (
    format_columns,
    format_table,
    local_time,
    print_json,
    print_lines,
    print_result,
    shorten_text,
)
from turbopump.cli.run_command import run_with_admin

TOPICS = "{:<20}  {:<64}  {:<64}"
"""Layout of a line of topicList, for `output.format_table`."""
ROUTE = "{:<45} {:<32} {:<50} {:<10} {:<11} {:<5}"
"""Layout of a line of topicRoute."""
STATUS = "{:<32}  {:<4}  {:<20}  {:<20}    {}"
"""Layout of a line of topicStatus."""


def register(app: typer.Typer) -> None:
    """Add the commands about topics to `app`."""
    app.command("topicList")(topic_list)
    app.command("topicRoute")(topic_route)
    app.command("topicStatus")(topic_status)
    app.command("updateTopic")(update_topic)
    app.command("deleteTopic")(delete_topic)


def topic_list(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    with_clusters: Annotated[
        bool, typer.Option("-c", "--clusterModel", help="With cluster and consumer groups.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List every topic of the name server."""
    found = run_with_admin(namesrv, lambda admin: admin.topic_list(with_clusters=with_clusters))
    if as_json:
        print_json(found.to_json())
    elif not with_clusters:
        print_lines([line.topic for line in found.topics])
    else:
        rows = (
            (shorten_text(line.cluster, 20), shorten_text(line.topic, 64), shorten_text(group, 64))
            for line in found.topics
            for group in line.consumer_groups or [""]
        )
        print_lines(format_table(TOPICS, ("#Cluster Name", "#Topic", "#Consumer Group"), rows))


def topic_route(
    topic: Topic,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_list: Annotated[bool, typer.Option("-l", "--list", help="As columns.")] = False,
    as_json: Json = False,
) -> None:
    """Show the brokers and queues of a topic: RocketMQ's route, as JSON unless -l."""
    import json

    found = run_with_admin(namesrv, lambda admin: admin.topic_route(topic))
    if as_json:
        print_json(found.to_json())
    elif as_list:
        print_lines(_route_lines(found.route))
    else:
        print(json.dumps(found.route, ensure_ascii=False, indent="\t", sort_keys=True))


def _route_lines(route: dict[str, Any]) -> list[str]:
    """A route as columns, a line for each broker's queues, and a line with their sums."""
    from turbopump.net.wire.route import TopicRouteData

    read = TopicRouteData.from_json(route)  # the client has checked the form
    brokers = {broker.broker_name: broker for broker in read.broker_datas}
    queues = sorted(
        (queue for queue in read.queue_datas if queue.broker_name in brokers),
        key=lambda queue: queue.broker_name,
    )
    head = "#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"
    rows = []
    for queue in queues:
        broker = brokers[queue.broker_name]
        addresses = ", ".join(f"{key}={value}" for key, value in broker.broker_addrs.items())
        counts = queue.read_queue_nums, queue.write_queue_nums, queue.perm
        rows.append((broker.cluster, queue.broker_name, f"{{{addresses}}}", *counts))
    reads = sum(queue.read_queue_nums for queue in queues)
    writes = sum(queue.write_queue_nums for queue in queues)
    total = format_columns(ROUTE, "Total:", len(queues), "", reads, writes, "")
    return [*format_table(ROUTE, head, rows), "-" * 158, total]


def topic_status(topic: Topic, namesrv: Namesrv = DEFAULT_NAMESRV, as_json: Json = False) -> None:
    """Show the offsets of every queue of a topic."""
    found = run_with_admin(namesrv, lambda admin: admin.topic_status(topic))
    head = "#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated"
    rows = (
        (
            shorten_text(queue.broker_name, 32),
            queue.queue_id,
            queue.min_queue_offset,
            queue.max_queue_offset,
            local_time(queue.last_update_ms),
        )
        for queue in found.queues
    )
    print_result(
        found, as_json, [*format_table(STATUS, head, rows), "", f"Topic Put TPS: {found.put_tps}"]
    )


def update_topic(
    topic: Topic,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    broker: Annotated[
        str | None, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="At one broker.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("-c", "--clusterName", help="At every master of a cluster.")
    ] = None,
    read_queues: Annotated[
        int,
        typer.Option("-r", "--readQueueNums", min=1, max=INT32_MAX, help="Queues to read from."),
    ] = 8,
    write_queues: Annotated[
        int,
        typer.Option("-w", "--writeQueueNums", min=1, max=INT32_MAX, help="Queues to write to."),
    ] = 8,
    perm: Annotated[
        int, typer.Option("-p", "--perm", min=0, max=7, help="2 write, 4 read, 6 both.")
    ] = 6,
    order: Annotated[
        Switch,
        typer.Option("-o", "--order", case_sensitive=False, help="Ordered, with a fixed route."),
    ] = Switch.FALSE,
    unit: Annotated[
        Switch,
        typer.Option("-u", "--unit", case_sensitive=False, help="The topic belongs to one unit."),
    ] = Switch.FALSE,
    unit_subscribed: Annotated[
        Switch,
        typer.Option(
            "-s", "--hasUnitSub", case_sensitive=False, help="Other units subscribe to it."
        ),
    ] = Switch.FALSE,
    attributes: Annotated[
        str, typer.Option("-a", "--attributes", metavar="+A=B,-C", help="Attributes to change.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Create a topic or change it."""
    one_place(broker, cluster)
    done = run_with_admin(
        namesrv,
        lambda admin: admin.update_topic(
            topic,
            broker=broker,
            cluster=cluster,
            read_queues=read_queues,
            write_queues=write_queues,
            perm=perm,
            order=bool(order),
            unit=bool(unit),
            unit_subscribed=bool(unit_subscribed),
            attributes=attributes,
        ),
    )
    lines = [f"create topic to {address} success." for address in done.addresses]
    config = {
        "topicName": done.topic,
        "readQueueNums": done.read_queues,
        "writeQueueNums": done.write_queues,
        "perm": _perm_text(done.perm),
        "order": done.order,
        "attributes": done.attributes,
    }
    shown = ", ".join(format_columns("{}={}", key, value) for key, value in config.items())
    print_result(done, as_json, [*lines, f"TopicConfig [{shown}]"])


def _perm_text(perm: int) -> str:
    """Format a permission as RocketMQ does (PermName.perm2String)."""
    return "".join(
        (
            "R" if perm & 4 else "-",
            "W" if perm & 2 else "-",
            "X" if perm & 1 else "-",
        )
    )


def delete_topic(
    topic: Topic,
    cluster: Annotated[str, typer.Option("-c", "--clusterName", help="The cluster.")],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Delete a topic from every broker of a cluster and from the name servers."""
    done = run_with_admin(namesrv, lambda admin: admin.delete_topic(topic, cluster))
    lines = [
        f"delete topic [{topic}] from cluster [{cluster}] success.",
        f"delete topic [{topic}] from NameServer success.",
    ]
    print_result(done, as_json, lines)
