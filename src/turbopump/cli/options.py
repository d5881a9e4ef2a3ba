"""Options that several commands share, under mqadmin's letters and names.

Owns their spelling and their parsing.
"""

import re
from enum import Enum
from typing import Annotated, Any

import typer

from turbopump.cli.errors import UserError

DEFAULT_NAMESRV = "127.0.0.1:9876"
"""Name server of a command without -n and NAMESRV_ADDR."""
INT32_MAX = (1 << 31) - 1  # the largest count that the protocol can carry
INT64_MAX = (1 << 63) - 1  # the largest time or offset that the protocol can carry


class Switch(Enum):
    """Value of a boolean option in mqadmin's form: `-o true`."""

    TRUE = "true"
    FALSE = "false"

    def __bool__(self) -> bool:
        return self is Switch.TRUE


def port_option(*names: str, help: str) -> Any:
    """Return typer's declaration of an option with these names that takes a port number (0 to
    65,535)."""
    return typer.Option(*names, min=0, max=65_535, metavar="N", help=help)


def _checked_log_level(text: str) -> str:
    if text.lower() not in ("debug", "info", "warning", "error"):
        raise typer.BadParameter(f"{text!r} is not debug, info, warning or error")
    return text.lower()


def split_addresses(text: str) -> list[str]:
    """Split `host:port;host:port` (or with commas) into addresses, in order; raises UserError for
    an invalid address or an empty list."""
    addresses = [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]
    for address in addresses:
        check_address(address)
    if not addresses:
        raise UserError("no name server address is given: -n host:port")
    return addresses


def check_address(address: str) -> None:
    """Raise UserError unless `address` is `host:port` with a port from 1; the host is not
    resolved."""
    host, _, port = address.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65_536:
        raise UserError(f"{address} is no address: host:port is expected")


Namesrv = Annotated[
    str,
    typer.Option(
        "-n",
        "--namesrvAddr",
        metavar="HOST:PORT",
        envvar="NAMESRV_ADDR",
        help="Name servers, several separated by ';'.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one document a line.")]
LogLevel = Annotated[
    str,
    typer.Option(
        "--log-level",
        metavar="LEVEL",
        help="debug, info, warning or error.",
        callback=_checked_log_level,
    ),
]
Topic = Annotated[str, typer.Option("-t", "--topic", metavar="TOPIC", help="The topic.")]
OneBroker = Annotated[
    str | None, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="One broker.")
]
Interval = Annotated[
    int | None,
    typer.Option("-i", "--interval", min=1, metavar="SECONDS", help="Repeat until stopped."),
]
MessageId = Annotated[str, typer.Option("-i", "--msgId", metavar="ID", help="The message's id.")]


def one_place(broker: str | None, cluster: str | None) -> None:
    """Check that a command has exactly one target, a cluster or a broker with a valid `host:port`;
    raises UserError otherwise.
    """
    if (broker is None) == (cluster is None):
        raise UserError("give either a broker's address with -b or a cluster with -c")
    if broker is not None:
        check_address(broker)
