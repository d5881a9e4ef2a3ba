"""`turbopump consume`: print the messages of a topic as they arrive.

Owns the options and the printing; net/client/consuming/consumer.py consumes.

Tests: tests/unit/cli/test_send.py
"""

import os
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from turbopump.cli.errors import CommandFailed
from turbopump.cli.options import DEFAULT_NAMESRV, Json, Namesrv, Topic, split_addresses
from turbopump.cli.output import local_time, print_json, print_lines
from turbopump.cli.run_command import client_options, failing_clearly, run

if TYPE_CHECKING:
    import asyncio

    from turbopump.net.client.consuming.consumer import Consumer
    from turbopump.net.client.consuming.simple_consumer import SimpleConsumer
    from turbopump.net.client.messages import ReceivedMessage


class Begin(Enum):
    """Position at which a group without committed offsets begins."""

    FIRST = "first"
    """The first message of each queue."""
    LAST = "last"
    """The end of each queue when the command starts."""


def consume(
    topic: Topic,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    group: Annotated[
        str, typer.Option("-g", "--consumerGroup", help="Consumer group; its offsets are kept.")
    ] = "TURBOPUMP_CONSUME",
    expression: Annotated[
        str, typer.Option("-e", "--expression", metavar="TAGS", help="Tags joined by '||'.")
    ] = "*",
    sql: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="A condition on properties, instead of tags."),
    ] = None,
    begin: Annotated[
        Begin, typer.Option("--from", help="Start of a new group; last is now.")
    ] = Begin.FIRST,
    count: Annotated[
        int, typer.Option("--count", min=0, help="Number of messages to print; 0 for no limit.")
    ] = 0,
    timeout_s: Annotated[
        float | None,
        typer.Option("--timeout", min=0, metavar="SECONDS", help="Maximum wait for a message."),
    ] = None,
    pop: Annotated[
        bool, typer.Option("--pop", help="Pop messages of any queue; no queue assignment.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print messages until Ctrl-C; each is acknowledged once it is printed.

    A topic that does not exist is an error, and with --count fewer messages before the --timeout:
    exit code 1.
    """
    import asyncio
    import signal

    from turbopump.net.client.consuming.consumer import Consumer
    from turbopump.net.client.consuming.simple_consumer import SimpleConsumer
    from turbopump.net.client.options import ConsumeFrom, ConsumerOptions
    from turbopump.net.client.shared_client import SharedClient, instance_of

    if begin is Begin.FIRST:
        options = ConsumerOptions(consume_from=ConsumeFrom.FIRST)
    else:
        options = ConsumerOptions(consume_from=ConsumeFrom.LAST, young_from_start=False)
    addresses, connecting = split_addresses(namesrv), client_options()

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        client = SharedClient(addresses, connecting)
        instance = instance_of(client)
        consumer: Consumer | SimpleConsumer
        if pop:
            consumer = SimpleConsumer(group, from_first=begin is Begin.FIRST, client=client)
        else:
            consumer = Consumer(group, options=options, client=client)
        consumer.subscribe(topic, expression, sql=sql)
        await instance.acquire()
        try:
            if await instance.route(topic) is None:
                raise CommandFailed(f"the topic {topic} does not exist")
            async with consumer:
                await _print_messages(consumer, stop, count, timeout_s, as_json)
        finally:
            await instance.release()

    run(failing_clearly(main()))


async def _next_message(consumer: "Consumer | SimpleConsumer") -> "ReceivedMessage | None":
    """Receive one message; None: the consumer was closed."""
    from turbopump.net.client.consuming.consumer import Consumer

    if isinstance(consumer, Consumer):
        return await consumer.receive()
    while True:
        # One at a time: a popped message that is not printed stays hidden from the group for a
        # while.
        popped = await consumer.receive(1)
        if popped:
            return popped[0]


async def _print_messages(
    consumer: "Consumer | SimpleConsumer",
    stop: "asyncio.Event",
    count: int,
    timeout_s: float | None,
    as_json: bool,
) -> None:
    """Print and acknowledge messages until `stop`, `count` messages (0: no limit), or `timeout_s`
    without one. Raises CommandFailed if fewer than `count` arrived in time."""
    import asyncio

    stopped = asyncio.ensure_future(stop.wait())
    printed = 0
    try:
        while not stop.is_set() and (count == 0 or printed < count):
            arriving = asyncio.ensure_future(_next_message(consumer))
            done, _ = await asyncio.wait(
                (arriving, stopped), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if arriving not in done:
                arriving.cancel()
                if count and not stop.is_set():
                    raise CommandFailed(f"{printed} of {count} messages came in time")
                return
            message = arriving.result()
            if message is None:
                return
            _print_message(message, as_json)
            await consumer.ack(message)
            printed += 1
    finally:
        stopped.cancel()


def _print_message(message: "ReceivedMessage", as_json: bool) -> None:
    if as_json:
        print_json(message.to_json())
        return
    tags = f" [{message.tags}]" if message.tags else ""
    keys = f" keys={' '.join(message.keys)}" if message.keys else ""
    where = f"{message.broker_name}/{message.queue_id}@{message.queue_offset}"
    head = f"{local_time(message.born_timestamp_ms)} {where}{tags}{keys} {message.message_id}"
    print_lines([f"{head}{os.linesep}{message.text}"], flush=True)
