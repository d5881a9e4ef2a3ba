"""The tree of commands, and the handling of a command's failure.

Owns the names. It must never import a command's dependencies: the modules of commands import typer
only, and the rest when they run.

Tests: tests/unit/cli/test_run_command.py, tests/unit/cli/test_main.py
"""

import io
import os
import sys
from typing import Annotated

import typer

from turbopump.cli import analyze
from turbopump.cli.admin import commands as admin
from turbopump.cli.bench import commands as bench
from turbopump.cli.consume import consume
from turbopump.cli.credentials import add_options, with_credentials
from turbopump.cli.errors import FAILED, UserError, exit_with_error, failure_of
from turbopump.cli.group import commands as node
from turbopump.cli.inspect import commands as inspect
from turbopump.cli.nodes import broker, container, controller, namesrv, proxy
from turbopump.cli.repair import repair
from turbopump.cli.send import send
from turbopump.cli.top import top
from turbopump.cli.up import up

PROGRAM = "turbopump"
"""Name of the command and of the distribution."""

app = typer.Typer(
    name=PROGRAM,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (up, namesrv, controller, broker, container, proxy):
    app.command()(command)
for signing in (send, consume, top):
    app.command()(with_credentials(signing))
app.command()(repair)
add_options(bench.app)
app.add_typer(node.app, name="node")
app.add_typer(admin.app, name="admin")
app.add_typer(inspect.app, name="inspect")
app.add_typer(bench.app, name="bench")
app.add_typer(analyze.app, name="analyze")


def _show_version(wanted: bool) -> None:
    """Callback of --version: print the version and end the command."""
    if wanted:
        from importlib.metadata import version

        print(f"{PROGRAM} {version(PROGRAM)}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """A high-availability message broker, compatible with Apache RocketMQ 5.x."""


def run() -> None:
    """Run the command of this process's arguments and end the process (SystemExit); a failure is
    one sentence on stderr."""
    if isinstance(
        sys.stdout, io.TextIOWrapper
    ):  # names in stores and responses may be invalid text
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here, so that a full disk is reported as one sentence
    except UserError as error:
        exit_with_error(error)
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has ended: no error
        _drop_output()
        raise SystemExit(FAILED) from None
    except OSError as error:
        if error.filename is None:
            _drop_output()
        exit_with_error(failure_of(error))


def _drop_output() -> None:
    """Replace a standard output that cannot be written, so that the flush at exit does not fail
    too.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
