"""Analytics over the raw log: a store as a table, with Spark and without. Imports engine only.

    from turbopump.spark import read_arrow, register

    read_arrow("/data/store", columns=["topic", "size"]).read_all()         # without a JVM

    register(spark)
    spark.read.format("turbopump").load("/data/store")                      # with Spark 4.2

`read_arrow` needs the extra `turbopump[arrow]`, which is pyarrow alone; `register` and the jobs
need `turbopump[spark]`. Importing this package needs neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from turbopump.spark.arrow import read_arrow
    from turbopump.spark.schema import ARROW_SCHEMA, COLUMNS

__all__ = ["ARROW_SCHEMA", "COLUMNS", "read_arrow", "register"]

_NEED_PYARROW = {"ARROW_SCHEMA": "schema", "COLUMNS": "schema", "read_arrow": "arrow"}
"""Module of each lazily imported name, so that showing help needs no pyarrow."""


def __getattr__(name: str) -> Any:
    """Import a name of _NEED_PYARROW when it is first used, so that this package needs no
    pyarrow."""
    if name not in _NEED_PYARROW:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_NEED_PYARROW[name]}"), name)


def register(spark: "SparkSession") -> None:
    """Register the formats of `spark.read.format("turbopump")` and `spark.readStream`.

    Afterwards a local session's workers run this process's Python, unless a setting names another
    one: Spark's default is the first `python3` on the PATH, which may lack this package.
    """
    from turbopump.spark.session import use_this_python
    from turbopump.spark.source.format import register as register_source

    use_this_python(spark)
    register_source(spark)
