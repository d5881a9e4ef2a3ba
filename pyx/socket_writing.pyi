"""The writing side of a connection of remoting."""

from turbopump.pyx.pending import Holder

SEALED_MAX: int
"""Maximum bytes that are encrypted at once before they are sent: four TLS records."""
JOINED_MAX: int
"""Bytes of messages found, and their answer, that are copied for an I/O thread; more bytes stay in
the log's mapping."""
UNSENT_UNCHECKED: int
"""Unsent bytes of an I/O thread up to which the connection's limits are not checked."""

class SocketWriter(Holder):
    """The writing side of a connection. The stub of FastConnection lists the methods that the
    subclass must have."""

    touched: bool
    """Whether bytes were read natively, or a held pull was answered, since this was last set to
    False; reads before `go_fast` set `active_at` instead."""
    sealing: bool
    """Whether buffers wait for encryption, so that further writes must wait after them."""
    queued: bool
    """Whether the transport may have bytes to write."""

    def mute(self) -> None:
        """Stop writing because the peer disconnected; its requests are still handled.

        Must be called before the transport closes its socket: the descriptor may then belong to
        another connection.
        """
