"""Marks of half messages: whether their transactions have ended, and how."""

from collections.abc import Callable

class HalfMarks:
    """Outcomes of half messages, while this broker is master without a break. Loop thread only.

    Half messages are named by their queue offsets. `base` is the first half message that may be
    open. The lane may end half messages by itself only if they lie at or after `from_log_offset`,
    where the log of this term as master begins. `limit` is the greatest number of ended half
    messages that wait for an op message. `due()` is called after one has ended, and not again
    until `notified` is set to False.
    """

    notified: bool
    """Whether `due` was called; the writer of op messages sets this to False."""

    def __init__(
        self, base: int, from_log_offset: int, limit: int, due: Callable[[], None]
    ) -> None:
        """Begin with every half message from `base` on open. Raises ValueError for a negative base
        or limit."""

    @property
    def base(self) -> int:
        """Queue offset of the first half message with a mark; all earlier ones have ended."""

    def mark_of(self, at: int) -> int:
        """Return the mark of the half message at queue offset `at`: 0: open; -1: it lies before
        `base`; else the number that `end` or `set_mark` set."""

    def set_mark(self, at: int, mark: int) -> None:
        """Set the mark of the half message `at` to 0 to 255, without an op message; no-op before
        `base`. Raises ValueError for another mark."""

    def next_open(self, at: int) -> int:
        """Return the first open queue offset at or after both `at` and `base`; the queue may end
        before it."""

    def open_count(self, end: int) -> int:
        """Return the number of open half messages from `base` to before `end`, the queue's end."""

    def drop(self, base: int) -> None:
        """Forget the marks before `base`, the new first half message."""

    def end(self, at: int, mark: int) -> None:
        """Set the mark of the half message `at` and queue it for an op message, then call `due`
        unless `notified`. Raises ValueError for a mark that is not 0 to 255."""

    @property
    def waiting(self) -> int:
        """Number of ended half messages that wait for an op message."""

    @property
    def is_full(self) -> bool:
        """Whether `limit` is reached, so that no further half message may end."""

    def op_body(self, size: int) -> tuple[bytes, int, int]:
        """Return (body of an op message, its number of entries, the greatest of them, -1 without
        entries); the entries stay until `written`. Entries are queue offsets, each with a comma,
        the longest waiting first; the body has at most `size` bytes, but at least one entry."""

    def written(self, count: int) -> None:
        """Remove the `count` entries that waited longest, because an op message in the log names
        them. Raises ValueError for more entries than wait."""
