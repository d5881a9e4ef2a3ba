"""The bytes that a peer had sent before it closed, and that the loop does not read.

Owns a duplicate of the socket's descriptor, so that unread bytes can be read after the loop has
closed the original. It must never write.

Tests: tests/integration/transport/test_transport_last_words.py
"""

import os
from typing import Final

READS_MAX: Final = 64
"""Maximum number of calls of `SocketDrain.read_into`, each of up to 256 KiB: the kernel keeps a few
megabytes of a connection."""


class SocketDrain:
    """The unread bytes of a socket whose peer is gone, read from a duplicate of its descriptor. The
    constructor raises OSError if the descriptor cannot be duplicated; `close` must be called."""

    __slots__ = ("_descriptor", "_left", "_unread")

    def __init__(self, descriptor: int, unread: bytes) -> None:
        """`unread`: bytes that were read from the socket before and not handled."""
        self._unread = memoryview(unread)
        # The limit of connections leaves room for this descriptor: the loop closes the other right
        # after.
        self._descriptor = os.dup(descriptor)
        self._left = READS_MAX

    def read_into(self, room: memoryview) -> int:
        """Read unread bytes into `room`; returns their number. 0: all bytes were read, or reading
        failed, or READS_MAX reads were made."""
        if self._unread:
            size = min(len(self._unread), len(room))
            room[:size] = self._unread[:size]
            self._unread = self._unread[size:]
            return size
        if self._left == 0:
            return 0
        self._left -= 1
        try:
            return os.readv(self._descriptor, [room])
        except OSError:
            return 0  # all received bytes were read

    def close(self) -> None:
        """Close the duplicate descriptor; to be called once."""
        os.close(self._descriptor)
