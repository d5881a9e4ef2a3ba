"""The options of the data source, parsed from Spark's texts.

Owns names and defaults, and the errors for impossible values. It must never need pyspark.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from turbopump.engine.log.epochs import LOG_OFFSET_MAX
from turbopump.engine.snapshot.log_table import RANGE_BYTES
from turbopump.spark.commands.times import time_ms
from turbopump.spark.schema import parse_columns

BATCH_ROWS_MIN, BATCH_ROWS_MAX = 4_096, 65_536
"""Limits of the default number of rows in a batch."""
BATCH_BYTES = 4 << 20
"""Likely bytes of a batch for the JVM.

The JVM holds two batches per task and reads them row by row, so they should fit in a cache. Narrow
rows should be many, because each batch has a fixed cost: four columns came 1.6 times as fast in
batches of 65,536 rows as in batches of 4,096.
"""
_WIDE = {
    "store": 32,
    "topic": 32,
    "born_host": 24,
    "store_host": 24,
    "keys": 40,
    "tags": 20,
    "unique_key": 40,
    "properties": 256,
    "body": 1024,
}
_NARROW = 8
"""Likely bytes of a column in a row."""
DIGITS_MAX = 19
"""Digits of a log offset or queue id, at most."""
PARTITION_BYTES_MIN = 1 << 10
"""Least `partitionBytes`: smaller ranges would make a task of each record, which only a mistyped
number requests."""

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_BOOLEANS = {"true": True, "false": False}
_NAMES = (
    "path",
    "paths",
    "columns",
    "confirmed",
    "partitionBytes",
    "batchRows",
    "verifyCrc",
    "skipDamaged",
    "topics",
    "queues",
    "since",
    "until",
    "minLogOffset",
    "maxLogOffset",
    "pruneByTime",
    "startingOffsets",
    "maxBytesPerTrigger",
    "failOnTruncation",
    "failOnDataLoss",
)

EARLIEST = "earliest"
"""Value of `startingOffsets`: a stream begins at the first record that the log has."""
LATEST = "latest"
"""Value of `startingOffsets`: a stream begins at the present end of the log."""


class BadOption(ValueError):
    """An unknown option or an impossible value; the text names both."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The user's choices; docs/SPARK.md describes each. Limits are inclusive, None is no limit."""

    paths: tuple[str, ...]
    """Paths or URIs of the stores, each once."""
    columns: tuple[str, ...]
    """Columns to read, in the table's order."""
    confirmed: bool = True
    """Whether a replicated store is read only to its confirmed end."""
    partition_bytes: int = RANGE_BYTES
    """Bytes of log per Spark task."""
    batch_rows: int = BATCH_ROWS_MIN
    """Rows of an Arrow batch, at most."""
    verify_crc: bool = False
    """Whether a body that does not match its CRC is damage."""
    skip_damaged: bool = False
    """Whether damage is logged and skipped; otherwise it ends the query."""
    topics: frozenset[str] | None = None
    """Selected topics; None: all."""
    queue_ids: frozenset[int] | None = None
    """Selected queue ids; None: all."""
    min_store_ms: int | None = None
    """Least store time in epoch ms."""
    max_store_ms: int | None = None
    min_log_offset: int | None = None
    max_log_offset: int | None = None
    prune_by_time: bool = False
    """Whether whole files outside of the times are skipped; see `read_arrow`."""
    starting_offsets: str = EARLIEST
    """EARLIEST, LATEST or a JSON object of positions by store; streams only."""
    max_bytes_per_trigger: int | None = None
    """Bytes of log of all stores in a micro-batch, at most; streams only."""
    fail_on_truncation: bool = True
    """Whether a stream ends if a log was truncated below its position; else a warning is logged."""
    fail_on_data_loss: bool = True
    """Whether a stream ends if retention removed records it has not read; else a warning."""


def parse(given: Mapping[str, str]) -> SourceOptions:
    """Parse Spark's options; names ignore case. Raises BadOption, UnknownColumn."""
    lower = {name.lower(): text for name, text in given.items()}
    known = {name.lower(): name for name in _NAMES}
    for name in sorted(set(lower) - set(known)):
        raise BadOption(f"there is no option {name!r}; there are {', '.join(_NAMES)}")
    texts = {known[name]: text for name, text in lower.items()}
    until_ms = _read_time(texts, "until")
    columns = parse_columns(texts.get("columns"))
    return SourceOptions(
        paths=_read_paths(texts),
        columns=columns,
        confirmed=_read_boolean(texts, "confirmed", True),
        partition_bytes=_read_number(texts, "partitionBytes", RANGE_BYTES, PARTITION_BYTES_MIN),
        batch_rows=_read_number(texts, "batchRows", likely_batch_rows(columns), 1),
        verify_crc=_read_boolean(texts, "verifyCrc", False),
        skip_damaged=_read_boolean(texts, "skipDamaged", False),
        topics=_topics(texts),
        queue_ids=_queue_ids(texts),
        min_store_ms=_read_time(texts, "since"),
        max_store_ms=None if until_ms is None else until_ms - 1,
        min_log_offset=_log_offset(texts, "minLogOffset"),
        max_log_offset=_log_offset(texts, "maxLogOffset"),
        prune_by_time=_read_boolean(texts, "pruneByTime", False),
        starting_offsets=texts.get("startingOffsets", EARLIEST),
        max_bytes_per_trigger=_read_number(texts, "maxBytesPerTrigger", 0, 1) or None,
        fail_on_truncation=_read_boolean(texts, "failOnTruncation", True),
        fail_on_data_loss=_read_boolean(texts, "failOnDataLoss", True),
    )


def likely_batch_rows(columns: Iterable[str]) -> int:
    """Return the number of rows of these columns in a batch of about BATCH_BYTES, within
    BATCH_ROWS_MIN and BATCH_ROWS_MAX."""
    width = sum(_WIDE.get(name, _NARROW) for name in columns)
    return min(max(BATCH_BYTES // max(width, 1), BATCH_ROWS_MIN), BATCH_ROWS_MAX)


def _read_paths(texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the locations of the options `path` and `paths`; raises BadOption."""
    found = [texts["path"]] if texts.get("path") else []
    if texts.get("paths"):
        try:
            more = json.loads(texts["paths"])
        except ValueError:
            more = None
        if not isinstance(more, list) or not all(isinstance(path, str) for path in more):
            raise BadOption(f"paths is {texts['paths']!r}, but must be a JSON list of texts")
        found += more
    if not found:
        raise BadOption("no store was named: load('/path/of/a/store'), or the option paths")
    twice = sorted({path for path in found if found.count(path) > 1})
    if twice:
        raise BadOption(f"{twice[0]!r} is named twice: its records would be, too")
    return tuple(found)


def _topics(texts: Mapping[str, str]) -> frozenset[str] | None:
    """Parse the option `topics`, a comma list, or a JSON list for names with commas; None: all
    topics."""
    if "topics" not in texts:
        return None
    text = texts["topics"].strip()
    found: object = [name for one in text.split(",") if (name := one.strip())]
    if text.startswith("["):
        try:
            found = json.loads(text)
        except ValueError:
            found = None
    if not isinstance(found, list) or not found or not all(isinstance(name, str) for name in found):
        raise BadOption(f"topics is {texts['topics']!r}, but must be a comma list, or a JSON list")
    return frozenset(found)


def _queue_ids(texts: Mapping[str, str]) -> frozenset[int] | None:
    """Parse the option `queues`, a comma list; None: all queues."""
    if "queues" not in texts:
        return None
    numbers = [one.strip() for one in texts["queues"].split(",")]
    if not all(map(_is_number, numbers)):
        raise BadOption(f"queues is {texts['queues']!r}, but must be a comma list of numbers")
    return frozenset(map(int, numbers))


def _is_number(text: str) -> bool:
    """Whether `text` is a whole number with at most as many digits as a log's greatest."""
    return text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX


def _read_time(texts: Mapping[str, str], name: str) -> int | None:
    """Parse a time option as epoch ms; None if it is not given."""
    if name not in texts:
        return None
    try:
        return time_ms(texts[name].strip())
    except (ValueError, OverflowError):
        raise BadOption(f"{name} is {texts[name]!r}, but must be ISO 8601 or epoch ms") from None


def _log_offset(texts: Mapping[str, str], name: str) -> int | None:
    """Parse a log offset option; None if it is not given. Raises BadOption."""
    if name not in texts:
        return None
    text = texts[name].strip()
    if not _is_number(text) or int(text) > LOG_OFFSET_MAX:
        raise BadOption(f"{name} is {texts[name]!r}, but must be a log offset")
    return int(text)


def _read_boolean(texts: Mapping[str, str], name: str, default: bool) -> bool:
    """Parse an option that is true or false; raises BadOption."""
    text = texts.get(name, str(default)).strip().lower()
    if text not in _BOOLEANS:
        raise BadOption(f"{name} is {texts[name]!r}, but must be true or false")
    return _BOOLEANS[text]


def _read_number(texts: Mapping[str, str], name: str, default: int, least: int) -> int:
    """Parse a number option with an optional unit (k, m, g or t: powers of 1024); raises
    BadOption below `least`."""
    if name not in texts:
        return default
    match = _SIZE.fullmatch(texts[name].strip())
    number = int(match[1]) << _POWERS[match[2].lower()] if match else -1
    if number < least:
        raise BadOption(f"{name} is {texts[name]!r}, but must be a number of at least {least}")
    return number
