"""`turbopump send`: messages from the command line, a file or standard input.

Owns the options; net/client/producer.py sends.
"""

import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turbopump.cli.errors import CommandFailed, UserError, sentence_of
from turbopump.cli.options import (
    DEFAULT_NAMESRV,
    INT32_MAX,
    Json,
    Namesrv,
    Topic,
    split_addresses,
)
from turbopump.cli.output import print_json, print_lines
from turbopump.cli.run_command import client_options, failing_clearly, run

if TYPE_CHECKING:
    from turbopump.net.client.messages import Message, ReceivedMessage, SendResult
    from turbopump.net.client.options import ClientOptions

GROUP = "TURBOPUMP_SEND"
"""Producer group of the command."""
_SPAN = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)", re.ASCII)
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LINE_MAX = 4 << 20  # bytes of a line of standard input: the broker's largest message

Delay = Annotated[
    str, typer.Option("--delay", metavar="TIME", help="Delay of the delivery: 500ms, 90s, 2h.")
]


class LocalEnd(StrEnum):
    """How the local transaction of `turbopump send --transaction` ends."""

    COMMIT = "commit"
    ROLL_BACK = "roll-back"
    UNKNOWN = "unknown"
    """The broker checks the transaction later."""


Transaction = Annotated[
    LocalEnd | None,
    typer.Option(
        "--transaction",
        help="Send a half message, then end it so; unknown: the broker checks later.",
    ),
]
At = Annotated[
    str,
    typer.Option(
        "--at", metavar="TIME", help="Time of the delivery: 2030-01-31T08:00:00, or milliseconds."
    ),
]


def send(
    topic: Topic,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    body: Annotated[
        str | None,
        typer.Option("-p", "--body", help="The body; default: each line of stdin."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE", help="The body is this file.")
    ] = None,
    keys: Annotated[
        str, typer.Option("-k", "--keys", help="Business keys, separated by blanks.")
    ] = "",
    tags: Annotated[str, typer.Option("-c", "--tags", help="The tag.")] = "",
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="A user property; repeatable."),
    ] = None,
    delay_level: Annotated[
        int,
        typer.Option(
            "--delay-level", min=0, max=INT32_MAX, help="Deliver later, by the broker's levels."
        ),
    ] = 0,
    delay: Delay = "",
    at: At = "",
    transaction: Transaction = None,
    sharding_key: Annotated[
        str, typer.Option("--sharding-key", help="Messages with a key go to one queue, in order.")
    ] = "",
    count: Annotated[int, typer.Option("--count", min=1, help="Number of copies to send.")] = 1,
    as_json: Json = False,
) -> None:
    """Send messages; the broker creates a topic that does not exist."""
    from turbopump.net.client.messages import Message, SendResult

    _check_text(tags, keys, sharding_key, *(properties or []))
    user_properties = dict(_parse_property(text) for text in properties or [])
    addresses, options = split_addresses(namesrv), client_options()
    delay_ms = _parse_duration_ms(delay) if delay else 0
    deliver_at_ms = _parse_time_ms(at) if at else 0

    def show(result: SendResult) -> None:
        if as_json:
            print_json(result.to_json())
            return
        queue = f"{result.queue.broker_name} queue {result.queue.queue_id}"
        line = f"{result.status.value} {result.message_id} {queue} offset {result.queue_offset}"
        handle = f" recall handle {result.recall_handle}" if result.recall_handle else ""
        print_lines([line + handle], flush=True)

    async def main() -> None:
        async with _open_sender(addresses, options, transaction) as send_one:
            for content in _bodies_to_send(body, file, count):
                message = Message(
                    topic,
                    content,
                    tags=tags,
                    keys=keys.split(),
                    properties=user_properties,
                    delay_level=delay_level,
                    delay_ms=delay_ms,
                    deliver_at_ms=deliver_at_ms,
                    sharding_key=sharding_key,
                )
                show(await send_one(message))

    run(failing_clearly(main()))


@asynccontextmanager
async def _open_sender(
    addresses: list[str], options: "ClientOptions", ending: LocalEnd | None
) -> "AsyncIterator[Callable[[Message], Awaitable[SendResult]]]":
    """Yield the function that sends one message: directly, or in a transaction that ends with
    `ending`.
    """
    from turbopump.net.client.producer import Producer
    from turbopump.net.client.transactions import TransactionEnd, TransactionProducer

    if ending is None:
        async with Producer(GROUP, addresses, client_options=options) as producer:
            yield producer.send
        return
    end = TransactionEnd[ending.name]

    async def execute(_message: "Message", _message_id: str) -> TransactionEnd:
        return end

    async def check(_message: "ReceivedMessage") -> TransactionEnd:
        return TransactionEnd.UNKNOWN  # another process sent it

    async with TransactionProducer(
        GROUP, addresses, check=check, client_options=options
    ) as transactions:

        async def send_half(message: "Message") -> "SendResult":
            result = await transactions.send_in_transaction(message, execute)
            if end is not TransactionEnd.UNKNOWN and not result.is_told:
                raise CommandFailed("the broker did not acknowledge the end of the transaction")
            return result.sent

        yield send_half


def _bodies_to_send(body: str | None, file: Path | None, count: int) -> Iterator[bytes]:
    """Yield the bodies to send: `count` times the text or the file's content, else the lines of
    standard input, read as they arrive. Raises UserError."""
    if body is not None and file is not None:
        raise UserError("the body is given twice: either -p or -f")
    if body is not None or file is not None:
        try:
            content = os.fsencode(body) if body is not None else Path(str(file)).read_bytes()
        except OSError as error:
            raise UserError(sentence_of(error)) from None
        for _ in range(count):
            yield content
        return
    if sys.stdin.isatty():
        print(
            "turbopump: each line is a message; Ctrl-D ends (-p BODY or -f FILE send one)",
            file=sys.stderr,
        )
    is_empty = True
    while line := sys.stdin.buffer.readline(LINE_MAX + 1):
        content = line.rstrip(b"\r\n")
        if len(content) > LINE_MAX:
            raise UserError(f"a line of standard input is longer than {LINE_MAX} bytes")
        if content:
            is_empty = False
            yield content
    if is_empty:
        raise UserError("there is no body: -p BODY, -f FILE or lines on standard input")


def _parse_duration_ms(text: str) -> int:
    """Parse a duration such as 500ms, 90s or 2h into ms, at least 1; raises UserError."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise UserError(f"{text} is no time: 500ms, 90s, 5m, 2h or 1d is expected")
    return max(1, int(match[1]) * _UNITS_MS[match[2]])


def _parse_time_ms(text: str) -> int:
    """Parse a local ISO time, or epoch ms, into epoch ms; raises UserError."""
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1_000)
    except (ValueError, OverflowError):
        raise UserError(
            f"{text} is no time: 2030-01-31T08:00:00 or milliseconds since 1970 is expected"
        ) from None


def _check_text(*texts: str) -> None:
    """Raise UserError for arguments that are not UTF-8: a message's properties cannot hold such
    bytes, its body can.
    """
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UserError(f"{text!r} is not UTF-8 text") from None


def _parse_property(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name or not value:
        raise UserError(f"{text} is no property: NAME=VALUE is expected")
    return name, value
