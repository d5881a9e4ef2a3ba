"""`turbopump analyze`: the jobs over stores, on a local Spark unless --master says otherwise.

Owns the names and what is said where Spark is not installed. Options are the jobs' own, the same as
with `python -m` and spark-submit; nothing of them is imported before a job runs. Called by app.py.
"""

import typer

from turbopump.cli.errors import UserError

app = typer.Typer(no_args_is_help=True, help="Stores and histories as tables, judged by Spark.")
AS_THEY_ARE = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command(context_settings=AS_THEY_ARE, add_help_option=False)
def throughput(context: typer.Context) -> None:
    """Messages, bytes, latencies, gaps and replication delay of stores, over time."""
    _run("turbopump.spark.throughput", context)


@app.command(context_settings=AS_THEY_ARE, add_help_option=False)
def truncation(context: typer.Context) -> None:
    """Prove or refute that replicated stores hold what clients were told they do."""
    _run("turbopump.spark.audit.job", context)


@app.command(context_settings=AS_THEY_ARE, add_help_option=False)
def rebalance(context: typer.Context) -> None:
    """How even, sticky and slow the rebalances of consumer groups were."""
    _run("turbopump.spark.rebalance", context)


@app.command(context_settings=AS_THEY_ARE, add_help_option=False)
def export(context: typer.Context) -> None:
    """Topics as Parquet, or as an mmap-ninja dataset."""
    _run("turbopump.spark.export", context)


def _run(module: str, context: typer.Context) -> None:
    from importlib import import_module
    from importlib.util import find_spec

    for package in ("pyarrow", "numpy", "pyspark", "mmap_ninja", "matplotlib"):
        if find_spec(package) is None:
            raise UserError(
                f"analyze needs {package}, which is not installed: pip install 'turbopump[spark]'"
            )
    raise typer.Exit(import_module(module).main(list(context.args)))
