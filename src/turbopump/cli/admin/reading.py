"""`admin printMsg`, `queryMsgByOffset` and `resendDeadLetters`.

Owns their options and columns (RocketMQ: tools/command/message); net/client/admin/reading.py sends
the requests.

Tests: tests/unit/cli/admin/test_commands.py
"""

from typing import TYPE_CHECKING, Annotated

import typer

from turbopump.cli.admin.groups import GroupName
from turbopump.cli.admin.messages import show_message, text_of
from turbopump.cli.options import (
    DEFAULT_NAMESRV,
    INT32_MAX,
    INT64_MAX,
    Json,
    Namesrv,
    Switch,
    Topic,
)
from turbopump.cli.output import print_json, print_lines
from turbopump.cli.run_command import run_with_admin

if TYPE_CHECKING:
    from turbopump.net.client.admin.client import Admin

Charset = Annotated[
    str, typer.Option("-c", "--charsetName", metavar="CHARSET", help="Character set of the body.")
]


def register(app: typer.Typer) -> None:
    """Add printMsg, queryMsgByOffset and resendDeadLetters to `app`."""
    app.command("printMsg")(print_messages)
    app.command("queryMsgByOffset")(by_offset)
    app.command("resendDeadLetters")(resend_dead_letters)


def print_messages(
    topic: Topic,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    charset: Charset = "utf-8",
    expression: Annotated[
        str, typer.Option("-s", "--subExpression", metavar="TAGS", help="Tags joined by '||'.")
    ] = "*",
    begin_ms: Annotated[
        int | None,
        typer.Option(
            "-b", "--beginTimestamp", min=0, max=INT64_MAX, help="Earliest store time, in ms."
        ),
    ] = None,
    end_ms: Annotated[
        int | None,
        typer.Option(
            "-e", "--endTimestamp", min=0, max=INT64_MAX, help="Stored before this time, in ms."
        ),
    ] = None,
    with_body: Annotated[
        Switch, typer.Option("-d", "--printBody", case_sensitive=False, help="With the body.")
    ] = Switch.TRUE,
    as_json: Json = False,
) -> None:
    """Print the stored messages of a topic, queue after queue; no group's offset changes."""

    async def each(admin: "Admin") -> None:
        found = admin.messages(topic, expression=expression, begin_ms=begin_ms, end_ms=end_ms)
        async for message in found:
            if as_json:
                print_json(message.to_json())
                continue
            where = f"{message.broker_name}/{message.queue_id}@{message.queue_offset}"
            body = f" BODY: {text_of(message.body, charset)}" if with_body else ""
            print_lines([f"MSGID: {message.message_id} {where}{body}"], flush=True)

    run_with_admin(namesrv, each)


def by_offset(
    topic: Topic,
    broker_name: Annotated[
        str, typer.Option("-b", "--brokerName", metavar="NAME", help="The broker's name.")
    ],
    queue_id: Annotated[
        int, typer.Option("-i", "--queueId", min=0, max=INT32_MAX, help="The queue's number.")
    ],
    queue_offset: Annotated[
        int, typer.Option("-o", "--offset", min=0, max=INT64_MAX, help="The queue offset.")
    ],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    body_format: Annotated[
        str | None,
        typer.Option("-f", "--bodyFormat", metavar="CHARSET", help="Print the body as text."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the message at an offset of a queue."""
    found = run_with_admin(
        namesrv, lambda admin: admin.message_at(topic, broker_name, queue_id, queue_offset)
    )
    if as_json:
        print_json(found.to_json())
    else:
        print_lines(show_message(found, None, body_format))


def resend_dead_letters(
    group: GroupName,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    count: Annotated[
        int, typer.Option("--count", min=0, help="At most this number of messages; 0 for all.")
    ] = 0,
    as_json: Json = False,
) -> None:
    """Send the dead letters of a group to it again; each once, the oldest first.

    They stay in %DLQ%, where the group's offset marks the last message that was sent again.
    """

    async def each(admin: "Admin") -> int:
        sent = 0
        async for one in admin.resend_dead_letters(group, max_count=count):
            sent += 1
            if as_json:
                print_json(one.to_json())
            else:
                print_lines([f"{one.message_id} of {one.topic} to {one.retry_topic}"], flush=True)
        return sent

    sent = run_with_admin(namesrv, each)
    if not as_json:
        print_lines([f"{sent} dead letters of group {group} were sent again."])
