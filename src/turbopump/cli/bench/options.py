"""The options of `turbopump bench`: RocketMQ's letters and names first, then ours.

Owns their spelling. Called by bench/commands.py.
"""

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from turbopump.cli.options import INT32_MAX, INT64_MAX, Switch


class HeaderEncoding(Enum):
    """How request headers are encoded (RocketMQ: SerializeType)."""

    JSON = "json"
    ROCKETMQ = "rocketmq"


class BenchBegin(Enum):
    """Where a consumer begins."""

    FIRST = "first"
    LAST = "last"


def _count(*names: str, help: str, least: int = 1, most: int = INT32_MAX) -> Any:
    return typer.Option(*names, min=least, max=most, metavar="N", help=help)


def _switch(*names: str, help: str, hidden: bool = False) -> Any:
    return typer.Option(*names, help=help, hidden=hidden)


def _seconds(name: str, help: str) -> Any:
    return typer.Option(name, min=0, metavar="SECONDS", help=help)


Topic = Annotated[str, typer.Option("-t", "--topic", metavar="TOPIC", help="The topic.")]
Threads = Annotated[
    int, _count("-w", "--threadCount", "--connections", help="Connections, one request each.")
]
Size = Annotated[int, _count("-s", "--messageSize", help="Bytes of a body.")]
KeyEnable = Annotated[Switch, _switch("-k", "--keyEnable", help="A key: the time in seconds.")]
PropertySize = Annotated[
    int, _count("-p", "--propertySize", help="Bytes of user properties, at least.", least=0)
]
TagCount = Annotated[
    int, _count("-l", "--tagCount", help="So many tags by turns, 0: none.", least=0)
]
Messages = Annotated[
    int,
    _count(
        "-q",
        "--messageNum",
        "--messages",
        help="End after so many, 0: never.",
        least=0,
        most=INT64_MAX,
    ),
]
DelayEnable = Annotated[Switch, _switch("-d", "--delayEnable", help="Delayed messages.")]
DelayLevel = Annotated[int, _count("-e", "--delayLevel", help="Their level.")]
AsyncEnable = Annotated[
    Switch, _switch("-y", "--asyncEnable", help="One connection, 256 in flight, unless given.")
]
TraceEnable = Annotated[
    Switch, _switch("-m", "--msgTraceEnable", help="Not supported.", hidden=True)
]
AclEnable = Annotated[Switch, _switch("-a", "--aclEnable", help="Not supported.", hidden=True)]
Batch = Annotated[int, _count("-b", "--batchSize", "--batch", help="Messages of one request.")]
Group = Annotated[str, typer.Option("-g", "--group", metavar="GROUP", help="The consumer group.")]
Suffix = Annotated[
    Switch, _switch("-p", "--groupPrefixEnable", help="A number behind the group's name.")
]

InFlight = Annotated[
    int | None, _count("--in-flight", help="Requests a connection has in flight at once; 1.")
]
Rate = Annotated[
    float,
    typer.Option(
        "--rate",
        min=0,
        metavar="N",
        help="Messages a second by the clock, 0: as fast as they are answered.",
    ),
]
Duration = Annotated[
    float, _seconds("--duration", "How long to measure; 30 if nothing else ends it.")
]
Warmup = Annotated[float, _seconds("--warmup", "How long before the measurement.")]
Header = Annotated[
    HeaderEncoding, typer.Option("--encoding", help="How request headers are encoded.")
]
NoUniqueKey = Annotated[
    bool, typer.Option("--no-unique-key", help="Without the UNIQ_KEY that clients give.")
]
Queues = Annotated[int, _count("--queues", help="Queues of a topic that has to be created.")]
Topics = Annotated[int, _count("--topics", help="So many topics, TOPIC-0 and on.")]
PullConnections = Annotated[
    int, _count("-w", "--threadCount", "--connections", help="Connections; the queues are dealt.")
]
Consumers = Annotated[int, _count("--consumers", help="Connections that pull.")]
PullSize = Annotated[int, _count("--pull-size", help="Messages of one pull, at most.")]
From = Annotated[
    BenchBegin, typer.Option("--from", help="Begin at the first message, or behind all.")
]
Follow = Annotated[
    bool, typer.Option("--follow", help="Go on with what arrives until the time is over.")
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
        help="Send these bodies by turns: of `turbopump analyze export`, either format.",
    ),
]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw the result into a PNG file.")
]
