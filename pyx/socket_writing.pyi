from turbopump.pyx.pending import Holder

SEALED_MAX: int

class SocketWriter(Holder):
    """The writing side of a connection. What the subclass has for it is in the stub of
    FastConnection."""

    sealing: bool
    """Something waits to be encrypted: what is written goes behind it."""
    queued: bool
    """The transport may have something to write."""

    def mute(self) -> None:
        """The peer is gone: what it sent is still handled, nothing is written any more.

        Before the transport closes its socket: the number may then be another connection's.
        """
