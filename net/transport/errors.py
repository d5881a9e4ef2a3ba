"""The errors of calls between a client and a server.

Owns the exception classes of the transport. It must never hold behaviour.
"""

from turbopump.engine.types import TurbopumpError


class RemotingError(TurbopumpError):
    """A call without an answer, or a request that does not fit into a frame; base of this module's
    exceptions."""


class ConnectError(RemotingError, ConnectionError):
    """No connection to the server could be opened, so nothing was sent. Also a ConnectionError of
    Python's."""


class CallTimeout(RemotingError, TimeoutError):
    """The server did not answer in time; the request may have been carried out. Also a TimeoutError
    of Python's."""


class ConnectionClosed(RemotingError):
    """The connection ended before the answer, and the request may have been carried out; or this
    client was closed."""


class TooManyCalls(RemotingError):
    """The calls to this server that wait for their answers reached `RemotingOptions.max_in_flight`;
    nothing was sent."""
