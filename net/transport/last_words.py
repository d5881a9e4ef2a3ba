"""What a peer that is gone had sent: bytes that the loop does not read any more.

Owns a descriptor of the socket of its own, so that what lies unread can be read after the loop has
closed the other. It must never write. Called by the connection, in its turns.
"""

import os
from typing import Final

READS_MAX: Final = 64
"""Reads of up to 256 KiB: the kernel keeps a few megabytes of a connection."""


class LastWords:
    """The unread bytes of a socket whose peer is gone. Raises OSError if none can be read."""

    __slots__ = ("_descriptor", "_left")

    def __init__(self, descriptor: int) -> None:
        # The limit of connections leaves room for this one: the loop closes the other right after.
        self._descriptor = os.dup(descriptor)
        self._left = READS_MAX

    def read_into(self, room: memoryview) -> int:
        """Bytes of what lies unread; 0 at its end."""
        if self._left == 0:
            return 0
        self._left -= 1
        try:
            return os.readv(self._descriptor, [room])
        except OSError:
            return 0  # the end of what had arrived

    def close(self) -> None:
        """Nothing is read any more."""
        os.close(self._descriptor)
