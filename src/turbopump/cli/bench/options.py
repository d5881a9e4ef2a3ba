"""The options of `turbopump bench`: RocketMQ's letters and names first, then our own.

Owns their spelling.

Tests: tests/unit/cli/bench/test_commands.py
"""

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from turbopump.cli.options import INT32_MAX, INT64_MAX, Switch


class HeaderEncoding(Enum):
    """Encoding of request headers (RocketMQ: SerializeType)."""

    JSON = "json"
    ROCKETMQ = "rocketmq"


class BenchBegin(Enum):
    """Where the consumer of a load begins to read: first or last message."""

    FIRST = "first"
    """The first message of each queue."""
    LAST = "last"
    """The end of each queue when the command starts."""


def _count_option(*names: str, help: str, least: int = 1, most: int = INT32_MAX) -> Any:
    return typer.Option(*names, min=least, max=most, metavar="N", help=help)


def _switch_option(*names: str, help: str, hidden: bool = False) -> Any:
    return typer.Option(*names, help=help, hidden=hidden)


def _seconds_option(name: str, help: str) -> Any:
    return typer.Option(name, min=0, metavar="SECONDS", help=help)


Topic = Annotated[str, typer.Option("-t", "--topic", metavar="TOPIC", help="The topic.")]
Threads = Annotated[
    int,
    _count_option("-w", "--threadCount", "--connections", help="Connections, one request each."),
]
Size = Annotated[int, _count_option("-s", "--messageSize", help="Bytes of a body.")]
KeyEnable = Annotated[
    Switch, _switch_option("-k", "--keyEnable", help="Add a key: the time in seconds.")
]
PropertySize = Annotated[
    int, _count_option("-p", "--propertySize", help="Bytes of user properties, at least.", least=0)
]
TagCount = Annotated[
    int,
    _count_option("-l", "--tagCount", help="Number of tags used in rotation, 0: none.", least=0),
]
Messages = Annotated[
    int,
    _count_option(
        "-q",
        "--messageNum",
        "--messages",
        help="Number of messages, 0: no limit.",
        least=0,
        most=INT64_MAX,
    ),
]
DelayEnable = Annotated[
    Switch, _switch_option("-d", "--delayEnable", help="Send delayed messages.")
]
DelayLevel = Annotated[int, _count_option("-e", "--delayLevel", help="Level of the delay.")]
AsyncEnable = Annotated[
    Switch,
    _switch_option("-y", "--asyncEnable", help="One connection, 256 in flight, unless given."),
]
TraceEnable = Annotated[
    Switch, _switch_option("-m", "--msgTraceEnable", help="Not supported.", hidden=True)
]
AclEnable = Annotated[
    Switch,
    _switch_option("-a", "--aclEnable", help="Sign the sends; credentials alone do that, too."),
]
Batch = Annotated[int, _count_option("-b", "--batchSize", "--batch", help="Messages per request.")]
Group = Annotated[str, typer.Option("-g", "--group", metavar="GROUP", help="The consumer group.")]
Suffix = Annotated[
    Switch, _switch_option("-p", "--groupPrefixEnable", help="Append a number to the group's name.")
]

InFlight = Annotated[
    int | None, _count_option("--in-flight", help="Requests in flight per connection; 1.")
]
Rate = Annotated[
    float,
    typer.Option(
        "--rate",
        min=0,
        metavar="N",
        help="Messages per second, 0: a request follows each response.",
    ),
]
Duration = Annotated[
    float, _seconds_option("--duration", "Time to measure; 30 if there is no other limit.")
]
Warmup = Annotated[float, _seconds_option("--warmup", "Time before the measurement.")]
Header = Annotated[HeaderEncoding, typer.Option("--encoding", help="Encoding of request headers.")]
NoUniqueKey = Annotated[
    bool, typer.Option("--no-unique-key", help="Omit the UNIQ_KEY that clients set.")
]
Queues = Annotated[int, _count_option("--queues", help="Queues of a topic that is created.")]
Topics = Annotated[int, _count_option("--topics", help="Number of topics: TOPIC-0, TOPIC-1 ...")]
PullConnections = Annotated[
    int,
    _count_option(
        "-w", "--threadCount", "--connections", help="Connections; they share the queues."
    ),
]
Consumers = Annotated[int, _count_option("--consumers", help="Connections that pull.")]
PullSize = Annotated[int, _count_option("--pull-size", help="Maximum messages per pull.")]
From = Annotated[
    BenchBegin, typer.Option("--from", help="Begin at the first message, or after the last.")
]
Follow = Annotated[
    bool, typer.Option("--follow", help="Continue with new messages until the time ends.")
]
CheckCrc = Annotated[bool, typer.Option("--check-crc", help="Check the CRC of each body.")]
WorkloadFile = Annotated[
    Path | None,
    typer.Option("--workload", metavar="FILE", help="A workload of OpenMessaging Benchmark."),
]
Replay = Annotated[
    Path | None,
    typer.Option(
        "--replay",
        metavar="DATASET",
        help="Send these bodies in rotation: from `turbopump analyze export`, either format.",
    ),
]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw the result into a PNG file.")
]
