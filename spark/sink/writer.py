"""The interface of a Spark sink written in Python, for batches and streams.

Owns the sink's options and columns. It must never send by itself (`sending` does), nor undo a send:
a topic has no transactions for Spark to commit.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from turbopump.spark.sink.sending import BadCredentials, Target, credentials_of, send_rows
from turbopump.spark.source.options import BadOption

logger = logging.getLogger(__name__)

NAMES = ("namesrv", "topic", "group", "tls", "credentials", "timeoutMs", "inFlight")
"""Options of a sink; their case does not matter."""
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string", "array<string>"),
    "properties": ("map<string,string>",),
    "sharding_key": ("string",),
    "delay_level": ("int", "bigint"),
    "flag": ("int",),
}
"""Columns that a row may have, and their Spark types; `body` is required."""
SPARKS = frozenset({"checkpointlocation"})
"""Options, in small letters, that Spark itself adds for a streaming query."""
GROUP = "turbopump-spark"
"""Default of the option `group`, the producer group."""
TIMEOUT_MS = 30_000
"""Default of the option `timeoutMs`; see Target.timeout_ms."""
IN_FLIGHT = 64
"""Default of the option `inFlight`; see Target.in_flight."""


class WrongRows(ValueError):
    """The frame's columns do not fit messages."""


@dataclass
class Sent(WriterCommitMessage):
    """Report of a task to the driver: the number of rows that it sent."""

    rows: int


def target_of(given: Mapping[str, str], schema: StructType, overwrite: bool) -> Target:
    """Make the target from the options, after checks of the options and the columns; `overwrite` is
    refused. Raises BadOption, WrongRows."""
    known = {name.lower(): name for name in NAMES}
    texts: dict[str, str] = {}
    for name, text in given.items():
        if name.lower() in known:
            texts[known[name.lower()]] = text.strip()
        elif name.lower() not in SPARKS:
            raise BadOption(f"a sink has no option {name!r}; there are {', '.join(NAMES)}")
    if overwrite:
        raise BadOption("a topic cannot be overwritten, only appended to: mode('append')")
    if not texts.get("namesrv"):
        raise BadOption("no name server was named: the option namesrv is 'host:port', ';' between")
    check_columns(schema, named="topic" in texts)
    tls = texts.get("tls", "false")
    try:
        credentials = credentials_of(texts.get("credentials", ""))
    except BadCredentials as error:
        raise BadOption(f"credentials: {error}") from None
    return Target(
        texts["namesrv"],
        texts.get("topic"),
        texts.get("group", GROUP),
        tls.lower() == "true" if tls.lower() in ("true", "false") else tls,
        _read_number(texts, "timeoutMs", TIMEOUT_MS),
        _read_number(texts, "inFlight", IN_FLIGHT),
        credentials,
    )


def check_columns(schema: StructType, *, named: bool) -> None:
    """Check that `schema` has only COLUMNS, of their types, and that `body` is among them; so must
    be `topic`, unless `named`: then the topic is an option and must be no column. Raises
    WrongRows."""
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if field.name not in COLUMNS:
            raise WrongRows(f"a message has no column {field.name!r}; it has {', '.join(COLUMNS)}")
        if kind not in COLUMNS[field.name]:
            wanted = " or ".join(COLUMNS[field.name])
            raise WrongRows(f"column {field.name!r} must be {wanted}, not {kind}")
    names = schema.fieldNames()
    if "body" not in names:
        raise WrongRows("a message needs a column 'body'")
    if named and "topic" in names:
        raise WrongRows("the topic is named twice, by the option and by a column: leave one out")
    if not named and "topic" not in names:
        raise WrongRows("no topic was named: by the option topic, or by a column")


def _read_number(texts: Mapping[str, str], name: str, default: int) -> int:
    """Read an option that is a number of at least 1; raises BadOption."""
    text = texts.get(name, str(default))
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise BadOption(f"{name} is {text!r}, but must be a number of at least 1")
    return int(text)


class TopicWriter(DataSourceArrowWriter):
    """Sends the rows of a frame; Spark calls its methods."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of a partition, in a worker; see `send_rows` for its errors."""
        return Sent(send_rows(self._target, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the number of rows; they were sent already."""
        logger.info("%d messages were sent", _sent_rows(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the number of rows that were sent before the failure; they stay in the topic."""
        logger.warning("%d messages were sent before the write failed", _sent_rows(messages))


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of a stream, micro-batch by micro-batch; Spark calls its methods."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of a partition of a micro-batch; see `send_rows` for its errors."""
        return Sent(send_rows(self._target, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log the number of rows; they were sent already."""
        logger.info("%d messages of batch %d were sent", _sent_rows(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log the number of rows that were sent before the failure; they stay in the topic."""
        sent = _sent_rows(messages)
        logger.warning("%d messages of batch %d were sent before it failed", sent, batchId)


def _sent_rows(messages: list[WriterCommitMessage | None]) -> int:
    """Return the number of rows that the tasks of a write sent."""
    return sum(one.rows for one in messages if isinstance(one, Sent))
