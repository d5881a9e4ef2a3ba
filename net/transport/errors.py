"""The errors of calls between a client and a server.

Owns the exception classes of the transport. It must never hold behaviour.
"""

from turbopump.engine.types import TurbopumpError


class RemotingError(TurbopumpError):
    """A call without an answer; base of this module's exceptions."""


class ConnectError(RemotingError, ConnectionError):
    """The server cannot be reached. Also a ConnectionError of Python's."""


class CallTimeout(RemotingError, TimeoutError):
    """The server did not answer in time; the request may have been carried out. Also a TimeoutError
    of Python's."""


class ConnectionClosed(RemotingError):
    """The connection ended before the answer; the request may have been carried out."""


class TooManyCalls(RemotingError):
    """Too many calls to this server wait for their answers; nothing was sent."""
