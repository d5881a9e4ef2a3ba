"""OpenMessaging Benchmark's workload files, as far as they apply to one broker group.

Owns their keys. It must never run a load.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from turbopump.cli.errors import UserError
from turbopump.cli.files import read_text

NO_KEY = "NO_KEY"
"""Value of keyDistributor for messages without keys."""
NUMBER_MAX = 1e12
"""Largest rate or number of minutes; YAML also has .inf and .nan."""
UNLIMITED_RATE = 1_000_000.0
"""Rate from which OpenMessaging's own files mean `as fast as possible`; we then use a closed
loop."""


def _read_integer(least: int) -> Callable[[str, Any], int]:
    """A reader (key, value) of whole numbers of at least `least`; it raises UserError."""

    def read(key: str, value: Any) -> int:
        if type(value) is not int or value < least:
            raise UserError(f"{key} is {value!r}: a whole number from {least} is expected")
        return value

    return read


def _read_number(key: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= NUMBER_MAX:
        raise UserError(f"{key} is {value!r}: a number from 0 is expected")
    return float(value)


def _read_text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UserError(f"{key} is {value!r}: text is expected")
    return value


KEYS: dict[str, Callable[[str, Any], Any]] = {
    "name": _read_text,
    "topics": _read_integer(1),
    "partitionsPerTopic": _read_integer(1),
    "messageSize": _read_integer(1),
    "payloadFile": _read_text,
    "keyDistributor": _read_text,
    "producersPerTopic": _read_integer(0),
    "consumerPerSubscription": _read_integer(0),
    "subscriptionsPerTopic": _read_integer(0),
    "producerRate": _read_number,
    "testDurationMinutes": _read_number,
    "warmupDurationMinutes": _read_number,
}
"""Known keys of a workload file, with the functions that check their values."""


class Workload:
    """A workload file (YAML), read when it is made: `values` by known key, and `ignored`, the names
    of unknown keys. Raises UserError for an unusable file or value, or without PyYAML."""

    def __init__(self, path: Path) -> None:
        try:
            import yaml
        except ImportError:
            raise UserError("--workload needs PyYAML: pip install 'PyYAML>=6'") from None
        try:
            found = yaml.safe_load(read_text(path))
        except yaml.YAMLError as error:
            raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
        if not isinstance(found, dict):
            raise UserError(f"{path} is no workload: keys and values are expected")
        self.values: dict[str, Any] = {}
        self.ignored = [str(key) for key in found if key not in KEYS]
        for key, read in KEYS.items():
            if found.get(key) is not None:
                try:
                    self.values[key] = read(key, found[key])
                except UserError as error:
                    raise UserError(f"{path}: {error}") from None
        self._folder = path.parent

    def read_body(self) -> bytes | None:
        """Read the payloadFile, relative to the workload's folder; None if the key is missing, or
        the file is and messageSize is given. Raises UserError if it is unreadable, or its size is
        not messageSize."""
        name = self.values.get("payloadFile")
        if name is None:
            return None
        path = self._folder / str(name)
        if not path.exists() and "messageSize" in self.values:
            return None
        try:
            content = path.read_bytes()
        except OSError as error:
            raise UserError(f"payloadFile {path}: {error.strerror}") from None
        size = self.values.get("messageSize", len(content))
        if len(content) != size:
            raise UserError(f"payloadFile {path} has {len(content)} bytes, messageSize is {size}")
        return content

    def plan_fields(self) -> dict[str, Any]:
        """Return the fields of Plan that the file sets, by name, without its shape and body."""
        known = self.values
        made: dict[str, Any] = {}
        topics = known.get("topics", 1)
        for key, name, factor in (
            ("topics", "topics", 1),
            ("partitionsPerTopic", "queues", 1),
            ("producersPerTopic", "send_connections", topics),
            ("testDurationMinutes", "duration_s", 60),
            ("warmupDurationMinutes", "warmup_s", 60),
        ):
            if key in known:
                made[name] = known[key] * factor
        if "producerRate" in known:
            rate = known["producerRate"]
            made["rate"] = 0.0 if rate >= UNLIMITED_RATE else rate
        consumers = known.get("consumerPerSubscription", 0)
        if consumers:
            made["pull_connections"] = consumers * topics
        return made

    def shape_fields(self) -> dict[str, Any]:
        """Return the fields of Shape that the file sets, by name."""
        made: dict[str, Any] = {}
        if "messageSize" in self.values:
            made["size"] = self.values["messageSize"]
        if "keyDistributor" in self.values:
            made["keys"] = self.values["keyDistributor"] != NO_KEY
        return made
