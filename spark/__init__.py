"""Analytics over the raw log: a store as a table, with Spark and without. Imports engine only.

    from turbopump.spark import read_arrow, register

    read_arrow("/data/store", columns=["topic", "size"]).read_all()         # without a JVM

    register(spark)
    spark.read.format("turbopump").load("/data/store")                      # with Spark 4

Needs the extra `turbopump[spark]`. Importing this needs no pyspark; `register` does.
"""

from typing import TYPE_CHECKING

from turbopump.spark.arrow import read_arrow
from turbopump.spark.schema import ARROW_SCHEMA, COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ARROW_SCHEMA", "COLUMNS", "read_arrow", "register"]


def register(spark: "SparkSession") -> None:
    """Make `spark.read.format("turbopump")` and `spark.readStream.format("turbopump")` known."""
    from turbopump.spark.source import register as register_source

    register_source(spark)
