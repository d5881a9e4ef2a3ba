"""`turbopump node`: stop, kill and start nodes of a group that runs as processes.

Owns the commands and their output. The `turbopump up` of the data folder does the work; control.py
sends it the requests.

Tests: tests/unit/cli/group/test_up_processes.py
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from turbopump.cli.options import Json
from turbopump.cli.output import format_columns, print_json, print_lines

LINE = "{:<20} {:<9} {:>8}  {:<22} {:<7} {}"
"""Layout of a node's line, for `output.format_columns`."""

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A node of `turbopump node list`, or `master`."),
]
Data = Annotated[
    Path, typer.Option("--data", metavar="DIR", help="The data folder of turbopump up.")
]
DEFAULT_DATA = Path("turbopump-data")
"""Data folder of a command without --data."""

app = typer.Typer(no_args_is_help=True, help="Stop, kill and start single nodes of `turbopump up`.")


@app.command("list")
def list_nodes(data: Data = DEFAULT_DATA, as_json: Json = False) -> None:
    """List all nodes: state, pid, address, role and configuration file."""
    nodes = _send_request(data, "list")
    if as_json:
        for node in nodes:
            print_json(node)
        return
    head = format_columns(LINE, "#Node", "#State", "#Pid", "#Address", "#Role", "#Config")
    rows = (
        format_columns(
            LINE,
            *(each[key] or "-" for key in ("node", "state", "pid", "address", "role", "config")),
        )
        for each in nodes
    )
    print_lines([head, *rows])


@app.command()
def kill(name: Name, data: Data = DEFAULT_DATA, as_json: Json = False) -> None:
    """Kill a node at once, as `kill -9` does: it cannot save its state."""
    _print_act("kill", name, data, as_json)


@app.command()
def stop(name: Name, data: Data = DEFAULT_DATA, as_json: Json = False) -> None:
    """Stop a node in order: it saves its state first."""
    _print_act("stop", name, data, as_json)


@app.command()
def start(name: Name, data: Data = DEFAULT_DATA, as_json: Json = False) -> None:
    """Start a node again; returns when it serves."""
    _print_act("start", name, data, as_json)


def _print_act(what: str, name: str, data: Path, as_json: bool) -> None:
    """Let `turbopump up` do `what` (start, stop, kill) with a node, and print the node's
    new state."""
    done = _send_request(data, what, name)
    if as_json:
        print_json(done)
    else:
        print_lines([f"{done['node']} (pid {done['pid']}): {done['state']}"])


def _send_request(data: Path, what: str, name: str = "") -> Any:
    """Send a request to the `turbopump up` of the data folder, and return its result."""
    from turbopump.cli.group.control import ask_running_group

    return ask_running_group(data, {"do": what, "node": name})
