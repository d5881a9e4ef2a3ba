"""Options that several commands share, under mqadmin's letters and names.

Owns their spelling and their parsing. Called by the command modules.
"""

from typing import Annotated

import typer

from turbopump.cli.errors import UserError

DEFAULT_NAMESRV = "127.0.0.1:9876"


def parse_switch(text: str) -> bool:
    """mqadmin's boolean options take a value: `-o true`."""
    if text.lower() not in ("true", "false"):
        raise typer.BadParameter(f"{text!r} is not true or false")
    return text.lower() == "true"


def split_addresses(text: str) -> list[str]:
    """`host:port;host:port` as a list; raises UserError for anything else."""
    addresses = [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65_536:
            raise UserError(f"{address} is no address: host:port is expected")
    if not addresses:
        raise UserError("no name server address is given: -n host:port")
    return addresses


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
Switch = bool
"""A boolean option that takes a value; declare it with `parser=parse_switch`."""
