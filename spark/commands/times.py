"""Times as a user writes them. Called by the jobs' arguments and the options of the data source."""

from datetime import UTC, datetime


def time_ms(text: str) -> int:
    """Epoch milliseconds of what a user wrote: ISO 8601 (UTC if it names no zone) or a number of
    milliseconds. Raises ValueError."""
    if text.isascii() and text.isdigit():
        return int(text)
    time = datetime.fromisoformat(text)
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
