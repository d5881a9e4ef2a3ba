"""`turbopump analyze`: the Spark jobs over stores, on a local Spark unless --master is given.

Owns the commands' names, their help and the error for a missing package. The options are the jobs'
own, the same as with `python -m` and spark-submit; a job's modules are imported when it runs.
"""

import argparse
from inspect import Parameter, Signature
from typing import Any, NoReturn

import typer

from turbopump.cli.errors import UserError
from turbopump.spark.commands.parsers import PARSERS

app = typer.Typer(no_args_is_help=True, help="Stores and histories as tables, judged by Spark.")
AS_THEY_ARE = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Settings of a command whose arguments typer does not parse."""
HELP = {"-h", "--help"}
"""Options that show a job's help."""
OF_SPARK = ("pyspark", "mmap_ninja")
"""Packages that a job with --local does not need."""
PACKAGES = ("pyarrow", "numpy", "pyspark", "mmap_ninja", "matplotlib")
"""Packages that jobs need, by the names of their modules."""


@app.command(context_settings=AS_THEY_ARE, add_help_option=False)
def throughput(context: typer.Context) -> None:
    """Show messages, bytes, latencies, gaps and replication delay of stores, over time."""
    _run_job("throughput", "turbopump.spark.throughput.job", context)


@app.command(context_settings=AS_THEY_ARE, add_help_option=False)
def truncation(context: typer.Context) -> None:
    """Prove or refute that replicated stores hold all messages that clients received."""
    _run_job("truncation", "turbopump.spark.audit.job", context)


@app.command(context_settings=AS_THEY_ARE, add_help_option=False)
def rebalance(context: typer.Context) -> None:
    """Measure how even, sticky and slow the rebalances of consumer groups were."""
    _run_job("rebalance", "turbopump.spark.rebalance.job", context)


@app.command(context_settings=AS_THEY_ARE, add_help_option=False)
def export(context: typer.Context) -> None:
    """Export topics as Parquet, or as an mmap-ninja dataset."""
    _run_job("export", "turbopump.spark.export.job", context)


def _run_job(job: str, module: str, context: typer.Context) -> None:
    """Run the job whose main function is in `module` with the command's arguments, or show its
    help; ends with the job's exit code. Raises UserError for wrong arguments or a missing package.
    """
    from importlib import import_module
    from importlib.util import find_spec

    words = list(context.args)
    if not words or HELP & set(words):
        _show_help(PARSERS[job]())
        raise typer.Exit(0 if words else 2)
    _check_arguments(PARSERS[job](), words)
    needless = OF_SPARK if "--local" in words else ()
    for package in PACKAGES:
        if package not in needless and find_spec(package) is None:
            raise UserError(
                f"analyze needs {package}, which is not installed: pip install '.[spark]' in a "
                "clone of Turbopump, or pip install 'FILE.whl[spark]' with its wheel"
            )
    raise typer.Exit(import_module(module).main(words))


def _check_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Check a job's arguments; wrong ones raise UserError with one sentence, as in every other
    command.
    """

    def refuse(message: str) -> NoReturn:
        raise UserError(f"{parser.prog.removeprefix('turbopump ')}: {message}")

    parser.error = refuse  # type: ignore[method-assign]
    parser.parse_args(words)


def _show_help(parser: argparse.ArgumentParser) -> None:
    """Print the help of a job's arguments in the form of all other commands: a typer command with
    the same options is built for it, and only its help is used.
    """

    def command() -> None:
        raise AssertionError("the job parses its arguments itself")

    parameters = [
        _typer_parameter(action)
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction)
    ]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    shown = typer.Typer(add_completion=False)
    shown.command(help=parser.description, epilog=parser.epilog)(command)
    shown(["--help"], prog_name=parser.prog, standalone_mode=False)


def _typer_parameter(action: argparse.Action) -> Parameter:
    """The parameter of a typer command for an argparse option or argument."""
    metavar = action.metavar or "|".join(map(str, action.choices or ())) or None
    default: Any = ... if action.required else None
    if action.option_strings:
        flag = action.nargs == 0
        made = typer.Option(
            False if flag else default,
            *action.option_strings,
            help=action.help,
            metavar=None if flag else str(metavar),
            show_default=False,
        )
        return Parameter(
            action.dest, Parameter.KEYWORD_ONLY, default=made, annotation=bool if flag else str
        )
    made = typer.Argument(default, help=action.help, metavar=f"{metavar}...")
    return Parameter(action.dest, Parameter.KEYWORD_ONLY, default=made, annotation=str)
