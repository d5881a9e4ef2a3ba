"""The Spark session of a job: the same from the command line, `python -m` and spark-submit.

Owns the settings of a local Spark (loopback, no UI, UTC, a quiet JVM), the options that all jobs
share, and the report of a job that cannot run: one sentence, exit code 2. It must never know the
job's work. It imports pyspark when a session is made, not before.
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from turbopump.engine.types import TurbopumpError
from turbopump.spark.commands.parsers import LOCAL
from turbopump.spark.progress import show_progress_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
"""Address to which a local Spark is bound."""
BAD_INPUT = 2
"""Exit code of a job that could not begin; a job's own results are 0 (yes) and 1 (a violation)."""

ARROW_UNCHECKED = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Options of a local JVM: Spark reads each value of a batch separately, and Arrow would check its
bounds again each time. The batches are our own, so the check is switched off."""

LOCAL_CONF: Mapping[str, str] = {
    "spark.driver.extraJavaOptions": ARROW_UNCHECKED,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "16",  # Spark's default, 200, suits a cluster
}
"""Settings of a local session, unless the user's --conf sets them."""
ALWAYS_CONF: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",  # the same report on every machine
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 has no time zone
}
"""Settings of every session, unless the user's --conf sets them."""
OUR_ERROR = re.compile(r"turbopump\.[\w.]+: (.+)")
"""The last line of a worker's traceback with an error of this project; its group is the error's
text."""
LOG_TAIL = 2000  # bytes of the JVM's output that are shown if it did not start


class JobError(TurbopumpError):
    """The input of a job cannot be used; the text is one sentence."""


class SparkUnavailable(JobError):
    """Spark is missing here; the text names the remedy."""


def check_installed() -> None:
    """Check that pyspark, pyarrow and Java (unless spark-submit started this process) are
    installed; starts nothing. Raises SparkUnavailable."""
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise SparkUnavailable(
            "this needs Spark: pip install '.[spark]' in a clone of Turbopump, or "
            "pip install 'FILE.whl[spark]' with its wheel"
        )
    if "PYSPARK_GATEWAY_PORT" not in os.environ and find_java() is None:
        raise SparkUnavailable("Spark needs Java 17 or newer: install it, or set JAVA_HOME")


def find_java() -> str | None:
    """Return the path of the Java that Spark would start; None if Java is missing."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", "java")) if home else "java")


def start(
    name: str, master: str | None = None, conf: Sequence[str] = (), *, verbose: bool = False
) -> "SparkSession":
    """Return this process's Spark session, making it if necessary; the caller stops it.

    Without a master and outside of spark-submit it is a local session. `conf` are texts KEY=VALUE
    that override the settings here. `verbose` leaves the JVM's output on stderr. Raises
    SparkUnavailable if it cannot be made, JobError for a setting that is not KEY=VALUE.
    """
    settings = _parse_settings(conf)
    check_installed()
    from pyspark.sql import SparkSession

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is None and not submitted:
        master = LOCAL
    is_local = master is not None and master.startswith("local")
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    chosen = {**ALWAYS_CONF, **(LOCAL_CONF if is_local else {}), **settings}
    for key, value in chosen.items():
        builder = builder.config(key, value)
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    with _jvm_output_aside(is_local and not submitted and not verbose) as tail:
        try:
            return builder.getOrCreate()
        except Exception as error:
            words = " ".join(f"{error} {tail()}".split())
            raise SparkUnavailable(f"Spark does not start: {words}") from error


@contextmanager
def open_session(
    name: str, master: str | None = None, conf: Sequence[str] = (), *, verbose: bool = False
) -> "Iterator[SparkSession]":
    """Provide a session for one job: `start` it, show its progress on stderr, and stop it after.

    A session that existed before is not stopped. Spark's errors become JobError, with the text of
    our own error if a worker's report contains one.
    """
    shared = _is_running()
    spark = start(name, master, conf, verbose=verbose)
    try:
        with show_progress_of(spark), _errors_as_sentences():
            yield spark
    finally:
        if not shared:
            spark.stop()


@contextmanager
def _errors_as_sentences() -> Iterator[None]:
    """Convert Spark's errors of the block to JobError, whose text is a sentence."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise JobError(sentence_of(str(error))) from error


def sentence_of(report: str) -> str:
    """Return the text of our last error in Spark's failure report, else the report's first line."""
    lines = [line.strip() for line in report.splitlines() if line.strip()]
    ours = [found for line in lines if (found := OUR_ERROR.match(line))]
    if ours:
        return ours[-1].group(1)
    return lines[0] if lines else "Spark failed without a message"


def use_this_python(spark: "SparkSession") -> None:
    """Let a local session's workers run this process's Python.

    An environment variable or a setting that names another Python has precedence. Workers of a
    cluster run on machines with their own Python.
    """
    context = spark.sparkContext
    chosen = os.environ.get("PYSPARK_PYTHON") or spark.conf.get("spark.pyspark.python", "")
    if not chosen and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable


def _is_running() -> bool:
    """Whether this process already has a Spark session: a notebook's, or a test run's."""
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def job_main(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    work: "Callable[[SparkSession, argparse.Namespace], int]",
) -> int:
    """Run a job as a program: parse `argv` (None: the process's), start a session, call
    `work(spark, arguments)`, stop; return the exit code of `work`.

    A JobError, or our own error in a worker, is printed to stderr as a sentence and gives
    BAD_INPUT; any other error is raised.
    """
    given = parser.parse_args(argv)
    try:
        with open_session(parser.prog, given.master, given.conf, verbose=given.verbose) as spark:
            return work(spark, given)
    except JobError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return BAD_INPUT
    except Exception as error:
        words = own_error_text(error)
        if words is None:
            raise
        print(f"{parser.prog}: {words}", file=sys.stderr)
        return BAD_INPUT


def own_error_text(error: Exception) -> str | None:
    """Return the text of this project's error that a Python worker raised, without tracebacks.
    None if `error` is not such an error of Spark's."""
    if not type(error).__module__.startswith("pyspark."):
        return None
    texts = re.findall(r"^turbopump\.[\w.]+: (.+)$", str(error), re.MULTILINE)
    return str(texts[-1]) if texts else None


def _parse_settings(conf: Sequence[str]) -> dict[str, str]:
    """Parse texts KEY=VALUE; raises JobError."""
    made: dict[str, str] = {}
    for text in conf:
        key, found, value = text.partition("=")
        if not found or not key.strip():
            raise JobError(f"--conf {text}: KEY=VALUE is expected")
        made[key.strip()] = value
    return made


@contextmanager
def _jvm_output_aside(aside: bool) -> Iterator[Callable[[], str]]:
    """Start the JVM in the block with its stderr in an unnamed file if `aside`; yields a
    function that returns the end of that text. The JVM prints half a dozen lines that no setting
    of Spark suppresses. Its errors reach Python as exceptions anyway."""
    if not aside:
        yield str
        return
    with tempfile.TemporaryFile() as file:

        def tail() -> str:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL))
            return file.read().decode(errors="replace")

        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield tail
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
