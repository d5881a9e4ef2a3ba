"""The options of the data source, read from the texts that Spark hands on.

Owns names, defaults and what is said of a value that cannot be. It must never need pyspark. Called
by `source`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from turbopump.engine.log_table import RANGE_BYTES
from turbopump.spark.schema import parse_columns

BATCH_ROWS = 4_096
"""Of a batch on its way into the JVM, which has two of them in memory for each task. What is read
row by row there should lie in a cache: with 16,384 rows a scan of all columns but bodies took a
quarter more of the JVM's time, with fewer than 4,096 more of Python's."""
PARTITION_BYTES_MIN = 1 << 10
"""Smaller ranges are a task for each record, which only a mistyped number asks for."""

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_BOOLEANS = {"true": True, "false": False}
_NAMES = (
    "path", "paths", "columns", "confirmed", "partitionBytes", "batchRows", "verifyCrc",
    "skipDamaged", "startingOffsets", "maxBytesPerTrigger", "failOnTruncation", "failOnDataLoss",
)  # fmt: skip

EARLIEST = "earliest"
LATEST = "latest"


class BadOption(ValueError):
    """An option that is not known, or a value that cannot be; the text names both."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a user of the data source chose; see docs/SPARK.md for each."""

    paths: tuple[str, ...]
    columns: tuple[str, ...]
    confirmed: bool = True
    partition_bytes: int = RANGE_BYTES
    batch_rows: int = BATCH_ROWS
    verify_crc: bool = False
    skip_damaged: bool = False
    starting_offsets: str = EARLIEST
    max_bytes_per_trigger: int | None = None
    fail_on_truncation: bool = True
    fail_on_data_loss: bool = True


def parse(given: Mapping[str, str]) -> Options:
    """The options as Spark has them, whose names know no case. Raises BadOption, UnknownColumn."""
    lower = {name.lower(): text for name, text in given.items()}
    known = {name.lower(): name for name in _NAMES}
    for name in sorted(set(lower) - set(known)):
        raise BadOption(f"there is no option {name!r}; there are {', '.join(_NAMES)}")
    texts = {known[name]: text for name, text in lower.items()}
    return Options(
        paths=_paths(texts),
        columns=parse_columns(texts.get("columns")),
        confirmed=_boolean(texts, "confirmed", True),
        partition_bytes=_number(texts, "partitionBytes", RANGE_BYTES, PARTITION_BYTES_MIN),
        batch_rows=_number(texts, "batchRows", BATCH_ROWS, 1),
        verify_crc=_boolean(texts, "verifyCrc", False),
        skip_damaged=_boolean(texts, "skipDamaged", False),
        starting_offsets=texts.get("startingOffsets", EARLIEST),
        max_bytes_per_trigger=_number(texts, "maxBytesPerTrigger", 0, 1) or None,
        fail_on_truncation=_boolean(texts, "failOnTruncation", True),
        fail_on_data_loss=_boolean(texts, "failOnDataLoss", True),
    )


def _paths(texts: Mapping[str, str]) -> tuple[str, ...]:
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


def _boolean(texts: Mapping[str, str], name: str, default: bool) -> bool:
    text = texts.get(name, str(default)).strip().lower()
    if text not in _BOOLEANS:
        raise BadOption(f"{name} is {texts[name]!r}, but must be true or false")
    return _BOOLEANS[text]


def _number(texts: Mapping[str, str], name: str, default: int, least: int) -> int:
    if name not in texts:
        return default
    match = _SIZE.fullmatch(texts[name].strip())
    number = int(match[1]) << _POWERS[match[2].lower()] if match else -1
    if number < least:
        raise BadOption(f"{name} is {texts[name]!r}, but must be a number of at least {least}")
    return number
