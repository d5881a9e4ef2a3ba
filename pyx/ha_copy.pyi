"""The plain frames of a master's stream, at the replica that copies its log (csrc/ha_copy.h)."""

from typing import Self

from turbopump.engine.types import Buffer
from turbopump.pyx.tail import Tail

BODIES_MAX: int
"""Maximum number of bodies that a call of `take` takes."""
WRITE_MAX: int
"""Bytes from which `write` leaves the bodies to a write through the file."""

class PlainFrames:
    """The frames of a connection that only continue the log, and heartbeats between them. Loop
    thread only."""

    log_end: int
    """Log offset of the end of the copied log, the taken bodies included."""
    confirm_offset: int
    """The newest confirmOffset of the master, at most `log_end`; 0 in default HA."""

    @property
    def count(self) -> int:
        """Number of bodies that the last call of `take` took."""

    def __new__(cls, *, switching: bool) -> Self:
        """`switching`: frames of AutoSwitch HA, not of default HA. No frame is plain until
        `expect`."""

    def expect(self, epoch: int = 0, epoch_start: int = 0, stop: int = ...) -> None:
        """Let `take` take the next frames. In AutoSwitch HA they must have the label `epoch` and
        `epoch_start`, the epoch of the log's last byte and its first log offset, and must end
        before `stop`, the log offset at which the next epoch begins, if that is known."""

    def stop(self) -> None:
        """Let `take` take no frame until `expect`, and forget the taken bodies."""

    def take(self, data: Buffer) -> int:
        """Take the plain frames at the beginning of `data`, which begins where a frame does:
        `log_end` and `confirm_offset` follow them. Returns the size of these frames in bytes. The
        next frame is not plain, not whole, or after BODIES_MAX bodies. The bodies stay in
        `data`, which must not change before `write` or `drop`."""

    def write(self, tail: Tail) -> bool:
        """Append the taken bodies to the log, not durably, and forget them. False, with nothing
        written: they are no whole records, do not continue the open file or fill it, or have
        WRITE_MAX bytes or more. A process killed meanwhile leaves whole records, or zeros."""

    def bodies(self) -> list[tuple[int, memoryview]]:
        """Return (log offset, view of `data`) of each taken body, in order."""

    def drop(self) -> None:
        """Forget the taken bodies, so that their memory may be reused."""
