"""Destinations of a node's log: stderr, and rotating files in a folder.

Owns the format and the sizes of log files.

Tests: tests/unit/cli/test_run_command.py
"""

import logging
import logging.handlers
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILE_SIZE_MAX = 16 << 20  # bytes of a log file
FILES_MAX = 5  # older files kept: at most 100 MB of log
FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
"""Form of a log line, for logging.Formatter."""


def configure_logging(folder: Path | None, level: str) -> None:
    """Log messages of at least `level` (debug, info, warning, error) to stderr and, with a folder,
    which is made if it is missing, to turbopump.log in it. Raises OSError."""
    # The handler of a full disk or a closed terminal must not fill the other log with tracebacks.
    logging.raiseExceptions = False
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        handlers.append(
            logging.handlers.RotatingFileHandler(
                folder / "turbopump.log",
                maxBytes=FILE_SIZE_MAX,
                backupCount=FILES_MAX,
                encoding="utf-8",
            )
        )
    logging.basicConfig(format=FORMAT, level=level.upper(), handlers=handlers)


def name_brokers(current: Callable[[], str]) -> None:
    """Add the name that `current` returns, unless it is "", to each log line of this process: the
    broker that logs."""
    make = logging.getLogRecordFactory()

    def named(*words: Any, **more: Any) -> logging.LogRecord:
        record = make(*words, **more)
        if broker := current():
            record.name += f" [{broker}]"
        return record

    logging.setLogRecordFactory(named)
