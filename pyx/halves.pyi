from collections.abc import Callable

class HalfMarks:
    """What became of the half messages of one reign. Loop thread only.

    `base` is the first one that may be open, `from_log_offset` where those of this reign begin, of
    which the lane may end one alone, `limit` how many may wait for an op message. `due()` is called
    when one has ended, and not again until `told` is taken back.
    """

    told: bool
    """Whether `due` was called; to be set to False by what it asks for."""

    def __init__(
        self, base: int, from_log_offset: int, limit: int, due: Callable[[], None]
    ) -> None: ...
    @property
    def base(self) -> int:
        """The first one that has a mark; all before it are done with."""

    def mark_of(self, at: int) -> int:
        """Its mark, 0: open; -1 of one before `base`."""

    def set_mark(self, at: int, mark: int) -> None:
        """Mark one, 0 to 255; nothing is kept of one before `base`."""

    def next_open(self, at: int) -> int:
        """The first one from there on, or from `base`, that is open; it may be none yet."""

    def open_count(self, end: int) -> int:
        """How many before `end`, the end of the queue, are open."""

    def drop(self, base: int) -> None:
        """Forget those before it."""

    def end(self, at: int, mark: int) -> None:
        """One has ended, and an op message is to say so. `due` is called last."""

    @property
    def waiting(self) -> int:
        """How many wait for an op message."""

    @property
    def is_full(self) -> bool:
        """Whether so many wait that no more may be ended."""

    def op_body(self, size: int) -> tuple[bytes, int, int]:
        """The body of an op message of at most that size, and of one entry at least: queue offsets
        of those that wait longest, each with a comma; how many, and the greatest of them, -1
        without any."""

    def written(self, count: int) -> None:
        """So many of those that wait longest are named by an op message."""
