"""`admin queryMsgById`, `queryMsgByKey`, `queryMsgByUniqueKey` and `queryMsgTrace`.

Owns their options and columns (RocketMQ: tools/command/message); net/client/admin/client.py sends
the requests.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turbopump.cli.errors import UserError
from turbopump.cli.options import (
    DEFAULT_NAMESRV,
    INT32_MAX,
    INT64_MAX,
    Json,
    MessageId,
    Namesrv,
    Topic,
)
from turbopump.cli.output import (
    format_table,
    java_text,
    local_time,
    print_json,
    print_lines,
    print_result,
)
from turbopump.cli.run_command import run_with_admin

if TYPE_CHECKING:
    from turbopump.net.client.admin.client import Admin
    from turbopump.net.client.admin.results import FoundMessage
    from turbopump.net.client.admin.trace import TraceRecord
    from turbopump.net.client.messages import ReceivedMessage

FOUND = "{:<50} {:>4} {:>40}"
"""Layout of a line of queryMsgByKey, for `output.format_table`."""
STEP = "{:<14} {:<20} {:<22} {:<23} {:>9} {}"
"""Layout of a line of queryMsgTrace."""
Begin = Annotated[
    int,
    typer.Option(
        "-b", "--beginTimestamp", min=0, max=INT64_MAX, help="Earliest store time, in ms."
    ),
]
End = Annotated[
    int,
    typer.Option("-e", "--endTimestamp", min=0, max=INT64_MAX, help="Latest store time, in ms."),
]
BodyFolder = Annotated[
    Path | None,
    typer.Option("--body-dir", metavar="DIR", help="Write the body to a file of this folder."),
]


def register(app: typer.Typer) -> None:
    """Add the queries of messages to `app`."""
    app.command("queryMsgById")(by_id)
    app.command("queryMsgByKey")(by_key)
    app.command("queryMsgByUniqueKey")(by_unique_key)
    app.command("queryMsgTrace")(trace)
    app.command("queryMsgTraceById", hidden=True)(trace)  # RocketMQ's name of the command


def by_id(
    topic: Topic,
    message_id: MessageId,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    body_format: Annotated[
        str | None,
        typer.Option("-f", "--bodyFormat", metavar="CHARSET", help="Print the body as text."),
    ] = None,
    body_folder: BodyFolder = None,
    as_json: Json = False,
) -> None:
    """Show messages by the broker's or the client's message ids, several separated by commas."""
    wanted = [part.strip() for part in message_id.split(",") if part.strip()]
    if not wanted:
        raise UserError("no message id is given: -i ID")

    async def each(admin: "Admin") -> "list[FoundMessage]":
        return [await admin.query_message_by_id(topic, one) for one in wanted]

    for found in run_with_admin(namesrv, each):
        _print_found(found, as_json, body_folder, body_format)


def by_unique_key(
    topic: Topic,
    message_id: MessageId,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    body_folder: BodyFolder = None,
    as_json: Json = False,
) -> None:
    """Show a message by the id that its client assigned."""
    found = run_with_admin(
        namesrv, lambda admin: admin.query_message_by_unique_key(topic, message_id)
    )
    _print_found(found, as_json, body_folder, None)


def by_key(
    topic: Topic,
    key: Annotated[str, typer.Option("-k", "--msgKey", help="One of the message's keys.")],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    begin_ms: Begin = 0,
    end_ms: End = INT64_MAX,
    max_count: Annotated[
        int,
        typer.Option("-m", "--maxNum", min=1, max=INT32_MAX, help="Maximum per broker."),
    ] = 64,
    as_json: Json = False,
) -> None:
    """List the messages of a topic that have a key."""
    found = run_with_admin(
        namesrv,
        lambda admin: admin.query_message_by_key(
            topic, key, begin_ms=begin_ms, end_ms=end_ms, max_count=max_count
        ),
    )
    rows = ((one.message_id, one.queue_id, one.queue_offset) for one in found.messages)
    print_result(found, as_json, format_table(FOUND, ("#Message ID", "#QID", "#Offset"), rows))


def trace(
    message_id: Annotated[
        str, typer.Option("-i", "--msgId", help="The client's message id, or a key.")
    ],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    trace_topic: Annotated[
        str, typer.Option("-t", "--traceTopic", help="Topic of the clients' traces.")
    ] = "RMQ_SYS_TRACE_TOPIC",
    begin_ms: Begin = 0,
    end_ms: End = INT64_MAX,
    max_count: Annotated[
        int,
        typer.Option("-c", "--maxNum", min=1, max=INT32_MAX, help="Maximum per broker."),
    ] = 64,
    as_json: Json = False,
) -> None:
    """Show the clients' traces of a message: its send, each delivery, the end of its
    transaction."""
    found = run_with_admin(
        namesrv,
        lambda admin: admin.query_message_trace(
            message_id,
            trace_topic=trace_topic,
            begin_ms=begin_ms,
            end_ms=end_ms,
            max_count=max_count,
        ),
    )
    heads = ("#Type", "#Group", "#ClientHost", "#Time", "#CostTime", "#Status")
    print_result(found, as_json, format_table(STEP, heads, map(_trace_row, found.records)))


def _trace_row(record: "TraceRecord") -> tuple[object, ...]:
    """A record of a trace as the cells of a line: kind, group, client, local time,
    duration, status."""
    when = "-" if record.timestamp_ms is None else local_time(record.timestamp_ms)
    cost = "-" if record.cost_ms is None else f"{record.cost_ms}ms"
    if record.transaction_state:
        status = record.transaction_state + (" by check" if record.from_check else "")
    elif record.is_success is None:
        status = f"try {(record.retry_times or 0) + 1}"
    else:
        status = record.outcome or ("SUCCESS" if record.is_success else "FAILED")
    return record.kind, record.group or "-", record.client_host or "-", when, cost, status


def _print_found(
    found: "FoundMessage", as_json: bool, body_folder: Path | None, body_format: str | None
) -> None:
    """Print a message, and for each consumer group whether it consumed the message."""
    if as_json:
        print_json(found.to_json())
        return
    lines = show_message(found.message, body_folder, body_format)
    lines.append("")
    if not found.tracks:
        lines.append("WARN: No Consumer")
    for track in found.tracks:
        error = f" exceptionDesc={track.error}" if track.error else ""
        lines.append(f"MessageTrack [consumerGroup={track.group}, trackType={track.track}]{error}")
    print_lines(lines)


def show_message(
    message: "ReceivedMessage", body_folder: Path | None, body_format: str | None
) -> list[str]:
    """Format a message as mqadmin prints it, with local times.

    With `body_folder` its body is written now to a file there (`body_name`), and the folder is
    made; else the body is shown as text in the character set `body_format` (None: UTF-8). Raises
    OSError, BadParameter.
    """
    fields: list[tuple[str, object]] = [
        ("OffsetID:", message.offset_message_id),
        ("Topic:", message.topic),
        ("Tags:", f"[{message.tags}]"),
        ("Keys:", f"[{' '.join(message.keys)}]"),
        ("Queue ID:", message.queue_id),
        ("Queue Offset:", message.queue_offset),
        ("CommitLog Offset:", message.log_offset),
        ("Reconsume Times:", message.reconsume_times),
        ("Born Timestamp:", local_time(message.born_timestamp_ms)),
        ("Store Timestamp:", local_time(message.store_timestamp_ms)),
        ("Born Host:", message.born_host),
        ("Store Host:", message.store_host),
        ("System Flag:", message.sys_flag),
        ("Properties:", java_text(message.properties)),
    ]
    if body_folder is not None:
        body_folder.mkdir(parents=True, exist_ok=True)
        path = body_folder / body_name(message)
        path.write_bytes(message.body)
        fields.append(("Message Body Path:", path))
    else:
        fields.append(("Message Body:", text_of(message.body, body_format or "utf-8")))
    return [f"{name:<20} {value}" for name, value in fields]


def body_name(message: "ReceivedMessage") -> str:
    """Return the name of the file for a body: the message's id, or the offset id if the client
    chose an id with characters that could lead out of the folder."""
    plain = message.message_id.isascii() and message.message_id.isalnum()
    return message.message_id if plain else message.offset_message_id


def text_of(body: bytes, charset: str) -> str:
    """Decode a body, with bad bytes as hexadecimal escapes; raises BadParameter for an unknown
    character set."""
    try:
        return body.decode(charset, "backslashreplace")
    # LookupError also if the character set has no "backslashreplace"
    except (LookupError, ValueError):
        raise typer.BadParameter(f"{charset} is no known character set") from None
