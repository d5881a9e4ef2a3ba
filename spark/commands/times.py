"""Parses times as a user writes them."""

from datetime import UTC, datetime
from typing import Final

TIME_MS_MAX: Final = 1 << 62
"""Greatest accepted epoch ms: far beyond any record's time, and within the numbers of kernels and
Spark."""


def time_ms(text: str) -> int:
    """Parse a time as epoch milliseconds.

    `text` is ISO 8601, in UTC if it names no zone, or a number of milliseconds up to TIME_MS_MAX.
    Raises ValueError.
    """
    if text.isascii() and text.isdigit():
        number = int(text)
        if number > TIME_MS_MAX:
            raise ValueError(f"{text} is not a time")
        return number
    time = datetime.fromisoformat(text)
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
