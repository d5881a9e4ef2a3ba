"""`admin consumerProgress`, `updateSubGroup`, `setConsumeMode` and `resetOffsetByTime`.

Owns their options and columns (RocketMQ: tools/command/consumer and offset);
net/client/admin/client.py sends the requests.

Tests: tests/unit/cli/admin/test_commands.py
"""

import re
import time
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turbopump.cli.errors import UserError
from turbopump.cli.options import (
    DEFAULT_NAMESRV,
    INT32_MAX,
    INT64_MAX,
    Json,
    Namesrv,
    Switch,
    Topic,
    check_address,
    one_place,
)
from turbopump.cli.output import (
    duration_text,
    format_columns,
    format_table,
    local_seconds,
    print_json,
    print_lines,
    print_result,
    shorten_text,
)
from turbopump.cli.run_command import run_with_admin

if TYPE_CHECKING:
    from turbopump.net.client.admin.results import (
        ConsumerProgress,
        GroupProgress,
        ResetOffsets,
        UpdatedGroup,
    )

PROGRESS = "{:<64}  {:<32}  {:<4}  {:<20}  {:<20}  {:<20} {:<20} {:<19}  {}"
"""Layout of a queue's line of consumerProgress, for `output.format_table`."""
PROGRESS_CLIENTS = "{:<64}  {:<32}  {:<4}  {:<20}  {:<20}  {:<20} {:<20} {:<20} {:<19}  {}"
"""Layout of a queue's line with its client (-s)."""
GROUPS = "{:<64}  {:<6}  {:<24} {:<5}  {:<14}  {:<7}  {:<11}  {}"
"""Layout of a group's line of consumerProgress."""
RESET = "{:<40}  {:<40}  {:<40}"
"""Layout of a queue's line of resetOffsetByTime."""

Group = Annotated[str, typer.Option("-g", "--group", help="The consumer group.")]
GroupName = Annotated[str, typer.Option("-g", "--groupName", help="The consumer group.")]


def register(app: typer.Typer) -> None:
    """Add the commands about consumer groups to `app`."""
    app.command("consumerProgress")(consumer_progress)
    app.command("updateSubGroup")(update_group)
    app.command("setConsumeMode")(set_consume_mode)
    app.command("resetOffsetByTime")(reset_offset)


def consumer_progress(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    group: Annotated[
        str | None, typer.Option("-g", "--groupName", help="One group; default: all.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("-t", "--topicName", help="One topic of the group.")
    ] = None,
    with_clients: Annotated[
        Switch,
        typer.Option(
            "-s",
            "--showClientIP",
            case_sensitive=False,
            help="Show the client that consumes each queue.",
        ),
    ] = Switch.FALSE,
    as_json: Json = False,
) -> None:
    """Show the lag of consumer groups: unconsumed messages, and how long the oldest has waited.

    A time after >= is a lower bound: the message is older than the broker's start.
    """
    if group is None:
        groups = run_with_admin(namesrv, lambda admin: admin.consumer_progress_all())
        if as_json:
            print_json({"groups": [line.to_json() for line in groups]})
        else:
            print_lines(_group_lines(groups))
        return
    wanted, shown = group, bool(with_clients)
    found = run_with_admin(
        namesrv, lambda admin: admin.consumer_progress(wanted, topic=topic, with_clients=shown)
    )
    print_result(found, as_json, _queue_lines(found, shown))


def _group_lines(groups: "list[GroupProgress]") -> list[str]:
    """The columns of consumerProgress for all groups."""
    head = "#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total", "#Behind"
    rows = (
        (
            shorten_text(one.group, 64),
            one.count,
            one.version if one.count else "OFFLINE",
            one.consume_type,
            one.message_model,
            int(one.consume_tps),
            one.diff_total,
            duration_text(one.behind_ms, one.behind_known),
        )
        for one in groups
    )
    return format_table(GROUPS, head, rows)


def _queue_lines(found: "ConsumerProgress", with_clients: bool) -> list[str]:
    """The columns of consumerProgress for the queues of a group, with its total lag."""
    client = ["#Client IP"] if with_clients else []
    head = ["#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", *client]
    head += ["#Diff", "#Inflight", "#LastTime", "#Behind"]
    rows = (
        [
            shorten_text(queue.topic, 64),
            shorten_text(queue.broker_name, 32),
            queue.queue_id,
            queue.broker_offset,
            queue.consumer_offset,
            *([queue.client_address or "N/A"] if with_clients else []),
            queue.diff,
            queue.inflight,
            local_seconds(queue.last_time_ms) if queue.last_time_ms > 0 else "N/A",
            duration_text(queue.behind_ms, queue.behind_known),
        ]
        for queue in found.queues
    )
    behind = duration_text(found.behind_ms, found.behind_known)
    return [
        *format_table(PROGRESS_CLIENTS if with_clients else PROGRESS, head, rows),
        "",
        f"Consume TPS: {found.consume_tps:.2f}",
        f"Consume Diff Total: {found.diff_total}",
        f"Consume Inflight Total: {found.inflight_total}",
        f"Consume Time Behind: {behind}",
    ]


def _switch_option(letter: str, name: str, meaning: str) -> typer.models.OptionInfo:
    option = typer.Option(letter, name, case_sensitive=False, help=meaning)
    assert isinstance(option, typer.models.OptionInfo)
    return option


def _number_option(letter: str, name: str, meaning: str, most: int) -> typer.models.OptionInfo:
    option = typer.Option(letter, name, min=0, max=most, help=meaning)
    assert isinstance(option, typer.models.OptionInfo)
    return option


def update_group(
    group: GroupName,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    broker: Annotated[
        str | None, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="At one broker.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("-c", "--clusterName", help="At every master of a cluster.")
    ] = None,
    consume: Annotated[
        Switch, _switch_option("-s", "--consumeEnable", "The group may consume.")
    ] = Switch.TRUE,
    from_min: Annotated[
        Switch, _switch_option("-m", "--consumeFromMinEnable", "Begin at the first message.")
    ] = Switch.FALSE,
    broadcast: Annotated[
        Switch, _switch_option("-d", "--consumeBroadcastEnable", "The group may broadcast.")
    ] = Switch.FALSE,
    orderly: Annotated[
        Switch, _switch_option("-o", "--consumeMessageOrderly", "The group consumes in order.")
    ] = Switch.FALSE,
    retry_queues: Annotated[
        int, _number_option("-q", "--retryQueueNums", "Queues of its retry topic.", INT32_MAX)
    ] = 1,
    retries: Annotated[
        int, _number_option("-r", "--retryMaxTimes", "Retries before the dead letter.", INT32_MAX)
    ] = 16,
    broker_id: Annotated[
        int, _number_option("-i", "--brokerId", "The broker to consume from.", INT64_MAX)
    ] = 0,
    slow_broker_id: Annotated[
        int,
        _number_option("-w", "--whichBrokerWhenConsumeSlowly", "The broker when slow.", INT64_MAX),
    ] = 1,
    notify: Annotated[
        Switch, _switch_option("-a", "--notifyConsumerIdsChanged", "Notify members of changes.")
    ] = Switch.TRUE,
    retry_policy: Annotated[
        str | None,
        typer.Option("-p", "--groupRetryPolicy", metavar="JSON", help="Delays of retries."),
    ] = None,
    attributes: Annotated[
        str, typer.Option("--attributes", metavar="+A=B,-C", help="Attributes to change.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Create a consumer group's configuration or change it."""
    one_place(broker, cluster)
    policy = None if retry_policy is None else _parse_retry_policy(retry_policy)
    done = run_with_admin(
        namesrv,
        lambda admin: admin.update_subscription_group(
            group,
            broker=broker,
            cluster=cluster,
            consume_enable=bool(consume),
            consume_from_min_enable=bool(from_min),
            consume_broadcast_enable=bool(broadcast),
            consume_message_orderly=bool(orderly),
            retry_queue_nums=retry_queues,
            retry_max_times=retries,
            broker_id=broker_id,
            which_broker_when_consume_slowly=slow_broker_id,
            notify_consumer_ids_changed_enable=bool(notify),
            retry_policy=policy,
            attributes=_parse_attributes(attributes),
        ),
    )
    _show_group(done, as_json)


def set_consume_mode(
    group: GroupName,
    topic: Annotated[
        str, typer.Option("-t", "--topicName", help="The topic; '*' for all (Turbopump only).")
    ],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    broker: Annotated[
        str | None, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="At one broker.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("-c", "--clusterName", help="At every master of a cluster.")
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option("-m", "--mode", metavar="PULL|POP", help="How members fetch messages."),
    ] = None,
    pop_share_queue_num: Annotated[
        int,
        typer.Option("-q", "--popShareQueueNum", help="Members that pop a queue besides its own."),
    ] = 0,
    rebalance: Annotated[
        str | None,
        typer.Option("--rebalance", metavar="BROKER|CLIENT", help="Which side assigns the queues."),
    ] = None,
    strategy: Annotated[
        str | None, typer.Option("--strategy", help="Assignment strategy, such as AVG or STICKY.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Set how a running group gets its messages and its queues; its members follow at once."""
    one_place(broker, cluster)
    done = run_with_admin(
        namesrv,
        lambda admin: admin.set_consume_mode(
            group,
            topic,
            broker=broker,
            cluster=cluster,
            mode=mode,
            pop_share_queue_num=pop_share_queue_num,
            rebalance=rebalance,
            strategy=strategy,
        ),
    )
    end = f"success. topic : {topic}, groupName : {group}"
    lines = [f"set consume mode to {address} {end}" for address in done.addresses]
    print_result(done, as_json, lines)


def _show_group(done: "UpdatedGroup", as_json: bool) -> None:
    lines = [f"create subscription group to {address} success." for address in done.addresses]
    shown = ", ".join(format_columns("{}={}", key, value) for key, value in done.config.items())
    print_result(done, as_json, [*lines, f"SubscriptionGroupConfig{{{shown}}}"])


def _parse_retry_policy(text: str) -> dict[str, Any]:
    """Parse a retry policy, a JSON object; raises UserError for any other text."""
    import json

    try:
        policy = json.loads(text)
    except (ValueError, RecursionError):
        policy = None
    if not isinstance(policy, dict):
        example = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000]}}'
        raise UserError(f"{text} is no retry policy: JSON like {example} is expected")
    return policy


def _parse_attributes(text: str) -> dict[str, str]:
    """Parse `+a=b,-c` into RocketMQ's form: the sign stays with the name (AttributeParser)."""
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.strip().partition("=")
        if name[:1] not in ("+", "-") or len(name) < 2 or (name[0] == "+") != bool(value):
            raise UserError(f"{part} is no attribute: +name=value or -name is expected")
        found[name] = value
    return found


def reset_offset(
    group: Group,
    topic: Topic,
    when: Annotated[
        str,
        typer.Option(
            "-s",
            "--timestamp",
            metavar="now|-1|MILLISECONDS|yyyy-MM-dd#HH:mm:ss:SSS",
            help="Time at which to continue; -1 is the end.",
        ),
    ],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    force: Annotated[
        Switch, typer.Option("-f", "--force", case_sensitive=False, help="Also move offsets back.")
    ] = Switch.TRUE,
    broker: Annotated[
        str | None, typer.Option("-b", "--broker", metavar="HOST:PORT", help="With -q: one queue.")
    ] = None,
    queue_id: Annotated[
        int | None,
        typer.Option("-q", "--queue", min=0, max=INT32_MAX, help="With -b: this queue only."),
    ] = None,
    queue_offset: Annotated[
        int | None,
        typer.Option("-o", "--offset", min=0, max=INT64_MAX, help="With -q: to this offset."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Reset a group's offsets in a topic to a given time, or a queue's to an offset."""
    timestamp_ms = _timestamp_ms(when)
    if (broker is None) != (queue_id is None) or (queue_offset is not None and queue_id is None):
        raise UserError("one queue is named by its broker with -b and its number with -q")
    if broker is not None:
        check_address(broker)
    done = run_with_admin(
        namesrv,
        lambda admin: admin.reset_offset_by_time(
            group,
            topic,
            timestamp_ms,
            force=bool(force),
            broker=broker,
            queue_id=-1 if queue_id is None else queue_id,
            queue_offset=queue_offset,
        ),
    )
    begun = (
        f"start reset consumer offset by specified, group[{group}], topic[{topic}], "
        f"force[{force.value}], timestamp(string)[{when}], timestamp(long)[{timestamp_ms}]"
    )
    print_result(done, as_json, [begun, *reset_lines(done)])


def reset_lines(done: "ResetOffsets") -> list[str]:
    """Format the offsets to which queues were reset as mqadmin prints them."""
    rows = (
        (shorten_text(one.broker_name, 32), one.queue_id, one.queue_offset) for one in done.queues
    )
    return format_table(RESET, ("#brokerName", "#queueId", "#offset"), rows)


def _timestamp_ms(text: str) -> int:
    """Parse mqadmin's forms of a time into ms since the epoch; a date is local time."""
    if text == "now":
        return time.time_ns() // 1_000_000
    if re.fullmatch(r"-1|[0-9]{1,19}", text) and int(text) <= INT64_MAX:
        return int(text)
    try:
        # strptime reads microseconds: three digits are right-padded to milliseconds.
        return round(datetime.strptime(text, "%Y-%m-%d#%H:%M:%S:%f").timestamp() * 1000)
    except ValueError:
        expected = "now, milliseconds or yyyy-MM-dd#HH:mm:ss:SSS"
        raise UserError(f"{text} is no time: {expected} is expected") from None
