"""The tree of commands, and what happens when one fails.

Owns the names. It must never import what a command needs: their modules import typer only, and the
rest when they run. Called by turbopump.cli.main.
"""

import os
import sys

import typer

from turbopump.cli import admin, inspect
from turbopump.cli.consume import consume
from turbopump.cli.errors import UserError, fail
from turbopump.cli.nodes import broker, namesrv
from turbopump.cli.send import send
from turbopump.cli.up import up

app = typer.Typer(
    name="turbopump",
    help="A high-availability message broker, compatible with Apache RocketMQ 5.x.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (up, namesrv, broker, send, consume):
    app.command()(command)
app.add_typer(admin.app, name="admin")
app.add_typer(inspect.app, name="inspect")


def run() -> None:
    """Run the command of this process's arguments; ends the process."""
    try:
        app()
    except UserError as error:
        fail(error)
    except BrokenPipeError:
        # The reader of a pipe has gone: the interpreter's own flush at exit must not fail too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
