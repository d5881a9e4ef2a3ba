"""Counts the exceptions that nodes in this process catch and log.

A node answers a request whose handler raised with code 1 and logs the traceback. No seed of the
simulator may leave such a line: an exception is a response by design only where no line is logged
(BadHeader, BadBody) or one line without a traceback (a disk that fails). All catchers of the
product log with `exc_info`, so one handler of logging sees each of them. It must never change the
logged lines.
"""

import logging
import traceback
from typing import Final

CLIENTS: Final = "turbopump.net.client"
"""Logs the exceptions of the user's handlers."""


class LoggedFailures(logging.Handler):
    """Takes each line of an error that carries an exception."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line and its traceback."""
        if not record.exc_info or record.exc_info[1] is None or record.name.startswith(CLIENTS):
            return
        # An OSError of a full or failing disk is the disk's error, wherever it is logged.
        if isinstance(record.exc_info[1], OSError):
            return
        text = "".join(traceback.format_exception(record.exc_info[1]))
        self._found.append(f"{record.name}: {record.getMessage()}\n{text}")

    def take(self) -> list[str]:
        """The findings since the last call."""
        found, self._found = self._found, []
        return found


FAILURES: Final = LoggedFailures()


def watch() -> None:
    """Begin to count; a second call changes nothing."""
    logging.getLogger("turbopump").addHandler(FAILURES)


def check() -> None:
    """Raise AssertionError with the first exception that was logged since the last call."""
    found = FAILURES.take()
    if found:
        raise AssertionError(f"{len(found)} exceptions of handlers were logged\n{found[0]}")
