"""Restores the bodies of a table as their senders wrote them: decompressed according to sys_flag.

Owns the loops only; the engine has the kinds of compression. It must never hold more than one
batch. It also runs on Spark's workers.
"""

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from turbopump.engine.compression import (
    COMPRESSED_FLAG,
    COMPRESSION_TYPE_MASK,
    BadCompression,
    plain_body,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEPT_FLAGS = ~(COMPRESSED_FLAG | COMPRESSION_TYPE_MASK)
"""Mask of the bits of sys_flag that remain after decompression."""
PLACE = ("topic", "queue_id", "queue_offset")
"""Columns that name a body's place in errors."""


class UnreadableBody(ValueError):
    """A body that cannot be decompressed; the text names its place and the reason."""


def decompress_bodies(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with decompressed bodies, and `sys_flag` and `body_size` adjusted to them.

    The batch must have these columns, `body` and PLACE. A batch without a compressed body is
    returned itself. Raises UnreadableBody.
    """
    flags, stored = batch.column("sys_flag"), batch.column("body")
    bodies = plain_bodies(flags, stored, *(batch.column(name) for name in PLACE))
    if bodies is stored:
        return batch
    kept = pc.if_else(_is_compressed(flags), pc.bit_wise_and(flags, KEPT_FLAGS), flags)
    batch = _with_column(batch, "body", bodies)
    batch = _with_column(batch, "sys_flag", kept.cast(pa.int32()))
    return _with_column(batch, "body_size", pc.binary_length(bodies).cast(pa.int32()))


def plain_bodies(flags: pa.Array, bodies: pa.Array, *place: pa.Array) -> pa.Array:
    """Return the bodies, decompressed where `flags` (sys_flag) demand it; `place` are the columns
    of PLACE. Without a compressed body, `bodies` itself. Raises UnreadableBody."""
    rows = pc.indices_nonzero(_is_compressed(flags)).to_pylist()
    if not rows:
        return bodies
    made: list[object] = bodies.to_pylist()
    for row in rows:
        try:
            made[row] = plain_body(flags[row].as_py(), bodies[row].as_py())
        except BadCompression as error:
            topic, queue, offset = (column[row].as_py() for column in place)
            where = f"{topic}, queue {queue}, queue offset {offset}"
            raise UnreadableBody(f"{where}: {error}") from None
    return pa.array(made, bodies.type)


def plain_frame(frame: "DataFrame") -> "DataFrame":
    """Return the Spark frame with decompressed bodies, and `sys_flag` and `body_size` (if there)
    adjusted; it must have `body`, `sys_flag` and PLACE. Lazy: a bad body fails Spark's query."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import arrow_udf

    by_hints: Any = arrow_udf  # its types demand the argument that its code warns of
    bodies = by_hints(plain_bodies, "binary")
    flags = f.col("sys_flag")
    is_plain = flags.bitwiseAND(COMPRESSED_FLAG) == 0
    frame = frame.withColumn("body", bodies(flags, "body", *PLACE))
    if "body_size" in frame.columns:
        frame = frame.withColumn("body_size", f.octet_length("body").cast("int"))
    kept = flags.bitwiseAND(KEPT_FLAGS)
    return frame.withColumn("sys_flag", f.when(is_plain, flags).otherwise(kept))


def _is_compressed(flags: pa.Array) -> pa.Array:
    """Return for each sys_flag whether the body is compressed."""
    return pc.not_equal(pc.bit_wise_and(flags, COMPRESSED_FLAG), 0)


def _with_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    """Return the batch with the column `name` replaced."""
    at = batch.schema.get_field_index(name)
    return batch.set_column(at, batch.schema.field(at), column)
