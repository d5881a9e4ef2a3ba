"""Analytics over the raw log: a store as a table, with Spark and without. Imports engine only.

Needs the extra `turbopump[spark]`; what needs no JVM needs no pyspark either.
"""

from turbopump.spark.schema import ARROW_SCHEMA, COLUMNS

__all__ = ["ARROW_SCHEMA", "COLUMNS"]
